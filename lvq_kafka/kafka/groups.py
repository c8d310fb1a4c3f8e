"""Consumer group commits, read and set from outside the group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from lvq_kafka.cluster import Commit
from lvq_kafka.core.rights import Right, consuming
from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka.admin import KafkaAdmin
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.offset_fetch import COMMITS, OffsetFetcher, home_of

__all__ = ["KafkaGroups", "commit_of", "offsets_of"]

GroupOffsets = Future[ConsumerGroupTopicPartitions]

_NO_PARTITION = 2**31 - 1  # no topic has that many partitions
_FOREVER = 300.0  # seconds that an abandoned request may stay open


class KafkaGroups:
    """Group operations of `lvq_kafka.kafka.KafkaCluster`.

    The methods are those of `lvq_kafka.cluster.Cluster`. There are two `OffsetFetcher`s, because a caller that waits
    for a transaction holds up others that ask about the same group.
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
        """See `lvq_kafka.cluster.Cluster.committed_at`.

        Commits are records of a topic, so they have timestamps. They are the only cluster time that a client can see
        without writing to a topic.
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
            return 0
        return len(described.members)

    @contextmanager
    def _new_connections(self, deadline: float) -> Iterator[AdminRequests]:
        """Yield an `AdminRequests` with new, working connections, for a group's coordinator.

        When the admin client (2.16.1) has lost a coordinator's connection without noticing, it does not open another
        one but waits for it. If nothing comes, it may abort the process (librdkafka issues 3663 and 4605).
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
