"""Typed values: decoding a column of bytes with Spark's own functions, and a policy for what cannot be decoded."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from lvq_kafka.core.json_text import read_json
from lvq_kafka.core.options import choice
from lvq_kafka.errors import ConfigError
from lvq_spark.registry import SubjectSchemas
from lvq_spark.remote import spark_errors
from lvq_spark.schema import quoted
from lvq_spark.session import require_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["Form", "OnError", "ProtobufMessage", "decode"]

Form = Literal["json", "avro", "protobuf"]
"""How values are written."""

OnError = Literal["fail", "null", "drop", "keep"]
"""What becomes of a row whose value cannot be decoded.

- ``fail``: the job fails, and names the row.
- ``null``: its value is null, as that of a delete.
- ``drop``: the row is left out.
- ``keep``: its value is null, and two more columns, ``<column>_error`` and ``<column>_raw``, hold the reason and the
  bytes. They are null in good rows.
"""


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """A message of Protobuf's.

    Args:
        name: with its package, such as ``prices.Price``.
        descriptors: of its file and of all that this imports, as ``protoc --include_imports --descriptor_set_out``
            writes them.

    Raises:
        ConfigError: there are no descriptors, or something else in their place.
    """

    name: str
    descriptors: bytes = field(repr=False)

    def __post_init__(self) -> None:
        given: object = self.descriptors
        if not (isinstance(given, bytes) and given):  # without, Spark looks for a Java class of that name
            raise ConfigError(
                f"The descriptors of {self.name} are no bytes, or none.",
                options=["descriptors"],
                hint="Give what protoc wrote: Path(...).read_bytes().",
            )


_END = secrets.token_hex(16)
"""Where the reading of a value ends, in a word that no writer can know. One for all: equal frames have equal plans."""

_PLACE = ("topic", "partition", "offset")
_FRAME = 5  # bytes before a value that a registry's serializer wrote: a zero, and the schema's id in four


def decode(
    df: DataFrame,
    form: Form,
    schema: str | DataType | SubjectSchemas | ProtobufMessage | None = None,
    *,
    column: str = "value",
    on_error: OnError = "fail",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decode a column of bytes. Nothing runs before the frame is used, so streams can be decoded, too.

    Nothing is lost silently. Spark's functions make nulls of what they cannot read, and take a value that has a good
    beginning; here the whole value must be as its schema says, or it is treated as ``on_error`` says. A null value (a
    delete) stays null::

        prices = decode(snapshot(spark, queue), "json", "price double, at timestamp")
        prices = decode(snapshot(spark, queue), "avro", registry.subject("prices-value"), on_error="keep")
        prices = decode(snapshot(spark, queue), "protobuf", ProtobufMessage("prices.Price", descriptors))

    Args:
        df: a snapshot, or any frame with a column of bytes. Columns ``topic``, ``partition`` and ``offset`` name a row
            that cannot be decoded.
        form: ``"json"`` by `from_json`, ``"avro"`` by ``from_avro`` (which is in the package ``spark-avro``), or
            ``"protobuf"`` by ``from_protobuf`` (in ``spark-protobuf``).
        schema: for JSON a Spark type (``"price double, at timestamp"``, ``"array<int>"``), or None for ``VARIANT``. A
            field that is not there is null; what is null although the schema says ``NOT NULL``, however far in, makes
            the row a bad one. For Avro the schema of the values as text, or, where a registry's serializer wrote them,
            `SchemaRegistry.subject`. For Protobuf the message.
        column: the column; it is decoded in its place.
        on_error: what becomes of rows that cannot be decoded. ``fail`` names one of them; ``keep`` shows all.
        options: more of Spark's function, such as ``timestampFormat`` or ``emit.default.values``.

    Raises:
        ConfigError: the column is missing or not binary, the schema cannot be used, or the session lacks the package.
    """
    _check(df, form, column, on_error)
    raw = df[quoted(column)]
    if form == "json":
        if isinstance(schema, SubjectSchemas | ProtobufMessage):
            raise ConfigError(
                "Schemas of a registry are for Avro, and messages for Protobuf.",
                options=["schema"],
                hint="Give a Spark type.",
            )
        read = _json(raw, schema, options or {})
    elif form == "protobuf":
        if not isinstance(schema, ProtobufMessage):
            raise ConfigError(
                "Protobuf needs the message of the values.", options=["schema"], hint="Give a ProtobufMessage."
            )
        read = _protobuf(raw, schema, options or {}, df)
    elif isinstance(schema, SubjectSchemas):
        read = _framed(raw, schema, options or {}, df)
    elif isinstance(schema, str):
        read = _avro(raw, schema, schema, options or {}, df)
    else:
        raise ConfigError("Avro needs the schema of the values.", options=["schema"], hint="Give its text, as JSON.")
    return _settled(df, read, column, on_error, form)


