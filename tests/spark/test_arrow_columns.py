"""Conversion of records to Arrow batches without loss."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.ranking import Ranking
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import Ttl
from lvq_spark.scan.arrow_columns import COLUMNS, Origin, arrow_schema, to_arrow


def test_a_record_is_written_as_it_is() -> None:
    headers: Headers = (("k", b"1"), ("k", None), ("empty", b""))
    records = [Record(3, 7, 1_700_000_000_123, b"", b"", headers), Record(0, 1, -1, b"\xff", None)]
    (batch,) = to_arrow(RecordBatch.of(records), Origin("t"))
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


def test_every_column_is_a_valid_array_of_its_type() -> None:
    cells = [(b"k", b"v", (("h", b"1"),)), (None, None, ()), (b"", b"", (("h", None), ("\N{PILE OF POO}", b"")))]
    records = [Record(5, offset, 1000 + offset, *cells[offset % 3]) for offset in range(100)]
    ranking = Ranking.of("priority", priorities=None, sort_header=None)
    origin = Origin("\N{EURO SIGN}", 1, ExpiryTimes(Ttl(default=2.0)), ranking, "h")
    (batch,) = to_arrow(RecordBatch.of(records), origin, columns=list(COLUMNS))
    batch.validate(full=True)
    assert batch.schema == arrow_schema(COLUMNS)
    assert [column.null_count for column in batch.columns] == [33, 33, 0, 0, 0, 0, 0, 33, 0, 0, 0, 66, 100]
    assert batch["topic"].to_pylist() == ["\N{EURO SIGN}"] * 100
    assert batch["timestampType"].to_pylist() == [1] * 100
    assert batch["deleted"].to_pylist() == [offset % 3 == 1 for offset in range(100)]
    assert batch["expires"].cast(pa.int64()).to_pylist() == [1000 * (3000 + offset) for offset in range(100)]
    assert batch["priority"].to_pylist() == [4] * 100
    assert batch["sort_key"].to_pylist() == ["1" if offset % 3 == 0 else None for offset in range(100)]
    headers = [[{"key": name, "value": value} for name, value in record.headers] or None for record in records]
    assert batch["headers"].to_pylist() == headers


def test_a_timestamp_that_no_column_can_hold_is_no_other_time() -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"overflow|out of bounds"):
        list(to_arrow(RecordBatch.of([Record(0, 0, 1 << 60, b"k", b"v")]), Origin("t")))


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k", bytes(3 << 20), ()),
        (bytes(3 << 20), b"", ()),
        (b"k", b"", (("h", bytes(3 << 20)), ("n", None))),
    ],
)
def test_batches_are_bounded_by_bytes(key: bytes, value: bytes, headers: Headers) -> None:
    large = RecordBatch.of(Record(0, offset, 0, key, value, headers) for offset in range(7))
    sizes = [len(batch) for batch in to_arrow(large, Origin("t"))]
    assert sum(sizes) == 7
    assert max(sizes) <= 2
    sole = RecordBatch.of([Record(0, 0, 0, b"k", bytes(20 << 20))])
    assert [len(batch) for batch in to_arrow(sole, Origin("t"))] == [1]
    assert list(to_arrow(RecordBatch(), Origin("t"))) == []
