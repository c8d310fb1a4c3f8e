"""Consumer group members that read from explicit positions and commit explicitly."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lvq_kafka.cluster import Answered, Commit, GroupListener, GroupMember
from lvq_kafka.core.records import Fetch
from lvq_kafka.core.rights import consuming
from lvq_kafka.errors import BrokerUnavailable, Closed, LVQError, OffsetsPending, TopicNotFound, TransportError
from lvq_kafka.forking import LeftBehind, left_behind, notify_of_forks
from lvq_kafka.kafka.ages import milliseconds
from lvq_kafka.kafka.client import ClientConfig, PropertyValue
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.kafka_groups import commit_of, offsets_of
from lvq_kafka.kafka.offset_fetch import why_pending
from lvq_kafka.kafka.reader import FETCH_DEFAULTS, READ_RULES, MessagePump
from lvq_kafka.overriding import override
from lvq_kafka.retrying import patiently

__all__ = ["KafkaMember"]

_DEFAULTS: Mapping[str, PropertyValue] = {
    **FETCH_DEFAULTS,
    "topic.metadata.refresh.interval.ms": 30_000,  # the longest delay before added partitions are consumed
}
_CLASSIC_DEFAULTS: Mapping[str, PropertyValue] = {
    # A dead member holds its messages until its session expires. If another member joins meanwhile, the live ones
    # cannot commit before that, either: a broker reads nothing after a JoinGroup that it has not answered. So this is
    # the shortest session that brokers allow by default. The client heartbeats on a thread of its own, so neither slow
    # work nor a busy interpreter can let it expire.
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,  # also the time after which a member learns that another one has joined
}
_BEYOND = 4_000  # milliseconds by which a request may outlast a session
_COMMITTED_TIMEOUT = 5.0  # seconds for one request
_PENDING_TIMEOUT = 0.3  # seconds for one that waits for a transaction: it blocks everything else
_ASK_AGAIN = 1.0  # seconds until the next such request
_PATIENCE = 5.0  # seconds over all attempts; then the error is reported, and the next poll tries again
_VISIT = 1.0  # seconds that a poll may be delayed so that another thread can call the client
_LEAVING_POLL = 0.002  # seconds; the client revokes assigned partitions at once
_JOINING_POLL = 0.02  # seconds; without partitions, it may be about to be assigned some
_LEAVING = 2.0  # seconds for the client to revoke its partitions; it asks no broker
_UNANSWERED = 16  # commits whose answer still matters if it comes late


class KafkaMember(GroupMember, LeftBehind):
    """A member of a consumer group.

    The callbacks record the assignment here, and nothing outside of it is ever committed: a broker accepts a member's
    commits for partitions that it lost long ago, as long as it is a member again.

    Uses the classic protocol with the cooperative-sticky assignor, or the new one if the client property
    ``group.protocol`` is ``consumer``. In both, a member reads the partitions that it keeps without interruption.
    """

    def __init__(self, config: ClientConfig, group: str, topic: str, listener: GroupListener) -> None:
        self._config = config
        self._group = group
        self._topic = topic
        self.needs = consuming(group, topic)
        """The rights that a member needs, also for its part in a producer's transaction."""
        self._listener = listener
        self._owned: set[int] = set()
        self._waiting: set[int] = set()  # assigned by the group, but not owned yet: reading could not start
        self._paused: set[int] = set()  # those, and ones revoked before reading started: the client reads none
        self._pending = False  # whether a transaction holds the commits of waiting partitions
        self._ask_at = 0.0  # when to ask for those commits again
        self._leaving = False
        self._callbacks = 0  # number of callbacks from the client
        self._failure: Exception | None = None
        self._unanswered: list[tuple[Mapping[int, Commit], Answered]] = []
        self._door = Condition()
        self._visitors = 0  # threads that want to call the client while it is polled
        self._known_as: tuple[object, str] | None = None  # this member's identity, while the client cannot be asked
        self._health = Health(config.bootstrap_servers, config.properties)
        owned: dict[str, Any] = {**READ_RULES, "group.id": group, "on_commit": self._on_commit}
        defaults = dict(_DEFAULTS)
        if config.for_consumer().get("group.protocol", "classic") == "classic":
            owned["partition.assignment.strategy"] = "cooperative-sticky"
            defaults |= _CLASSIC_DEFAULTS
            defaults["socket.timeout.ms"] = _longer_than_a_session(config)
        self._consumer: Consumer | None = open_consumer(config, self._health, owned, defaults)
        self._left: Consumer | None = None  # in a forked child: the parent's
        notify_of_forks(self)
        self._pump = MessagePump(self._consumer, topic, self._health, needs=self.needs, late=True)
        self._asking(
            f"subscribe to topic {topic!r}",
            lambda client: client.subscribe(
                [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            ),
        )

    @property
    @override
    def losses(self) -> int:
        return self._health.losses

    @override
    def left_behind(self) -> None:
        self._door = Condition()
        self._left, self._consumer = self._consumer, None

    @override
    def poll(self, timeout: float) -> Fetch:
        consumer = self._open()
        if self._visitors:
            with self._door:
                self._door.wait_for(lambda: not self._visitors, _VISIT)
        if self._waiting and time.monotonic() >= self._ask_at:
            self._assign_waiting(consumer)
        try:
            fetch = self._pump.poll(timeout)
        except LVQError:
            self._raise_failure()
            raise
        self._raise_failure()
        if self._owned.issuperset(fetch.positions):
            return fetch
        # A partition can be revoked after the client has returned its records, in the same call.
        batch = fetch.batch.pick([row for row, p in enumerate(fetch.batch.partitions) if p in self._owned])
        mine = ({p: one for p, one in each.items() if p in self._owned} for each in (fetch.positions, fetch.epochs))
        return Fetch(batch, *mine)

    @override
    def commit(self, commits: Mapping[int, Commit]) -> None:
        offsets = self._positions(commits, self._open().memberid() or "")
        try:
            stored = self._open().commit(offsets=offsets, asynchronous=False)
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self._commit_error(error) from exception
        for partition in stored or ():
            if partition.error is not None:
                raise self._commit_error(partition.error)

    @override
    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        offsets = self._positions(commits, self._open().memberid() or "")
        self._unanswered = [*self._unanswered[-_UNANSWERED:], (dict(commits), answered)]
        self._asking(
            f"commit for group {self._group!r}", lambda client: client.commit(offsets=offsets, asynchronous=True)
        )

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

    def _commit_error(self, error: KafkaError) -> TransportError:
        explained = self._explain(error, f"commit for group {self._group!r}")
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
            with self._visit() as consumer:
                known_as = _identity(consumer)
        metadata, member_id = known_as
        # Only now: if a rebalance came in between, the group rejects the identity from before it.
        return self._positions(commits, member_id), metadata

    @override
    def close(self) -> None:
        if self._consumer is None:
            return
        self._leaving = True
        try:
            if self._owned:
                self._revoke(self._owned)
            self._leave(self._consumer)
        finally:
            consumer, self._consumer = self._consumer, None
            consumer.close()

    # ------------------------------------------------------------ callbacks, inside poll

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(lambda: self._assign(consumer, [partition.partition for partition in partitions]))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The listener may wait for a transaction, which needs this member's identity; but the client lets no other
        # thread in before this returns.
        self._known_as = _identity(consumer)
        try:
            self._guard(lambda: self._revoke({partition.partition for partition in partitions}))
        finally:
            self._known_as = None

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._guard(lambda: self._lose({partition.partition for partition in partitions}))

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

    def _assign(self, consumer: Consumer, partitions: list[int]) -> None:
        if not partitions or self._leaving:  # the new protocol also reports empty assignments
            return
        try:
            starts = self._starts(partitions)
        except Exception:
            # The client assigns them anyway, and by itself would read from the commits. So give it an offset, and
            # pause. The offset must not be the logical end: the client would look that up and, if the answer comes
            # late, go on from there although they have been reassigned (seen with librdkafka 2.16.0).
            self._waiting.update(partitions)
            self._paused.update(partitions)
            consumer.incremental_assign([TopicPartition(self._topic, p, 0) for p in partitions])
            consumer.pause(self._topic_partitions(partitions))
            raise
        self._assign_from(consumer, starts)

    def _assign_waiting(self, consumer: Consumer) -> None:
        starts = self._starts(sorted(self._waiting))
        consumer.incremental_unassign(self._topic_partitions(self._waiting))
        self._waiting.clear()
        self._assign_from(consumer, starts)

    def _assign_from(self, consumer: Consumer, starts: Mapping[int, int]) -> None:
        consumer.incremental_assign([TopicPartition(self._topic, p, start) for p, start in starts.items()])
        if paused := self._paused.intersection(starts):
            consumer.resume(self._topic_partitions(paused))
            self._paused -= paused
        self._owned.update(starts)
        self._pump.mend(starts)

    def _starts(self, partitions: list[int]) -> Mapping[int, int]:
        """Return where the listener wants to start, given the group's commits."""
        found = patiently(lambda: self._ask_for_commits(partitions), _PATIENCE, unless=(OffsetsPending,))
        for partition in found:
            if partition.error is not None:
                raise self._explain(partition.error, f"read the commits of group {self._group!r}")
        commits = {partition.partition: commit_of(partition) for partition in found if partition.offset >= 0}
        return self._listener.assigned(partitions, commits)

    def _ask_for_commits(self, partitions: list[int]) -> list[TopicPartition]:
        doing = f"read the commits of group {self._group!r}"
        timeout = _PENDING_TIMEOUT if self._pending else _COMMITTED_TIMEOUT
        try:
            found: list[TopicPartition] = self._asking(
                doing, lambda client: client.committed(self._topic_partitions(partitions), timeout)
            )
        except BrokerUnavailable as error:
            asked = self._topic_partitions(partitions)
            why = why_pending(self._config, self._group, asked, known=self._pending)
            self._pending = why is not None
            if why is None:
                raise
            self._ask_at = time.monotonic() + _ASK_AGAIN
            raise why from error
        self._pending = False
        return found

    def _revoke(self, partitions: Collection[int]) -> None:
        self._waiting.difference_update(partitions)
        going = sorted(self._owned.intersection(partitions))
        try:
            if going:
                self._listener.revoked(going)
        finally:
            self._owned.difference_update(going)

    def _leave(self, consumer: Consumer) -> None:
        """Unsubscribe, and wait until the client has reported all resulting revocations.

        A client that is closed with more than one event pending can wait for itself forever, holding the GIL
        (librdkafka issue 4884, seen here with 2.16.0): the whole process hangs, with all its threads.
        """
        with suppress(KafkaException):
            pause = _LEAVING_POLL if consumer.assignment() else _JOINING_POLL
            consumer.unsubscribe()
            deadline = time.monotonic() + _LEAVING
            told = -1
            while (self._callbacks != told or consumer.assignment()) and time.monotonic() < deadline:
                told = self._callbacks
                consumer.poll(pause)

    def _lose(self, partitions: Collection[int]) -> None:
        self._waiting.difference_update(partitions)
        gone = sorted(self._owned.intersection(partitions))
        self._owned.difference_update(gone)
        if gone:
            self._listener.lost(gone)

    # ------------------------------------------------------------ inside

    @contextmanager
    def _visit(self) -> Iterator[Consumer]:
        """Let this thread call the client while another one polls.

        The client admits one thread at a time, in no fair order: a thread that polls in a loop always wins. So that
        thread has to step back for a moment.
        """
        with self._door:
            self._visitors += 1
        try:
            yield self._open()
        except RuntimeError as error:  # the client's error once it is closed
            raise self._closed() from error
        finally:
            with self._door:
                self._visitors -= 1
                self._door.notify_all()

    def _positions(self, commits: Mapping[int, Commit], member_id: str) -> list[TopicPartition]:
        foreign = sorted(set(commits) - self._owned)
        if foreign or not member_id:
            raise TransportError(
                f"This member of group {self._group!r} does not hold partition {', '.join(map(str, foreign))} "
                f"of topic {self._topic!r} and cannot commit for it."
                if foreign
                else f"The group {self._group!r} has put this member out.",
                code="ILLEGAL_GENERATION" if foreign else "UNKNOWN_MEMBER_ID",
                retriable=not foreign,
                hint="Poll to learn what is assigned now.",
            )
        return offsets_of(self._topic, commits)

    def _topic_partitions(self, partitions: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in partitions]

    def _asking(self, doing: str, call: Callable[[Consumer], Any]) -> Any:
        try:
            return call(self._open())
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self._explain(error, doing) from exception

    def _explain(self, error: KafkaError, doing: str) -> LVQError:
        return self._health.explain(error, doing, topic=self._topic, needs=self.needs)

    def _open(self) -> Consumer:
        if self._left is not None:
            raise left_behind(f"This member of group {self._group!r}")
        if self._consumer is None:
            raise self._closed()
        return self._consumer

    def _closed(self) -> Closed:
        return Closed(f"This member of group {self._group!r} is closed.")


def _longer_than_a_session(config: ClientConfig) -> int:
    """Return how many milliseconds a request may take in the classic protocol.

    Requests sent after a JoinGroup wait for the session of a dead member to expire.
    """
    session = milliseconds({**_CLASSIC_DEFAULTS, **config.for_consumer()}, "session.timeout.ms", 0)
    return max(milliseconds(FETCH_DEFAULTS, "socket.timeout.ms", 0), session + _BEYOND)


def _identity(consumer: Consumer) -> tuple[object, str]:
    """Return this member's group metadata, for producers, and its member id.

    The id is empty once the group has removed this member. The metadata is read first, because a removed member does
    not rejoin before it polls; a producer that commits for no member at all would not be rejected.
    """
    return consumer.consumer_group_metadata(), consumer.memberid() or ""
