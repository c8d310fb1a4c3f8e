"""Decoding expressions for each form, which report the rows that cannot be read whole."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.errors import ConfigError
from lvq_spark.decoding.avro_limits import limit_avro
from lvq_spark.decoding.protobuf_message import ProtobufMessage
from lvq_spark.decoding.registry_frames import RegistryFrame, identities, read_frame
from lvq_spark.decoding.schema_registry import Form, SubjectSchemas, WriterSchema
from lvq_spark.decoding.staged_frame import StagedFrame
from lvq_spark.session.remote import spark_errors

__all__ = ["DecodedValue", "read_values"]

_END = secrets.token_hex(16)
"""The end marker of a value, which no writer can guess.

It is the same for all frames, so equal frames have equal plans.
"""


class DecodedValue(NamedTuple):
    """A decoded value, and the reason why there is none, which is null for a good value."""

    value: Column
    error: Column


def read_values(
    raw: Column,
    form: Form,
    schema: str | DataType | SubjectSchemas | ProtobufMessage | None,
    rows: StagedFrame,
    column: str,
    *,
    framed: bool,
    options: Mapping[str, str],
) -> DecodedValue:
    """Decode the values of a frame's column, as `lvq_spark.decode` describes.

    Raises:
        ConfigError: the schema cannot be used, or the session lacks the package.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    if isinstance(schema, SubjectSchemas):
        if framed or schema.form != form:
            raise ConfigError(
                f"The schemas of {schema.subject} are for framed values in {schema.form}.",
                options=["framed" if framed else "form"],
                hint=f'Call decode(..., "{schema.form}", ...), without framed.',
            )
        return _registered(raw, schema, options, rows, column)
    if form in ("bytes", "text"):
        if framed or schema is not None:
            raise ConfigError(
                f"Values that are {form} have neither a schema nor a registry's frame.",
                options=["framed" if framed else "schema"],
                hint="Leave it out.",
            )
        return _text(raw) if form == "text" else DecodedValue(raw, F.lit(None).cast("string"))
    if framed:
        if form == "avro":
            raise ConfigError(
                "Framed Avro is read with the schemas that its values name.",
                options=["framed"],
                hint='Omit framed, and give read_subject(client, "<topic>-value") as the schema.',
            )
        value, unframed = read_frame(raw, rows, column).value((b"\0", b"\2\0") if form == "protobuf" else ())
        read = read_values(value, form, schema, rows, column, framed=False, options=options)
        return DecodedValue(read.value, F.coalesce(unframed, read.error))
    if form == "json":
        if isinstance(schema, ProtobufMessage):
            raise ConfigError("Messages are for Protobuf.", options=["schema"], hint="Give a Spark type.")
        return _json(raw, schema, options)
    if form == "protobuf":
        if not isinstance(schema, ProtobufMessage):
            raise ConfigError(
                "Protobuf needs the message of the values.", options=["schema"], hint="Give a ProtobufMessage."
            )
        return _protobuf(raw, schema, options, rows.df)
    if isinstance(schema, str):
        return _avro(raw, schema, schema, options, rows.df)
    raise ConfigError("Avro needs the schema of the values.", options=["schema"], hint="Give its text, as JSON.")


def _text(raw: Column) -> DecodedValue:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    value = raw.cast("string")
    return DecodedValue(value, F.when(~F.is_valid_utf8(value), F.lit("is not text in UTF-8")))


def _json(raw: Column, schema: str | DataType | None, options: Mapping[str, str]) -> DecodedValue:
    """Decode JSON values wrapped in a prefix and a suffix of our own.

    Spark's reader would otherwise stop after the first good value. A value could close the wrapper itself and go on
    with the start of another one. So the end marker must directly follow a single value, in the same array, or with no
    other names beside it.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType, VariantType

    text, kind = raw.cast("string"), None if schema is None else _type(schema)
    if kind is None or isinstance(kind, VariantType):
        tree = F.try_parse_json(F.concat(F.lit("["), text, F.lit(f',"{_END}"]')))
        value = F.variant_get(tree, "$[0]", "variant")
        good = (F.try_variant_get(tree, "$[1]", "string") == _END) & value.isNotNull()
    else:
        between = F.concat(F.lit(f'{{"{_END}":{{"value":['), text, F.lit(f'],"{_END}":[]}}}}'))
        fields = [(_END, MapType(StringType(), ArrayType(kind))), ("bad", StringType())]
        shape = StructType([StructField(name, each) for name, each in fields])
        parsed = F.from_json(between, shape, {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"})
        names, values = F.map_keys(parsed[_END]), F.get(F.map_values(parsed[_END]), 0)
        value = F.get(values, 0)
        good = (names == F.array(F.lit("value"), F.lit(_END))) & (F.size(values) == 1) & parsed["bad"].isNull()
        good = reduce(and_, _whole(value, kind, nullable=True), good)
    good = F.coalesce(good, F.lit(False)) & F.is_valid_utf8(raw.cast("string"))
    wanted = "is not JSON" if schema is None else "is not JSON of its schema"
    return DecodedValue(value, F.when(~good, F.lit(wanted)))


def _whole(value: Column, kind: DataType, *, nullable: bool) -> list[Column]:
    """Return conditions that no value is null where its type forbids it.

    `from_json` does not check that. The list is empty if everything may be null.
    """
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
        raise ConfigError(f"{schema!r} is not a Spark type: {reason}", options=["schema"]) from None


def _avro(raw: Column, writer: str, reader: str, options: Mapping[str, str], df: DataFrame) -> DecodedValue:
    """Decode Avro values, each followed by an end marker.

    Spark's reader would otherwise stop after the first good value. If the marker is read back intact the value is good,
    even if it is null. A value that is too short consumes part of the marker.
    """
    limit_avro(df.sparkSession)
    return _avro_whole(_understood(df, lambda: _avro_parsed(raw, writer, reader, options), "Avro"))


def _avro_parsed(raw: Column, writer: str, reader: str, options: Mapping[str, str]) -> Column:
    """Return the value and the marker, or something else if the value cannot be read whole."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.avro.functions import from_avro

    settings = {**options, "avroSchema": _followed(reader), "mode": "PERMISSIVE"}
    return from_avro(F.concat(raw, F.lit(bytes.fromhex(_END))), _followed(writer), settings)


