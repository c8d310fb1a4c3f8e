"""Consumer group members that read from explicit positions and commit explicitly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lvq_kafka.cluster import Answered, Commit, GroupListener, GroupMember, Membership
from lvq_kafka.core.facts import Right
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import LVQError, TopicNotFound, TransportError
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.kafka_groups import commit_of, offsets_of
from lvq_kafka.kafka.member_client import MemberClient
from lvq_kafka.kafka.member_partitions import MemberPartitions
from lvq_kafka.kafka.reader import MessagePump
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaMember"]

_UNANSWERED = 16  # commits whose answer still matters if it comes late


class KafkaMember(GroupMember):
    """A member of a consumer group on Kafka.

    The client calls back inside `poll` when its group assigns or revokes partitions, or when they are lost.
    """

    def __init__(self, config: ClientConfig, group: str, topic: str, listener: GroupListener) -> None:
        self._client = MemberClient(config, group, topic, self._on_commit)
        self._pump = MessagePump(self._client.get(), topic, self._client.health, needs=self._client.needs, late=True)
        self._partitions = MemberPartitions(self._client, self._pump, listener)
        self._committing = f"commit for group {group!r}"
        self._leaving = False
        self._callbacks = 0  # number of callbacks from the client
        self._failure: Exception | None = None
        self._unanswered: list[tuple[Mapping[int, Commit], Answered]] = []
        self._known_as: tuple[object, str] | None = None  # this member's identity, while the client cannot be asked
        self._client.ask(
            f"subscribe to topic {topic!r}",
            lambda client: client.subscribe(
                [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            ),
        )

    @property
    @override
    def losses(self) -> int:
        return self._client.health.losses

    @property
    @override
    def unheard(self) -> int:
        health = self._client.health
        return 0 if self._client.is_classic else health.losses + health.unanswered

    @property
    @override
    def membership(self) -> Membership:
        client = self._client.get()
        return Membership(client.memberid() or "", frozenset(one.partition for one in client.assignment()))

    @property
    def needs(self) -> tuple[Right, Right]:
        """The rights that a member needs, also for its part in a producer's transaction."""
        return self._client.needs

    @override
    def poll(self, timeout: float) -> Fetch:
        self._raise_failure()
        self._client.get()
        self._client.admit()
        self._partitions.retry()
        self._partitions.start_poll()
        try:
            fetch = self._pump.poll(timeout)
        except LVQError:
            self._raise_failure()
            raise
        fetch = self._partitions.owned_part(fetch)
        if not fetch.positions:  # else the next poll raises it: the client returns records once
            self._raise_failure()
        return fetch

    @override
    def commit(self, commits: Mapping[int, Commit]) -> None:
        offsets = self._positions(commits, self._client.get().memberid() or "")
        try:
            stored = self._client.get().commit(offsets=offsets, asynchronous=False)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self._commit_error(error) from None
        for partition in stored or ():
            if partition.error is not None:
                raise self._commit_error(partition.error)

    @override
    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        offsets = self._positions(commits, self._client.get().memberid() or "")
        self._unanswered = [*self._unanswered[-_UNANSWERED:], (dict(commits), answered)]
        self._client.ask(self._committing, lambda client: client.commit(offsets=offsets, asynchronous=True))

    def _commit_error(self, error: KafkaError) -> TransportError:
        explained = self._client.explain(error, self._committing)
        if isinstance(explained, TransportError):
            return explained
        # A coordinator may not know a new topic, or partition, yet.
        retriable = error.retriable() or isinstance(explained, TopicNotFound)
        return TransportError(str(explained), code=error.name(), retriable=retriable)

    def transaction_offsets(self, commits: Mapping[int, Commit]) -> tuple[list[TopicPartition], object]:
        """Return what a producer needs to make these commits part of its transaction.

        That is the positions and this member's identity. Any thread may call this while another one polls.

        Raises:
            TransportError: a partition is not assigned. The broker would accept the commit all the same.
        """
        known_as = self._known_as
        if known_as is None:
            with self._client.visit() as consumer:
                known_as = _identity(consumer)
        metadata, member_id = known_as
        # Only now: if a rebalance came in between, the group rejects the identity from before it.
        return self._positions(commits, member_id), metadata

    @override
    def close(self) -> None:
        if not self._client.is_open:
            return
        self._leaving = True
        try:
            if self._partitions.owned:
                self._partitions.revoke(self._partitions.owned)
            self._client.leave(lambda: self._callbacks)
        finally:
            self._client.close()

    # ------------------------------------------------------------ callbacks, inside poll

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(lambda: self._assign(consumer, [one.partition for one in partitions]))

    def _assign(self, consumer: Consumer, partitions: list[int]) -> None:
        if partitions and not self._leaving:  # the new protocol also reports empty assignments
            self._partitions.assign(consumer, partitions)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The listener may wait for a transaction, which needs this member's identity; but the client lets no other
        # thread in before this returns.
        self._known_as = _identity(consumer)
        try:
            self._guard(lambda: self._partitions.revoke({one.partition for one in partitions}))
        finally:
            self._known_as = None

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(lambda: self._partitions.lose({one.partition for one in partitions}))

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Pass on the answer to a commit.

        The client does not say which commit it answers, but repeats its offsets.
        """
        asked = {partition.partition: commit_of(partition) for partition in partitions}
        found = [number for number, (commits, _) in enumerate(self._unanswered) if commits == asked]
        if found:
            _, answered = self._unanswered[found[0]]
            del self._unanswered[: found[0] + 1]
            errors = {partition.partition: partition.error or error for partition in partitions}
            outcome = {number: None if error is None else self._commit_error(error) for number, error in errors.items()}
            self._guard(lambda: answered(outcome))

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a callback and keep its error for `poll` to raise.

        The client has to finish what it is in the middle of.
        """
        self._callbacks += 1
        try:
            step()
        except Exception as error:  # noqa: BLE001  # the listener may raise anything
            self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _positions(self, commits: Mapping[int, Commit], member_id: str) -> list[TopicPartition]:
        foreign = sorted(set(commits) - self._partitions.owned)
        if foreign or not member_id:
            raise TransportError(
                f"This member of group {self._client.group!r} does not hold partition {', '.join(map(str, foreign))} "
                f"of topic {self._client.topic!r} and cannot commit for it."
                if foreign
                else f"The group {self._client.group!r} has removed this member.",
                code="ILLEGAL_GENERATION" if foreign else "UNKNOWN_MEMBER_ID",
                retriable=not foreign,
                hint="Poll to learn what is assigned now.",
            )
        return offsets_of(self._client.topic, commits)


def _identity(consumer: Consumer) -> tuple[object, str]:
    """Return this member's group metadata, for producers, and its member id.

    The id is empty once the group has removed this member. The metadata is read first, because a removed member does
    not rejoin before it polls; a producer that commits for no member at all would not be rejected.
    """
    return consumer.consumer_group_metadata(), consumer.memberid() or ""
