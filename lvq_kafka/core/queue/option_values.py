"""Conversions of option values, given as text or as values of JSON."""

from __future__ import annotations

from lvq_kafka.errors import ConfigError

__all__ = ["boolean", "disagreement", "number", "pop_one", "whole_number"]


def pop_one(given: dict[str, object], names: tuple[str, ...]) -> tuple[str, object] | None:
    """Remove and return the one of these options that is given; two that agree count as one.

    Raises:
        ConfigError: two are given, and disagree.
    """
    found = [(option, given.pop(option)) for option in names if option in given]
    if len(found) > 1 and str(found[0][1]) != str(found[1][1]):
        raise disagreement(*found[:2])
    return found[0] if found else None


def disagreement(one: tuple[str, object], other: tuple[str, object]) -> ConfigError:
    """Return the error for two options, each with its value, that contradict each other."""
    (first, said), (second, also) = one, other
    return ConfigError(f"`{first}` and `{second}` disagree.", options={first: said, second: also}, hint="Give one.")


def number(option: str, value: object) -> float:
    """Convert the value of an option to a number.

    Raises:
        ConfigError: it is not a number.
    """
    try:
        return float(str(value))
    except ValueError:
        raise ConfigError(f"`{option}` is not a number.", options={option: value}) from None


def whole_number(option: str, value: object) -> int:
    """Convert the value of an option to a whole number.

    Raises:
        ConfigError: it is not a whole number.
    """
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"`{option}` is not a whole number.", options={option: value}) from None


def boolean(option: str, value: object) -> bool:
    """Convert the value of an option to true or false (R3).

    Raises:
        ConfigError: it is neither.
    """
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise ConfigError(f"`{option}` is neither true nor false.", options={option: value})
