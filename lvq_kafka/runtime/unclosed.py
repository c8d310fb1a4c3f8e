"""The unclosed consumers of this process, and the lines of a program that open things."""

from __future__ import annotations

import sys
from weakref import WeakSet

__all__ = ["Unclosed", "opened_at"]

_all: WeakSet[Unclosed] = WeakSet()


class Unclosed:
    """A consumer from its opening until it has left the group.

    Its text is the place where it was opened.

    Args:
        name: the queue's name.
        topic_id: the topic's id. Queues with the same name on other clusters are different queues.
    """

    def __init__(self, name: str, topic_id: str) -> None:
        self._of = (name, topic_id)
        self._place = opened_at()
        _all.add(self)

    def end(self) -> None:
        """Record that it has left the group."""
        _all.discard(self)

    @property
    def others(self) -> list[Unclosed]:
        """The other consumers of this queue in this process."""
        return [other for other in list(_all) if other is not self and other._of == self._of]

    def __str__(self) -> str:
        return self._place


_OURS = frozenset({"lvq_kafka", "lvq_spark", "threading", "contextlib"})  # their frames are not the user's


def opened_at() -> str:
    """Describe the nearest caller outside this library: file and line, if known."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        if frame.f_back is None:
            return "one that was opened in a thread of its own"
        frame = frame.f_back
    return f"one that was opened at {frame.f_code.co_filename}:{frame.f_lineno}"
