"""Avro schemas with the types of other schemas inlined, and their size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lvq_kafka.core.text.json_text import read_json

__all__ = ["count_fields", "whole"]

_NAMED = ("record", "error", "enum", "fixed")


def whole(schema: str, referred: Iterable[str]) -> str:
    """Inline the types of other schemas, each where it is first used.

    Args:
        schema: the schema's text, as JSON.
        referred: the texts of the schemas that define these types, in any order.

    Raises:
        ValueError: a text is not JSON.
    """
    definitions: dict[str, Any] = {}
    for text in referred:
        found = read_json(text)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict) and one.get("type") in _NAMED:
                definitions[_name(one, "")] = one
    return json.dumps(_defined(read_json(schema), "", definitions))


def _defined(schema: Any, space: str, definitions: dict[str, Any]) -> Any:
    """Replace names with their definitions.

    Each definition is removed once it is used, since a schema defines each name only once.

    Args:
        space: the enclosing namespace.
    """
    if isinstance(schema, str):
        name = schema if "." in schema or not space else f"{space}.{schema}"
        if name not in definitions:
            return schema
        definition = definitions.pop(name)
        spelled = {**definition, "name": name.rpartition(".")[2], "namespace": name.rpartition(".")[0]}
        return _defined(spelled, space, definitions)
    if isinstance(schema, list):
        return [_defined(one, space, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        name = _name(schema, space)
        space = name.rpartition(".")[0]
        definitions.pop(name, None)
        fields = [{**field, "type": _defined(field["type"], space, definitions)} for field in schema.get("fields", ())]
        return {**schema, "fields": fields} if fields else schema
    return {
        part: _defined(inner, space, definitions) if part in ("type", "items", "values") else inner
        for part, inner in schema.items()
    }


def count_fields(schema: Any, space: str = "", known: dict[str, int] | None = None) -> int:
    """Return the number of types in a parsed schema.

    A named one counts each time it is there, as Spark's types copy it.

    Args:
        schema: the schema.
        space: the enclosing namespace.
        known: the counts of the named types before it.
    """
    known = {} if known is None else known
    if isinstance(schema, str):
        return known.get(schema if "." in schema or not space else f"{space}.{schema}", 1)
    if isinstance(schema, list):
        return sum(count_fields(one, space, known) for one in schema)
    if not isinstance(schema, dict):
        return 1
    if schema.get("type") in _NAMED:
        name = _name(schema, space)
        space = name.rpartition(".")[0]
        known[name] = 1  # while it is counted: a record may contain itself
        known[name] = 1 + sum(count_fields(field["type"], space, known) for field in schema.get("fields", ()))
        return known[name]
    return 1 + sum(count_fields(schema[part], space, known) for part in ("type", "items", "values") if part in schema)


def _name(schema: Mapping[str, Any], space: str) -> str:
    """Return the full name of a named type."""
    name = str(schema["name"])
    if "." in name:
        return name
    space = schema.get("namespace", space) or ""
    return f"{space}.{name}" if space else name
