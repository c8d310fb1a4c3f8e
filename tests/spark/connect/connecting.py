"""Features that work with Spark Connect, and the errors of those that do not.

This is not named as a test module: `tests/spark/test_connect.py` runs it, since a process has sessions of one kind
only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, TopicRecreated
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import (
    ProtobufMessage,
    decode,
    merge_each,
    pin,
    publish,
    read_version,
    refresh,
    register,
    snapshot,
    task_errors,
    versions,
)
from lvq_spark.session.local_session import _choose_java
from tests.spark.jars import with_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(300),
    # Sessions cannot change a server's start options; PySpark tries to, and warns.
    pytest.mark.filterwarnings("ignore:Failed to set spark:UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MakeQueue = Callable[..., LastValueQueue[bytes]]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session of a server on this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    _choose_java()
    properties = with_jars(
        **{
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
        }
    )
    builder = SparkSession.builder.remote("local[2]")
    for name, value in properties.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def make_queue(lvq_cluster: KafkaCluster, lvq_topic: str) -> MakeQueue:
    """Return a function that creates the test's topic with values for some keys, and returns a queue on it."""

    def make(*keys: str, partitions: int = 2) -> LastValueQueue[bytes]:
        lvq_cluster.topics.create(lvq_topic, partitions=partitions, config={"cleanup.policy": "compact"})
        queue = LastValueQueue[bytes](lvq_topic, key_header=None, cluster=lvq_cluster)
        put(queue, *keys)
        return queue

    return make


def put(queue: LastValueQueue[bytes], *keys: str, value: bytes = b'{"price": 1}') -> None:
    with queue.producer() as producer:
        for key in keys:
            producer.put(key, value)


def keys(frame: DataFrame) -> list[str]:
    """Return the keys of its rows, including duplicates."""
    return sorted(bytes(row.key).decode() for row in frame.select("key").collect())


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slices", [1, 3])
def test_a_snapshot_is_read_at_the_cut_that_was_pinned(spark: SparkSession, make_queue: MakeQueue, slices: int) -> None:
    queue = make_queue("a", "b", "c", "d")
    rows, some = snapshot(spark, queue, slices=slices), snapshot(spark, queue, slices=slices, keys=["a", b"d", "x"])
    put(queue, "e")
    assert keys(rows) == keys(rows) == ["a", "b", "c", "d"]
    assert keys(some) == ["a", "d"]


