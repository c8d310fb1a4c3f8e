"""What lies in the log: positions, records, and batches of records by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lvq_kafka.errors import ConfigError

__all__ = ["UNREADABLE", "UNREADABLE_HEADER", "Fetch", "Headers", "Position", "Record", "RecordBatch", "header_value"]

Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers in their order; names may repeat, and the last one counts (`header_value`)."""

UNREADABLE_HEADER = "lvq-unreadable"
"""Marks a record whose headers cannot be read (R16), and copies of it."""

UNREADABLE: Headers = ((UNREADABLE_HEADER, b"1"),)
"""What stands for headers that cannot be read. Copies have equal headers, and these can be: compare by identity."""


class Position(NamedTuple):
    """Where a record lies. Offsets of different partitions are not comparable; there is no global number.

    ``str(position)`` is ``topic/partition/offset``, a token that another process can `parse` and wait for.

    The offset is -1 in a producer's receipt where the broker has the record and did not say where: when the answer to a
    first try was lost and the retry was recognised as a duplicate.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, token: str) -> Position:
        """Read a token written by ``str(position)``.

        Raises:
            ConfigError: the text is not such a token.
        """
        topic, _, rest = str(token).strip().partition("/")
        partition, _, offset = rest.partition("/")
        if not (topic and partition.isdecimal() and (offset.isdecimal() or offset == "-1")):
            raise ConfigError(
                f"{token!r} is not a position.", hint="It is written topic/partition/offset, for example prices/0/41."
            )
        return cls(topic, int(partition), int(offset))


class Record(NamedTuple):
    """One record as it lies in the log. ``value`` None is a delete; empty bytes is a value."""

    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch, as on the wire: append time, or the producer's where the topic is set so."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def header_value(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The value of the last header of that name, or None when there is none."""
    found = None
    for header, value in headers:
        if header == name:
            found = value
    return found


@dataclass(slots=True)
class RecordBatch:
    """Records by column, all columns of one length; within a partition offsets ascend.

    Columns, because a fold over them runs at the speed of the built-in containers: no object per record.
    A ``headers`` cell is None or empty for a record without headers.
    """

    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[tuple[str, bytes | None]] | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        for partition, offset, timestamp, key, value, headers in zip(
            self.partitions, self.offsets, self.timestamps, self.keys, self.values, self.headers, strict=True
        ):
            yield Record(partition, offset, timestamp, key, value, tuple(headers) if headers else ())

    @property
    def ends(self) -> tuple[int, int]:
        """The first offset and the last one, of a batch that is not empty."""
        return self.offsets[0], self.offsets[-1]

    @property
    def deletes(self) -> bool:
        """Whether there are any."""
        return None in self.values

    @property
    def size(self) -> int:
        """The bytes of the values."""
        return sum(map(len, filter(None, self.values)))

    def rows(self, start: int, end: int) -> RecordBatch:
        """Some rows that lie together."""
        return RecordBatch(*(column[start:end] for column in self._columns))

    def pick(self, rows: Sequence[int]) -> RecordBatch:
        """Some rows, in the order given."""
        return RecordBatch(*([column[row] for row in rows] for column in self._columns))

    def entries(self) -> Sequence[Any]:
        """One object for each record, of which `gather` makes a batch again."""
        return list(self)

    def gather(self, entries: Sequence[Any]) -> RecordBatch:
        """A batch of `entries` of this batch and of others of its kind."""
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


@dataclass(slots=True)
class Fetch:
    """What one poll of a log brought.

    ``positions`` holds, for each partition that moved, the next offset to read. It can move without a record: past
    transaction markers, aborted records and holes left by compaction. Judge progress by it, never by record offsets.
    """

    batch: RecordBatch
    positions: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The leader's epoch when the last record of each partition in the batch was written; -1 where it is not known."""
