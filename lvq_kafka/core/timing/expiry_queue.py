"""Entries by the time at which they are due, most of them unsorted."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["BUCKET", "UNSCHEDULED", "ExpiryQueue", "Schedule"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

BUCKET = 8
"""The bits of a time, in ms, that a bucket spans: 256 ms, less than two clocks differ."""

_SPARE = 4096  # obsolete entries allowed, in addition to one for each that counts

UNSCHEDULED = 1 << 62
"""The bucket of an entry that is not in the queue: later than all others."""


class Schedule(Protocol[T_contra]):
    """The owner's knowledge of each entry: its time, and the one bucket where it counts."""

    def due(self, entry: T_contra, bucket: int) -> int | None:
        """Return the time of an entry; None if it was removed, or does not count in this bucket."""

    def moved(self, entry: T_contra, bucket: int) -> None:
        """Note that an entry counts in this bucket; `UNSCHEDULED` if in none any longer."""


class ExpiryQueue(Generic[T]):
    """Entries by their time: sorted in open buckets, in plain lists before that.

    An entry costs a reference, and is touched twice. Sorting all of them would cost ten times as much, and most are
    renewed before they are due. So an entry whose time is postponed stays where it is: its time is looked up when its
    bucket opens, and if that is later, the entry moves.

    An entry has to be added again only if it is now due in an earlier bucket, or in an open one. The queue then holds
    it more than once, and it counts in the bucket that its owner knows.
    """

    __slots__ = ("_far", "_near", "_order", "_schedule", "_size", "_ticks", "_tidy_at", "opened")

    def __init__(self, schedule: Schedule[T]) -> None:
        self._schedule = schedule
        self._far: dict[int, list[T]] = {}
        self._order: list[int] = []  # a heap of the buckets
        self._near: list[tuple[int, int, T]] = []  # entries in open buckets, by negative time: the first is last
        self.opened = -1
        """The last bucket that is open; all before it are, too."""
        self._ticks = count()  # of equal times, the first added is first; entries are never compared
        self._size = 0
        self._tidy_at = _SPARE

    def __len__(self) -> int:
        """Return the number of entries, including those that no longer count."""
        return self._size

    @property
    def next(self) -> int | None:
        """A time before which nothing is due; None if the queue is empty."""
        near = -self._near[-1][0] if self._near else None
        if not self._order:
            return near
        far = self._order[0] << BUCKET
        return far if near is None or far < near else near

    def add(self, entry: T, due: int) -> None:
        """Add an entry. Its owner is notified of its bucket."""
        bucket = due >> BUCKET
        if bucket <= self.opened:
            insort(self._near, (-due, -next(self._ticks), entry))
            self._size += 1
        else:
            self.extend(bucket, (entry,))
        self._schedule.moved(entry, bucket)

    def extend(self, bucket: int, entries: Iterable[T]) -> None:
        """Add entries to a bucket that is not open. Their owner is not notified."""
        line = self._far.get(bucket)
        if line is None:
            line = self._far[bucket] = []
            heappush(self._order, bucket)
        before = len(line)
        line += entries
        self._size += len(line) - before

    def pop_due(self, now: int, most: int) -> list[T]:
        """Remove and return at most ``most`` entries that were due before ``now``, each once."""
        found: list[T] = []
        near, due_in = self._near, self._schedule.due
        while len(found) < most:
            if not near or -near[-1][0] >= now:
                if not self._order or self._order[0] << BUCKET >= now:
                    break
                self._open_next()
                continue
            due, _, entry = near.pop()
            self._size -= 1
            current = due_in(entry, -due >> BUCKET)
            if current is None:
                continue
            if current <= -due:
                self._schedule.moved(entry, UNSCHEDULED)  # the queue may hold it more than once
                found.append(entry)
            else:
                self.add(entry, current)
        return found

    def tidy(self, count: Callable[[], int]) -> None:
        """Drop the entries that no longer count, once they may be most of them.

        Args:
            count: returns the number of entries that count, or a higher one.
        """
        if self._size < self._tidy_at:
            return
        self._tidy_at = 2 * count() + _SPARE
        if self._size < self._tidy_at:
            return
        far, near, due_in = self._far, self._near, self._schedule.due
        self._far, self._near, self._order, self._size = {}, [], [], 0
        seen: set[int] = set()
        places = [(-due >> BUCKET, (entry,)) for due, _, entry in reversed(near)]
        for bucket, entries in (*places, *far.items()):
            for entry in entries:
                due = None if id(entry) in seen else due_in(entry, bucket)
                if due is not None:
                    seen.add(id(entry))
                    self.add(entry, due)

    def _open_next(self) -> None:
        """Open the earliest bucket. Entries that are due later move on."""
        bucket = self.opened = heappop(self._order)
        entries = self._far.pop(bucket)
        self._size -= len(entries)
        near, due_in, ticks = self._near, self._schedule.due, self._ticks
        for entry in entries:
            due = due_in(entry, bucket)
            if due is None:
                continue
            if due >> BUCKET == bucket:
                near.append((-due, -next(ticks), entry))
                self._size += 1
            else:
                self.add(entry, due)
        near.sort()
