"""TTL: the time until which a message counts (R10).

A queue may let messages expire. Nobody writes a delete for an expired message: it could delete a newer value that
arrives meanwhile. Each reader, consumer and Spark task judges by itself, from the append time, the header `TTL_HEADER`
and the `Ttl` that the queue had at that time. These never change, so all of them agree, and an expired message cannot
return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.text.quoting import abridged, quoted
from lvq_kafka.core.text.validation import as_float, known_fields
from lvq_kafka.core.timing.log_time import header_ms
from lvq_kafka.errors import ConfigError

__all__ = [
    "LONGEST_TTL",
    "NEVER",
    "TTL_HEADER",
    "Ttl",
    "check_ttl",
    "check_ttl_header",
    "in_ms",
    "own_ttl",
    "ttl_text",
]

TTL_HEADER = "lvq-ttl"
"""Carries a message's own TTL: milliseconds as decimal digits, at least 1."""

NEVER = (1 << 63) - 1
"""The expiry of a message that never expires: later than any time in a log, in ms."""

LONGEST_TTL = 3_155_760_000.0
"""The longest TTL that a queue or a producer may ask for: a hundred years, in seconds."""

_LIMITS = ("default", "minimum", "maximum")
_LIVES_ON = "Leave it out for a message that lives on; to remove a value now, delete its key."


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Ttl:
    """The lifetimes of a queue's messages, in seconds (R10).

    The first of these that applies decides, and each excludes the next ones: ``never``; the message's own TTL, raised
    to ``minimum`` and lowered to ``maximum``; ``default``; ``maximum``. A message to which none applies lives as long
    as it is the newest of its key. So a minimum gives no TTL to a message without one. ``Ttl()`` lets producers choose.

    Args:
        default: for messages without a TTL of their own.
        minimum: the least TTL of a message that has its own.
        maximum: the greatest TTL of any message, with or without its own.
        never: nothing expires, whatever TTL a message carries.

    Raises:
        ConfigError: a value is not a positive number of seconds, or two contradict each other.
    """

    default: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    never: bool = False

    __repr__ = abridged

    def __post_init__(self) -> None:
        if not isinstance(self.never, bool):
            raise ConfigError("`never` is neither True nor False.", options={"never": self.never})
        given = {name: value for name in _LIMITS if (value := getattr(self, name)) is not None}
        for name, value in given.items():
            check_ttl(name, value)
            object.__setattr__(self, name, in_ms(value) / 1000)  # as it is stored, so that both are equal
        if self.never and given:
            name, value = next(iter(given.items()))
            raise ConfigError(
                f"`never` and `{name}` contradict each other: nothing expires, or something does.",
                options={"never": True, name: value},
                hint="Leave one of them out.",
            )
        for lower, upper in (("minimum", "maximum"), ("minimum", "default"), ("default", "maximum")):
            if lower in given and upper in given and given[lower] > given[upper]:
                raise ConfigError(
                    f"`{lower}` exceeds `{upper}`.",
                    options={lower: given[lower], upper: given[upper]},
                    hint="A minimum is at most the default, and the default at most the maximum.",
                )

    @property
    def described(self) -> str:
        """The lifetimes in words, such as "60 s by default, 3,600 s at most"."""
        if self.never:
            return "nothing expires"
        limits = ((self.default, "by default"), (self.minimum, "at least"), (self.maximum, "at most"))
        return ", ".join(f"{value:,g} s {what}" for value, what in limits if value is not None) or "as messages say"

    def to_wire(self) -> dict[str, object]:
        """Return the part of a definition's JSON: the limits that are set, in ms."""
        if self.never:
            return {"never": True}
        return {f"{name}_ms": in_ms(value) for name in _LIMITS if (value := getattr(self, name)) is not None}

    @classmethod
    def from_wire(cls, part: object) -> Ttl:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        fields = known_fields("ttl", part, [*(f"{name}_ms" for name in _LIMITS), "never"])
        limits: dict[str, Any] = {}
        for name in _LIMITS:
            if (value := fields.get(f"{name}_ms")) is not None:
                if type(value) is not int:
                    raise ConfigError(f"{name}_ms={quoted(value)} is not a whole number.", options=["ttl"])
                limits[name] = as_float(value) / 1000
        return cls(**limits, never=fields.get("never", False))


def check_ttl(
    option: str, value: object, hint: str = "Leave it out for no limit.", *, milliseconds: bool = False
) -> None:
    """Check for the time that a message may live.

    It is in seconds, unless the option counts in ``milliseconds``.

    Raises:
        ConfigError: it is not between a millisecond and `LONGEST_TTL`.
    """
    scale, unit, least = (1000, "milliseconds", 1.0) if milliseconds else (1, "seconds", 0.001)
    if not least <= as_float(value) <= LONGEST_TTL * scale:
        raise ConfigError(
            f"`{option}` is not a number of {unit} from {least:g} to {LONGEST_TTL * scale:,.0f}.",
            options={option: value},
            hint=hint,
        )


def ttl_text(ttl: float) -> bytes:
    """Return a message's own TTL, in seconds, as the value of its header.

    Raises:
        ConfigError: it is not a TTL.
    """
    check_ttl("ttl", ttl, _LIVES_ON)
    return b"%d" % in_ms(ttl)


def check_ttl_header(own: int) -> None:
    """Check for the milliseconds that a message may live, by its header.

    Raises:
        ConfigError: they are not between 1 and the milliseconds of `LONGEST_TTL`.
    """
    if not 1 <= own <= in_ms(LONGEST_TTL):
        raise ConfigError(
            f"The header {TTL_HEADER}={own} is not a number of milliseconds from 1 to {in_ms(LONGEST_TTL):,}.",
            options=[TTL_HEADER],
            hint=_LIVES_ON,
        )


def own_ttl(value: bytes | None) -> int | None:
    """Return a message's own TTL, in ms, from its header; None if the header holds none.

    0 counts as none: JMS writes it for a message that never expires, and a TTL of 0 would be useless.
    """
    return header_ms(value) or None


def in_ms(seconds: float) -> int:
    """Return whole milliseconds."""
    return round(seconds * 1000)
