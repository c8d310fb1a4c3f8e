"""Reading a range of one partition's log completely, or failing."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import Literal, NoReturn

from lvq_kafka.cluster import Cluster, LogEnd
from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import Progress, describe
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.errors import CatchUpTimeout, DataLoss, TopicNotFound, TopicRecreated, TransportError
from lvq_spark.cut.pinning import SnapshotSpec

__all__ = [
    "PATIENCE",
    "POLL",
    "Consistency",
    "check_changes",
    "check_deletes",
    "check_topic",
    "check_uncut",
    "raise_halted",
    "read_on",
    "read_range",
]

Consistency = Literal["pinned", "atleast"]
"""Policy for keys whose record of the cut may have been compacted away.

That happens if there is a newer record after the cut.

- ``pinned``: fail. The result is exactly the cut.
- ``atleast``: take the newer record. No key of the cut is missing; keys that are new since then may be included.

Once a log has been compacted at its start, its gaps do not show when they were made. A key that is new after the cut is
then assumed to have lost its record, unless it is younger than the topic's ``min.compaction.lag.ms``.
"""

PATIENCE = 120.0
"""Seconds without any progress until reading fails."""

POLL = 1.0
"""Seconds that a poll waits for records."""

MOMENT, MOMENTS = 1.0, 10
"""Seconds in which no broker cleans new records, and how many such stretches suffice.

