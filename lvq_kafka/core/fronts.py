"""The messages among which a session's next one is chosen."""

from __future__ import annotations

from typing import Any, Generic

from lvq_kafka.core.precedence_heap import PrecedenceHeap
from lvq_kafka.core.ready_queue import R

__all__ = ["Fronts", "SessionPins"]


class Fronts(Generic[R]):
    """Messages that one session may get next, or that any may.

    These are the first messages of groups, and messages without a group.
    """

    __slots__ = ("gated", "heap", "number", "often", "turns")

    def __init__(self) -> None:
        self.number = 0
        """The number of them, without those that are gated."""
        self.heap: list[Any] = []
        """The precedences of those that did not come back often, and of some that are no longer among them."""
        self.often: PrecedenceHeap[Any] = PrecedenceHeap()
        """By rank and turn, the precedences of those that often came back."""
        self.turns: dict[Any, Any] = {}
        """By precedence, their ranks and turns."""
        self.gated: dict[int, PrecedenceHeap[R]] = {}
        """By partition, what waits for room in the commit map."""

    def __bool__(self) -> bool:
        return self.number > 0 or any(self.gated.values())

    def __len__(self) -> int:
        return self.number + sum(map(len, self.gated.values()))


class SessionPins:
    """A session, and the groups that are pinned to it. It counts as one consumer."""

    __slots__ = ("ended", "fronts", "groups", "often_was_last")

    def __init__(self) -> None:
        self.fronts: Fronts[Any] = Fronts()
        self.groups: set[Any] = set()
        """The groups that are pinned to it, as `lvq_kafka.core.grouped_queue` has them."""
        self.often_was_last = False
        """Whether the last message it got had often come back."""
        self.ended = False
        """True once it gets nothing more. Its pins last until what it holds is settled."""
