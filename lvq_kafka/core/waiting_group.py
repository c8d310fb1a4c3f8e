"""A message group in the ready queue: what waits in it, and whose it is."""

from __future__ import annotations

from heapq import heappush
from typing import Any

from lvq_kafka.core.fronts import Fronts, SessionPins
from lvq_kafka.core.pending import Item

__all__ = ["WaitingGroup"]

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
