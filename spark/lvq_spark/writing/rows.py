"""The rows of a frame as they are written, and the deletes of keys that it lacks."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.queue.ranking import HIGHEST_PRIORITY, PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import LONGEST_TTL, TTL_HEADER
from lvq_kafka.errors import ConfigError
from lvq_spark.rules.expiry import LAST
from lvq_spark.schema import GROUP, quoted
from lvq_spark.session.local_session import require_column

__all__ = ["HEADERS_WANTED", "is_priority", "is_time", "is_ttl", "missing", "newest_rows", "unkeyed"]

HEADERS_WANTED = "Give headers as an array of structs of key (text) and value (text or bytes)."

_HEADERS = "array<struct<key: string, value: binary>>"
_KEY_TYPES = ("binary", "string", "tinyint", "smallint", "int", "bigint", "boolean")
_VALUE_TYPES = ("binary", "string")
_INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")
_TTL_TYPES = (*_INTEGER_TYPES, "float", "double", "decimal")
_TIME_TYPES = ("timestamp", *_TTL_TYPES)
_HEADER_TYPES = tuple(f"array<struct<key:string,value:{kind}>>" for kind in _VALUE_TYPES)


def newest_rows(
    df: DataFrame,
    key: str,
    value: str,
    headers: str | None,
    newest: str | None,
    ttl: str | None = None,
    not_before: str | None = None,
    priority: str | None = None,
    sort: str | None = None,
    sort_header: str | None = None,
    group: tuple[str, str] | None = None,
) -> DataFrame:
    """Return a frame as key, value and headers, in bytes, with the newest row of each key.

    If rows have a TTL, the headers hold it, and a column ``ttl`` has it as it was given, in seconds. If they are
    scheduled, the headers say so, and a column ``not_before`` has the time, in seconds since the epoch. If they have a
    rank, the headers hold it, and a column ``priority`` or ``sort`` has it. If they belong to groups, the headers name
    these, and a column `GROUP` has the group.

    Args:
        group: the column of groups, and the header that names them.

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
    pairs, more = pairs.cast(_HEADERS), []
    if priority is not None:
        hint = "Give whole numbers from 0 to 9."
        level = _column(df, "priority", priority, _INTEGER_TYPES, hint).cast("bigint")
        pairs = _with_header(pairs, PRIORITY_HEADER, F.when(values.isNotNull() & is_priority(level), level))
        more.append(level.alias("priority"))
    if sort is not None:
        text = _column(df, "sort", sort, ("string",), "Give text; numbers sort as text, so pad them with zeros.")
        pairs = _with_header(pairs, sort_header or SORT_HEADER, F.when(values.isNotNull(), text))
        more.append(text.alias("sort"))
    if group is not None:
        name, header = group
        named = _column(df, "group", name, _VALUE_TYPES, "Give the names of groups, as text or bytes.").cast("binary")
        # A delete says that it has none: where groups place messages, it needs to say so.
        pairs = _with(pairs, header, named, named.isNotNull() | values.isNull())
        more.append(named.alias(GROUP))
    if not_before is not None:
        hint = "Give timestamps, or seconds since the epoch as numbers."
        time = _column(df, "not_before", not_before, _TIME_TYPES, hint).cast("double")
        pairs = _with_header(pairs, NOT_BEFORE_HEADER, _milliseconds(F.when(is_time(time), time)))
        more.append(time.alias("not_before"))
    if ttl is not None:  # last, where readers look first
        seconds = _column(df, "ttl", ttl, _TTL_TYPES, "Give seconds, as numbers.").cast("double")
        own = F.when(values.isNotNull() & is_ttl(seconds), seconds)
        pairs = _with_header(pairs, TTL_HEADER, _milliseconds(own))
        more.append(seconds.alias("ttl"))
    columns = [keys.alias("key"), values.cast("binary").alias("value"), pairs.alias("headers"), *more]
    if newest is None:
        return df.select(columns)
    # A rank, not a row number: rows that tie for the newest all stay, and the check reports them.
    rank = F.rank().over(Window.partitionBy("key").orderBy(F.desc_nulls_last("newest")))
    ranked = df.select(*columns, _column(df, "newest", newest).alias("newest")).withColumn("rank", rank)
    return ranked.where("rank = 1").drop("newest", "rank")


def _milliseconds(seconds: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.bround(seconds * 1000).cast("bigint")


def _with_header(pairs: Column, name: str, value: Column) -> Column:
    """Add a header with this value as text, unless it is null."""
    return _with(pairs, name, value.cast("string").cast("binary"), value.isNotNull())


def _with(pairs: Column, name: str, value: Column, condition: Column) -> Column:
    """Add a header where a condition holds."""
    from pyspark.sql import functions as F  # noqa: N812

    header = F.array(F.struct(F.lit(name).alias("key"), value.alias("value"))).cast(_HEADERS)
    return F.when(condition, F.concat(F.coalesce(pairs, F.array().cast(_HEADERS)), header)).otherwise(pairs)


def is_ttl(seconds: Column) -> Column:
    """Return whether a number of seconds can be a TTL; null if it is null."""
    return seconds.between(0.001, LONGEST_TTL)


def is_priority(level: Column) -> Column:
    """Return whether a number is a priority; null if it is null."""
    return level.between(0, HIGHEST_PRIORITY)


def is_time(seconds: Column) -> Column:
    """Return whether a number of seconds since the epoch can be a time; null if it is null."""
    return seconds.between(0, LAST / 1000)


def missing(held: DataFrame, rows: DataFrame) -> DataFrame:
    """Return deletes of the queue's keys that the frame lacks, with their groups.

    Messages that never had a key are left alone (R1).
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    keyed = F.col("key").isNotNull() & ~unkeyed()
    gone = held.where(keyed).join(rows.select("key"), "key", "left_anti")
    nothing = F.lit(None).cast("binary").alias("value"), F.lit(None).cast(_HEADERS).alias("headers")
    return gone.select("key", *nothing, GROUP)


def unkeyed() -> Column:
    """Return whether a row is a message that never had a key."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return F.coalesce(F.exists("headers", lambda header: header["key"] == F.lit(UNKEYED_HEADER)), F.lit(False))


def _column(df: DataFrame, option: str, name: str, types: tuple[str, ...] = (), hint: str = "") -> Column:
    name = require_column(df, option, name)
    found = df.schema[name].dataType.simpleString()
    if types and found not in types and found.partition("(")[0] not in types:
        raise ConfigError(f"The column {name} is {found}.", options=[option], hint=hint)
    return df[quoted(name)]
