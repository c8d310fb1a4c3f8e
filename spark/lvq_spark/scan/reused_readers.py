"""Readers for one read after another, so a task of many partitions needs one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from lvq_kafka.cluster import Cluster, LogReader
from lvq_kafka.core.log.records import Fetch

__all__ = ["ReusedReaders"]

_Purpose = tuple[str, frozenset[tuple[str, bool]]]


class ReusedReaders:
    """A cluster that assigns the partitions of the next read to a reader that was closed.

    A client of its own costs each read threads and connections, and more time than some thousand records.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: dict[_Purpose, list[LogReader]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def reader(self, topic: str, positions: Mapping[int, int], **how: bool) -> LogReader:
        """See `lvq_kafka.cluster.Cluster.reader`."""
        idle = self._idle.setdefault((topic, frozenset(how.items())), [])
        if idle:
            reader = idle.pop()
            reader.assign(positions)
        else:
            reader = self._cluster.reader(topic, positions, **how)
        return cast("LogReader", _LentReader(reader, positions, idle))

    def close(self) -> None:
        """Close the readers, but not the cluster."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class _LentReader:
    """A reader for one read. One that has failed is not used again."""

    def __init__(self, reader: LogReader, positions: Mapping[int, int], idle: list[LogReader]) -> None:
        self._reader, self._partitions, self._idle = reader, list(positions), idle
        self._failed = False

    def poll(self, timeout: float) -> Fetch:
        """See `lvq_kafka.cluster.LogReader.poll`."""
        try:
            return self._reader.poll(timeout)
        except BaseException:
            self._failed = True
            raise

    def close(self) -> None:
        """Return the reader, or close it."""
        if self._failed:
            self._reader.close()
            return
        self._reader.unassign(self._partitions)
        self._idle.append(self._reader)
