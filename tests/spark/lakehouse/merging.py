"""Merges of a queue into a Delta or Iceberg table, whose rows must be those of a snapshot at the same cut.

This is not named as a test module: `tests/spark/test_lakehouse.py` runs it, in a Python with a Spark that both formats
support.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import ConfigError, DataLoss, TopicRecreated
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import snapshot
from lvq_spark.store import Version
from lvq_spark.store.layout.layers import STORED
from lvq_spark.store.merged_table import How, MergedTable, read_merged
from lvq_spark.store.merging import merge, merge_each
from tests.spark.overtaking import Overtaken
from tests.spark.test_jobs import run
from tests.spark.test_store_guards import recreate
from tests.spark.test_store_refresh import DAY, append, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]

_MINUTE = 60  # seconds; a read without ``as_of`` goes by the machine's clock, and merges take their time


def roles(spark: SparkSession, table: str) -> dict[str, int]:
    return {row[0]: row[1] for row in spark.table(table).groupBy("lvq_role").count().collect()}


def test_the_first_merge_reads_the_whole_log_and_later_ones_what_is_new(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str
) -> None:
    queue = make_queue()
    append(queue, *[(f"k{n:02}", "1") for n in range(20)], ("", "an empty key"))
    first = merge(spark, queue, table)
    assert (first.number, first.kind, first.rows, first.end) == (1, "full", 21, {0: 21})
    before = collect(read_merged(spark, table))
    assert before == collect(snapshot(spark, queue))
    append(queue, ("k07", "2"), ("k08", None), ("new", "1"), ("k07", "3"), ("gone", None))
    second = merge(spark, queue, table)
    assert (second.number, second.kind, second.base, second.rows, second.kept) == (2, "delta", 1, 21, 0)
    assert (second.read_from, second.end, second.upserts, second.deletes) == ({0: 21}, {0: 26}, 4, 2)
    rows = collect(read_merged(spark, table))
    assert rows == collect(snapshot(spark, queue))
    assert values(rows)["k07"] == "3"
    assert merge(spark, queue, table) == second, "nothing is new, so nothing is committed"
    told = run("merge", spark, queue, "--table", table)
    assert (told["table"], told["version"], told["kind"], told["rows"]) == (table, 2, "delta", 21)
    assert merge(spark, queue, table, end=second.end) == second
    assert roles(spark, table) == {"current": 21, "state": 1}
    assert spark.table(table).columns[:-1] == snapshot(spark, queue).columns
    with pytest.raises(ConfigError, match="lies before that of"):
        merge(spark, queue, table, end={0: 5})
    for version in history(spark, table):
        then = spark.sql(f"SELECT * FROM {table} VERSION AS OF {version}")
        if then.where("lvq_role = 'state'").count():
            assert collect(then.where("lvq_role = 'current'").drop("lvq_role")) in (before, rows)


def history(spark: SparkSession, table: str) -> list[int]:
    query = f"SELECT snapshot_id FROM {table}.snapshots" if table.startswith("ice") else f"DESCRIBE HISTORY {table}"
    found = [row[0] for row in spark.sql(query).collect()]
    assert len(found) >= 2
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_the_job_goes_on_with_a_table_when_it_is_submitted(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    table: str,
    submit: Callable[..., str],
    lvq_broker: ProvidedBroker,
) -> None:
    queue = make_queue(partitions=2)
    append(queue, *[(f"k{n}", "1") for n in range(20)])
    merge(spark, queue, table)
    append(queue, ("k7", "2"), ("k8", None), ("new", "1"))
    printed = submit("merge.py", queue.topic, "--bare", "-b", lvq_broker.bootstrap_servers, "--table", table)
    told = json.loads(printed.splitlines()[-1])
    assert (told["table"], told["version"], told["kind"], told["rows"]) == (table, 2, "delta", 20)
    assert (told["upserts"], told["deletes"]) == (3, 1)
    assert {int(partition): end for partition, end in told["end"].items()} == queue.cluster.logs.end_offsets(
        queue.topic
    )
    rows = collect(read_merged(spark, table))
    assert rows == collect(snapshot(spark, queue))
    assert (values(rows)["k7"], "k8" in values(rows)) == ("2", False)


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_r11_a_merge_brings_what_has_become_due_since_the_last_one(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
) -> None:
    from confluent_kafka import Producer

    plain = make_queue(partitions, config={**DAY, "message.timestamp.type": "CreateTime"})
    queue = LastValueQueue(plain.topic, key_header=None, ttl=Ttl(), max_delay=60.0, cluster=plain.cluster)
    now = round(time.time()) + 1800.0  # ahead of the clock, by which a read without ``as_of`` goes
    monkeypatch.setattr(type(queue.cluster), "now", lambda _: now)
    foreign, choose, again = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers}), random.Random(partitions), 0
    before = None
    for turn in range(5):
        for n in range(0 if turn == 2 else 40):
            key, value = f"key {choose.randrange(20)}", None if choose.random() < 0.2 else f"{turn} {n}"
            home = home_partition(key.encode(), partitions)
            headers: list[tuple[str, str | bytes | None]] = []
            if choose.random() < 0.5:
                headers.append(("lvq-not-before", b"%d" % round((now + choose.randrange(80)) * 1000)))
            if choose.random() < 0.3:
                headers.append(("lvq-ttl", b"%d" % (1000 * choose.randrange(5, 80))))
            place = home if choose.random() < 0.7 else choose.randrange(partitions)
            foreign.produce(queue.topic, value, key, place, headers=headers, timestamp=round(now * 1000))
            now += 0.25
        assert foreign.flush(30) == 0
        done = merge(spark, queue, table, on_stale="fail")
        rows = collect(read_merged(spark, table))
        assert rows == collect(snapshot(spark, queue, end=done.end, as_of=done.as_of)), turn
        again += before is not None and any(done.read_from[p] < end for p, end in before.end.items())
        assert merge(spark, queue, table) == done, "time has not gone on"
        before, now = done, now + choose.randrange(5, 30)
    assert (done.number, again > 1) == (5, True)
    run = merge_each(queue, table)
    now += 100
    run(spark.createDataFrame([], "topic string, partition int, offset bigint"), 0)
    state = MergedTable(spark, table).state()
    assert state is not None
    assert (state.number, state.scheduled) == (6, {}), "an empty batch brings what is due"


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_r8_a_merge_removes_the_values_that_have_expired_since_the_last_one(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
) -> None:
    from confluent_kafka import Producer

    plain = make_queue(partitions, config={**DAY, "message.timestamp.type": "CreateTime"})
    queue = LastValueQueue(plain.topic, key_header=None, ttl=Ttl(default=100 * _MINUTE), cluster=plain.cluster)
    begun = round(time.time())
    now = begun
    monkeypatch.setattr(type(queue.cluster), "now", lambda _: now)
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})

    def write(*records: tuple[str, str | None, int, int]) -> None:
        for key, value, age, ttl in records:
            home = home_partition(key.encode(), partitions)
            headers = [("lvq-ttl", b"%d" % (1000 * _MINUTE * ttl))]
            foreign.produce(queue.topic, value, key, home, headers=headers, timestamp=1000 * (begun - _MINUTE * age))
        assert foreign.flush(30) == 0

    def merged() -> dict[str, str]:
        done = merge(spark, queue, table)
        rows = collect(read_merged(spark, table))
        assert rows == collect(snapshot(spark, queue, end=done.end, as_of=now))
        return values(rows)

    write(("gone", "1", 50, 10), ("short", "1", 0, 10), ("long", "1", 0, 50), ("hidden", "1", 9, 90))
    assert merged() == {"short": "1", "long": "1", "hidden": "1"}
    now += 20 * _MINUTE
    write(("hidden", "2", 0, 10), ("new", "1", 0, 90))
    assert merged() == {"long": "1", "new": "1"}, "some expired, and one was replaced by a value that has expired"
    now += 40 * _MINUTE
    at = datetime.fromtimestamp(now, UTC)
    assert values(collect(read_merged(spark, table))) == {"long": "1", "new": "1"}
    assert values(collect(read_merged(spark, table, as_of=at))) == {"new": "1"}
    before = merge(spark, queue, table).number
    assert before == 3, "nothing was written, but something has expired"
    assert merged() == {"new": "1"}
    assert merge(spark, queue, table).number == before
    now -= 40 * _MINUTE
    write(("short", None, 0, 10), ("gone", "2", 0, 99))
    assert values(collect(read_merged(spark, table))) == {"new": "1"}
    merge(spark, queue, table)
    assert values(collect(read_merged(spark, table))) == {"new": "1", "gone": "2"}, "time is not set back"
    kept = roles(spark, table)
    assert kept.pop("state") == 1
    assert kept == ({"current": 2} if partitions == 1 else {"current": 2, "expired": 2, "delete": 1})


@pytest.mark.thorough
def test_random_histories_of_keys_in_several_partitions_give_the_rows_of_a_snapshot(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, table: str
) -> None:
    """Two partitioners write the same keys, so it shows if a merge forgets or keeps too much (R14)."""
    from confluent_kafka import Producer

    queue, choose = make_queue(3), random.Random(7)
    ours = queue.cluster.writer()
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers, "partitioner": "consistent"})
    for turn in range(3):
        for n in range(50):
            key, value = b"k%d" % choose.randrange(20), None if choose.random() < 0.4 else b"%d.%d" % (turn, n)
            if choose.random() < 0.5:
                foreign.produce(queue.topic, key=key, value=value, headers=[("n", b"%d" % n), ("n", None)])
                assert foreign.flush(20) == 0
            else:
                ours.append(queue.topic, key, value).result(20)
        version = merge(spark, queue, table)
        assert version.kind == ("full" if turn == 0 else "delta")
        rows = collect(read_merged(spark, table))
        assert rows == collect(snapshot(spark, queue, end=version.end)), turn
        counted = roles(spark, table)
        assert (counted.pop("current"), counted.pop("state")) == (version.rows, 1)
        assert sum(counted.values()) == version.kept > 0
    ours.close()


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_a_delete_is_kept_for_as_long_as_the_log_has_to_keep_it(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, table: str
) -> None:
    from confluent_kafka import Producer

    day = 86_400_000
    queue = make_queue(2, config={"message.timestamp.type": "CreateTime", "delete.retention.ms": str(30 * day)})
    append(queue, ("a", "1"), ("b", "1"))
    merge(spark, queue, table)
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers, "partitioner": "murmur2_random"})
    foreign.produce(queue.topic, key=b"a", value=None, timestamp=int(time.time() * 1000) - 10 * day)
    assert foreign.flush(20) == 0
    assert merge(spark, queue, table).kept == 1
    assert roles(spark, table) == {"current": 1, "delete": 1, "state": 1}
    queue.cluster.topics.alter_config(queue.topic, {"delete.retention.ms": str(day)})
    append(queue, ("b", "2"))
    version = merge(spark, queue, table)
    assert (version.kind, version.rows, version.kept) == ("delta", 1, 0)
    assert roles(spark, table) == {"current": 1, "state": 1}
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_records_deleted_from_the_log_s_start_leave_the_table_as_they_leave_a_snapshot(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"))
    merge(spark, queue, table)
    queue.cluster.logs.delete_before(queue.topic, {0: 2})
    version = merge(spark, queue, table)
    assert (version.number, version.kind, version.start, version.rows) == (2, "delta", {0: 2}, 1)
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))


class Crash(BaseException):
    """A simulated kill of the driver."""


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_merge_that_dies_has_changed_all_or_nothing(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, commit = make_queue(2), MergedTable.commit
    append(queue, ("a", "1"), ("b", "1"))
    merge(spark, queue, table)
    append(queue, ("a", "2"), ("b", None))

    for after, expected in ((False, {"a": "1", "b": "1"}), (True, {"a": "2"})):

        def killed(self: MergedTable, *arguments: Any, after: bool = after) -> Version | None:
            if after:
                commit(self, *arguments)
            raise Crash

        with monkeypatch.context() as patched:
            patched.setattr(MergedTable, "commit", killed)
            with pytest.raises(Crash):
                merge(spark, queue, table)
        assert values(collect(read_merged(spark, table))) == expected
    assert merge(spark, queue, table).number == 2
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))


@pytest.mark.thorough
def test_of_two_merges_at_once_one_goes_on_from_the_other(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both merges decide before either commits: first into an empty table, then into one with rows."""
    queue = make_queue()
    MergedTable(spark, table).create()
    for number in (1, 2):
        append(queue, ("a", str(number)), ("b", str(number)), ("b", None))
        (one, other), commits = two_at_once(spark, queue, table, monkeypatch)
        assert one == other == merge(spark, queue, table)
        assert (one.number, commits.count(None)) == (number, 1)
        assert values(collect(read_merged(spark, table))) == {"a": str(number)}
        assert roles(spark, table) == {"current": 1, "state": 1}


