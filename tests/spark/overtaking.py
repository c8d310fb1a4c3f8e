"""Cuts that are overtaken: a new key comes right after them, before their records are read."""

from __future__ import annotations

from typing import Any

from lvq_kafka import LastValueQueue
from lvq_spark import SnapshotSpec, pin
from tests.waiting import eventually

__all__ = ["Overtaken"]


class Overtaken:
    """A replacement for `pin` that records cuts and overtakes some by a transaction, whose marker leaves a hole."""

    def __init__(self, queue: LastValueQueue[bytes]) -> None:
        self.cuts: list[SnapshotSpec] = []
        self.overtakes: set[int] = set()
        """The cuts, counted from 1, that ``new<number>`` follows at once."""
        self._queue = queue
        self._writer = queue.cluster.writer(transactional_id=queue.topic)

    def __call__(self, *args: Any, **options: Any) -> SnapshotSpec:
        self.cuts.append(pin(*args, **options))
        if len(self.cuts) in self.overtakes:
            self.transaction(f"new{len(self.cuts)}")
        return self.cuts[-1]

    def transaction(self, key: str) -> int:
        """Write a key in its own transaction; return the offset of its marker."""
        cluster, topic = self._queue.cluster, self._queue.topic
        behind = {0: cluster.logs.end_offsets(topic)[0] + 2}
        self._writer.begin_transaction()
        self._writer.append(topic, key.encode(), b"3")
        self._writer.flush(20)
        self._writer.commit_transaction(20)
        eventually(lambda: cluster.logs.end_offsets(topic, stable=True) == behind)
        return behind[0] - 1

    def close(self) -> None:
        self._writer.close()
