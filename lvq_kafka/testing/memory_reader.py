"""Readers on the in-memory cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.errors import Closed
from lvq_kafka.runtime.overriding import override
from lvq_kafka.testing.memory_state import ClusterState

__all__ = ["MemoryReader"]


class MemoryReader(LogReader):
    """A reader on the in-memory cluster.

    It returns committed records, others only with ``decided=False``. It reports positions as the Kafka client does:
    when a position moves, and once more after an assignment even if it is already at the end, like the client's
    end-of-partition event.
    """

    def __init__(
        self,
        cluster: ClusterState,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        decided: bool = True,
    ) -> None:
        self._state = cluster
        self._topic = topic
        self._positions = dict(positions)
        self._headers, self._decided = headers, decided
        self._reported: dict[int, int] = {}
        self._outage = 0  # the last outage that was reported to the caller
        self._closed = False

    @override
    def poll(self, timeout: float) -> Fetch:
        deadline = time.monotonic() + timeout
        with self._state.changed:
            while (fetch := self.try_poll(deadline)) is None:
                pass
        return fetch

    @override
    def assign(self, positions: Mapping[int, int]) -> None:
        with self._state.changed:
            self._positions.update(positions)
            for partition in positions:
                self._reported.pop(partition, None)

    @override
    def unassign(self, partitions: Iterable[int]) -> None:
        with self._state.changed:
            for partition in partitions:
                self._positions.pop(partition, None)
                self._reported.pop(partition, None)

    @override
    def close(self) -> None:
        with self._state.changed:
            self._closed = True
            self._state.changed.notify_all()

    def try_poll(self, deadline: float) -> Fetch | None:
        """Poll once, holding the lock; return None if the caller should try again.

        Return a fetch that moved a position, or an empty one at the deadline. An outage is reported at once, and after
        that only at the end of each poll, so that a caller that keeps polling waits for the connection instead of
        spinning.
        """
        cluster = self._state
        if self._closed:
            raise Closed("This reader is closed.")
        if not cluster.connected and self._outage == cluster.outages and cluster.wait(deadline):
            return None
        self._outage = cluster.outages
        cluster.enter("poll")
        fetch = self._fetch()
        if fetch.positions or not cluster.wait(deadline):
            return fetch
        return None

    def _fetch(self) -> Fetch:
        records: list[Record] = []
        moved: dict[int, int] = {}
        epochs: dict[int, int] = {}
        self._state.topic(self._topic)
        for partition, position in self._positions.items():
            log = self._state.partition(self._topic, partition)
            found, position = log.read(position, self._state.fetch_limit - len(records), decided=self._decided)
            records += found
            if found:
                epochs[partition] = log.epoch_of(found[-1].offset)
            if self._reported.get(partition) != position and (found or position == log.readable(self._decided)):
                moved[partition] = position
        self._positions.update(moved)
        self._reported.update(moved)
        batch = RecordBatch.of(records)
        if not self._headers:
            batch.headers = [None] * len(batch)
        return Fetch(batch, moved, epochs)
