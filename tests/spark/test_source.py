"""The format ``lvq`` in a real Spark session on a real broker: one cut per DataFrame, whatever is done with it."""

from __future__ import annotations

import json
import pickle
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import read_version, refresh, snapshot
from lvq_spark.source.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Load = Callable[..., "DataFrame"]
Uncommitted = Callable[[LastValueQueue[bytes]], AbstractContextManager[None]]

CONNECTOR = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)


@pytest.fixture
def load(spark: SparkSession, lvq_broker: ProvidedBroker, lvq_topic: str) -> Load:
    """Return a function that loads the test's topic."""
    register(spark)

    def load(schema: str | None = None, /, **options: str) -> DataFrame:
        reader = spark.read.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
        if not options.keys() & {"queue", "assign"}:
            reader = reader.option("subscribe", lvq_topic)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


def append(log: Any, topic: str, *pairs: tuple[str, str | None]) -> None:
    writer = log.writer()
    for receipt in [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


def values(frame: DataFrame) -> dict[str, str | None]:
    """Return values by key; fail if a key has two rows."""
    rows = frame.select("key", "value").collect()
    found = {bytes(row.key).decode(): None if row.value is None else bytes(row.value).decode() for row in rows}
    assert len(found) == len(rows)
    return found


def millis(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.selectExpr("unix_millis(timestamp)").collect()]


# -- types -------------------------------------------------------------------------------------------------------------


def test_a_timestamp_is_an_instant_whatever_the_session_takes_the_word_for(
    spark: SparkSession, make_queue: MakeQueue, load: Load, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue.cluster, queue.topic, ("a", "1"))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        refresh(spark, queue, str(tmp_path))
        frames = [
            *(snapshot(spark, queue, slices=slices) for slices in (1, 3)),
            *(load(), load("timestamp timestamp_ltz"), read_version(spark, str(tmp_path))),
        ]
        told = {(frame.schema["timestamp"].dataType.simpleString(), *millis(frame)) for frame in frames}
    finally:
        spark.conf.unset("spark.sql.timestampType")
    assert told == {("timestamp", *millis(snapshot(spark, queue)))}


# -- one row for each key ----------------------------------------------------------------------------------------------


def test_there_is_one_row_for_each_key_in_the_columns_of_the_connector(
    spark: SparkSession, make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue(2, key_header="ticker")
    with queue.producer() as producer:
        for n in range(50):
            producer.put(f"k{n % 7}", b"%d" % n)
        producer.delete("k3")
        producer.put("", b"the empty key")
    frame = load(includeHeaders="true")
    assert (
        frame.schema
        == spark.createDataFrame([], f"{CONNECTOR}, headers array<struct<key: string, value: binary>>").schema
    )
    with queue.view() as view:
        entries = {entry.key: entry for entry in view.snapshot().entries()}
    rows = {bytes(row.key).decode(): row for row in frame.collect()}
    assert rows.keys() == entries.keys()
    assert len(rows) == 7
    for key, row in rows.items():
        entry = entries[key]
        assert (bytes(row.value), row.partition, row.offset) == (entry.value, *entry.position[1:])
        assert row.timestamp.timestamp() == entry.timestamp
        assert (row.topic, row.timestampType) == (lvq_topic, 1)
        assert [(header.key, bytes(header.value)) for header in row.headers] == list(entry.headers)
    assert load().schema == spark.createDataFrame([], CONNECTOR).schema
    assert load(**{"lvq.extraColumns": "deleted"}).columns[-2:] == ["timestampType", "deleted"]


def test_it_has_the_rows_and_columns_of_the_connector(
    spark: SparkSession, make_queue: MakeQueue, load: Load, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

    queue, choose = make_queue(3), random.Random(11)
    pairs: list[tuple[str, bytes | None]] = [("n", b"1"), ("n", None), ("empty", b"")]
    writer = queue.cluster.writer()
    for n in range(120):
        value = choose.choice([None, b"", b"%d" % n])
        headers = [choose.choice(pairs) for _ in range(choose.randrange(3))]
        writer.append(lvq_topic, b"k%d" % choose.randrange(30), value, headers)
    writer.append(lvq_topic, b"", b"the empty key").result(20)
    writer.close()
    for headers in ("false", "true"):
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
        records = source.option("subscribe", lvq_topic).option("includeHeaders", headers).load()
        newest_first = Window.partitionBy("key").orderBy(F.desc("offset"))
        newest = records.withColumn("place", F.row_number().over(newest_first)).where("place = 1").drop("place")
        for theirs, options in (
            (records, {"lvq.dedupe": "none"}),
            (newest, {"lvq.tombstones": "keep"}),
            (newest.where("value is not null"), {}),
        ):
            ours = load(includeHeaders=headers, **options)
            assert ours.schema == theirs.schema
            assert sorted(map(tuple, ours.collect()), key=repr) == sorted(map(tuple, theirs.collect()), key=repr), (
                options
            )


def test_deletes_are_dropped_where_that_is_said_also_when_none_is_conflated(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("a", None), ("b", "1"))
    for tombstones, rows in (({}, 3), ({"lvq.tombstones": "keep"}, 3), ({"lvq.tombstones": "drop"}, 2)):
        assert load(**{"lvq.dedupe": "none"}, **tombstones).count() == rows, tombstones


def test_an_empty_topic_has_no_rows(make_queue: MakeQueue, load: Load) -> None:
    make_queue(3)
    assert load().collect() == []


def test_deletes_have_rows_when_they_are_asked_for_and_an_empty_value_is_no_delete(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("a", None), ("b", ""))
    assert values(load()) == {"b": ""}
    frame = load(**{"lvq.tombstones": "keep", "lvq.extraColumns": "deleted"})
    assert values(frame) == {"a": None, "b": ""}
    assert {bytes(row.key): row.deleted for row in frame.collect()} == {b"a": True, b"b": False}


def test_every_record_comes_when_none_is_conflated_also_split_among_tasks(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n % 3}", None if n == 7 else str(n)) for n in range(20)])
    for splits in ({}, {"minPartitions": "5"}, {"maxRecordsPerPartition": "3"}):
        frame = load(**{"lvq.dedupe": "none"}, **splits)
        assert sorted(bytes(row.value) if row.value is not None else b"" for row in frame.collect()) == sorted(
            b"" if n == 7 else b"%d" % n for n in range(20)
        )
        assert frame.rdd.getNumPartitions() >= len(splits) * 5


def test_records_without_a_key_are_rows_of_their_own_or_none_or_an_error(
    make_queue: MakeQueue, load: Load, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from confluent_kafka import Producer
    from pyspark.errors import PythonException

    make_queue(config={"cleanup.policy": "delete"})
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for key, value in ((None, b"1"), (b"a", b"2"), (None, b"3"), (b"a", b"4"), (b"", b"5")):
        producer.produce(lvq_topic, value, key)
    assert producer.flush(20) == 0
    assert [(row.key, bytes(row.value)) for row in load().collect()] == [
        (None, b"1"),
        (None, b"3"),
        (b"a", b"4"),
        (b"", b"5"),
    ]
    assert load(**{"lvq.nullKeys": "drop"}).count() == 2
    with pytest.raises(PythonException, match="has no key"):
        load(**{"lvq.nullKeys": "fail"}).collect()


def test_the_key_can_be_a_header_and_the_last_of_repeated_ones_counts(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue()
    writer = queue.cluster.writer()
    cells: list[list[tuple[str, bytes | None]]] = [[("t", b"x"), ("t", b"y")], [("t", b"y")], [("other", None)]]
    for n, headers in enumerate(cells):
        writer.append(lvq_topic, b"r%d" % n, b"%d" % n, headers).result(20)
    writer.close()
    assert values(load(**{"lvq.key": "header:t"})) == {"y": "1", "r2": "2"}
    assert values(load()) == {"r0": "0", "r1": "1", "r2": "2"}
    with pytest.raises(PythonException, match="KeyMismatch"):
        load(**{"lvq.key": "header:t", "lvq.keyMismatch": "fail"}).collect()
    rows = load(includeHeaders="true").collect()
    assert [[(header.key, header.value) for header in row.headers] for row in rows] == cells


def test_only_the_keys_that_are_asked_for_come(make_queue: MakeQueue, load: Load, lvq_topic: str) -> None:
    queue = make_queue(3)
    append(queue.cluster, lvq_topic, ("IBM", "1"), *[(f"k{n}", "1") for n in range(20)], ("IBM", "2"))
    everywhere = load(**{"lvq.keys": '["SUJN", ""]'})
    assert values(everywhere) == {"IBM": "2"}
    at_home = load(**{"lvq.keys": '["SUJN"]', "lvq.partitioner": "murmur2_random"})
    assert values(at_home) == {"IBM": "2"}


def test_points_may_name_partitions_that_are_not_looked_at_for_the_keys(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue(3, config={"min.compaction.lag.ms": "86400000"})
    append(queue.cluster, lvq_topic, ("IBM", "1"), *[(f"k{n}", "1") for n in range(20)], ("IBM", "2"))
    by_key = {"lvq.keys": '["SUJN"]', "lvq.partitioner": "murmur2_random"}

    def each(number: int) -> str:
        return json.dumps({lvq_topic: {str(partition): number for partition in range(3)}})

    later = round(time.time() * 1000) + 3_600_000
    for points, found in (
        ({"startingOffsets": each(-2), "endingOffsets": each(-1)}, {"IBM": "2"}),
        ({"startingOffsets": each(-1)}, {}),
        ({"startingOffsetsByTimestamp": each(0), "endingOffsetsByTimestamp": each(later)}, {"IBM": "2"}),
        ({"startingOffsets": each(-2), "failOnDataLoss": "false"}, {"IBM": "2"}),
    ):
        frame = load(**by_key, **points)
        assert values(frame) == found, points
        assert frame.rdd.getNumPartitions() == 1
    none = {**by_key, "lvq.keys": "[]"}
    for points in ({}, {"endingTimestamp": str(later)}, {"endingOffsetsByTimestamp": each(later)}):
        assert values(load(**none, **points)) == {}, points


def test_a_key_that_may_lie_in_two_partitions_is_never_shown_twice(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue()
    append(queue.cluster, lvq_topic, *[(f"k{n}", "old") for n in range(20)])
    queue.cluster.topics.add_partitions(lvq_topic, 3)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "new") for n in range(20)])
    with pytest.raises(PythonException, match=r"lies in partition 0 .* lvq_spark\.snapshot"):
        load().collect()
    assert load(**{"lvq.strays": "pass"}).count() > 20


# -- one cut per DataFrame ---------------------------------------------------------------------------------------------


def test_every_action_and_every_plan_on_a_frame_reads_the_cut_of_its_first_action(
    spark: SparkSession, make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])
    frame = load()
    before = values(frame)
    append(queue.cluster, lvq_topic, ("k1", "2"), ("k2", None), ("k99", "1"))
    assert frame.count() == 10
    assert frame.alias("a").join(frame.alias("b"), "key").count() == 10
    assert frame.union(frame).count() == 20
    frame.createOrReplaceTempView("lvq_source_test")
    assert spark.sql("select count(*) as n from lvq_source_test").first()["n"] == 10  # type: ignore[index]
    assert len(frame.limit(3).collect()) == 3
    assert values(frame) == before
    cached = load().cache()
    assert cached.count() == 10
    append(queue.cluster, lvq_topic, ("k98", "1"))
    assert "k98" not in values(cached)
    cached.unpersist()
    assert values(load()).keys() - before.keys() == {"k98", "k99"}, "two loads are two cuts"


def test_a_filter_leaves_no_trace_in_other_queries_on_the_frame(
    spark: SparkSession, make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    """Spark 4.3 keeps the filters that a Python source accepts in a shared plan, so this one must accept none."""
    from pyspark.sql.datasource import DataSourceReader

    from lvq_spark.source.batch import LvqReader

    assert LvqReader.pushFilters is DataSourceReader.pushFilters
    queue = make_queue()
    append(queue.cluster, lvq_topic, *[(f"k{n}", str(n)) for n in range(10)])
    for pushdown in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
        try:
            frame = load()
            assert frame.filter("key = X'6B31'").count() == 1
            assert frame.count() == 10
            assert frame.filter("offset > 7").union(frame).count() == 12
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_a_task_that_is_tried_again_reads_the_same_rows(
    make_queue: MakeQueue, load: Load, lvq_topic: str, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])
    frame = load(**{"lvq.batchRows": "2"})
    before = values(frame)
    append(queue.cluster, lvq_topic, ("k1", "2"), ("k99", "1"))
    tried = tmp_path / "tried"

    def fail_once(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 1)
            if not tried.exists():
                tried.touch()
                raise OSError("this attempt fails half-way")
            yield batch.slice(1)

    assert values(frame.mapInArrow(fail_once, frame.schema)) == before
    assert tried.exists()


# -- columns -----------------------------------------------------------------------------------------------------------


def test_a_narrow_schema_gives_its_columns_in_its_order(make_queue: MakeQueue, load: Load, lvq_topic: str) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", None))
    frame = load("offset bigint, key binary, deleted boolean", **{"lvq.tombstones": "keep"})
    assert [(row[0], bytes(row[1]), row[2]) for row in frame.collect()] == [(0, b"a", False), (1, b"b", True)]
    assert load("headers array<struct<key: string, value: binary>>").first() == (None,)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key string", "has no column key string"),
        ("key binary NOT NULL", "has no column key binary NOT NULL"),
        ("key binary, ofset bigint", r"no column ofset\. Did you mean offset\?"),
        ("key binary, key binary", "a column twice"),
    ],
)
def test_a_schema_with_a_wrong_column_is_an_error_that_names_it(
    make_queue: MakeQueue, load: Load, schema: str, message: str
) -> None:
    make_queue()
    with pytest.raises(Exception, match=message):
        load(schema).collect()


# -- selection ---------------------------------------------------------------------------------------------------------


def test_a_cut_is_said_as_the_connector_has_it(make_queue: MakeQueue, load: Load, lvq_topic: str) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("a", "2"), ("b", "1"), ("a", "3"), ("c", "1"))
    ending = json.dumps({lvq_topic: {"0": 3}})
    assert values(load(endingOffsets=ending)) == {"a": "2", "b": "1"}
    assert values(load(startingOffsets=json.dumps({lvq_topic: {"0": 2}}), endingOffsets=ending)) == {"b": "1"}
    assert values(load(assign=json.dumps({lvq_topic: [0]}))) == {"a": "3", "b": "1", "c": "1"}


