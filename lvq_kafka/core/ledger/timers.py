"""Timers for the ends of delays and of holders' time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from lvq_kafka.core.waiting.lifecycle import State
from lvq_kafka.core.waiting.pending import Item

__all__ = ["Timers"]

_WITH_A_TIME = frozenset({State.DELAYED, State.ACQUIRED, State.STALE})
_SWEEP_AT_LEAST = 256


class Timers:
    """Messages with a deadline, by time.

    Most holders finish long before their time is over. Removing their timers would cost more than setting them, so
    obsolete ones are swept out once they may be the majority. The heap is at most twice as long as necessary.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._ticks = count()  # a tie breaker, so that items are never compared
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, item: Item, time: float) -> None:
        """Set or replace the deadline of a message."""
        item.due = time
        if len(self._heap) >= self._sweep_at:
            self._heap = [alarm for alarm in self._heap if _holds(alarm)]
            heapify(self._heap)
            self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._heap))
        heappush(self._heap, (time, next(self._ticks), item))

    @property
    def next(self) -> float | None:
        """The next deadline."""
        heap = self._heap
        while heap and not _holds(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[Item]:
        """Remove and return the messages that are due, earliest deadline first."""
        items: list[Item] = []
        while (time := self.next) is not None and time <= now:
            item = heappop(self._heap)[2]
            item.due = None
            items.append(item)
        return items


def _holds(alarm: tuple[float, int, Item]) -> bool:
    return alarm[2].due == alarm[0] and alarm[2].state in _WITH_A_TIME
