"""The longest delay of a queue: by how much its messages may be scheduled ahead (R11)."""

from __future__ import annotations

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import as_float
from lvq_kafka.errors import ConfigError

__all__ = ["LONGEST_DELAY", "check_max_delay", "delay_from_wire", "delay_to_wire"]

LONGEST_DELAY = 31_536_000.0
"""The longest delay that a queue may allow: 365 days, in seconds. Its topic is not compacted for as long."""


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
