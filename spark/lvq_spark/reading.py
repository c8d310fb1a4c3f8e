"""Reading one partition of a pinned cut: from the log to the newest record of each key."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.mismatch import choose_keys
from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.core.records import Record, RecordBatch
from lvq_kafka.errors import CatchUpTimeout, DataLoss, TopicNotFound, TopicRecreated, TransportError
from lvq_kafka.ports import Log
from lvq_spark.pinning import SnapshotSpec

__all__ = ["Consistency", "read_partition"]

Consistency = Literal["pinned", "atleast"]
"""What to do about keys whose record of the cut may have been compacted away, because a newer one lies behind the cut.

- ``pinned``: fail. What comes is exactly the cut.
- ``atleast``: take the newer record. No key of the cut is missing; keys that are new since then may come, too.
"""

# Stands for the null value of a delete, so that the fold keeps deletes like values. Told by identity, never by content.
_DELETE = bytes(bytearray(b"deleted"))

_PATIENCE = 120.0  # seconds without any progress until reading fails


def read_partition(
    log: Log, spec: SnapshotSpec, partition: int, consistency: Consistency = "pinned", *, patience: float = _PATIENCE
) -> Iterator[Record]:
    """The newest record of each key in one partition of a cut, deletes included (``value`` None), in offset order.

    Deletes matter as long as the same key may lie in another partition (R14).

    Raises:
        DataLoss: records of the cut are gone, or may be gone (see `Consistency`).
        TopicRecreated: the topic is not the one that was pinned.
        CatchUpTimeout: nothing moved for ``patience`` seconds.
        KeyMismatch: a record's header and key disagree, and the queue's policy is ``"fail"``.
        TransportError: the cluster cannot be reached or refuses.
    """
    start, end = spec.start[partition], spec.end[partition]
    table = _table(spec)
    count = 0
    for batch in _batches(log, spec.topic, partition, start, end, patience):
        count += len(batch)
        _apply(table, batch)
    # Without holes in the offsets nothing can be missing; with some, they may be of before the cut or of after it.
    overtaken = [] if count == end - start else _overtaken(log, spec, partition, table, patience)
    _check_topic(log, spec)
    if overtaken and consistency == "pinned":
        raise DataLoss(
            f"{len(overtaken)} keys of {spec.topic}, partition {partition}, have newer records behind the cut at "
            f"offset {end} and none before it, among them {overtaken[0].key!r}. If they are not new, compaction has "
            "removed the record that belongs to the cut.",
            hint="Take a new cut, raise the topic's min.compaction.lag.ms above the longest job, "
            "or read with consistency='atleast'.",
        )
    _apply(table, RecordBatch.of(overtaken))
    for record in table.records():
        yield record._replace(value=None) if record.value is _DELETE else record


def _table(spec: SnapshotSpec) -> LatestValues:
    return LatestValues(1, key_header=spec.key_header, key_mismatch=spec.key_mismatch, topic=spec.topic)


def _apply(table: LatestValues, batch: RecordBatch) -> None:
    values = batch.values
    if not all(values) and None in values:
        batch.values = [_DELETE if value is None else value for value in values]
    table.apply(batch)


def _batches(log: Log, topic: str, partition: int, start: int, end: int, patience: float) -> Iterator[RecordBatch]:
    """The records of one partition from ``start`` up to, but without, ``end``.

    It is the position that ends the reading: the last offsets may hold no record, and never will.
    """
    position, heard = start, time.monotonic()
    with closing(log.reader(topic, {partition: start})) as reader:
        while position < end:
            try:
                fetch = reader.poll(1.0)
            except TransportError as error:
                if not error.retriable or time.monotonic() - heard > patience:
                    raise
                continue
            if fetch.positions.get(partition, position) > position:
                position, heard = fetch.positions[partition], time.monotonic()
            elif time.monotonic() - heard > patience:
                stuck = [Shortfall(partition, position, end)]
                raise CatchUpTimeout(
                    f"Reading {topic} has come to a halt: {describe(stuck)}.",
                    shortfalls=stuck,
                    hint="Check that the partition's leader is there and that its log still reaches that far.",
                )
            batch = fetch.batch
            if len(batch):
                yield batch if batch.offsets[-1] < end else _head(batch, bisect_left(batch.offsets, end))


def _head(batch: RecordBatch, rows: int) -> RecordBatch:
    return RecordBatch(
        batch.partitions[:rows],
        batch.offsets[:rows],
        batch.timestamps[:rows],
        batch.keys[:rows],
        batch.values[:rows],
        batch.headers[:rows],
    )


def _overtaken(log: Log, spec: SnapshotSpec, partition: int, table: LatestValues, patience: float) -> list[Record]:
    """The newest records of keys that lie behind the cut and not in it, though they may have been in it once.

    A record of the cut can only be compacted away in favour of a newer one of its key behind the cut, and only once
    that one is older than the topic's compaction lag. So what was written behind the cut, up to where the log ends
    now, tells all keys that this may have happened to.
    """
    end = spec.end[partition]
    live = log.end_offsets(spec.topic, stable=True)[partition]
    if live <= end:
        return []
    newer = _table(spec)
    suspects: set[bytes] = set()
    cleanable = (time.time() - spec.compaction_lag) * 1000
    for batch in _batches(log, spec.topic, partition, end, live, patience):
        keys, _ = choose_keys(batch, spec.topic, spec.key_header, spec.key_mismatch)
        suspects.update(
            key
            for key, timestamp in zip(keys, batch.timestamps)
            if key is not None and timestamp <= cleanable and key not in table
        )
        _apply(newer, batch)
    return [record for record in newer.records() if record.key in suspects]


def _check_topic(log: Log, spec: SnapshotSpec) -> None:
    """Asked after the reading: ids never come back, so one that is the same now was the same all along."""
    try:
        found = log.describe_topic(spec.topic).id
    except TopicNotFound:
        found = ""
    if found != spec.topic_id:
        raise TopicRecreated(
            f"The topic {spec.topic} was deleted{' and created again' if found else ''} after the cut was pinned.",
            topic=spec.topic,
            hint="Pin a new cut.",
        )
