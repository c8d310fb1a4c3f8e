"""A store's rows for keys in several partitions, which must give the result of one fold over the log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Placement
from lvq_spark.scan.arrow_columns import Origin, to_arrow
from lvq_spark.store.merge_partitions_arrow import MergePartitions
from tests.contract import r14
from tests.effort import examples

PARTITIONS = 3
KEYS = [b"", b"a", b"b", b"c", b"dd", b"\xff\x00"]


def batches(records: Iterable[Record]) -> list[pa.RecordBatch]:
    return list(to_arrow(RecordBatch.of(records), Origin("t")))


def settle(rows: Iterable[pa.RecordBatch], horizon: int = 0, placement: Placement = "key") -> list[dict[str, Any]]:
    step = MergePartitions(PARTITIONS, horizon, placement)
    return [row for batch in step(rows) for row in batch.to_pylist()]


def roles(records: Sequence[Record], horizon: int = 0) -> dict[tuple[int, int], str]:
    return {(row["partition"], row["offset"]): row["lvq_role"] for row in settle(batches(records), horizon)}


class TestMergePartitionsArrow(r14.R14Contract):
    @pytest.fixture
    def current(self) -> Mapping[bytes, bytes]:
        return {row["key"]: row["value"] for row in settle(batches(r14.records())) if row["lvq_role"] == "current"}


class TestMergePartitionsArrowByGroup(r14.R14ByGroupContract):
    @pytest.fixture
    def current(self) -> Mapping[bytes, bytes]:
        rows = settle(batches(r14.records()), placement="group")
        return {row["key"]: row["value"] for row in rows if row["lvq_role"] == "current"}


@st.composite
def histories(draw: st.DrawFn) -> list[list[Record]]:
    """Draw the records between refreshes, several times: any key in any partition, with clocks that run backwards."""
    offsets, refreshes = [0] * PARTITIONS, []
    row = st.tuples(
        st.integers(0, PARTITIONS - 1), st.integers(0, 9), st.sampled_from(KEYS), st.sampled_from([None, b"", b"v"])
    )
    for _ in range(draw(st.integers(1, 4))):
        records = []
        for partition, timestamp, key, value in draw(st.lists(row, max_size=15)):
            records.append(Record(partition, offsets[partition], timestamp, key, value))
            offsets[partition] += 1
        refreshes.append(records)
    return refreshes


@settings(max_examples=examples(150), deadline=None)
@given(history=histories(), shuffler=st.randoms(use_true_random=False))
def test_the_kept_rows_say_what_the_whole_log_says(history: list[list[Record]], shuffler: Any) -> None:
    view = LatestValues(PARTITIONS, tombstone_memory=sys.maxsize)
    kept: list[pa.RecordBatch] = []
    for records in history:
        view.apply(RecordBatch.of(sorted(records)))
        shuffler.shuffle(records)  # a shuffle guarantees no order
        table = pa.Table.from_batches(kept) if kept else None
        known = [] if table is None else table.drop_columns(["lvq_role"]).to_batches()
        kept = list(MergePartitions(PARTITIONS, 0)([*known, *batches([*records, *records[:2]])]))
        rows = [row for batch in kept for row in batch.to_pylist()]
        current = [row for row in rows if row["lvq_role"] == "current"]
        places = {(record.partition, record.offset) for record in view.table.records()}
        assert {(row["partition"], row["offset"]) for row in current} == places
        assert len({row["key"] for row in current}) == len(current)
        assert len({(row["key"], row["partition"]) for row in rows}) == len(rows)


def test_records_are_what_their_rivals_make_them() -> None:
    home = home_partition(b"k", PARTITIONS)
    stray, other = [partition for partition in range(PARTITIONS) if partition != home]
    at_home, astray = Record(home, 5, 10, b"k", b"v"), Record(stray, 7, 99, b"k", b"v")
    deleted = at_home._replace(offset=6, value=None)
    assert roles([at_home, astray]) == {(home, 5): "current", (stray, 7): "rival"}
    assert roles([at_home, astray, deleted]) == {(home, 6): "rival", (stray, 7): "rival"}
    assert roles([at_home, deleted]) == {(home, 6): "delete"}
    assert roles([astray, Record(other, 1, 100, b"k", None)]) == {(stray, 7): "rival", (other, 1): "rival"}
    assert roles([at_home, Record(home, 9, 1, b"", b"")]) == {(home, 5): "current", (home, 9): "current"}
    assert settle([]) == []


def test_a_delete_is_forgotten_when_it_is_old_and_nothing_contests_it() -> None:
    deletes = [Record(0, 1, 99, b"a", None), Record(0, 2, 100, b"b", None), Record(1, 3, 98, b"c", None)]
    home = home_partition(b"c", PARTITIONS)
    contested = Record((home + 1) % PARTITIONS, 4, 50, b"c", b"v")
    deletes[2] = deletes[2]._replace(partition=home)
    kept = roles([*deletes, contested], horizon=100)
    assert kept == {(0, 2): "delete", (home, 3): "rival", (contested.partition, 4): "rival"}


def test_the_columns_of_a_record_come_through_as_they_are() -> None:
    record = Record(1, 7, 1_700_000_000_123, b"k", b"", (("h", None), ("h", b"")))
    (row,) = settle(batches([record]))
    (plain,) = batches([record])[0].to_pylist()
    assert row == {**plain, "lvq_role": "current"}