def test_some_partitions_can_be_read(make_queue: MakeQueue, load: Load, lvq_topic: str) -> None:
    queue = make_queue(3)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(30)])
    frame = load(assign=json.dumps({lvq_topic: [0, 2]}), endingOffsets=json.dumps({lvq_topic: {"0": -1, "2": 1}}))
    rows = frame.collect()
    assert {row.partition for row in rows} == {0, 2}
    assert sum(row.partition == 2 for row in rows) == 1


def test_a_declared_queue_is_read_as_it_was_declared_and_without_what_was_consumed(
    lvq_cluster: KafkaCluster, load: Load, lvq_topic: str
) -> None:
    with LastValueQueue.declare(lvq_topic, key_header="ticker", key_mismatch="header", cluster=lvq_cluster) as queue:
        with queue.producer() as producer:
            for n in range(6):
                producer.put(f"k{n % 3}", b"%d" % n)
        with queue.consumer() as consumer:
            for delivery in consumer:
                with delivery:
                    if delivery.key == "k1":
                        break
        writer = lvq_cluster.writer()
        writer.append(lvq_topic, b"record key", b"7", [("ticker", b"k2")]).result(20)
        writer.close()
        assert values(load(queue=lvq_topic)) == {"k0": "3", "k1": "4", "k2": "7"}
        left = values(load(queue=lvq_topic, **{"lvq.hideConsumed": "true"}))
        assert left.keys() <= {"k0", "k2"}
        assert left["k2"] == "7"
        assert values(load(**{"lvq.group": f"lvq.{lvq_topic}", "lvq.key": "header:ticker"})) == left


