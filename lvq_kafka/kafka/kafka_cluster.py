"""The Kafka adapter: a cluster as the library's drivers see it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lvq_kafka.cluster import Commit, GroupListener, GroupMember, LogEnd, LogReader, LogWriter, TopicDescription
from lvq_kafka.core.rights import Operation
from lvq_kafka.forking import Bound
from lvq_kafka.kafka.admin import EARLIEST, LATEST, KafkaAdmin, at
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.groups import KafkaGroups
from lvq_kafka.kafka.reader import KafkaReader
from lvq_kafka.kafka.truncation import check_uncut, overwritten

__all__ = ["KafkaCluster"]


class KafkaCluster(Bound):
    """A Kafka cluster, as `lvq_kafka.cluster.Cluster` describes it. Thread-safe.

    All instances with the same configuration in a process share one connection for queries. Readers, members and
    writers have connections of their own, and so does each change (`lvq_kafka.kafka.admin_requests`).

    Raises:
        ConfigError: the client rejects its properties. Whether a broker answers shows only in the first call.
        AuthenticationFailed: the property ``oauth_cb`` provides no token.
    """

    def __init__(self, config: ClientConfig | str) -> None:
        self.config = ClientConfig(config) if isinstance(config, str) else config
        self._requests = AdminRequests(self.config)
        self._admin = KafkaAdmin(self._requests)
        self._groups = KafkaGroups(self.config, self._requests, self._admin)

    def __repr__(self) -> str:
        return f"KafkaCluster({self.config.bootstrap_servers!r})"

    def describe_topic(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        """See `lvq_kafka.cluster.Cluster.describe_topic`."""
        return self._admin.describe_topic(topic, timeout)

    def topic_config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        """See `lvq_kafka.cluster.Cluster.topic_config`."""
        return self._admin.topic_config(topic, timeout)

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        """See `lvq_kafka.cluster.Cluster.create_topic`. Returns once the topic is usable.

        Raises:
            ConfigError: the cluster rejects a setting, the partition count or the replication factor.
        """
        return self._admin.create_topic(topic, partitions, replication_factor, config, timeout)

    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may_create`."""
        self._admin.check_may_create(topic, partitions, replication_factor, config, timeout)

    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may`."""
        self._admin.check_may(operation, topic, timeout)

    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may_commit`."""
        self._groups.check_may_commit(group, topic, timeout)

    def alter_topic_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.alter_topic_config`.

        Raises:
            ConfigError: the cluster rejects a setting.
        """
        self._admin.alter_topic_config(topic, config, timeout)

    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.add_partitions`. Returns once the partitions are usable.

        Raises:
            ConfigError: the topic already has that many partitions.
        """
        self._admin.add_partitions(topic, total, timeout)

    def delete_topic(self, topic: str, *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.delete_topic`.

        Returns once the topic has disappeared for readers, too.
        """
        self._admin.delete_topic(topic, timeout)

    def broker_count(self, *, timeout: float = 10.0) -> int:
        """See `lvq_kafka.cluster.Cluster.broker_count`."""
        return len(self._admin.brokers(timeout))

    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        """See `lvq_kafka.cluster.Cluster.commit_text_limit`."""
        return self._admin.commit_text_limit(timeout)

    def alter_broker_config(self, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """Set dynamic settings on every broker; not part of `lvq_kafka.cluster.Cluster`.

        Raises:
            ConfigError: the cluster rejects a setting.
        """
        self._admin.alter_broker_config(config, timeout)

    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.start_offsets`."""
        return self._admin.offsets(topic, EARLIEST, timeout)

    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.end_offsets`."""
        return self._admin.offsets(topic, LATEST, timeout, stable=stable, partitions=partitions)

    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        """See `lvq_kafka.cluster.Cluster.stable_ends`."""
        return self._admin.ends(topic, timeout, stable=True, partitions=partitions)

    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.check_uncut`."""
        self._requests.check_open()
        check_uncut(self.config, topic, ends, timeout)

    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.overwritten`."""
        deadline = time.monotonic() + timeout
        starts = self._admin.offsets(topic, EARLIEST, timeout)
        stable = self._admin.offsets(topic, LATEST, timeout, stable=True)
        there = {partition: end._replace(offset=min(end.offset, stable[partition])) for partition, end in ends.items()}
        below = {partition: end for partition, end in there.items() if starts[partition] < end.offset}
        return overwritten(self.config, topic, starts, below, deadline - time.monotonic()) if below else {}

    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.offsets_at`."""
        found = self._admin.offsets(topic, at(timestamp), timeout)
        if min(found.values()) < 0:
            ends = self.end_offsets(topic, timeout=timeout)
            found = {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}
        return found

    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.delete_before`."""
        return self._admin.delete_before(topic, offsets, timeout)

    def committed(
        self,
        group: str,
        topic: str,
        *,
        decided: bool = True,
        partitions: int | None = None,
        timeout: float = 10.0,
    ) -> dict[int, Commit]:
        """See `lvq_kafka.cluster.Cluster.committed`."""
        return self._groups.committed(group, topic, timeout, decided=decided, partitions=partitions)

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """See `lvq_kafka.cluster.Cluster.commit`."""
        self._groups.commit(group, topic, commits, timeout)

    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        """See `lvq_kafka.cluster.Cluster.committed_at`."""
        return self._groups.committed_at(group, timeout)

    def delete_group(self, group: str, *, timeout: float = 10.0) -> bool:
        """See `lvq_kafka.cluster.Cluster.delete_group`."""
        return self._groups.delete_group(group, timeout)

    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        """See `lvq_kafka.cluster.Cluster.member_count`."""
        return self._groups.member_count(group, timeout)

    def reader(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
        decided: bool = True,
    ) -> LogReader:
        """See `lvq_kafka.cluster.Cluster.reader`.

        In addition, ``decided=False`` returns the records of open and aborted transactions, too.
        """
        self._requests.check_open()
        return KafkaReader(self.config, topic, positions, headers=headers, late=late, decided=decided)

    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        """See `lvq_kafka.cluster.Cluster.member`."""
        self._requests.check_open()
        from lvq_kafka.kafka.member import KafkaMember

        return KafkaMember(self.config, group, topic, listener)

    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        """See `lvq_kafka.cluster.Cluster.writer`."""
        self._requests.check_open()
        from lvq_kafka.kafka.writer import KafkaWriter

        return KafkaWriter(self.config, transactional_id=transactional_id, max_block=max_block)

    def close(self) -> None:
        """See `lvq_kafka.cluster.Cluster.close`."""
        self._groups.close()
        self._requests.close()
