"""The shapes of values whose type is declared: a dataclass, or a model."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import reduce
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lvq_kafka.tabular.value_shapes import JSON_TEXT, NOTHING, Listed, Plain, Structured, ValueShape, joined, shape_of

__all__ = ["declared_shape", "is_settled"]

_PLAIN: Mapping[Any, ValueShape] = {
    bool: Plain("bool"),
    int: Plain("long"),
    float: Plain("float"),
    str: Plain("text"),
    bytes: Plain("bytes"),
    date: Plain("day"),
    **dict.fromkeys((None, type(None), Any, object, datetime, dict, Mapping), NOTHING),
}

_LISTS = (list, Sequence, set, frozenset, tuple)


def declared_shape(hint: Any, within: tuple[Any, ...] = ()) -> ValueShape:
    """Return the shape of the values of a type.

    Its parts are `NOTHING` where only the values show it: whether a time has an offset, which names a mapping has, or
    which of several types a part is of if one of them is such.

    Args:
        hint: the type.
        within: the types around it. One that holds itself is the text of its JSON there.
    """
    if hint in within:
        return JSON_TEXT
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        parts = [declared_shape(each, within) for each in inner if each not in (None, type(None))]
        return NOTHING if NOTHING in parts else reduce(joined, parts, NOTHING)
    if origin is Literal:
        return reduce(joined, map(shape_of, inner))
    base = origin or hint
    if base in _LISTS:
        items = [declared_shape(each, within) for each in inner if each is not Ellipsis]
        return Listed(reduce(joined, items, NOTHING))
    if base in (dict, Mapping):
        return NOTHING
    if not isinstance(hint, type):
        return NOTHING
    if issubclass(hint, Enum):
        return reduce(joined, map(shape_of, hint), NOTHING)
    names = _field_names(hint)
    if names is None:
        return NOTHING if issubclass(hint, Collection) else Plain("text")
    hints = get_type_hints(hint)
    return Structured({name: declared_shape(hints[name], (*within, hint)) for name in names})


def _field_names(model: type) -> Sequence[str] | None:
    """Return the names of a model's fields; None if it is none."""
    if is_dataclass(model):
        return [field.name for field in fields(model)]
    for attribute in ("__struct_fields__", "model_fields"):
        found = getattr(model, attribute, None)
        if found is not None:
            return list(found)
    return None


def is_settled(shape: ValueShape) -> bool:
    """Return whether no part of a shape depends on values."""
    if isinstance(shape, Listed):
        return is_settled(shape.items)
    if isinstance(shape, Structured):
        return all(map(is_settled, shape.fields.values()))
    return shape != NOTHING
