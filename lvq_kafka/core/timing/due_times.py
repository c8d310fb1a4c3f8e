"""Scheduled messages: they count from a time after they were written (R11).

Nothing holds such a message back. It is in the log at once, and each reader, consumer and Spark task computes by itself
when it counts: from its append time, the header `NOT_BEFORE_HEADER` and the longest delay that the queue allowed at
that time. None of these changes, so all agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.log_time import header_ms
from lvq_kafka.errors import ConfigError

__all__ = [
    "NOT_BEFORE_HEADER",
    "DueTimes",
    "check_ahead",
]

NOT_BEFORE_HEADER = "lvq-not-before"
"""Carries the time from which a message counts: milliseconds since the epoch, in digits."""

_NAME = itemgetter(0)


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
        max_delay: the longest delay of the queue, in seconds; None if messages count at once.
        earlier: what the queue allowed before, oldest first.
    """

    header = NOT_BEFORE_HEADER
    expected = "a number of milliseconds"

    def __init__(self, max_delay: float | None, earlier: Sequence[EarlierTerms] = ()) -> None:
        self.malformed = 0
        """The number of messages whose time could not be read."""
        self.example: bytes | None = None
        """The first such value."""
        self._longest = _ms(max_delay)
        self._untils = [terms.until for terms in earlier]
        self._before = [_ms(terms.max_delay) for terms in earlier]

    @classmethod
    def of(cls, max_delay: float | None, earlier: Sequence[EarlierTerms] = ()) -> DueTimes | None:
        """Return the judge of a queue; None if all of its messages count at once."""
        delays = [max_delay, *(terms.max_delay for terms in earlier)]
        return None if delays.count(None) == len(delays) else cls(max_delay, earlier)

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
        longest = self._longest
        if self._untils and timestamp < self._untils[-1]:
            longest = self._before[bisect_right(self._untils, timestamp)]
        if not longest:  # the header has no meaning for this message
            return timestamp
        own = header_ms(value)
        if own is None:
            self.malformed += 1
            self.example = self.example or value
            return timestamp
        return max(timestamp, min(own, timestamp + longest))


def _ms(delay: float | None) -> int:
    return 0 if delay is None else round(delay * 1000)
