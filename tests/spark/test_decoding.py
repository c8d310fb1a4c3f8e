"""Typed values: decoded rows, and the treatment of rows that cannot be decoded."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql.types import ArrayType, DataType, IntegerType

from lvq_kafka import LastValueQueue
from lvq_kafka.core.facts import Format
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import snapshot
from lvq_spark.decoding.avro_limits import AVRO_LIMITS, limit_avro
from lvq_spark.decoding.decode import decode
from lvq_spark.decoding.protobuf_message import ProtobufMessage
from lvq_spark.decoding.schema_registry import Form, SubjectSchemas, WriterSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Frame = Callable[..., "DataFrame"]

PRICE = json.dumps({"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}]})
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
PRICE_2 = json.dumps({"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}, CURRENCY]})


PRICES_OF_7 = SubjectSchemas("prices-value", "avro", PRICE, {7: WriterSchema(None, PRICE)})
NUMBERS = '{"type": "array", "items": "int"}'


def price(amount: float, currency: str = "") -> bytes:
    """Return a price as Avro encodes it."""
    data = struct.pack("<d", amount)
    return data + bytes([2 * len(currency)]) + currency.encode() if currency else data


def framed(identity: int, data: bytes) -> bytes:
    """Return a value as a registry's serializer writes it."""
    return b"\0" + identity.to_bytes(4, "big") + data


@pytest.fixture
def frame(spark: SparkSession) -> Frame:
    """Return a function that gives values the columns of a snapshot, one row for each in turn."""

    def make(*values: bytes | None) -> DataFrame:
        rows = [("prices", 3, 100 + n, value) for n, value in enumerate(values)]
        return spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")

    return make


def kept(df: DataFrame, *arguments: Any, **options: Any) -> list[tuple[Any, str | None, bytes | None]]:
    """Return value, error and raw bytes of each row."""
    rows = decode(df, *arguments, **options, on_error="keep").orderBy("offset").collect()
    return [
        (_plain(row.value), row.value_error, None if row.value_raw is None else bytes(row.value_raw)) for row in rows
    ]


def _plain(value: Any) -> Any:
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


# -- JSON --------------------------------------------------------------------------------------------------------------

NOT_OF_ITS_SCHEMA = [
    b"",
    b"  ",
    b"118.50",
    b'"text"',
    b'{"price": "high"}',
    b'{"price": 1.5',
    b'{"price": 1.5} and more',
    b'{"price": 1.5}{"price": 2.5}',
    b'{"price": 1.5},{"price": 2.5}',
    b'{"price": 1.5}}',
    b'{"price": 1.5}, "read": true',
    b'{"price": 1.5, "currency": "\xff"}',
    b"\x00\x01",
    b'{"price": 1.5}], "x": [0',
    b'{"price": 1.5}], "value": [{"price": 2.5}',
    b'{"price": 1.5}], "read": true}',
    b'{"price": 1.5}], "read": true}]}, and more',
    b'{"price": 1.5}]}, "x": {"value": [{"price": 2.5}',
    b'{"price": 1.5}], "read": [], "x": {"read": [',
]


