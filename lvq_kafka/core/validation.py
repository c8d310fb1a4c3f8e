"""Checks of the arguments of public calls, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from lvq_kafka.core.keys import Key, encode_key
from lvq_kafka.core.quoting import listed, quoted
from lvq_kafka.errors import ConfigError, UnencodableKey

__all__ = [
    "as_float",
    "at_least_one",
    "callables",
    "choice",
    "chosen_keys",
    "delays",
    "durations",
    "instance",
    "known_fields",
    "limit",
    "mapping",
    "moment",
    "seconds",
    "text",
    "waiting",
]

_FOREVER = 1e9  # seconds: 30 years, not much less than the longest wait of the operating system
_LAST_MOMENT = 253_402_300_800.0  # the end of the year 9999 in seconds since the epoch, the latest time of a log


# -------------------------------------------------------------------- seconds


def waiting(timeout: object, option: str = "timeout") -> float | None:
    """Check a timeout in seconds; return None for no limit, which infinity means as well.

    A negative timeout, left over from a caller's computation, becomes 0.

    Raises:
        ConfigError: the value is not a number.
    """
    if timeout is None or (type(timeout) is float and 0.0 <= timeout < _FOREVER):  # the usual case, in a hot path
        return timeout
    value = as_float(timeout)
    if math.isnan(value):
        raise _refused(option, timeout, "a number of seconds", "None waits for as long as it takes.")
    return max(0.0, value) if value < _FOREVER else None


def limit(timeout: object, option: str = "timeout") -> float:
    """Check a timeout like `waiting`, but return infinity for no limit, to compute a deadline."""
    value = waiting(timeout, option)
    return math.inf if value is None else value


def seconds(**options: object) -> None:
    """Check for seconds from 0 to 60.

    Raises:
        ConfigError: a value is something else.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) <= 60:
            raise _refused(option, value, "a number of seconds from 0 to 60")


def delays(**options: object) -> None:
    """Check for finite seconds from 0 on.

    Raises:
        ConfigError: a value is something else.
    """
    for option, value in options.items():
        if not 0 <= as_float(value) < math.inf:
            raise _refused(option, value, "a non-negative number of seconds", "Give a number, zero or more.")


def durations(hint: str, **options: object) -> None:
    """Check for positive durations in seconds; infinity means no end.

    Args:
        hint: what to do instead of giving zero.

    Raises:
        ConfigError: a value is something else.
    """
    for option, value in options.items():
        if not as_float(value) > 0:
            raise _refused(option, value, "a positive number of seconds", hint)


def moment(option: str, value: object, hint: str) -> float:
    """Check for a point in time, in seconds since the epoch.

    Raises:
        ConfigError: the value is something else.
    """
    if not 0 <= as_float(value) < _LAST_MOMENT:
        raise _refused(option, value, "a point in time", hint)
    return as_float(value)


def as_float(value: object) -> float:
    """Convert a number of any size to a float, and anything else to NaN.

    No comparison with NaN holds.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


# -------------------------------------------------------------------- numbers, text and objects


def at_least_one(**options: object) -> None:
    """Check for whole numbers from 1 on.

    Raises:
        ConfigError: a value is something else.
    """
    for option, value in options.items():
        if not (isinstance(value, Integral) and as_float(value) >= 1):
            raise _refused(option, value, "a positive integer", "Give an int of at least 1.")


def text(option: str, value: object) -> str:
    """Check for text that is not blank and can be encoded.

    Raises:
        ConfigError: the value is something else.
    """
    try:
        if isinstance(value, str) and value.strip() and value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise _refused(option, value, "text that is not blank and that UTF-8 can encode")


def choice(option: str, value: object, choices: Iterable[str]) -> None:
    """Check for one of these words.

    Raises:
        ConfigError: the value is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        raise _refused(option, value, f"one of {', '.join(choices)}")


def instance(option: str, value: object, kind: type[Any], hint: str) -> None:
    """Check for an object of this class.

    Raises:
        ConfigError: the value is of another class.
    """
    if not isinstance(value, kind):
        raise _refused(option, value, f"a {kind.__name__}", hint)


def callables(**options: object) -> None:
    """Check for callables.

    Raises:
        ConfigError: a value is not callable.
    """
    for option, value in options.items():
        if not callable(value):
            raise _refused(option, value, "callable", "Pass a function.")


def mapping(option: str, value: object, hint: str) -> Mapping[Any, Any]:
    """Check for a mapping; None is an empty one.

    Raises:
        ConfigError: the value is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refused(option, value, "a mapping", hint)
    return value


def known_fields(option: str, part: object, known: Collection[str]) -> dict[str, Any]:
    """Check for an object of JSON that has no other fields than these.

    Raises:
        ConfigError: the part is something else.
    """
    if not isinstance(part, dict):
        raise ConfigError(f"{option} has {quoted(part)}.", options=[option])
    if unknown := sorted(part.keys() - set(known)):
        raise ConfigError(f"{option} has unknown fields {listed(unknown)}.", options=[option])
    return part


def chosen_keys(keys: Iterable[Key] | None) -> frozenset[bytes] | None:
    """Encode keys for the wire; None stands for all keys.

    Raises:
        ConfigError: the value is a single key, or no iterable.
        UnencodableKey: one of them cannot be a key. None cannot, since it would name all messages without one.
    """
    if keys is None:
        return None
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise ConfigError(f"keys={quoted(keys)} is one key, not several.", options=["keys"], hint="Put it in a list.")
    named = list(keys)
    if None in named:
        raise UnencodableKey(
            "keys has None, but a message without a key cannot be chosen by its key.",
            hint="Leave keys out to choose all messages.",
        )
    return frozenset(map(encode_key, named))


def _refused(option: str, value: object, required: str, hint: str = "") -> ConfigError:
    return ConfigError(f"{option} must be {required}, not {quoted(value)}.", options=[option], hint=hint)