class _Read(NamedTuple):
    """What decoding a value gives: the value, and why there is none, which is null for a good one."""

    value: Column
    error: Column


def _json(raw: Column, schema: str | DataType | None, options: Mapping[str, str]) -> _Read:
    """Values between a beginning and an end of our own: Spark's reader stops behind the first good value otherwise.

    A value could bring an end of its own, and what follows be the beginning of another. So the end has to come right
    behind the one value, in the same array or among no other names.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    text = raw.cast("string")
    if schema is None:
        tree = F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]')))
        value = F.variant_get(tree, "$[0]", "variant")
        good = (F.try_variant_get(tree, "$[1]", "string") == _END) & value.isNotNull()
    else:
        kind = _type(schema)
        between = F.concat(F.lit(f'{{"{_END}":{{"value":['), text, F.lit(f'],"{_END}":[]}}}}'))
        fields = [(_END, MapType(StringType(), ArrayType(kind))), ("bad", StringType())]
        shape = StructType([StructField(name, each) for name, each in fields])
        parsed = F.from_json(between, shape, {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"})
        names, values = F.map_keys(parsed[_END]), F.get(F.map_values(parsed[_END]), 0)
        value = F.get(values, 0)
        good = (names == F.array(F.lit("value"), F.lit(_END))) & (F.size(values) == 1) & parsed["bad"].isNull()
        good = reduce(and_, _whole(value, kind, nullable=True), good)
    good = F.coalesce(good, F.lit(False)) & F.is_valid_utf8(raw.cast("string"))
    wanted = "is no JSON" if schema is None else "is not JSON of its schema"
    return _Read(value, F.when(~good, F.lit(wanted)))


def _whole(value: Column, kind: DataType, *, nullable: bool) -> list[Column]:
    """That nothing is null which its type says is not: from_json does not look at that. Empty where all may be."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.types import ArrayType, MapType, StructType

    def each(values: Column, kind: DataType, may: bool) -> list[Column]:
        if not _whole(F.lit(None), kind, nullable=may):
            return []
        return [F.forall(values, lambda value: reduce(and_, _whole(value, kind, nullable=may)))]

    within: list[Column] = []
    if isinstance(kind, StructType):
        within = [
            one for field in kind.fields for one in _whole(value[field.name], field.dataType, nullable=field.nullable)
        ]
    elif isinstance(kind, ArrayType):
        within = each(value, kind.elementType, kind.containsNull)
    elif isinstance(kind, MapType):
        within = each(F.map_values(value), kind.valueType, kind.valueContainsNull)
    if not nullable:
        return [value.isNotNull(), *within]
    return [value.isNull() | reduce(and_, within)] if within else []


def _type(schema: str | DataType) -> DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType

    if isinstance(schema, DataType):
        return schema
    try:
        return DataType.fromDDL(schema)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"{schema!r} is no Spark type: {reason}", options=["schema"]) from None


def _avro(raw: Column, writer: str, reader: str, options: Mapping[str, str], df: DataFrame) -> _Read:
    """A value and, behind it, an end of our own: where that was read as it is, the value is good, be it null.

    Spark's reader stops behind the first good value otherwise. One that is too short takes some of the end for its own.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.avro.functions import from_avro

    end = F.lit(bytes.fromhex(_END))
    settings = {**options, "avroSchema": _followed(reader), "mode": "PERMISSIVE"}
    parsed = _understood(df, lambda: from_avro(F.concat(raw, end), _followed(writer), settings), "Avro")
    whole = F.coalesce(parsed["end"] == end, F.lit(False))
    return _Read(parsed["value"], F.when(~whole, F.lit("is not Avro of its schema")))


def _protobuf(raw: Column, message: ProtobufMessage, options: Mapping[str, str], df: DataFrame) -> _Read:
    """A message is never null, be it empty: where there is none it could not be read.

    What follows a message is a part of it to Protobuf: fields that it does not know, or that replace others. So a value
    has no end that could be missed.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.protobuf.functions import from_protobuf

    settings, described = {**options, "mode": "PERMISSIVE"}, message.descriptors
    value = _understood(
        df, lambda: from_protobuf(raw, message.name, options=settings, binaryDescriptorSet=described), "Protobuf"
    )
    return _Read(value, F.when(value.isNull(), F.lit("is not Protobuf of its message")))