def test_json_becomes_what_its_schema_says(spark: SparkSession, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("IBM", b'{"price": 118.5, "currency": "USD", "more": [1]}')
        producer.put("SAP", b' {"price": 90} ')
    rows = decode(snapshot(spark, queue), "json", "price double, currency string").collect()
    assert {bytes(row.key): tuple(row.value) for row in rows} == {b"IBM": (118.5, "USD"), b"SAP": (90.0, None)}


def test_only_values_that_are_not_json_of_their_schema_are_kept_with_their_bytes(frame: Frame) -> None:
    good = [b'{"price": 1.5, "currency": "EUR"}', b"{}", None, b"null"]
    rows = kept(frame(*NOT_OF_ITS_SCHEMA, *good), "json", "price double, currency string")
    bad, rest = rows[: len(NOT_OF_ITS_SCHEMA)], rows[len(NOT_OF_ITS_SCHEMA) :]
    assert bad == [(None, "is not JSON of its schema", raw) for raw in NOT_OF_ITS_SCHEMA]
    values = [{"price": 1.5, "currency": "EUR"}, {"price": None, "currency": None}, None, None]
    assert rest == [(value, None, None) for value in values]


def test_a_row_that_cannot_be_decoded_fails_the_job_and_is_named(frame: Frame) -> None:
    from pyspark.errors import PySparkException

    decoded = decode(frame(b'{"price": 1.5}', b"{"), "json", "price double")
    with pytest.raises(
        PySparkException, match=r"topic prices, partition 3, offset 101, value: is not JSON of its schema\."
    ):
        decoded.collect()
    with pytest.raises(PySparkException, match=r'on_error="keep" shows all'):
        decoded.where("value.price > 1").collect()
    assert decode(frame(b'{"price": 1.5}', None), "json", "price double").collect()[1].value is None


def test_bad_rows_become_null_or_are_dropped_when_that_is_asked_for(frame: Frame) -> None:
    df = frame(b"1", b"x", None)
    nulled, dropped = (decode(df, "json", "int", on_error=policy) for policy in ("null", "drop"))
    assert nulled.columns == dropped.columns == df.columns
    assert [(row.offset, row.value) for row in nulled.collect()] == [(100, 1), (101, None), (102, None)]
    assert [(row.offset, row.value) for row in dropped.collect()] == [(100, 1), (102, None)]


def test_a_field_that_must_be_there_makes_its_row_a_bad_one(frame: Frame) -> None:
    rows = kept(frame(b'{"a": 1}', b'{"b": 1}', b'{"a": null}'), "json", "a int not null, b int")
    assert [error is None for _, error, _ in rows] == [True, False, False]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ("a struct<b: int not null>", [b'{"a": {"b": 1}}', b'{"a": null}', b"{}"], [b'{"a": {"b": null}}']),
        ("array<struct<b: int not null>>", [b"[]", b"[null]", b'[{"b": 1}]'], [b'[{"b": 1}, {}]']),
        ("map<string, struct<b: int not null>>", [b'{"x": null}'], [b'{"x": {}}']),
        (ArrayType(IntegerType(), containsNull=False), [b"[]", b"[1]"], [b"[1, null]"]),
        ("a int not null", [b"null"], [b"{}"]),
    ],
)
def test_a_nested_required_field_that_is_missing_makes_its_row_a_bad_one_too(
    frame: Frame, schema: str | DataType, good: list[bytes], bad: list[bytes]
) -> None:
    rows = kept(frame(*good, *bad), "json", schema)
    assert [error is None for _, error, _ in rows] == [True] * len(good) + [False] * len(bad)


@pytest.mark.parametrize("column", ["a.b", "a`b", "Value", "größe"])
def test_a_column_may_have_any_name(frame: Frame, column: str) -> None:
    df = frame(b"1", b"x").withColumnRenamed("value", column)
    for policy, values in (("keep", [1, None]), ("null", [1, None]), ("drop", [1])):
        rows = decode(df, "json", "int", column=column, on_error=policy).orderBy("offset").collect()  # type: ignore[arg-type]
        assert [row[column] for row in rows] == values
    assert decode(df.limit(1), "json", "int", column=column).collect()[0][column] == 1


def test_a_bad_row_is_told_though_its_place_is_not_known(frame: Frame) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812

    df = frame(b"x").withColumn("offset", F.lit(None).cast("bigint"))
    with pytest.raises(PySparkException, match=r"partition 3, offset null, value: is not JSON of its schema\."):
        decode(df, "json", "int").collect()


