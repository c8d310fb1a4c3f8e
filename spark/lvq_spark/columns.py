"""Records as Arrow batches, and the rule for a key that lies in several partitions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.records import Headers, Record, RecordBatch

__all__ = ["merge_partitions", "to_batches"]

_ROWS, _BYTES = 10_000, 8 << 20  # of one Arrow batch, whichever comes first

_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("headers", _HEADERS),
    ]
)


def to_batches(records: Iterable[Record], topic: str) -> Iterator[pa.RecordBatch]:
    """Write records into Arrow batches of bounded size, in their order."""
    rest = iter(records)
    while rows := list(islice(rest, _ROWS)):
        yield from _bounded(rows, topic)


def _bounded(rows: Sequence[Record], topic: str) -> Iterator[pa.RecordBatch]:
    partitions, offsets, timestamps, keys, values, headers = zip(*rows)
    if len(rows) > 1 and sum(map(len, filter(None, values))) > _BYTES:
        half = len(rows) // 2
        yield from _bounded(rows[:half], topic)
        yield from _bounded(rows[half:], topic)
        return
    yield pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.repeat(topic, len(rows)),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(timestamps, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP),
            _headers(headers),
        ],
        schema=_SCHEMA,
    )


def _headers(cells: Sequence[Headers]) -> pa.Array:
    """A list of structs for each record; null for none, as the Kafka connector has it."""
    names, values = zip(*chain.from_iterable(cells)) if any(cells) else ((), ())
    structs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"]
    )
    ends = pa.array(accumulate(map(len, cells), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, structs, type=_HEADERS, mask=pa.array([not cell for cell in cells]))


def merge_partitions(batches: Iterable[pa.RecordBatch], topic: str, partitions: int) -> Iterator[pa.RecordBatch]:
    """One row for each key, out of the newest ones of each partition, deletes included; the deleted are left out (R14).

    Almost every key lies in one partition only, and passes through in Arrow. The others go through the very fold that
    a view uses, so its rule is the rule.
    """
    received = list(batches)
    if not received:
        return
    # Between two steps Spark renames what does not matter: the time zone of an instant, the element of a list.
    table = pa.Table.from_batches(received).cast(_SCHEMA)
    counts = pc.value_counts(table["key"])
    shared = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    in_several = pc.is_in(table["key"], value_set=shared)
    yield from table.filter(pc.and_not(pc.is_valid(table["value"]), in_several)).to_batches(max_chunksize=_ROWS)
    if len(shared):
        rivals = list(_records(table.filter(in_several)))
        rivals.sort(key=lambda record: (record.partition, record.offset))
        # Here every delete that was read counts: nothing is left to wait for, so none must be forgotten.
        winners = LatestValues(partitions, topic=topic, tombstone_memory=sys.maxsize)
        winners.apply(RecordBatch.of(rivals))
        yield from to_batches(winners.records(), topic)


def _records(table: pa.Table) -> Iterator[Record]:
    timestamps = table["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = (table["partition"], table["offset"], timestamps, table["key"], table["value"], table["headers"])
    for partition, offset, timestamp, key, value, headers in zip(*(column.to_pylist() for column in columns)):
        cells = tuple((header["key"], header["value"]) for header in headers or ())
        yield Record(partition, offset, timestamp, key, value, cells)