def two_at_once(
    spark: SparkSession, queue: LastValueQueue[bytes], table: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Version], list[Version | None]]:
    """Return the results of two merges that meet at their commits, and the outcomes of all commits."""
    commit, both, waited = MergedTable.commit, threading.Barrier(2), threading.local()
    outcomes: list[Version | None] = []

    def together(self: MergedTable, *arguments: Any) -> Version | None:
        if not hasattr(waited, "once"):
            waited.once = True
            both.wait(100)
        outcomes.append(commit(self, *arguments))
        return outcomes[-1]

    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as threads:
        patched.setattr(MergedTable, "commit", together)
        return list(threads.map(lambda _: merge(spark, queue, table), range(2))), outcomes


def test_a_merge_that_was_overtaken_since_its_plan_brings_nothing_back(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The formats see no conflict here: the other commit is done before this one's transaction begins."""
    queue, commit = make_queue(), MergedTable.commit
    append(queue, ("a", "1"))
    merge(spark, queue, table)
    append(queue, ("b", "1"), ("b", None))
    end = {0: queue.cluster.logs.end_offsets(queue.topic)[0] - 1}
    results = []

    def overtaken(self: MergedTable, *arguments: Any) -> Version | None:
        monkeypatch.setattr(MergedTable, "commit", commit)
        merge(spark, queue, table)
        results.append(commit(self, *arguments))
        return results[0]

    monkeypatch.setattr(MergedTable, "commit", overtaken)
    with pytest.raises(ConfigError, match="lies before that of"):
        merge(spark, queue, table, end=end)
    assert results == [None]
    assert values(collect(read_merged(spark, table))) == {"a": "1"}


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_topic_that_was_created_again_is_merged_as_a_whole_or_an_error(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str
) -> None:
    queue = make_queue(2)
    append(queue, ("a", "1"), ("b", "1"))
    first = merge(spark, queue, table)
    recreate(queue, 2, {"cleanup.policy": "compact"})
    append(queue, ("b", "2"), ("c", "1"))
    with pytest.raises(TopicRecreated):
        merge(spark, queue, table, on_stale="fail")
    assert values(collect(read_merged(spark, table))) == {"a": "1", "b": "1"}
    version = merge(spark, queue, table)
    assert (version.number, version.kind, version.rows) == (2, "full", 2)
    assert version.topic_id != first.topic_id
    assert "re-created" in version.reasons[0]
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))
    assert roles(spark, table) == {"current": 2, "state": 1}


