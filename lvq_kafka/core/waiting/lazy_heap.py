"""Heaps of messages of which some no longer count, or were removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

__all__ = ["LazyHeap", "PrecedenceHeap"]

T = TypeVar("T")

_SPARE = 64  # entries of removed messages, in addition to one for each message
_SWEEP_AT_LEAST = 256  # entries


class LazyHeap(Generic[T]):
    """Entries of messages by their keys, lowest first.

    An entry that no longer counts stays where it is. It is skipped at the top, and removed once such entries may be the
    majority. So the heap is at most about twice as long as necessary.

    Args:
        counts: returns whether the entry of a message, with this key, still counts.
    """

    __slots__ = ("_counts", "_heap", "_sweep_at", "_ticks")

    def __init__(self, counts: Callable[[Any, T], bool]) -> None:
        self._counts = counts
        self._heap: list[tuple[Any, int, T]] = []
        self._ticks = count()  # a tie breaker, so that messages are never compared
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        """Return the number of entries, including those that no longer count."""
        return len(self._heap)

    def add(self, key: Any, item: T) -> None:
        """Add an entry. Others of its message, with other keys, should no longer count."""
        if len(self._heap) >= self._sweep_at:
            self.sweep()
        heappush(self._heap, (key, next(self._ticks), item))

    def sweep(self) -> None:
        """Drop all entries that no longer count."""
        counts = self._counts
        self._heap = [entry for entry in self._heap if counts(entry[0], entry[2])]
        heapify(self._heap)
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._heap))

    @property
    def lowest(self) -> Any:
        """The lowest key; None if there is no message."""
        heap, counts = self._heap, self._counts
        while heap:
            key, _, item = heap[0]
            if counts(key, item):
                return key
            heappop(heap)
        return None

    @property
    def first(self) -> T | None:
        """The message of the lowest key; None if there is none."""
        return None if self.lowest is None else self._heap[0][2]

    def pop(self) -> T | None:
        """Remove and return the message of the lowest key; None if there is none."""
        return None if self.lowest is None else heappop(self._heap)[2]


class PrecedenceHeap(Generic[T]):
    """Messages by precedence, lowest first.

    A precedence is unique among them, and comparable. The entry of a message that was removed stays until it reaches
    the top, or until most entries are obsolete.
    """

    __slots__ = ("_heap", "_items")

    def __init__(self) -> None:
        self._heap: list[Any] = []
        self._items: dict[Any, T] = {}

    def __contains__(self, precedence: object) -> bool:
        return precedence in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items.values())

    def get(self, precedence: Any) -> T | None:
        """Return the message of this precedence; None if there is none."""
        return self._items.get(precedence)

    def add(self, precedence: Any, item: T) -> None:
        """Add a message. It replaces the one of the same precedence."""
        items, heap = self._items, self._heap
        if precedence not in items:
            if len(heap) > 2 * len(items) + _SPARE:
                heap[:] = sorted(items)
            heappush(heap, precedence)
        items[precedence] = item

    def remove(self, precedence: Any) -> T | None:
        """Remove and return the message of this precedence, if the heap has it."""
        return self._items.pop(precedence, None)

    @property
    def lowest(self) -> Any:
        """The lowest precedence, or None if there is no message."""
        items, heap = self._items, self._heap
        while heap:
            precedence = heap[0]
            if precedence in items:
                return precedence
            heappop(heap)
        return None

    @property
    def first(self) -> T:
        """The message of the lowest precedence. There must be one."""
        return self._items[self.lowest]

    def pop(self) -> T:
        """Remove and return the message of the lowest precedence. There must be one."""
        items, heap = self._items, self._heap
        while (precedence := heappop(heap)) not in items:
            pass
        return items.pop(precedence)
