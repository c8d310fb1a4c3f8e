"""What the arguments of public calls may be, checked before anything is done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from lvq_kafka.core.keys import Key, encode_key
from lvq_kafka.core.quoting import quoted
from lvq_kafka.errors import ConfigError

__all__ = [
    "as_float",
    "at_least_one",
    "callables",
    "choice",
    "chosen_keys",
    "delays",
    "durations",
    "instance",
    "limit",
    "mapping",
    "moment",
    "seconds",
    "text",
    "waiting",
]

_FOREVER = 1e9  # seconds: 30 years. The longest that the operating system waits is not much more
_LAST_MOMENT = 253_402_300_800.0  # the end of the year 9999, in seconds since the epoch: what a log's time may be


# -------------------------------------------------------------------- seconds


def waiting(timeout: object, option: str = "timeout") -> float | None:
    """For how many seconds somebody waits; None, as infinity, is for as long as it takes.

    A time that is over already, since a caller has computed what is left of it, is 0.

    Raises:
        ConfigError: it is no number.
    """
    if timeout is None or (type(timeout) is float and 0.0 <= timeout < _FOREVER):  # as most are: some calls are many
        return timeout
    value = as_float(timeout)
    if math.isnan(value):
        raise _refused(option, timeout, "is no number of seconds", "Give a number, or None for as long as it takes.")
    return max(0.0, value) if value < _FOREVER else None


def limit(timeout: object, option: str = "timeout") -> float:
    """As `waiting`, with infinity for as long as it takes: what a deadline is made of."""
    value = waiting(timeout, option)
    return math.inf if value is None else value


def seconds(**options: object) -> None:
    """Seconds from 0 to 60.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) <= 60:
            raise _refused(option, value, "is out of range", "0 to 60 seconds.")


def delays(**options: object) -> None:
    """Seconds from 0 on, with an end.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) < math.inf:
            raise _refused(option, value, "is no number of seconds", "Give zero or more, as a number.")


def durations(hint: str, **options: object) -> None:
    """Seconds that something lasts; without an end where it is infinity.

    Args:
        hint: what to do instead of making it last no time.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not as_float(value) > 0:
            raise _refused(option, value, "is not a positive number of seconds", hint)


def moment(option: str, value: object, hint: str) -> float:
    """A moment, in seconds since the epoch.

    Raises:
        ConfigError: it is none.
    """
    if not 0 <= as_float(value) < _LAST_MOMENT:
        raise _refused(option, value, "is no moment", hint)
    return as_float(value)


def as_float(value: object) -> float:
    """A number as a float, however large; NaN for what is none, so that no comparison holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


# -------------------------------------------------------------------- numbers, text and objects


def at_least_one(**options: object) -> None:
    """Whole numbers from 1 on.

    Raises:
        ConfigError: one is something else.
    """
    for option, value in options.items():
        if not (isinstance(value, Integral) and as_float(value) >= 1):
            raise _refused(option, value, "is out of range", "At least 1, as an int.")


def text(option: str, value: object) -> str:
    """A text that is not empty and can be written.

    Raises:
        ConfigError: it is none.
    """
    try:
        if isinstance(value, str) and value.strip() and value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise _refused(option, value, "is no name", "Give text that UTF-8 can write.")


def choice(option: str, value: object, choices: Iterable[str]) -> None:
    """One of these words.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(value, str) or value not in choices:
        raise _refused(option, value, f"is none of {', '.join(choices)}")


def instance(option: str, value: object, kind: type[Any], hint: str) -> None:
    """An object of that kind.

    Raises:
        ConfigError: it is of another.
    """
    if not isinstance(value, kind):
        raise _refused(option, value, f"is no {kind.__name__}", hint)


def callables(**options: object) -> None:
    """What can be called.

    Raises:
        ConfigError: one cannot.
    """
    for option, value in options.items():
        if not callable(value):
            raise _refused(option, value, "cannot be called", "Pass a function.")


def mapping(option: str, value: object, hint: str) -> Mapping[Any, Any]:
    """A mapping; None is an empty one.

    Raises:
        ConfigError: it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refused(option, value, "is no mapping", hint)
    return value


def chosen_keys(keys: Iterable[Key] | None) -> frozenset[bytes] | None:
    """Keys as they are on the wire; None for all there are.

    Raises:
        ConfigError: it is one key and not several, or none.
    """
    if keys is None:
        return None
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise _refused("keys", keys, "is one key, not several", "Put it into a list.")
    return frozenset(map(encode_key, keys))


def _refused(option: str, value: object, what: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{option}={quoted(value)} {what}.", options=[option], hint=hint)
