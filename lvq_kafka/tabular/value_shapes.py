"""The shapes of values, by which values of several types fit into one column.

`shape_of` returns the shape of one value, and `joined` that of two. So a fold over all values returns the narrowest
shape that holds each of them without rounding any. Values that have no such shape are the text of their JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

__all__ = [
    "JSON_TEXT",
    "MOST_FIELDS",
    "NOTHING",
    "Listed",
    "Plain",
    "Structured",
    "ValueShape",
    "counting",
    "fitting",
    "joined",
    "shape_of",
]

MOST_FIELDS = 1000
"""The most fields of an object, with those of the objects in it.

One with more is a mapping from data to data, and becomes the text of its JSON.
"""

_DEEPEST = 32  # levels; what is nested deeper becomes the text of its JSON
_EXACT = 1 << 53  # a float holds each integer up to this one
_LONG = 1 << 63

PlainKind = Literal[
    "nothing", "bool", "int", "long", "float", "text", "bytes", "moment", "local", "day", "json", "foreign"
]


@dataclass(frozen=True, slots=True)
class Plain:
    """A value without parts.

    ``int`` has at most 53 bits, and ``long`` 64; ``moment`` is a time with an offset from UTC, ``local`` one without.
    ``json`` is anything, as the text of its JSON; ``foreign`` is what no column can hold.
    """

    kind: PlainKind


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, with the shape of its items."""

    items: ValueShape


