"""The messages among which a session's next one is chosen."""

from __future__ import annotations

from typing import Any, Generic

from lvq_kafka.core.precedence_heap import PrecedenceHeap
from lvq_kafka.core.ready_queue import TRIED_OFTEN, R

__all__ = ["Fronts", "SessionPins"]


class Fronts(Generic[R]):
    """Messages that one session may get next, or that any may.

    These are the first messages of groups, and messages without a group.
    """

    __slots__ = ("gated", "often", "ready")

    def __init__(self) -> None:
        self.ready: PrecedenceHeap[R] = PrecedenceHeap()
        self.often: dict[Any, tuple[int, R]] = {}
        """By precedence, what often came back, each with the number of its turn."""
        self.gated: dict[int, PrecedenceHeap[R]] = {}
        """By partition, what waits for room in the commit map."""

    def __bool__(self) -> bool:
        return bool(self.ready or self.often) or any(self.gated.values())

    def __len__(self) -> int:
        return len(self.ready) + len(self.often) + sum(map(len, self.gated.values()))

    def add(self, precedence: Any, item: R, turn: int) -> None:
        """Add a message.

        Args:
            turn: the number of its turn, higher than any before.
        """
        if item.deliveries >= TRIED_OFTEN:
            self.often[precedence] = turn, item
        else:
            self.ready.add(precedence, item)

    def remove(self, precedence: Any, partition: int) -> None:
        """Remove a message, if it is there."""
        if self.ready.remove(precedence) is None and self.often.pop(precedence, None) is None:
            gated = self.gated.get(partition)
            if gated is not None:
                gated.remove(precedence)

    def gate(self, precedence: Any, item: R, partition: int) -> None:
        """Have a message wait for room in its partition's commit map."""
        self.gated.setdefault(partition, PrecedenceHeap()).add(precedence, item)


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
