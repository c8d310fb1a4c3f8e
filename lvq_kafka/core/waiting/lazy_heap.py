"""A heap of messages from which any message can be removed."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

__all__ = ["PrecedenceHeap"]

T = TypeVar("T")

_SPARE = 64  # entries of removed messages, beside as many as there are messages


class PrecedenceHeap(Generic[T]):
    """Messages by precedence, lowest first.

    A precedence is unique among them, and comparable. The entry of a message that was removed stays until it reaches
    the top, or until most entries are such.
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
        """Remove and return the message of this precedence, if it is there."""
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
