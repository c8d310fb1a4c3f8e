"""Snapshots of queues on a real broker, in a real Spark session."""

from __future__ import annotations

import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue, Message
from lvq_kafka.cluster import LogEnd
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, TopicNotFound
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import SCHEMA, SnapshotSpec, pin, read_version, refresh, snapshot
from lvq_spark.scan.serialization import Step, map_in_arrow
from tests.waiting import eventually

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


def view_rows(queue: LastValueQueue[bytes]) -> tuple[dict[bytes, Record], dict[int, int]]:
    """Return a view's contents, and the offsets of that cut."""
    with queue.view() as view:
        cut = view.snapshot()
        entries = cut.entries()
    rows = {}
    for entry in entries:
        key = entry.key.encode("utf-8", "surrogateescape")
        position = entry.position
        timestamp = round(entry.timestamp * 1000)
        rows[key] = Record(position.partition, position.offset, timestamp, key, entry.value, entry.headers)
    return rows, cut.offsets


def append(cluster: KafkaCluster, topic: str, *pairs: tuple[str, str | None]) -> None:
    writer = cluster.writer()
    for receipt in [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


def keys_at_home(partitions: int) -> list[str]:
    """Return a key for each partition."""
    homes = {home_partition(b"%d" % number, partitions): str(number) for number in range(99)}
    return [homes[partition] for partition in range(partitions)]


def values(rows: dict[bytes, Record]) -> dict[str, str]:
    return {key.decode(): (row.value or b"").decode() for key, row in rows.items()}


# -- G8: the same cut ----------------------------------------------------------------------------------------------


def test_g8_a_snapshot_has_the_rows_of_a_view_at_the_same_offsets(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect
) -> None:
    queue = make_queue(key_header="ticker")
    with queue.producer() as producer:
        for n in range(300):
            producer.send(Message(b"%d" % n, headers={"ticker": f"key {n % 37}", "n": n % 3}))
        for key in ("key 3", "key 5"):
            producer.delete(key)
        producer.put("", b"the empty key")
        producer.put("empty", b"")
        producer.put(b"\xff", b"not text")
    rows, offsets = view_rows(queue)
    with queue.producer() as producer:
        producer.put("key 1", b"later")
        producer.delete("key 2")
    assert len(rows) == 37 - 2 + 3
    assert collect(snapshot(spark, queue, end=offsets)) == rows
    assert collect(snapshot(spark, queue)) == view_rows(queue)[0]


def test_g8_keys_in_several_partitions_have_the_row_that_a_view_shows(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    """Two partitioners write the same keys, and partitions are added in between (R14)."""
    from confluent_kafka import Producer

    queue = make_queue(partitions=2)
    choose = random.Random(7)
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers, "partitioner": "consistent"})
    for partitions in (2, 5):
        if partitions > 2:
            queue.cluster.topics.add_partitions(lvq_topic, partitions)
        for _ in range(3):
            keys = [b"key %d" % choose.randrange(60) for _ in range(120)]
            for key in keys[:60]:
                foreign.produce(lvq_topic, key=key, value=b"foreign" if choose.random() < 0.8 else None)
            assert foreign.flush(20) == 0
            with queue.producer() as producer:
                for key in keys[60:]:
                    if choose.random() < 0.8:
                        producer.put(key, b"ours")
                    else:
                        producer.delete(key)
    with queue.view() as view:
        assert view.split_keys
    rows, offsets = view_rows(queue)
    spec = pin(queue, end=offsets)
    assert collect(snapshot(spark, queue, spec=spec)) == rows
    assert 10 < len(rows) < 60


def test_g8_a_compacted_log_has_the_rows_of_the_view(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.cluster, lvq_topic, *[(f"k{n % 7}", None if n % 5 == 0 else str(n)) for n in range(60)])  # type: ignore[arg-type]
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    rows, offsets = view_rows(queue)
    assert collect(snapshot(spark, queue, end=offsets)) == rows


def test_g8_a_key_that_was_compacted_out_of_the_cut_fails_the_job_and_comes_when_at_least_it_is_asked_for(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))  # type: ignore[arg-type]
    spec = pin(queue)
    append(queue.cluster, lvq_topic, ("a", "2"))  # type: ignore[arg-type]
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    with pytest.raises(PythonException, match=r"DataLoss: .* among them b'a'"):
        snapshot(spark, queue, spec=spec).collect()
    rows = collect(snapshot(spark, queue, spec=spec, consistency="atleast"))
    assert {key: rows[key].value for key in (b"a", b"b")} == {b"a": b"2", b"b": b"1"}


def test_records_of_an_open_transaction_are_left_out_with_a_warning(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))  # type: ignore[arg-type]
    writer = queue.cluster.writer(transactional_id=lvq_topic)
    for end in (writer.abort_transaction, writer.commit_transaction):
        writer.begin_transaction()
        writer.append(lvq_topic, b"a", b"%s" % end.__name__.encode())
        writer.flush(20)
        with pytest.warns(UserWarning, match="partition 0 is at offset .* a transaction open"):
            early = snapshot(spark, queue)
        end(20)
        assert collect(early)[b"a"].value == b"1"
    eventually(
        lambda: queue.cluster.logs.end_offsets(lvq_topic) == queue.cluster.logs.end_offsets(lvq_topic, stable=True)
    )
    assert collect(snapshot(spark, queue))[b"a"].value == b"commit_transaction"
    writer.close()


# -- transactions across partitions ------------------------------------------------------------------------------------


def test_a_transaction_across_partitions_that_is_open_is_in_none_of_them(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    """Nor are later records in its partitions; and the cut stays the same after the commit."""
    queue, (a, b, c) = make_queue(3), keys_at_home(3)
    append(queue.cluster, lvq_topic, (a, "1"), (b, "1"), (c, "1"))  # type: ignore[arg-type]
    writer = queue.cluster.writer(transactional_id=lvq_topic)
    writer.begin_transaction()
    for key in (a, b):
        writer.append(lvq_topic, key.encode(), b"2")
    writer.flush(20)
    append(queue.cluster, lvq_topic, (a, "3"), (c, "3"))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match=r"partition 0 .* a transaction open .* partition 1 .* open since"):
        spec = pin(queue)
    assert spec.end == {0: 1, 1: 1, 2: 2}
    assert [(held.partition, held.blocked) for held in spec.blocked] == [(0, True), (1, True)]
    with pytest.raises(CatchUpTimeout, match=r"partition 0 .* a transaction open"):
        pin(queue, at_rest=0.5)
    writer.commit_transaction(20)
    writer.close()
    assert pin(queue, at_rest=20).end == queue.cluster.logs.end_offsets(lvq_topic) == {0: 4, 1: 3, 2: 2}
    for slices in (1, 3):
        assert values(collect(snapshot(spark, queue, spec=spec, slices=slices))) == {a: "1", b: "1", c: "3"}, slices
    assert values(collect(snapshot(spark, queue))) == {a: "3", b: "2", c: "3"}


