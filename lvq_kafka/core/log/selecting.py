"""The records of a topic as a queue with a selector sees them (R26)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lvq_kafka.core.log.records import Record, RecordBatch, new_record

__all__ = ["Selects", "only_selected"]

Selects = Callable[[Record], bool]
"""Returns whether a record with a value is selected. It never raises."""


def only_selected(batch: RecordBatch, keys: Sequence[bytes | None], selects: Selects) -> RecordBatch:
    """Return a batch with deletes in place of the values that are not selected.

    Such a value is not in the queue, and the one before it is no longer the newest of its key. So for the queue it is
    a delete, which every reader derives from the record alone.

    Args:
        batch: the records.
        keys: the key of each, as chosen by the queue's policy (R16).
        selects: the queue's selector.
    """
    values = list(batch.values)
    columns = zip(batch.partitions, batch.offsets, batch.timestamps, keys, values, batch.headers)
    for row, (partition, offset, timestamp, key, value, headers) in enumerate(columns):
        if value is not None and not selects(new_record((partition, offset, timestamp, key, value, headers or ()))):
            values[row] = None
    return RecordBatch(batch.partitions, batch.offsets, batch.timestamps, batch.keys, values, batch.headers)
