"""One cut of a file that another process writes, and the time that passes in it (R41)."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import Self

from lvq_kafka.core.latest.fold import Changes, ReaderStats
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.reported import Report
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER, Ttl
from lvq_kafka.storing.record_format import HEAD, TIME, head_of, key_of, unpack_rivals, unpack_time
from lvq_kafka.storing.stored_table import StoredExpiringTable, StoredRange
from lvq_kafka.storing.value_file import CONTESTS, RECORDS, PinnedPages

__all__ = ["CutTable", "StoredCut", "differing"]


class CutTable(StoredExpiringTable):
    """The newest records of a cut, less those that have expired since.

    The writer removes what has expired; where it is late, or gone, they are hidden here (R10).
    """

    def __init__(self, pages: PinnedPages, partitions: int, key_header: str | None) -> None:
        super().__init__(pages.file, partitions, key_header, ExpiryTimes(Ttl()))
        self.pages = pages
        self.hidden: dict[bytes, None] = {}
        """The keys that are hidden, in the order in which they expired."""
        self.known_expired: Container[bytes] = ()
        """The keys that the cut that was shown before hid, with the same records."""
        self._examined = b""  # the index of expiries is examined up to here
        self._renewed: list[tuple[int, bytes]] = []  # keys that were examined and expire later

    def __len__(self) -> int:
        return super().__len__() - len(self.hidden)

    def keys(self, order: Order = "tail") -> Sequence[bytes]:
        """Return all keys in queue order; see `StoredTable.keys`."""
        return self._less_hidden(super().keys(order))

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, memoryview]]:
        """See `StoredTable.walk`."""
        return (found for found in super().walk(start, stop) if found[0] not in self.hidden)

    def scan(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> StoredRange:
        """See `NewestRecords.scan`."""
        return StoredRange(self.copy(), start, stop, most)

    def changed_since(self, offsets: Mapping[int, int], moment: int | None) -> Mapping[bytes, Cause | None] | None:
        """See `NewestRecords.changed_since`."""
        changed = super().changed_since(offsets, moment)
        if changed is None or not self.hidden:
            return changed
        hidden = self.hidden
        expired = [key for key in hidden if key in changed or moment is None or self.expiry(key) >= moment]
        return {**dict.fromkeys(expired, "expired"), **{k: cause for k, cause in changed.items() if k not in hidden}}

    def _less_hidden(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        hidden = self.hidden
        return [key for key in keys if key not in hidden] if hidden else keys

    def copy(self) -> Self:
        """Return this cut, in which no more time passes."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.hidden = dict(self.hidden)
        return twin

    def hide_expired(self, now: int) -> list[bytes]:
        """Hide what has expired by now, in ms; return the keys that were not hidden before."""
        self.now = now
        if self.next_expiry >= now:
            return []
        found: list[bytes] = []
        cursor = self.pages.txn.cursor(self._index)
        there = cursor.set_range(self._examined) if self._examined else cursor.first()
        while there and unpack_time(cursor.key()) < now:
            self._examined = bytes(cursor.key()) + b"\0"
            packed = self._examined[TIME.size : -1]
            data = self.pages.txn.get(packed, None, self._records)
            assert data is not None  # the index has keys of the table only
            expiry, key = head_of(data).expiry, key_of(packed, data)
            if expiry < now:
                found.append(key)
            elif expiry < NEVER:
                heappush(self._renewed, (expiry, key))
            there = cursor.next()
        while self._renewed and self._renewed[0][0] < now:
            found.append(heappop(self._renewed)[1])
        self._next_examined = unpack_time(cursor.key()) if there else NEVER
        self.hidden.update(dict.fromkeys(found))
        return [key for key in found if key not in self.known_expired]

    _next_examined: int | None = None

    @property
    def next_expiry(self) -> int:
        """A time up to which nothing more expires; `NEVER` if nothing does."""
        if self._next_examined is None:
            cursor = self.pages.txn.cursor(self._index)
            self._next_examined = unpack_time(cursor.key()) if cursor.first() else NEVER
        return min(self._next_examined, self._renewed[0][0]) if self._renewed else self._next_examined


class StoredCut:
    """A `ValueStore` at one commit of its writer.

    Nothing is read into it. The next commit is another one.

    Args:
        pages: the cut.
        report: that of the writer, at this commit.
        key_header: the key header of the queue.
    """

    deselected: Collection[bytes] = ()
    overdue: Collection[bytes] = ()
    needs_reread = False

    def __init__(self, pages: PinnedPages, report: Report, key_header: str | None) -> None:
        self.pages = pages
        self.report = report
        self.table = CutTable(pages, report.shown_partitions, key_header)
        self.progress = Progress(report.shown)

    @cached_property
    def stats(self) -> ReaderStats:
        """The statistics of the writer."""
        note = self.pages.noted("fold")
        return ReaderStats() if note is None else ReaderStats(**json.loads(note)["stats"])

    @property
    def split_keys(self) -> list[bytes]:
        """See `ValueStore.split_keys`."""
        contests = self.pages.txn.cursor(self.pages.file.tables[CONTESTS])
        return [key for key, rivals in map(unpack_rivals, contests.iternext(keys=False)) if len(rivals) > 1]

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Hide what has expired by now, in ms; see `ValueStore.pass_time`.

        A message that is due counts once the writer has seen to it (R11).
        """
        hidden = len(self.table.hidden)
        expired = self.table.hide_expired(now)
        return Changes(expired=expired) if len(self.table.hidden) > hidden else None

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fail: only the writer applies records."""
        raise NotImplementedError

    def grow(self, partitions: int) -> list[bytes]:
        """Fail: only the writer does this."""
        raise NotImplementedError

    def forget_returned(self, keys: Iterable[bytes]) -> None:
        """Fail: only the writer does this."""
        raise NotImplementedError


def differing(before: StoredCut, after: StoredCut) -> Iterator[bytes]:
    """Yield the keys whose record is another one in a second cut, or in one of them only.

    The cuts may be of different files.
    """
    mine, other = (_rows(cut) for cut in (before, after))
    left, right = next(mine, None), next(other, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            if left[1] not in before.table.hidden:
                yield left[1]
            left = next(mine, None)
        elif left is None or right[0] < left[0]:
            yield right[1]
            right = next(other, None)
        else:
            if left[2:] != right[2:]:
                yield right[1]
            left, right = next(mine, None), next(other, None)


_KeyedRecord = tuple[bytes, bytes, tuple[int, ...], bytes]


def _rows(cut: StoredCut) -> Iterator[_KeyedRecord]:
    """Yield for each key its packed form, the key, and what distinguishes its record."""
    for packed, data in cut.pages.txn.cursor(cut.pages.file.tables[RECORDS]):
        flags, partition, offset, timestamp, expiry, _, _ = HEAD.unpack_from(data)
        yield (
            bytes(packed),
            key_of(packed, data),
            (flags, partition, offset, timestamp, expiry),
            bytes(data[HEAD.size :]),
        )
