"""Values written by confluent-kafka's own serializers, with schemas of its mock registry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lvq_kafka import LastValueQueue, serializers
from lvq_kafka.errors import ConfigError, DecodeError
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import register
from lvq_spark.decoding.avro_names import whole
from lvq_spark.decoding.decode import ProtobufMessage, decode
from lvq_spark.decoding.schema_registry import SchemaRegistry
from tests.spark.registries import served
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]

CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}


def price(*more: Any) -> str:
    return json.dumps({"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}, *more]})


@pytest.fixture
def client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": f"mock://{uuid.uuid4()}"})


@pytest.fixture
def registry(client: SchemaRegistryClient) -> Iterator[SchemaRegistry]:
    with served(client) as url:
        yield SchemaRegistry(url)


def written(serializer: Any, value: object, topic: str = "prices") -> bytes:
    data: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE, []))
    return data


def kept(spark: SparkSession, values: list[bytes], *arguments: Any, **options: Any) -> list[tuple[Any, str | None]]:
    """Return each value and its error."""
    df = spark.createDataFrame(list(enumerate(values)), "offset int, value binary")
    rows = decode(df, *arguments, **options, on_error="keep").orderBy("offset").collect()
    plain = (row.value.asDict(recursive=True) if hasattr(row.value, "asDict") else row.value for row in rows)
    return [(value, row.value_error) for value, row in zip(plain, rows)]


def test_avro_of_each_version_of_a_subject_becomes_the_newest(
    spark: SparkSession, client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    old = written(AvroSerializer(client, price()), {"price": 1.5})
    new = written(AvroSerializer(client, price(CURRENCY)), {"price": 2.5, "currency": "USD"})
    other = written(AvroSerializer(client, price()), {"price": 1.5}, "others")
    rows = kept(spark, [old, new, old + b"\0", new[:-1], b"", other], "avro", registry.subject("prices-value"))
    broken = (None, "is not Avro of its schema")
    assert rows[:4] == [
        ({"price": 1.5, "currency": "EUR"}, None),
        ({"price": 2.5, "currency": "USD"}, None),
        *[broken] * 2,
    ]
    assert rows[4] == (None, "does not start with a registry's frame")
    assert rows[5] == (
        None,
        "names the schema 3, which is not in prices-value, or was added after its schemas were read",
    )


def test_avro_that_refers_to_types_of_other_subjects_is_decoded(
    spark: SparkSession, client: SchemaRegistryClient, registry: SchemaRegistry
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
    schemas = registry.subject("quotes-value")
    assert kept(spark, [data, data + b"\0"], "avro", schemas) == [(value, None), (None, "is not Avro of its schema")]
    assert schemas.reader in schemas.writers.values()
    missing = Schema(quote, "AVRO", [SchemaReference("money.Currency", "gone", 1)])
    client.register_schema("lost-value", missing)
    with pytest.raises(ConfigError, match="has no gone"):
        registry.subject("lost-value")


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


def test_values_of_json_schema_and_protobuf_are_decoded_without_the_frame_of_their_registry(
    spark: SparkSession, client: SchemaRegistryClient, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = {"title": "Price", "type": "object", "properties": {"price": {"type": "number"}}}
    data = written(JSONSerializer(json.dumps(title), client), {"price": 1.5})
    unframed = "does not start with a registry's frame"
    rows = kept(spark, [data, data + b"}", data[5:], b"", data[:5]], "json", "price double", framed=True)
    wrong = "is not JSON of its schema"
    assert rows == [({"price": 1.5}, None), (None, wrong), (None, unframed), (None, unframed), (None, wrong)]
    with pytest.raises(ConfigError, match=r"is JSON, not Avro\. .*framed=True"):
        registry.subject("prices-value")
    with pytest.raises(ConfigError, match=r"Omit framed, and give SchemaRegistry"):
        kept(spark, [], "avro", price(), framed=True)

    file, messages = protobuf("Price", "Quote")
    price_of, quote_of = (ProtobufSerializer(one, client, {"use.deprecated.format": False}) for one in messages)
    first = written(price_of, messages[0](price=1.5), "proto")
    second = written(quote_of, messages[1](price=1.5), "proto")
    # A fake replaces Spark's function, which is in a package that is not available everywhere; it returns its input.
    monkeypatch.setattr("pyspark.sql.protobuf.functions.from_protobuf", given)
    rows = kept(spark, [first, second, b"\0"], "protobuf", ProtobufMessage("prices.Price", file), framed=True)
    assert messages[0].FromString(bytes(rows[0][0]["data"])).price == 1.5
    assert [error for _, error in rows] == [None, "is a message other than the first of its schema", unframed]


def given(data: Column, *_: object, **__: object) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

    return F.struct(data.alias("data"))


def protobuf(*names: str) -> tuple[bytes, list[Any]]:
    """Return the descriptors of a file with these messages, each with one price, and their classes."""
    file = descriptor_pb2.FileDescriptorProto(name="prices.proto", package="prices", syntax="proto3")
    for name in names:
        file.message_type.add(name=name).field.add(name="price", number=1, label=1, type=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"prices.{name}")) for name in names]
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), classes


def test_a_version_that_appears_while_a_stream_runs_is_read_where_each_batch_asks_for_the_schemas(
    spark: SparkSession,
    make_queue: MakeQueue,
    client: SchemaRegistryClient,
    registry: SchemaRegistry,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
) -> None:
    queue = make_queue()
    writes = [AvroSerializer(client, price()), AvroSerializer(client, price(CURRENCY))]
    seen: dict[str, Any] = {}
    late: list[str | None] = []

    def put(key: str, serializer: AvroSerializer, **value: Any) -> None:
        with queue.producer() as producer:
            producer.put(key, written(serializer, value))

    put("old", writes[0], price=1.5)
    early = registry.subject("prices-value")

    def take(batch: DataFrame, _: int) -> None:
        late.extend(row.value_error for row in decode(batch, "avro", early, on_error="keep").collect())
        rows = decode(batch, "avro", registry.subject("prices-value")).collect()
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
    assert late == [None, "names the schema 2, which is not in prices-value, or was added after its schemas were read"]


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
