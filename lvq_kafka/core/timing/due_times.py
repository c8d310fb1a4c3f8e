"""Scheduled messages: they count from a time after they were written (R11).

Nothing holds such a message back. It is in the log at once, and each reader, consumer and Spark task computes by itself
when it counts: from its append time, the header `NOT_BEFORE_HEADER` and the queue's longest delay. None of these
changes, so all agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import as_float
from lvq_kafka.core.timing.log_time import header_ms
from lvq_kafka.errors import ConfigError

__all__ = [
    "LONGEST_DELAY",
    "NOT_BEFORE_HEADER",
    "DueTimes",
    "check_ahead",
    "check_max_delay",
    "delay_from_wire",
    "delay_to_wire",
]

NOT_BEFORE_HEADER = "lvq-not-before"
"""Carries the time from which a message counts: milliseconds since the epoch, in digits."""

LONGEST_DELAY = 31_536_000.0
"""The longest delay that a queue may allow: 365 days, in seconds. Its topic is not compacted for as long."""

_NAME = itemgetter(0)


def check_max_delay(option: str, value: object) -> None:
    """Check for the seconds by which a queue's messages may be scheduled ahead.

    Raises:
        ConfigError: they are not between a millisecond and `LONGEST_DELAY`.
    """
    if not 0.001 <= as_float(value) <= LONGEST_DELAY:
        raise ConfigError(
            f"`{option}` is not a number of seconds from 0.001 to {LONGEST_DELAY:,.0f}.",
            options={option: value},
            hint="Leave it out for a queue whose messages count as soon as they are written.",
        )


def delay_to_wire(max_delay: float) -> dict[str, int]:
    """Return the part of a definition's JSON."""
    return {"ms": round(max_delay * 1000)}


def delay_from_wire(part: object) -> float:
    """Parse the result of `delay_to_wire`.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(part, dict) or part.keys() != {"ms"} or type(part["ms"]) is not int:
        raise ConfigError(f"max_delay={quoted(part)} does not say a whole number of ms.", options=["max_delay"])
    return as_float(part["ms"]) / 1000


def check_ahead(option: str, not_before: float, *, now: float, max_delay: float) -> None:
    """Check that a message is not scheduled further ahead than its queue allows.

    Args:
        option: the option or header that schedules it.
        not_before: the time from which it counts, in seconds since the epoch, as is ``now``.
        max_delay: the longest delay of the queue, in seconds.

    Raises:
        ConfigError: it is.
    """
    if not_before - now > max_delay:
        raise ConfigError(
            f"`{option}` is {not_before - now:,.3f} s ahead, but the queue's `max_delay` is {max_delay:,g} s.",
            options=[option, "max_delay"],
            hint="Send the message later, or declare a queue with a longer `max_delay`.",
        )


class DueTimes:
    """Judges from when the messages of one queue count, for one reader.

    Anyone can write any header. A time that cannot be read counts as none, and is counted. One that is further ahead of
    the append time than the queue allows counts as the longest delay.

    Args:
        max_delay: the longest delay of the queue, in seconds.
    """

    header = NOT_BEFORE_HEADER
    expected = "a number of milliseconds"

    def __init__(self, max_delay: float) -> None:
        self.malformed = 0
        """The number of messages whose time could not be read."""
        self.example: bytes | None = None
        """The first such value."""
        self._longest = round(max_delay * 1000)

    @classmethod
    def of(cls, max_delay: float | None) -> DueTimes | None:
        """Return the judge of a queue with this option; None if its messages count at once."""
        return None if max_delay is None else cls(max_delay)

    def due(self, timestamp: int, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
        """Return the first moment at which a message counts, in ms since the epoch.

        That is its append time, or a later one.
        """
        due = timestamp
        for name, value in headers or ():
            if name == NOT_BEFORE_HEADER:  # the last one counts
                due = self._read(timestamp, value)
        return due

    def counts(self, now: int, timestamp: int, headers: Sequence[tuple[str, bytes | None]] | None) -> bool:
        """Return whether a message counts at this time, in ms."""
        return self.due(timestamp, headers) <= max(now, timestamp)

    def scheduled(
        self, timestamps: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]] | None]
    ) -> list[tuple[int, int]]:
        """Return the rows of scheduled messages, each with the time when it is due.

        A message is scheduled if it counts only from a time after its append.

        Args:
            timestamps: the append times of a batch.
            headers: its headers.
        """
        if not any(headers) or NOT_BEFORE_HEADER not in map(_NAME, chain.from_iterable(filter(None, headers))):
            return []
        found = []
        for row, cells in enumerate(headers):
            for name, _ in cells or ():
                if name == NOT_BEFORE_HEADER:
                    due = self.due(timestamps[row], cells)
                    if due > timestamps[row]:
                        found.append((row, due))
                    break
        return found

    def _read(self, timestamp: int, value: bytes | None) -> int:
        own = header_ms(value)
        if own is None:
            self.malformed += 1
            self.example = self.example or value
            return timestamp
        return max(timestamp, min(own, timestamp + self._longest))
