"""Consumer group commits, read and set from outside the group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from lvq_kafka.cluster import Assigned, Commit, ConsumerGroups
from lvq_kafka.cluster.rights import consuming
from lvq_kafka.core.facts import Right
from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.kafka_brokers import KafkaBrokers
from lvq_kafka.kafka.kafka_logs import KafkaLogs
from lvq_kafka.kafka.offset_fetch import COMMITS, OffsetFetcher, home_of
from lvq_kafka.kafka.topic_metadata import TopicMetadata
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaGroups", "commit_of", "offsets_of"]

GroupOffsets = Future[ConsumerGroupTopicPartitions]

_NO_PARTITION = 2**31 - 1  # no topic has that many partitions
_FOREVER = 300.0  # seconds that an abandoned request may stay open


class KafkaGroups(ConsumerGroups):
    """The consumer groups of a Kafka cluster.

    There are two `OffsetFetcher`s, because a caller that waits for a transaction holds up others that ask about the
    same group.
    """

    def __init__(
        self,
        config: ClientConfig,
        requests: AdminRequests,
        brokers: KafkaBrokers,
        metadata: TopicMetadata,
        logs: KafkaLogs,
    ) -> None:
        self._config = config
        self._requests = requests
        self._brokers = brokers
        self._metadata = metadata
        self._logs = logs
        self._decided = OffsetFetcher(config, decided=True)
        self._by_now = OffsetFetcher(config, decided=False)

    def close(self) -> None:
        """Let go of the connections."""
        self._decided.close()
        self._by_now.close()

    @override
    def committed(
        self,
        group: str,
        topic: str,
        *,
        decided: bool = True,
        partitions: int | None = None,
        timeout: float = 10.0,
    ) -> dict[int, Commit]:
        self._requests.check_open()
        deadline = time.monotonic() + timeout
        try:
            if partitions is None:
                partitions = self._metadata.describe(topic, deadline).partitions
        except TopicNotFound:
            return {}
        fetcher = self._decided if decided else self._by_now
        return _commits(fetcher.fetch(group, topic, range(partitions), deadline))

    @override
    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """Commit for a group that currently has no members. Reads back what it wrote."""
        deadline = time.monotonic() + timeout
        partitions = self._metadata.describe(topic, deadline).partitions
        if unknown := sorted(partition for partition in commits if partition >= partitions):
            raise TopicNotFound(f"The topic {topic!r} has {partitions} partitions, but no {unknown}.", topic=topic)
        with self._new_connections(deadline) as requests:
            self._metadata.ask_leaders(
                topic, lambda _: _store(requests, group, topic, commits, deadline), deadline, partitions
            )
        stored = _commits(self._by_now.fetch(group, topic, commits, max(deadline, time.monotonic() + 0.1)))
        lost = sorted(partition for partition, commit in commits.items() if stored.get(partition) != commit)
        if lost:
            raise TransportError(
                f"Group {group!r} does not hold what was committed for partitions {lost} of topic {topic!r}.",
                code="_STATE",
                retriable=True,
                hint="Something else commits for this group at the same time.",
            )

    @override
    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        # Commits are records of a topic, so they have timestamps. They are the only cluster time that a client can see
        # without writing to a topic.
        return self._logs.newest_timestamp(COMMITS, lambda partitions: home_of(group, partitions), timeout) / 1000

    @override
    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        # A broker checks rights before it looks for the partition.
        with self._new_connections(deadline) as requests, suppress(TopicNotFound):
            _store(requests, group, topic, {_NO_PARTITION: Commit(0)}, deadline, harmless=True)

    @override
    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        # The client appends a NUL, which counts.
        return int(self._brokers.setting("offset.metadata.max.bytes", timeout)) - 1

    @override
    def retention(self, *, timeout: float = 10.0) -> float:
        return int(self._brokers.setting("offsets.retention.minutes", timeout)) * 60.0

    @override
    def assigned(self, group: str, topic: str, member: str, *, timeout: float = 10.0) -> Assigned | None:
        for one in self._members(group, timeout):
            if one.member_id == member:
                now = _partitions(one.assignment, topic)
                target = one.target_assignment  # in the consumer protocol
                return Assigned(now, now if target is None else _partitions(target, topic))
        return None

    @override
    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        return len(self._members(group, timeout))

    def _members(self, group: str, timeout: float) -> Sequence[Any]:
        deadline = time.monotonic() + timeout
        try:
            with self._new_connections(deadline) as requests:
                [described] = requests.ask(
                    # A caller that gives up leaves the request to its client, which is dropped later.
                    lambda client, left: client.describe_consumer_groups([group], request_timeout=_FOREVER).values(),
                    f"describe group {group!r}",
                    deadline,
                    needs=[Right("Describe", "Group", group)],
                    harmless=True,
                )
        except TransportError as error:
            if error.code != "GROUP_ID_NOT_FOUND":
                raise
            return ()
        return list(described.members)

    @override
    def delete(self, group: str, *, timeout: float = 10.0) -> bool:
        deadline = time.monotonic() + timeout
        try:
            with self._new_connections(deadline) as requests:
                requests.ask(
                    lambda client, left: client.delete_consumer_groups([group], request_timeout=left).values(),
                    f"delete group {group!r}",
                    deadline,
                    needs=[Right("Delete", "Group", group)],
                )
        except TransportError as error:
            if error.code != "GROUP_ID_NOT_FOUND":
                raise
            return False
        return True

    @contextmanager
    def _new_connections(self, deadline: float) -> Iterator[AdminRequests]:
        """Yield an `AdminRequests` with new, working connections, for a group's coordinator.

        When the admin client (2.16.1) has lost a coordinator's connection without noticing, it does not open another
        one but waits for it. If nothing comes, it may abort the process (librdkafka issues 3663 and 4605).
        """
        self._requests.check_open()
        with closing(AdminRequests(self._config, shared=False)) as requests:
            KafkaBrokers(requests).ids(max(0.1, deadline - time.monotonic()))
            yield requests


def _partitions(assignment: Any, topic: str) -> frozenset[int]:
    return frozenset(place.partition for place in assignment.topic_partitions if place.topic == topic)


def _store(
    requests: AdminRequests,
    group: str,
    topic: str,
    commits: Mapping[int, Commit],
    deadline: float,
    *,
    harmless: bool = False,
) -> None:
    request = [ConsumerGroupTopicPartitions(group, offsets_of(topic, commits))]
    requests.ask(
        lambda client, left: map(
            _each_partition, client.alter_consumer_group_offsets(request, request_timeout=left).values()
        ),
        f"commit for group {group!r} in topic {topic!r}",
        deadline,
        topic=topic,
        needs=consuming(group, topic),
        harmless=harmless,
    )


def _commits(found: Iterable[TopicPartition]) -> dict[int, Commit]:
    return {partition.partition: commit_of(partition) for partition in found if partition.offset >= 0}


def commit_of(partition: TopicPartition) -> Commit:
    """Return the commit in one of the client's partitions.

    This client reads past the end of metadata that another kind of client wrote (without a NUL). Readers of metadata
    must ignore what follows; where that is not text, only the text before it is returned.
    """
    try:
        metadata = partition.metadata or ""
    except UnicodeDecodeError as error:
        metadata = error.object[: error.start].decode("utf-8")
    epoch = partition.leader_epoch
    return Commit(partition.offset, metadata, -1 if epoch is None else epoch)  # type: ignore[redundant-expr]


def offsets_of(topic: str, commits: Mapping[int, Commit]) -> list[TopicPartition]:
    """Return commits as the client takes them."""
    return [TopicPartition(topic, p, one.offset, one.metadata, one.leader_epoch) for p, one in commits.items()]


def _each_partition(future: GroupOffsets) -> GroupOffsets:
    """Return a future that fails if any partition in the answer has failed.

    The client's own future does not.
    """
    checked: GroupOffsets = Future()

    def check(done: GroupOffsets) -> None:
        exception = done.exception()
        if exception is None:
            errors = [partition.error for partition in done.result().topic_partitions or () if partition.error]
            exception = KafkaException(errors[0]) if errors else None
        if exception is None:
            checked.set_result(done.result())
        else:
            checked.set_exception(exception)

    future.add_done_callback(check)
    return checked
