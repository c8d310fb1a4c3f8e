"""Schemas of a registry, and values that confluent-kafka's own serializers wrote with them."""

from __future__ import annotations

import base64
import json
import ssl
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from lvq_kafka import LastValueQueue, serializers
from lvq_kafka.errors import AuthenticationFailed, ConfigError, DecodeError, MissingExtra, TransportError
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import register
from lvq_spark.decoding.avro_names import count_fields, whole
from lvq_spark.decoding.decode import decode
from lvq_spark.decoding.protobuf_message import ProtobufMessage
from lvq_spark.decoding.schema_registry import read_subject
from tests.spark.registries import Answers, FakeRegistry, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]

CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
UNFRAMED = "does not start with a registry's frame"
NOT_AVRO, NOT_JSON = "is not Avro of its schema", "is not JSON of its schema"


def price(*more: Any) -> str:
    return json.dumps({"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}, *more]})


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def url(registry: FakeRegistry) -> Iterator[str]:
    with registry.served() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        yield client


def written(serializer: Any, value: object, topic: str = "prices", headers: Any = None) -> bytes:
    data: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE, [] if headers is None else headers))
    return data


def late(number: object, subject: str = "prices-value") -> str:
    return f"names the schema {number}, which is not in {subject}, or was added after its schemas were read"


def kept(spark: SparkSession, values: list[bytes], *arguments: Any, **options: Any) -> list[tuple[Any, str | None]]:
    """Return each value and its error."""
    return kept_of(spark.createDataFrame(list(enumerate(values)), "offset int, value binary"), *arguments, **options)


def kept_of(df: DataFrame, *arguments: Any, **options: Any) -> list[tuple[Any, str | None]]:
    rows = decode(df, *arguments, **options, on_error="keep").orderBy("offset").collect()
    plain = (row.value.asDict(recursive=True) if hasattr(row.value, "asDict") else row.value for row in rows)
    return [(value, row.value_error) for value, row in zip(plain, rows)]


# -- Avro --------------------------------------------------------------------------------------------------------------


