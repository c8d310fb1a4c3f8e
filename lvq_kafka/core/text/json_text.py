"""Reading JSON written by others, however deeply nested."""

from __future__ import annotations

import json
from math import isinf
from typing import Any, NoReturn

from lvq_kafka.core.text.quoting import quoted

__all__ = ["MOST_NESTED", "check_nesting", "read_json"]

MOST_NESTED = 500
"""The maximum nesting depth.

Python reads and writes JSON by recursion, and how deep that can go depends on the caller. Half of the depth is left to
callers, so that one caller can write a value that another has read.
"""


def read_json(text: str, most_nested: int = MOST_NESTED, *, once: bool = False) -> Any:
    """Parse JSON, without the NaN and infinities that Python accepts.

    If an object has a name several times, the last one counts; with ``once``, that is an error.

    Raises:
        ValueError: the text is not JSON, is nested more than ``most_nested`` deep, or has a number too large for a
            float, or a name twice.
    """
    try:
        value = (_decode_once if once else _decode)(text)
    except RecursionError:
        raise _too_deep(most_nested) from None
    check_nesting(text, value, most_nested)
    return value


def check_nesting(text: str, value: object, most_nested: int = MOST_NESTED) -> None:
    """Check that a value with this JSON text is not nested too deeply.

    Raises:
        ValueError: the value is nested more than ``most_nested`` deep.
    """
    # Text with fewer brackets cannot be too deep. That covers most texts, and counting costs next to nothing.
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


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it names {quoted(name)} twice")
        found[name] = value
    return found


_decode = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number).decode
_decode_once = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number, object_pairs_hook=_each_once).decode
