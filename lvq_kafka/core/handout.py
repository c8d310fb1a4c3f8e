"""Which message a consumer gets next: the order of those that may be handed out.

The ledger decides *whether* a message may be handed out (it is the newest of its key, its partition has been read to
the end, its key is not in work). A `HandOut` decides only *which* of them is next, so another order, such as priority
among keys, is another class with these three methods. Message groups whose messages go to one taker need the ledger to
say two things more, who takes and what was settled: `Ledger.reserve` and `Ledger._remove` are the places.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

__all__ = ["BySlot", "HandOut", "Slotted"]


class Slotted(Protocol):
    """Something with a place in the queue."""

    slot: int


T = TypeVar("T", bound=Slotted)


class HandOut(Protocol[T]):
    """The messages that may be handed out, in the order in which they will be."""

    def add(self, item: T) -> None:
        """This may be handed out, for the first time or again. It replaces what is in the same slot."""

    def remove(self, item: T) -> None:
        """This may no longer be handed out. Nothing happens when it could not anyway."""

    def take(self) -> T | None:
        """Remove and return the next one, or None when there is none."""


class BySlot(Generic[T]):
    """The lowest slot first, in constant time for those that come in the order of their slots.

    Only what comes back into its old place (released by its holder, or waiting for its key to be free) goes through a
    heap, which therefore stays about as small as the number of messages in work.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[int, T] = OrderedDict()
        self._last = -1
        self._returned: dict[int, T] = {}
        self._returned_order: list[int] = []

    def add(self, item: T) -> None:
        """See `HandOut.add`."""
        slot = item.slot
        if slot > self._last:
            self._last = slot
            self._line[slot] = item
        elif slot in self._line:
            self._line[slot] = item
        else:
            if slot not in self._returned:
                heappush(self._returned_order, slot)
            self._returned[slot] = item

    def remove(self, item: T) -> None:
        """See `HandOut.remove`. The heap forgets a slot when it comes to the top."""
        if self._line.pop(item.slot, None) is None:
            self._returned.pop(item.slot, None)

    def take(self) -> T | None:
        """See `HandOut.take`."""
        line, returned, order = self._line, self._returned, self._returned_order
        while order:
            slot = order[0]
            if slot not in returned:
                heappop(order)
            elif line and next(iter(line)) < slot:
                break
            else:
                heappop(order)
                return returned.pop(slot)
        return line.popitem(last=False)[1] if line else None
