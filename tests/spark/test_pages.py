"""The pages about Spark: their functions and statements, run on a real queue."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import lvq_spark
from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.kafka import KafkaCluster
from tests.pages import ROOT, block, blocks, page
from tests.spark.registries import FakeRegistry
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK = "docs/how-to/spark.md"
CLUSTER = "docs/how-to/spark-cluster.md"
SPARK_CALLS = "import lvq_spark\n" + block(SPARK, "python", "def latest")

Queue = LastValueQueue[bytes]


def rows_of(frame: DataFrame) -> dict[bytes, tuple[bytes, int]]:
    """Return value and offset by key."""
    return {bytes(row.key): (bytes(row.value), row.offset) for row in frame.collect()}


def values_of(queue: Queue) -> dict[bytes, tuple[bytes, int]]:
    with queue.view() as view:
        return {key.encode(): (view[key], view.entry(key).position.offset) for key in view}


@pytest.fixture
def queue(lvq_cluster: KafkaCluster, lvq_topic: str) -> Queue:
    queue = LastValueQueue.declare(lvq_topic, key_header="ticker", cluster=lvq_cluster)
    with queue.producer() as producer:
        for key, value in (("IBM", b"118.50"), ("MSFT", b"27.95"), ("IBM", b"119.00")):
            producer.put(key, value)
    return queue


def test_the_program_prints_what_the_page_says(
    spark: SparkSession, lvq_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = [each for each in blocks(SPARK) if each.output is not None and "declare" in each.body]
    names: dict[str, Any] = {}
    exec(program.body.replace("localhost:9092", lvq_cluster.config.bootstrap_servers), names)
    assert capsys.readouterr().out == program.output
    names["queue"].drop()
    names["queue"].cluster.close()


def test_the_functions_do_what_they_say(
    spark: SparkSession, lvq_cluster: KafkaCluster, queue: Queue, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(SPARK_CALLS.replace('"quotes"', repr(queue.name)), names)
    rows = rows_of(names["same_cut"](spark, queue))
    assert rows == values_of(queue) == {b"IBM": (b"119.00", 2), b"MSFT": (b"27.95", 1)}
    latest = names["latest"](spark, lvq_cluster.config.bootstrap_servers)
    assert {row.key: row.value for row in latest.collect()} == {"IBM": "119.00", "MSFT": "27.95"}
    assert rows_of(names["nightly"](spark, queue, str(tmp_path / "store"))) == rows
    published = names["back"](latest.where("key = 'IBM'").select("key", "value"), queue)
    assert (published.written, published.vanished) == (1, 1)
    assert values_of(queue).keys() == {b"IBM"}
    queue.drop()


def test_a_stream_says_when_to_refresh(
    spark: SparkSession, lvq_cluster: KafkaCluster, queue: Queue, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(SPARK_CALLS + block(SPARK, "python", "def whenever_something_is_new"), names)
    lvq_spark.register(spark)
    stream = spark.readStream.format("lvq").option("kafka.bootstrap.servers", lvq_cluster.config.bootstrap_servers)
    store, checkpoint = str(tmp_path / "store"), str(tmp_path / "checkpoint")
    query = names["whenever_something_is_new"](queue, stream.option("queue", queue.name).load(), store, checkpoint)
    eventually(lambda: bool(lvq_spark.versions(spark, store)), 60)
    query.stop()
    assert rows_of(lvq_spark.read_version(spark, store)) == values_of(queue)
    queue.drop()


def test_the_page_on_ttl_shows_when_values_expire(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    names: dict[str, Any] = {}
    exec(block("docs/options/ttl.md", "python", "def deadlines"), names)
    queue = LastValueQueue.declare(lvq_topic, key_header="id", ttl=Ttl(default=60.0), cluster=lvq_cluster)
    with queue.producer() as producer:
        producer.put("a", b"1")
        producer.put("b", b"1", ttl=90.0)
    rows = names["deadlines"](spark, queue).collect()
    with queue.view() as view:
        stamps = {key.encode(): view.entry(key).timestamp for key in view}
    lives = {bytes(row.key): row.expires.timestamp() - stamps[bytes(row.key)] for row in rows}
    assert lives == {b"a": pytest.approx(60.0), b"b": pytest.approx(90.0)}
    queue.drop()


def test_an_action_whose_task_may_fail_returns_the_rows(spark: SparkSession, queue: Queue) -> None:
    names: dict[str, Any] = {}
    exec(block(CLUSTER, "python", "task_errors()"), names)
    assert {bytes(row.key) for row in names["current_rows"](spark, queue)} == {b"IBM", b"MSFT"}
    queue.drop()


def test_values_are_decoded_by_the_schemas_of_a_registry(spark: SparkSession, queue: Queue) -> None:
    schema = '{"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}]}'
    names: dict[str, Any] = {}
    exec("import lvq_spark\n" + block(SPARK, "python", "def typed_quotes"), names)
    with FakeRegistry().served() as url, SchemaRegistryClient({"url": url}) as client:
        context = SerializationContext(queue.topic, MessageField.VALUE, [])
        value = AvroSerializer(client, schema)({"price": 1.5}, context)
        with queue.producer() as producer:
            for key in ("IBM", "MSFT"):
                producer.put(key, value)
        rows = names["typed_quotes"](spark, queue, "me:s3cret", url).collect()
    assert [row.value.price for row in rows] == [1.5, 1.5]
    queue.drop()


def test_a_batch_is_decoded_by_the_schemas_of_its_moment(spark: SparkSession) -> None:
    schema = '{"type": "record", "name": "Price", "fields": [{"name": "price", "type": "double"}]}'
    names: dict[str, Any] = {}
    exec(SPARK_CALLS + block(SPARK, "python", "def typed(client"), names)
    written: list[DataFrame] = []
    with FakeRegistry().served() as url, SchemaRegistryClient({"url": url}) as client:
        context = SerializationContext("quotes", MessageField.VALUE, [])
        value = AvroSerializer(client, schema)({"price": 1.5}, context)
        take = names["typed"](client, written.append)
        take(spark.createDataFrame([(b"IBM", value)], "key binary, value binary"), 0)
    (frame,) = written
    assert [row.value.price for row in frame.collect()] == [1.5]


def test_the_statements_in_sql_run(spark: SparkSession, lvq_cluster: KafkaCluster, queue: Queue) -> None:
    names: dict[str, Any] = {}
    exec(SPARK_CALLS, names)
    names["latest"](spark, lvq_cluster.config.bootstrap_servers)  # registers the format
    script = block(SPARK, "sql", "CREATE TABLE").replace("localhost:9092", lvq_cluster.config.bootstrap_servers)
    statements = re.sub("--.*", "", script.replace("queue 'quotes'", f"queue '{queue.name}'")).split(";")
    try:
        found = [spark.sql(statement).collect() for statement in statements if statement.strip()]
        assert [len(rows) for rows in found] == [0, 2, 2, 0]
        assert spark.table("latest").count() == 2
    finally:
        spark.sql("DROP TABLE IF EXISTS quotes")
        spark.catalog.dropTempView("latest")
        queue.drop()


def options(job: Path) -> set[str]:
    """Return the options of a job's parser."""
    parser = runpy.run_path(str(job))["parser"]()
    return {option for action in parser._actions for option in action.option_strings}


def test_a_job_has_the_options_that_the_page_gives_it() -> None:
    jobs = {path.name: options(path) for path in (ROOT / "spark/jobs").glob("*.py")}
    commands = re.findall(r"\b(\w+\.py)((?:(?!\w+\.py)[^`])*)", page(SPARK) + page(CLUSTER))
    given = {(job, option) for job, text in commands if job in jobs for option in re.findall("--[a-z-]+", text)}
    assert len(given) >= 3
    assert not [(job, option) for job, option in given if option not in jobs[job]]
