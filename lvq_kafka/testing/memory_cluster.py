"""An in-memory cluster with the Kafka behavior that last value queues depend on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from lvq_kafka.cluster import Commit, GroupListener, GroupMember, LogEnd, LogReader, LogWriter, TopicDescription
from lvq_kafka.core.rights import Operation
from lvq_kafka.errors import Closed, ConfigError, DataLoss, OffsetsPending, TransportError
from lvq_kafka.testing.memory_controls import Controls
from lvq_kafka.testing.memory_member import MemoryMember
from lvq_kafka.testing.memory_partition import PartitionLog, Topic
from lvq_kafka.testing.memory_reader import MemoryReader
from lvq_kafka.testing.memory_state import DEFAULTS
from lvq_kafka.testing.memory_writer import MemoryWriter

__all__ = ["MemoryCluster"]


class MemoryCluster(Controls):
    """`lvq_kafka.cluster.Cluster` in memory: Kafka for tests, without broker, thread or sleep.

    Pass it as ``cluster=`` wherever the library takes bootstrap servers. One contract suite runs against it and a real
    broker, so it behaves the same: markers, aborted records and compaction skip offsets, readers stop at the last
    stable offset, and groups rebalance.

    It also lets a test simulate the cluster, its other users and its network: see `Controls`.
    """

    _closed = False

    def describe_topic(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        """See `Cluster.describe_topic`."""
        with self._state.changed:
            found = self._topic("describe_topic", topic)
            return TopicDescription(topic, found.id, len(found.partitions), found.replication_factor)

    def topic_config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        """See `Cluster.topic_config`."""
        with self._state.changed:
            return {**DEFAULTS, **self._topic("topic_config", topic).config}

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        """See `Cluster.create_topic`."""
        cluster = self._state
        with cluster.changed:
            self._enter("create_topic")
            if not self._creatable(topic, partitions, replication_factor, config):
                return False
            made = Topic(topic, cluster.new_topic_id(), replication_factor or 1, dict(config), [])
            made.grow(partitions)
            cluster.topics[topic] = made
            self._partitions_changed(topic, partitions)
            return True

    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        """See `Cluster.check_may_create`. Allowed unless `fail_next` says otherwise."""
        with self._state.changed:
            self._enter("check_may_create")
            self._creatable(topic, partitions, replication_factor, config)

    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        """See `Cluster.check_may`. Allowed unless `fail_next` says otherwise."""
        with self._state.changed:
            self._topic("check_may", topic)

    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        """See `Cluster.check_may_commit`. Allowed unless `fail_next` says otherwise."""
        with self._state.changed:
            self._enter("check_may_commit")

    def alter_topic_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """See `Cluster.alter_topic_config`."""
        with self._state.changed:
            found = self._topic("alter_topic_config", topic)
            _check_settings(config)
            found.config.update(config)

    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        """See `Cluster.add_partitions`."""
        with self._state.changed:
            found = self._topic("add_partitions", topic)
            if total <= len(found.partitions):
                raise ConfigError(
                    f"The topic {topic!r} has {len(found.partitions)} partitions already.", options=["total"]
                )
            found.grow(total)
            self._partitions_changed(topic, total)

    def delete_topic(self, topic: str, *, timeout: float = 10.0) -> None:
        """See `Cluster.delete_topic`."""
        with self._state.changed:
            del self._state.topics[self._topic("delete_topic", topic).name]
            for group in self._state.groups.values():
                group.forget(topic)
            self._state.changed.notify_all()

    def broker_count(self, *, timeout: float = 10.0) -> int:
        """See `Cluster.broker_count`."""
        with self._state.changed:
            self._enter("broker_count")
            return self._state.brokers

    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        """See `Cluster.commit_text_limit`."""
        with self._state.changed:
            self._enter("commit_text_limit")
            return self._state.metadata_limit

    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        """See `Cluster.start_offsets`."""
        return self._offsets("start_offsets", topic, lambda partition: partition.start)

    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        """See `Cluster.end_offsets`."""
        ends = self._offsets("end_offsets", topic, lambda partition: partition.stable if stable else partition.end)
        return {partition: end for partition, end in ends.items() if partitions is None or partition < partitions}

    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        """See `Cluster.stable_ends`."""
        with self._state.changed:
            logs = self._topic("stable_ends", topic).partitions[:partitions]
            return {log.index: LogEnd(log.stable, log.leader_epoch) for log in logs}

    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        """See `Cluster.check_uncut`."""
        with self._state.changed:
            logs = self._topic("check_uncut", topic).partitions
            cut = sorted(partition for partition, end in ends.items() if logs[partition].cut_below(*end))
        if cut:
            raise DataLoss(f"Cannot read topic {topic!r}, partition {cut[0]}: log truncation detected.")

    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        """See `Cluster.overwritten`."""
        with self._state.changed:
            logs = self._topic("overwritten", topic).partitions
            found = {partition: logs[partition].overwritten(*end) for partition, end in ends.items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        """See `Cluster.offsets_at`."""
        return self._offsets("offsets_at", topic, lambda partition: partition.offset_at(timestamp))

    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        """See `Cluster.delete_before`."""
        cluster = self._state
        with cluster.changed:
            found = self._topic("delete_before", topic)
            if "delete" not in cluster.setting(found, "cleanup.policy"):
                raise ConfigError(f"The topic {topic!r} is compacted only, so its records cannot be deleted.")
            logs = {partition: cluster.partition(topic, partition) for partition in offsets}
            for partition, offset in offsets.items():
                if offset > logs[partition].end:
                    raise DataLoss(f"Partition {partition} of {topic!r} ends at offset {logs[partition].end}.")
            for partition, offset in offsets.items():
                logs[partition].delete_before(offset)
            cluster.changed.notify_all()
            return {partition: log.start for partition, log in logs.items()}

    def committed(
        self,
        group: str,
        topic: str,
        *,
        decided: bool = True,
        partitions: int | None = None,
        timeout: float = 10.0,
    ) -> dict[int, Commit]:
        """See `Cluster.committed`. Wait while an open transaction holds a commit."""
        deadline = time.monotonic() + timeout
        with self._state.changed:
            while True:
                self._enter("committed")
                found = self._state.groups.get(group)
                if found is None:
                    return {}
                undecided = found.undecided(topic)
                if not (decided and undecided):
                    commits = found.committed(topic)
                    return {p: one for p, one in commits.items() if partitions is None or p < partitions}
                if not self._state.wait(deadline):
                    raise OffsetsPending(
                        f"An open transaction holds commits of group {group!r} for partition {sorted(undecided)} of "
                        f"{topic!r}.",
                        code="UNSTABLE_OFFSET_COMMIT",
                        retriable=True,
                        hint="They are known when it ends.",
                    )

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """See `Cluster.commit`."""
        with self._state.changed:
            self._enter("commit")
            for partition in commits:
                self._state.partition(topic, partition)
            found = self._state.group(group)
            if found.seats:
                raise TransportError(
                    f"The group {group!r} has members, which alone may commit for it.",
                    code="UNKNOWN_MEMBER_ID",
                    hint="Close its consumers first.",
                )
            found.store(topic, commits)

    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        """See `Cluster.committed_at`."""
        with self._state.changed:
            self._enter("committed_at")
            return max((found.stored_at for found in self._state.groups.values()), default=-1) / 1000

    def delete_group(self, group: str, *, timeout: float = 10.0) -> bool:
        """See `Cluster.delete_group`."""
        with self._state.changed:
            self._enter("delete_group")
            if group not in self._state.groups:
                return False
            if self._state.groups[group].seats:
                raise TransportError(
                    f"The group {group!r} has members.", code="NON_EMPTY_GROUP", hint="Close its consumers first."
                )
            del self._state.groups[group]
            return True

    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        """See `Cluster.member_count`."""
        with self._state.changed:
            self._enter("member_count")
            found = self._state.groups.get(group)
            return 0 if found is None else len(found.seats)

    def reader(
        self, topic: str, positions: Mapping[int, int], *, headers: bool = True, late: bool = False
    ) -> LogReader:
        """See `Cluster.reader`."""
        self._check_open()
        return MemoryReader(self._state, topic, positions, headers=headers)

    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        """See `Cluster.member`."""
        self._check_open()
        return MemoryMember(self._state, group, topic, listener)

    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        """See `Cluster.writer`."""
        self._check_open()
        return MemoryWriter(self._state, transactional_id, max_block)

    def close(self) -> None:
        """See `Cluster.close`. A test can still read what was written (`records`), and write more."""
        self._closed = True

    def _creatable(
        self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]
    ) -> bool:
        """Return whether the topic is new. Raise what a broker would refuse."""
        cluster = self._state
        if topic in cluster.topics:
            return False
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in {".", ".."}:
            raise ConfigError(f"{topic!r} is no valid topic name.", options=["topic"])
        if partitions < 1:
            raise ConfigError("A topic needs at least one partition.", options=["partitions"])
        if not 1 <= (replication_factor or 1) <= cluster.brokers:
            raise ConfigError(
                f"The replication factor is {replication_factor}, and the number of brokers {cluster.brokers}.",
                options=["replication_factor"],
            )
        _check_settings(config)
        return True

    def _enter(self, operation: str) -> None:
        self._check_open()
        self._state.enter(operation)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("The cluster is closed.")

    def _topic(self, operation: str, topic: str) -> Topic:
        self._enter(operation)
        return self._state.topic(topic)

    def _offsets(self, operation: str, topic: str, offset: Callable[[PartitionLog], int]) -> dict[int, int]:
        with self._state.changed:
            return {partition.index: offset(partition) for partition in self._topic(operation, topic).partitions}

    def _partitions_changed(self, topic: str, total: int) -> None:
        for group in self._state.groups.values():
            group.rebalance(topic, total)
        self._state.changed.notify_all()


def _check_settings(config: Mapping[str, str]) -> None:
    for name in config:
        if name not in DEFAULTS:
            raise ConfigError(
                f"There is no topic setting {name!r}.",
                options=[name],
                hint="Kafka's documentation of topic configs says which there are, and what they take.",
            )
