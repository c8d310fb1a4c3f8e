"""Ranks in Spark: the columns of queues with an order by rank, read and written (R20)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER, Ranking
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_spark import SnapshotSpec, pin, publish, register, snapshot, with_rank
from lvq_spark.rules.ranks import rank
from lvq_spark.scan.arrow_columns import Origin, to_arrow
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.source.planning import plan
from lvq_spark.source.source_options import SourceOptions
from lvq_spark.store import read_version, refresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = Callable[..., "DataFrame"]
MakeQueue = Callable[..., LastValueQueue[bytes]]

HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [],
    [("other", b"7")],
    *([(name, b"%d" % digit)] for digit in range(10) for name in (PRIORITY_HEADER, SORT_HEADER)),
    *(
        [(name, said)]
        for name in (PRIORITY_HEADER, SORT_HEADER)
        for said in (None, b"", b"10", b"-1", b" 1", b"1\n", "\u0663".encode(), "é😀".encode())
    ),
    *([(SORT_HEADER, said)] for said in (b"\xff", b"a\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98z", b"\0")),
    [(PRIORITY_HEADER, b"9"), ("other", None), (PRIORITY_HEADER, b"1")],
    [(PRIORITY_HEADER, b"9"), (PRIORITY_HEADER, b"high")],
    [(PRIORITY_HEADER, b"9"), (PRIORITY_HEADER, None)],
    [(SORT_HEADER, b"9"), (SORT_HEADER, b"1")],
    [(SORT_HEADER, b"9"), (SORT_HEADER, None)],
]


@pytest.fixture
def frame(spark: SparkSession) -> Frame:
    return lambda *rows, schema: spark.createDataFrame(list(rows), schema)


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    return cluster


def ranked(queue: LastValueQueue[bytes], order: Any, sort_header: str | None = None) -> LastValueQueue[bytes]:
    """Return the queue's topic as a queue with this order."""
    return LastValueQueue(queue.topic, key_header=None, order=order, sort_header=sort_header, cluster=queue.cluster)


