"""Catalog tables: ``CREATE TABLE prices USING lvq OPTIONS (...)``, a cut for each query.

Spark passes no options to a Python source that is read as a table (4.3: ``PythonTable`` is created without them). It
does pass the schema that the source had when the table was created, as the catalog has stored it. So the options are
stored there, as metadata of the first column; all but secrets, which would end up in every file written from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.properties import is_secret
from lvq_spark.schema import TYPES

__all__ = ["created_with", "keeping", "kept"]

_GIVEN = "option."
_KEPT = "lvq.options"

# Spark's types for `TYPES`. Parsing them takes a session, and there is none where sources are planned.
_OF_WORD: Mapping[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp_ltz": TimestampType(),
    "boolean": BooleanType(),
    TYPES["headers"]: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def created_with(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a ``CREATE TABLE`` from a catalog's properties; None for reads."""
    said = {name.lower(): value for name, value in options.items()}
    if "provider" not in said:
        return None
    return {name.removeprefix(_GIVEN): value for name, value in said.items() if name.startswith(_GIVEN)}


def keeping(columns: Sequence[str], options: Mapping[str, str]) -> StructType:
    """Return a schema with these columns that stores these options.

    Raises:
        ConfigError: one of the options is a secret.
    """
    secret = [name for name in options if is_secret(name.removeprefix("kafka."))]
    if secret:
        raise ConfigError(
            f"The table would show {secret[0]} to everyone who can read the table.",
            options=secret,
            hint=f'Give it to the session, register(spark, {{"{secret[0]}": ...}}), and omit it from the table.',
        )
    fields = [StructField(name, _OF_WORD[TYPES[name]]) for name in columns]
    fields[0].metadata = {_KEPT: dict(options)}
    return StructType(fields)


def kept(schema: StructType) -> dict[str, str]:
    """Return the options stored in a schema."""
    found: dict[str, str] = {}
    for field in schema.fields:
        found |= (field.metadata or {}).get(_KEPT, {})
    return found
