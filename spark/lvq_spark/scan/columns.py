"""Records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain

import pyarrow as pa

from lvq_kafka.core.records import RecordBatch
from lvq_spark.schema import SNAPSHOT_COLUMNS

__all__ = ["COLUMNS", "arrow_schema", "header_bytes", "to_arrow"]

ROWS, BYTES = 10_000, 8 << 20
"""Of one Arrow batch, at most; a single value may be larger."""

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")

COLUMNS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
    "deleted": pa.bool_(),
}
"""The columns there can be: `lvq_spark.schema.TYPES` as Arrow has them."""

_Cells = Callable[[RecordBatch, str, int], pa.Array]

# Each column from a batch, the topic's name and its timestamp type.
_CELLS: dict[str, _Cells] = {
    "key": lambda batch, *_: pa.array(batch.keys, pa.binary()),
    "value": lambda batch, *_: pa.array(batch.values, pa.binary()),
    "topic": lambda batch, topic, _: pa.repeat(topic, len(batch)),
    "partition": lambda batch, *_: pa.array(batch.partitions, pa.int32()),
    "offset": lambda batch, *_: pa.array(batch.offsets, pa.int64()),
    "timestamp": lambda batch, *_: pa.array(batch.timestamps, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP),
    "timestampType": lambda batch, _, kind: pa.repeat(pa.scalar(kind, pa.int32()), len(batch)),
    "headers": lambda batch, *_: _headers(batch.headers),
    "deleted": lambda batch, *_: pa.array([value is None for value in batch.values], pa.bool_()),
}


def arrow_schema(columns: Iterable[str] = SNAPSHOT_COLUMNS) -> pa.Schema:
    """The schema of batches with these columns."""
    return pa.schema([pa.field(name, COLUMNS[name]) for name in columns])


def to_arrow(
    batch: RecordBatch,
    topic: str,
    *,
    columns: Sequence[str] = SNAPSHOT_COLUMNS,
    timestamp_type: int = -1,
    most: int = BYTES,
) -> Iterator[pa.RecordBatch]:
    """Write records into Arrow batches with these columns, in their order, of at most so many bytes.

    They are those of values and headers, the latter by `header_bytes`.
    """
    size = batch.size if "value" in columns else 0
    if "headers" in columns:
        size += header_bytes(batch)
    if len(batch) > 1 and size > most:
        half = len(batch) // 2
        for part in (batch.rows(0, half), batch.rows(half, len(batch))):
            yield from to_arrow(part, topic, columns=columns, timestamp_type=timestamp_type, most=most)
    elif len(batch):
        yield pa.RecordBatch.from_arrays(
            [_CELLS[name](batch, topic, timestamp_type) for name in columns], schema=arrow_schema(columns)
        )


def header_bytes(batch: RecordBatch) -> int:
    """What headers take, roughly: those of the last record stand for all, since it takes long to read each."""
    last = batch.rows(max(0, len(batch) - 1), len(batch)).headers
    return len(batch) * sum(len(name) + len(value or b"") for cell in last for name, value in cell or ())


def _headers(cells: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """A list of structs for each record; null for none, as the Kafka connector has it."""
    if not any(cells):
        return pa.nulls(len(cells), _HEADERS)
    names, values = zip(*chain.from_iterable(filter(None, cells)))
    structs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    ends = pa.array(accumulate((len(cell or ()) for cell in cells), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, structs, type=_HEADERS, mask=pa.array([not cell for cell in cells]))
