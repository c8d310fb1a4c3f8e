"""The options of time that a queue had before it was altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import known_fields
from lvq_kafka.core.timing.delay import check_max_delay, delay_from_wire, delay_to_wire
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError

__all__ = ["EarlierTerms", "in_order", "terms_from_wire", "terms_to_wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTerms:
    """The options of time that hold for the messages appended before a time.

    They hold for these messages forever, whatever the queue's options become. So what has expired does not return, and
    all who read the queue agree.
    """

    until: int
    """The first moment, in ms since the epoch, at which an append time has the next terms."""
    ttl: Ttl | None = None
    """The lifetimes of messages; None if none expires."""
    max_delay: float | None = None
    """The seconds by which a message may be scheduled ahead; None if none may."""

    @property
    def expires(self) -> bool:
        """True if messages may expire."""
        return self.ttl is not None and not self.ttl.never

    def to_wire(self) -> dict[str, object]:
        """Return the JSON."""
        return {"until_ms": self.until, **terms_to_wire(self.ttl, self.max_delay)}

    @classmethod
    def from_wire(cls, part: object) -> EarlierTerms:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        fields = known_fields("earlier", part, ("until_ms", "ttl", "max_delay"))
        if type(until := fields.get("until_ms")) is not int:
            raise ConfigError(f"until_ms={quoted(until)} is not a whole number.", options=["earlier"])
        ttl, max_delay = terms_from_wire(fields)
        return cls(until=until, ttl=ttl, max_delay=max_delay)


def terms_to_wire(ttl: Ttl | None, max_delay: float | None) -> dict[str, object]:
    """Return the JSON of these options; those that are None are left out."""
    row: dict[str, object] = {} if ttl is None else {"ttl": ttl.to_wire()}
    return row if max_delay is None else row | {"max_delay": delay_to_wire(max_delay)}


def terms_from_wire(fields: Mapping[str, object]) -> tuple[Ttl | None, float | None]:
    """Parse the result of `terms_to_wire`.

    Raises:
        ConfigError: it is something else.
    """
    ttl = Ttl.from_wire(fields["ttl"]) if "ttl" in fields else None
    max_delay = delay_from_wire(fields["max_delay"]) if "max_delay" in fields else None
    if max_delay is not None:
        check_max_delay("max_delay", max_delay)
    return ttl, max_delay


def in_order(earlier: Sequence[EarlierTerms]) -> bool:
    """Return whether these terms follow one another in time."""
    return all(one.until < after.until for one, after in pairwise(earlier))
