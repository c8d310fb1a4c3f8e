"""Checks of the arguments of public calls, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    CO_ITERABLE_COROUTINE,
    CO_VARARGS,
    iscoroutinefunction,
    signature,
)
from numbers import Integral, Real
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from lvq_kafka.core.text.base_errors import ConfigError
from lvq_kafka.core.text.quoting import listed, quoted

__all__ = [
    "HIGHEST",
    "as_float",
    "at_least_one",
    "choice",
    "delays",
    "durations",
    "function",
    "instance",
    "known_fields",
    "limit",
    "mapping",
    "moment",
    "seconds",
    "text",
    "unfinished",
    "waiting",
]

HIGHEST = 2**63 - 1
"""The largest whole number of an option without a limit of its own: 64 bits, signed."""

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


def at_least_one(highest: int = HIGHEST, /, **options: object) -> None:
    """Check for whole numbers from 1 on.

    Args:
        highest: the largest number that makes sense; by default, that of 64 bits.
        options: the numbers, by option.

    Raises:
        ConfigError: a value is something else.
    """
    for option, value in options.items():
        if not (isinstance(value, Integral) and as_float(value) >= 1):
            raise _refused(option, value, "a positive integer", "Give an int of at least 1.")
        if int(value) > highest:
            raise _refused(option, value, f"a positive integer of at most {highest:,}")


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


def function(option: str, value: object, *arguments: str, hint: str, classes: bool = True) -> None:
    """Check for a plain function, or another callable, that takes these arguments.

    A callable whose signature cannot be read, such as some builtins, passes.

    Args:
        arguments: the names of the arguments that it is called with.
        hint: what to do instead of giving an async function.
        classes: whether a class will do, which returns an object.

    Raises:
        ConfigError: the value cannot be called; or only makes a coroutine, a generator, or an object that nobody needs;
            or does not take the arguments.
    """
    if not callable(value):
        raise _refused(option, value, "callable", "Pass a function.")
    if isinstance(value, type) and not classes:
        raise ConfigError(
            f"{option}={quoted(value)} is a class: a call would make an object, which is dropped.",
            options=[option],
            hint="Pass a function, or a method of an object.",
        )
    called, bound, named = _unwrapped(value)
    flags = called.__code__.co_flags if isinstance(called, FunctionType) else 0
    if flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE) or iscoroutinefunction(value):
        what = "an async function: a call would make a coroutine, which is never awaited"
        raise ConfigError(f"{option}={quoted(value)} is {what}.", options=[option], hint=hint)
    if flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
        what = "a generator function: a call would make a generator, which never runs"
        raise ConfigError(f"{option}={quoted(value)} is {what}.", options=[option], hint="Return, do not yield.")
    if not _takes(value, called, bound + len(arguments), len(arguments), named):
        number = ("no argument", "one argument", "two arguments", "three arguments")[len(arguments)]
        given = f" ({', '.join(arguments)})" if arguments else ""
        raise ConfigError(
            f"{option}={quoted(value)} cannot be called with {number}{given}.",
            options=[option],
            hint=f"For example def {option}({', '.join(arguments)}): ...",
        )


def unfinished(outcome: object) -> str:
    """Describe a coroutine or a generator that a function has returned in place of a result.

    Returns an empty text for anything else. A coroutine is closed, so Python does not warn of it later.
    """
    if not isinstance(outcome, CoroutineType | GeneratorType | AsyncGeneratorType):
        return ""
    if isinstance(outcome, CoroutineType):
        outcome.close()
        return "a coroutine, which would never be awaited"
    return "a generator, which would never run"


def _unwrapped(value: object) -> tuple[object, int, bool]:
    """Return the function that a callable calls in the end.

    Also return the number of arguments that are bound to it, and whether some are named.
    """
    bound, named = 0, False
    while not isinstance(value, FunctionType | type):
        if isinstance(value, partial):
            bound, named, value = bound + len(value.args), named or bool(value.keywords), value.func
        elif isinstance(value, MethodType):
            bound, value = bound + 1, value.__func__
        elif isinstance(called := getattr(type(value), "__call__", None), FunctionType):  # noqa: B004
            bound, value = bound + 1, called
        else:
            break
    return value, bound, named


def _takes(value: Callable[..., object], called: object, number: int, own: int, named: bool) -> bool:
    """Return whether a callable takes ``own`` arguments: ``number`` with the bound ones."""
    if isinstance(called, FunctionType) and not named:  # in a tenth of the time that `signature` needs
        code, defaults = called.__code__, len(called.__defaults__ or ())
        most = math.inf if code.co_flags & CO_VARARGS else code.co_argcount
        needs_names = code.co_kwonlyargcount > len(called.__kwdefaults__ or ())
        return code.co_argcount - defaults <= number <= most and not needs_names
    try:
        parameters = signature(value)
    except (TypeError, ValueError):
        return True
    try:
        parameters.bind(*[None] * own)
    except TypeError:
        return False
    return True


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


def _refused(option: str, value: object, required: str, hint: str = "") -> ConfigError:
    what = option if " " in option else f"`{option}`"  # else it is a header
    return ConfigError(f"{what} must be {required}, not {quoted(value)}.", options=[option], hint=hint)
