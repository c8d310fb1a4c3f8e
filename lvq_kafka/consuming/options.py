"""What the options of consuming may be."""

from __future__ import annotations

import math
from numbers import Integral, Real

from lvq_kafka.errors import ConfigError

__all__ = ["as_float", "at_least_one", "delays", "durations", "seconds"]


def at_least_one(**options: object) -> None:
    """Whole numbers from 1 on, or None.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if value is not None and not (isinstance(value, Integral) and as_float(value) >= 1):
            raise ConfigError(f"{option}={value!r} is out of range.", options=[option], hint="At least 1, as an int.")


def seconds(**options: object) -> None:
    """Seconds from 0 to 60.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) <= 60:
            raise ConfigError(f"{option}={value!r} is out of range.", options=[option], hint="0 to 60 seconds.")


def delays(**options: object) -> None:
    """Seconds from 0 on, after which something happens.

    Raises:
        ConfigError: one is something else, or without an end.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) < math.inf:
            raise ConfigError(f"{option}={value!r} is not a number of seconds from 0 on.", options=[option])


def durations(hint: str, **options: object) -> None:
    """Seconds that something lasts; without an end where it is infinity.

    Args:
        hint: what to do instead of making it last no time.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not as_float(value) > 0:
            raise ConfigError(f"{option}={value!r} is not a positive number of seconds.", options=[option], hint=hint)


def as_float(value: object) -> float:
    """A number as a float, however large; NaN for what is none, so that no comparison holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf
