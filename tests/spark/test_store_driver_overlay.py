"""Small deltas that the driver applies itself: the result is that of one fold over the log. Spark gets larger ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka import LastValueQueue
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.errors import StateError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing import MemoryCluster
from lvq_spark.cut.pinning import pin
from lvq_spark.scan.arrow_columns import SNAPSHOT_COLUMNS, arrow_schema
from lvq_spark.scan.scanning import Scan
from lvq_spark.store import driver_delta
from lvq_spark.store.driver_delta import DriverDelta, fits
from lvq_spark.store.hadoop import HadoopStorage
from lvq_spark.store.layout.driver_overlay import overlaid
from lvq_spark.store.layout.layers import STORED, visible
from lvq_spark.store.layout.spark_delta import FORGET_NONE
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.merge_partitions_arrow import ROLE, MergePartitions
from lvq_spark.store.storage import LocalStorage
from lvq_spark.store.versions import Store
from tests.effort import examples
from tests.spark.test_merge_partitions_arrow import PARTITIONS, batches, histories
from tests.spark.test_store_versions import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = dict.fromkeys(range(PARTITIONS), 0)


def delta(records: Iterable[Record]) -> DriverDelta:
    return DriverDelta(pa.Table.from_batches(batches(records), arrow_schema()))


def first(store: Store, records: Iterable[Record]) -> Version:
    """Return a version read from the whole log, as Spark writes it."""
    rows = list(MergePartitions(PARTITIONS, FORGET_NONE)(batches(records)))
    files: tuple[DataFile, ...] = ()
    if rows:
        content = pa.BufferOutputStream()
        table = pa.Table.from_batches(rows)
        pq.write_table(table, content, use_deprecated_int96_timestamps=True, row_group_size=2)
        files = (DataFile("v1-0123456789ab/part-0.parquet", len(content.getvalue())),)
        store.storage.create(files[0].name, content.getvalue().to_pybytes())
    current = sum(batch[ROLE].to_pylist().count("current") for batch in rows)
    kept = sum(map(len, rows)) - current
    return replace(
        VERSION,
        topic="t",
        number=1,
        start=NOWHERE,
        end=NOWHERE,
        schema=STORED,
        files=files,
        overlaid=0,
        rows=current,
        kept=kept,
    )


def above(store: Store, base: Version, records: Iterable[Record], start: Mapping[int, int] = NOWHERE) -> Version:
    """Return a version with an overlay."""
    number = base.number + 1
    done = overlaid(store, base, delta(records), f"v{number}-0123456789ab", start)
    files = (*(file for file in base.files if not file.overlay), done.file)
    return replace(base, number=number, files=files, overlaid=done.records, rows=done.rows, kept=done.kept, start=start)


def held(store: Store, version: Version) -> list[dict[str, Any]]:
    """Return the rows of a version, by the definition of an overlay."""
    layers: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for file in version.files:
        with store.storage.open(file.name) as source:
            layers[file.overlay] += pq.read_table(source, coerce_int96_timestamp_unit="us").to_pylist()
    hiding = {row["key"] for row in layers[True]}
    rows = layers[True] + [row for row in layers[False] if row["key"] not in hiding]
    return [row for row in rows if row["offset"] >= version.start[row["partition"]]]


@settings(max_examples=examples(100), deadline=None)
@given(history=histories(), data=st.data())
def test_an_overlay_tells_what_the_log_tells(history: list[list[Record]], data: st.DataObject) -> None:
    with TemporaryDirectory() as path:
        store = Store(LocalStorage(path))
        version = first(store, history[0])
        for number in range(1, len(history)):
            known = list(chain(*history[: number + 1]))
            start = dict(version.start)
            if version.kept == 0:  # otherwise everything is rewritten when the log's start moves
                ends = [1 + max([r.offset for r in known if r.partition == p], default=-1) for p in NOWHERE]
                start = {p: data.draw(st.integers(start[p], ends[p])) for p in NOWHERE}
            news = [record for record in history[number] if record.offset >= start[record.partition]]
            if not news:
                break
            version = above(store, version, news, start)
            view = LatestValues(PARTITIONS, tombstone_memory=1 << 60)
            view.apply(RecordBatch.of(sorted(r for r in known if r.offset >= start[r.partition])))
            rows = held(store, version)
            current = [row for row in rows if row[ROLE] == "current"]
            assert {(r["partition"], r["offset"]) for r in current} == {
                (r.partition, r.offset) for r in view.table.records()
            }
            assert (version.rows, version.kept) == (len(current), len(rows) - len(current))
            assert len({row["key"] for row in current}) == len(current)


CHANGES = [
    [
        Record(0, 0, 1000, b"a", b"1", (("h", None), ("h", b""))),
        Record(1, 0, 1000, b"b", b"1"),
        Record(2, 0, 1, b"", b""),
    ],
    [Record(0, 1, 2000, b"b", b"astray"), Record(2, 1, 2, b"", None)],
    [Record(0, 2, 2500, b"new", b"1"), Record(1, 1, 3000, b"b", b"2")],
]


def test_all_columns_come_through_on_every_file_system(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    hadoop = HadoopStorage(jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path / 'hadoop'}")
    found = []
    for storage in (LocalStorage(str(tmp_path / "local")), hadoop):
        store = Store(storage)
        version = first(store, CHANGES[0])
        for records in CHANGES[1:]:
            version = above(store, version, records)
        found.append(sorted(held(store, version), key=lambda row: (row["partition"], row["offset"])))
    assert found[0] == found[1]
    seen = visible(spark, store, version, 0.0)
    assert {(bytes(row.key), row.timestamp.timestamp()) for row in seen.collect()} == {
        (b"a", 1.0),
        (b"b", 3.0),
        (b"new", 2.5),
    }
    (untouched, *_) = found[0]
    assert (untouched["key"], untouched["headers"]) == (b"a", [{"key": "h", "value": None}, {"key": "h", "value": b""}])
    assert {(row["key"], row[ROLE]) for row in found[0]} == {
        (b"a", "current"),
        (b"b", "current"),
        (b"b", "rival"),
        (b"", "delete"),
        (b"new", "current"),
    }


def test_records_below_the_log_s_start_are_not_counted_and_count_against_nothing(tmp_path: Path) -> None:
    home = home_partition(b"k", PARTITIONS)
    stray = (home + 1) % PARTITIONS
    store = Store(LocalStorage(str(tmp_path)))
    records = [(home, 0, b"k"), (stray, 0, b"gone"), (stray, 1, b"other"), (stray, 2, b"contested")]
    base = first(store, [Record(partition, offset, 10, key, b"1") for partition, offset, key in records])
    news = [Record(stray, 3, 5, b"k", b"2"), Record((home + 2) % PARTITIONS, 0, 5, b"contested", b"2")]
    version = above(store, base, news, {**NOWHERE, home: 1, stray: 1})
    assert {(row["key"], row["offset"]) for row in held(store, version) if row[ROLE] == "current"} >= {
        (b"k", 3),
        (b"other", 1),
    }
    assert (version.rows, version.kept) == (3, 1)


def test_an_overlay_that_somebody_deletes_is_missed(tmp_path: Path) -> None:
    class Swept(LocalStorage):
        def create(self, name: str, content: bytes) -> bool:
            done = super().create(name, content)
            if name.startswith("v2-"):
                os.unlink(tmp_path / name)
            return done

    store = Store(Swept(str(tmp_path)))
    version = first(store, CHANGES[0])
    with pytest.raises(StateError, match="was written, but is missing"):
        above(store, version, CHANGES[1])


def test_work_that_is_too_much_for_the_driver_is_left_to_spark() -> None:
    base = replace(VERSION, rows=1000, kept=10, files=(DataFile("v1-0123456789ab/f", 7, overlay=True),))
    assert fits(base, driver_delta.OFFSETS)
    assert not fits(base, driver_delta.OFFSETS + 1)
    assert not fits(replace(base, kept=driver_delta.RECORDS), 1)
    assert fits(replace(base, files=(DataFile("f", driver_delta.BYTES + 1),)), 1)
    assert not fits(replace(base, files=(DataFile("f", driver_delta.BYTES + 1, overlay=True),)), 1)


def test_a_delta_is_read_over_the_queue_s_own_connection_unless_it_is_too_large(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_cluster.topics.create("t", partitions=2, config={"cleanup.policy": "compact"})
    for partition, key, value in ((0, b"a", b"1"), (1, b"b", b"1"), (0, b"a", b"2" * 100), (1, b"b", None)):
        memory_cluster.write("t", key, value, partition=partition)
    queue = LastValueQueue("t", key_header=None, cluster=memory_cluster)
    config = ClientConfig("nowhere:1")
    scan = Scan(pin(queue), config, SNAPSHOT_COLUMNS, deletes=True, keyless="fail")
    found = driver_delta.read(scan, memory_cluster)
    assert found is not None
    assert [(row["key"], row["offset"]) for row in found.rows.to_pylist()] == [(b"a", 1), (b"b", 1)]
    assert (found.upserts, found.deletes) == (2, 1)
    assert driver_delta.read(replace(scan, spec=pin(queue, start=scan.spec.end)), memory_cluster) == DriverDelta(
        arrow_schema().empty_table(), scheduled={}
    )
    monkeypatch.setattr(driver_delta, "BYTES", 1302)
    assert driver_delta.read(scan, memory_cluster) is not None
    monkeypatch.setattr(driver_delta, "BYTES", 1301)
    assert driver_delta.read(scan, memory_cluster) is None