def test_avro_of_each_version_of_a_subject_becomes_the_newest(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    old = written(AvroSerializer(client, price()), {"price": 1.5})
    new = written(AvroSerializer(client, price(CURRENCY)), {"price": 2.5, "currency": "USD"})
    client.register_schema("others-value", Schema(price({"name": "other", "type": "int"}), "AVRO"))
    other = written(AvroSerializer(client, price({"name": "other", "type": "int"})), {"price": 1, "other": 1}, "others")
    schemas = read_subject(client, "prices-value")
    rows = kept(spark, [old, new, old + b"\0", new[:-1], b"", b"\0\0", other], "avro", schemas)
    assert rows == [
        ({"price": 1.5, "currency": "EUR"}, None),
        ({"price": 2.5, "currency": "USD"}, None),
        *[(None, NOT_AVRO)] * 2,
        *[(None, UNFRAMED)] * 2,
        (None, late(3)),
    ]
    assert repr(schemas) == "SubjectSchemas(subject='prices-value', form='avro')"
    older = read_subject(client, "prices-value", reader=price())
    assert kept(spark, [old, new], "avro", older) == [({"price": 1.5}, None), ({"price": 2.5}, None)]


def test_a_value_may_name_its_schema_by_guid_in_a_header_or_before_the_value(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    headers: list[tuple[str, bytes]] = []
    serializer = AvroSerializer(client, price(), conf={"schema.id.serializer": header_schema_id_serializer})
    value = written(serializer, {"price": 1.5}, headers=headers)
    ((name, guid),) = headers
    unknown, broken = b"\1" + bytes(16), [(name, guid[:9])]
    shape = "offset int, value binary, headers array<struct<key: string, value: binary>>"
    for column in ("value", "key"):
        rows = [
            (0, value, [("x", b"y"), (name.replace("value", column), guid)]),
            (1, guid + value, [(name, None)]),
            (2, guid + value, None),
            (3, value, [(name.replace("value", column), unknown)]),
            (4, value, [(name.replace("value", column), broken[0][1])]),
        ]
        df = spark.createDataFrame(rows, shape).withColumnRenamed("value", column)
        schemas = read_subject(client, "prices-value")
        found = decode(df, "avro", schemas, column=column, on_error="keep").orderBy("offset").collect()
        assert [(row[column] and row[column].price, row[f"{column}_error"]) for row in found] == [
            *[(1.5, None)] * 3,
            (None, late("0" * 32)),
            (None, UNFRAMED),
        ]


def test_avro_that_refers_to_types_of_other_subjects_is_decoded(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["FIAT", "COIN"]}
    client.register_schema("kind", Schema(json.dumps({**kind, "namespace": "money"}), "AVRO"))
    fields = [{"name": "code", "type": "string"}, {"name": "kind", "type": "Kind"}]
    currency = {"type": "record", "name": "money.Currency", "fields": fields}
    needs_kind = [SchemaReference("money.Kind", "kind", 1)]
    client.register_schema("currency", Schema(json.dumps(currency), "AVRO", needs_kind))
    pair = {"type": "array", "items": ["null", "money.Currency"]}
    fields = [{"name": "of", "type": "money.Currency"}, {"name": "pair", "type": pair}]
    quote = json.dumps({"type": "record", "name": "Quote", "namespace": "quotes", "fields": fields})
    needs_currency = [SchemaReference("money.Currency", "currency", 1)]
    euro, coin = {"code": "EUR", "kind": "FIAT"}, {"code": "BTC", "kind": "COIN"}
    value = {"of": euro, "pair": [None, coin]}
    data = written(AvroSerializer(client, Schema(quote, "AVRO", needs_currency)), value, "quotes")
    schemas = read_subject(client, "quotes-value")
    assert kept(spark, [data, data + b"\0"], "avro", schemas) == [(value, None), (None, NOT_AVRO)]
    client.register_schema("lost-value", Schema(quote, "AVRO", [SchemaReference("money.Currency", "gone", 1)]))
    with pytest.raises(ConfigError, match=r"newest schema of lost-value, \d, refers to one that the registry does not"):
        read_subject(client, "lost-value")


def test_a_type_of_another_schema_is_defined_where_it_is_used_first_and_once() -> None:
    plain = '{"type": "fixed", "name": "Id", "size": 4}'
    text = {"type": "record", "name": "a.R", "fields": [{"name": "id", "type": "Id"}, {"name": "r", "type": "R"}]}
    assert json.loads(whole(json.dumps(text), [plain])) == text, "within the namespace a it is a.Id, another type"
    ids = '[{"type": "fixed", "name": "a.Id", "size": 4}, {"type": "fixed", "name": "Id", "size": 8}]'
    outer = {"type": "map", "values": [{"type": "Id"}, "a.Id", {**text, "fields": text["fields"]}]}
    assert json.loads(whole(json.dumps(outer), [ids])) == {
        "type": "map",
        "values": [
            {"type": {"type": "fixed", "name": "Id", "namespace": "", "size": 8}},
            {"type": "fixed", "name": "Id", "namespace": "a", "size": 4},
            text,
        ],
    }


# -- JSON Schema -------------------------------------------------------------------------------------------------------

CUSTOMER = {"type": "object", "properties": {"name": {"type": "string"}, "since": {"$ref": "#/$defs/Year"}}}
CUSTOMER |= {"$defs": {"Year": {"type": "integer"}}}
ORDER: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "price": {"type": "number"},
        "by": {"$ref": "customer.json"},
        "tags": {"type": ["null", "array"], "items": {"type": "string"}},
        "paid": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
        "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "any": {},
        "either": {"type": ["string", "number"]},
        "parts": {"type": "array", "items": {"$ref": "#"}},
    },
}
ORDER_TYPE = (
    "struct<price:double,by:struct<name:string,since:bigint>,tags:array<string>,paid:boolean,"
    "sizes:map<string,bigint>,any:variant,either:variant,parts:array<variant>>"
)


