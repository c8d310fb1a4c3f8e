"""Partition logs of the in-memory cluster: contents, visibility and compaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

from lvq_kafka.core.log.records import Headers, Record
from lvq_kafka.errors import DataLoss

__all__ = ["PartitionLog", "Topic", "TransactionState"]


class TransactionState(Enum):
    """The state of a transaction: open, or how it ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class _Span:
    """The part of a transaction that lies in one partition."""

    first: int
    state: TransactionState = TransactionState.OPEN


@dataclass(slots=True)
class _LogEntry:
    """One used offset: a record, or (``record`` is None) the marker that ends a transaction."""

    offset: int
    timestamp: int
    record: Record | None
    span: _Span | None = None

    @property
    def committed(self) -> bool:
        return self.record is not None and (self.span is None or self.span.state is TransactionState.COMMITTED)


@dataclass(slots=True)
class PartitionLog:
    """The log of one partition. Not thread-safe: the cluster's lock guards it.

    Records and transaction markers use up offsets; compaction leaves holes. ``end`` is the next offset to be used,
    ``start`` the first that may be read.
    """

    topic: str
    index: int
    start: int = 0
    end: int = 0
    closed: int = 0  # entries below lie in closed segments, and so do all but the last entry
    _entries: list[_LogEntry] = field(default_factory=list)
    _open: dict[int, _Span] = field(default_factory=dict)  # by the producer's number
    _epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # leader epochs and their start offsets

    @property
    def stable(self) -> int:
        """The last stable offset: the start of the oldest open transaction, or the end."""
        return min((span.first for span in self._open.values()), default=self.end)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the leader. Each election adds one."""
        return self._epochs[-1][0]

    def elect(self, end: int) -> None:
        """Elect another leader, one that lacks everything from ``end`` on."""
        self._entries = list(self._below(end))
        self._open = {producer: span for producer, span in self._open.items() if span.first < end}
        self._epochs = [*(epoch for epoch in self._epochs if epoch[1] <= end), (self.leader_epoch + 1, end)]
        self.end = end
        self.start, self.closed = min(self.start, end), min(self.closed, end)

    def cut_below(self, offset: int, epoch: int) -> bool:
        """Return whether the log has lost part of what a leader of that epoch had below an offset.

        -1 is any epoch.
        """
        later = (start for number, start in self._epochs if number > epoch >= 0)
        return not self.start <= offset <= min(later, default=self.end)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the leader that wrote the record at an offset."""
        return next(number for number, start in reversed(self._epochs) if start <= offset)

    def overwritten(self, end: int, epoch: int) -> int | None:
        """Return the first committed record below an offset that was written after an epoch."""
        seen = (record.offset for record in self.records() if record.offset < end)
        return next((offset for offset in seen if self.epoch_of(offset) > epoch), None)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        producer: int | None = None,
    ) -> int:
        """Store a record, in the producer's open transaction if one is named; return its offset."""
        offset = self.end
        span = None if producer is None else self._open.setdefault(producer, _Span(offset))
        record = Record(self.index, offset, timestamp, key, value, headers)
        self._entries.append(_LogEntry(offset, timestamp, record, span))
        self.end += 1
        return offset

    def end_transaction(self, producer: int, state: TransactionState, timestamp: int) -> None:
        """Write the marker of a producer's open transaction; do nothing if it has none here."""
        span = self._open.pop(producer, None)
        if span is not None:
            span.state = state
            self._entries.append(_LogEntry(self.end, timestamp, None, span))
            self.end += 1

    def readable(self, decided: bool) -> int:
        """Return where reading ends: at the last stable offset, or at the log's end."""
        return self.stable if decided else self.end

    def read(self, position: int, limit: int, *, decided: bool = True) -> tuple[list[Record], int]:
        """Return up to ``limit`` records from ``position``, and the position after them.

        They are committed, or with ``decided=False`` any. The position advances to the end of what is `readable` when
        no further record lies before it.

        Raises:
            DataLoss: the position is below the start or beyond the end.
        """
        if not self.start <= position <= self.end:
            side = "below the start" if position < self.start else "beyond the end"
            raise DataLoss(
                f"Offset {position} of partition {self.index} of {self.topic!r} is {side} of the log, "
                f"which holds {self.start} to {self.end}.",
                hint="Read again from the start.",
            )
        stable = self.readable(decided)
        records: list[Record] = []
        for entry in self._from(position):
            if entry.offset >= stable:
                break
            if entry.record is not None and (entry.committed or not decided):
                if len(records) == limit:
                    return records, position
                records.append(entry.record)
                position = entry.offset + 1
        return records, max(position, stable)

    def records(self) -> list[Record]:
        """Return all committed records below the last stable offset."""
        return self.read(self.start, self.end + 1)[0]

    def offset_at(self, timestamp: int) -> int:
        """Return the offset of the first entry at or after ``timestamp``, or the end."""
        return next((entry.offset for entry in self._entries if entry.timestamp >= timestamp), self.end)

    def delete_before(self, offset: int) -> None:
        """Advance the log start offset."""
        self.start = max(self.start, offset)
        self._entries = list(self._from(self.start))

    def compact(self, up_to: int | None, drop_tombstones: bool, choose: Callable[[Record], bool]) -> None:
        """Clean the log below ``up_to`` as Kafka's log cleaner may; see `MemoryCluster.compact`."""
        if not self._entries:
            return
        # Skip undecided transactions and the active segment.
        active = max(self._entries[-1].offset, self.closed)
        limit = min(self.stable, self.end if up_to is None else up_to)
        newest: dict[bytes | None, int] = {}
        for entry in self._below(limit):
            if entry.record is not None and entry.committed:
                newest[entry.record.key] = entry.offset
        gone: set[int] = set()
        kept_older: set[bytes | None] = set()
        for entry in self._below(limit):
            record = entry.record
            if record is None:
                continue
            if not entry.committed or newest[record.key] != entry.offset:
                removable = True
            else:
                # A tombstone may be removed once nothing older is left for it to hide.
                removable = drop_tombstones and record.value is None and record.key not in kept_older
            if removable and entry.offset < active and choose(record):
                gone.add(entry.offset)
            elif entry.committed:
                kept_older.add(record.key)
        kept = [entry for entry in self._entries if entry.offset not in gone]
        if drop_tombstones:  # markers age like tombstones and are removed when their transaction has no record left
            used = {id(entry.span) for entry in kept if entry.record is not None}
            kept = [e for e in kept if e.record is not None or id(e.span) in used or not e.offset < min(limit, active)]
        self._entries = kept

    def _from(self, offset: int) -> Iterator[_LogEntry]:
        return islice(self._entries, bisect_left(self._entries, offset, key=lambda entry: entry.offset), None)

    def _below(self, offset: int) -> Iterator[_LogEntry]:
        return islice(self._entries, bisect_left(self._entries, offset, key=lambda entry: entry.offset))


@dataclass(slots=True)
class Topic:
    """A topic: its identity, its explicit settings and its partitions."""

    name: str
    id: str
    replication_factor: int
    config: dict[str, str]
    partitions: list[PartitionLog]

    def grow(self, total: int) -> None:
        """Add partitions up to ``total``."""
        for index in range(len(self.partitions), total):
            self.partitions.append(PartitionLog(self.name, index))
