"""Selectors in Spark: a key whose newest message is not selected has no row, and no older one of it has (R26, R30)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import BYTES, LastValueQueue, Message
from lvq_kafka.errors import ConfigError, QueueMismatch
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import SnapshotSpec, pin, register, snapshot
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.source.planning import plan
from lvq_spark.source.source_options import SourceOptions
from lvq_spark.store import read_version, refresh

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SELECTOR = "side = 'buy'"
NOWHERE = ClientConfig("nowhere:1")


def message(side: str | None) -> list[tuple[str, bytes | None]]:
    return [] if side is None else [("side", b"no"), ("side", side.encode())]


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    return cluster


def queue_on(cluster: MemoryCluster, name: str = "q", selector: str | None = SELECTOR) -> LastValueQueue[bytes]:
    return LastValueQueue.declare(
        name, topic="t", key_header=None, selector=selector, on_mismatch="warn", cluster=cluster
    )


def rows(
    cluster: MemoryCluster, spec: SnapshotSpec, metrics: TaskMetrics | None = None, **options: Any
) -> list[dict[str, Any]]:
    scan = Scan(spec, NOWHERE, patience=10.0, **options)
    return [row for batch in scan.rows_of(cluster, 0, metrics=metrics) for row in batch.to_pylist()]


def test_r26_a_queues_selector_decides_by_the_newest_message(cluster: MemoryCluster) -> None:
    for key, side in ((b"a", "buy"), (b"b", "buy"), (b"a", "sell"), (b"c", None)):
        cluster.write("t", key, b"1", message(side))
    spec, metrics = pin(queue_on(cluster)), TaskMetrics()
    assert spec.selector == SELECTOR
    (row,) = rows(cluster, spec, metrics)
    assert (row["key"], row["headers"][-1]["value"]) == (b"b", b"buy")
    assert (metrics.rows, metrics.deletes, metrics.unselected) == (1, 0, 2)
    assert rows(cluster, spec, columns=("offset",)) == [{"offset": 1}], "headers are read although no column shows them"
    hidden = [(row["key"], row["value"], row["deleted"]) for row in rows(cluster, spec, deletes=True)]
    assert hidden == [(b"b", b"1", False), (b"a", None, True), (b"c", None, True)]


def test_r26_a_text_too_long_for_a_pattern_is_not_selected_and_counted(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for key, side in ((b"a", "buy"), (b"b", "b" * 100_000)):
        cluster.write("t", key, b"1", message(side))
    metrics = TaskMetrics()
    (row,) = rows(cluster, pin(queue_on(cluster, selector="side LIKE 'b%'")), metrics)
    assert row["key"] == b"a"
    assert (metrics.unselected, metrics.unjudged) == (1, 1)
    assert "t/0: 1 records have a text too long for LIKE (65,536 bytes are allowed)" in caplog.text


def test_conditions_add_up(cluster: MemoryCluster) -> None:
    for n in range(6):
        cluster.write("t", b"%d" % n, b"1", message("buy" if n % 2 else "sell"))
    spec = pin(queue_on(cluster)).selecting("lvq_key >= 3")
    assert [row["key"] for row in rows(cluster, spec)] == [b"3", b"5"]
    other = pin(queue_on(cluster, "all", None)).selecting("side = 'sell' OR lvq_key = '1'").selecting("lvq_key < 3")
    assert [row["key"] for row in rows(cluster, other)] == [b"0", b"1", b"2"]


def test_without_conflation_every_selected_record_has_a_row(cluster: MemoryCluster) -> None:
    for key, value, side in ((b"a", b"1", "buy"), (b"a", b"2", "sell"), (b"a", None, None), (b"a", b"3", "buy")):
        cluster.write("t", key, value, message(side))
    spec = pin(queue_on(cluster))
    assert [row["value"] for row in rows(cluster, spec, conflate=False)] == [b"1", b"3"]
    assert [row["value"] for row in rows(cluster, spec, conflate=False, deletes=True)] == [b"1", None, b"3"]


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_spilled_values_are_judged_too(cluster: MemoryCluster, memory: int) -> None:
    choose = random.Random(7)
    newest: dict[bytes, tuple[int, str]] = {}
    for offset in range(300):
        key, side = b"%d" % choose.randrange(100), choose.choice(["buy", "sell"])
        cluster.write("t", key, b"%d" % offset, message(side))
        newest[key] = offset, side
    spec = pin(queue_on(cluster))
    left = sorted(offset for offset, side in newest.values() if side == "buy")
    for columns in (("offset",), ("offset", "value", "headers")):
        assert [row["offset"] for row in rows(cluster, spec, columns=columns, memory=memory)] == left


def test_a_message_without_a_key_that_is_not_selected_has_no_row(cluster: MemoryCluster) -> None:
    cluster.topics.create("free", partitions=1, config={"cleanup.policy": "delete"})
    for side in ("buy", "sell"):
        cluster.write("free", None, b"1", message(side))
    spec = pin(LastValueQueue("free", key_header=None, cluster=cluster)).selecting(SELECTOR)
    assert [row["offset"] for row in rows(cluster, spec, deletes=True, columns=("offset", "value"))] == [0]


def test_the_format_takes_the_queues_selector_and_its_own(cluster: MemoryCluster) -> None:
    queue_on(cluster)

    def selector(**options: str) -> str | None:
        return plan(SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", **options}), cluster).selector

    assert selector(subscribe="t") is None
    assert selector(queue="q") == SELECTOR
    assert selector(subscribe="t", **{"lvq.selector": "a = 1"}) == "a = 1"
    assert selector(queue="q", **{"lvq.selector": "a = 1"}) == f"({SELECTOR}) AND (a = 1)"
    for wrong, said in (("", "empty"), ("a =", "The lvq.selector is wrong at column 4")):
        with pytest.raises(ConfigError, match=said) as error:
            selector(subscribe="t", **{"lvq.selector": wrong})
        assert error.value.options == ("lvq.selector",)


# -- on a broker -------------------------------------------------------------------------------------------------------

Declare = Callable[..., LastValueQueue[bytes]]


@pytest.fixture
def declare(lvq_cluster: KafkaCluster, lvq_topic: str) -> Iterator[Declare]:
    declared = []

    def declare(suffix: str = "", selector: str | None = SELECTOR) -> LastValueQueue[bytes]:
        declared.append(
            LastValueQueue.declare(
                lvq_topic + suffix,
                topic=lvq_topic,
                key_header="ticker",
                selector=selector,
                value=BYTES,
                cluster=lvq_cluster,
            )
        )
        return declared[-1]

    yield declare
    for queue in declared:
        queue.drop()


def send(queue: LastValueQueue[bytes], side: str, **values: str) -> None:
    with queue.producer() as producer:
        for key, value in values.items():
            producer.send(Message(value.encode(), headers={"ticker": key, "side": side})).result(30)


def values(frame: DataFrame) -> dict[str, str]:
    return {bytes(row.key).decode(): bytes(row.value).decode() for row in frame.collect()}


@pytest.mark.parametrize("slices", [1, 3])
def test_a_snapshot_has_the_rows_of_a_view(spark: SparkSession, declare: Declare, slices: int) -> None:
    queue = declare()
    send(queue, "buy", a="1", b="2", c="3")
    send(queue, "sell", a="4", d="5")
    assert values(snapshot(spark, queue, slices=slices)) == {"b": "2", "c": "3"}
    assert values(snapshot(spark, queue, selector="ticker <> 'c'", slices=slices)) == {"b": "2"}
    whole = LastValueQueue(queue.topic, key_header="ticker", cluster=queue.cluster)
    narrow = snapshot(spark, whole, columns=["key", "value"], selector="side = 'sell'", slices=slices)
    assert narrow.columns == ["key", "value"]
    assert values(narrow) == {"a": "4", "d": "5"}
    assert values(snapshot(spark, whole, slices=slices)).keys() == {"a", "b", "c", "d"}


def test_the_format_reads_what_the_queue_holds(
    spark: SparkSession, declare: Declare, lvq_broker: ProvidedBroker
) -> None:
    queue = declare()
    send(queue, "buy", a="1", b="2")
    send(queue, "sell", a="3")
    register(spark)
    frame = spark.read.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    assert values(frame.option("queue", queue.name).load()) == {"b": "2"}
    assert values(frame.option("queue", queue.name).option("lvq.selector", "ticker = 'a'").load()) == {}


def test_a_stream_deletes_a_key_that_leaves_the_queue(declare: Declare, lvq_broker: ProvidedBroker) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from lvq_spark.source.streaming import LvqStreamReader

    queue = declare()
    options = {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "queue": queue.name}
    reader = LvqStreamReader(SourceOptions.parse(options), ("key", "value"))

    def batch(start: dict[str, Any]) -> tuple[dict[str, Any], dict[bytes, bytes | None]]:
        end = reader.latestOffset(start, ReadAllAvailable())
        found = [
            row for part in reader.partitions(start, end) for rows in reader.read(part) for row in rows.to_pylist()
        ]
        return end, {row["key"]: row["value"] for row in found}

    try:
        send(queue, "buy", a="1", b="2")
        end, shown = batch(reader.initialOffset())
        assert shown == {b"a": b"1", b"b": b"2"}
        send(queue, "sell", a="3")
        assert batch(end)[1] == {b"a": None}
    finally:
        reader.stop()


def test_a_store_has_what_the_queue_holds_and_is_of_that_queue_alone(
    spark: SparkSession, declare: Declare, tmp_path: Path
) -> None:
    queue, path = declare(), str(tmp_path)
    send(queue, "buy", a="1", b="2")
    send(queue, "sell", c="3")
    first = refresh(spark, queue, path)
    assert (first.kind, first.rows, first.selector) == ("full", 2, SELECTOR)
    send(queue, "sell", a="4")
    send(queue, "buy", c="5")
    second = refresh(spark, queue, path)
    assert (second.kind, second.rows) == ("delta", 2)
    assert values(read_version(spark, path)) == values(snapshot(spark, queue)) == {"b": "2", "c": "5"}
    other = declare("-other", "side = 'sell'")
    with pytest.raises(QueueMismatch, match="selector"):
        refresh(spark, other, path, on_stale="fail")
    rebuilt = refresh(spark, other, path)
    assert rebuilt.kind == "full"
    assert values(read_version(spark, path)) == {"a": "4"}
