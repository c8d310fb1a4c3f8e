"""A clock that a test sets."""

from __future__ import annotations

__all__ = ["Clock"]


class Clock:
    """A clock that stands still until a test sets ``now``, in seconds."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
