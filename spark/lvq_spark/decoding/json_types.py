"""Spark's types for values of a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from referencing._core import Resolver

__all__ = ["spark_type"]

_PLAIN: Mapping[str, DataType] = {
    "string": StringType(),
    "integer": LongType(),
    "number": DoubleType(),
    "boolean": BooleanType(),
}


def spark_type(schema: str, referred: Mapping[str, str], most_fields: int) -> DataType:
    """Return the type for values of a JSON Schema.

    It is a ``VARIANT`` wherever Spark has no single type: for a value of several types, or of any, and for one that
    contains itself. Everything may be null.

    Args:
        schema: the schema's text.
        referred: the texts of the schemas that it refers to, by the names in its references.
        most_fields: the most fields that the type may have.

    Raises:
        ValueError: a text is not JSON, a reference leads nowhere, or there are more fields.
        MissingExtra: the packages for JSON Schema are not installed.
    """
    with needing("registry", "JSON Schema of a registry"):
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

    def resource(text: str) -> Any:
        return Resource.from_contents(read_json(text), default_specification=DRAFT7)

    try:
        root = resource(schema)
        registry = Registry().with_resources((name, resource(text)) for name, text in referred.items())
        resolver = registry.with_resource("", root).resolver_with_root(root)
    except (AttributeError, TypeError):  # JSON, but of another shape
        raise ValueError("is not a JSON Schema") from None
    return _Types(most_fields).of(root.contents, resolver, (id(root.contents),))


class _Types:
    """Derives types, and counts fields, which references can multiply beyond measure."""

    def __init__(self, most_fields: int) -> None:
        self._most_fields = most_fields
        self._fields = 0

    def of(self, schema: Any, resolver: Resolver[Any], above: tuple[int, ...]) -> DataType:
        """Return the type of a schema.

        Args:
            schema: the schema.
            resolver: finds what it refers to.
            above: the identities of the schemas that led to it by reference.
        """
        self._fields += 1
        if self._fields > self._most_fields:
            raise ValueError(f"has more than {self._most_fields:,} fields")
        if not isinstance(schema, dict):
            return VariantType()
        if "$ref" in schema:
            return self._referred(schema["$ref"], resolver, above)
        for several in ("oneOf", "anyOf", "allOf"):
            if several in schema:
                others = schema[several] if isinstance(schema[several], list) else []
                real = [one for one in others if one != {"type": "null"}]
                return self.of(real[0], resolver, above) if len(real) == 1 else VariantType()
        named = schema.get("type")
        names = [name for name in (named if isinstance(named, list) else [named]) if name != "null"]
        name = names[0] if len(names) == 1 else None
        if name == "object":
            return self._object(schema, resolver, above)
        if name == "array":
            return ArrayType(self.of(schema.get("items"), resolver, above))
        return _PLAIN.get(str(name), VariantType())

    def _object(self, schema: dict[str, Any], resolver: Resolver[Any], above: tuple[int, ...]) -> DataType:
        fields, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(fields, dict) and fields:
            if len({name.lower() for name in fields}) < len(fields):  # which Spark does not tell apart
                return VariantType()
            return StructType([StructField(name, self.of(one, resolver, above)) for name, one in fields.items()])
        if isinstance(others, dict) and "patternProperties" not in schema:
            return MapType(StringType(), self.of(others, resolver, above))
        return VariantType()

    def _referred(self, reference: Any, resolver: Resolver[Any], above: tuple[int, ...]) -> DataType:
        from referencing.exceptions import Unresolvable

        try:
            found = resolver.lookup(reference)
        except (Unresolvable, AttributeError, TypeError, ValueError):
            raise ValueError(f"refers to {brief(str(reference))}, which is not there") from None
        if id(found.contents) in above:
            return VariantType()
        return self.of(found.contents, found.resolver, (*above, id(found.contents)))