def test_a_group_that_is_gone_is_an_error(make_queue: MakeQueue, load: Load, lvq_topic: str) -> None:
    make_queue()
    with pytest.raises(Exception, match=r"GroupNotFound"):
        load(**{"lvq.group": "nobody"}).collect()


# -- changes of the log ------------------------------------------------------------------------------------------------


def test_a_key_that_is_compacted_away_behind_the_cut_is_an_error_or_comes_with_a_newer_value(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))
    ending = json.dumps({lvq_topic: {"0": 2}})
    append(queue.cluster, lvq_topic, ("a", "2"))
    force_compaction(queue.cluster, lvq_topic)  # type: ignore[arg-type]
    assert values(load(endingOffsets=ending, **{"lvq.dedupe": "none"})) == {"b": "1"}, "it is gone from the cut"
    with pytest.raises(PythonException, match=r"DataLoss: .* among them b'a'"):
        load(endingOffsets=ending).collect()
    assert values(load(endingOffsets=ending, **{"lvq.consistency": "atleast"}))["a"] == "2"
    assert values(load())["a"] == "2", "a log with holes is no loss"


def test_records_of_open_and_aborted_transactions_are_left_out(
    make_queue: MakeQueue, load: Load, lvq_topic: str, uncommitted: Uncommitted
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    with uncommitted(queue):
        frame = load()
        assert values(frame) == {"a": "1"}
    assert values(frame) == {"a": "1"}
    assert values(load()) == {"a": "1"}, "the log ends with a marker, and not with a record"


def test_records_deleted_between_the_plan_and_the_reading_are_an_error_unless_they_may_be(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"), ("c", "1"))
    strict, lenient = load(), load(failOnDataLoss="false")
    for frame in (strict, lenient):
        assert frame.count() == 3
    queue.cluster.logs.delete_before(lvq_topic, {0: 2})
    with pytest.raises(PythonException, match="DataLoss"):
        strict.collect()
    assert values(lenient) == {"c": "1"}


def test_a_topic_created_again_is_not_taken_for_the_one_of_the_cut(
    make_queue: MakeQueue, load: Load, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    frame = load()
    assert frame.count() == 1
    queue.cluster.topics.delete(lvq_topic)
    queue.cluster.topics.create(lvq_topic, partitions=1, config={"cleanup.policy": "compact"})
    append(queue.cluster, lvq_topic, ("b", "1"))
    with pytest.raises(PythonException, match="TopicRecreated"):
        frame.collect()


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_wrong_option_is_an_error_of_load(make_queue: MakeQueue, load: Load) -> None:
    make_queue()
    with pytest.raises(Exception, match=r"has no option startingofset\. Did you mean startingOffsets\?"):
        load(startingOfset="earliest")
    with pytest.raises(Exception, match="has no option includeheader"):
        load("key binary", includeHeader="true").collect()


def test_an_option_of_streams_is_refused_for_a_batch(make_queue: MakeQueue, load: Load) -> None:
    make_queue()
    with pytest.raises(Exception, match="maxOffsetsPerTrigger cannot be set: it is for streams"):
        load(maxOffsetsPerTrigger="5").collect()


def test_a_missing_topic_is_an_error(load: Load) -> None:
    with pytest.raises(Exception, match="TopicNotFound"):
        load().collect()


def test_no_secret_is_in_a_plan_an_error_or_a_repr(
    spark: SparkSession, make_queue: MakeQueue, load: Load, lvq_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    secrets = {
        "kafka.sasl.password": "hunter2",
        "kafka.ssl.key.password": "hunter3",
        "kafka.sasl.oauthbearer.config": "hunter4",
    }
    frame = load(**secrets)
    assert frame.count() == 1
    frame.explain(extended=True)
    shown = frame._jdf.queryExecution().toString() + repr(frame) + str(frame.rdd.toDebugString())
    failing = load(**secrets, startingOffsets=json.dumps({lvq_topic: {"0": 99}}))
    with pytest.raises(Exception, match="start 99 is beyond end") as error:
        failing.collect()
    out, err = capfd.readouterr()
    assert "lvq" in out
    assert "hunter" not in shown + str(error.value) + out + err


def test_registering_twice_does_no_harm(spark: SparkSession, make_queue: MakeQueue, load: Load) -> None:
    make_queue()
    register(spark)
    register(spark)
    assert load().count() == 0


def test_a_spark_without_limits_for_streams_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import StructType

    from lvq_spark.source.batch import LvqDataSource

    monkeypatch.setattr("pyspark.__version__", "4.1.1")
    source = LvqDataSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"})
    with pytest.raises(ConfigError, match=r"need Spark 4\.2 or newer, but this is 4\.1\.1"):
        source.streamReader(StructType().add("key", "binary"))


# -- code on an executor -----------------------------------------------------------------------------------------------


def arriving() -> bytes:
    """Return a reader as Spark sends it."""
    from pyspark import cloudpickle

    from lvq_spark.source.batch import LvqDataSource

    source = LvqDataSource({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"})
    packed: bytes = cloudpickle.dumps(source)  # type: ignore[no-untyped-call]
    return packed


def test_an_executor_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = arriving()
    assert pickle.loads(packed).schema().startswith("key binary")
    monkeypatch.setitem(sys.modules, "lvq_spark.source.batch", None)
    with pytest.raises(ImportError, match=rf"{sys.executable}, lacks a package: .*Install lvq-kafka\[spark\]=="):
        pickle.loads(packed)
    monkeypatch.setitem(sys.modules, "lvq_kafka", None)
    with pytest.raises(ImportError, match="lacks a package"):
        pickle.loads(packed)


def planned() -> bytes:
    """Return the source as Spark sends it for planning, to the executors' Python next to the driver."""
    from pyspark import cloudpickle

    classes: list[type] = []
    session = SimpleNamespace(version="4.3.0", dataSource=SimpleNamespace(register=classes.append))
    register(session)  # type: ignore[arg-type]
    packed: bytes = cloudpickle.dumps(classes[0])  # type: ignore[no-untyped-call]
    return packed


OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}


@pytest.mark.parametrize("missing", ["lvq_kafka", "lvq_spark.source.batch"])
def test_a_python_without_the_package_that_is_to_plan_the_source_says_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = planned()
    assert pickle.loads(packed).name() == "lvq"
    assert pickle.loads(packed)(OPTIONS).schema().startswith("key binary")
    monkeypatch.setitem(sys.modules, missing, None)
    source = pickle.loads(packed)
    with pytest.raises(ImportError, match=rf"{sys.executable}, lacks a package: .*Install lvq-kafka\[spark\]=="):
        source(options=OPTIONS)


def test_a_python_with_another_version_that_is_to_plan_the_source_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = planned()
    monkeypatch.setattr("lvq_kafka.__version__", "0.0.1")
    with pytest.raises(RuntimeError, match=r"this executor 0\.0\.1"):
        pickle.loads(packed)(OPTIONS)


def test_an_executor_with_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = arriving()
    monkeypatch.setattr("lvq_kafka.__version__", "0.0.1")
    with pytest.raises(RuntimeError, match=r"this executor 0\.0\.1"):
        pickle.loads(packed)
