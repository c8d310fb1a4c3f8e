"""Tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lvq_kafka.core.latest.columns import ColumnTable
from lvq_kafka.core.latest.expiring_table import ExpiringTable
from lvq_kafka.core.latest.tables import Contests, SetAside, Tables
from lvq_kafka.core.log.offset_line import OffsetLine
from lvq_kafka.core.timing.expiry_queue import ExpiryQueue
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER

__all__ = ["IN_MEMORY", "AsideInMemory"]


class AsideInMemory:
    """`RecordsAside` in memory.

    An entry of the queue is obsolete if its line begins beyond it.
    """

    def __init__(self) -> None:
        self._lines: dict[int, dict[bytes, OffsetLine[SetAside]]] = {}
        self._queue: ExpiryQueue[SetAside] = ExpiryQueue(self)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_due(self) -> int:
        """See `RecordsAside.next_due`."""
        due = self._queue.next
        return NEVER if due is None else due

    def add(self, one: SetAside) -> None:
        """See `RecordsAside.add`."""
        lines = self._lines.setdefault(one.record.partition, {})
        if one.key in lines:
            lines[one.key].append(one)
        else:
            lines[one.key] = OffsetLine(one, _offset)
        self._count += 1
        self._queue.add(one, one.due)

    def among(self, partition: int, keys: Iterable[bytes | None]) -> Collection[bytes | None]:
        """See `RecordsAside.among`."""
        lines = self._lines.get(partition)
        return lines.keys() & keys if lines else ()

    def due(self, entry: SetAside, bucket: int) -> int | None:
        """See `Schedule.due`."""
        line = self._lines[entry.record.partition].get(entry.key)
        return None if line is None or _offset(line.first) > _offset(entry) else entry.due

    def moved(self, entry: SetAside, bucket: int) -> None:
        """See `Schedule.moved`."""

    def pop_due(self, now: int, most: int) -> list[SetAside]:
        """See `RecordsAside.pop_due`."""
        return self._queue.pop_due(now + 1, most)

    def due_of(self, key: bytes, now: int) -> list[SetAside]:
        """See `RecordsAside.due_of`."""
        return [one for lines in self._lines.values() for one in lines.get(key, ()) if one.due <= now]

    def pop_up_to(self, partition: int, key: bytes, offset: int) -> list[SetAside]:
        """See `RecordsAside.pop_up_to`."""
        lines = self._lines.get(partition, {})
        line = lines.get(key)
        if line is None:
            return []
        taken = line.pop_below(offset + 1)
        if not line:
            del lines[key]
        self._count -= len(taken)
        self._queue.tidy(self.__len__)
        return taken


def _offset(one: SetAside) -> int:
    return one.record.offset


class _InMemory:
    """`Tables` in memory."""

    def table(self, partitions: int, key_header: str | None) -> ColumnTable:
        return ColumnTable(partitions=partitions, key_header=key_header)

    def expiring(self, partitions: int, key_header: str | None, expiry_times: ExpiryTimes) -> ExpiringTable:
        return ExpiringTable(partitions=partitions, key_header=key_header, expiry_times=expiry_times)

    def contests(self, key_header: str | None) -> Contests:
        return {}

    def aside(self) -> AsideInMemory:
        return AsideInMemory()


IN_MEMORY: Tables = _InMemory()
"""Makes tables in memory."""
