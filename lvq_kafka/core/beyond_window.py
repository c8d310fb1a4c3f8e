"""The messages of one partition that are beyond the window of ranks (R20).

They are needed in two orders: the window reaches them by offset, and those that go ahead of it are the best by rank and
slot. Messages arrive in the order of offsets and slots, but for some that were delayed, scheduled, or waited for an
older value of their key.

A message that is taken out stays listed, with its mark taken off, until it is reached or `tidy` is called.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from lvq_kafka.core.pending import RankedItem
from lvq_kafka.core.ranked_queue import precedence
from lvq_kafka.core.ranking import Rank

__all__ = ["Beyond", "BeyondByLevel", "BeyondByRank"]


class Beyond(Protocol):
    """Messages in two orders. Those that are not marked as `RankedItem.beyond` do not count."""

    def add(self, item: RankedItem) -> None:
        """Add a message, which is marked."""

    @property
    def head(self) -> RankedItem | None:
        """The best message, by rank and slot; None if there is none."""

    def pop_below(self, end: int) -> list[RankedItem]:
        """Remove and return the messages below an offset, without their marks."""

    def tidy(self) -> None:
        """Forget messages that do not count."""


class BeyondByRank:
    """Any ranks, in logarithmic time."""

    def __init__(self) -> None:
        self._ticks = count()
        self._by_rank: list[tuple[Rank, int, int, RankedItem]] = []  # a heap: rank, slot, a tie breaker
        self._by_offset: list[tuple[int, int, RankedItem]] = []  # the same: offset, a tie breaker

    def __bool__(self) -> bool:
        return bool(self._by_offset)

    def add(self, item: RankedItem) -> None:
        """See `Beyond.add`."""
        tick = next(self._ticks)
        heappush(self._by_rank, (item.rank, item.slot, tick, item))
        heappush(self._by_offset, (item.offset, tick, item))

    @property
    def head(self) -> RankedItem | None:
        """See `Beyond.head`."""
        heap = self._by_rank
        while heap and not heap[0][3].beyond:
            heappop(heap)
        return heap[0][3] if heap else None

    def pop_below(self, end: int) -> list[RankedItem]:
        """See `Beyond.pop_below`."""
        heap, found = self._by_offset, []
        while heap and heap[0][0] < end:
            item = heappop(heap)[2]
            if item.beyond:
                item.beyond = False
                found.append(item)
        return found

    def tidy(self) -> None:
        """See `Beyond.tidy`."""
        self._by_rank = [entry for entry in self._by_rank if entry[3].beyond]
        self._by_offset = [entry for entry in self._by_offset if entry[2].beyond]
        heapify(self._by_rank)
        heapify(self._by_offset)


class BeyondByLevel:
    """Few different ranks, in constant time for messages that arrive in order."""

    def __init__(self) -> None:
        self._lines: dict[Rank, deque[RankedItem]] = {}  # each in the order of offsets, and of slots
        self._ranks: list[Rank] = []  # these ranks, in order
        self._strays = BeyondByRank()

    def add(self, item: RankedItem) -> None:
        """See `Beyond.add`."""
        line = self._lines.get(item.rank)
        if line is None:
            self._lines[item.rank] = deque((item,))
            insort(self._ranks, item.rank)
        elif not line or ((last := line[-1]).slot < item.slot and last.offset < item.offset):
            line.append(item)
        else:
            self._strays.add(item)

    @property
    def head(self) -> RankedItem | None:
        """See `Beyond.head`."""
        stray = self._strays.head
        for rank in self._ranks:
            line = self._lines[rank]
            while line and not line[0].beyond:
                line.popleft()
            if line:
                return line[0] if stray is None else min(line[0], stray, key=precedence)
        return stray

    def pop_below(self, end: int) -> list[RankedItem]:
        """See `Beyond.pop_below`."""
        found = self._strays.pop_below(end) if self._strays else []
        for line in self._lines.values():
            while line and line[0].offset < end:
                item = line.popleft()
                if item.beyond:
                    item.beyond = False
                    found.append(item)
        return found

    def tidy(self) -> None:
        """See `Beyond.tidy`."""
        self._lines = {rank: deque(_marked(line)) for rank, line in self._lines.items()}
        self._strays.tidy()


def _marked(items: Iterable[RankedItem]) -> Iterable[RankedItem]:
    return (item for item in items if item.beyond)