def test_values_of_json_schema_become_the_type_that_their_newest_schema_describes(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    client.register_schema("customer", Schema(json.dumps(CUSTOMER), "JSON"))
    order = Schema(json.dumps(ORDER), "JSON", [SchemaReference("customer.json", "customer", 1)])
    old = JSONSerializer(json.dumps({"title": "Order", "type": "object"}), client)
    new = JSONSerializer(order, client)
    value = {"price": 1.5, "by": {"name": "Ada", "since": 1815}, "tags": ["a"], "paid": None, "sizes": {"x": 2}}
    value |= {"any": [1, {"a": "b"}], "either": "text", "parts": [{"price": 2.5}]}
    good = [written(old, {"price": 2}), written(new, value)]
    bad = [good[1] + b"}", good[0][:5] + b'{"price": "high"}', good[0][5:], b"\0\0\0\0\x63{}", good[0][:5]]
    schemas = read_subject(client, "prices-value")
    df = spark.createDataFrame(list(enumerate([*good, *bad])), "offset int, value binary")
    decoded = decode(df, "json", schemas, on_error="keep").orderBy("offset")
    assert decoded.schema["value"].dataType.simpleString() == ORDER_TYPE
    rows = decoded.selectExpr("to_json(value) as text", "value_error").collect()
    assert [json.loads(row.text) for row in rows[:2]] == [
        {"price": 2.0},
        {name: part for name, part in value.items() if part is not None},
    ]
    assert [row.value_error for row in rows[2:]] == [NOT_JSON, NOT_JSON, UNFRAMED, late(99), NOT_JSON]
    typed = read_subject(client, "prices-value", reader="price int")
    assert kept(spark, good[:1], "json", typed) == [({"price": 2}, None)]


@pytest.mark.parametrize(
    ("schema", "type_of"),
    [
        (True, "variant"),
        ({"type": "string"}, "string"),
        ({"type": "array"}, "array<variant>"),
        ({"type": "array", "items": [{"type": "string"}]}, "array<variant>"),
        ({"enum": [1, "x"]}, "variant"),
        ({"type": "object"}, "variant"),
        ({"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "variant"),
        ({"allOf": [{"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "variant"),
        ({"$ref": "#/x", "x": {"$ref": "#/x"}}, "variant"),
    ],
)
def test_a_json_schema_that_no_type_of_spark_describes_is_a_variant(
    client: SchemaRegistryClient, schema: Any, type_of: str
) -> None:
    client.register_schema("s", Schema(json.dumps(schema), "JSON"))
    reader: Any = read_subject(client, "s").reader
    assert reader.simpleString() == type_of


def test_values_of_any_json_schema_are_read_as_variants(spark: SparkSession, client: SchemaRegistryClient) -> None:
    data = written(JSONSerializer('{"title": "Any"}', client), {"a": 1})
    df = spark.createDataFrame([(data,)], "value binary")
    (row,) = decode(df, "json", read_subject(client, "prices-value")).selectExpr("to_json(value) as text").collect()
    assert row.text == '{"a":1}'


def test_values_of_json_schema_are_decoded_without_a_registry_by_a_type(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    title = {"title": "Price", "type": "object", "properties": {"price": {"type": "number"}}}
    data = written(JSONSerializer(json.dumps(title), client), {"price": 1.5})
    rows = kept(spark, [data, data + b"}", data[5:], b"", data[:5]], "json", "price double", framed=True)
    assert rows == [({"price": 1.5}, None), (None, NOT_JSON), (None, UNFRAMED), (None, UNFRAMED), (None, NOT_JSON)]
    with pytest.raises(ConfigError, match=r"Omit framed, and give read_subject"):
        kept(spark, [], "avro", price(), framed=True)


# -- Protobuf ----------------------------------------------------------------------------------------------------------


def file_of(name: str, *messages: str, imports: tuple[str, ...] = (), nested: str = "") -> Any:
    """Return the description of a file whose messages have a price each, and a field for each import."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="prices", syntax="proto3", dependency=imports)
    for message_name in messages:
        message = file.message_type.add(name=message_name)
        message.field.add(name="price", number=1, label=1, type=1)
        for number, imported in enumerate(imports, 2):
            type_name = ".google.protobuf.Timestamp" if imported.startswith("google/") else ".prices.Currency"
            message.field.add(name=f"of{number}", number=number, label=1, type=11, type_name=type_name)
        if nested:
            inner = message.nested_type.add(name=nested)
            inner.field.add(name="price", number=1, label=1, type=1)
    return file


def classes_of(*files: Any) -> dict[str, Any]:
    """Return the classes of all messages of these files, and of those in them, by name."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    found: dict[str, Any] = {}
    for file in files:
        for message in pool.FindFileByName(file.name).message_types_by_name.values():
            for one in (message, *message.nested_types):
                found[one.full_name] = message_factory.GetMessageClass(one)
    return found


CURRENCY_FILE = file_of("currency.proto", "Currency")
PRICES_FILE = file_of(
    "prices.proto", "Price", "Quote", imports=("currency.proto", "google/protobuf/timestamp.proto"), nested="Inner"
)


def from_protobuf(raw: Column, name: str, *, options: Any, binaryDescriptorSet: bytes) -> Column:  # noqa: N803
    """Read messages like Spark's function, by the descriptors that it is given: their price, and how many fields."""
    from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

    def read(data: bytes | None) -> tuple[float, int] | None:
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(binaryDescriptorSet).file:
            pool.AddSerializedFile(file.SerializeToString())  # fails if it does not follow its imports
        shape = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        try:
            message = shape.FromString(bytes(data or b""))
        except Exception:  # noqa: BLE001  # Spark's is null for whatever cannot be read
            return None
        return message.price, len(message.ListFields())

    return F.udf(read, "price double, fields int", useArrow=False)(raw)


@pytest.fixture
def protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Spark's function, which is in a package that is not available everywhere, by Protobuf's own reader."""
    monkeypatch.setattr("pyspark.sql.protobuf.functions.from_protobuf", from_protobuf)


@pytest.mark.usefixtures("protobuf")
def test_protobuf_of_each_version_becomes_the_message_of_the_newest_with_what_it_imports(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    old_file = file_of("prices.proto", "Quote", "Price")  # where Price is the second message
    old, new = classes_of(old_file), classes_of(CURRENCY_FILE, PRICES_FILE)

    def put(kind: Any, value: Any, **conf: Any) -> bytes:
        return written(ProtobufSerializer(kind, client, {"use.deprecated.format": False, **conf}), value)

    first = put(old["prices.Price"], old["prices.Price"](price=1.5))
    value = new["prices.Price"](price=2.5, of2=new["prices.Currency"](price=1))
    value.of3.FromJsonString("2026-01-01T00:00:00Z")
    second = put(new["prices.Price"], value)
    quote = put(new["prices.Quote"], new["prices.Quote"](price=3.5))
    inner = put(new["prices.Price.Inner"], new["prices.Price.Inner"](price=4.5))
    long_form = second[:5] + b"\2\0" + second[6:]
    schemas = read_subject(client, "prices-value")
    assert isinstance(schemas.reader, ProtobufMessage)
    assert schemas.reader.name == "prices.Price"
    values = [first, second, long_form, quote, inner, second[:5], second[:6] + b"\x0a", b"\0\0\0\0\x63\0"]
    other = "is another message of its schema"
    assert kept(spark, values, "protobuf", schemas) == [
        ({"price": 1.5, "fields": 1}, None),
        *[({"price": 2.5, "fields": 3}, None)] * 2,
        *[(None, other)] * 2,
        (None, UNFRAMED),
        (None, "is not Protobuf of its message"),
        (None, late(99)),
    ]
    for name, data in (("prices.Quote", quote), ("prices.Price.Inner", inner)):
        ((found, why),) = kept(spark, [data], "protobuf", read_subject(client, "prices-value", reader=name))
        assert (found["price"] > 3, why) == (True, None)
    lacking = read_subject(client, "prices-value", reader="prices.Price.Inner").writers[1]
    assert lacking.damage == "has no message prices.Price.Inner"
    for name in ("prices.Missing", "prices.Currency"):  # the latter is in another file, which no frame can name
        with pytest.raises(ConfigError, match=rf"newest schema of prices-value, 3, has no message {name}\."):
            read_subject(client, "prices-value", reader=name)
    headers: list[tuple[str, bytes]] = []
    kind = new["prices.Quote"]
    conf = {"schema.id.serializer": header_schema_id_serializer, "use.deprecated.format": False}
    bare = written(ProtobufSerializer(kind, client, conf), kind(price=3.5), headers=headers)
    shape = "offset int, value binary, headers array<struct<key: string, value: binary>>"
    df = spark.createDataFrame([(0, bare, headers)], shape)
    of_quotes = read_subject(client, "prices-value", reader="prices.Quote")
    assert kept_of(df, "protobuf", of_quotes) == [({"price": 3.5, "fields": 1}, None)]
    assert kept_of(df, "protobuf", schemas) == [(None, other)]


@pytest.mark.usefixtures("protobuf")
def test_values_of_protobuf_are_decoded_without_a_registry_by_a_message(
    spark: SparkSession, client: SchemaRegistryClient
) -> None:
    file = file_of("prices.proto", "Price", "Quote")
    kinds = classes_of(file)
    values = []
    for name in ("prices.Price", "prices.Quote"):
        serializer = ProtobufSerializer(kinds[name], client, {"use.deprecated.format": False})
        values.append(written(serializer, kinds[name](price=1.5)))
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    rows = kept(spark, [*values, b"\0"], "protobuf", ProtobufMessage("prices.Price", descriptors), framed=True)
    wrong = [(None, "is another message of its schema"), (None, UNFRAMED)]
    assert rows == [({"price": 1.5, "fields": 1}, None), *wrong]


# -- what others register ----------------------------------------------------------------------------------------------


def nested_twice(levels: int) -> str:
    """Return an Avro schema that doubles with each level, in a text that does not."""
    fields = [{"name": "x", "type": "int"}]
    for level in range(levels):
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level}"}]
    return json.dumps({"type": "record", "name": "Price", "fields": fields})


def test_a_schema_that_cannot_be_used_spoils_no_values_but_its_own(
    spark: SparkSession, client: SchemaRegistryClient, registry: FakeRegistry
) -> None:
    loop = [{"name": "Price", "subject": "prices-value", "version": 7}]
    recursive = price({"name": "next", "type": ["null", "Price"], "default": None})
    planted: list[tuple[dict[str, Any], str]] = [
        ({"schema": '{"type": "record"'}, "is not JSON: "),
        ({"schema": "[" * 5000}, "is not JSON: "),
        ({"schema": '{"type": "record", "fields": 5}'}, "is malformed"),
        ({"schema": '{"type": "nonsense"}'}, NOT_AVRO),
        ({"schema": "{}", "schemaType": "JSON"}, "is JSON, not avro"),
        ({"schema": "{}", "schemaType": "X\n" * 99}, "is X\\nX"),
        ({"schema": price(), "references": loop}, ""),  # a loop of references is no loop of types
        ({"schema": price(), "references": [{"name": "A", "subject": "gone", "version": 1}]}, "refers to one that the"),
        ({"schema": price({"name": "a", "type": "int", "doc": "x" * (5 << 20)})}, "is longer than 4 MB"),
        ({"schema": nested_twice(30)}, "has more than 10,000 fields"),
        ({"schema": recursive}, NOT_AVRO),
        ({"schema": price(CURRENCY)}, ""),
    ]
    for schema, _ in planted:
        registry.put("prices-value", schema)
    schemas = read_subject(client, "prices-value")
    good = AvroSerializer(client, price(CURRENCY))(
        {"price": 1.5, "currency": "USD"}, SerializationContext("prices", MessageField.VALUE, [])
    )
    assert good is not None
    body = good[5:]
    values = [b"\0" + one["id"].to_bytes(4, "big") + body for one in registry.subjects["prices-value"]]
    values[3:4] = [values[3][:5] + b"\0"]
    values[6] = values[6][:5] + body[:8]
    values[10] = values[10][:5] + b"\1"
    for (value, error), (_, why) in zip(kept(spark, values, "avro", schemas), planted, strict=True):
        if why:
            assert value is None
            assert why in (error or "")
            assert len(error or "") < 400
        else:
            assert (value["price"], error) == (1.5, None)
    registry.put("prices-value", {"schema": nested_twice(30).replace("Price", "Huge")})
    with pytest.raises(ConfigError, match=r"newest schema of prices-value, 13, has more than 10,000 fields\. Give"):
        read_subject(client, "prices-value")
    assert 12 in read_subject(client, "prices-value", reader=price()).writers


def test_a_schema_is_as_large_as_the_type_that_spark_would_make_of_it() -> None:
    assert count_fields(json.loads(price())) == 2
    assert count_fields(json.loads(nested_twice(40))) > 2**40
    assert count_fields({"type": "map", "values": ["null", {"type": "array", "items": "int"}]}) == 6
    assert count_fields({"type": "record", "name": "a.R", "fields": [{"name": "next", "type": ["null", "R"]}]}) == 3


@pytest.mark.parametrize("bomb", ["json", "protobuf"])
def test_a_schema_that_grows_with_each_use_of_its_types_is_refused(client: SchemaRegistryClient, bomb: str) -> None:
    if bomb == "json":
        parts = {
            f"P{n}": {"type": "object", "properties": {x: {"$ref": f"#/P{n + 1}"} for x in "ab"}} for n in range(30)
        }
        schema = Schema(json.dumps({**parts, "P30": {"type": "string"}, "$ref": "#/P0"}), "JSON")
    else:
        file = descriptor_pb2.FileDescriptorProto(name="bomb.proto", syntax="proto3")
        for n in range(30):
            message = file.message_type.add(name=f"P{n}")
            for number, name in enumerate("ab", 1):
                message.field.add(name=name, number=number, label=1, type=11, type_name=f".P{n + 1}")
        file.message_type.add(name="P30")
        schema = Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    client.register_schema("s", schema)
    with pytest.raises(ConfigError, match="has more than 10,000 fields"):
        read_subject(client, "s")


@pytest.mark.parametrize(
    ("schema", "kind", "why"),
    [
        ("[1", "JSON", "Expecting|is not JSON"),
        ("5", "JSON", "is not a JSON Schema|variant"),
        ('{"$ref": "other.json"}', "JSON", "refers to other.json, which is not there"),
        ('{"$ref": 5}', "JSON", "refers to 5, which is not there"),
        ('syntax = "proto3";', "PROTOBUF", "has a file that is not in serialized form: default"),
        ("AAAA", "PROTOBUF", "has a file that is not"),
        ("", "PROTOBUF", "has no message"),
        (file_of("a", "A", imports=("b.proto",)), "PROTOBUF", "imports a file that it does not refer to: b.proto"),
        (file_of("a", "A", imports=("confluent/no.proto",)), "PROTOBUF", "does not refer to: confluent/no.proto"),
        (file_of("a", "A", imports=("default",)), "PROTOBUF", "has a file that imports itself: default"),
        (file_of("a", "A", "A"), "PROTOBUF", "has a file that is not Protobuf, or lacks a type: default"),
        ("{}", "XML", "of s is XML, which is unknown"),
    ],
)
def test_a_newest_schema_that_cannot_be_used_says_why(
    client: SchemaRegistryClient, registry: FakeRegistry, schema: Any, kind: str, why: str
) -> None:
    if not isinstance(schema, str):
        schema = base64.b64encode(schema.SerializeToString()).decode()
    registry.put("s", {"schema": schema, "schemaType": kind})
    with pytest.raises(ConfigError, match=why):
        read_subject(client, "s")


def test_files_that_import_each_other_are_refused(client: SchemaRegistryClient, registry: FakeRegistry) -> None:
    for name, other in (("a.proto", "b.proto"), ("b.proto", "a.proto")):
        text = base64.b64encode(file_of(name, "Currency", imports=(other,)).SerializeToString()).decode()
        there = [{"name": other, "subject": other, "version": 1}]
        registry.put(name, {"schema": text, "schemaType": "PROTOBUF", "references": there})
    with pytest.raises(ConfigError, match=r"has a file that imports itself: [ab]\.proto"):
        read_subject(client, "a.proto")


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_deleted_version_is_read_and_is_the_newest_only_if_there_is_no_other(client: SchemaRegistryClient) -> None:
    for schema in (price(), price(CURRENCY)):
        client.register_schema("s", Schema(schema, "AVRO"))
    client.delete_version("s", 2)
    schemas = read_subject(client, "s")
    assert (schemas.reader, set(schemas.writers)) == (price(), {1, 2})
    client.delete_version("s", 1)
    assert read_subject(client, "s").reader == price(CURRENCY)
    client.delete_version("s", 1, permanent=True)
    assert set(read_subject(client, "s").writers) == {2}


def test_a_subject_of_more_versions_than_a_plan_has_room_for_is_read_from_its_newest_and_warns(
    client: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lvq_spark.decoding.schema_registry._MOST_VERSIONS", 2)
    for name in ("a", "b", "c"):
        client.register_schema("s", Schema(price({"name": name, "type": "int"}), "AVRO"))
    assert set(read_subject(client, "s").writers) == {2, 3}
    assert "s has 3 versions; the newest 2 are read, and values of others are bad rows" in caplog.text


def test_a_subject_in_a_context_has_the_ids_of_that_context(spark: SparkSession, client: SchemaRegistryClient) -> None:
    client.register_schema("prices-value", Schema(price(), "AVRO"))
    client.register_schema(":.eu:prices-value", Schema(price(CURRENCY), "AVRO"))
    schemas = read_subject(client, ":.eu:prices-value")
    assert set(schemas.writers) == {1}
    value = b"\0\0\0\0\1" + bytes(8) + b"\6EUR"
    assert kept(spark, [value], "avro", schemas) == [({"price": 0.0, "currency": "EUR"}, None)]


def test_only_the_driver_asks_the_registry_and_no_plan_shows_a_secret(
    spark: SparkSession, registry: FakeRegistry
) -> None:
    with registry.served() as url:
        client = SchemaRegistryClient({"url": url, "basic.auth.user.info": "me:hunter2"})
        values = [written(AvroSerializer(client, price()), {"price": float(n)}) for n in range(100)]
        schemas = read_subject(client, "prices-value")
        asked = len(registry.asked)
        assert read_subject(client, "prices-value") == schemas
        assert len(registry.asked) - asked == 2, "the client remembers versions, and asks which there are"
    df = spark.createDataFrame([(value,) for value in values], "value binary").repartition(4)
    decoded = decode(df, "avro", schemas)
    assert sum(row.value.price for row in decoded.collect()) == sum(range(100))  # though the registry is gone
    plan = decoded._jdf.queryExecution().toString()  # type: ignore[operator]
    for text in (plan, repr(schemas), str(vars(type(schemas)))):
        assert "hunter2" not in text
        assert "127.0.0.1" not in text


def test_a_version_that_appears_while_a_stream_runs_is_read_where_each_batch_asks_for_the_schemas(
    spark: SparkSession,
    make_queue: MakeQueue,
    client: SchemaRegistryClient,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
) -> None:
    queue = make_queue()
    writes = [AvroSerializer(client, price()), AvroSerializer(client, price(CURRENCY))]
    seen: dict[str, Any] = {}
    errors: list[str | None] = []

    def put(key: str, serializer: AvroSerializer, **value: Any) -> None:
        with queue.producer() as producer:
            producer.put(key, written(serializer, value))

    put("old", writes[0], price=1.5)
    early = read_subject(client, "prices-value")

    def take(batch: DataFrame, _: int) -> None:
        errors.extend(row.value_error for row in decode(batch, "avro", early, on_error="keep").collect())
        rows = decode(batch, "avro", read_subject(client, "prices-value")).collect()
        seen.update((bytes(row.key).decode(), row.value.asDict()) for row in rows)

    register(spark)
    reader = spark.readStream.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    stream = reader.option("subscribe", queue.topic).load().writeStream.foreachBatch(take)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        eventually(lambda: query.exception() is not None or "old" in seen, 120)
        put("new", writes[1], price=2.5, currency="USD")
        eventually(lambda: query.exception() is not None or "new" in seen, 120)
        assert query.exception() is None
    finally:
        query.stop()
    assert seen == {"old": {"price": 1.5}, "new": {"price": 2.5, "currency": "USD"}}
    assert errors == [None, late(2)]


def test_a_queue_of_confluents_serializers_holds_their_values(
    client: SchemaRegistryClient, make_queue: MakeQueue
) -> None:
    codec = serializers(AvroSerializer(client, price()), AvroDeserializer(client))
    topic = make_queue()
    queue = LastValueQueue(topic.topic, key_header=None, value=codec, cluster=topic.cluster)
    with queue.producer() as producer:
        producer.put("good", {"price": 1.5})
    with topic.producer() as producer:
        producer.put("short", b"\0\0\0\0\1\0")
        producer.put("unknown", b"\0\0\0\0\x63" + bytes(8))
    with queue.view() as view:
        assert view["good"] == {"price": 1.5}
        for key in ("short", "unknown"):
            with pytest.raises(DecodeError, match=r"AvroSerializer/AvroDeserializer"):
                view[key]


# -- the registry ------------------------------------------------------------------------------------------------------


def test_a_client_with_certificates_a_login_and_a_second_address_gets_through_a_busy_registry(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    registry.put("s", {"schema": price()})
    registry.statuses[:] = [503]
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(server)
    server.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("me@example.org")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    with registry.served(server) as url:
        config = {"url": f"https://127.0.0.1:1,{url}", "ssl.ca.location": str(tmp_path / "ca.pem")}
        config |= {"retries.wait.ms": 1, "basic.auth.user.info": "me:hunter2"}
        with pytest.raises(TransportError, match=r"registry 127\.0\.0\.1, 127\.0\.0\.1 cannot be reached"):
            read_subject(SchemaRegistryClient(config), "s")
        client = SchemaRegistryClient({**config, "ssl.certificate.location": str(tmp_path / "own.pem")})
        assert read_subject(client, "s").reader == price()
    assert {login for _, login in registry.asked} == {"Basic bWU6aHVudGVyMg=="}
    assert len(registry.asked) == 4, "one was repeated"


def test_a_client_with_a_token_shows_it(registry: FakeRegistry, url: str) -> None:
    registry.put("s", {"schema": price()})
    config = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "t0ken"}
    config |= {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    read_subject(SchemaRegistryClient({"url": url, **config}), "s")
    assert {login for _, login in registry.asked} == {"Bearer t0ken"}


def test_a_registry_that_does_not_help_says_why(registry: FakeRegistry, url: str, client: SchemaRegistryClient) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1 has no missing-value"):
        read_subject(client, "missing-value")
    kinds = {401: AuthenticationFailed, 403: AuthenticationFailed, 302: TransportError, 429: TransportError}
    for status, kind in {**kinds, 500: TransportError}.items():
        registry.statuses[:] = [status]
        with pytest.raises(kind, match=rf"refused with {status}\.") as caught:
            read_subject(client, "s")
        assert (caught.value.code, caught.value.retriable) == (f"HTTP_{status}", status in (429, 500))
    nowhere = SchemaRegistryClient({"url": "http://127.0.0.1:1", "max.retries": 0})
    with pytest.raises(TransportError, match=r"cannot be reached: .*refused") as caught:
        read_subject(nowhere, "s")
    assert caught.value.retriable


def test_an_object_that_is_no_client_of_a_registry_is_refused() -> None:
    for wrong in (None, "http://there", AsyncSchemaRegistryClient({"url": "http://there"})):
        with pytest.raises(ConfigError, match="not a SchemaRegistryClient") as caught:
            read_subject(wrong, "s")  # type: ignore[arg-type]
        assert caught.value.options == ("client",)


def saying(answer: bytes, pause: float = 0) -> type[Answers]:
    """Return a server that sends ``answer``, byte by byte if there is a pause, and then breaks off."""

    class Saying(Answers):
        def do_GET(self) -> None:  # noqa: N802  # http.server's name
            with suppress(OSError):
                for at in range(0, len(answer), 1 if pause else len(answer)):
                    self.wfile.write(answer[at : at + 1] if pause else answer)
                    time.sleep(pause)

    return Saying


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "cannot be reached: RemoteProtocolError"),
        (OK + b"Content-Length: 9\r\n\r\n[1", "cannot be reached: RemoteProtocolError"),
        (OK + b"\r\n<html>", "is not a schema registry"),
        (OK + b"\r\n5", "is not a schema registry"),
        (OK + b'\r\n["ab"]', "is not a schema registry"),
        (OK + b"\r\n[[1]]", "is not a schema registry"),
        (OK + b"\r\n" + b"[" * 100_000, "is not a schema registry"),
        (b"HTTP/1.1 500 No\r\n\r\nhunter2", "refused with 500"),
    ],
)
def test_anything_that_answers_in_place_of_a_registry_makes_an_error_with_a_type(answer: bytes, said: str) -> None:
    with serving(saying(answer)) as url, pytest.raises(TransportError, match=said) as caught:
        read_subject(SchemaRegistryClient({"url": url, "max.retries": 0}), "s")
    assert "hunter2" not in str(caught.value)


def test_a_registry_that_says_a_byte_now_and_then_is_not_waited_for() -> None:
    with serving(saying(OK + b"X: " + bytes(50), 0.1)) as url:
        client = SchemaRegistryClient({"url": url, "max.retries": 0})
        with pytest.raises(TransportError, match=r"has not answered within 0\.2 s") as caught:
            read_subject(client, "s", timeout=0.2)
    assert caught.value.retriable


def test_no_error_shows_a_secret(registry: FakeRegistry, url: str) -> None:
    with pytest.raises(ConfigError, match="holds a password") as refused:
        read_subject(SchemaRegistryClient({"url": "http://me:hunter2@there"}), "s")
    assert "hunter2" not in str(refused.value)
    config = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "hunter2\n"}
    config |= {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    client = SchemaRegistryClient({"url": url, "max.retries": 0, **config})
    with pytest.raises(TransportError, match="cannot be reached: LocalProtocolError") as illegal:
        read_subject(client, "s")  # the HTTP library's error quotes the token
    assert "hunter2" not in "".join(traceback.format_exception(illegal.value))


def test_a_missing_package_names_its_extra(
    client: SchemaRegistryClient, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put("s", {"schema": "{}", "schemaType": "JSON"})
    monkeypatch.setitem(sys.modules, "referencing", None)
    with pytest.raises(MissingExtra, match=r"needs the package referencing.*pip install 'lvq-kafka\[registry\]'"):
        read_subject(client, "s")