def _understood(df: DataFrame, make: Callable[[], Column], form: str) -> Column:
    """A column by a function that is in a package of its own, with a schema that Spark can use."""
    try:
        column = make()
        _ = df.select(column).schema  # it is looked at when the column meets its frame
    except spark_errors() as error:  # an internal error of Spark's, which holds the reason
        if f"{form.upper()}_NOT_LOADED" in str(error):
            package, version = f"spark-{form.lower()}", df.sparkSession.version
            raise ConfigError(
                f"The Spark session lacks {package}.",
                hint=f"Start it with spark.jars.packages=org.apache.spark:{package}_2.13:{version}.",
            ) from None
        lines = [
            line
            for line in str(error).splitlines()
            if form.lower() in line.lower() and not line.lstrip().startswith("at ")
        ]
        reason = lines[-1].removeprefix("Caused by: ") if lines else type(error).__name__
        raise ConfigError(f"Spark cannot use the {form} schema: {reason}", options=["schema"]) from None
    return column


def _followed(schema: str) -> str:
    try:
        inner = read_json(schema)
    except ValueError as error:
        raise ConfigError(f"The Avro schema is no JSON: {error}.", options=["schema"]) from None
    end = {"type": "fixed", "name": "LvqEnd", "size": len(_END) // 2}
    fields = [{"name": "value", "type": inner}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "LvqValue", "fields": fields})


def _framed(raw: Column, schemas: SubjectSchemas, options: Mapping[str, str], df: DataFrame) -> _Read:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    frame, rest = F.hex(F.substring(raw, 1, _FRAME)), F.substring(raw, _FRAME + 1, 2**31 - 1 - _FRAME)
    number = F.conv(F.substring(frame, 3, 8), 16, 10)
    unknown = F.concat(F.lit("names the schema "), number, F.lit(f", which is none of {schemas.subject}"))
    value, error = F.lit(None), F.when(~frame.rlike("^00.{8}"), F.lit("does not start as a registry's values do"))
    for identity, writer in schemas.writers.items():
        read = _avro(rest, writer, schemas.reader, options, df)
        mine = frame == f"{identity:010X}"
        value = F.when(mine, read.value).otherwise(value)
        error = error.when(mine, read.error)
    return _Read(value, error.otherwise(unknown))


def _settled(df: DataFrame, read: _Read, column: str, on_error: OnError, form: Form) -> DataFrame:
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
        near = difflib.get_close_matches(str(form), get_args(Form), 1)
        hint = f"Did you mean {near[0]}?" if near else f"It is one of {', '.join(get_args(Form))}."
        raise ConfigError(f"decode does not know the form {form!r}.", options=["form"], hint=hint)
    choice("on_error", on_error, get_args(OnError))
    require_frame(df)
    if column not in df.columns:
        near = difflib.get_close_matches(column, df.columns, 1)
        raise ConfigError(
            f"column={column!r} names no column of the frame, which has {', '.join(df.columns)}.",
            options=["column"],
            hint=f"Did you mean {near[0]}?" if near else "",
        )
    found = df.schema[column].dataType.simpleString()
    if found != "binary":
        raise ConfigError(
            f"The column {column} is {found}, and what is decoded is bytes.",
            options=["column"],
            hint="Text: cast it to binary first." if found == "string" else "",
        )
    ours = {f"{column}_error".lower(), f"{column}_raw".lower()}  # Spark does not tell capitals apart, as a rule
    clash = [name for name in df.columns if name.lower() in ours]
    if clash and on_error != "fail":
        raise ConfigError(
            f"The frame has a column {clash[0]} already.", options=["on_error"], hint="Rename it, or decode once."
        )
