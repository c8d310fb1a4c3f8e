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
from lvq_spark.decoding.registry_frames import identities, read_frame
from lvq_spark.decoding.schema_registry import Form, SubjectSchemas, WriterSchema
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
    df: DataFrame,
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
        return _registered(raw, schema, options, df, column)
    if framed:
        if form == "avro":
            raise ConfigError(
                "Framed Avro is read with the schemas that its values name.",
                options=["framed"],
                hint='Omit framed, and give read_subject(client, "<topic>-value") as the schema.',
            )
        value, unframed = read_frame(raw, df, column).value((b"\0", b"\2\0") if form == "protobuf" else ())
        read = read_values(value, form, schema, df, column, framed=False, options=options)
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
        return _protobuf(raw, schema, options, df)
    if isinstance(schema, str):
        return _avro(raw, schema, schema, options, df)
    raise ConfigError("Avro needs the schema of the values.", options=["schema"], hint="Give its text, as JSON.")


def _json(raw: Column, schema: str | DataType | None, options: Mapping[str, str]) -> DecodedValue:
    """Decode JSON values wrapped in a prefix and a suffix of our own.

    Spark's reader would otherwise stop after the first good value. A value could close the wrapper itself and go on
    with the start of another one. So the end marker must directly follow a single value, in the same array, or with no
    other names beside it.
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
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it
    from pyspark.sql.avro.functions import from_avro

    limit_avro(df.sparkSession)
    end = F.lit(bytes.fromhex(_END))
    settings = {**options, "avroSchema": _followed(reader), "mode": "PERMISSIVE"}
    parsed = _understood(df, lambda: from_avro(F.concat(raw, end), _followed(writer), settings), "Avro")
    whole = F.coalesce(parsed["end"] == end, F.lit(False))
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
    raw: Column, schemas: SubjectSchemas, options: Mapping[str, str], df: DataFrame, column: str
) -> DecodedValue:
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    frame = read_frame(raw, df, column)
    plain, unframed = frame.value()
    read = _read_written(plain, schemas, None, options, df)  # refuses a reader that cannot be used, and has the type
    value, error = F.when(F.lit(False), read.value), F.when(unframed.isNotNull(), unframed)
    names: dict[WriterSchema, list[str]] = {}
    for number, writer in schemas.writers.items():
        names.setdefault(writer._replace(guid=None), []).extend(identities(number, writer.guid))
    for writer, own in names.items():
        mine, damage = frame.identity.isin(own), writer.damage
        written, wrong = frame.value(writer.frames)
        try:
            read = _read_written(written, schemas, writer, options, df)
        except ConfigError as refused:
            damage = damage or f"cannot be used: {refused}"
        if damage:
            error = error.when(mine, F.concat(F.lit("names the schema "), frame.number, F.lit(f", which {damage}")))
        else:
            value, error = value.when(mine, read.value), error.when(mine, F.coalesce(wrong, read.error))
    late = f", which is not in {schemas.subject}, or was added after its schemas were read"
    return DecodedValue(value, error.otherwise(F.concat(F.lit("names the schema "), frame.number, F.lit(late))))


def _read_written(
    value: Column, schemas: SubjectSchemas, writer: WriterSchema | None, options: Mapping[str, str], df: DataFrame
) -> DecodedValue:
    """Decode values of one schema of a subject, by default of the reader's."""
    from pyspark.sql.types import VariantType

    reader = schemas.reader
    if schemas.form == "json":
        kind = _type(reader)  # type: ignore[arg-type]
        return _json(value, None if isinstance(kind, VariantType) else kind, options)
    if isinstance(reader, ProtobufMessage):
        return _protobuf(value, reader, options, df)
    return _avro(value, str(reader) if writer is None else writer.schema, str(reader), options, df)
