"""Message groups: waiting messages, pins to sessions, and the messages on offer (R36)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Generic

from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.ready_queue import R

__all__ = ["Offers", "SessionPins", "WaitingGroup"]


class Offers(Generic[R]):
    """The messages on offer: to one session, or to any.

    They are the first messages of groups, and messages without a group.
    """

    __slots__ = ("gated", "heap", "line", "number", "often", "turns")

    def __init__(self) -> None:
        self.number = 0
        """The number of messages that are neither gated nor were returned often."""
        self.line: deque[Any] = deque()
        """The precedences of some of these, in ascending order. Unused in offers to one session."""
        self.heap: list[Any] = []
        """A heap with the precedences of the others. Both also have entries of messages no longer on offer."""
        self.often: PrecedenceHeap[Any] = PrecedenceHeap()
        """By rank and turn, the precedences of messages that were returned often."""
        self.turns: dict[Any, Any] = {}
        """By precedence, their ranks and turns."""
        self.gated: dict[int, PrecedenceHeap[R]] = {}
        """By partition, the messages that wait for room in the commit map."""

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
        """True if a message waits for room in the commit map."""
        return any(self.gated.values())


class SessionPins:
    """A session, and the groups that are pinned to it. It counts as one consumer."""

    __slots__ = ("ended", "groups", "noted_in", "offers", "often_was_last", "pinned")

    def __init__(self) -> None:
        self.offers: Offers[Any] = Offers()
        self.pinned = 0
        """The number of groups pinned to it."""
        self.groups: set[Any] = set()
        """The groups that stay pinned to it; see `WaitingGroup.stays`."""
        self.often_was_last = False
        """Whether the last message it received had been returned often."""
        self.noted_in: set[SessionPins] | None = None
        """The set to add the session to when it alone may get a message; None while none of its callers waits."""
        self.ended = False
        """True once it gets no more messages. Its pins last until it has settled the messages that it holds."""

    def note(self) -> None:
        """Note that a message may be on offer to this session, and to no other."""
        if self.noted_in is not None:
            self.noted_in.add(self)


_NONE: Any = ()  # shared, since most groups have no other messages than the first


class WaitingGroup:
    """A group that has waiting messages, or a pin, or both.

    Messages are identified by their precedence.
    """

    __slots__ = ("first", "listed", "name", "obsolete", "offers", "rest", "session", "stays", "unsettled")

    def __init__(self, name: bytes, offers: Offers[Item]) -> None:
        self.name = name
        self.first: Any = None
        """The next of its waiting messages, ready or not."""
        self.rest: list[Any] = _NONE
        """A heap of all others, and of some that were removed."""
        self.obsolete = 0
        """The number of entries of `rest` whose messages were removed."""
        self.offers = offers
        """The offers that its first message belongs to: those to any session, or those to its own.

        The message of a pinned group may stay on offer to any session, until another session finds it there.
        """
        self.listed = False
        """True if its first message is on offer."""
        self.session: SessionPins | None = None
        """The session that it is pinned to; None if it is free."""
        self.unsettled = 0
        """The number of messages in work."""
        self.stays = False
        """True if it stays pinned while none of its messages is in work.

        This begins when the session receives a message of a sticky group; setting one aside for it is not enough.
        """

    def add_to_rest(self, precedence: Any) -> None:
        """Add a message that is not the first."""
        if self.rest:
            heappush(self.rest, precedence)
        else:
            self.rest = [precedence]
