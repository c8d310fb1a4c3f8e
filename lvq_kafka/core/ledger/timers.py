"""Timers for the ends of delays and locks."""

from __future__ import annotations

from math import inf

from lvq_kafka.core.waiting.lazy_heap import LazyHeap
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item

__all__ = ["Timers"]

_WITH_A_TIME = frozenset({MessageState.DELAYED, MessageState.ACQUIRED, MessageState.STALE})


class Timers:
    """Messages with a deadline, by time.

    Most holders finish long before their time is over. Their timers stay, since removing them would cost more than
    setting them.
    """

    def __init__(self) -> None:
        self._heap: LazyHeap[Item] = LazyHeap(_holds)
        self.alarm = inf
        """A time before which no message is due. It costs nothing to ask, while `next` is exact."""

    def set(self, item: Item, time: float) -> None:
        """Set or replace the deadline of a message."""
        item.due = time
        if time < self.alarm:
            self.alarm = time
        self._heap.add(time, item)

    @property
    def next(self) -> float | None:
        """The next deadline."""
        time: float | None = self._heap.lowest
        return time

    def pop_due(self, now: float) -> list[Item]:
        """Remove and return the messages that are due, earliest deadline first."""
        items: list[Item] = []
        while (time := self._heap.lowest) is not None and time <= now:
            item = self._heap.pop()
            assert item is not None
            item.due = None
            items.append(item)
        self.alarm = inf if time is None else time
        return items


def _holds(time: float, item: Item) -> bool:
    """Return whether a timer is still set."""
    return item.due == time and item.state in _WITH_A_TIME
