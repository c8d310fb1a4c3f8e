"""Scans of a part of the cut: they read all of it and nothing after it, and fail when they cannot be sure."""

from __future__ import annotations

import gc
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka import LastValueQueue
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import UNREADABLE, Fetch, RecordBatch
from lvq_kafka.errors import BrokerUnavailable, CatchUpTimeout, ConfigError, DataLoss, KeyMismatch, TopicRecreated
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing import MemoryCluster
from lvq_spark import SnapshotSpec, pin
from lvq_spark.scan.arrow_columns import COLUMNS
from lvq_spark.scan.home_partition import Partitioner, home_partitions
from lvq_spark.scan.latest import RECORD, Latest
from lvq_spark.scan.log_range import read_range
from lvq_spark.scan.scanning import Scan, connected
from tests.effort import examples


@pytest.fixture
def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    return memory_cluster


def cut(cluster: MemoryCluster, **options: Any) -> SnapshotSpec:
    return pin(LastValueQueue("t", **{"key_header": None, "cluster": cluster, **options}))


def put(cluster: MemoryCluster, *pairs: tuple[str, str | None]) -> None:
    for key, value in pairs:
        cluster.write("t", key.encode(), None if value is None else value.encode())


def rows(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> list[dict[str, Any]]:
    scan = Scan(spec, ClientConfig("nowhere:1"), **{"deletes": True, "patience": 10.0, **options})
    return [row for batch in scan.rows_of(cluster, 0) for row in batch.to_pylist()]


def read(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> list[tuple[str, str | None]]:
    return [
        ((row["key"] or b"").decode(), None if row["value"] is None else row["value"].decode())
        for row in rows(cluster, spec, **options)
    ]


def test_the_newest_record_of_each_key_comes_in_offset_order_and_deletes_come_too(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", None), ("", ""), ("b", None), ("b", "deleted"))
    assert read(cluster, cut(cluster)) == [("a", "2"), ("c", None), ("", ""), ("b", "deleted")]
    assert [row["offset"] for row in rows(cluster, cut(cluster))] == [2, 4, 5, 7]


def test_nothing_behind_the_cut_comes(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"))
    spec = cut(cluster)
    put(cluster, ("a", "2"), ("c", "1"), ("b", None))
    assert read(cluster, spec) == [("a", "1"), ("b", "1")]


def test_a_cut_whose_last_offsets_hold_no_record_is_read_to_its_end(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"))
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("t", b"a", b"never").result()
    writer.abort_transaction()
    spec = cut(cluster)
    assert spec.end == {0: 3}
    assert read(cluster, spec) == [("a", "1")]


@pytest.mark.parametrize("fetch_limit", [1, 2, 100])
def test_a_cut_with_holes_is_read_whatever_the_size_of_the_fetches(fetch_limit: int) -> None:
    cluster = MemoryCluster(fetch_limit=fetch_limit)
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    put(cluster, *[(f"k{n % 3}", str(n)) for n in range(20)])
    cluster.compact("t")
    spec = cut(cluster)
    put(cluster, ("k0", "later"))
    assert read(cluster, spec) == [("k2", "17"), ("k0", "18"), ("k1", "19")]


def test_the_key_is_the_one_that_the_queues_policy_chooses(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", [("ticker", b"b")])
    assert read(cluster, cut(cluster, key_header="ticker")) == [("a", "1")]
    assert read(cluster, cut(cluster, key_header="ticker", key_mismatch="header")) == [("b", "1")]
    with pytest.raises(KeyMismatch):
        read(cluster, cut(cluster, key_header="ticker", key_mismatch="fail"))


def test_the_record_key_counts_where_headers_cannot_be_read(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", UNREADABLE)
    for policy in ("record", "header"):
        assert read(cluster, cut(cluster, key_header="ticker", key_mismatch=policy)) == [("a", "1")]
    with pytest.raises(KeyMismatch, match=r"t/0/0.*cannot be read"):
        read(cluster, cut(cluster, key_header="ticker", key_mismatch="fail"))


# -- keys that vanish after the cut ------------------------------------------------------------------------------------


def vanish(cluster: MemoryCluster, **config: str) -> SnapshotSpec:
    """Pin a cut and lose its record of ``a`` to compaction; later records update keys and add a new one."""
    cluster.topics.alter_config("t", config)
    put(cluster, ("a", "1"), ("b", "1"), ("c", "1"), ("c", None))
    spec = cut(cluster)
    put(cluster, ("a", "2"), ("b", "2"), ("c", "2"), ("new", "1"))
    cluster.compact("t", choose=lambda record: record.key == b"a")
    return spec


def test_a_key_that_compaction_may_have_taken_out_of_the_cut_is_not_left_out_silently(cluster: MemoryCluster) -> None:
    spec = vanish(cluster)
    with pytest.raises(DataLoss, match=r"2 keys of t, partition 0, .* among them b'a'.*min\.compaction\.lag\.ms"):
        read(cluster, spec)


def test_a_key_that_nobody_has_asked_for_may_vanish(cluster: MemoryCluster) -> None:
    spec, some = vanish(cluster), frozenset([b"b", b"c"])
    assert read(cluster, spec, keys=some) == [("b", "1"), ("c", None)]
    with pytest.raises(DataLoss, match="among them b'a'"):
        read(cluster, spec, keys=frozenset([b"a"]))


def test_at_least_the_cut_comes_when_asked_for(cluster: MemoryCluster) -> None:
    assert read(cluster, vanish(cluster), consistency="atleast") == [("b", "1"), ("c", None), ("a", "2"), ("new", "1")]


def test_a_key_that_is_deleted_behind_the_cut_may_have_been_in_it(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"))
    spec = cut(cluster)
    put(cluster, ("a", None))
    cluster.compact("t")
    with pytest.raises(DataLoss):
        read(cluster, spec)
    assert read(cluster, spec, consistency="atleast") == [("b", "1"), ("a", None)]


@pytest.mark.parametrize("consistency", ["pinned", "atleast"])
def test_keys_that_nobody_asked_for_are_neither_missed_nor_brought_along(
    cluster: MemoryCluster, consistency: str
) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("a", "2"))
    spec = cut(cluster)
    put(cluster, ("b", "2"))
    cluster.compact("t")
    assert read(cluster, spec, keys=frozenset([b"a"]), consistency=consistency) == [("a", "2")]


def test_nothing_can_be_missing_from_a_cut_without_holes(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    put(cluster, ("new", "1"), ("a", "2"))
    assert read(cluster, spec) == [("a", "1")]


def test_nothing_can_be_missing_while_the_topic_keeps_superseded_records(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("a", "2"), ("b", "1"))
    cluster.compact("t")
    cluster.topics.alter_config("t", {"min.compaction.lag.ms": "60000"})
    spec = cut(cluster)
    put(cluster, ("new", "1"))
    assert read(cluster, spec) == [("a", "2"), ("b", "1")]


@pytest.fixture
def hiding(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> SnapshotSpec:
    """Return a cut whose record of ``a`` is compacted away; its successor goes, too, once the end is known."""
    put(cluster, ("a", "1"), ("b", "1"), ("c", "1"))
    spec = cut(cluster)
    put(cluster, ("a", "2"))
    cluster.compact("t")
    ask = cluster.logs.end_offsets

    def ask_before_it_grows(topic: str, **options: Any) -> dict[int, int]:
        answer = ask(topic, **options)
        monkeypatch.setattr(cluster.logs, "end_offsets", ask)
        put(cluster, ("a", "3"))
        cluster.compact("t")
        return answer

    monkeypatch.setattr(cluster.logs, "end_offsets", ask_before_it_grows)
    return spec


def test_a_newer_record_that_is_itself_superseded_before_it_is_read_hides_nothing(
    cluster: MemoryCluster, hiding: SnapshotSpec
) -> None:
    with pytest.raises(DataLoss, match="among them b'a'"):
        read(cluster, hiding)


def test_at_least_the_cut_comes_though_newer_records_are_superseded_while_they_are_read(
    cluster: MemoryCluster, hiding: SnapshotSpec
) -> None:
    assert read(cluster, hiding, consistency="atleast") == [("b", "1"), ("c", "1"), ("a", "3")]


def test_a_log_that_never_stands_still_is_not_read_for_ever(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cluster, ("a", "1"), ("a", "2"), ("b", "1"))
    cluster.compact("t")
    spec = cut(cluster)
    ask = cluster.logs.end_offsets

    def ask_once_it_has_grown(topic: str, **options: Any) -> dict[int, int]:
        writer = cluster.writer(transactional_id="x")
        writer.begin_transaction()
        writer.append("t", b"a", b"more").result()
        writer.commit_transaction()
        writer.close()
        return ask(topic, **options)

    monkeypatch.setattr(cluster.logs, "end_offsets", ask_once_it_has_grown)
    assert read(cluster, spec) == [("a", "2"), ("b", "1")]


def test_an_older_record_behind_the_cut_counts_though_a_young_one_hides_it(memory_cluster: MemoryCluster) -> None:
    now = [time.time() - 100]
    cluster = MemoryCluster(clock=lambda: now[0])
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "50000"})
    put(cluster, ("a", "1"), ("b", "1"))
    spec = cut(cluster)
    put(cluster, ("a", "2"))
    cluster.compact("t")
    now[0] = time.time()
    put(cluster, ("a", "3"))
    with pytest.raises(DataLoss):
        read(cluster, spec)


# -- holes that compaction did not make --------------------------------------------------------------------------------


def transaction(cluster: MemoryCluster, *pairs: tuple[str, str], ending: str = "commit") -> None:
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    for key, value in pairs:
        writer.append("t", key.encode(), value.encode()).result()
    writer.commit_transaction() if ending == "commit" else writer.abort_transaction()
    writer.close()


@pytest.fixture
def transactional(cluster: MemoryCluster) -> SnapshotSpec:
    """Return a cut full of markers and aborted records; later records also have new keys."""
    transaction(cluster, ("a", "1"), ("b", "1"))
    transaction(cluster, ("a", "2"))
    transaction(cluster, ("a", "never"), ("never", "1"), ending="abort")
    transaction(cluster, ("c", "1"))
    spec = cut(cluster)
    transaction(cluster, ("new", "1"), ("b", "2"))
    return spec


CUT = [("b", "1"), ("a", "2"), ("c", "1")]


@pytest.mark.parametrize("options", [{}, {"memory": 0}, {"consistency": "atleast"}])
def test_markers_and_aborted_records_are_no_holes_of_compaction_where_a_superseded_record_is_still_there(
    cluster: MemoryCluster, transactional: SnapshotSpec, options: dict[str, Any]
) -> None:
    assert read(cluster, transactional, **options) == CUT


def test_values_that_compaction_may_have_removed_from_a_cut_with_markers_are_not_left_out_silently(
    cluster: MemoryCluster, transactional: SnapshotSpec
) -> None:
    cluster.compact("t")
    with pytest.raises(DataLoss, match=r"2 keys of t, partition 0, .* among them b'b'"):
        read(cluster, transactional)
    assert read(cluster, transactional, consistency="atleast") == [("a", "2"), ("c", "1"), ("new", "1"), ("b", "2")]


@pytest.mark.parametrize("before", [(), (("z", "1"),)])
def test_a_cut_before_the_first_value_of_a_log_that_begins_with_an_aborted_one_has_no_rows(
    cluster: MemoryCluster, before: tuple[tuple[str, str], ...]
) -> None:
    put(cluster, *before)
    transaction(cluster, ("a", "never"), ending="abort")
    spec = cut(cluster)
    transaction(cluster, ("b", "1"))
    put(cluster, ("b", "2"))
    assert read(cluster, spec) == list(before)
    cluster.compact("t")
    with pytest.raises(DataLoss, match="among them b'b'"):
        read(cluster, spec)


@pytest.mark.parametrize(
    ("changed", "properties"), [({"epochs": {0: 7}}, {}), ({"epochs": {}}, {}), ({}, {"client.rack": "a"})]
)
def test_records_of_an_aborted_transaction_on_one_replica_prove_nothing_of_another(
    cluster: MemoryCluster, changed: dict[str, Any], properties: dict[str, str]
) -> None:
    transaction(cluster, ("a", "never"), ending="abort")
    spec = cut(cluster)
    put(cluster, ("b", "1"))
    scan = Scan(replace(spec, **changed), ClientConfig("nowhere:1", properties))
    with pytest.raises(DataLoss, match="among them b'b'"):
        list(scan.rows_of(cluster, 0))


def test_records_beyond_a_hole_prove_nothing(cluster: MemoryCluster) -> None:
    """A cleaner that is still at work has come as far as the hole."""
    put(cluster, ("b", "1"), ("a", "1"), ("a", "2"))
    spec = cut(cluster)
    put(cluster, ("b", "2"))
    cluster.compact("t", choose=lambda record: record.key == b"b")
    with pytest.raises(DataLoss, match="among them b'b'"):
        read(cluster, spec)


def test_records_that_nothing_in_the_cut_supersedes_prove_nothing(cluster: MemoryCluster) -> None:
    transaction(cluster, ("a", "1"))
    spec = cut(cluster)
    transaction(cluster, ("new", "1"), ("a", "2"))
    with pytest.raises(DataLoss, match="among them b'new'"):
        read(cluster, spec)


@pytest.mark.parametrize(
    ("changed", "properties"), [({"epochs": {0: 7}}, {}), ({"epochs": {}}, {}), ({}, {"client.rack": "a"})]
)
def test_records_on_one_replica_prove_nothing_of_another(
    cluster: MemoryCluster, transactional: SnapshotSpec, changed: dict[str, Any], properties: dict[str, str]
) -> None:
    scan = Scan(replace(transactional, **changed), ClientConfig("nowhere:1", properties))
    with pytest.raises(DataLoss, match="among them b'new'"):
        list(scan.rows_of(cluster, 0))


def test_where_a_header_names_the_key_records_of_the_same_one_prove_nothing(cluster: MemoryCluster) -> None:
    """A broker compacts by the record key, and may have left both."""
    for key in (b"x", b"y"):
        cluster.write("t", key, b"1", [("ticker", b"a")])
    transaction(cluster, ("b", "1"))
    spec = cut(cluster, key_header="ticker", key_mismatch="header")
    put(cluster, ("new", "1"))
    with pytest.raises(DataLoss, match="among them b'new'"):
        read(cluster, spec)


def test_a_topic_that_is_not_compacted_has_lost_nothing_and_is_not_read_on(
    cluster: MemoryCluster, transactional: SnapshotSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics.alter_config("t", {"cleanup.policy": "delete"})
    monkeypatch.setattr("lvq_spark.scan.scanning.read_on", None)
    monkeypatch.setattr("lvq_spark.scan.scanning.first_without_gap", None)
    assert read(cluster, replace(cut(cluster), end=transactional.end)) == CUT


# -- deletes that disappear before they are read -----------------------------------------------------------------------


def expiring(policy: str, fetched: float, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryCluster, SnapshotSpec]:
    """Return a cut whose delete of ``a`` goes after a first fetch of ``fetched`` seconds; deletes stay for an hour."""
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    cluster = MemoryCluster(clock=lambda: now[0], fetch_limit=1)
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": policy, "delete.retention.ms": "3600000"})
    put(cluster, ("a", "1"), ("b", "1"), ("a", None), ("c", "1"))
    spec = cut(cluster)
    make = cluster.reader

    def reader(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        poll = made.poll

        def slow(timeout: float) -> Fetch:
            fetch = poll(timeout)
            monkeypatch.setattr(made, "poll", poll)
            now[0] += fetched
            cluster.compact("t", drop_tombstones=fetched > 3600)
            return fetch

        monkeypatch.setattr(made, "poll", slow)
        return made

    monkeypatch.setattr(cluster, "reader", reader)
    return cluster, spec


@pytest.mark.parametrize("options", [{}, {"consistency": "atleast"}, {"deletes": False}])
def test_a_key_does_not_come_back_whose_delete_went_while_the_task_was_reading(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, spec = expiring("compact", 3601, monkeypatch)
    with pytest.raises(DataLoss, match=r"partition 0 of t took 3601\.0 s, .* for 3600 s \(delete\.retention\.ms\)"):
        read(cluster, spec, **options)


@pytest.mark.parametrize("conflate", [True, False])
def test_a_key_of_a_stream_does_not_stay_whose_delete_went_while_a_task_was_reading(
    conflate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, spec = expiring("compact", 3601, monkeypatch)
    with pytest.raises(DataLoss, match=r"has not kept up with partition 0 of t for 3601 s, .* for 3600 s \(delete"):
        read(cluster, spec, changes=True, conflate=conflate)
    cluster, spec = expiring("compact", 3599, monkeypatch)
    assert ("a", None) in read(cluster, spec, changes=True, conflate=conflate)


def test_a_delete_that_is_kept_for_longer_than_reading_takes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, spec = expiring("compact", 3599, monkeypatch)
    assert read(cluster, spec) == [("b", "1"), ("a", None), ("c", "1")]


def test_no_delete_can_be_missing_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, spec = expiring("compact", 3601, monkeypatch)
    monkeypatch.setattr(cluster, "compact", lambda *_, **__: None)
    assert read(cluster, spec) == [("b", "1"), ("a", None), ("c", "1")]


def test_the_retention_of_deletes_matters_only_where_the_topic_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, spec = expiring("delete", 3601, monkeypatch)
    assert spec.delete_retention == math.inf
    assert len(read(cluster, spec)) == 3


# -- other events in between -------------------------------------------------------------------------------------------


def test_records_deleted_since_are_an_error(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"))
    spec = cut(cluster)
    cluster.delete_records("t", 0, 1)
    with pytest.raises(DataLoss):
        read(cluster, spec)


@pytest.mark.parametrize("conflate", [True, False])
def test_a_topic_created_again_is_not_taken_for_the_one_that_was_pinned(cluster: MemoryCluster, conflate: bool) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    cluster.topics.delete("t")
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    put(cluster, ("b", "1"))
    with pytest.raises(TopicRecreated, match="deleted and re-created"):
        read(cluster, spec, conflate=conflate)


@pytest.mark.parametrize("conflate", [True, False])
def test_a_cut_of_which_another_leader_has_lost_some_is_not_taken_for_the_one_that_was_pinned(
    cluster: MemoryCluster, conflate: bool
) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("c", "1"))
    spec = cut(cluster)
    cluster.elect("t", 0)
    assert read(cluster, spec, conflate=conflate) == [("a", "1"), ("b", "1"), ("c", "1")], (
        "another leader is nothing bad"
    )
    cluster.elect("t", 0, end=1)
    put(cluster, ("x", "1"), ("y", "1"), ("z", "1"))
    with pytest.raises(DataLoss):
        read(cluster, spec, conflate=conflate)


def test_a_cut_that_the_log_does_not_reach_any_more_is_not_waited_for(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("c", "1"))
    spec = cut(cluster)
    cluster.elect("t", 0, end=1)
    with pytest.raises(DataLoss, match="partition 0 of t ends at offset 1, before offset 3"):
        read(cluster, spec, patience=1.5)


def test_an_outage_is_waited_out(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    cluster.fail_next("poll", BrokerUnavailable("gone", code="_TRANSPORT", retriable=True), times=3)
    assert read(cluster, spec) == [("a", "1")]


def test_an_outage_that_does_not_end_is_an_error(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    cluster.disconnect()
    with pytest.raises(BrokerUnavailable):
        read(cluster, spec, patience=0.1)


def test_a_partition_that_never_reaches_the_end_of_the_cut_is_an_error(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    stuck = cluster.reader("t", {0: 0})
    monkeypatch.setattr(stuck, "poll", lambda timeout: Fetch(RecordBatch(), {}))
    monkeypatch.setattr(cluster, "reader", lambda *_, **__: stuck)
    with pytest.raises(CatchUpTimeout, match="partition 0 is at offset 0 of 1") as error:
        read(cluster, spec, patience=0.0)
    assert [shortfall.partition for shortfall in error.value.shortfalls] == [0]


def test_readers_are_closed(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cluster, ("a", "1"))
    spec = cut(cluster)
    readers = []
    reader: Callable[..., Any] = cluster.reader

    def remember(*arguments: Any, **options: Any) -> Any:
        readers.append(reader(*arguments, **options))
        return readers[-1]

    monkeypatch.setattr(cluster, "reader", remember)
    read(cluster, spec)
    assert [reader._closed for reader in readers] == [True]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_task_waits_as_long_as_it_is_told_and_holds_the_garbage_collector_back_while_it_reads(
    cluster: MemoryCluster, enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cluster, ("a", "1"))
    scan = Scan(cut(cluster), ClientConfig("nowhere:1"), patience=1.5)
    seen = []

    def remember(*arguments: Any, patience: float, **options: Any) -> Any:
        seen.append((patience, gc.isenabled()))
        return read_range(*arguments, patience=patience, **options)

    monkeypatch.setattr("lvq_spark.scan.scanning.KafkaCluster", lambda config: cluster)
    monkeypatch.setattr(cluster, "close", lambda: None)
    monkeypatch.setattr("lvq_spark.scan.scanning.read_range", remember)
    assert gc.isenabled()
    try:
        if not enabled:
            gc.disable()
        with connected(scan.config) as connection:
            assert sum(map(len, scan.rows_of(connection, 0))) == 1
        assert gc.isenabled() == enabled, "it is as it was"
    finally:
        gc.enable()
    assert seen == [(1.5, False)]


# -- rows and columns --------------------------------------------------------------------------------------------------


def test_the_columns_are_those_asked_for_in_that_order(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", [("ticker", b"a"), ("x", None)], timestamp=1_700_000_000_123)
    cluster.write("t", b"b", None, timestamp=1_700_000_000_124)
    spec = replace(cut(cluster, key_header="ticker"), timestamp_type=1)
    assert list(rows(cluster, spec)[0]) == list(COLUMNS)
    first, second = rows(cluster, spec, columns=("deleted", "timestampType", "headers", "offset"))
    assert list(first) == ["deleted", "timestampType", "headers", "offset"]
    assert first["headers"] == [{"key": "ticker", "value": b"a"}, {"key": "x", "value": None}]
    assert second == {"deleted": True, "timestampType": 1, "headers": None, "offset": 1}


@pytest.mark.parametrize(("columns", "policy", "looks"), [
    (("key", "value"), "record", False),
    (("key", "headers"), "record", True),
    (("key", "value"), "header", True),
])  # fmt: skip
def test_headers_are_looked_at_only_where_something_depends_on_them(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...], policy: str, looks: bool
) -> None:
    cluster.write("t", b"a", b"1", [("ticker", b"b")])
    spec = cut(cluster, key_header="ticker", key_mismatch=policy)
    asked, reader = [], cluster.reader

    def remember(*arguments: Any, headers: bool = True, **options: Any) -> Any:
        asked.append(headers)
        return reader(*arguments, headers=headers, **options)

    monkeypatch.setattr(cluster, "reader", remember)
    (row,) = rows(cluster, spec, columns=columns)
    assert (asked, row["key"]) == ([looks], b"b" if policy == "header" else b"a")


def test_deletes_are_left_out_unless_asked_for(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("a", None))
    assert read(cluster, cut(cluster), deletes=False) == [("b", "1")]
    assert [(row["key"], row["deleted"]) for row in rows(cluster, cut(cluster))] == [(b"b", False), (b"a", True)]


def test_records_without_a_key_are_rows_of_their_own(cluster: MemoryCluster) -> None:
    cluster.topics.alter_config("t", {"cleanup.policy": "delete"})
    for key, value in ((None, b"1"), (b"a", b"1"), (None, b"1"), (b"a", b"2"), (None, b"")):
        cluster.write("t", key, value)
    spec = cut(cluster)
    assert [(row["key"], row["offset"]) for row in rows(cluster, spec)] == [(None, 0), (None, 2), (b"a", 3), (None, 4)]
    assert read(cluster, spec, keyless="drop") == [("a", "2")]
    assert read(cluster, spec, keyless="drop", conflate=False) == [("a", "1"), ("a", "2")]
    with pytest.raises(KeyMismatch, match="t/0/0 has no key"):
        rows(cluster, spec, keyless="fail")
    assert read(cluster, spec, keys=frozenset([b"a"])) == [("a", "2")]


def test_records_without_a_key_are_at_home_in_every_partition() -> None:
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=3, config={"cleanup.policy": "delete"})
    for partition in range(3):
        cluster.write("t", None, b"%d" % partition, partition=partition)
    scan = Scan(pin(LastValueQueue("t", key_header=None, cluster=cluster)), ClientConfig("nowhere:1"), strays="fail")
    found = [row for partition in range(3) for batch in scan.rows_of(cluster, partition) for row in batch.to_pylist()]
    assert [(row["key"], row["value"]) for row in found] == [(None, b"0"), (None, b"1"), (None, b"2")]


def test_only_some_keys_come_when_asked_for(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"), ("c", None))
    assert read(cluster, cut(cluster), keys=frozenset([b"a", b"c", b"nobody"])) == [("a", "2"), ("c", None)]
    assert read(cluster, cut(cluster), keys=frozenset([b"a"]), conflate=False) == [("a", "1"), ("a", "2")]


def test_all_records_come_when_nothing_is_conflated(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("a", "2"), ("a", None))
    spec = cut(cluster)
    put(cluster, ("a", "3"))
    assert read(cluster, spec, conflate=False) == [("a", "1"), ("b", "1"), ("a", "2"), ("a", None)]
    assert read(cluster, spec, conflate=False, deletes=False) == [("a", "1"), ("b", "1"), ("a", "2")]


@pytest.mark.parametrize("conflate", [True, False])
def test_arrow_batches_have_no_more_rows_than_are_asked_for(cluster: MemoryCluster, conflate: bool) -> None:
    put(cluster, *[(f"k{n}", str(n)) for n in range(5)])
    scan = Scan(cut(cluster), ClientConfig("nowhere:1"), conflate=conflate, rows=2)
    assert [len(batch) for batch in scan.rows_of(cluster, 0)] == [2, 2, 1]


@pytest.mark.parametrize("conflate", [True, False])
def test_arrow_batches_have_no_more_bytes_than_are_asked_for(cluster: MemoryCluster, conflate: bool) -> None:
    for n in range(6):
        cluster.write("t", b"k%d" % n, bytes(1000))
    scan = Scan(cut(cluster), ClientConfig("nowhere:1"), conflate=conflate, bytes=2500)
    found = [len(batch) for batch in scan.rows_of(cluster, 0)]
    assert (max(found), sum(found)) == (2, 6)


def test_a_key_is_hidden_when_its_newest_record_is_done_and_no_older_one_shows(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"))
    spec = replace(cut(cluster), done={0: CommitMap(0, (2, 1))})
    assert read(cluster, spec) == [("b", "1"), ("c", "1")]
    assert read(cluster, spec, conflate=False) == [("a", "1"), ("b", "1"), ("c", "1")], (
        "where all come, what is not done"
    )


def test_keys_away_from_home_fail_when_they_are_to() -> None:
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=3, config={"cleanup.policy": "compact"})
    at_home = next(key for key in map(str.encode, "abcdefgh") if home_partition(key, 3) == 0)
    away = next(key for key in map(str.encode, "abcdefgh") if home_partition(key, 3) == 2)
    cluster.write("t", at_home, b"1", partition=0)
    spec = pin(LastValueQueue("t", key_header=None, cluster=cluster))
    assert len(rows(cluster, spec, strays="fail")) == 1
    cluster.write("t", away, None, partition=0)
    spec = pin(LastValueQueue("t", key_header=None, cluster=cluster))
    assert len(rows(cluster, spec)) == 2
    said = r"in partition 0 of t, but its home by the partitioner murmur2_random is 2.*lvq_spark\.snapshot"
    with pytest.raises(ConfigError, match=said):
        rows(cluster, spec, strays="fail")


def written_by(partitioner: Partitioner, keys: int) -> MemoryCluster:
    """Return a topic of three partitions; the first has the keys this partitioner puts there, in fetches of ten."""
    cluster = MemoryCluster(fetch_limit=10)
    cluster.topics.create("t", partitions=3, config={"cleanup.policy": "compact"})
    names = [b"k%d" % n for n in range(keys)]
    homes = home_partitions(pa.array(names, pa.binary()), 3, partitioner).tolist()
    for key, home in zip(names, homes):
        if home == 0:
            cluster.write("t", key, b"v", partition=0)
    return cluster


def test_keys_away_from_home_are_told_before_all_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = written_by("consistent_random", 300)
    spec = pin(LastValueQueue("t", key_header=None, cluster=cluster))
    taken: list[RecordBatch] = []
    monkeypatch.setattr(Latest, "apply", lambda self, batch: taken.append(batch))
    with pytest.raises(ConfigError, match="lies in partition 0"):
        rows(cluster, spec, strays="fail")
    assert not taken


@pytest.mark.parametrize("partitioner", ["consistent_random", "fnv1a_random"])
def test_the_partitioner_by_which_all_keys_are_at_home_is_named_and_is_the_home_to_check_against(
    partitioner: Partitioner,
) -> None:
    cluster = written_by(partitioner, 90)
    spec = pin(LastValueQueue("t", key_header=None, cluster=cluster))
    with pytest.raises(ConfigError, match=rf"All \d+ keys .* set lvq\.partitioner to {partitioner}") as error:
        rows(cluster, spec, strays="fail")
    assert error.value.options == ("lvq.strays", "lvq.partitioner")
    assert len(rows(cluster, spec, strays="fail", partitioner=partitioner)) == spec.end[0]
    for key in map(b"%d".__mod__, range(9)):
        cluster.write("t", key, b"v", partition=0)
    spec = pin(LastValueQueue("t", key_header=None, cluster=cluster))
    with pytest.raises(ConfigError, match=r"lies in partition 0 .*lvq_spark\.snapshot, which merges"):
        rows(cluster, spec, strays="fail", partitioner=partitioner)


def test_an_empty_key_is_none_to_the_partitioner_of_librdkafka_and_lies_anywhere() -> None:
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=3, config={"cleanup.policy": "compact"})
    assert zlib.crc32(b"") % 3 == 0
    cluster.write("t", b"", b"v", partition=1)
    scan = Scan(
        pin(LastValueQueue("t", key_header=None, cluster=cluster)),
        ClientConfig("nowhere:1"),
        strays="fail",
        partitioner="consistent_random",
    )
    assert sum(map(len, scan.rows_of(cluster, 1))) == 1


# -- memory ------------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
VALUES = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.just(b"deleted"))


@settings(max_examples=examples(60), deadline=None)
@given(
    written=st.lists(st.tuples(KEYS, KEYS, VALUES), max_size=40),
    policy=st.sampled_from([None, "record", "header"]),
    fetch=st.integers(1, 9),
    memory=st.integers(0, 6 * RECORD),
    size=st.integers(1, 5),
)
def test_the_result_does_not_depend_on_how_much_fits_into_memory(
    written: list[tuple[bytes | None, bytes | None, bytes | None]],
    policy: str | None,
    fetch: int,
    memory: int,
    size: int,
) -> None:
    """Without a policy there is no key header, even if records have a header of that name."""
    cluster = MemoryCluster(fetch_limit=fetch)
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "delete"})
    for key, said, value in written:
        cluster.write("t", key, value, [] if said is None else [("ticker", said)])
    chosen = [said if policy == "header" and said is not None else key for key, said, _ in written]
    # The last record of each key, and all records without a key.
    last = {
        offset if key is None else key: (offset, key, value)
        for offset, (key, (_, _, value)) in enumerate(zip(chosen, written))
    }
    spec = cut(cluster) if policy is None else cut(cluster, key_header="ticker", key_mismatch=policy)
    for options in ({"memory": memory, "rows": size, "bytes": 16}, {}):
        found = [(row["offset"], row["key"], row["value"]) for row in rows(cluster, spec, **options)]
        assert found == sorted(last.values(), key=itemgetter(0))


def test_deletes_are_told_from_values_that_nobody_wants(cluster: MemoryCluster) -> None:
    put(cluster, ("a", "1"), ("b", "1"), ("b", None), ("c", ""))
    found = rows(cluster, cut(cluster), columns=("key", "deleted"), memory=0)
    assert [tuple(row.values()) for row in found] == [(b"a", False), (b"b", True), (b"c", False)]


# -- homes -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=20)), st.integers(1, 50))
def test_homes_are_those_of_the_partitioner(keys: list[bytes], partitions: int) -> None:
    column = pa.array([b"left out", *keys], pa.binary()).slice(1)
    assert home_partitions(column, partitions).tolist() == [home_partition(key, partitions) for key in keys]
