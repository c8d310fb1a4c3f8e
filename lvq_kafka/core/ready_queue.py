"""The ready queue: the order in which messages are handed out.

The ledger decides *whether* a message may be handed out (it is the newest of its key, its partition has been read to
the end, its key is not in work). A `ReadyQueue` only decides *which* of them is next, so another order, such as
priority among keys, is another class with these three methods. Message groups bound to one consumer would need two more
facts from the ledger, who acquires and what was settled: see `Ledger.reserve` and `Ledger._remove`.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

__all__ = ["TRIED_OFTEN", "BySlot", "InTurns", "ReadyQueue", "Returning", "Slotted"]

TRIED_OFTEN = 2
"""The number of deliveries after which a message that comes back takes turns with others.

With fewer, it comes back in its old place.
"""


class Slotted(Protocol):
    """Something with a place in the queue."""

    slot: int


class Returning(Slotted, Protocol):
    """Something that may come back to the queue."""

    deliveries: int
    """The number of times it was handed out."""


T = TypeVar("T", bound=Slotted)
R = TypeVar("R", bound=Returning)


class ReadyQueue(Protocol[T]):
    """The messages that may be handed out, in hand-out order."""

    def add(self, item: T) -> None:
        """Add a message that may be handed out, for the first time or again.

        It replaces the one in the same slot.
        """

    def remove(self, item: T) -> None:
        """Remove a message that may no longer be handed out, if it is there."""

    def pop(self) -> T | None:
        """Remove and return the next message, or return None if there is none."""


class BySlot(Generic[T]):
    """Lowest slot first, in constant time for messages that arrive in slot order.

    Only a message that returns to its old place (released by its holder, or waiting for its key to be free) goes
    through a heap, which therefore stays about as small as the number of messages in work.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[int, T] = OrderedDict()
        self._last = -1
        self._returned: dict[int, T] = {}
        self._returned_order: list[int] = []

    def add(self, item: T) -> None:
        """See `ReadyQueue.add`."""
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
        """See `ReadyQueue.remove`. The heap forgets a slot once it reaches the top."""
        if self._line.pop(item.slot, None) is None:
            self._returned.pop(item.slot, None)

    def pop(self) -> T | None:
        """See `ReadyQueue.pop`."""
        if not self._returned_order:
            return self._line.popitem(last=False)[1] if self._line else None
        slot = self._lowest()
        if slot is None:
            return None
        if slot in self._returned:
            heappop(self._returned_order)
            return self._returned.pop(slot)
        return self._line.pop(slot)

    def _lowest(self) -> int | None:
        line, returned, order = self._line, self._returned, self._returned_order
        while order and order[0] not in returned:
            heappop(order)
        first = next(iter(line)) if line else None
        return first if not order or (first is not None and first < order[0]) else order[0]


class InTurns(BySlot[R]):
    """Lowest slot first, but messages that often came back let others go in between.

    They may fail always. So they get at most every second turn while there is anything else, and take turns among
    themselves: they block neither others nor each other, and do not wait for long either.
    """

    def __init__(self) -> None:
        super().__init__()
        self._often: OrderedDict[int, R] = OrderedDict()  # in order of return
        self._often_was_last = False

    def add(self, item: R) -> None:
        """See `ReadyQueue.add`."""
        if item.deliveries >= TRIED_OFTEN:
            self._often[item.slot] = item
        else:
            super().add(item)

    def remove(self, item: R) -> None:
        """See `ReadyQueue.remove`."""
        super().remove(item)
        self._often.pop(item.slot, None)

    def pop(self) -> R | None:
        """See `ReadyQueue.pop`."""
        if not self._often:
            return super().pop()
        slot, lowest = next(iter(self._often)), self._lowest()
        if lowest is None or (slot < lowest and not self._often_was_last):
            self._often_was_last = True
            return self._often.pop(slot)
        self._often_was_last = False
        return super().pop()
