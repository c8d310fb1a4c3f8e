"""Ready queues by rank (R20): the lowest first, and within a rank the first to arrive."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from lvq_kafka.core.queue.ranking import Rank, Ranking
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.ready_queue import ByPrecedence, BySlot, HeadedQueue, Slotted

__all__ = ["ByLevel", "precedence", "rank_of", "ranked_items", "ranked_line"]

precedence: Callable[[Item], tuple[Rank, int]] = attrgetter("rank", "slot")
"""Returns the sort key of a message in a ranked queue: its rank, then its slot."""

rank_of: Callable[[Item], Rank] = attrgetter("rank")
"""Returns the rank of a message."""


class Ranked(Slotted, Protocol):
    """Something with a rank."""

    rank: Rank


T = TypeVar("T", bound=Ranked)


class ByLevel(Generic[T]):
    """Lowest rank first, then lowest slot, for few different ranks.

    As fast as `BySlot`, since each rank that is used has a line of its own.
    """

    def __init__(self) -> None:
        self._lines: dict[Rank, BySlot[T]] = {}
        self._used: list[Rank] = []  # a heap of the ranks of lines that may hold something

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __contains__(self, item: T) -> bool:
        return item.rank in self._lines and item in self._lines[item.rank]

    def add(self, item: T) -> None:
        """See `ReadyQueue.add`."""
        rank = item.rank
        if rank not in self._used:
            heappush(self._used, rank)
        if rank not in self._lines:
            self._lines[rank] = BySlot()
        self._lines[rank].add(item)

    def remove(self, item: T) -> None:
        """See `ReadyQueue.remove`."""
        if item.rank in self._lines:
            self._lines[item.rank].remove(item)

    def pop(self) -> T | None:
        """See `ReadyQueue.pop`."""
        while self._used:
            item = self._lines[self._used[0]].pop()
            if item is not None:
                return item
            heappop(self._used)
        return None

    @property
    def head(self) -> T | None:
        """See `HeadedQueue.head`."""
        while self._used:
            item = self._lines[self._used[0]].head
            if item is not None:
                return item
            heappop(self._used)
        return None


def ranked_line(ranking: Ranking, *, as_they_come: bool) -> HeadedQueue[Item]:
    """Return an empty ready queue in the order of ranks.

    Args:
        as_they_come: whether messages mostly arrive in the order of their slots.
    """
    by_level = ranking.has_levels and as_they_come
    return ByLevel() if by_level else ByPrecedence(precedence)


def ranked_items(ranking: Ranking, kind: Callable[..., Item]) -> Callable[..., Item]:
    """Return a function that makes a ranked item of this kind from the arguments of `Item`."""

    def ranked(*arguments: Any, **named: Any) -> Item:
        item = kind(*arguments, **named)
        item.rank, item.beyond = ranking.rank(item.headers), False
        return item

    return ranked
