"""Section 15: reading a compacted topic.

A view, a browser and a consumer do a cold load when they open. Spark's batch snapshot follows the same rules; its tests
are in ``tests/spark``.
"""

from __future__ import annotations

from itertools import count

import pytest

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.testing import MemoryCluster
from tests.contract.harness import read_all
from tests.scenarios.harness import PATIENCE, Declare, Queue


def cold_load(q: Queue) -> dict[str, str]:
    """Open every kind of reader, check that all finish and agree, and return the values."""
    view = q.view()
    values, end = q.browse().dump()
    assert end.blocked == ()
    assert end.offsets == q.venue.cluster.logs.end_offsets(q.queue.topic) == view.snapshot().offsets
    assert values == list(view.values())
    consumer = q.consume()
    assert consumer.take_all() == values
    consumer.close()
    return dict(view)


def test_s155_a_null_body_deletes_and_an_empty_body_is_a_value(q: Queue) -> None:
    """R9."""
    q.send("a=1")
    q.delete("a")
    q.send("b=")
    assert cold_load(q) == {"b": ""}


def test_s156_a_log_that_ends_in_transaction_markers_is_loaded_to_its_end(q: Queue) -> None:
    with q.transaction() as send:
        send("a=1")
    with q.transaction() as send:
        send("a=2")
    assert cold_load(q) == {"a": "2"}


def test_s156_a_log_that_starts_at_offset_1_is_loaded_to_its_end(declare: Declare) -> None:
    q = declare(spec=TopicSpec(reclaim=True))
    q.send("a=1", "a=2", "b=3")
    q.venue.delete_records(q.queue.topic, 0, 1)
    assert q.venue.cluster.logs.start_offsets(q.queue.topic) == {0: 1}
    assert cold_load(q) == {"a": "2", "b": "3"}


def test_s156_a_log_with_offsets_and_nothing_in_it_is_loaded_to_its_end(declare: Declare) -> None:
    q = declare(spec=TopicSpec(reclaim=True))
    q.send("a=1", "a=2")
    q.venue.delete_records(q.queue.topic, 0, 2)
    assert cold_load(q) == {}


def test_s157_a_log_whose_last_record_was_aborted_is_loaded_to_its_end(q: Queue) -> None:
    """This holds before and after compaction removes that record and leaves only its marker."""
    q.send("a=1", "b=2", "b=3")
    with q.transaction(abort=True) as send:
        send("a=4")
    assert dict(q.view()) == {"a": "1", "b": "3"}
    assert q.content() == ["1", "3"]
    q.venue.compact(q.queue.topic)
    assert cold_load(q) == {"a": "1", "b": "3"}


def write_what_goes(q: Queue) -> dict[int, int]:
    """Write two partitions that end in a delete and in an aborted record with its marker; return their ends.

    The deletes do not come from an idempotent producer: the broker keeps its last batch, without records.
    """
    for partition, key, value in [(0, "a", "1"), (0, "b", "2"), (1, "c", "1"), (1, "d", "2"), (1, "d", None)]:
        q.venue.write(q.queue.topic, partition, key, value)
    aborted = next(key for key in map(str, count()) if home_partition(key.encode(), 2) == 1)
    with q.transaction(abort=True) as send:
        send(f"{aborted}=3")
    q.venue.write(q.queue.topic, 0, "b", None)
    ends = q.venue.cluster.logs.end_offsets(q.queue.topic)
    assert ends == {0: 3, 1: 5}
    return ends


def check_what_is_left(q: Queue, ends: dict[int, int]) -> None:
    """Check that only the first record of each partition is left, and that the ends are the same."""
    assert q.venue.cluster.logs.end_offsets(q.queue.topic) == ends
    assert [(record.partition, record.offset) for record in read_all(q.venue.cluster, q.queue.topic)] == [
        (0, 0),
        (1, 0),
    ]
    assert cold_load(q) == {"a": "1", "c": "1"}