def test_the_format_reads_batches_and_tables_of_sql(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    queue = make_queue("a", "b", "c")
    register(spark, {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "kafka.sasl.password": "hunter2"})
    assert keys(spark.read.format("lvq").option("subscribe", lvq_topic).load()) == ["a", "b", "c"]
    spark.sql(f"CREATE TABLE read_here USING lvq OPTIONS (subscribe '{lvq_topic}')")
    table = spark.table("read_here")
    assert keys(table) == ["a", "b", "c"]
    put(queue, "d")
    assert keys(table) == ["a", "b", "c", "d"], "each action analyzes the table again"


def test_a_stream_is_read(
    spark: SparkSession, make_queue: MakeQueue, lvq_topic: str, source: Any, tmp_path: Path
) -> None:
    make_queue("a", "b", "c")
    query = (
        source(spark.readStream)
        .load()
        .selectExpr("string(key) AS key")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"), format="parquet")
    )
    assert query.awaitTermination(120)
    assert sorted(row.key for row in spark.read.parquet(str(tmp_path / "rows")).collect()) == ["a", "b", "c"]


@pytest.fixture
def source(spark: SparkSession, lvq_broker: ProvidedBroker, lvq_topic: str) -> Any:
    """Return a function that sets up a reader of the test's topic."""
    register(spark)
    servers = lvq_broker.bootstrap_servers
    return lambda reader: reader.format("lvq").options(**{"kafka.bootstrap.servers": servers, "subscribe": lvq_topic})


def test_a_failing_task_raises_an_error_of_ours(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    spec = pin(queue := make_queue("a"))
    lvq_cluster.topics.delete(lvq_topic)
    make_queue("a")
    with pytest.raises(TopicRecreated), task_errors():
        snapshot(spark, queue, spec=spec).collect()


def test_values_are_decoded_and_a_package_that_is_missing_is_told_at_once(
    spark: SparkSession, make_queue: MakeQueue
) -> None:
    queue = make_queue("a", "b")
    put(queue, "bad", value=b"none")
    rows = snapshot(spark, queue)
    assert decode(rows, "json", "price double", on_error="drop").selectExpr("sum(value.price)").first()[0] == 2.0  # type: ignore[index]
    with pytest.raises(Exception, match="is not JSON of its schema"):
        decode(rows, "json", "price double").collect()
    with pytest.raises(ConfigError, match="lacks spark-protobuf"):
        decode(rows, "protobuf", ProtobufMessage("prices.Price", b"none"))


# -- stores, and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_spark", [False, True])
def test_a_store_is_refreshed_where_both_see_its_files(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, by_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, path = make_queue("a", "b", "c", "d"), f"file:{tmp_path}/store"
    if by_spark:
        monkeypatch.setattr("lvq_spark.store.driver_delta.OFFSETS", 0)
    assert refresh(spark, queue, path).kind == "full"
    put(queue, "a", "e")
    assert (refresh(spark, queue, path).kind, keys(read_version(spark, path))) == ("delta", ["a", "b", "c", "d", "e"])
    assert [version.rows for version in versions(spark, path)] == [4, 5]
    with pytest.raises(ConfigError, match="a path that starts with file:"):
        refresh(spark, queue, str(tmp_path))


def test_a_frame_is_published(spark: SparkSession, make_queue: MakeQueue) -> None:
    queue = make_queue("a", "b")
    done = publish(
        spark.createDataFrame([("a", "new"), ("c", "new")], "key string, value string"), queue, vanished="delete"
    )
    assert (done.written, done.vanished) == (2, 1)
    with queue.view() as view:
        assert dict(view) == {"a": b"new", "c": b"new"}


def test_functions_for_batches_cannot_leave_this_process_and_say_so(make_queue: MakeQueue, spark: SparkSession) -> None:
    queue = make_queue("a")
    with pytest.raises(ConfigError, match=r"merge_each does not work with Spark Connect.*Call merge on a schedule"):
        merge_each(queue, "prices")


# -- declarative pipelines ---------------------------------------------------------------------------------------------

PIPELINE = """
from pyspark import pipelines
from pyspark.sql import SparkSession

spark = SparkSession.getActiveSession()
OPTIONS = {options!r}


@pipelines.materialized_view
def pipeline_newest():
    return spark.read.format("lvq").options(**OPTIONS).load().selectExpr("string(key) AS key")


@pipelines.table
def pipeline_changes():
    return spark.readStream.format("lvq").options(**OPTIONS).load().selectExpr("string(key) AS key")
"""

SPEC = """
name: lvq
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""


@contextmanager
def suppress_if(kind: type[Exception], text: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        if text not in str(error):
            raise


def test_a_declarative_pipeline_reads_batches_and_streams(
    spark: SparkSession,
    make_queue: MakeQueue,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.errors import PySparkValueError
    from pyspark.pipelines.cli import run

    make_queue("a", "b", "c")
    register(spark)
    options = {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "subscribe": lvq_topic}
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "prices.py").write_text(PIPELINE.format(options=options))
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # it would stop the session of all tests
    # If Python has run on the server, the client of PySpark 4.3 stumbles over the last answer, after the run's end.
    with suppress_if(PySparkValueError, "__python_accumulator__"):
        run(tmp_path / "spark-pipeline.yml", [], False, [], False)
    for table in ("pipeline_newest", "pipeline_changes"):
        assert sorted(row.key for row in spark.table(table).collect()) == ["a", "b", "c"], table
