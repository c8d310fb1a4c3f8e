"""Avro schemas that refer to types of other schemas, made whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lvq_kafka.core.json_text import read_json

__all__ = ["whole"]

_NAMED = ("record", "error", "enum", "fixed")


def whole(schema: str, referred: Iterable[str]) -> str:
    """This schema with the types of others in it, each defined where it is used first.

    Args:
        schema: its text, as JSON.
        referred: the texts of those that define these types; the order does not matter.

    Raises:
        ValueError: a text is no JSON.
    """
    definitions: dict[str, Any] = {}
    for text in referred:
        found = read_json(text)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict) and one.get("type") in _NAMED:
                definitions[_name(one, "")] = one
    return json.dumps(_defined(read_json(schema), "", definitions))


def _defined(schema: Any, space: str, definitions: dict[str, Any]) -> Any:
    """The same with definitions for names, which are taken out, since a schema defines each name once.

    Args:
        space: the namespace that it lies in.
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


def _name(schema: Mapping[str, Any], space: str) -> str:
    """The full name of a named type."""
    name = str(schema["name"])
    if "." in name:
        return name
    space = schema.get("namespace", space) or ""
    return f"{space}.{name}" if space else name
