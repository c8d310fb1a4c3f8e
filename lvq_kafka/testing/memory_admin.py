"""Topics, logs and groups of the in-memory cluster, as an admin client sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from lvq_kafka.cluster import Assigned, Commit, ConsumerGroups, LogEnd, Logs, TopicDescription, Topics
from lvq_kafka.core.facts import Operation
from lvq_kafka.errors import ConfigError, DataLoss, OffsetsPending, TransportError
from lvq_kafka.runtime.overriding import override
from lvq_kafka.testing.memory_partition import PartitionLog, Topic
from lvq_kafka.testing.memory_state import DEFAULTS, ClusterState

__all__ = ["MemoryGroups", "MemoryLogs", "MemoryTopics"]


class MemoryTopics(Topics):
    """The topics of a `MemoryCluster`. All is allowed unless `fail_next` says otherwise."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @override
    def describe(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        with self._state.changed:
            found = self._state.ask_about("topics.describe", topic)
            return TopicDescription(topic, found.id, len(found.partitions), found.replication_factor)

    @override
    def config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        with self._state.changed:
            return {**DEFAULTS, **self._state.ask_about("topics.config", topic).config}

    @override
    def create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        cluster = self._state
        with cluster.changed:
            cluster.ask("topics.create")
            if not self._creatable(topic, partitions, replication_factor, config):
                return False
            made = Topic(topic, cluster.new_topic_id(), replication_factor or 1, dict(config), [])
            made.grow(partitions)
            cluster.topics[topic] = made
            self._partitions_changed(topic, partitions)
            return True

    @override
    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        with self._state.changed:
            self._state.ask("topics.check_may_create")
            self._creatable(topic, partitions, replication_factor, config)

    @override
    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        with self._state.changed:
            self._state.ask_about("topics.check_may", topic)

    @override
    def alter_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        with self._state.changed:
            found = self._state.ask_about("topics.alter_config", topic)
            _check_settings(config)
            found.config.update(config)

    @override
    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        with self._state.changed:
            found = self._state.ask_about("topics.add_partitions", topic)
            if total <= len(found.partitions):
                raise ConfigError(
                    f"The topic {topic!r} already has {len(found.partitions)} partitions.", options=["total"]
                )
            found.grow(total)
            self._partitions_changed(topic, total)

    @override
    def delete(self, topic: str, *, timeout: float = 10.0) -> None:
        with self._state.changed:
            del self._state.topics[self._state.ask_about("topics.delete", topic).name]
            for group in self._state.groups.values():
                group.forget(topic)
            self._state.changed.notify_all()

    def _creatable(
        self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]
    ) -> bool:
        """Return whether the topic is new. Raise what a broker would refuse."""
        cluster = self._state
        if topic in cluster.topics:
            return False
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic) or topic in {".", ".."}:
            raise ConfigError(f"{topic!r} is not a valid topic name.", options=["topic"])
        if partitions < 1:
            raise ConfigError("A topic needs at least one partition.", options=["partitions"])
        if not 1 <= (replication_factor or 1) <= cluster.brokers:
            raise ConfigError(
                f"The replication factor is {replication_factor}, and the number of brokers {cluster.brokers}.",
                options=["replication_factor"],
            )
        _check_settings(config)
        return True

    def _partitions_changed(self, topic: str, total: int) -> None:
        for group in self._state.groups.values():
            group.rebalance(topic, total)
        self._state.changed.notify_all()


class MemoryLogs(Logs):
    """The logs of a `MemoryCluster`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @override
    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        return self._offsets("logs.start_offsets", topic, lambda partition: partition.start)

    @override
    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        ends = self._offsets("logs.end_offsets", topic, lambda partition: partition.stable if stable else partition.end)
        return {partition: end for partition, end in ends.items() if partitions is None or partition < partitions}

    @override
    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        with self._state.changed:
            logs = self._state.ask_about("logs.stable_ends", topic).partitions[:partitions]
            return {log.index: LogEnd(log.stable, log.leader_epoch) for log in logs}

    @override
    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        return self._offsets("logs.offsets_at", topic, lambda partition: partition.offset_at(timestamp))

    @override
    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        cluster = self._state
        with cluster.changed:
            found = self._state.ask_about("logs.delete_before", topic)
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

    @override
    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        with self._state.changed:
            logs = self._state.ask_about("logs.check_uncut", topic).partitions
            cut = sorted(partition for partition, end in ends.items() if logs[partition].cut_below(*end))
        if cut:
            raise DataLoss(f"Cannot read topic {topic!r}, partition {cut[0]}: log truncation detected.")

    @override
    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        with self._state.changed:
            logs = self._state.ask_about("logs.overwritten", topic).partitions
            found = {partition: logs[partition].overwritten(*end) for partition, end in ends.items()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _offsets(self, operation: str, topic: str, offset: Callable[[PartitionLog], int]) -> dict[int, int]:
        with self._state.changed:
            return {
                partition.index: offset(partition) for partition in self._state.ask_about(operation, topic).partitions
            }


class MemoryGroups(ConsumerGroups):
    """The groups of a `MemoryCluster`. All is allowed unless `fail_next` says otherwise."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

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
        deadline = time.monotonic() + timeout
        with self._state.changed:
            while True:
                self._state.ask("groups.committed")
                self._state.expire_commits()
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

    @override
    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        with self._state.changed:
            self._state.ask("commit")
            for partition in commits:
                self._state.partition(topic, partition)
            found = self._state.group(group)
            if found.seats:
                raise TransportError(
                    f"The group {group!r} has members, and only they may commit for it.",
                    code="UNKNOWN_MEMBER_ID",
                    hint="Close its consumers first.",
                )
            found.store(topic, commits)

    @override
    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        with self._state.changed:
            self._state.ask("groups.committed_at")
            return max((found.stored_at for found in self._state.groups.values()), default=-1) / 1000

    @override
    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        with self._state.changed:
            self._state.ask("groups.check_may_commit")

    @override
    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        with self._state.changed:
            self._state.ask("groups.commit_text_limit")
            return self._state.metadata_limit

    @override
    def retention(self, *, timeout: float = 10.0) -> float:
        with self._state.changed:
            self._state.ask("groups.retention")
            return self._state.retention

    @override
    def assigned(self, group: str, topic: str, member: str, *, timeout: float = 10.0) -> Assigned | None:
        with self._state.changed:
            self._state.ask("groups.assigned")
            found = self._state.groups.get(group)
            for seat in () if found is None else found.seats:
                if seat.member == member and seat.topic == topic:
                    return Assigned(frozenset(seat.owned), frozenset(seat.target))
            return None

    @override
    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        with self._state.changed:
            self._state.ask("groups.member_count")
            found = self._state.groups.get(group)
            return 0 if found is None else len(found.seats)

    @override
    def delete(self, group: str, *, timeout: float = 10.0) -> bool:
        with self._state.changed:
            self._state.ask("groups.delete")
            if group not in self._state.groups:
                return False
            if self._state.groups[group].seats:
                raise TransportError(
                    f"The group {group!r} has members.", code="NON_EMPTY_GROUP", hint="Close its consumers first."
                )
            del self._state.groups[group]
            return True


def _check_settings(config: Mapping[str, str]) -> None:
    for name in config:
        if name not in DEFAULTS:
            raise ConfigError(
                f"There is no topic setting {name!r}.",
                options=[name],
                hint="See Kafka's documentation of topic configs for their names and values.",
            )
