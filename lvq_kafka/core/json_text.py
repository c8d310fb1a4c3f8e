"""JSON that others have written, however deeply it is nested."""

from __future__ import annotations

import json
from math import isinf
from typing import Any, NoReturn

__all__ = ["MOST_NESTED", "check_nesting", "read_json"]

MOST_NESTED = 500
"""Levels. Python reads and writes JSON by recursion, and how deep that goes depends on who calls. Half of it is left to
callers, so that what one has read another one can write."""


def read_json(text: str, most_nested: int = MOST_NESTED) -> Any:
    """Read JSON. NaN and infinities, which Python takes for it, are none.

    Raises:
        ValueError: it is no JSON, nested more than ``most_nested`` deep, or has a number that no float can hold.
    """
    try:
        value = _decode(text)
    except RecursionError:
        raise _too_deep(most_nested) from None
    check_nesting(text, value, most_nested)
    return value


def check_nesting(text: str, value: object, most_nested: int = MOST_NESTED) -> None:
    """See that a value, which this text is the JSON of, is not nested too deeply.

    Raises:
        ValueError: it is nested more than ``most_nested`` deep.
    """
    # What has fewer brackets cannot be. That is most of what there is, and to count them costs next to nothing.
    brackets = text.count("[") + text.count("{") if len(text) > most_nested else 0
    if brackets > most_nested and _is_deeper(value, most_nested):
        raise _too_deep(most_nested)


def _is_deeper(value: object, most_nested: int) -> bool:
    level: list[Any] = [[value]]
    for _ in range(most_nested + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list | tuple)
        ]
        if not level:
            return False
    return True


def _too_deep(most_nested: int) -> ValueError:
    return ValueError(f"it is nested more than {most_nested} deep")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError("it has too large a number")
    return number


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).decode