def test_a_transaction_across_partitions_that_ends_while_a_cut_is_pinned_may_be_in_some_of_them_only(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `pin` documents. Nothing warns, since no transaction is open any more. The missing records follow the cut."""
    queue, (a, b) = make_queue(2), keys_at_home(2)
    cluster, path = queue.cluster, str(tmp_path / "store")
    append(cluster, lvq_topic, (a, "1"), (b, "1"))  # type: ignore[arg-type]
    writer = cluster.writer(transactional_id=lvq_topic)
    writer.begin_transaction()
    for key in (a, b):
        writer.append(lvq_topic, key.encode(), b"2")
    writer.flush(20)
    ask = cluster.logs.stable_ends

    def ask_while_it_commits(topic: str, *, timeout: float = 10.0) -> dict[int, LogEnd]:
        """Answer for two brokers; the second leads partition 1 and answers after the commit."""
        before = ask(topic, timeout=timeout)
        writer.commit_transaction(20)
        eventually(lambda: cluster.logs.end_offsets(topic) == cluster.logs.end_offsets(topic, stable=True))
        return {0: before[0], 1: ask(topic, timeout=timeout)[1]}

    with monkeypatch.context() as patched, warnings.catch_warnings(action="error"):
        patched.setattr(cluster.logs, "stable_ends", ask_while_it_commits)
        spec = pin(queue)
    writer.close()
    assert (spec.end, spec.blocked) == ({0: 1, 1: 3}, ())
    for slices in (1, 3):
        assert values(collect(snapshot(spark, queue, spec=spec, slices=slices))) == {a: "1", b: "2"}, slices
    refresh(spark, queue, path, end=spec.end)
    assert values(collect(read_version(spark, path))) == {a: "1", b: "2"}
    assert refresh(spark, queue, path).kind == "delta"
    assert values(collect(read_version(spark, path))) == {a: "2", b: "2"}


# -- a known limit -----------------------------------------------------------------------------------------------------


def test_a_raised_partition_count_and_an_expired_tombstone_bring_back_what_the_old_partition_holds(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    tmp_path: Path,
) -> None:
    """The old value comes back for all later readers of the log, at any cut.

    A view and a store that know of the delete stay right. Only a delete in the old partition is a lasting cure; see
    docs/maintainers/known-limits.md.
    """
    from confluent_kafka import Producer

    from lvq_kafka.testing.compaction import force_compaction

    queue, (stays, moved) = make_queue(), keys_at_home(2)
    other = next(key for key in map(str, range(99)) if key != moved and home_partition(key.encode(), 2) == 1)
    append(lvq_cluster, lvq_topic, (stays, "1"), (moved, "old"))
    lvq_cluster.topics.add_partitions(lvq_topic, 2)
    append(lvq_cluster, lvq_topic, (other, "1"), (moved, None), (other, "2"))
    lvq_cluster.topics.alter_config(lvq_topic, {"delete.retention.ms": "0"})
    force_compaction(lvq_cluster, lvq_topic)  # the first cleaning dates the delete, a later one removes it
    lvq_cluster.topics.alter_config(lvq_topic, {"delete.retention.ms": "86400000"})
    spec, path = pin(queue), str(tmp_path / "store")
    deleted = {stays: "1", other: "2"}
    for slices in (1, 3):
        assert values(collect(snapshot(spark, queue, spec=spec, slices=slices))) == deleted, slices
    refresh(spark, queue, path)
    with queue.view() as view:
        append(lvq_cluster, lvq_topic, (other, "3"))
        eventually(lambda: values(view_rows(queue)[0]) == {stays: "1", moved: "old", other: "3"}, 30)
        view.barrier(timeout=30)
        assert dict(view) == {stays: b"1", other: b"3"}
    for slices in (1, 3):
        rows = values(collect(snapshot(spark, queue, spec=spec, slices=slices)))
        assert rows == {**deleted, moved: "old"}, slices
    assert refresh(spark, queue, path).kind == "delta"
    assert values(collect(read_version(spark, path))) == {stays: "1", other: "3"}
    producer = Producer({"bootstrap.servers": lvq_cluster.config.bootstrap_servers})
    producer.produce(lvq_topic, None, moved, partition=0)
    assert producer.flush(20) == 0
    force_compaction(lvq_cluster, lvq_topic, drop_tombstones=True)
    assert values(collect(snapshot(spark, queue))) == values(view_rows(queue)[0]) == {stays: "1", other: "3"}


# -- scenarios ---------------------------------------------------------------------------------------------------------


def test_s161_a_snapshot_has_one_row_for_a_key_that_compaction_has_not_touched(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, *[("a", str(number)) for number in range(1, 51)])  # type: ignore[arg-type]
    frame = snapshot(spark, queue)
    assert frame.count() == 1
    assert {key: (row.value, row.offset) for key, row in collect(frame).items()} == {b"a": (b"50", 49)}


def test_s162_a_snapshot_of_a_log_with_gaps_and_markers_has_the_right_rows(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    """There are fewer rows than offsets, and neither gaps nor markers count as lost data."""
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()

    def transaction(end: str, *pairs: tuple[bytes, bytes]) -> None:
        writer = queue.cluster.writer(transactional_id=lvq_topic)
        writer.begin_transaction()
        for key, value in pairs:
            writer.append(lvq_topic, key, value)
        writer.flush(20)
        getattr(writer, end)(20)
        writer.close()

    append(queue.cluster, lvq_topic, ("a", "1"), ("a", "2"), ("b", "1"))  # type: ignore[arg-type]
    transaction("commit_transaction", (b"c", b"1"), (b"a", b"3"))
    transaction("abort_transaction", (b"b", b"never"), (b"d", b"never"))
    append(queue.cluster, lvq_topic, ("c", "2"), ("e", "1"), ("e", None))  # type: ignore[arg-type]
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    transaction("commit_transaction", (b"f", b"1"))
    eventually(
        lambda: queue.cluster.logs.end_offsets(lvq_topic) == queue.cluster.logs.end_offsets(lvq_topic, stable=True)
    )
    frame = snapshot(spark, queue)
    rows = collect(frame)
    assert {key: row.value for key, row in rows.items()} == {b"a": b"3", b"b": b"1", b"c": b"2", b"f": b"1"}
    assert frame.count() == 4
    assert queue.cluster.logs.end_offsets(lvq_topic)[0] > 12
    assert rows == view_rows(queue)[0]


# -- one cut per DataFrame -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_every_action_and_every_plan_on_a_snapshot_reads_the_same_cut(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str, partitions: int
) -> None:
    queue = make_queue(partitions)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])  # type: ignore[arg-type]
    frame = snapshot(spark, queue)
    before = collect(frame)
    append(queue.cluster, lvq_topic, ("k1", "2"), ("k2", None), ("k99", "1"))  # type: ignore[arg-type]
    assert frame.filter("value = X'32'").count() == 0
    assert frame.filter("key = X'6B31'").count() == 1
    assert frame.count() == 10, "a filter on the frame leaves no trace in it"
    assert frame.union(frame).count() == 20
    assert frame.alias("a").join(frame.alias("b"), "key").count() == 10
    frame.createOrReplaceTempView("lvq_snapshot_test")
    assert spark.sql("select count(*) as n from lvq_snapshot_test").first()["n"] == 10  # type: ignore[index]
    assert len(frame.limit(3).collect()) == 3
    assert collect(frame) == before


def test_the_same_spec_gives_the_same_rows_again(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])  # type: ignore[arg-type]
    spec = pickle.loads(pickle.dumps(pin(queue)))
    rows = collect(snapshot(spark, queue, spec=spec))
    append(queue.cluster, lvq_topic, ("k1", "2"))  # type: ignore[arg-type]
    assert collect(snapshot(spark, queue, spec=spec)) == rows


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("slices", [1, 2])
def test_a_task_that_is_tried_again_reads_the_same_rows(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    monkeypatch: pytest.MonkeyPatch,
    lvq_topic: str,
    tmp_path: Path,
    slices: int,
    partitions: int,
) -> None:
    """Every reading task fails half-way at its first attempt, and the log grows before the second."""
    queue = make_queue(partitions)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(20)])  # type: ignore[arg-type]
    spec = pin(queue)
    before = collect(snapshot(spark, queue, spec=spec, slices=slices))

    def half_way(rows: DataFrame, step: Step, schema: str) -> DataFrame:
        def once(batches: Iterable[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            for batch in step(batches):
                yield batch.slice(0, 1)
                if context.attemptNumber() == 0:
                    (tmp_path / str(context.taskAttemptId())).touch()
                    raise OSError("this attempt fails half-way")
                yield batch.slice(1)

        return map_in_arrow(rows, once, schema)

    monkeypatch.setattr("lvq_spark.snapshots.map_in_arrow", half_way)
    monkeypatch.setattr("lvq_spark.scan.shares.SMALL", 1)
    frame = snapshot(spark, queue, spec=spec, slices=slices)
    append(queue.cluster, lvq_topic, ("k1", "2"), ("k2", None), ("k99", "1"))  # type: ignore[arg-type]
    assert collect(frame) == before
    assert len(before) == 20
    assert len(list(tmp_path.iterdir())) == partitions * slices


def test_an_empty_queue_has_no_rows_and_the_schema_of_any_other(spark: SparkSession, make_queue: MakeQueue) -> None:
    frame = snapshot(spark, make_queue(2))
    assert frame.collect() == []
    assert frame.schema == spark.createDataFrame([], SCHEMA).schema


def test_timestamps_are_moments_whatever_the_time_zone_of_the_session(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))  # type: ignore[arg-type]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert collect(snapshot(spark, queue)) == view_rows(queue)[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


# -- bad input and failing tasks ---------------------------------------------------------------------------------------


def test_a_topic_that_lost_records_of_the_cut_fails_the_job(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient
    from pyspark.errors import PythonException

    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))  # type: ignore[arg-type]
    frame = snapshot(spark, queue)
    admin = AdminClient({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(lvq_topic, 0, 1)]).values():
        future.result(20)
    with pytest.raises(PythonException, match="DataLoss"):
        frame.collect()
    with pytest.raises(DataLoss):
        pin(queue, start={0: 0})
    assert snapshot(spark, queue).count() == 1


def test_no_secret_is_in_a_plan_or_a_repr(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    make_queue(2)
    cluster = KafkaCluster(ClientConfig(lvq_broker.bootstrap_servers, {"sasl.password": "hunter2"}))
    append(cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])
    queue = LastValueQueue(lvq_topic, key_header=None, cluster=cluster)
    frame = snapshot(spark, queue)
    plans = frame._jdf.queryExecution().toString()
    assert "lvq_step" in plans
    assert "hunter2" not in plans + repr(frame) + repr(pin(queue)) + str(frame.rdd.toDebugString())
    assert frame.count() == 10, "the properties do reach the executors"
    cluster.close()


def test_options_that_clash_are_refused(spark: SparkSession, make_queue: MakeQueue) -> None:
    queue = make_queue()
    spec = pin(queue)
    with pytest.raises(ConfigError, match="spec and end") as error:
        snapshot(spark, queue, spec=spec, end={0: 0})
    assert error.value.options == ("spec", "end")
    with pytest.raises(ConfigError, match="consistency must be one of pinned, atleast, not 'exact'"):
        snapshot(spark, queue, consistency="exact")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the queue's topic is elsewhere"):
        snapshot(spark, LastValueQueue("elsewhere", key_header=None, cluster=queue.cluster), spec=spec)


def test_a_missing_topic_is_an_error_before_any_task_runs(spark: SparkSession, lvq_cluster: KafkaCluster) -> None:
    with pytest.raises(TopicNotFound):
        snapshot(spark, LastValueQueue("no-such-topic", key_header=None, cluster=lvq_cluster))


def test_a_queue_in_memory_is_refused(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={})
    with pytest.raises(ConfigError, match="is on a MemoryCluster"):
        snapshot(None, LastValueQueue("t", key_header=None, cluster=memory_cluster))  # type: ignore[arg-type]


# -- code on an executor -----------------------------------------------------------------------------------------------


def shipped() -> Callable[[list[Any]], Any]:
    """Return the function as it arrives: pickled by value, and unpickled."""
    from pyspark import cloudpickle

    from lvq_spark.scan.scanning import Scan
    from lvq_spark.scan.serialization import portable
    from lvq_spark.scan.tasks import ReadRows

    read = ReadRows(Scan(SnapshotSpec("t", "id", {0: 0}, {0: 0}), ClientConfig("nowhere:1")), ())
    return pickle.loads(cloudpickle.dumps(portable(read)))  # type: ignore[no-any-return,no-untyped-call]


def test_an_executor_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    run = shipped()
    monkeypatch.setitem(sys.modules, "lvq_spark.scan.tasks", None)
    with pytest.raises(ImportError, match=rf"{sys.executable}, lacks a package: .*Install lvq-kafka\[spark\]=="):
        list(run([]))
    monkeypatch.setitem(sys.modules, "lvq_kafka", None)
    with pytest.raises(ImportError, match="lacks a package"):
        list(run([]))


def test_an_executor_with_another_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = shipped()
    monkeypatch.setattr("lvq_kafka.__version__", "0.0.1")
    with pytest.raises(RuntimeError, match=r"this executor 0\.0\.1"):
        list(run([]))


def test_rows_from_spark_have_no_null_in_place_of_a_list(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's Arrow writer goes over all nulls before a row, again for each row."""

    def met(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            (tmp_path / "met").write_text(str(batch["headers"].to_pylist()))
            yield batch

    schema = "n int, headers array<struct<key: string, value: binary>>"
    rows = spark.createDataFrame([(1, None), (2, []), (3, [("a", None)]), (4, None)], schema)
    legacy = "spark.sql.legacy.createEmptyCollectionUsingStringType"  # some sessions set it
    try:
        for setting in ("true", "false"):
            spark.conf.set(legacy, setting)
            mapped = map_in_arrow(rows.coalesce(1), met, schema)
            assert [row.headers for row in mapped.collect()] == [None, None, [("a", None)], None]
            assert (tmp_path / "met").read_text() == "[None, None, [{'key': 'a', 'value': None}], None]"
            assert "coalesce(headers" in mapped._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset(legacy)


def test_a_callback_that_cannot_be_sent_is_an_error_on_the_driver() -> None:
    from lvq_spark.scan.serialization import portable

    lock = __import__("threading").Lock()
    with pytest.raises(ConfigError, match="cannot be sent to the executors"):
        portable(lambda batches: iter([lock]))


def test_a_driver_without_spark_says_what_to_install(
    spark: SparkSession, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    monkeypatch.delitem(sys.modules, "lvq_spark.scan.tasks", raising=False)
    monkeypatch.delitem(sys.modules, "lvq_spark.scan.arrow_columns", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"need the package pyarrow\. Install lvq-kafka\[spark\]"):
        snapshot(spark, queue)