def _avro_whole(parsed: Column) -> DecodedValue:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    whole = F.coalesce(parsed["end"] == F.lit(bytes.fromhex(_END)), F.lit(False))
    return DecodedValue(parsed["value"], F.when(~whole, F.lit("is not Avro of its schema")))


def _protobuf(raw: Column, message: ProtobufMessage, options: Mapping[str, str], df: DataFrame) -> DecodedValue:
    """Decode Protobuf messages; a null means that the value could not be read.

    A message is never null, even if it is empty. Protobuf takes trailing bytes for a part of the message: unknown
    fields, or fields that replace earlier ones. So a value has no end to check.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.protobuf.functions import from_protobuf

    settings, described = {**options, "mode": "PERMISSIVE"}, message.descriptors
    value = _understood(
        df, lambda: from_protobuf(raw, message.name, options=settings, binaryDescriptorSet=described), "Protobuf"
    )
    return DecodedValue(value, F.when(value.isNull(), F.lit("is not Protobuf of its message")))


def _understood(df: DataFrame, make: Callable[[], Column], form: str) -> Column:
    """Build a column with an optional package's function, and check that Spark can use it."""
    try:
        column = make()
        _ = df.select(column).schema  # Spark checks the column once it meets its frame
    except spark_errors() as error:  # an internal error of Spark, which contains the reason
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
        raise ConfigError(f"The Avro schema is not JSON: {error}.", options=["schema"]) from None
    end = {"type": "fixed", "name": "LvqEnd", "size": len(_END) // 2}
    fields = [{"name": "value", "type": inner}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "LvqValue", "fields": fields})


def _registered(
    raw: Column, schemas: SubjectSchemas, options: Mapping[str, str], rows: StagedFrame, column: str
) -> DecodedValue:
    """Decode values by the schemas that their frames name."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    frame = read_frame(raw, rows, column)
    good: dict[WriterSchema, list[str]] = {}
    bad: dict[str, list[str]] = {}
    for number, writer in schemas.writers.items():
        names = bad.setdefault(writer.damage, []) if writer.damage else good.setdefault(writer._replace(guid=None), [])
        names.extend(identities(number, writer.guid))
    if schemas.form == "avro":
        read = _avro_of_each(frame, {writer.schema: names for writer, names in good.items()}, schemas, options, rows)
    else:
        value, wrong = F.lit(None).cast("binary"), F.lit(None).cast("string")
        for writer, names in good.items():  # Protobuf's with the message in one place, or all of JSON Schema
            mine, (own, why) = frame.identity.isin(names), frame.value(writer.frames)
            value, wrong = F.when(mine, own).otherwise(value), F.when(mine, why).otherwise(wrong)
        value = rows.computed(value)
        read = read_values(value, schemas.form, schemas.reader, rows, column, framed=False, options=options)
        read = DecodedValue(read.value, F.coalesce(wrong, read.error))

    def naming(why: str) -> Column:
        return F.concat(F.lit("names the schema "), frame.number, F.lit(f", which {why}"))

    _, unframed = frame.value()
    error = F.when(unframed.isNotNull(), unframed)
    for damage, names in bad.items():
        error = error.when(frame.identity.isin(names), naming(damage))
    error = error.when(frame.identity.isin([name for names in good.values() for name in names]), read.error)
    late = f"is not in {schemas.subject}, or was added after its schemas were read"
    return DecodedValue(read.value, error.otherwise(naming(late)))


def _avro_of_each(
    frame: RegistryFrame,
    writers: Mapping[str, list[str]],
    schemas: SubjectSchemas,
    options: Mapping[str, str],
    rows: StagedFrame,
) -> DecodedValue:
    """Decode Avro values, each from the schema that wrote it.

    Args:
        frame: the frames of the values.
        writers: the names in frames of each schema.
        schemas: those of the subject.
        options: options of Spark's function.
        rows: the frame.
    """
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    reader, body = str(schemas.reader), rows.computed(frame.value()[0])
    read = _avro(
        body, reader, reader, options, rows.df
    )  # refuses a reader that cannot be used, as Spark does no writer
    parsed: Column | None = None
    for writer, names in writers.items():
        mine, own = frame.identity.isin(names), _avro_parsed(body, writer, reader, options)
        parsed = F.when(mine, own) if parsed is None else parsed.when(mine, own)
    return read if parsed is None else _avro_whole(rows.computed(parsed))
