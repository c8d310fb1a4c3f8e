"""What consumer groups have committed, seen and set from outside."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from lvq_kafka.cluster import Commit
from lvq_kafka.core.rights import Right, consuming
from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka.admin import KafkaAdmin
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.offset_fetch import COMMITS, OffsetFetcher, home_of

__all__ = ["KafkaGroups", "commit_of", "offsets_of"]

T = TypeVar("T")
GroupOffsets = Future[ConsumerGroupTopicPartitions]

_NO_PARTITION = 2**31 - 1  # no topic has so many
_FOREVER = 300.0  # seconds; how long a question may be left open
_PAUSE = 0.02  # seconds
_SLICE = 1.0  # seconds; after that it is looked whether the broker refuses us, which the call itself does not tell


class KafkaGroups:
    """The group part of `lvq_kafka.kafka.KafkaCluster`; its methods are those of `lvq_kafka.cluster.Cluster`.

    Commits are read by `OffsetFetcher`. There are two of them, since who waits for a transaction keeps others of its
    group waiting.
    """

    def __init__(self, config: ClientConfig, requests: AdminRequests, admin: KafkaAdmin) -> None:
        self._config = config
        self._requests = requests
        self._admin = admin
        self._decided = OffsetFetcher(config, decided=True)
        self._by_now = OffsetFetcher(config, decided=False)

    def close(self) -> None:
        """Let go of the connections."""
        self._decided.close()
        self._by_now.close()

    def committed(
        self, group: str, topic: str, timeout: float, *, decided: bool = True, partitions: int | None = None
    ) -> dict[int, Commit]:
        """See `lvq_kafka.cluster.Cluster.committed`."""
        self._requests.check_open()
        deadline = time.monotonic() + timeout
        try:
            if partitions is None:
                partitions = self._admin.describe_topic(topic, timeout).partitions
        except TopicNotFound:
            return {}
        fetcher = self._decided if decided else self._by_now
        return _commits(fetcher.fetch(group, topic, range(partitions), deadline))

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.commit`. Reads back what it wrote."""
        deadline = time.monotonic() + timeout
        partitions = self._admin.describe_topic(topic, timeout).partitions
        if unknown := sorted(partition for partition in commits if partition >= partitions):
            raise TopicNotFound(f"The topic {topic!r} has {partitions} partitions, and no {unknown}.", topic=topic)
        with self._new_connections(deadline) as requests:
            self._admin.ask_brokers(
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

    def committed_at(self, group: str, timeout: float) -> float:
        """See `lvq_kafka.cluster.Cluster.committed_at`. Commits are records of a topic, and so have a time.

        It is the only time of the cluster's that a client gets to see without writing into a topic.
        """
        return self._admin.newest(COMMITS, lambda partitions: home_of(group, partitions), timeout) / 1000

    def check_may_commit(self, group: str, topic: str, timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may_commit`.

        A broker checks rights before it looks for the partition.
        """
        deadline = time.monotonic() + timeout
        with self._new_connections(deadline) as requests, suppress(TopicNotFound):
            _store(requests, group, topic, {_NO_PARTITION: Commit(0)}, deadline, harmless=True)

    def delete_group(self, group: str, timeout: float) -> bool:
        """See `lvq_kafka.cluster.Cluster.delete_group`."""
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

    def member_count(self, group: str, timeout: float) -> int:
        """See `lvq_kafka.cluster.Cluster.member_count`."""
        deadline = time.monotonic() + timeout
        try:
            with self._new_connections(deadline) as requests:
                [described] = requests.ask(
                    # Whoever gives up waiting leaves it to its client, and has that let go.
                    lambda client, left: client.describe_consumer_groups([group], request_timeout=_FOREVER).values(),
                    f"describe group {group!r}",
                    deadline,
                    needs=[Right("Describe", "Group", group)],
                    harmless=True,
                )
        except TransportError as error:
            if error.code != "GROUP_ID_NOT_FOUND":
                raise
            return 0
        return len(described.members)

    @contextmanager
    def _new_connections(self, deadline: float) -> Iterator[AdminRequests]:
        """For what only a group's coordinator can answer: connections that are new, and seen to work.

        The admin client (2.16.1) does not open one to a coordinator again that it has lost without noticing; it waits
        for it. And when it has waited in vain it may abort the process (librdkafka's issues 3663 and 4605).
        """
        self._requests.check_open()
        with closing(AdminRequests(self._config, shared=False)) as requests:
            KafkaAdmin(requests).brokers(max(0.1, deadline - time.monotonic()))
            yield requests


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
    """The commit in one of the client's partitions.

    This client reads metadata that another kind of client wrote (without a NUL) past its end. A reader of metadata
    must not mind what follows; where that is no text, the text before it is returned.
    """
    try:
        metadata = partition.metadata or ""
    except UnicodeDecodeError as error:
        metadata = error.object[: error.start].decode("utf-8")
    epoch = partition.leader_epoch
    return Commit(partition.offset, metadata, -1 if epoch is None else epoch)  # type: ignore[redundant-expr]


def offsets_of(topic: str, commits: Mapping[int, Commit]) -> list[TopicPartition]:
    """Commits as the client takes them."""
    return [TopicPartition(topic, p, one.offset, one.metadata, one.leader_epoch) for p, one in commits.items()]


def _each_partition(future: GroupOffsets) -> GroupOffsets:
    """A future that fails where one partition of the answer has failed; the client's own does not."""
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