def test_s157_a_log_whose_last_records_were_compacted_away_is_loaded_to_its_end(declare: Declare) -> None:
    """The offsets between the first records and the ends have no records, and never will."""
    q = declare(spec=TopicSpec(partitions=2))
    cluster = q.venue.cluster
    assert isinstance(cluster, MemoryCluster)
    ends = write_what_goes(q)
    cluster.close_segments(q.queue.topic)
    cluster.compact(q.queue.topic, drop_tombstones=True)
    check_what_is_left(q, ends)


@pytest.mark.parametrize("key", ["a", ""])
@pytest.mark.parametrize("foreign_first", [True, False], ids=["foreign-first", "home-first"])
def test_s158_a_key_in_two_partitions_has_one_value_and_is_reported(
    declare: Declare, key: str, foreign_first: bool
) -> None:
    """R14: the home partition, where this library's writers put the key, wins even over a later write by a foreign
    partitioner. A key in one partition only has the value it has there."""
    q = declare(spec=TopicSpec(partitions=3))
    view = q.view()
    foreign = (home_partition(key.encode(), 3) + 1) % 3
    if foreign_first:
        q.venue.write(q.queue.topic, foreign, key, "foreign")
        assert q.content() == ["foreign"]
    q.send(f"{key}=ours")
    if not foreign_first:
        q.venue.write(q.queue.topic, foreign, key, "foreign")
    view.barrier(PATIENCE)
    assert dict(view) == {key: "ours"}
    assert (view.split_keys, view.stats.split) == ([key], 1)
    assert q.content() == ["ours"]
    assert dict(q.view()) == {key: "ours"}


def test_s159_a_key_that_has_moved_to_another_partition_has_its_newest_value_or_none(q: Queue) -> None:
    """R14: a delete in the new home hides the old value in the previous one."""
    topic, cluster = q.queue.topic, q.venue.cluster
    key = next(key for key in map(str, count()) if home_partition(key.encode(), 4) != 0)
    view, browser = q.view(), q.browse()
    assert q.send(f"{key}=1") == [Position(topic, 0, 0)]
    assert browser.drain() == ["1"]
    cluster.topics.add_partitions(topic, 4)
    # Open writers discover new partitions with a delay. A new writer knows them at once.
    with LastValueQueue.open(q.name, cluster=cluster).producer() as writer:
        assert writer.put(key, b"2").result(PATIENCE).partition == home_partition(key.encode(), 4)
        view.barrier(PATIENCE)
        assert dict(view) == dict(q.view()) == {key: "2"}
        assert browser.drain() == ["2"]
        assert q.content() == ["2"]
        writer.delete(key).result(PATIENCE)
        view.barrier(PATIENCE)
    assert dict(view) == dict(q.view()) == {}
    assert browser.drain() == [f"{key} deleted"]
    assert q.content() == []


def test_s161_a_snapshot_has_one_row_for_a_key_that_compaction_has_not_touched(q: Queue) -> None:
    q.send(*(f"a={number}" for number in range(1, 51)))
    snapshot = q.view().snapshot()
    assert [(entry.key, entry.value) for entry in snapshot.entries()] == [("a", "50")]
    assert snapshot.offsets == {0: 50}
    assert q.content() == ["50"]


def test_s162_a_snapshot_of_a_log_with_gaps_and_markers_has_the_right_rows(q: Queue) -> None:
    q.send("a=1", "a=2", "b=1")
    with q.transaction() as send:
        send("c=1", "a=3")
    with q.transaction(abort=True) as send:
        send("b=never", "d=never")
    q.send("c=2", "e=1")
    q.delete("e")
    q.venue.compact(q.queue.topic)
    with q.transaction() as send:
        send("f=1")
    snapshot = q.view().snapshot()
    assert dict(snapshot) == {"b": "1", "a": "3", "c": "2", "f": "1"}
    assert len(snapshot) == len(snapshot.entries()) == 4
    assert snapshot.offsets == q.venue.cluster.logs.end_offsets(q.queue.topic)
    assert snapshot.offsets[0] > 12
    assert cold_load(q) == dict(snapshot)
