"""The consumers of this process that nobody has closed, and where each was opened."""

from __future__ import annotations

import sys
from weakref import WeakSet

__all__ = ["Unclosed"]

_HERE = frozenset({"lvq_kafka", "threading", "contextlib"})  # whose calls are not a user's

_all: WeakSet[Unclosed] = WeakSet()


class Unclosed:
    """A consumer from its opening on, until it has left the group.

    Args:
        name: of the queue.
        topic_id: of its topic: queues of that name on other clusters are others.
    """

    def __init__(self, name: str, topic_id: str) -> None:
        self._of = (name, topic_id)
        self.place = _place()
        """Where it was opened, as file and line; empty where that is not known."""
        _all.add(self)

    def end(self) -> None:
        """It has left the group."""
        _all.discard(self)

    @property
    def others(self) -> list[Unclosed]:
        """The others of this queue in this process."""
        return [other for other in list(_all) if other is not self and other._of == self._of]

    def __str__(self) -> str:
        return f"one that was opened at {self.place}" if self.place else "one that was opened in a thread of its own"


def _place() -> str:
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _HERE:
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