@dataclass(frozen=True, slots=True)
class Structured:
    """An object, with the shapes of its fields.

    One that lacks a field has a null there.
    """

    fields: Mapping[str, ValueShape]
    leaves: int = field(init=False, compare=False)
    """The number of its parts that have no fields; at least one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", max(sum(map(_leaves, self.fields.values())), 1))


ValueShape = Plain | Listed | Structured

NOTHING: ValueShape = Plain("nothing")
"""The shape of nulls, which fit into any other."""

JSON_TEXT: ValueShape = Plain("json")
"""The shape that all values fit into, but foreign ones."""


def _leaves(shape: ValueShape) -> int:
    while isinstance(shape, Listed):
        shape = shape.items
    return shape.leaves if isinstance(shape, Structured) else 1


def _bounded(shape: Structured) -> ValueShape:
    return shape if shape.leaves <= MOST_FIELDS else JSON_TEXT


_FOREIGN = Plain("foreign")
_INT, _LONGER, _MOMENT, _LOCAL = Plain("int"), Plain("long"), Plain("moment"), Plain("local")

_PLAIN: Mapping[type, ValueShape] = {
    type(None): NOTHING,
    bool: Plain("bool"),
    float: Plain("float"),
    str: Plain("text"),
    bytes: Plain("bytes"),
    date: Plain("day"),
    **dict.fromkeys((Decimal, UUID, time), Plain("text")),  # text holds them exactly
}

_WIDER: Mapping[tuple[PlainKind, PlainKind], ValueShape] = {("int", "long"): _LONGER, ("float", "int"): Plain("float")}


def shape_of(value: object, depth: int = 0) -> ValueShape:
    """Return the shape of a value.

    Raises:
        ValueError: it has a field with a name that no column can have.
    """
    kind = type(value)
    if (known := _PLAIN.get(kind)) is not None:
        return known
    if isinstance(value, Enum):
        return shape_of(value.value, depth)
    if isinstance(value, int):
        return _INT if -_EXACT <= value <= _EXACT else _LONGER if -_LONG <= value < _LONG else JSON_TEXT
    if isinstance(value, datetime):
        return _LOCAL if value.tzinfo is None else _MOMENT
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        if depth >= _DEEPEST:
            return JSON_TEXT
        shape: ValueShape = NOTHING
        for item in value:
            shape = joined(shape, shape_of(item, depth + 1))
        return shape if shape == _FOREIGN else Listed(shape)
    parts = _parts(value)
    if parts is None:
        return next((shape for known, shape in _PLAIN.items() if isinstance(value, known)), _FOREIGN)
    if depth >= _DEEPEST or len(parts) > MOST_FIELDS or not all(isinstance(name, str) for name in parts):
        return JSON_TEXT
    if not all(map(_can_name, parts)):
        raise _unnamable()
    found = {name: shape_of(part, depth + 1) for name, part in parts.items()}
    return _FOREIGN if _FOREIGN in found.values() else _bounded(Structured(found))


def _can_name(name: str) -> bool:
    """Return whether a text can name a field: others end names at a null, in UTF-8."""
    if "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(value: object) -> Mapping[str, Any] | None:
    """Return the fields of an object; None if it has none.

    Mappings, dataclasses, named tuples, and models of msgspec and pydantic have fields.
    """
    if isinstance(value, Mapping):
        return value
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    kind = type(value)
    for attribute in ("__struct_fields__", "model_fields", "_fields"):
        names = getattr(kind, attribute, None)
        if names is not None:
            return {name: getattr(value, name) for name in names}
    return None


def joined(one: ValueShape, other: ValueShape) -> ValueShape:
    """Return the narrowest shape that holds the values of both.

    Where an object gets more than `MOST_FIELDS`, which part becomes text may depend on the order of values.
    """
    if one == other or other == NOTHING:
        return one
    if one == NOTHING:
        return other
    if _FOREIGN in (one, other):
        return _FOREIGN
    if isinstance(one, Structured) and isinstance(other, Structured):
        both = dict(one.fields)
        for name, shape in other.fields.items():
            both[name] = joined(both.get(name, NOTHING), shape)
        return _bounded(Structured(both))
    if isinstance(one, Listed) and isinstance(other, Listed):
        return Listed(joined(one.items, other.items))
    if isinstance(one, Plain) and isinstance(other, Plain):
        low, high = sorted((one.kind, other.kind))
        return _WIDER.get((low, high), JSON_TEXT)
    return JSON_TEXT


def counting(shape: ValueShape) -> Callable[[Any], int]:
    """Return a function that returns how many cells a value of this shape fills.

    A list is one, but each object in it fills a cell for every field that any of them has.
    """
    if isinstance(shape, Listed) and _leaves(shape) > 1:
        item = counting(shape.items)
        return lambda value: sum(map(item, value or ()))
    cells = _leaves(shape)
    if not isinstance(shape, Structured):
        return lambda value: cells
    lists = {name: counting(inner) for name, inner in shape.fields.items() if _varies(inner)}
    if not lists:
        return lambda value: cells

    def count(value: Any) -> int:
        parts = _parts(value) or {}
        return cells + sum(counted(parts.get(name)) for name, counted in lists.items())

    return count


def _varies(shape: ValueShape) -> bool:
    """Return whether the values of a shape fill different numbers of cells."""
    if isinstance(shape, Structured):
        return any(map(_varies, shape.fields.values()))
    return isinstance(shape, Listed) and _leaves(shape) > 1


def fitting(shape: ValueShape) -> Callable[[Any], Any]:
    """Return a function that converts values of this shape to what a column takes.

    The function raises ValueError if a value does not fit.
    """
    if isinstance(shape, Listed):
        item = fitting(shape.items)
        return lambda value: None if value is None else _list(value, item)
    if isinstance(shape, Structured):
        columns = {name: fitting(inner) for name, inner in shape.fields.items()}
        if not columns:
            return _json_text
        return lambda value: None if value is None else _row(value, columns)
    return _FITTING[shape.kind]


def _list(value: Any, item: Callable[[Any], Any]) -> list[Any]:
    if isinstance(value, Mapping):
        raise _unlike(value)
    return list(map(item, value))


def _row(value: object, columns: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    parts = _parts(value)
    if parts is None:
        raise ValueError(f"{type(value).__name__} has no fields")
    if not parts.keys() <= columns.keys():
        raise _unnamable()
    return {name: fit(parts.get(name)) for name, fit in columns.items()}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        raise _unlike(value)
    text = value.isoformat() if isinstance(value, date | time) else str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("it has characters that UTF-8 cannot encode") from None
    return text


def _json_text(value: Any) -> str | None:
    return None if value is None else _text(json.dumps(value, ensure_ascii=False, default=_json_part))


def _json_part(value: object) -> object:
    """Return what stands for a value in JSON."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return list(value)
    parts = _parts(value)
    return _text(value) if parts is None else dict(parts)


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    number = int(value.value if isinstance(value, Enum) else value)
    if not -_LONG <= number < _LONG:
        raise ValueError("it has an integer of more than 64 bits")
    return number


def _number(value: Any) -> float | None:
    return None if value is None else float(value.value if isinstance(value, Enum) else value)


def _only(kind: type | tuple[()]) -> Callable[[Any], Any]:
    """Return a function that returns values of a type as they are."""

    def fit(value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, kind):
            return value
        raise _unlike(value)

    return fit


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _unlike(value)
    return value.astimezone(UTC)  # raises if that is beyond year 1 or 9999


def _unlike(value: object) -> ValueError:
    """Return the error for a value of a type that is not that of its column."""
    if not all(map(_can_name, map(str, _parts(value) or ()))):
        return _unnamable()
    return ValueError(f"{type(value).__name__} is not of the type of the others")


def _unnamable() -> ValueError:
    return ValueError("it has a field with a name that no column can have")


_FITTING: Mapping[PlainKind, Callable[[Any], Any]] = {
    "nothing": _only(()),
    "bool": _only(bool),
    "int": _whole,
    "long": _whole,
    "float": _number,
    "text": _text,
    "bytes": _only(bytes),
    "moment": _moment,
    "local": _only(datetime),
    "day": _only(date),
    "json": _json_text,
    "foreign": lambda value: value,
}
