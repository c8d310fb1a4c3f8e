"""The rule of a queue's times: from when until when a message counts (R10, R11)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import known_fields
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.earlier_terms import EarlierTerms, in_order, terms_from_wire, terms_to_wire
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError

__all__ = ["ALWAYS", "TimeRule"]


@dataclass(frozen=True, slots=True)
class TimeRule:
    """The times from which and until which messages count (R10, R11)."""

    ttl: Ttl | None = None
    """The lifetimes of messages; None if none expires."""
    max_delay: float | None = None
    """The seconds by which a message may be scheduled ahead; None if none may."""
    keeps_expired: bool = False
    """Whether a consumer stores expired messages elsewhere before they are done."""
    earlier: tuple[EarlierTerms, ...] = ()
    """The terms before the queue was altered, oldest first. A message is judged by those of its append time."""

    @property
    def matters(self) -> bool:
        """True if messages may expire or be scheduled."""
        return self.expires or self.may_schedule

    @property
    def expires(self) -> bool:
        """True if messages may expire, be it only those of earlier terms."""
        return any(ttl is not None and not ttl.never for ttl in (self.ttl, *(terms.ttl for terms in self.earlier)))

    @property
    def may_schedule(self) -> bool:
        """True if messages may be scheduled, likewise."""
        return self.longest_delay is not None

    @property
    def longest_delay(self) -> float | None:
        """The longest delay, in seconds, that any message may have; None if none may."""
        delays = (self.max_delay, *(terms.max_delay for terms in self.earlier))
        return max((delay for delay in delays if delay is not None), default=None)

    def longest_life(self, now: float) -> float:
        """Return the longest life, in seconds, of all messages that may count at a time.

        Infinity if some may live on.
        """
        return max(
            _life(self.ttl), *(_life(terms.ttl) for terms in self.earlier if _lasts(terms, _life(terms.ttl), now)), 0.0
        )

    def delay_that_counts(self, now: float) -> float:
        """Return the longest delay, in seconds, of all that may be scheduled at a time."""
        delays = [terms.max_delay or 0.0 for terms in self.earlier if _lasts(terms, terms.max_delay or 0.0, now)]
        return max(self.max_delay or 0.0, *delays, 0.0)

    @property
    def headers(self) -> frozenset[str]:
        """The headers that carry the times of a message."""
        judges = (self.expiry_times(), self.due_times())
        return frozenset(judge.header for judge in judges if judge is not None)

    @property
    def options(self) -> dict[str, object]:
        """The options that decide, by name."""
        return {"ttl": self.ttl, "max_delay": self.max_delay, "earlier": self.earlier}

    def until(self, moment: int) -> TimeRule:
        """Return the rule as it is for messages appended up to a moment, in ms since the epoch.

        Later alterations of the queue do not concern them.
        """
        later = next((place for place, terms in enumerate(self.earlier) if terms.until > moment), None)
        if later is None:
            return self
        terms = self.earlier[later]
        return replace(self, ttl=terms.ttl, max_delay=terms.max_delay, earlier=self.earlier[:later])

    def to_wire(self) -> dict[str, object]:
        """Return the JSON of ``options``; those that are not used are left out."""
        row = terms_to_wire(self.ttl, self.max_delay)
        return row | {"earlier": [terms.to_wire() for terms in self.earlier]} if self.earlier else row

    @classmethod
    def from_wire(cls, part: object) -> TimeRule:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        fields = known_fields("times", part, ("ttl", "max_delay", "earlier"))
        earlier = fields.get("earlier", [])
        if not isinstance(earlier, list):
            raise ConfigError(f"earlier={quoted(earlier)} is not a list.", options=["earlier"])
        terms = tuple(map(EarlierTerms.from_wire, earlier))
        if not in_order(terms):
            raise ConfigError("earlier has terms that do not follow one another in time.", options=["earlier"])
        ttl, max_delay = terms_from_wire(fields)
        return cls(ttl, max_delay, earlier=terms)

    def expiry_times(self) -> ExpiryTimes | None:
        """Return a new judge of lifetimes; None if nothing expires."""
        return ExpiryTimes.of(self.ttl, self.earlier)

    def due_times(self) -> DueTimes | None:
        """Return a new judge of due times; None if everything counts at once."""
        return DueTimes.of(self.max_delay, self.earlier)


def _life(ttl: Ttl | None) -> float:
    return math.inf if ttl is None or ttl.maximum is None else ttl.maximum


def _lasts(terms: EarlierTerms, seconds: float, now: float) -> bool:
    """Return whether what lasts so long may last for the last messages of these terms."""
    return seconds == math.inf or terms.until / 1000 + seconds > now


ALWAYS = TimeRule()
"""The rule of a queue whose messages count at once, and never expire."""
