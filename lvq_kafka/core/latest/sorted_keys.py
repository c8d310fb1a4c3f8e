"""Keys in byte order, for scans of a table in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeVar

T = TypeVar("T")

__all__ = ["SortedKeys", "after_prefix", "sorted_parts"]

_PART = 16_384  # items sorted at once, which takes some 3 ms
_SAMPLE = 4_096  # items that determine the bounds of the parts


def sorted_parts(items: Sequence[T], key: Callable[[T], Any] = lambda item: item) -> list[list[T]]:
    """Return items in order, in parts; equal ones keep their order.

    No step sorts many items at once, except equal ones: meanwhile, no other thread would run.
    """
    if len(items) <= _PART:
        return [sorted(items, key=key)] if items else []
    sample = sorted(map(key, items[:: len(items) // _SAMPLE + 1]))
    bounds = sample[:: max(1, len(sample) * _PART // len(items))]
    parts: list[list[T]] = [[] for _ in range(len(bounds) + 1)]
    for item in items:
        parts[bisect_right(bounds, key(item))].append(item)
    for part in parts:
        part.sort(key=key)
    return [part for part in parts if part]


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with the prefix; None if there is no such bound."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class SortedKeys:
    """Distinct keys in byte order.

    They are in parts, so that a key comes or goes in microseconds, however many there are.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._parts = sorted_parts(list(keys))
        self._last = [part[-1] for part in self._parts]

    def add(self, key: bytes) -> None:
        """Add a key, unless it is there."""
        number = min(bisect_left(self._last, key), len(self._parts) - 1)
        if number < 0:
            self._parts, self._last = [[key]], [key]
            return
        part = self._parts[number]
        at = bisect_left(part, key)
        if at < len(part) and part[at] == key:
            return
        part.insert(at, key)
        if len(part) > 2 * _PART:
            self._parts[number : number + 1] = [part[:_PART], part[_PART:]]
            self._last.insert(number, part[_PART - 1])
        self._note_last(number)

    def discard(self, key: bytes) -> None:
        """Remove a key, if it is there."""
        number = bisect_left(self._last, key)
        if number == len(self._parts):
            return
        part = self._parts[number]
        at = bisect_left(part, key)
        if part[at] == key:
            del part[at]
            self._note_last(number)

    def _note_last(self, number: int) -> None:
        if self._parts[number]:
            self._last[number] = self._parts[number][-1]
        else:
            del self._parts[number], self._last[number]

    def within(self, start: bytes, stop: bytes | None, most: int | None = None) -> list[bytes]:
        """Return the keys from ``start`` up to but not including ``stop``, at most ``most``."""
        found: list[bytes] = []
        low = bisect_left(self._last, start)
        for part in islice(self._parts, low, None):
            begin = bisect_left(part, start) if not found else 0
            end = len(part) if stop is None or part[-1] < stop else bisect_left(part, stop)
            found += part[begin : end if most is None else min(end, begin + most - len(found))]
            if end < len(part) or (most is not None and len(found) >= most):
                break
        return found

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """Yield the keys from ``start`` up to but not including ``stop``. Change none meanwhile."""
        for number in range(bisect_left(self._last, start), len(self._parts)):
            part = self._parts[number]
            end = len(part) if stop is None or part[-1] < stop else bisect_left(part, stop)
            yield from islice(part, bisect_left(part, start), end)
            if end < len(part):
                return

    def before(self, stop: bytes | None) -> bytes | None:
        """Return the last key before ``stop``, or the last one; None if there is none."""
        if stop is None:
            return self._last[-1] if self._last else None
        number = bisect_left(self._last, stop)
        at = bisect_left(self._parts[number], stop) if number < len(self._parts) else 0
        if at:
            return self._parts[number][at - 1]
        return self._last[number - 1] if number else None

    def copy(self) -> Self:
        """Return a copy."""
        twin = type(self).__new__(type(self))
        twin._parts, twin._last = [part[:] for part in self._parts], self._last[:]
        return twin
