"""Records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from lvq_kafka.core.log.records import RawHeaders, RecordBatch, header_value
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import Ranking
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_spark.rules.expiry import LAST
from lvq_spark.scan.arrays import binary, booleans, integers, lists, repeated, strings, texts_or_nulls
from lvq_spark.schema import EXPIRES, GROUP, PRIORITY, SNAPSHOT_COLUMNS, SORT_KEY

__all__ = ["COLUMNS", "Origin", "arrow_schema", "header_bytes", "moments", "parts", "to_arrow"]

ROWS, BYTES = 10_000, 8 << 20
"""The most rows and bytes of one Arrow batch; a single value may be larger."""

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
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
    EXPIRES: _TIMESTAMP,
    PRIORITY: pa.int32(),
    SORT_KEY: pa.string(),
    GROUP: pa.binary(),
}
"""The possible columns: the Arrow types of `lvq_spark.schema.TYPES`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic of records, its timestamp type, and what their headers mean, if anything.

    ``expiry_times`` judges when they expire, ``priorities`` has their priorities as ranks, ``sort_header`` names the
    header of their sort keys, and ``groups`` has their grouping.
    """

    topic: str
    timestamp_type: int = -1
    expiry_times: ExpiryTimes | None = None
    priorities: Ranking | None = None
    sort_header: str | None = None
    groups: Groups | None = None


_BuildColumn = Callable[[RecordBatch, Origin], pa.Array]

# Builds each column from a batch and its origin.
_BUILDERS: dict[str, _BuildColumn] = {
    "key": lambda batch, _: binary(batch.keys),
    "value": lambda batch, _: binary(batch.values),
    "topic": lambda batch, origin: repeated(origin.topic, len(batch)),
    "partition": lambda batch, _: integers(pa.int32(), batch.partitions),
    "offset": lambda batch, _: integers(pa.int64(), batch.offsets),
    "timestamp": lambda batch, _: moments(batch.timestamps),
    "timestampType": lambda batch, origin: integers(pa.int32(), [origin.timestamp_type] * len(batch)),
    "headers": lambda batch, _: _headers(batch.headers),
    "deleted": lambda batch, _: booleans(value is None for value in batch.values),
    EXPIRES: lambda batch, origin: _expires(batch, origin.expiry_times),
    PRIORITY: lambda batch, origin: _priorities(batch, origin.priorities),
    SORT_KEY: lambda batch, origin: _sort_keys(batch, origin.sort_header),
    GROUP: lambda batch, origin: _groups(batch, origin.groups),
}


def arrow_schema(columns: Iterable[str] = SNAPSHOT_COLUMNS) -> pa.Schema:
    """Return the schema of batches with these columns."""
    return pa.schema([pa.field(name, COLUMNS[name]) for name in columns])


def to_arrow(
    batch: RecordBatch, origin: Origin, *, columns: Sequence[str] = SNAPSHOT_COLUMNS, most: int = BYTES
) -> Iterator[pa.RecordBatch]:
    """Convert records to Arrow batches with these columns, in their order.

    ``most`` limits the bytes of keys, values and headers in a batch; headers are estimated by `header_bytes`.
    """

    def size(part: RecordBatch) -> int:
        keys = sum(map(len, filter(None, part.keys))) if "key" in columns else 0
        values = part.size if "value" in columns else 0
        return keys + values + (header_bytes(part) if "headers" in columns else 0)

    schema = arrow_schema(columns)
    for part in parts(batch, len(batch), most, size):
        yield pa.RecordBatch.from_arrays([_BUILDERS[name](part, origin) for name in columns], schema=schema)


def parts(batch: RecordBatch, rows: int, most: int, size: Callable[[RecordBatch], int]) -> Iterator[RecordBatch]:
    """Split a batch into parts of at most ``rows`` rows and ``most`` bytes.

    A single record may be larger.
    """
    if len(batch) > rows:
        for start in range(0, len(batch), rows):
            yield from parts(batch.rows(start, start + rows), rows, most, size)
    elif len(batch) > 1 and size(batch) > most:
        yield from parts(batch, len(batch) - len(batch) // 2, most, size)
    elif len(batch):
        yield batch


def header_bytes(batch: RecordBatch) -> int:
    """Estimate the size of the headers from those of the last record.

    Reading the headers of every record would take too long.
    """
    last = batch.rows(max(0, len(batch) - 1), len(batch)).headers
    return len(batch) * sum(len(name) + len(value or b"") for cell in last for name, value in cell or ())


def moments(times: Sequence[int]) -> pa.Array:
    """Return timestamps from milliseconds since the epoch."""
    return integers(_MILLISECONDS, times).cast(_TIMESTAMP)


def _expires(batch: RecordBatch, expiry_times: ExpiryTimes | None) -> pa.Array:
    if expiry_times is None:
        return pa.nulls(len(batch), _TIMESTAMP)
    times = np.array(expiry_times.expiries(batch.timestamps, batch.headers, plain=False), np.int64)
    valid = times <= LAST
    return integers(_MILLISECONDS, np.where(valid, times, 0), valid).cast(_TIMESTAMP)


def _priorities(batch: RecordBatch, priorities: Ranking | None) -> pa.Array:
    if priorities is None:
        return pa.nulls(len(batch), pa.int32())
    return integers(pa.int32(), [-int(priorities.rank(cells)) for cells in batch.headers])  # a higher one ranks lower


def _sort_keys(batch: RecordBatch, header: str | None) -> pa.Array:
    if header is None:
        return pa.nulls(len(batch), pa.string())
    texts = (header_value(cells or (), header) for cells in batch.headers)
    return texts_or_nulls(None if text is None else text.decode(errors="replace") for text in texts)


def _groups(batch: RecordBatch, groups: Groups | None) -> pa.Array:
    return binary([None if groups is None else groups.group(headers) for headers in batch.headers])


def _headers(cells: Sequence[RawHeaders]) -> pa.Array:
    """Return a list of structs for each record; null for none, as in the Kafka connector."""
    flat = list(chain.from_iterable(filter(None, cells)))
    names, values = strings(name for name, _ in flat), binary([value for _, value in flat])
    return lists(_HEADERS, cells, pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type)))
