"""The contents of a log: positions, records, and batches of records by column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, count
from operator import ne
from typing import Any, NamedTuple

__all__ = [
    "UNREADABLE",
    "UNREADABLE_HEADER",
    "UNSELECTED_HEADERS",
    "Fetch",
    "Headers",
    "RawHeaders",
    "Record",
    "RecordBatch",
    "header_value",
    "new_record",
    "rows_by_partition",
    "runs",
]

Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers, in order.

Names may repeat; the last one counts (`header_value`).
"""

RawHeaders = Sequence[tuple[str, bytes | None]] | None
"""A record's headers as a client reads them. A record without headers may have None."""

UNREADABLE_HEADER = "lvq-unreadable"
"""Marks a record whose headers cannot be read (R16), and copies of it."""

UNREADABLE: Headers = ((UNREADABLE_HEADER, b"1"),)
"""Replaces headers that cannot be read; compare by identity.

Copies of the record have equal headers, and those can be read.
"""


UNSELECTED_HEADERS: Headers = (("", b""),)
"""The headers of a delete that stands for a value which is not selected; compare by identity.

The log keeps such a record for as long as a value.
"""


class Record(NamedTuple):
    """One record as it is in the log. ``value`` None is a delete; empty bytes are a value."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch, as on the wire.

    The time of the append, or the producer's if the topic is configured so.
    """
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


new_record = partial(tuple.__new__, Record)
"""Make a record from a tuple of all its fields, in half the time of the constructor."""


def header_value(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the value of the last header with this name, or None."""
    found = None
    for header, value in headers:
        if header == name:
            found = value
    return found


@dataclass(slots=True)
class RecordBatch:
    """Records by column. All columns have the same length; offsets ascend within a partition.

    A fold over columns runs at the speed of the built-in containers, with no object per record. A ``headers`` cell is
    None or empty for a record without headers.
    """

    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[RawHeaders] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        for partition, offset, timestamp, key, value, headers in zip(
            self.partitions, self.offsets, self.timestamps, self.keys, self.values, self.headers, strict=True
        ):
            yield Record(partition, offset, timestamp, key, value, tuple(headers) if headers else ())

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last offset of a non-empty batch."""
        return self.offsets[0], self.offsets[-1]

    @property
    def deletes(self) -> bool:
        """True if any record is a delete."""
        return None in self.values

    @property
    def size(self) -> int:
        """The total size of the values in bytes."""
        return sum(map(len, filter(None, self.values)))

    def rows(self, start: int, end: int) -> RecordBatch:
        """Return adjacent rows."""
        return RecordBatch(*(column[start:end] for column in self._columns))

    def pick(self, rows: Sequence[int]) -> RecordBatch:
        """Return some rows, in the given order."""
        return RecordBatch(*([column[row] for row in rows] for column in self._columns))

    def without(self, rows: Iterable[int]) -> RecordBatch:
        """Return all rows but these."""
        kept = bytearray(b"\1") * len(self)
        for row in rows:
            kept[row] = 0
        return RecordBatch(*(list(compress(column, kept)) for column in self._columns))

    def entries(self) -> Sequence[Any]:
        """Return one object per record, from which `gather` makes a batch again."""
        return list(self)

    def gather(self, entries: Sequence[Any]) -> RecordBatch:
        """Build a batch from `entries` of this batch and of others of its kind."""
        return RecordBatch.of(entries)

    @property
    def _columns(self) -> tuple[list[Any], ...]:
        return (self.partitions, self.offsets, self.timestamps, self.keys, self.values, self.headers)

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordBatch:
        """Collect records into columns."""
        batch = cls()
        for record in records:
            batch.partitions.append(record.partition)
            batch.offsets.append(record.offset)
            batch.timestamps.append(record.timestamp)
            batch.keys.append(record.key)
            batch.values.append(record.value)
            batch.headers.append(record.headers or None)
        return batch


Rows = slice | None
"""Adjacent rows of a batch; None stands for all of them."""


def runs(partitions: Sequence[int]) -> list[tuple[int, Rows]]:
    """Return each run of adjacent rows of one partition, in order.

    When there is much to read, all rows are of one partition, or each partition has one run.
    """
    return _slices(partitions, _starts(partitions))


def rows_by_partition(partitions: Sequence[int]) -> Collection[tuple[int, Rows | list[int]]]:
    """Return each partition's rows like `runs`, or all as lists if some are not adjacent."""
    starts = _starts(partitions)
    if len(starts) <= 1 or len({partitions[start] for start in starts}) == len(starts):
        return _slices(partitions, starts)
    rows: dict[int, list[int]] = {}
    for row, partition in enumerate(partitions):
        rows.setdefault(partition, []).append(row)
    return rows.items()


def _starts(partitions: Sequence[int]) -> list[int]:
    """Return the rows at which another partition begins."""
    if not partitions:
        return []
    if partitions.count(partitions[0]) == len(partitions):
        return [0]
    return [0, *compress(count(1), map(ne, partitions, partitions[1:]))]


def _slices(partitions: Sequence[int], starts: list[int]) -> list[tuple[int, Rows]]:
    if len(starts) == 1:
        return [(partitions[0], None)]
    return [(partitions[start], slice(start, end)) for start, end in zip(starts, [*starts[1:], len(partitions)])]


@dataclass(slots=True)
class Fetch:
    """The result of one poll.

    ``positions`` holds the next offset to read of each partition that moved. It can move without a record: past
    transaction markers, aborted records and holes left by compaction. Judge progress by it, never by record offsets.
    """

    batch: RecordBatch
    positions: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The leader epoch of the last record of each partition in the batch; -1 if unknown."""
