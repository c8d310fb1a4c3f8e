"""Records set aside until they are due (R11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lvq_kafka.core.expiry_queue import ExpiryQueue
from lvq_kafka.core.offset_line import OffsetLine
from lvq_kafka.core.records import Record, RecordBatch, rows_by_partition
from lvq_kafka.core.terms import NEVER

__all__ = ["Scheduled", "SetAside"]

_SPARE = 4096  # entries of the queue that may be obsolete, beside as many as there are records


class SetAside(NamedTuple):
    """A record that does not count yet, and the key that was chosen for it."""

    due: int
    """The first moment at which it counts, in ms since the epoch."""
    key: bytes
    record: Record


class Scheduled:
    """The records of a log that are not due yet, by partition and key.

    Of the records of one key in one partition, that with the highest offset counts among those that are due. So when
    one counts, all below it are superseded, and never count again. Therefore records only ever leave a key's line from
    its front, and an entry of the queue is obsolete if its line begins beyond it.
    """

    def __init__(self) -> None:
        self._lines: dict[int, dict[bytes, OffsetLine[SetAside]]] = {}
        self._queue: ExpiryQueue[SetAside] = ExpiryQueue(self)
        self._count = 0

    def __len__(self) -> int:
        """Return the number of records that are set aside."""
        return self._count

    @property
    def next_due(self) -> int:
        """A time before which nothing is due; `NEVER` if nothing is set aside."""
        due = self._queue.next
        return NEVER if due is None else due

    def add(self, due: int, key: bytes, record: Record) -> None:
        """Set a record aside. Its offset is higher than those of all before it in its partition."""
        one = SetAside(due, key, record)
        lines = self._lines.setdefault(record.partition, {})
        if key in lines:
            lines[key].append(one)
        else:
            lines[key] = OffsetLine(one, _offset)
        self._count += 1
        self._queue.add(one, due)

    def supersede(
        self, batch: RecordBatch, keys: Sequence[bytes | None], positions: Mapping[int, int]
    ) -> Iterator[tuple[int, list[SetAside]]]:
        """Drop what is superseded by records that count.

        Yields the row of each that supersedes any, and what was dropped.

        Args:
            batch: the records. Those read before change nothing.
            keys: their keys.
            positions: by partition, the offset below which all was read before.
        """
        for partition, rows in rows_by_partition(batch.partitions):
            lines = self._lines.get(partition)
            there = range(len(keys)) if rows is None else rows if isinstance(rows, list) else range(len(keys))[rows]
            if lines and not lines.keys().isdisjoint(keys if rows is None else map(keys.__getitem__, there)):
                position = positions.get(partition, 0)
                for row in there:
                    key, offset = keys[row], batch.offsets[row]
                    if key is None or key not in lines or offset < position:
                        continue
                    if dropped := self._pop_up_to(lines, key, offset):
                        yield row, dropped
        self._tidy()

    def pop_due(self, now: int, most: int, first: bytes | None = None) -> list[list[SetAside]]:
        """Remove some of what is due by now; call again until nothing is.

        Returns, for each partition and key concerned, the record that counts, after those that it supersedes.

        Args:
            now: the time in ms.
            most: the number of records that are looked at.
            first: a key of which nothing that is due shall be left.
        """
        found = self._queue.pop_due(now + 1, most)
        if first is not None and self.next_due <= now:  # there may be more than were looked at
            for lines in self._lines.values():
                found += [one for one in lines.get(first, ()) if one.due <= now]
        newest: dict[tuple[int, bytes], int] = {}
        for one in found:
            at = (one.record.partition, one.key)
            newest[at] = max(newest.get(at, 0), one.record.offset)
        taken = [self._pop_up_to(self._lines[partition], key, offset) for (partition, key), offset in newest.items()]
        self._tidy()
        return taken

    def _pop_up_to(self, lines: dict[bytes, OffsetLine[SetAside]], key: bytes, offset: int) -> list[SetAside]:
        """Remove and return what a key's line has up to this offset."""
        line = lines[key]
        taken = line.pop_below(offset + 1)
        if not line:
            del lines[key]
        self._count -= len(taken)
        return taken

    def _tidy(self) -> None:
        """Drop the entries of what was superseded, once they are most of the queue."""
        if len(self._queue) > 2 * self._count + _SPARE:
            self._queue = ExpiryQueue(self)
            for lines in self._lines.values():
                for line in lines.values():
                    for one in line:
                        self._queue.add(one, one.due)

    def due(self, one: SetAside, bucket: int) -> int | None:
        """See `Schedule.due`."""
        line = self._lines[one.record.partition].get(one.key)
        return None if line is None or _offset(line.first) > _offset(one) else one.due

    def moved(self, one: SetAside, bucket: int) -> None:
        """See `Schedule.moved`."""


def _offset(one: SetAside) -> int:
    return one.record.offset
