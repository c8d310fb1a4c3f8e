"""A task reads its part of the cut: all of it, nothing behind it, and it fails when it cannot know."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.records import Fetch, RecordBatch
from lvq_kafka.errors import BrokerUnavailable, CatchUpTimeout, DataLoss, KeyMismatch, TopicRecreated
from lvq_kafka.testing import MemoryLog
from lvq_spark import SnapshotSpec, pin
from lvq_spark.reading import read_partition


@pytest.fixture
def log(memory_log: MemoryLog) -> MemoryLog:
    memory_log.create_topic("t", partitions=1, config={"cleanup.policy": "compact"})
    return memory_log


def cut(log: MemoryLog, **options: Any) -> SnapshotSpec:
    return pin(LastValueQueue("t", **{"key_header": None, "log": log, **options}))


def put(log: MemoryLog, *pairs: tuple[str, str | None]) -> None:
    for key, value in pairs:
        log.write("t", key.encode(), None if value is None else value.encode())


def read(log: MemoryLog, spec: SnapshotSpec, **options: Any) -> list[tuple[str, str | None]]:
    return [
        ((record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in read_partition(log, spec, 0, **options)
    ]


def test_the_newest_record_of_each_key_comes_in_offset_order_and_deletes_come_too(log: MemoryLog) -> None:
    put(log, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", None), ("", ""), ("b", None), ("b", "deleted"))
    assert read(log, cut(log)) == [("a", "2"), ("c", None), ("", ""), ("b", "deleted")]
    assert list(read_partition(log, cut(log), 0)) == [log.records("t")[offset] for offset in (2, 4, 5, 7)]


def test_nothing_behind_the_cut_comes(log: MemoryLog) -> None:
    put(log, ("a", "1"), ("b", "1"))
    spec = cut(log)
    put(log, ("a", "2"), ("c", "1"), ("b", None))
    assert read(log, spec) == [("a", "1"), ("b", "1")]


def test_a_cut_whose_last_offsets_hold_no_record_is_read_to_its_end(log: MemoryLog) -> None:
    put(log, ("a", "1"))
    writer = log.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("t", b"a", b"never").result()
    writer.abort_transaction()
    spec = cut(log)
    assert spec.end == {0: 3}
    assert read(log, spec) == [("a", "1")]


@pytest.mark.parametrize("fetch_limit", [1, 2, 100])
def test_a_cut_with_holes_is_read_whatever_the_size_of_the_fetches(fetch_limit: int) -> None:
    log = MemoryLog(fetch_limit=fetch_limit)
    log.create_topic("t", partitions=1, config={"cleanup.policy": "compact"})
    put(log, *[(f"k{n % 3}", str(n)) for n in range(20)])
    log.compact("t")
    spec = cut(log)
    put(log, ("k0", "later"))
    assert read(log, spec) == [("k2", "17"), ("k0", "18"), ("k1", "19")]


def test_the_key_is_the_one_that_the_queues_policy_chooses(log: MemoryLog) -> None:
    log.write("t", b"a", b"1", [("ticker", b"b")])
    assert read(log, cut(log, key_header="ticker")) == [("a", "1")]
    assert read(log, cut(log, key_header="ticker", key_mismatch="header")) == [("b", "1")]
    with pytest.raises(KeyMismatch):
        read(log, cut(log, key_header="ticker", key_mismatch="fail"))


# -- keys that vanish behind the cut -----------------------------------------------------------------------------------


def vanish(log: MemoryLog, **config: str) -> SnapshotSpec:
    """Pin a cut, and lose the record of ``a`` in it to compaction. Another key is new since, a third is updated."""
    log.alter_topic_config("t", config)
    put(log, ("a", "1"), ("b", "1"), ("c", "1"), ("c", None))
    spec = cut(log)
    put(log, ("a", "2"), ("b", "2"), ("c", "2"), ("new", "1"))
    log.compact("t", choose=lambda record: record.key == b"a")
    return spec


def test_a_key_that_compaction_may_have_taken_out_of_the_cut_is_not_left_out_silently(log: MemoryLog) -> None:
    spec = vanish(log)
    with pytest.raises(DataLoss, match=r"2 keys of t, partition 0, .* among them b'a'.*min\.compaction\.lag\.ms"):
        read(log, spec)


def test_at_least_the_cut_comes_when_asked_for(log: MemoryLog) -> None:
    assert read(log, vanish(log), consistency="atleast") == [("b", "1"), ("c", None), ("a", "2"), ("new", "1")]


def test_a_key_that_is_deleted_behind_the_cut_may_have_been_in_it(log: MemoryLog) -> None:
    put(log, ("a", "1"), ("b", "1"))
    spec = cut(log)
    put(log, ("a", None))
    log.compact("t")
    with pytest.raises(DataLoss):
        read(log, spec)
    assert read(log, spec, consistency="atleast") == [("b", "1"), ("a", None)]


def test_nothing_can_be_missing_from_a_cut_without_holes(log: MemoryLog) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    put(log, ("new", "1"), ("a", "2"))
    assert read(log, spec) == [("a", "1")]


def test_nothing_can_be_missing_while_the_topic_keeps_superseded_records(log: MemoryLog) -> None:
    put(log, ("a", "1"), ("a", "2"), ("b", "1"))
    log.compact("t")
    log.alter_topic_config("t", {"min.compaction.lag.ms": "60000"})
    spec = cut(log)
    put(log, ("new", "1"))
    assert read(log, spec) == [("a", "2"), ("b", "1")]


def test_an_older_record_behind_the_cut_counts_though_a_young_one_hides_it(memory_log: MemoryLog) -> None:
    now = [time.time() - 100]
    log = MemoryLog(clock=lambda: now[0])
    log.create_topic("t", partitions=1, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "50000"})
    put(log, ("a", "1"), ("b", "1"))
    spec = cut(log)
    put(log, ("a", "2"))
    log.compact("t")
    now[0] = time.time()
    put(log, ("a", "3"))
    with pytest.raises(DataLoss):
        read(log, spec)


# -- what else may happen in between -----------------------------------------------------------------------------------


def test_records_deleted_since_are_an_error(log: MemoryLog) -> None:
    put(log, ("a", "1"), ("b", "1"))
    spec = cut(log)
    log.delete_records("t", 0, 1)
    with pytest.raises(DataLoss):
        read(log, spec)


def test_a_topic_created_again_is_not_taken_for_the_one_that_was_pinned(log: MemoryLog) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    log.delete_topic("t")
    log.create_topic("t", partitions=1, config={"cleanup.policy": "compact"})
    put(log, ("b", "1"))
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        read(log, spec)


def test_an_outage_is_waited_out(log: MemoryLog) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    log.fail_next("poll", BrokerUnavailable("gone", code="_TRANSPORT", retriable=True), times=3)
    assert read(log, spec) == [("a", "1")]


def test_an_outage_that_does_not_end_is_an_error(log: MemoryLog) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    log.disconnect()
    with pytest.raises(BrokerUnavailable):
        read(log, spec, patience=0.1)


def test_a_partition_that_never_reaches_the_end_of_the_cut_is_an_error(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    stuck = log.reader("t", {0: 0})
    monkeypatch.setattr(stuck, "poll", lambda timeout: Fetch(RecordBatch(), {}))
    monkeypatch.setattr(log, "reader", lambda *arguments: stuck)
    with pytest.raises(CatchUpTimeout, match="partition 0 stands at offset 0 of 1") as error:
        read(log, spec, patience=0.0)
    assert [shortfall.partition for shortfall in error.value.shortfalls] == [0]


def test_readers_are_closed(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log, ("a", "1"))
    spec = cut(log)
    readers = []
    reader: Callable[..., Any] = log.reader

    def remember(*arguments: Any) -> Any:
        readers.append(reader(*arguments))
        return readers[-1]

    monkeypatch.setattr(log, "reader", remember)
    read(log, spec)
    assert [reader._closed for reader in readers] == [True]
