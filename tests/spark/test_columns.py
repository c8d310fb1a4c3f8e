"""Records become Arrow batches without a loss, and keys in several partitions come out as a view has them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.keys import home_partition
from lvq_kafka.core.records import Headers, Record, RecordBatch
from lvq_spark.scan.columns import merge_partitions, to_arrow


def test_a_record_is_written_as_it_is() -> None:
    headers: Headers = (("k", b"1"), ("k", None), ("empty", b""))
    records = [Record(3, 7, 1_700_000_000_123, b"", b"", headers), Record(0, 1, -1, b"\xff", None)]
    (batch,) = to_arrow(RecordBatch.of(records), "t")
    assert batch.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    assert [list(row.values()) for row in batch.drop_columns(["timestamp"]).to_pylist()] == [
        [
            b"",
            b"",
            "t",
            3,
            7,
            [{"key": "k", "value": b"1"}, {"key": "k", "value": None}, {"key": "empty", "value": b""}],
        ],
        [b"\xff", None, "t", 0, 1, None],
    ]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, -1000]
    assert batch.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_batches_are_bounded_by_bytes() -> None:
    large = RecordBatch.of(Record(0, offset, 0, b"k", bytes(3 << 20)) for offset in range(7))
    sizes = [len(batch) for batch in to_arrow(large, "t")]
    assert sum(sizes) == 7
    assert max(sizes) <= 2
    assert [len(batch) for batch in to_arrow(RecordBatch.of([Record(0, 0, 0, b"k", bytes(20 << 20))]), "t")] == [1]
    assert list(to_arrow(RecordBatch(), "t")) == []


PARTITIONS = 3
KEYS = [b"", b"a", b"b", b"c", b"dd", b"\xff\x00"]


@st.composite
def partition_logs(draw: st.DrawFn) -> list[list[Record]]:
    """Any key in any partition, as mixed partitioners and added partitions leave them; clocks that run backwards."""
    logs = []
    for partition in range(PARTITIONS):
        values = st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=2))
        headers: st.SearchStrategy[Headers] = st.sampled_from([(), (("h", None), ("h", b""))])
        rows = draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(KEYS), values, headers), max_size=12))
        logs.append([Record(partition, offset, *row) for offset, row in enumerate(rows)])
    return logs


@settings(max_examples=150, deadline=None)
@given(logs=partition_logs(), shuffler=st.randoms(use_true_random=False))
def test_a_merge_gives_what_one_fold_over_all_partitions_gives(logs: list[list[Record]], shuffler: object) -> None:
    view = LatestValues(PARTITIONS, tombstone_memory=sys.maxsize)
    view.apply(RecordBatch.of(record for log in logs for record in log))
    newest = [record for log in logs for record in {record.key: record for record in log}.values()]
    shuffler.shuffle(newest)  # type: ignore[attr-defined]  # a shuffle promises no order
    assert merged(newest) == {record.key: record for record in view.records()}


def test_the_home_of_a_key_wins_over_a_newer_stray_even_by_its_delete() -> None:
    home = home_partition(b"k", PARTITIONS)
    stray, other = [partition for partition in range(PARTITIONS) if partition != home]
    live = Record(home, 1, 10, b"k", b"home")
    newer = Record(stray, 5, 99, b"k", b"stray")
    assert merged([newer, live]) == {b"k": live}
    assert merged([newer, live._replace(value=None)]) == {}
    assert merged([newer, Record(other, 9, 98, b"k", b"older stray")]) == {b"k": newer}


def merged(records: Sequence[Record]) -> dict[bytes | None, Record]:
    middle = len(records) // 2
    halves = [list(to_arrow(RecordBatch.of(half), "t")) for half in (records[:middle], records[middle:])]
    rows = [row for batch in merge_partitions(halves[0] + halves[1], "t", PARTITIONS) for row in batch.to_pylist()]
    found = {
        row["key"]: Record(
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    }
    assert len(found) == len(rows), "never two current values"
    return found
