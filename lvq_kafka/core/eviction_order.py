"""The order in which the waiting messages of a ring's partition are evicted (R12).

By offset, and where messages have ranks the worst rank first, then by offset. Within a rank, messages are handed out by
place, which is another order for what was scheduled: it takes its place when it is due. It is evicted as what it is,
one of the oldest records; and what is evicted then lies at the low end of the log, where it takes no room in a commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Any, Protocol

from lvq_kafka.core.lifecycle import TRANSITIONS, Event
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ranked_queue import rank_of
from lvq_kafka.core.ranking import Rank

__all__ = ["WAITS", "ByOffset", "ByRank", "EvictionOrder"]

WAITS = frozenset(TRANSITIONS[Event.EVICT])
"""The states of a message that waits, and may be evicted."""

_SPARE = 1024  # entries that may be obsolete, beside as many as there are messages
_OFFSET = attrgetter("offset")


class EvictionOrder(Protocol):
    """The messages that wait, the next to be evicted first.

    Entries of messages that no longer wait are obsolete. They are passed over, and dropped by `tidy`.
    """

    def __len__(self) -> int:
        """Return the number of entries."""

    def extend(self, items: Sequence[Item]) -> None:
        """Add messages that lie beyond all others, in the order of the log."""

    def add(self, item: Item) -> None:
        """Add a message that waits from now on, at any offset."""

    def pop(self) -> Item | None:
        """Remove and return the next message that waits, or return None if none does."""

    def tidy(self, messages: int) -> None:
        """Drop obsolete entries if there are many more entries than messages."""


class ByOffset:
    """The lowest offset first."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, Item]] = deque()  # in the order of the log
        self._returned: list[tuple[int, int, Item]] = []  # a heap of offset, a tie breaker, message
        self._ticks = count()

    def __len__(self) -> int:
        return len(self._line) + len(self._returned)

    def extend(self, items: Sequence[Item]) -> None:
        """See `EvictionOrder.extend`."""
        self._line.extend(zip(map(_OFFSET, items), items))

    def add(self, item: Item) -> None:
        """See `EvictionOrder.add`."""
        heappush(self._returned, (item.offset, next(self._ticks), item))

    def pop(self) -> Item | None:
        """See `EvictionOrder.pop`."""
        line, returned = self._line, self._returned
        while line or returned:
            if line and not (returned and returned[0][0] < line[0][0]):
                offset, item = line.popleft()
            else:
                offset, _, item = heappop(returned)
            if _is_current(offset, item):
                return item
        return None

    def tidy(self, messages: int) -> None:
        """See `EvictionOrder.tidy`."""
        if len(self) > 2 * messages + _SPARE:
            self._line = deque(entry for entry in self._line if _is_current(*entry))
            self._returned = [entry for entry in self._returned if _is_current(entry[0], entry[-1])]
            heapify(self._returned)


class ByRank:
    """The worst rank first, and of one rank the lowest offset."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, int, int, Item]] = []  # a heap of rank, offset, a tie breaker, message
        self._ticks = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def extend(self, items: Sequence[Item]) -> None:
        """See `EvictionOrder.extend`."""
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """See `EvictionOrder.add`."""
        heappush(self._waiting, (_worst_first(rank_of(item)), item.offset, next(self._ticks), item))

    def pop(self) -> Item | None:
        """See `EvictionOrder.pop`."""
        while self._waiting:
            _, offset, _, item = heappop(self._waiting)
            if _is_current(offset, item):
                return item
        return None

    def tidy(self, messages: int) -> None:
        """See `EvictionOrder.tidy`."""
        if len(self) > 2 * messages + _SPARE:
            self._waiting = [entry for entry in self._waiting if _is_current(entry[1], entry[-1])]
            heapify(self._waiting)


def _is_current(offset: int, item: Item) -> bool:
    """Return whether the message of an entry still waits.

    Its object may be that of a newer message by now.
    """
    return item.offset == offset and item.state in WAITS


def _worst_first(rank: Rank) -> Any:
    return -rank if isinstance(rank, int) else _Reversed(rank)


class _Reversed(bytes):
    """Bytes of which the greater come first."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)
