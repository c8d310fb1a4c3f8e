"""An in-memory cluster with the Kafka behavior that last value queues depend on."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.cluster import Cluster, GroupListener, GroupMember, LogReader, LogWriter
from lvq_kafka.overriding import override
from lvq_kafka.testing.memory_controls import Controls
from lvq_kafka.testing.memory_member import MemoryMember
from lvq_kafka.testing.memory_reader import MemoryReader
from lvq_kafka.testing.memory_writer import MemoryWriter

__all__ = ["MemoryCluster"]


class MemoryCluster(Controls, Cluster):
    """`lvq_kafka.cluster.Cluster` in memory: Kafka for tests, without broker, thread or sleep.

    Pass it as ``cluster=`` wherever the library takes bootstrap servers. One contract suite runs against it and a real
    broker, so it behaves the same: markers, aborted records and compaction skip offsets, readers stop at the last
    stable offset, and groups rebalance.

    It also lets a test simulate the cluster, its other users and its network: see `Controls`.
    """

    @override
    def broker_count(self, *, timeout: float = 10.0) -> int:
        with self._state.changed:
            self._state.ask("broker_count")
            return self._state.brokers

    @override
    def reader(
        self, topic: str, positions: Mapping[int, int], *, headers: bool = True, late: bool = False
    ) -> LogReader:
        self._state.check_open()
        return MemoryReader(self._state, topic, positions, headers=headers)

    @override
    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        self._state.check_open()
        return MemoryMember(self._state, group, topic, listener)

    @override
    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        self._state.check_open()
        return MemoryWriter(self._state, transactional_id, max_block)

    @override
    def close(self) -> None:
        """Close the cluster. A test can still read what was written (`records`), and write more."""
        self._state.closed = True