See `read_on`.
"""


def read_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    patience: float = PATIENCE,
    headers: bool = True,
    late: bool = False,
    decided: bool = True,
) -> Generator[RecordBatch]:
    """Read the records of one partition from ``start`` up to, but not including, ``end``.

    The position ends the reading: the last offsets may hold no record, and never will. With ``decided=False``, the
    records of aborted transactions come, too.

    Raises:
        DataLoss: the log starts after ``start``, or ends before ``end``.
        CatchUpTimeout: nothing moved for ``patience`` seconds.
        TransportError: the cluster cannot be reached, or refuses.
    """
    how = {"headers": headers, "late": late, "decided": decided}
    for batch in _polled(cluster, topic, partition, start, lambda _: end, patience, how):
        if len(batch):
            yield batch if batch.offsets[-1] < end else batch.rows(0, bisect_left(batch.offsets, end))


def read_on(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    *,
    patience: float = PATIENCE,
    headers: bool = True,
    late: bool = False,
) -> Generator[RecordBatch]:
    """Read one partition from ``start`` to the end of its log, without missing any key.

    The result has at least one record of each key that has any. A superseding record may lie after any end that was
    requested, and compaction may be faster than the reader. So the end is requested again, until the last stretch read
    had no gap in its offsets, or was empty: at that moment the newest record of each key existed, and it already did
    when the reader passed it.

    Raises:
        As `read_range`.
    """
    stretch, count, moments, asked = start, 0, 0, time.monotonic()

    def further(position: int) -> int:
        nonlocal stretch, count, moments, asked
        if position > stretch:
            # With one transaction after another, each with a marker, every stretch has a gap and the log never stands
            # still. A broker would have to close and clean a segment within a moment, each time for the same key.
            moments += time.monotonic() - asked < MOMENT
            if count == position - stretch or moments == MOMENTS:
                return position
        stretch, count, asked = position, 0, time.monotonic()
        return cluster.logs.end_offsets(topic, stable=True)[partition]

    for batch in _polled(cluster, topic, partition, start, further, patience, {"headers": headers, "late": late}):
        count += len(batch)
        if len(batch):
            yield batch


def _polled(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    further: Callable[[int], int],
    patience: float,
    how: Mapping[str, bool],
) -> Generator[RecordBatch]:
    """Yield batches until the position reaches the end that ``further`` returns.

    ``further`` is asked again whenever its last answer has been reached. ``how`` is how to read; see `Cluster.reader`.
    """
    end = further(start)
    if start >= end:
        return
    progress = Progress({partition: start})
    with closing(cluster.reader(topic, {partition: start}, **how)) as reader:

        def poll() -> Fetch:
            fetch = reader.poll(POLL)
            stands = fetch.positions.get(partition, 0) <= progress.positions[partition]
            if stands and (log_end := cluster.logs.end_offsets(topic).get(partition, 0)) < end:
                raise DataLoss(
                    f"The log of partition {partition} of {topic} ends at offset {log_end}, before offset {end}, up to "
                    "which it was to be read.",
                    hint="It was truncated, or the topic was replaced: take a new cut.",
                )
            return fetch

        halted = partial(raise_halted, topic)
        while progress.positions[partition] < end:
            for fetch in read_to_end(poll, progress, {partition: end}, give_up=halted, patience=patience):
                if len(fetch.batch):
                    yield fetch.batch
            end = further(progress.positions[partition])


def raise_halted(topic: str, stuck: list[Shortfall], trouble: TransportError | None) -> NoReturn:
    """Raise the error for partitions that no longer return anything.

    Raises:
        TransportError: ``trouble``, if there is any.
        CatchUpTimeout: otherwise.
    """
    raise trouble or CatchUpTimeout(
        f"Reading {topic} has stalled: {describe(stuck)}.",
        shortfalls=stuck,
        hint="Check that the partition's leader is up.",
    )


def check_deletes(spec: SnapshotSpec, partition: int, began: float, ended: float) -> None:
    """Check that no delete of a record that was read has been missed.

    Without gaps in the offsets none can be. The first cleaning that meets a delete removes the records that it deletes;
    the delete itself is removed ``delete.retention.ms`` later. If a deleted record was read, that cleaning had not
    happened when the reading began, and from then on the delete stayed readable for that long.

    Args:
        began, ended: when reading the cut began and ended, in seconds since the epoch.

    Raises:
        DataLoss: reading took longer.
    """
    if ended - began <= spec.delete_retention:
        return
    raise DataLoss(
        f"Reading partition {partition} of {spec.topic} took {ended - began:.1f} s, but the topic keeps deletes for "
        f"{spec.delete_retention:g} s (delete.retention.ms): some may have been removed before they were read, but "
        "not the values that they delete.",
        hint="Pin a new cut. If reading takes this long, raise delete.retention.ms, or give Spark more cores or the "
        "topic more partitions.",
    )


def check_changes(cluster: Cluster, spec: SnapshotSpec, partition: int, ended: float) -> None:
    """Check that a stream has missed no delete of a record that it read before (R18).

    Without gaps in the offsets none can be missed. A delete is kept for ``delete.retention.ms`` after it was written.
    So none is missing if the stream last caught up within that time, or if it went on at or after a record that is
    newer than that, since the records after it were written later. Producers are assumed not to date their records
    ahead.

    Args:
        ended: when the batch had been read, in seconds since the epoch.

    Raises:
        DataLoss: neither is the case.
    """
    retention = spec.delete_retention
    if spec.pinned is None or ended - spec.pinned <= retention:
        return
    young = cluster.logs.offsets_at(spec.topic, math.ceil((ended - retention) * 1000))[partition]
    if young <= spec.start[partition]:
        return
    raise DataLoss(
        f"The stream has not kept up with partition {partition} of {spec.topic} for {ended - spec.pinned:.0f} s, but "
        f"the topic keeps deletes for {retention:g} s (delete.retention.ms): it may have missed the delete of a key.",
        hint="Start over with another checkpoint and an empty target, or accept that with failOnDataLoss=false.",
    )


def check_topic(cluster: Cluster, spec: SnapshotSpec) -> None:
    """Check, after reading, that the topic is still the one that was pinned.

    Topic ids are never reused, so an id that matches now has matched all along.

    Raises:
        TopicRecreated: the topic is another one.
    """
    try:
        found = cluster.topics.describe(spec.topic).id
    except TopicNotFound:
        found = ""
    if found != spec.topic_id:
        raise TopicRecreated(
            f"The topic {spec.topic} was deleted{' and re-created' if found else ''} after the cut was pinned.",
            topic=spec.topic,
            hint="Pin a new cut.",
        )


def check_uncut(cluster: Cluster, spec: SnapshotSpec, partition: int) -> None:
    """Check, after reading, that no record of the cut was replaced by an unclean leader.

    A leader that was elected although it lacked records writes others at their offsets.

    Raises:
        DataLoss: that has happened to records of the cut.
    """
    epoch = spec.epochs.get(partition, -1)
    if epoch >= 0 and cluster.logs.stable_ends(spec.topic)[partition].leader_epoch != epoch:
        cluster.logs.check_uncut(spec.topic, {partition: LogEnd(spec.end[partition], epoch)})