def rows(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> list[dict[str, Any]]:
    scan = Scan(spec, ClientConfig("nowhere:1"), patience=10.0, **options)
    return [row for batch in scan.rows_of(cluster, 0) for row in batch.to_pylist()]


def batch_of(headers: list[list[tuple[str, bytes | None]] | None]) -> RecordBatch:
    numbers = list(range(len(headers)))
    return RecordBatch([0] * len(numbers), numbers, numbers, [b"k"] * len(numbers), [b"v"] * len(numbers), headers)


# --- reading ------------------------------------------------------------------------------------------------------


def test_r20_a_scan_returns_the_rank_of_a_queue_that_has_one(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", [(PRIORITY_HEADER, b"9"), (SORT_HEADER, b"x"), ("price", b"5")])
    cluster.write("t", b"b", b"1")
    found = []
    for order, header in (("tail", None), ("priority", None), ("sorted", None), ("sorted", "price")):
        queue = LastValueQueue("t", key_header=None, order=order, sort_header=header, cluster=cluster)  # type: ignore[arg-type]
        found.append([(row["priority"], row["sort_key"]) for row in rows(cluster, pin(queue))])
    assert found == [
        [(None, None), (None, None)],
        [(9, None), (4, None)],
        [(None, "x"), (None, None)],
        [(None, "5"), (None, None)],
    ]


def test_headers_are_read_for_a_rank_only_where_there_is_one(cluster: MemoryCluster) -> None:
    def headers_read(order: Any, *columns: str) -> bool:
        spec = pin(LastValueQueue("t", key_header=None, order=order, cluster=cluster))
        return Scan(spec, ClientConfig("nowhere:1"), columns)._how["headers"]

    assert not headers_read("tail", "key", "priority", "sort_key")
    assert not headers_read("priority", "key", "sort_key")
    assert not headers_read("sorted", "key", "priority")
    assert headers_read("priority", "priority")
    assert headers_read("sorted", "sort_key")


def test_a_malformed_priority_counts_as_none_and_is_counted_and_logged(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for said in (b"high", b"10", b"9", None):
        cluster.write("t", b"key of %r" % said, b"1", [(PRIORITY_HEADER, said)])
    metrics = TaskMetrics()
    queue = LastValueQueue("t", key_header=None, order="priority", cluster=cluster)
    scan = Scan(pin(queue), ClientConfig("nowhere:1"), ("priority",), patience=10.0)
    with caplog.at_level(logging.WARNING, "lvq_spark.tasks"):
        found = [row for batch in scan.rows_of(cluster, 0, metrics=metrics) for row in batch.to_pylist()]
    assert [row["priority"] for row in found] == [4, 4, 9, 4]
    assert metrics.malformed_priorities == 2
    assert "t/0: the header lvq-priority of 2 records is not a priority, and counts as none." in caplog.messages


def test_extra_columns_are_those_of_the_order(cluster: MemoryCluster) -> None:
    LastValueQueue.declare("p", key_header=None, order="priority", cluster=cluster)
    LastValueQueue.declare("s", key_header=None, order="sorted", cluster=cluster)

    def planned(queue: str, column: str) -> SnapshotSpec:
        options = {"kafka.bootstrap.servers": "b:1", "queue": queue, "lvq.extraColumns": column}
        return plan(SourceOptions.parse(options), cluster)

    assert planned("p", "priority").order == "priority"
    assert planned("s", "sort_key").sort_header == SORT_HEADER
    for queue, column in (("p", "sort_key"), ("s", "priority")):
        with pytest.raises(ConfigError, match=f"lvq.extraColumns names {column}, and the order of {queue} is") as error:
            planned(queue, column)
        assert error.value.options == ("lvq.extraColumns", "order")


def test_the_expression_of_spark_agrees_with_the_scan(spark: SparkSession) -> None:
    batch = batch_of(HEADERS)
    ranking = Ranking.of("priority", priorities=None, sort_header=None)
    (arrow,) = to_arrow(batch, Origin("t", 0, None, ranking, SORT_HEADER), columns=("offset", "priority", "sort_key"))
    frame = spark.createDataFrame(
        [(number, None if cells is None else cells) for number, cells in enumerate(HEADERS)],
        "offset bigint, headers array<struct<key: string, value: binary>>",
    )
    found = frame.select("offset", rank("priority", None).alias("p"), rank("sort_key", None).alias("s")).collect()
    assert [(row.offset, row.p, row.s) for row in sorted(found)] == [
        (row["offset"], row["priority"], row["sort_key"]) for row in arrow.to_pylist()
    ]


@pytest.mark.parametrize("slices", [1, 3])
def test_r20_a_snapshot_has_the_column_on_request(spark: SparkSession, make_queue: MakeQueue, slices: int) -> None:
    queue = make_queue(partitions=2)
    with ranked(queue, "priority").producer() as producer:
        for key, priority in (("a", 9), ("b", None), ("c", 0)):
            producer.put(key, b"1", priority=priority)
    columns = ["priority", "key"]
    found = snapshot(spark, ranked(queue, "priority"), columns=columns, slices=slices)
    assert found.columns == columns
    assert found.dtypes == [("priority", "int"), ("key", "binary")]
    assert sorted((bytes(row.key), row.priority) for row in found.collect()) == [(b"a", 9), (b"b", 4), (b"c", 0)]
    with pytest.raises(ConfigError, match="columns names sort_key, and the order") as error:
        snapshot(spark, ranked(queue, "priority"), columns=["sort_key"], slices=slices)
    assert error.value.options == ("columns", "order")


def test_r20_the_format_has_the_column_in_batches_and_streams(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str, tmp_path: Path
) -> None:
    register(spark)
    queue = LastValueQueue.declare(lvq_topic, key_header="id", order="sorted", sort_header="price", cluster=lvq_cluster)
    with queue.producer() as producer:
        for key, price in (("a", "5"), ("b", None)):
            producer.put(key, b"1", sort=price)
    servers = lvq_cluster.config.bootstrap_servers
    options = {"queue": queue.name, "lvq.extraColumns": "sort_key", "kafka.bootstrap.servers": servers}
    batch = spark.read.format("lvq").options(**options).load()
    assert sorted((bytes(row.key), row.sort_key) for row in batch.collect()) == [(b"a", "5"), (b"b", None)]
    stream = spark.readStream.format("lvq").options(**options).load()
    query = stream.writeStream.format("memory").queryName("ranked").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted((bytes(row.key), row.sort_key) for row in spark.table("ranked").collect()) == [
        (b"a", "5"),
        (b"b", None),
    ]
    queue.drop()


def test_r20_stores_and_other_frames_get_the_column(spark: SparkSession, make_queue: MakeQueue, tmp_path: Path) -> None:
    queue = ranked(make_queue(), "priority")
    with queue.producer() as producer:
        for key, priority in (("a", 1), ("b", 9), ("c", None), ("d", 9)):
            producer.put(key, b"1", priority=priority)
    refresh(spark, queue, str(tmp_path / "store"))
    version = read_version(spark, str(tmp_path / "store"))
    for frame in (version, snapshot(spark, queue)):
        in_order = with_rank(frame, queue).orderBy("priority", "offset", ascending=[False, True]).collect()
        assert [bytes(row.key) for row in in_order] == [b"b", b"d", b"c", b"a"]
    with pytest.raises(ConfigError, match="have no rank: its order is 'tail'") as error:
        with_rank(version, ranked(queue, "tail"))
    assert error.value.options == ("queue", "order")
    with pytest.raises(ConfigError, match="no column headers") as error:
        with_rank(version.drop("headers"), queue)
    assert error.value.options == ("df",)


# --- writing ------------------------------------------------------------------------------------------------------

ROWS = "key string, value string, rank int, text string, headers array<struct<key: string, value: string>>"


def stored(spark: SparkSession, queue: LastValueQueue[bytes]) -> dict[str, list[tuple[str, bytes]]]:
    return {
        row.key.decode(): [(name, bytes(said)) for name, said in row.headers or ()]
        for row in snapshot(spark, queue).collect()
    }


def test_r20_a_column_holds_the_priority(spark: SparkSession, frame: Frame, make_queue: MakeQueue) -> None:
    queue = ranked(make_queue(), "priority")
    rows = frame(
        ("a", "1", 9, None, None),
        ("b", "1", None, None, [("x", "y")]),
        ("c", "1", 0, None, [("x", "y")]),
        ("own", "1", None, None, [(PRIORITY_HEADER, "7")]),
        ("gone", None, 3, None, None),
        schema=ROWS,
    )
    assert publish(rows, queue, headers="headers", priority="rank").written == 4
    assert stored(spark, queue) == {
        "a": [(PRIORITY_HEADER, b"9")],
        "b": [("x", b"y")],
        "c": [("x", b"y"), (PRIORITY_HEADER, b"0")],
        "own": [(PRIORITY_HEADER, b"7")],
    }


@pytest.mark.parametrize("header", [None, "price"])
def test_r20_a_column_holds_the_sort_key(
    spark: SparkSession, frame: Frame, make_queue: MakeQueue, header: str | None
) -> None:
    queue, name = ranked(make_queue(), "sorted", header), header or SORT_HEADER
    rows = frame(
        ("a", "1", None, "é", None),
        ("b", "1", None, None, None),
        ("own", "1", None, None, [(name, "z")]),
        schema=ROWS,
    )
    assert publish(rows, queue, headers="headers", sort="text").written == 3
    assert stored(spark, queue) == {"a": [(name, "é".encode())], "b": [], "own": [(name, b"z")]}


@pytest.mark.parametrize(
    ("order", "row", "options", "said"),
    [
        ("priority", ("b", "1", 10, None, None), ("priority",), "The row of b'b' has a priority that is not from 0"),
        ("priority", ("b", "1", -1, None, None), ("priority",), "has a priority that is not from 0 to 9"),
        ("priority", ("b", "1", 5, None, [(PRIORITY_HEADER, "5")]), ("priority", PRIORITY_HEADER), "has both priority"),
        ("priority", ("b", "1", None, None, [(PRIORITY_HEADER, "ten")]), (PRIORITY_HEADER,), "that is not a digit"),
        ("priority", ("b", "1", None, None, [(PRIORITY_HEADER, None)]), (PRIORITY_HEADER,), "that is not a digit"),
        ("priority", ("b", "1", None, None, [(SORT_HEADER, "a")]), (SORT_HEADER,), "'lvq-sort' is reserved"),
        ("sorted", ("b", "1", None, "a", [(SORT_HEADER, "a")]), ("sort", SORT_HEADER), "has both sort and the header"),
        ("sorted", ("b", "1", None, None, [(SORT_HEADER, None)]), (SORT_HEADER,), "that is not text in UTF-8"),
        ("sorted", ("b", "1", None, None, [(PRIORITY_HEADER, "5")]), (PRIORITY_HEADER,), "is reserved"),
    ],
)
def test_r22_a_rank_that_is_none_is_an_error_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue, order: str, row: tuple[Any, ...], options: tuple[str, ...], said: str
) -> None:
    queue = ranked(make_queue(), order)
    column = {"priority": "rank"} if order == "priority" else {"sort": "text"}
    with pytest.raises(ConfigError, match=said) as error:
        publish(frame(("a", "1", 5, "a", None), row, schema=ROWS), queue, headers="headers", **column)
    assert error.value.options == options
    assert sum(queue.cluster.logs.end_offsets(queue.topic).values()) == 0


def test_r22_a_rank_is_refused_where_the_queue_has_none_and_a_column_that_is_none(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue, rows = make_queue(), frame(("a", "1", 5, "a", None), schema=ROWS)
    for option, column in (("priority", "rank"), ("sort", "text")):
        for order in ("tail", "sorted" if option == "priority" else "priority"):
            with pytest.raises(ConfigError, match=f"'lvq-{option}' is reserved.* {option} would have") as error:
                publish(rows, ranked(queue, order), **{option: column})
            assert error.value.options == (option, f"lvq-{option}")
    for order, option, column in (("priority", "priority", "text"), ("sorted", "sort", "rank")):
        with pytest.raises(ConfigError) as error:
            publish(rows, ranked(queue, order), **{option: column})
        assert error.value.options == (option,)
    by_key = LastValueQueue(queue.topic, key_header="k", order="sorted", sort_header="k", cluster=queue.cluster)
    with pytest.raises(ConfigError, match="sorted by its key header") as error:
        publish(rows, by_key, sort="text")
    assert error.value.options == ("sort", "key")
