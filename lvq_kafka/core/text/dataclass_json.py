"""Dataclasses as JSON, with the types of their fields checked when they are read.

`reader_of` makes a function that turns parsed JSON into a dataclass. A field that the JSON lacks has its default, or is
an error; a field that the dataclass lacks is passed over, so that writers may add one first. `json_parts` is the way
back. Times are texts in ISO 8601, and decimals, UUIDs and bytes (base64) are texts, too.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from lvq_kafka.core.text.quoting import quoted

__all__ = ["json_parts", "reader_of"]

Reads = Callable[[Any], Any]


def reader_of(kind: type) -> Reads:
    """Return a function that reads a dataclass from parsed JSON.

    The function raises ValueError if the JSON is not of that type, and says which field.

    Raises:
        TypeError: a field has a type that JSON has no form for.
    """
    return _of_dataclass(kind, {})


def _reader(hint: Any, known: dict[type, Reads]) -> Reads:
    if hint is Any or hint is object:
        return lambda part: part
    if hint is None:
        hint = type(None)
    if (plain := _PLAIN.get(hint)) is not None:
        return plain
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_union(hint, [_reader(each, known) for each in inner])
    if origin is Literal:
        return _of_choice(hint, {(type(each), each): each for each in inner})
    if origin is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return _of_tuple([_reader(each, known) for each in inner])
    base = origin or hint
    if base in _LISTS:
        item = _reader(inner[0] if inner else Any, known)
        return _of_list(_LISTS[base], item)
    if base in (dict, Mapping):
        if inner and inner[0] is not str:
            raise TypeError(f"{hint} has keys that are not text")
        return _of_dict(_reader(inner[1] if inner else Any, known))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _of_choice(hint, {(type(each.value), each.value): each for each in hint})
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return known[hint] if hint in known else _of_dataclass(hint, known)
    raise TypeError(f"{hint} has no form in JSON")


def _of_dataclass(kind: type, known: dict[type, Reads]) -> Reads:
    read_fields: dict[str, Reads] = {}
    required: list[str] = []

    def read(part: Any) -> Any:
        if not isinstance(part, dict):
            raise ValueError(f"{_named(part)} is no object of {kind.__name__}")
        for name in required:
            if name not in part:
                raise ValueError(f"{kind.__name__} lacks {name}")
        given = {}
        for name, read_field in read_fields.items():
            if name in part:
                try:
                    given[name] = read_field(part[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return kind(**given)

    known[kind] = read  # it may hold itself
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        try:
            read_fields[field.name] = _reader(hints[field.name], known)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{field.name}: {error}") from None
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
    return read


def _named(part: object) -> str:
    return "null" if part is None else quoted(part)


def _exactly(kind: type, name: str) -> Reads:
    def read(part: Any) -> Any:
        if type(part) is not kind:
            raise ValueError(f"{_named(part)} is no {name}")
        return part

    return read


def _number(part: Any) -> float:
    if type(part) not in (int, float):
        raise ValueError(f"{_named(part)} is not a number")
    try:
        return float(part)
    except OverflowError:
        raise ValueError("it is too large a number") from None


def _decimal(part: Any) -> Decimal:
    if type(part) in (int, float, str):
        try:
            return Decimal(str(part))
        except (InvalidOperation, ValueError):
            pass
    raise ValueError(f"{_named(part)} is no decimal number")


def _from_text(name: str, parse: Callable[[str], Any]) -> Reads:
    def read(part: Any) -> Any:
        if isinstance(part, str):
            try:
                return parse(part)
            except ValueError:
                pass
        raise ValueError(f"{_named(part)} is no {name}")

    return read


def _of_union(hint: Any, readers: Sequence[Reads]) -> Reads:
    def read(part: Any) -> Any:
        for read_one in readers:
            try:
                return read_one(part)
            except ValueError as error:
                failure = error
        raise ValueError(f"{_named(part)} is none of {hint}") from failure

    return read


def _of_choice(hint: Any, choices: Mapping[tuple[type, Any], Any]) -> Reads:
    def read(part: Any) -> Any:
        try:
            return choices[type(part), part]
        except (KeyError, TypeError):
            raise ValueError(f"{_named(part)} is none of {[value for _, value in choices]}") from None

    return read


def _of_list(make: Callable[[list[Any]], Any], item: Reads) -> Reads:
    def read(part: Any) -> Any:
        if not isinstance(part, list):
            raise ValueError(f"{_named(part)} is not a list")
        return make([item(each) for each in part])

    return read


def _of_tuple(items: Sequence[Reads]) -> Reads:
    def read(part: Any) -> Any:
        if not isinstance(part, list) or len(part) != len(items):
            raise ValueError(f"{_named(part)} is not a list of {len(items)}")
        return tuple(item(each) for item, each in zip(items, part))

    return read


def _of_dict(value: Reads) -> Reads:
    def read(part: Any) -> Any:
        if not isinstance(part, dict):
            raise ValueError(f"{_named(part)} is no object")
        return {name: value(each) for name, each in part.items()}

    return read


_PLAIN: Mapping[Any, Reads] = {
    type(None): _exactly(type(None), "null"),
    bool: _exactly(bool, "boolean"),
    int: _exactly(int, "whole number"),
    float: _number,
    str: _exactly(str, "text"),
    Decimal: _decimal,
    bytes: _from_text("base64", lambda text: base64.b64decode(text, validate=True)),
    datetime: _from_text("time in ISO 8601", datetime.fromisoformat),
    date: _from_text("date in ISO 8601", date.fromisoformat),
    time: _from_text("time of day in ISO 8601", time.fromisoformat),
    UUID: _from_text("UUID", UUID),
}

_LISTS: Mapping[Any, Callable[[list[Any]], Any]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


def json_parts(value: Any) -> Any:
    """Return a dataclass, or a part of one, as what a JSON encoder takes."""
    if isinstance(value, Enum):
        return json_parts(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: json_parts(getattr(value, field.name)) for field in fields if field.init}
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, list | tuple | set | frozenset):
        return [json_parts(each) for each in value]
    if isinstance(value, dict):
        return {name: json_parts(each) for name, each in value.items()}
    return value
