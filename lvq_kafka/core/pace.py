"""The pace of a listener that wants its events in batches."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Pace"]

_LONGEST = 1e9  # seconds: 30 years, not much less than the longest wait of the operating system


class Pace:
    """At most one batch in each period; the first one at once.

    Args:
        every: the least time between the beginnings of two batches, in seconds.
        clock: returns seconds.
    """

    __slots__ = ("_clock", "_due", "_every")

    def __init__(self, every: float, clock: Callable[[], float]) -> None:
        self._every = min(every, _LONGEST)
        self._clock = clock
        self._due = float("-inf")

    @property
    def left(self) -> float:
        """Seconds until the next batch may begin; 0.0 if it may now."""
        return max(0.0, self._due - self._clock())

    def begin(self) -> bool:
        """Begin a batch if it may; return whether it may."""
        now = self._clock()
        if now < self._due:
            return False
        self._due = now + self._every
        return True
