"""Spark's own merge of keys in several partitions, which must give the result of one fold over all of them (R14)."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_spark import SCHEMA, SnapshotSpec
from lvq_spark.rules.merge_partitions_spark import candidate_columns, candidates_schema, merge_partitions
from lvq_spark.scan.arrow_columns import Origin, to_arrow
from lvq_spark.scan.candidates import to_candidates
from tests.contract.r14 import BY_GROUP, R14ByGroupContract, R14Contract
from tests.contract.r14 import records as r14_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
SPEC = SnapshotSpec("t", "id", dict.fromkeys(range(PARTITIONS), 0), dict.fromkeys(range(PARTITIONS), 1000))


def claims(records: list[Record], spec: SnapshotSpec = SPEC) -> list[tuple[object, ...]]:
    """Return the rows that tasks make of the newest records of each partition."""
    rows: list[tuple[object, ...]] = []
    for partition in range(PARTITIONS):
        mine = RecordBatch.of(record for record in records if record.partition == partition)
        for batch in to_arrow(mine, Origin("t"), columns=candidate_columns()):
            found = to_candidates(batch, partition, spec)
            assert isinstance(found, pa.RecordBatch)
            rows += [tuple(row.values()) for row in found.to_pylist()]
    return rows


def test_a_key_has_the_row_that_one_fold_over_all_partitions_gives_it(spark: SparkSession) -> None:
    """Every contest that a few timestamps, deletes and empty values can make, among keys with a long common prefix."""
    choose = random.Random(14)
    records = [
        Record(partition, 10 * number + partition, choose.randrange(3), b"the same beginning %d" % number, value)
        for number in range(300)
        for partition in range(PARTITIONS)
        if choose.random() < 0.7
        for value in [choose.choice([None, b"", b"1", b"2"])]
    ]
    view = LatestValues(PARTITIONS, tombstone_memory=sys.maxsize)
    view.apply(RecordBatch.of(records))
    expected = {record.key: (record.value, record.partition, record.offset) for record in view.table.records()}
    rows = claims(records)
    choose.shuffle(rows)
    frame = merge_partitions(spark.createDataFrame(rows, candidates_schema()), SPEC)
    found = frame.collect()
    assert {bytes(row.key): (bytes(row.value), row.partition, row.offset) for row in found} == expected
    assert len(found) == len(expected) > 100
    assert frame.schema == spark.createDataFrame([], SCHEMA).schema
    assert {row.topic for row in found} == {"t"}


def settled(spark: SparkSession, spec: SnapshotSpec) -> Mapping[bytes, bytes]:
    """Return the result of R14's cases."""
    newest = {(record.key, record.partition): record for record in r14_records()}  # as a task leaves them
    rows = claims(list(newest.values()), spec)
    found = merge_partitions(spark.createDataFrame(rows, candidates_schema()), spec).collect()
    return {bytes(row.key): bytes(row.value) for row in found}


@pytest.fixture(scope="module")
def placed_by_key(spark: SparkSession) -> Mapping[bytes, bytes]:
    return settled(spark, SPEC)


@pytest.fixture(scope="module")
def placed_by_group(spark: SparkSession) -> Mapping[bytes, bytes]:
    return settled(spark, replace(SPEC, groups=BY_GROUP))


class TestMergePartitionsSpark(R14Contract):
    @pytest.fixture
    def current(self, placed_by_key: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        return placed_by_key


class TestMergePartitionsSparkByGroup(R14ByGroupContract):
    @pytest.fixture
    def current(self, placed_by_group: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        return placed_by_group


def test_records_without_a_key_hide_none_of_each_other(spark: SparkSession) -> None:
    records = [Record(partition, offset, 0, None, b"x") for partition in range(PARTITIONS) for offset in range(4)]
    found = merge_partitions(spark.createDataFrame(claims(records), candidates_schema()), SPEC).collect()
    assert sorted((row.partition, row.offset) for row in found) == [(r.partition, r.offset) for r in records]


def test_a_message_done_by_a_group_hides_older_ones_elsewhere() -> None:
    """R7: the group's row takes part as a delete."""
    home = home_partition(b"k", PARTITIONS)
    done = {partition: CommitMap(2 if partition == home else 0, ()) for partition in range(PARTITIONS)}
    spec = SnapshotSpec("t", "id", SPEC.start, SPEC.end, done=done)
    rows = claims([Record(partition, 1, 0, b"k", b"v") for partition in range(PARTITIONS)], spec)
    at_home = [(place, deleted, value) for _, place, _, _, deleted, value, _, is_home in rows if is_home]
    assert at_home == [(home, True, None)]
    assert sum(value is not None for *_, value, _, _ in rows) == PARTITIONS - 1