def test_json_need_not_be_an_object_and_without_a_schema_it_is_a_variant(frame: Frame) -> None:
    rows = kept(frame(b"[1, 2]", b'["x"]', b"[1] 2"), "json", "array<int>")
    assert [value for value, _, _ in rows] == [[1, 2], None, None]
    df = frame(b'{"a": [1, "x"]}', b"null", b"1 2", b"", b'{"a": 1, "a": 2}', b"1,2", None)
    decoded = decode(df, "json", on_error="keep").selectExpr("cast(value as string) as text", "value_error").collect()
    assert [row.text for row in decoded] == ['{"a":[1,"x"]}', *[None] * 6]
    assert [row.value_error is None for row in decoded] == [True, True, False, False, False, False, True]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("bytes", ["7", "x", None]), ("text", ["7", "x", "is not text in UTF-8"]), ("json", ["7", *["is not JSON"] * 2])],
)
def test_r53_a_queue_stands_for_its_declared_format(
    frame: Frame, lvq_cluster: KafkaCluster, lvq_topic: str, form: Format, expected: list[str | None]
) -> None:
    queue = LastValueQueue.declare(lvq_topic, key_header=None, format=form, cluster=lvq_cluster)
    rows = decode(frame(b"7", b"x", b"\xff"), queue, on_error="keep")
    assert (
        rows.schema["value"].dataType.simpleString() == {"bytes": "binary", "text": "string", "json": "variant"}[form]
    )
    told = rows.selectExpr("coalesce(value_error, try_validate_utf8(cast(value as string))) as said", "offset")
    assert [row.said for row in told.orderBy("offset").collect()] == expected


