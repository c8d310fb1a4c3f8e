"""Columns that read values of each form whole, with Spark's own functions, and say of which rows they cannot."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Literal, NamedTuple

from lvq_kafka.core.json_text import read_json
from lvq_kafka.errors import ConfigError
from lvq_spark.avro_limits import limit_avro
from lvq_spark.remote import spark_errors
from lvq_spark.schema_registry import SubjectSchemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["DecodedValue", "Form", "ProtobufMessage", "read_values"]

Form = Literal["json", "avro", "protobuf"]
"""How values are written."""


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


_FRAMES: Mapping[Form, int] = {"json": 5, "avro": 5, "protobuf": 6}
"""Bytes before a value that a registry's serializer wrote: a zero, the schema's id in four, and of Protobuf's another
zero, for the first message of the schema.
"""


class DecodedValue(NamedTuple):
    """What decoding a value gives: the value, and why there is none, which is null for a good one."""

    value: Column
    error: Column


def read_values(
    raw: Column,
    form: Form,
    schema: str | DataType | SubjectSchemas | ProtobufMessage | None,
    df: DataFrame,
    *,
    framed: bool,
    options: Mapping[str, str],
) -> DecodedValue:
    """Values of a column of a frame, as `lvq_spark.decode` has it.

    Raises:
        ConfigError: the schema cannot be used, or the session lacks the package.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    if framed:
        if form == "avro":
            raise ConfigError(
                "Framed Avro is read by the schemas that its values name.",
                options=["framed"],
                hint='Leave framed out, and give SchemaRegistry(...).subject("<topic>-value") as the schema.',
            )
        rest, unframed = _unframed(raw, form)
        read = read_values(rest, form, schema, df, framed=False, options=options)
        return DecodedValue(read.value, F.coalesce(unframed, read.error))
    if form == "json":
        if isinstance(schema, SubjectSchemas | ProtobufMessage):
            raise ConfigError(
                "Schemas of a registry are for Avro, and messages for Protobuf.",
                options=["schema"],
                hint="Give a Spark type, and framed=True where a registry's serializer wrote the values.",
            )
        return _json(raw, schema, options)
    if form == "protobuf":
        if not isinstance(schema, ProtobufMessage):
            raise ConfigError(
                "Protobuf needs the message of the values.", options=["schema"], hint="Give a ProtobufMessage."
            )
        return _protobuf(raw, schema, options, df)
    if isinstance(schema, SubjectSchemas):
        return _registered(raw, schema, options, df)
    if isinstance(schema, str):
        return _avro(raw, schema, schema, options, df)
    raise ConfigError("Avro needs the schema of the values.", options=["schema"], hint="Give its text, as JSON.")


def _json(raw: Column, schema: str | DataType | None, options: Mapping[str, str]) -> DecodedValue:
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
    return DecodedValue(value, F.when(~good, F.lit(wanted)))


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


def _avro(raw: Column, writer: str, reader: str, options: Mapping[str, str], df: DataFrame) -> DecodedValue:
    """A value and, behind it, an end of our own: where that was read as it is, the value is good, be it null.

    Spark's reader stops behind the first good value otherwise. One that is too short takes some of the end for its own.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.avro.functions import from_avro

    limit_avro(df.sparkSession)
    end = F.lit(bytes.fromhex(_END))
    settings = {**options, "avroSchema": _followed(reader), "mode": "PERMISSIVE"}
    parsed = _understood(df, lambda: from_avro(F.concat(raw, end), _followed(writer), settings), "Avro")
    whole = F.coalesce(parsed["end"] == end, F.lit(False))
    return DecodedValue(parsed["value"], F.when(~whole, F.lit("is not Avro of its schema")))


def _protobuf(raw: Column, message: ProtobufMessage, options: Mapping[str, str], df: DataFrame) -> DecodedValue:
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
    return DecodedValue(value, F.when(value.isNull(), F.lit("is not Protobuf of its message")))


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


def _registered(raw: Column, schemas: SubjectSchemas, options: Mapping[str, str], df: DataFrame) -> DecodedValue:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    (rest, unframed), frame = _unframed(raw, "avro"), F.hex(F.substring(raw, 1, _FRAMES["avro"]))
    number = F.conv(F.substring(frame, 3, 8), 16, 10)
    late = f", which is none of {schemas.subject}, or came after its schemas were asked for"
    unknown = F.concat(F.lit("names the schema "), number, F.lit(late))
    value, error = F.lit(None), F.when(unframed.isNotNull(), unframed)
    for identity, writer in schemas.writers.items():
        read = _avro(rest, writer, schemas.reader, options, df)
        mine = frame == f"{identity:010X}"
        value = F.when(mine, read.value).otherwise(value)
        error = error.when(mine, read.error)
    return DecodedValue(value, error.otherwise(unknown))


def _unframed(raw: Column, form: Form) -> tuple[Column, Column]:
    """What is behind the frame of a registry's serializer; and why that is nothing, which is null for a good value."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    size = _FRAMES[form]
    frame = F.hex(F.substring(raw, 1, size))
    good = frame.rlike("^00.{8}" + "00" * (size - 5) + "$")
    wrong = F.when(~good, F.lit("does not start as a registry's values do"))
    if form == "protobuf":
        other = F.lit("is of another message than the first of its schema")
        wrong = F.when(frame.rlike("^00.{10}$") & ~good, other).otherwise(wrong)
    return F.substring(raw, size + 1, 2**31 - 1 - size), wrong
