"""When delays and the time of holders are over."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.pending import Item

__all__ = ["Timers"]

_WITH_A_TIME = frozenset({State.DELAYED, State.ACQUIRED, State.STALE})
_SWEEP_AT_LEAST = 256


class Timers:
    """The messages for which something is due at a certain time, by that time.

    Most holders are done long before their time is over. To take their alarms out would cost more than to set them; so
    they are swept out when they may have become the greater part, which makes the heap no more than twice as long as it
    has to be.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._ticks = count()  # so that items are never compared
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, item: Item, time: float) -> None:
        """Something is due for this message at that time, instead of what was to be before."""
        item.due = time
        if len(self._heap) >= self._sweep_at:
            self._heap = [alarm for alarm in self._heap if _holds(alarm)]
            heapify(self._heap)
            self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._heap))
        heappush(self._heap, (time, next(self._ticks), item))

    @property
    def next(self) -> float | None:
        """When something is due next."""
        heap = self._heap
        while heap and not _holds(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[Item]:
        """Those for which it is time, the one that was due first in front."""
        items: list[Item] = []
        while (time := self.next) is not None and time <= now:
            item = heappop(self._heap)[2]
            item.due = None
            items.append(item)
        return items


def _holds(alarm: tuple[float, int, Item]) -> bool:
    return alarm[2].due == alarm[0] and alarm[2].state in _WITH_A_TIME