def test_r53_a_queue_without_a_format_is_refused_with_the_remedy(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with pytest.raises(ConfigError, match=rf"lvq alter {queue.name} --format json") as caught:
        decode(frame(), queue)
    assert caught.value.options == ("form",)
    with pytest.raises(ConfigError, match="text have neither a schema nor"):
        decode(frame(), "text", "string")


@pytest.mark.parametrize("schema", [None, "int", "array<int>", "struct<x int>"])
def test_a_value_cannot_close_what_it_is_read_within(frame: Frame, schema: str | None) -> None:
    beyond = ['"x":[2', '"value":[2', '"read":true}', '"read":true}],"read":true}', '"x":{"y":[2', '"x":"', ""]
    inner = {None: "1", "int": "1", "array<int>": "[1]", "struct<x int>": '{"x":1}'}[schema]
    ends = ["]", "]}", "]]", "}", '"', ',"']
    values = [f"{inner}{end},{more}".encode() for end in ends for more in beyond]
    rows = decode(frame(*values, inner.encode()), "json", schema, on_error="keep").orderBy("offset")
    found = rows.selectExpr("value_raw", "value_error").collect()
    assert [None if row.value_raw is None else bytes(row.value_raw) for row in found] == [*values, None]
    assert [row.value_error is None for row in found] == [False] * len(values) + [True]


# -- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_becomes_what_its_schema_says_and_what_is_too_short_is_kept(frame: Frame) -> None:
    rows = kept(frame(price(1.5), price(1.5)[:-1], b"", None), "avro", PRICE)
    wanted = "is not Avro of its schema"
    assert rows == [
        ({"price": 1.5}, None, None),
        (None, wanted, price(1.5)[:-1]),
        (None, wanted, b""),
        (None, None, None),
    ]


def test_a_null_that_avro_wrote_is_not_a_bad_value(frame: Frame) -> None:
    rows = kept(frame(b"\x00", b"\x02\x04hi", b"\x04hi", b"\x00\x00"), "avro", '["null", "string"]')
    assert [(value, error is None) for value, error, _ in rows] == [
        (None, True),
        ("hi", True),
        (None, False),
        (None, False),
    ]


def test_a_value_that_is_not_wholly_avro_of_its_schema_is_kept_however_long_it_is(frame: Frame) -> None:
    """Spark's function stops after the first good value, and ignores what follows."""
    whole = price(1.5, "EUR")
    longer = [whole + more for more in (b"\0", b"\1", bytes(16), whole, b"\xff" * 40)]
    shorter = [whole[:length] for length in range(len(whole))]
    rows = kept(frame(*longer, *shorter, whole), "avro", PRICE_2)
    assert rows[:-1] == [(None, "is not Avro of its schema", raw) for raw in (*longer, *shorter)]
    assert rows[-1] == ({"price": 1.5, "currency": "EUR"}, None, None)
    framed_rows = kept(frame(framed(7, price(1.5) + b"\0"), framed(7, price(1.5))), "avro", PRICES_OF_7)
    assert [error is None for _, error, _ in framed_rows] == [False, True]
    lists = kept(frame(b"\x02\x02\x00", b"\x00", b"\x02\x02\x00\x00", b"\x02\x02"), "avro", NUMBERS)
    assert [(value, error is None) for value, error, _ in lists] == [
        ([1], True),
        ([], True),
        (None, False),
        (None, False),
    ]


@pytest.mark.parametrize("schema", ['"bytes"', '"string"', NUMBERS, '{"type": "map", "values": "int"}'])
def test_a_length_that_avro_would_have_no_room_for_is_a_bad_row_and_not_the_end_of_the_jvm(
    frame: Frame, schema: str
) -> None:
    """Avro allocates the length that a value claims: six bytes asked for 2 GB, and each attempt ended a JVM."""
    two_gigabytes, nothing = b"\xee\xff\xff\xff\x0f" + b"x", b"\x00"
    rows = kept(frame(nothing, two_gigabytes, nothing), "avro", schema)
    assert [error for _, error, _ in rows] == [None, "is not Avro of its schema", None]


@pytest.mark.parametrize("options", ["", "-Xss4m", "-Dorg.apache.avro.limits.bytes.maxLength=9"])
@pytest.mark.parametrize("local", [False, True])
def test_a_cluster_whose_executors_believe_any_length_is_told_what_they_need(
    caplog: pytest.LogCaptureFixture, options: str, local: bool
) -> None:
    spark = MagicMock()
    spark.sparkContext._jsc.sc.return_value.isLocal.return_value = local
    spark._jvm.java.lang.System.getProperty.side_effect = lambda name: "7" if "string" in name else None
    spark.conf.get.return_value = options
    limit_avro(spark)
    ours = [(name, str(limit)) for name, limit in AVRO_LIMITS.items() if "string" not in name]
    assert [call.args for call in spark._jvm.java.lang.System.setProperty.call_args_list] == ours
    assert ("spark.executor.extraJavaOptions=-Dorg" in caplog.text) == (not local and "avro" not in options)


def test_values_of_all_versions_of_a_subject_become_the_newest(spark: SparkSession, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("old", framed(7, price(1.5)))
        producer.put("new", framed(0x01020304, price(2.5, "USD")))
    writers = {7: WriterSchema(None, PRICE), 0x01020304: WriterSchema(None, PRICE_2)}
    schemas = SubjectSchemas("prices-value", "avro", PRICE_2, writers)
    values = snapshot(spark, queue)
    decoded = decode(values, "avro", schemas)
    assert decoded.columns == values.columns, "what is computed on the way is gone"
    assert {bytes(row.key): tuple(row.value) for row in decoded.collect()} == {
        b"old": (1.5, "EUR"),
        b"new": (2.5, "USD"),
    }


def test_a_value_of_an_unknown_schema_or_without_its_number_is_a_bad_one(frame: Frame) -> None:
    values = [
        framed(8, price(1.5)),
        b"\1" + framed(7, price(1.5))[1:],
        framed(7, b""),
        b"",
        b"\0\0",
        None,
        framed(7, price(2)),
    ]
    unframed = "does not start with a registry's frame"
    assert [(value, error) for value, error, _ in kept(frame(*values), "avro", PRICES_OF_7)] == [
        (None, "names the schema 8, which is not in prices-value, or was added after its schemas were read"),
        (None, unframed),
        (None, "is not Avro of its schema"),
        (None, unframed),
        (None, unframed),
        (None, None),
        ({"price": 2.0}, None),
    ]


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def counted(number: int, data: bytes) -> bytes:
    """Return a field of bytes as Protobuf encodes it."""
    return bytes([number << 3 | 2, len(data)]) + data


def described(name: bytes, number: int, kind: int) -> bytes:
    """Return an optional field of a message's description."""
    return counted(2, counted(1, name) + bytes([3 << 3, number, 4 << 3, 1, 5 << 3, kind]))


DOUBLE, STRING = 1, 9
FIELDS = described(b"price", 1, DOUBLE) + described(b"currency", 2, STRING)
FILE = counted(1, b"prices.proto") + counted(2, b"prices") + counted(4, counted(1, b"Price") + FIELDS)
MESSAGE = ProtobufMessage("prices.Price", counted(1, FILE + counted(12, b"proto3")))
"""``message Price { double price = 1; string currency = 2; }``."""

PROTO_PRICE = b"\x09" + struct.pack("<d", 1.5)


def test_protobuf_becomes_what_its_message_says_where_the_session_can_read_it_and_else_it_is_told_so(
    spark: SparkSession, frame: Frame
) -> None:
    """Spark's function is in a package that is not available everywhere; without it, the error says so.

    To test reading, set ``PYSPARK_SUBMIT_ARGS="--driver-class-path ITS-JAR:PROTOBUF-JAVA-JAR pyspark-shell"``.
    """
    try:
        spark._jvm.java.lang.Class.forName("org.apache.spark.sql.protobuf.ProtobufDataToCatalyst")  # type: ignore[union-attr]
    except Py4JJavaError:
        with pytest.raises(ConfigError, match=r"lacks spark-protobuf\. .*org\.apache\.spark:spark-protobuf_2\.13:\d"):
            decode(frame(), "protobuf", MESSAGE)
        return
    bad = [PROTO_PRICE[:-1], PROTO_PRICE + b"\x12", b"\x00" + PROTO_PRICE, b"not a message", b"\x0a\x01x"]
    good = [PROTO_PRICE + counted(2, b"EUR"), PROTO_PRICE, b"", counted(7, b"of a newer version"), None]
    rows = kept(frame(*bad, *good), "protobuf", MESSAGE)
    assert rows[: len(bad)] == [(None, "is not Protobuf of its message", raw) for raw in bad]
    nothing = dict.fromkeys(("price", "currency"))
    values = [{"price": 1.5, "currency": "EUR"}, {"price": 1.5, "currency": None}, nothing, nothing, None]
    assert rows[len(bad) :] == [(value, None, None) for value in values]
    with pytest.raises(ConfigError, match=r"Spark cannot use the Protobuf schema: .*prices\.Quote"):
        decode(frame(), "protobuf", replace(MESSAGE, name="prices.Quote"))
    with pytest.raises(ConfigError, match="Spark cannot use the Protobuf schema: "):
        decode(frame(), "protobuf", replace(MESSAGE, descriptors=b"price double"))


def test_a_value_that_sparks_protobuf_cannot_read_is_a_bad_row_and_an_empty_message_is_not(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake replaces Spark's function, which is in a separate package: like that, it returns null for bad values."""
    from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

    asked: list[Any] = []

    def from_protobuf(data: Column, name: str, **how: Any) -> Column:
        asked.append((name, how))
        amount = F.when(F.length(data) == len(PROTO_PRICE), 1.5)
        return F.when(F.length(data).isin(0, len(PROTO_PRICE)), F.struct(amount.alias("price")))

    monkeypatch.setattr("pyspark.sql.protobuf.functions.from_protobuf", from_protobuf)
    df = frame(PROTO_PRICE, b"", b"no", None)
    found = kept(df, "protobuf", MESSAGE, options={"emit.default.values": "true"})
    wanted = "is not Protobuf of its message"
    assert found == [({"price": 1.5}, None, None), ({"price": None}, None, None), (None, wanted, b"no"), (None,) * 3]
    how = {"options": {"emit.default.values": "true", "mode": "PERMISSIVE"}, "binaryDescriptorSet": MESSAGE.descriptors}
    assert asked == [("prices.Price", how)]
    with pytest.raises(Exception, match="topic prices, partition 3, offset 102, value: is not Protobuf of its message"):
        decode(df, "protobuf", MESSAGE).collect()
    assert len(decode(df, "protobuf", MESSAGE, on_error="drop").collect()) == 3


def test_streams_can_be_decoded(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    decoded = decode(stream.selectExpr("cast('1' as binary) as value"), "json", "int")
    assert decoded.isStreaming
    assert decoded.schema["value"].dataType.simpleString() == "int"


# -- options -----------------------------------------------------------------------------------------------------------


def test_wrong_options_are_named(frame: Frame) -> None:
    df = frame()
    with pytest.raises(ConfigError, match=r"the form 'jsno'\. Did you mean json\?"):
        decode(df, "jsno")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Protobuf needs the message"):
        decode(df, "protobuf", "prices.Price")
    with pytest.raises(ConfigError, match="Messages are for Protobuf"):
        decode(df, "json", MESSAGE)
    with pytest.raises(
        ConfigError, match=r'of prices-value are for framed values in avro\. Call decode\(\.\.\., "avro"'
    ):
        decode(df, "json", PRICES_OF_7)
    with pytest.raises(ConfigError, match="without framed"):
        decode(df, "avro", PRICES_OF_7, framed=True)
    assert repr(MESSAGE) == "ProtobufMessage(name='prices.Price')"
    for descriptors in (b"", "prices.desc"):
        with pytest.raises(
            ConfigError,
            match=r"descriptors of prices\.Price are not bytes, or are empty\. "
            r".*read_bytes",
        ):
            ProtobufMessage("prices.Price", descriptors)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_error must be one of fail, null, drop, keep, not 'skip'"):
        decode(df, "json", on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"column='vlaue' names no column .* Did you mean value\?"):
        decode(df, "json", column="vlaue")
    with pytest.raises(ConfigError, match=r"column topic is string.* Cast text to binary first"):
        decode(df, "json", column="topic")
    with pytest.raises(ConfigError, match="is not a Spark type"):
        decode(df, "json", "a b c")
    with pytest.raises(ConfigError, match="Avro needs the schema"):
        decode(df, "avro")
    with pytest.raises(ConfigError, match="The Avro schema is not JSON"):
        decode(df, "avro", "price double")
    with pytest.raises(ConfigError, match=r"Spark cannot use the Avro schema: .*nonsense"):
        decode(df, "avro", '{"type": "nonsense"}')
    with pytest.raises(ConfigError, match="__LVQ_decode_0 has a name that decode uses itself"):
        decode(df.withColumnRenamed("topic", "__LVQ_decode_0"), "json")
    for policy in ("keep", "null", "drop"):
        with pytest.raises(ConfigError, match="already has a column Value_Raw"):  # Spark takes it for value_raw
            decode(df.withColumnRenamed("topic", "Value_Raw"), "json", "int", on_error=policy)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="already has a column value_error"):
        decode(
            decode(df, "json", "int", on_error="keep").selectExpr("value_raw as value", "value_error"),
            "json",
            on_error="keep",
        )


@pytest.mark.parametrize(("form", "schema"), [("avro", PRICE), ("protobuf", MESSAGE)])
def test_a_session_without_sparks_functions_for_a_form_is_told_what_to_bring(
    frame: Frame, monkeypatch: pytest.MonkeyPatch, form: Form, schema: str | ProtobufMessage
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise AnalysisException(f"[{form.upper()}_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE] Cannot call the function.")

    monkeypatch.setattr(f"pyspark.sql.{form}.functions.from_{form}", missing)
    with pytest.raises(ConfigError, match=rf"lacks spark-{form}\. .*org\.apache\.spark:spark-{form}_2\.13:\d"):
        decode(frame(), form, schema)
