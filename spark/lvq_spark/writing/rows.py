"""The rows of a frame as they are written, and the deletes of keys that it lacks."""

from __future__ import annotations

import difflib

from pyspark.sql import Column, DataFrame

from lvq_kafka.core.headers import UNKEYED_HEADER
from lvq_kafka.errors import ConfigError
from lvq_spark.schema import quoted

__all__ = ["HEADERS_WANTED", "missing", "newest_rows", "unkeyed"]

HEADERS_WANTED = "Give headers as an array of structs of key (text) and value (text or bytes)."

_HEADERS = "array<struct<key: string, value: binary>>"
_KEY_TYPES = ("binary", "string", "tinyint", "smallint", "int", "bigint", "boolean")
_VALUE_TYPES = ("binary", "string")
_HEADER_TYPES = tuple(f"array<struct<key:string,value:{kind}>>" for kind in _VALUE_TYPES)


def newest_rows(df: DataFrame, key: str, value: str, headers: str | None, newest: str | None) -> DataFrame:
    """Return a frame as key, value and headers, in bytes, with the newest row of each key.

    Raises:
        ConfigError: a column is missing, or has a type that cannot be written.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    keys = _column(df, "key", key, _KEY_TYPES, "Use text, bytes, integers or booleans as keys: cast it to string.")
    if df.schema[key].dataType.simpleString() != "binary":
        keys = keys.cast("string").cast("binary")  # the same bytes as from `encode_key`
    values = _column(df, "value", value, _VALUE_TYPES, "Make it text or bytes first, with to_json or to_avro.")
    pairs = F.lit(None) if headers is None else _column(df, "headers", headers, _HEADER_TYPES, HEADERS_WANTED)
    columns = [keys.alias("key"), values.cast("binary").alias("value"), pairs.cast(_HEADERS).alias("headers")]
    if newest is None:
        return df.select(columns)
    # A rank, not a row number: rows that tie for the newest all stay, and the check reports them.
    rank = F.rank().over(Window.partitionBy("key").orderBy(F.desc_nulls_last("newest")))
    ranked = df.select(*columns, _column(df, "newest", newest).alias("newest")).withColumn("rank", rank)
    return ranked.where("rank = 1").drop("newest", "rank")


def missing(held: DataFrame, rows: DataFrame) -> DataFrame:
    """Return deletes of the queue's keys that the frame lacks.

    Messages that never had a key are left alone (R1).
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    keyed = F.col("key").isNotNull() & ~unkeyed()
    gone = held.where(keyed).join(rows.select("key"), "key", "left_anti")
    return gone.select("key", F.lit(None).cast("binary").alias("value"), F.lit(None).cast(_HEADERS).alias("headers"))


def unkeyed() -> Column:
    """Return whether a row is a message that never had a key."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return F.coalesce(F.exists("headers", lambda header: header["key"] == F.lit(UNKEYED_HEADER)), F.lit(False))


def _column(df: DataFrame, option: str, name: str, types: tuple[str, ...] = (), hint: str = "") -> Column:
    if name not in df.columns:
        near = difflib.get_close_matches(name, df.columns, 1)
        raise ConfigError(
            f"{option}={name!r} names no column of the frame, which has {', '.join(df.columns)}.",
            options=[option],
            hint=f"Did you mean {near[0]}?" if near else f"Name one of them with {option}=... .",
        )
    found = df.schema[name].dataType.simpleString()
    if types and found not in types:
        raise ConfigError(f"The column {name} is {found}.", options=[option], hint=hint)
    return df[quoted(name)]