def test_a_table_of_something_else_is_refused_and_an_empty_one_is_filled(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, lvq_topic: str, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"))
    using = "iceberg" if table.startswith("ice") else "delta"
    other = f"ice.db.other_{lvq_topic.replace('-', '_')}" if using == "iceberg" else f"delta.`{tmp_path}/other`"
    spark.sql(f"CREATE TABLE {other} (name string) USING {using}")
    with pytest.raises(ConfigError, match=r"is not a queue's table: it has the columns name\.") as error:
        merge(spark, queue, other)
    assert error.value.options == ("table",)
    spark.sql(f"CREATE TABLE {table} ({STORED}) USING {using} PARTITIONED BY (partition)")
    assert merge(spark, queue, table).number == 1
    append(queue, ("a", "2"))
    assert merge(spark, queue, table).kind == "delta"
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))
    spark.sql(f"DELETE FROM {table} WHERE lvq_role = 'state'")
    with pytest.raises(ConfigError, match="has rows, and no state"):
        merge(spark, queue, table)


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_delta_that_may_have_been_overtaken_is_tried_with_a_later_cut_before_all_is_read(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `refresh`: a key right after the cut is new, but where markers leave holes it may not be."""
    queue = make_queue()
    append(queue, ("a", "1"), ("a", "2"))
    merge(spark, queue, table)
    overtaken = Overtaken(queue)
    monkeypatch.setattr("lvq_spark.store.incremental.pin", overtaken)
    overtaken.overtakes = {1}
    overtaken.transaction("a")
    version = merge(spark, queue, table, on_stale="fail")
    assert (version.kind, version.end, len(overtaken.cuts)) == ("delta", overtaken.cuts[1].end, 2)
    assert values(collect(read_merged(spark, table))) == {"a": "3", "new1": "3"}
    overtaken.overtakes = {3}
    overtaken.transaction("b")
    reach = overtaken.transaction("c") - 1  # the record's offset; its marker follows
    batch = spark.createDataFrame([(queue.topic, 0, reach)], "topic string, partition int, offset bigint")
    merge_each(queue, table, on_stale="fail")(batch, 0)
    assert len(overtaken.cuts) == 4, "a batch says how far to go at least"
    overtaken.overtakes = {5, 6}
    overtaken.transaction("d")
    version = merge(spark, queue, table)
    assert (version.kind, len(version.reasons), len(overtaken.cuts)) == ("full", 1, 7)
    expected = dict.fromkeys(("a", "b", "c", "d", "new1", "new3", "new5", "new6"), "3")
    assert values(collect(read_merged(spark, table))) == expected
    overtaken.overtakes = {8}
    overtaken.transaction("e")
    with pytest.raises(DataLoss, match="among them b'new8'"):
        merge(spark, queue, table, end=queue.cluster.logs.end_offsets(queue.topic), on_stale="fail")
    assert len(overtaken.cuts) == 8, "a cut that was asked for stays as it is"
    overtaken.close()


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_table_does_not_grow_too_old_while_its_stream_is_idle(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle stream has an empty batch now and then, to record that it has missed nothing."""
    queue = make_queue(config=DAY)
    append(queue, ("a", "1"))
    run = merge_each(queue, table, on_stale="fail")
    nothing = spark.createDataFrame([], "topic string, partition int, offset bigint")
    run(nothing, 0)
    assert MergedTable(spark, table).state() is None, "nothing is merged without a record"
    first = merge(spark, queue, table)
    run(nothing, 1)
    assert MergedTable(spark, table).state() == first, "it is known well enough"
    commit = MergedTable.commit

    def aged(self: MergedTable, news: DataFrame, base: Version | None, version: Version, how: How) -> Version | None:
        return commit(self, news, base, replace(version, pinned=version.pinned - timedelta(hours=20)), how)

    append(queue, ("b", "1"))
    with monkeypatch.context() as patched:
        patched.setattr(MergedTable, "commit", aged)
        before = merge(spark, queue, table)
    run(nothing, 2)
    state = MergedTable(spark, table).state()
    assert state is not None
    assert (before.number, state.number, state.rows, state.end) == (2, 3, 2, before.end)
    assert state.pinned - before.pinned > timedelta(hours=19)
    assert values(collect(read_merged(spark, table))) == {"a": "1", "b": "1"}


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_batches_of_a_stream_say_up_to_where_and_ones_that_come_again_change_nothing(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str
) -> None:
    queue = make_queue()
    run = merge_each(queue, table)

    def batch(*offsets: int) -> DataFrame:
        rows = [(queue.topic, 0, offset) for offset in offsets]
        return spark.createDataFrame(rows, "topic string, partition int, offset bigint")

    append(queue, ("a", "1"), ("b", "1"))
    run(batch(0, 1), 0)
    append(queue, ("a", None), ("b", "2"), ("c", "1"))
    run(batch(2, 3), 1)
    assert values(collect(read_merged(spark, table))) == {"b": "2"}
    for again in (batch(2, 3), batch(0), batch()):
        run(again, 1)
    version = merge(spark, queue, table, end={0: 4})
    assert (version.number, version.read_from, version.end) == (2, {0: 2}, {0: 4})
    for wrong, said in (("'other' AS topic, 0 AS partition, 0 AS offset", "of the topic other"), ("1", "lacks")):
        with pytest.raises(ConfigError, match=said):
            run(spark.sql(f"SELECT {wrong}"), 8)


@pytest.mark.thorough
def test_a_query_that_dies_after_any_batch_goes_on_with_a_table_that_equals_a_snapshot(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, tmp_path: Path
) -> None:
    """A real query that fails after its merge, before Spark marks the batch as done, and then restarts.

    Its stream is of files that say how far the log reaches. This Spark is too old for the format ``lvq`` as a stream,
    and for streams of the connector in use, which it supports for batches only.
    """
    from pyspark.errors import StreamingQueryException

    queue, source, died = make_queue(2), tmp_path / "source", list[int]()
    run = merge_each(queue, table)

    def die_once(batch: DataFrame, batch_id: int) -> None:
        run(batch, batch_id)
        if batch_id not in died:
            died.append(batch_id)
            raise OSError("the driver goes down")

    def stream() -> None:
        rows = spark.readStream.schema("topic string, partition int, offset bigint").json(str(source))
        writer = rows.writeStream.foreachBatch(die_once).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(200)

    source.mkdir()
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"), ("c", None))
    for number, expected in enumerate(({"a": "1", "b": "1"}, {"b": "3", "d": "1"})):
        ends = queue.cluster.logs.end_offsets(queue.topic)
        reached = [{"topic": queue.topic, "partition": p, "offset": end - 1} for p, end in ends.items() if end]
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, reached)))
        with pytest.raises(StreamingQueryException, match="the driver goes down"):
            stream()
        stream()
        rows = collect(read_merged(spark, table))
        assert values(rows) == expected, "though a session of the query's own has merged"
        assert rows == collect(snapshot(spark, queue))
        state = MergedTable(spark, table).state()
        assert state is not None
        assert (state.number, state.kind) == (number + 1, ("full", "delta")[number]), "each batch was merged once"
        assert state.end == ends
        append(queue, ("a", None), ("b", "2"), ("d", "1"), ("b", "3"))
    assert died == [0, 1]
