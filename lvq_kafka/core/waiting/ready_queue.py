"""The ready queue: the order in which messages are handed out.

The ledger decides *whether* a message may be handed out (it is the newest of its key, its partition has been read to
the end, its key is not in work). A `ReadyQueue` only decides *which* of them is next.
`lvq_kafka.core.waiting.ranked_queue` has ranked ones. Message groups need to know more: which session acquires, and
which messages are no longer in work (`lvq_kafka.core.waiting.grouped_queue`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap

__all__ = [
    "TRIED_OFTEN",
    "ByPrecedence",
    "BySlot",
    "Entrance",
    "HeadedQueue",
    "InTurns",
    "ReadyQueue",
    "Returning",
    "Slotted",
    "no_rank",
]

TRIED_OFTEN = 2
"""The number of deliveries after which a returned message takes turns with others.

With fewer, it returns to its old place.
"""


class Slotted(Protocol):
    """Something with a place in the queue."""

    slot: int


class Returning(Slotted, Protocol):
    """A message that may return to the queue."""

    deliveries: int
    """The number of times it was handed out."""


T = TypeVar("T", bound=Slotted)
T_contra = TypeVar("T_contra", bound=Slotted, contravariant=True)
R = TypeVar("R", bound=Returning)


class Entrance(Protocol[T_contra]):
    """The way into a ready queue, and out of it without being handed out."""

    def add(self, item: T_contra) -> None:
        """Add a message that may be handed out, for the first time or again.

        It replaces the one in the same slot.
        """

    def remove(self, item: T_contra) -> None:
        """Remove a message that may no longer be handed out, if it waits in the queue."""


class ReadyQueue(Entrance[T], Protocol[T]):
    """The messages that may be handed out, in hand-out order."""

    def pop(self) -> T | None:
        """Remove and return the next message, or return None if there is none."""


class HeadedQueue(ReadyQueue[T], Protocol[T]):
    """A ready queue that shows its head."""

    @property
    def head(self) -> T | None:
        """The next message; None if there is none."""

    def __len__(self) -> int: ...

    def __contains__(self, item: T) -> bool: ...


class BySlot(Generic[T]):
    """Lowest slot first, in constant time for messages that arrive in slot order.

    A message that returns to its old place, because its holder released it or its key is free again, goes through a
    heap unless it is the first. So the heap stays about as small as the number of messages in work.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[int, T] = OrderedDict()
        self._last = -1
        self._returned: dict[int, T] = {}
        self._returned_order: list[int] = []

    def __len__(self) -> int:
        return len(self._line) + len(self._returned)

    def __contains__(self, item: T) -> bool:
        return self._line.get(item.slot) is item or self._returned.get(item.slot) is item

    def add(self, item: T) -> None:
        """See `ReadyQueue.add`."""
        slot = item.slot
        if slot > self._last:
            self._last = slot
            self._line[slot] = item
        elif slot in self._line:
            self._line[slot] = item
        elif not self._returned_order and (not self._line or slot < next(iter(self._line))):
            self._line[slot] = item
            self._line.move_to_end(slot, last=False)
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

    @property
    def head(self) -> T | None:
        """See `HeadedQueue.head`."""
        slot = self._lowest()
        return None if slot is None else self._returned.get(slot) or self._line[slot]

    def _lowest(self) -> int | None:
        line, returned, order = self._line, self._returned, self._returned_order
        while order and order[0] not in returned:
            heappop(order)
        first = next(iter(line)) if line else None
        return first if not order or (first is not None and first < order[0]) else order[0]


class ByPrecedence(Generic[T]):
    """Lowest precedence first, in logarithmic time.

    Args:
        precedence: returns the sort key of a message when it is added. No two may be equal.
    """

    def __init__(self, precedence: Callable[[T], Any]) -> None:
        self._precedence = precedence
        self._heap: PrecedenceHeap[T] = PrecedenceHeap()
        self.places: dict[int, Any] = {}
        """The precedence of each message, by slot."""

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, item: T) -> bool:
        place = self.places.get(item.slot)
        return place is not None and self._heap.get(place) is item

    def add(self, item: T) -> None:
        """See `ReadyQueue.add`."""
        self.remove(item)
        place = self.places[item.slot] = self._precedence(item)
        self._heap.add(place, item)

    def remove(self, item: T) -> None:
        """See `ReadyQueue.remove`."""
        place = self.places.pop(item.slot, None)
        if place is not None:
            self._heap.remove(place)

    def pop(self) -> T | None:
        """See `ReadyQueue.pop`."""
        if not self.places:
            return None
        item = self._heap.pop()
        del self.places[item.slot]
        return item

    @property
    def head(self) -> T | None:
        """See `HeadedQueue.head`."""
        return self._heap.first if self.places else None


def no_rank(item: object) -> int:
    """Return the rank of any message in a queue in the order of arrival."""
    return 0


class InTurns(Generic[R]):
    """The order of another queue, except that messages returned often alternate with others.

    Such messages may always fail. So they get at most every second turn while other messages wait, and those of one
    rank take turns among themselves. They block neither others nor each other, and do not wait for long.

    Args:
        others: an empty queue that orders all other messages by rank, and within a rank by slot.
        rank: returns a message's rank.
    """

    def __init__(self, others: HeadedQueue[R], rank: Callable[[R], Any] = no_rank) -> None:
        turns = count()
        self._others = others
        self._rank = rank
        self._often: ByPrecedence[R] = ByPrecedence(lambda item: (rank(item), next(turns)))
        self._often_was_last = False

    def __len__(self) -> int:
        return len(self._others) + len(self._often)

    def __contains__(self, item: R) -> bool:
        return item in self._others or item in self._often

    def add(self, item: R) -> None:
        """See `ReadyQueue.add`."""
        if item.deliveries >= TRIED_OFTEN:
            self._often.add(item)
        else:
            self._others.add(item)

    def remove(self, item: R) -> None:
        """See `ReadyQueue.remove`."""
        self._others.remove(item)
        self._often.remove(item)

    def pop(self) -> R | None:
        """See `ReadyQueue.pop`."""
        if not self._often.places:
            return self._others.pop()
        self._often_was_last = self._often_is_next()
        return self._often.pop() if self._often_was_last else self._others.pop()

    @property
    def head(self) -> R | None:
        """See `HeadedQueue.head`."""
        return self._often.head if self._often_is_next() else self._others.head

    @property
    def other_head(self) -> R | None:
        """The next of the messages that were not returned often; None if there is none."""
        return self._others.head

    def _often_is_next(self) -> bool:
        often, other = self._often.head, self._others.head
        if often is None or other is None:
            return often is not None
        rank = self._rank
        return not self._often_was_last and (rank(often), often.slot) < (rank(other), other.slot)
