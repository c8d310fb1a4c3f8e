"""Typed values: a column of bytes decoded by Spark, and a policy for undecodable values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from lvq_kafka.core.facts import Format
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.validation import choice, mapping
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_spark.decoding.forms import DecodedValue, read_values
from lvq_spark.decoding.protobuf_message import ProtobufMessage
from lvq_spark.decoding.schema_registry import Form, SubjectSchemas
from lvq_spark.decoding.staged_frame import PREFIX, StagedFrame
from lvq_spark.schema import quoted
from lvq_spark.session.local_session import require_column, require_frame

__all__ = ["Form", "OnError", "ProtobufMessage", "decode"]

OnError = Literal["fail", "null", "drop", "keep"]
"""Policy for a row whose value cannot be decoded.

- ``fail``: the job fails and names the row.
- ``null``: the value is null, as for a delete.
- ``drop``: the row is left out.
- ``keep``: the value is null, and two more columns, ``<column>_error`` and ``<column>_raw``, hold the reason and the
  bytes. They are null in good rows.
"""


_PLACE = ("topic", "partition", "offset")


def decode(
    df: DataFrame,
    form: Form | LastValueQueue[Any],
    schema: str | DataType | SubjectSchemas | ProtobufMessage | None = None,
    *,
    column: str = "value",
    on_error: OnError = "fail",
    framed: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decode a column of bytes.

    Nothing runs before the frame is used, so streams can be decoded, too.

    No value is lost silently. Spark's functions return null for a value they cannot read, and accept one that only
    starts well. Here the whole value must match its schema; otherwise ``on_error`` applies. A null value (a delete)
    stays null::

        prices = decode(snapshot(spark, queue), queue)  # in its declared format
        prices = decode(snapshot(spark, queue), "json", "price double, at timestamp")
        prices = decode(snapshot(spark, queue), "avro", read_subject(client, "prices-value"), on_error="keep")
        prices = decode(snapshot(spark, queue), "protobuf", ProtobufMessage("prices.Price", descriptors))

    Executors in separate JVMs need Avro's limits set; see docs/how-to/spark.md. Without them a damaged value that
    claims to hold gigabytes kills the executor.

    Args:
        df: a snapshot, or any frame with a column of bytes. The columns ``topic``, ``partition`` and ``offset``
            identify a row that cannot be decoded.
        form: a queue stands for the format that it was declared with (R53). ``"bytes"`` stay what they are, ``"text"``
            is UTF-8, ``"json"`` uses `from_json`, ``"avro"`` uses ``from_avro`` (from the package ``spark-avro``), and
            ``"protobuf"`` uses ``from_protobuf`` (from ``spark-protobuf``).
        schema: for JSON a Spark type (``"price double, at timestamp"``, ``"array<int>"``), or None for ``VARIANT``. A
            missing field is null. A null where the schema says ``NOT NULL``, at any depth, makes the row a bad one. For
            Avro the schema of the values as text. For Protobuf the message. For each, what `read_subject` returns if a
            registry's serializer wrote the values; a value that names its schema in a header needs the column
            ``headers``.
        column: the column, which is decoded in place.
        on_error: the policy for rows that cannot be decoded. ``fail`` names one of them; ``keep`` shows all.
        framed: whether a schema registry's serializer for JSON Schema or Protobuf wrote the values, but no registry is
            asked: the schema that they name is not looked up, and they are decoded with ``schema``. A Protobuf message
            must be the first in its file, as most are.
        options: further options of Spark's function, such as ``timestampFormat`` or ``emit.default.values``.

    Raises:
        ConfigError: the column is missing or not binary, the schema cannot be used, the session lacks the package, or
            the queue was declared without a format.
    """
    named = _declared_format(form) if isinstance(form, LastValueQueue) else form
    _check(df, named, column, on_error)
    mapping("options", options, "Give options of Spark's function by name.")
    rows = StagedFrame(df)
    read = read_values(df[quoted(column)], named, schema, rows, column, framed=framed, options=options or {})
    return rows.clear(_apply_policy(rows.df, read, column, on_error, named))


def _declared_format(queue: LastValueQueue[Any]) -> Format:
    """Return the format that a queue was declared with.

    Raises:
        ConfigError: it was declared without one.
    """
    found = queue.newest().format
    if found is None:
        raise ConfigError(
            f"The queue {queue.name} was declared without a format.",
            options=["form"],
            hint='Name it here, such as decode(frame, "json"); or give the queue one: '
            f"lvq alter {queue.name} --format json",
        )
    return found


def _apply_policy(df: DataFrame, read: DecodedValue, column: str, on_error: OnError, form: Form) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    raw = df[quoted(column)]
    error_name, raw_name = f"{column}_error", f"{column}_raw"
    error = F.when(raw.isNotNull(), read.error)
    if on_error == "fail":
        known = [name for name in _PLACE if name in df.columns and name != column]
        cells = [F.coalesce(F.col(name).cast("string"), F.lit("null")) for name in known]
        parts = [piece for name, cell in zip(known, cells) for piece in (F.lit(f"{name} "), cell, F.lit(", "))]
        hint = f'. on_error="keep" shows all such rows, with their bytes in {raw_name}.'
        place = F.concat(*parts) if parts else F.lit("")
        message = F.concat(place, F.lit(f"{column}: "), error, F.lit(hint))
        value = F.when(error.isNotNull(), F.raise_error(message)).otherwise(read.value)
        return df.withColumn(column, value)
    value = F.when(error.isNull(), read.value)
    judged = df.withColumns({error_name: error, raw_name: raw, column: value})
    if on_error == "keep":
        return judged.withColumn(raw_name, F.when(judged[quoted(error_name)].isNotNull(), judged[quoted(raw_name)]))
    if on_error == "drop":
        judged = judged.where(judged[quoted(error_name)].isNull())
    return judged.drop(error_name, raw_name)


def _check(df: DataFrame, form: str, column: str, on_error: str) -> None:
    if form not in get_args(Form):
        near = nearest(str(form), get_args(Form))
        hint = f"Did you mean {near[0]}?" if near else f"Choose one of {', '.join(get_args(Form))}."
        raise ConfigError(f"decode does not know the form {form!r}.", options=["form"], hint=hint)
    choice("on_error", on_error, get_args(OnError))
    require_frame(df)
    require_column(df, "column", column)
    found = df.schema[column].dataType.simpleString()
    if found != "binary":
        raise ConfigError(
            f"The column {column} is {found}, but only bytes can be decoded.",
            options=["column"],
            hint="Cast text to binary first." if found == "string" else "",
        )
    staged = [name for name in df.columns if name.lower().startswith(PREFIX)]
    if staged:
        raise ConfigError(
            f"The column {staged[0]} has a name that decode uses itself.", options=["df"], hint="Rename it."
        )
    ours = {f"{column}_error".lower(), f"{column}_raw".lower()}  # Spark ignores case by default
    clash = [name for name in df.columns if name.lower() in ours]
    if clash and on_error != "fail":
        raise ConfigError(
            f"The frame already has a column {clash[0]}.", options=["on_error"], hint="Rename it, or decode once."
        )
