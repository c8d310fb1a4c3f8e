"""Records become Arrow batches without a loss."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lvq_kafka.core.records import Headers, Record, RecordBatch
from lvq_spark.scan.columns import to_arrow


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


@pytest.mark.parametrize(("value", "headers"), [(bytes(3 << 20), ()), (b"", (("h", bytes(3 << 20)), ("n", None)))])
def test_batches_are_bounded_by_bytes(value: bytes, headers: Headers) -> None:
    large = RecordBatch.of(Record(0, offset, 0, b"k", value, headers) for offset in range(7))
    sizes = [len(batch) for batch in to_arrow(large, "t")]
    assert sum(sizes) == 7
    assert max(sizes) <= 2
    assert [len(batch) for batch in to_arrow(RecordBatch.of([Record(0, 0, 0, b"k", bytes(20 << 20))]), "t")] == [1]
    assert list(to_arrow(RecordBatch(), "t")) == []
