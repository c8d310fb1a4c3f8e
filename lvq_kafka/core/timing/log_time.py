"""The time by which messages expire."""

from __future__ import annotations

import re

__all__ = ["MOST_AHEAD", "LogTime", "header_ms"]

_DIGITS = re.compile(rb"[0-9]{1,15}")  # 30,000 years; longer ones would leave the range of a time


MOST_AHEAD = 3_600_000
"""The most ms by which a trusted append time may be ahead of this machine's clock.

A topic may be configured to take its times from producers; a broker accepts times this far ahead by default
(``message.timestamp.after.max.ms``).
"""


def header_ms(value: bytes | None) -> int | None:
    """Return the milliseconds, of a time or a duration, in a header's value.

    None if it has none.
    """
    return int(value) if value is not None and _DIGITS.fullmatch(value) else None


_ROUNDING = 0.001  # ms; a whole number of them, as a float in seconds, may be too low by less than this


class LogTime:
    """The time of one reader of a log, in ms since the epoch.

    It never moves back, so that expired messages do not return.

    It is the time of this machine's clock, or the newest append time seen, if that is later: then the clock is slow.
    """

    __slots__ = ("behind", "newest", "now")

    def __init__(self) -> None:
        self.now = 0
        self.behind = 0
        """Milliseconds by which the newest append time was ahead of the clock, when they were last compared.

        The clock is slow by at least this much, or a producer's is fast.
        """
        self.newest = 0
        """The newest append time that was seen, in ms."""

    def saw(self, timestamp: int) -> None:
        """Note the append time of a record that was read."""
        if timestamp > self.newest:
            self.newest = timestamp

    def advance(self, clock: float) -> int:
        """Return the time, given that of this machine's clock, in seconds since the epoch."""
        machine = int(clock * 1000 + _ROUNDING)
        self.behind = max(0, self.newest - machine)
        later = self.newest if machine < self.newest <= machine + MOST_AHEAD else machine
        if later > self.now:
            self.now = later
        return self.now
