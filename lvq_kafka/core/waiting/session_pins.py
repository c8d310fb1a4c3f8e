"""Message groups: what waits in each, whose it is, and what a session may have next (R36)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Generic

from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.ready_queue import R

__all__ = ["Fronts", "SessionPins", "WaitingGroup"]


class Fronts(Generic[R]):
    """Messages that one session may get next, or that any may.

    These are the first messages of groups, and messages without a group.
    """

    __slots__ = ("gated", "heap", "line", "number", "often", "turns")

    def __init__(self) -> None:
        self.number = 0
        """The number of those that are neither gated nor came back often."""
        self.line: deque[Any] = deque()
        """The precedences of some of these, lowest first. Only used for what any session may get."""
        self.heap: list[Any] = []
        """The precedences of the others. Both also have entries of some that are no longer among these."""
        self.often: PrecedenceHeap[Any] = PrecedenceHeap()
        """By rank and turn, the precedences of those that often came back."""
        self.turns: dict[Any, Any] = {}
        """By precedence, their ranks and turns."""
        self.gated: dict[int, PrecedenceHeap[R]] = {}
        """By partition, what waits for room in the commit map."""

    def __bool__(self) -> bool:
        return self.number > 0 or bool(self.turns) or self.is_gated

    def __len__(self) -> int:
        return self.number + len(self.turns) + sum(map(len, self.gated.values()))

    def drop(self, lowest: Any) -> None:
        """Drop the lowest entry of the line and the heap."""
        line = self.line
        if line and line[0] == lowest:
            line.popleft()
        else:
            heappop(self.heap)

    def replace(self, entries: Iterable[Any]) -> None:
        """Replace all entries of the line and the heap."""
        self.line.clear()
        self.heap = sorted(entries)

    @property
    def is_gated(self) -> bool:
        """True if some of them wait for room in the commit map."""
        return any(self.gated.values())


class SessionPins:
    """A session, and the groups that are pinned to it. It counts as one consumer."""

    __slots__ = ("ended", "fronts", "groups", "offered", "often_was_last", "pinned")

    def __init__(self) -> None:
        self.fronts: Fronts[Any] = Fronts()
        self.pinned = 0
        """The number of groups that are pinned to it."""
        self.groups: set[Any] = set()
        """Those of them that stay pinned, as `lvq_kafka.core.waiting.grouped_queue` has them."""
        self.often_was_last = False
        """Whether the last message it got had often come back."""
        self.offered: set[SessionPins] | None = None
        """Where the session is noted when it alone may get something; None while none of its callers waits."""
        self.ended = False
        """True once it gets nothing more. Its pins last until what it holds is settled."""

    def note(self) -> None:
        """Note that something may be there for this session, and for no other."""
        if self.offered is not None:
            self.offered.add(self)


_NONE: Any = ()  # shared, since most groups have no other messages than the first


class WaitingGroup:
    """A group that has waiting messages, or a pin, or both.

    Messages are known by their precedence.
    """

    __slots__ = ("first", "fronts", "listed", "name", "obsolete", "rest", "session", "stays", "unsettled")

    def __init__(self, name: bytes, fronts: Fronts[Item]) -> None:
        self.name = name
        self.first: Any = None
        """The next of its waiting messages, ready or not."""
        self.rest: list[Any] = _NONE
        """A heap of all others, and of some that are no longer here."""
        self.obsolete = 0
        """As many of the rest are no longer here."""
        self.fronts = fronts
        """Where its first message is on offer: among what anyone may have, or among what only its session may have.

        A pinned group may still be in the former, until another session comes across it.
        """
        self.listed = False
        """True if its first message is on offer."""
        self.session: SessionPins | None = None
        """Whose it is; None if it is free."""
        self.unsettled = 0
        """The number of messages in work."""
        self.stays = False
        """True if it is pinned also while nothing is in work.

        That is once the session has received a message of a sticky group: before, they may only have been set aside.
        """

    def add_to_rest(self, precedence: Any) -> None:
        """Add a message that is not the first."""
        if self.rest:
            heappush(self.rest, precedence)
        else:
            self.rest = [precedence]
