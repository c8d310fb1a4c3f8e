"""Updates of a store by a stream: one row per key, even if batches come again, late or not at all."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import ConfigError, KeyMismatch, OutcomeUnknown, TopicMismatch, TopicRecreated
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import pin, snapshot, task_errors
from lvq_spark.schema import SCHEMA
from lvq_spark.source.registering import register
from lvq_spark.store import read_version, refresh, upsert, versions
from lvq_spark.store.storage import LocalStorage
from lvq_spark.store.versions import Store
from tests.spark.test_store_refresh import DAY, append, values
from tests.spark.test_store_versions import rewrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]
Batch = Callable[..., "DataFrame"]


@pytest.fixture
def batch(spark: SparkSession) -> Batch:
    """Return a function that gives a queue's records in a range of offsets, as a source gives them to a stream."""
    from lvq_spark.scan.arrow_columns import SNAPSHOT_COLUMNS
    from lvq_spark.scan.scanning import Scan
    from lvq_spark.scan.serialization import map_in_arrow
    from lvq_spark.scan.tasks import ReadRows

    def batch(
        queue: LastValueQueue[bytes], start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None
    ) -> DataFrame:
        assert isinstance(queue.cluster, KafkaCluster)
        spec = pin(queue, start=start, end=end)
        tasks = len(spec.ranges)
        scan = Scan(spec, queue.cluster.config, SNAPSHOT_COLUMNS, deletes=True, conflate=False)
        return map_in_arrow(spark.range(0, tasks, 1, max(1, tasks)), ReadRows(scan), SCHEMA)

    return batch


@pytest.fixture
def query(spark: SparkSession) -> Iterator[str]:
    """Simulate a run of a streaming query, as far as the functions that it calls can see."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "the query")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the run")
    yield "the query"
    for name in ("sql.streaming.queryId", "spark.jobGroup.id"):
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


@pytest.fixture
def from_the_log(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets an item each time a store is brought up to date from the log."""
    from lvq_spark.store.refreshing import Refresher

    times: list[None] = []
    refresh_it = Refresher.bring_up_to_date
    monkeypatch.setattr(Refresher, "bring_up_to_date", lambda *args: times.append(None) or refresh_it(*args))
    return times


def restart(spark: SparkSession) -> None:
    """Start the query again: its batches now belong to another run."""
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "another run")


def test_each_batch_becomes_a_version_with_one_row_for_each_key(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    run = upsert(queue, path)
    run(batch(queue), 0)
    assert (versions(spark, path)[0].kind, versions(spark, path)[0].end) == ("full", {0: 2})
    append(queue, ("a", "2"), ("c", "1"), ("a", "3"), ("b", None), ("c", None), ("c", "2"))
    run(batch(queue, {0: 2}), 1)
    version = versions(spark, path)[-1]
    assert (version.number, version.kind, version.read_from, version.end) == (2, "delta", {0: 2}, {0: 8})
    assert version.stream == (query, 1)
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))
    assert values(collect(read_version(spark, path))) == {"a": "3", "c": "2"}


def test_a_batch_that_comes_again_or_too_late_changes_nothing(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"), ("b", None), ("a", "3"))
    run = upsert(queue, path)
    run(batch(queue, {0: 2}, {0: 4}), 5)
    run(batch(queue, {0: 2}, {0: 4}), 5)
    run(batch(queue, {0: 0}, {0: 3}), 3)
    assert len(versions(spark, path)) == 2
    run(batch(queue, {0: 4}), 6)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "one that starts over")
    run(batch(queue), 0)
    assert len(versions(spark, path)) == 3
    assert values(collect(read_version(spark, path))) == {"a": "3"}
    append(queue, ("b", "4"))
    run(batch(queue, {0: 1}), 1)
    assert values(collect(read_version(spark, path))) == {"a": "3", "b": "4"}
    assert versions(spark, path)[-1].upserts == 1, "the part of a batch that the store has is left out"


