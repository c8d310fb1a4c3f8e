"""Refreshes of a store from the log, which must give the rows of a full snapshot at the same cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import pin, snapshot
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.store import Version, read_version, refresh, versions
from lvq_spark.store.layout import layers
from lvq_spark.store.manifest import HOW_READ, decode, encode
from lvq_spark.store.open_storage import open_storage
from lvq_spark.store.refreshing import _has_cut
from lvq_spark.store.versions import Store
from tests.spark.test_store_versions import VERSION
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]
DAY = {"delete.retention.ms": "86400000"}


def append(queue: LastValueQueue[bytes], *pairs: tuple[str, str | None]) -> None:
    writer = queue.cluster.writer()
    for receipt in [writer.append(queue.topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


def values(rows: dict[bytes, Record]) -> dict[str, str]:
    return {key.decode(): (row.value or b"").decode() for key, row in rows.items()}


def test_the_first_version_is_read_from_the_whole_log_and_later_ones_from_what_is_new(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path / "a store, 100%")
    append(queue, *[(f"k{n:02}", "1") for n in range(50)])
    first = refresh(spark, queue, path)
    assert (first.number, first.kind, first.reasons, first.rows, first.end) == (1, "full", (), 50, {0: 50})
    append(queue, ("k07", "2"), ("k08", None), ("new", "1"), ("k07", "3"), ("gone", None))
    second = refresh(spark, queue, path)
    assert (second.number, second.kind, second.base, second.rows) == (2, "delta", 1, 50)
    assert (second.read_from, second.end, second.records_read) == ({0: 50}, {0: 55}, 5)
    assert (second.upserts, second.deletes) == (4, 2)
    rows = collect(read_version(spark, path))
    assert rows == collect(snapshot(spark, queue))
    assert {key: value for key, value in values(rows).items() if value != "1"} == {"k07": "3"}
    assert "k08" not in values(rows)
    assert "new" in values(rows)
    assert read_version(spark, path).schema == snapshot(spark, queue).schema
    assert versions(spark, path) == [first, second]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_full_version_says_how_many_deletes_were_read_for_it(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, partitions: int
) -> None:
    queue = make_queue(partitions)
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"), ("c", None), ("never there", None))
    version = refresh(spark, queue, str(tmp_path))
    assert (version.kind, version.rows, version.upserts, version.deletes) == ("full", 2, 4, 2)


def test_a_refresh_with_nothing_new_to_read_gives_the_version_that_is_there(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(3)
    append(queue, ("a", "1"))
    spec = pin(queue)
    first = refresh(spark, queue, str(tmp_path))
    assert refresh(spark, queue, str(tmp_path)) == first
    append(queue, ("a", "2"))
    second = refresh(spark, queue, str(tmp_path))
    assert second.number == 2
    assert refresh(spark, queue, str(tmp_path), end=spec.end) == first, "a job that is run again finds its version"
    assert refresh(spark, queue, str(tmp_path), end=second.end) == second
    assert len(versions(spark, str(tmp_path))) == 2


def test_a_cut_can_be_given_and_a_store_only_goes_on(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    assert refresh(spark, queue, str(tmp_path), end={0: 2}).end == {0: 2}
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "1", "b": "1"}
    assert refresh(spark, queue, str(tmp_path), end={0: 3}).kind == "delta"
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "2", "b": "1"}
    with pytest.raises(ConfigError, match="lies before that of version 2") as error:
        refresh(spark, queue, str(tmp_path), end={0: 1})
    assert error.value.options == ("end",)


def test_a_version_with_another_key_is_not_the_one_of_a_cut(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    refresh(spark, queue, path)
    append(queue, ("b", "1"))
    other = LastValueQueue(queue.topic, key_header="ticker", key_mismatch="header", cluster=queue.cluster)
    assert refresh(spark, other, path).key_mismatch == "header"
    with pytest.raises(ConfigError, match="lies before that of version 2"):
        refresh(spark, other, path, end={0: 1})
    assert [version.number for version in versions(spark, path)] == [1, 2]


@pytest.mark.parametrize("name", HOW_READ)
def test_a_version_that_was_read_otherwise_is_not_the_one_of_a_cut(name: str) -> None:
    spec = SnapshotSpec(VERSION.topic, VERSION.topic_id, VERSION.start, VERSION.end, "ticker", "header")
    assert _has_cut(VERSION, spec)
    assert not _has_cut(replace(VERSION, **{name: "otherwise"}), spec)  # type: ignore[arg-type]


def test_r39_a_version_fits_a_queue_that_was_altered_after_it_and_no_other() -> None:
    then = round(VERSION.pinned.timestamp() * 1000)
    version = replace(VERSION, times=TimeRule(Ttl(maximum=60.0)))
    shorter = TimeRule(Ttl(maximum=5.0), earlier=(EarlierTerms(until=then + 1, ttl=Ttl(maximum=60.0)),))
    assert version.judged_by(shorter)
    assert decode(encode(replace(version, times=shorter)), "here").times == shorter
    assert replace(version, times=shorter).judged_by(shorter)
    assert not version.judged_by(TimeRule(Ttl(maximum=5.0)))
    assert not version.judged_by(TimeRule(shorter.ttl, earlier=(EarlierTerms(until=then, ttl=Ttl(maximum=60.0)),)))
    assert not VERSION.judged_by(TimeRule(max_delay=1.0))


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_first_version_of_a_log_without_a_row_has_none_and_the_next_goes_on_from_it(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    uncommitted: Callable[[LastValueQueue[bytes]], AbstractContextManager[None]],
    tmp_path: Path,
    partitions: int,
) -> None:
    queue = make_queue(partitions)
    with uncommitted(queue):
        pass
    append(queue, ("gone", None))
    first = refresh(spark, queue, str(tmp_path))
    assert (first.kind, first.rows, first.upserts, first.deletes) == ("full", 0, 1, 1)
    append(queue, ("a", "1"))
    assert refresh(spark, queue, str(tmp_path)).kind == "delta"
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "1"}


def test_offsets_without_records_move_the_cut_and_copy_no_files(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    uncommitted: Callable[[LastValueQueue[bytes]], AbstractContextManager[None]],
    tmp_path: Path,
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"))
    first = refresh(spark, queue, str(tmp_path))
    with uncommitted(queue):
        pass
    eventually(
        lambda: queue.cluster.logs.end_offsets(queue.topic) == queue.cluster.logs.end_offsets(queue.topic, stable=True)
    )
    second = refresh(spark, queue, str(tmp_path))
    assert (second.number, second.upserts, second.files) == (2, 0, first.files)
    assert second.end[0] > first.end[0]
    append(queue, ("a", "2"))
    refresh(spark, queue, str(tmp_path), keep=1, grace=0.0)
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "2"}


def test_an_empty_queue_has_a_version_without_rows(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue = make_queue(2)
    assert refresh(spark, queue, str(tmp_path)).rows == 0
    assert collect(read_version(spark, str(tmp_path))) == {}
    append(queue, ("a", "1"), ("b", "1"))
    assert refresh(spark, queue, str(tmp_path)).kind == "delta"
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "1", "b": "1"}
    append(queue, ("a", None), ("b", None))
    assert refresh(spark, queue, str(tmp_path)).rows == 0
    assert collect(read_version(spark, str(tmp_path))) == {}


def test_a_small_delta_is_read_alone_and_without_a_spark_job(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(4)
    append(queue, *[(f"k{n}", "1") for n in range(3000)])
    refresh(spark, queue, str(tmp_path))
    append(queue, *[(f"k{n * 97}", "2") for n in range(30)])
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", "the small delta")
    version = refresh(spark, queue, str(tmp_path))
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup("the small delta")
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert (version.records_read, version.upserts, version.rows) == (30, 30, 3000)


def folders(version: Version, *, overlay: bool) -> set[str]:
    return {file.name.partition("/")[0] for file in version.files if file.overlay == overlay}


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_delta_lies_over_the_files_that_are_there_until_it_is_a_quarter_of_them(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, partitions: int
) -> None:
    queue, path = make_queue(partitions), str(tmp_path)
    append(queue, *[(f"k{n:02}", "1") for n in range(80)])
    made = [refresh(spark, queue, path)]
    for first, many in ((0, 5), (5, 5), (8, 20)):
        append(queue, *[(f"k{n:02}", "2") for n in range(first, first + many)], (f"k{first + 60}", None), ("new", "1"))
        made.append(refresh(spark, queue, path, keep=1))
        rows = collect(read_version(spark, path))
        assert rows == collect(snapshot(spark, queue)), first
        assert made[-1].rows == len(rows)
    full, small, larger, anew = made
    assert folders(full, overlay=False) == folders(small, overlay=False) == folders(larger, overlay=False)
    assert folders(full, overlay=True) == folders(anew, overlay=True) == set()
    assert folders(small, overlay=True).isdisjoint(folders(larger, overlay=True))
    assert [version.overlaid for version in made] == [0, 7, 13, 0]
    assert folders(anew, overlay=False) == {anew.data}
    assert {row.value.decode() for row in read_version(spark, path, 2).collect()} == {"1", "2"}
    refresh(spark, queue, path, keep=1, grace=0.0)
    assert [version.number for version in versions(spark, path)] == [4]
    assert {one.name for one in tmp_path.iterdir()} == {"versions", anew.data}


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.thorough), 4])
def test_random_histories_give_the_rows_of_a_full_snapshot(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
    partitions: int,
    way: str,
) -> None:
    """Two partitioners write the same keys, so with several partitions most keys are in more than one (R14)."""
    from confluent_kafka import Producer

    queue, path = make_queue(partitions), str(tmp_path)
    choose = random.Random(partitions)
    ours = queue.cluster.writer()
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers, "partitioner": "consistent"})
    for turn in range(3):
        for n in range(70):
            key, value = b"k%d" % choose.randrange(30), None if choose.random() < 0.4 else b"%d.%d" % (turn, n)
            if choose.random() < 0.5:
                foreign.produce(queue.topic, key=key, value=value, headers=[("n", b"%d" % n), ("n", None)])
                assert foreign.flush(20) == 0
            else:
                ours.append(queue.topic, key, value).result(20)
        version = refresh(spark, queue, path)
        assert version.kind == ("full" if turn == 0 else "delta")
        rows = collect(read_version(spark, path))
        assert rows == collect(snapshot(spark, queue, end=version.end)), turn
        assert version.rows == len(rows)
        assert (version.rows, version.kept) == layers.count(
            layers.stored(spark, Store(open_storage(spark, path)), version)
        )
    ours.close()
    assert version.kept > 0 or partitions == 1
    assert (version.overlaid > 0) == (way != "rebuilt")


def test_a_delete_at_home_counts_against_a_later_record_in_another_partition(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    from lvq_kafka.core.log.keys import home_partition

    queue, stray = make_queue(2), 1 - home_partition(b"k", 2)
    append(queue, ("k", "1"))
    refresh(spark, queue, str(tmp_path))
    append(queue, ("k", None))
    refresh(spark, queue, str(tmp_path))
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    foreign.produce(queue.topic, key=b"k", value=b"stray", partition=stray)
    assert foreign.flush(20) == 0
    assert refresh(spark, queue, str(tmp_path)).kind == "delta"
    assert collect(read_version(spark, str(tmp_path))) == collect(snapshot(spark, queue)) == {}
    append(queue, ("k", "2"))
    refresh(spark, queue, str(tmp_path))
    assert values(collect(read_version(spark, str(tmp_path)))) == {"k": "2"}


def test_a_compacted_log_is_followed(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"))
    refresh(spark, queue, str(tmp_path))
    append(queue, ("b", None), ("c", "2"), ("c", "3"))
    force_compaction(lvq_broker.bootstrap_servers, queue.topic)
    queue.cluster.topics.alter_config(queue.topic, DAY)
    version = refresh(spark, queue, str(tmp_path))
    assert version.kind == "delta"
    assert version.records_read > version.upserts
    assert values(collect(read_version(spark, str(tmp_path)))) == {"a": "2", "c": "3"}


def test_records_deleted_from_the_log_s_start_leave_the_store_as_they_leave_a_snapshot(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue, ("a", "1"), ("b", "1"), ("c", "1"))
    refresh(spark, queue, str(tmp_path))
    queue.cluster.logs.delete_before(queue.topic, {0: 2})
    version = refresh(spark, queue, str(tmp_path))
    assert (version.number, version.kind, version.start) == (2, "delta", {0: 2})
    assert collect(read_version(spark, str(tmp_path))) == collect(snapshot(spark, queue))
    assert version.rows == 1


def test_a_record_that_lost_a_contest_wins_it_when_the_other_is_deleted_from_the_log_s_start(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
    way: str,
) -> None:
    from confluent_kafka import Producer

    from lvq_kafka.core.log.keys import home_partition

    queue, home = make_queue(2, config={"cleanup.policy": "compact,delete"}), home_partition(b"k", 2)
    append(queue, ("other", "1"))
    refresh(spark, queue, str(tmp_path))
    append(queue, ("k", "at home"))
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    foreign.produce(queue.topic, key=b"k", value=b"stray", partition=1 - home)
    assert foreign.flush(20) == 0
    refresh(spark, queue, str(tmp_path))
    assert values(collect(read_version(spark, str(tmp_path))))["k"] == "at home"
    queue.cluster.logs.delete_before(queue.topic, {home: queue.cluster.logs.end_offsets(queue.topic)[home]})
    version = refresh(spark, queue, str(tmp_path))
    assert version.kind == "delta"
    rows = collect(read_version(spark, str(tmp_path)))
    assert values(rows)["k"] == "stray"
    assert rows == collect(snapshot(spark, queue))


def test_records_gone_from_the_log_s_start_count_against_nothing(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path, way: str
) -> None:
    from confluent_kafka import Producer

    from lvq_kafka.core.log.keys import home_partition

    queue, home = make_queue(2, config={"cleanup.policy": "compact,delete"}), home_partition(b"k", 2)
    append(queue, ("k", "at home"), ("other", "1"))
    refresh(spark, queue, str(tmp_path))
    queue.cluster.logs.delete_before(queue.topic, {home: queue.cluster.logs.end_offsets(queue.topic)[home]})
    foreign = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    foreign.produce(queue.topic, key=b"k", value=b"stray", partition=1 - home)
    assert foreign.flush(20) == 0
    version = refresh(spark, queue, str(tmp_path))
    rows = collect(read_version(spark, str(tmp_path)))
    assert values(rows)["k"] == "stray"
    assert rows == collect(snapshot(spark, queue, end=version.end))
    assert (version.kind, version.rows) == ("delta", len(rows))


def test_a_version_is_read_by_its_number_and_by_time(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue, path = make_queue(), str(tmp_path)
    before = datetime.now(UTC)
    made: list[Version] = []
    for n in range(2):
        append(queue, ("a", str(n)))
        made.append(refresh(spark, queue, path))
    for n, version in enumerate(made):
        assert values(collect(read_version(spark, path, version.number))) == {"a": str(n)}
        assert values(collect(read_version(spark, path, as_of=version.pinned))) == {"a": str(n)}
    assert values(collect(read_version(spark, path, as_of=datetime.now(UTC)))) == {"a": "1"}
    for wrong, options in (
        ({"version": 9}, ("version",)),
        ({"as_of": before}, ("as_of",)),
        ({"as_of": datetime(2020, 1, 1)}, ("as_of",)),
        ({"version": 1, "as_of": before}, ("version", "as_of")),
    ):
        with pytest.raises(ConfigError) as error:
            read_version(spark, path, **wrong)  # type: ignore[arg-type]
        assert error.value.options == options
    with pytest.raises(ConfigError, match="it has none"):
        read_version(spark, str(tmp_path / "elsewhere"))
    assert versions(spark, str(tmp_path / "elsewhere")) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_stale": "ignore"}, "on_stale must be one of rebuild, fail, not 'ignore'"),
        ({"consistency": "exact"}, "consistency must be one of pinned, atleast, not 'exact'"),
        ({"keep": 0}, "keep must be a positive integer, not 0"),
        ({"grace": -1.0}, "grace"),
    ],
)
def test_bad_options_are_refused(
    spark: SparkSession, lvq_cluster: KafkaCluster, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    queue = LastValueQueue("t", key_header=None, cluster=lvq_cluster)
    with pytest.raises(ConfigError, match=said) as error:
        refresh(spark, queue, str(tmp_path), **options)
    assert error.value.options == tuple(options)


@pytest.mark.parametrize(("path", "said"), [("/data/{a}", "contains a {"), ("nosuch://x/y", "no file system")])
def test_bad_paths_are_refused(spark: SparkSession, path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        versions(spark, path)
    assert error.value.options == ("path",)
