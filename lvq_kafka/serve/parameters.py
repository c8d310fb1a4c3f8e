"""The parameters of a query: each known, given once unless it is a list, and of its kind."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.serve.http_requests import decoded
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["FLAG", "KEY", "TEXT", "Parameter", "ParameterKind", "parse_query", "seconds", "whole_number"]

_MOST = 1000  # parameters: keys are repeated
_NUMBER = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")  # as JSON writes it


class ParameterKind(NamedTuple):
    """The values that a parameter can have."""

    parse: Callable[[bytes], Any]
    """Returns the value, or raises a ValueError that says what it must be."""
    schema: Mapping[str, Any]
    """The same for the OpenAPI document, as a JSON Schema."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query."""

    kind: ParameterKind
    meaning: str
    """A sentence or two for the OpenAPI document."""
    several: bool = False
    """Whether it may be repeated. Its value is then a list."""


def parse_query(query: bytes, known: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of the parameters that a query has.

    Raises:
        HttpRefusal: one is unknown, repeated or not of its kind.
    """
    found: dict[str, Any] = {}
    parts = [part for part in query.split(b"&") if part]
    if len(parts) > _MOST:
        raise HttpRefusal(400, f"The query has more than {_MOST:,} parameters.")
    for part in parts:
        raw_name, _, raw_value = part.partition(b"=")
        name = decoded(raw_name, plus=True, what="The query").decode("utf-8", "replace")
        parameter = known.get(name)
        if parameter is None:
            raise HttpRefusal(400, f"There is no parameter {quoted(name)} here.", hint=_meant(name, known))
        try:
            value = parameter.kind.parse(decoded(raw_value, plus=True, what=f"The parameter {name}"))
        except ValueError as error:
            raise HttpRefusal(400, f"The parameter {name} must be {error}.") from None
        if parameter.several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise HttpRefusal(400, f"The parameter {name} is given twice.", hint="Give it once.")
        else:
            found[name] = value
    return found


def _meant(name: str, known: Mapping[str, Parameter]) -> str:
    near = nearest(name, list(known), alike=0.6)
    if near:
        return f"Did you mean {near[0]}?"
    return f"There are {', '.join(known)}." if known else "Leave it out."


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("text in UTF-8") from None


def _flag(data: bytes) -> bool:
    if data not in (b"0", b"1"):
        raise ValueError("0 or 1")
    return data == b"1"


KEY = ParameterKind(lambda data: data, {"type": "string"})
"""A key, which any bytes can be."""

TEXT = ParameterKind(_text, {"type": "string"})
"""Text."""

FLAG = ParameterKind(_flag, {"type": "integer", "enum": [0, 1]})
"""A truth value."""


def whole_number(most: int) -> ParameterKind:
    """Return the kind of numbers from 1 to ``most``."""

    def parse(data: bytes) -> int:
        if not re.fullmatch(rb"[0-9]{1,12}", data) or not 1 <= int(data) <= most:
            raise ValueError(f"a whole number from 1 to {most:,}")
        return int(data)

    return ParameterKind(parse, {"type": "integer", "minimum": 1, "maximum": most})


def seconds(most: float, *, least: float = 0.0) -> ParameterKind:
    """Return the kind of seconds from ``least`` to ``most``."""

    def parse(data: bytes) -> float:
        written = data.decode("latin-1")
        number = float(written) if _NUMBER.fullmatch(written) else math.nan
        if not least <= number <= most:
            raise ValueError(f"a number of seconds from {least:g} to {most:g}")
        return number

    return ParameterKind(parse, {"type": "number", "minimum": least, "maximum": most})