@pytest.mark.parametrize("after", [False, True])
def test_a_batch_that_was_cut_off_is_worked_in_once_when_it_comes_again(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    batch: Batch,
    query: str,
    tmp_path: Path,
    killed: Callable[..., AbstractContextManager[None]],
    after: bool,
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"), ("b", None))
    run = upsert(queue, path, keep=1, grace=0.0)
    with killed("create", "versions/", after=after):
        run(batch(queue, {0: 2}), 1)
    assert values(collect(read_version(spark, path))) == ({"a": "2"} if after else {"a": "1", "b": "1"})
    run(batch(queue, {0: 2}), 1)
    append(queue, ("c", "1"))
    run(batch(queue, {0: 4}), 2)
    latest = versions(spark, path)[-1]
    assert latest.number == 3
    assert values(collect(read_version(spark, path))) == {"a": "2", "c": "1"}
    assert set(LocalStorage(path).names("")) == {"versions", latest.data}


def test_records_that_a_stream_does_not_bring_are_read_from_the_log(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"))
    upsert(queue, path)(batch(queue, {0: 2}), 0)
    assert values(collect(read_version(spark, path))) == {"a": "1", "b": "1", "c": "1"}
    append(queue, ("a", None), ("d", "1"), ("d", "2"))
    upsert(queue, path)(batch(queue, {0: 5}), 9)
    assert versions(spark, path)[-1].read_from == {0: 3}
    assert values(collect(read_version(spark, path))) == {"b": "1", "c": "1", "d": "2"}


def test_a_refresh_meanwhile_does_no_harm(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    batch: Batch,
    query: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, path, commit = make_queue(), str(tmp_path), Store.commit
    append(queue, ("a", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"), ("b", "1"))

    def overtaken(store: Store, version: object) -> bool:
        monkeypatch.setattr(Store, "commit", commit)
        refresh(spark, queue, path, end={0: 2})
        return commit(store, version)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "commit", overtaken)
    upsert(queue, path)(batch(queue, {0: 1}), 0)
    assert [version.end for version in versions(spark, path)] == [{0: 1}, {0: 2}, {0: 3}]
    assert values(collect(read_version(spark, path))) == {"a": "2", "b": "1"}


def test_random_batches_of_keys_in_several_partitions_give_the_rows_of_a_snapshot(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path, way: str
) -> None:
    from confluent_kafka import Producer

    queue, path, choose = make_queue(3), str(tmp_path), random.Random(4)
    assert isinstance(queue.cluster, KafkaCluster)
    foreign = Producer({"bootstrap.servers": queue.cluster.config.bootstrap_servers})
    run, start = upsert(queue, path), {0: 0, 1: 0, 2: 0}
    for number in range(3):
        for n in range(60):
            value = None if choose.random() < 0.4 else b"%d.%d" % (number, n)
            foreign.produce(queue.topic, key=b"k%d" % choose.randrange(15), value=value, partition=choose.randrange(3))
            assert foreign.flush(20) == 0
        end = pin(queue).end
        for _ in range(1 + number % 2):
            run(batch(queue, start, end), number)
        start = dict(end)
        assert collect(read_version(spark, path)) == collect(snapshot(spark, queue, end=end)), number
    made = versions(spark, path)
    assert [version.kind for version in made] == ["full", "delta", "delta"]
    assert (made[-1].overlaid > 0) == (way != "rebuilt")


def test_the_key_is_the_header_s_where_the_queue_says_so(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    plain = make_queue(key_header="ticker")
    writer = plain.cluster.writer()
    for key, header, value in ((b"x", b"a", b"1"), (b"y", b"a", b"2"), (b"z", None, b"3")):
        headers = [("ticker", b"an earlier one"), ("other", b"q"), ("ticker", header)] if header else None
        writer.append(plain.topic, key, value, headers).result(20)
    writer.close()
    everything = batch(plain)
    for policy, keys in (("header", {"a": "2", "z": "3"}), ("fail", None)):
        queue = LastValueQueue(plain.topic, key_header="ticker", key_mismatch=policy, cluster=plain.cluster)  # type: ignore[arg-type]
        path = str(tmp_path / policy)
        refresh(spark, queue, path, end={0: 0})
        if keys is None:
            without = everything.withColumn("key", F.lit(None).cast("binary"))
            for some in (everything, without):
                with pytest.raises(KeyMismatch, match="disagree"), task_errors():
                    upsert(queue, path)(some, 0)
            continue
        upsert(queue, path)(everything, 0)
        assert values(collect(read_version(spark, path))) == keys
        assert versions(spark, path)[-1].kind == "delta"
        assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_a_stream_of_something_else_is_refused(
    spark: SparkSession, make_queue: MakeQueue, batch: Batch, query: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    good, run = batch(queue), upsert(queue, path)
    for wrong, said in (
        (good.drop("offset", "value"), "lacks the column value, offset"),
        (good.drop("headers"), "lacks the column headers.* includeHeaders=true"),
        (good.withColumn("topic", F.lit("other")), "of the topic other, not of"),
        (good.withColumn("key", F.lit(None).cast("binary")), "without a key"),
        (good.withColumn("offset", F.lit(7).cast("bigint")), "offset 7 .* not committed yet"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(wrong, 0)
    run(good.limit(0), 0)
    assert [version.rows for version in versions(spark, path)] in ([], [1])


def test_a_change_that_rules_out_a_version_does_so_for_a_stream(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    refresh(spark, queue, path)
    queue.cluster.topics.add_partitions(queue.topic, 3)
    append(queue, ("b", "1"), ("c", "1"))
    with pytest.raises(TopicMismatch):
        upsert(queue, path, on_stale="fail")(batch(queue), 1)
    upsert(queue, path)(batch(queue), 1)
    assert versions(spark, path)[-1].kind == "full"
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_a_store_does_not_grow_too_old_while_its_stream_is_idle(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    """An idle stream has an empty batch now and then, to record that it has missed nothing."""
    queue, path = make_queue(config=DAY), str(tmp_path)
    append(queue, ("a", "1"))
    run, nothing = upsert(queue, path, on_stale="fail"), batch(queue).limit(0)
    run(nothing, 0)
    assert versions(spark, path) == []
    run(batch(queue), 1)
    run(nothing, 2)
    assert len(versions(spark, path)) == 1, "it is known well enough"
    manifest = tmp_path / "versions" / "0000000001.json"
    before = (datetime.now(UTC) - timedelta(hours=20)).isoformat()
    rewrite(manifest, pinned=before)
    run(nothing, 3)
    second = versions(spark, path)[-1]
    assert (second.number, second.rows, second.end) == (2, 1, {0: 1})
    assert (datetime.now(UTC) - second.pinned).total_seconds() < 300
    append(queue, ("a", "2"))
    run(batch(queue, {0: 1}), 4)
    assert (versions(spark, path)[-1].number, versions(spark, path)[-1].stream) == (3, (query, 4))
    assert values(collect(read_version(spark, path))) == {"a": "2"}


def test_a_stream_that_is_always_overtaken_gives_up(
    spark: SparkSession,
    make_queue: MakeQueue,
    batch: Batch,
    query: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"))
    refresh(spark, queue, str(tmp_path))
    append(queue, ("a", "2"))
    monkeypatch.setattr("lvq_spark.store.upserting.ATTEMPTS", 1)
    monkeypatch.setattr(Store, "commit", lambda *_: False)
    with pytest.raises(OutcomeUnknown, match="1 times in a row"):
        upsert(queue, str(tmp_path))(batch(queue, {0: 1}), 0)


def test_a_query_that_dies_after_any_batch_goes_on_without_a_row_too_many_or_too_few(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    """A real query that fails after its version is there, before Spark marks the batch as done, and restarts."""
    from pyspark.errors import StreamingQueryException

    register(spark)
    queue, path = make_queue(2), str(tmp_path / "store")
    run, died = upsert(queue, path), []

    def die_once(batch: DataFrame, batch_id: int) -> None:
        run(batch, batch_id)
        if batch_id not in died:
            died.append(batch_id)
            raise OSError("the driver goes down")

    def stream() -> None:
        reader = spark.readStream.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
        rows = reader.option("subscribe", queue.topic).option("includeHeaders", "true").load()
        writer = rows.writeStream.foreachBatch(die_once).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(200)

    append(queue, ("a", "1"), ("b", "1"), ("c", "1"), ("c", None))
    for number in range(2):
        with pytest.raises(StreamingQueryException, match="the driver goes down"):
            stream()
        stream()
        assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))
        assert len(versions(spark, path)) == number + 1
        append(queue, ("a", None), ("b", "2"), ("d", "1"), ("b", "3"))
    assert died == [0, 1]
    latest = versions(spark, path)[-1]
    assert latest.stream is not None
    assert latest.stream[1] == 1
    assert len(latest.stream[0]) == 36, "Spark's name of the query, which it keeps over restarts"


def test_a_checkpoint_that_was_put_back_takes_nothing_from_the_store(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    """A real query: batch numbers continue from the copy, with other offsets than before."""
    register(spark)
    queue, path, checkpoint, copy = make_queue(2), str(tmp_path / "store"), tmp_path / "checkpoint", tmp_path / "copy"
    runs: list[str | None] = []

    def stream() -> list[str]:
        """Run the query to the end; return the batches that its checkpoint then knows."""
        work_in = upsert(queue, path)

        def one(batch: DataFrame, batch_id: int) -> None:
            runs.append(spark.sparkContext.getLocalProperty("spark.jobGroup.id"))
            work_in(batch, batch_id)

        reader = spark.readStream.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
        rows = reader.option("subscribe", queue.topic).option("includeHeaders", "true").load()
        writer = rows.writeStream.foreachBatch(one).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(200)
        assert runs[-1] == query.runId, "it identifies the batches of one run"
        return sorted(path.name for path in (checkpoint / "commits").glob("[0-9]*"))

    def write(*numbers: int) -> None:
        append(queue, *((f"k{number}", str(number)) for number in numbers))

    write(*range(10))
    refresh(spark, queue, path, end={0: 1, 1: 1})
    assert stream() == ["0"]
    shutil.copytree(checkpoint, copy)
    write(10)
    assert stream() == ["0", "1"]
    shutil.rmtree(checkpoint)
    shutil.move(copy, checkpoint)
    write(*range(11, 30))
    assert stream() == ["0", "1"]
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))
    write(30)
    assert stream() == ["0", "1", "2"]
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_the_number_of_a_batch_does_not_tell_that_it_is_done(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"))
    refresh(spark, queue, path, end={0: 0})
    run = upsert(queue, path)
    for number in range(3):
        run(batch(queue, {0: number}, {0: number + 1}), number)
    assert versions(spark, path)[-1].stream == (query, 2)
    append(queue, ("a", "2"), ("d", "1"))
    restart(spark)
    upsert(queue, path)(batch(queue, {0: 1}), 1)
    assert values(collect(read_version(spark, path))) == {"a": "2", "b": "1", "c": "1", "d": "1"}
    assert versions(spark, path)[-1].stream == (query, 1)


@pytest.mark.parametrize("same_run", [False, True])
def test_a_batch_of_the_next_number_may_begin_beyond_the_store(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    batch: Batch,
    query: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    same_run: bool,
) -> None:
    """A copy of the checkpoint has fed another store, or this store was restored under a running stream."""
    queue, path = make_queue(), tmp_path / "store"
    run = upsert(queue, path)
    append(queue, *((f"k{number}", "1") for number in range(6)))
    refresh(spark, queue, path, end={0: 2})
    run(batch(queue, {0: 2}, {0: 3}), 1)
    shutil.copytree(path, tmp_path / "copy")
    if same_run:
        run(batch(queue, {0: 3}, {0: 5}), 2)
        shutil.rmtree(path)
        shutil.move(tmp_path / "copy", path)
        run(batch(queue, {0: 5}), 3)
        assert "version 2 ends before offset 5 of partition 0" in caplog.text
    else:
        restart(spark)
        upsert(queue, path)(batch(queue, {0: 5}), 2)
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))
    assert versions(spark, path)[-1].read_from == {0: 3}


def test_a_partition_is_known_to_be_whole_once_the_stream_has_brought_something_of_it(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    batch: Batch,
    query: str,
    tmp_path: Path,
    from_the_log: list[None],
) -> None:
    """A batch's records of other partitions do not show where it begins in a partition without records."""
    queue, path = make_queue(2), str(tmp_path)
    keys = {home_partition(key.encode(), 2): key for key in ("k0", "k1", "k2", "k3")}

    def write(*partitions: int) -> None:
        append(queue, *((keys[partition], "1") for partition in partitions))

    write(0, 1)
    refresh(spark, queue, path)
    write(0, 1, 1)
    run, times = upsert(queue, path), len(from_the_log)
    run(batch(queue, {0: 1, 1: 2}, {0: 2, 1: 2}), 7)  # it begins beyond the store in 1, without a record of it
    assert len(from_the_log) == times
    run(batch(queue, {0: 2, 1: 2}), 8)
    assert len(from_the_log) == times + 1
    write(0, 0, 1, 1)
    run(batch(queue, {0: 3, 1: 4}), 9)  # of one run, so 0/2 and 1/3 are not missing: their keys have newer values
    assert len(from_the_log) == times + 1
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_a_topic_that_was_created_again_is_not_taken_for_what_the_store_has(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, batch: Batch, query: str, tmp_path: Path
) -> None:
    """Spark's Kafka connector knows topics by name, and the new topic's offsets look as if they were done."""
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"))
    refresh(spark, queue, path, end={0: 2})
    upsert(queue, path)(batch(queue, {0: 2}), 4)
    queue.cluster.topics.delete(queue.topic)
    queue.cluster.topics.create(queue.topic, partitions=1, config={"cleanup.policy": "compact"})
    append(queue, ("d", "1"))
    restart(spark)
    with pytest.raises(TopicRecreated):
        upsert(queue, path, on_stale="fail")(batch(queue), 1)
    upsert(queue, path)(batch(queue), 1)
    assert values(collect(read_version(spark, path))) == {"d": "1"}
