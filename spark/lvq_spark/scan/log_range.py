"""Reading a range of one partition's log, from where it starts to where it ends, or failing."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Literal

from lvq_kafka.cluster import Cluster, LogEnd
from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.errors import CatchUpTimeout, DataLoss, TopicNotFound, TopicRecreated, TransportError
from lvq_spark.pinning import SnapshotSpec

__all__ = [
    "PATIENCE",
    "Consistency",
    "check_changes",
    "check_deletes",
    "check_topic",
    "check_uncut",
    "halted",
    "read_on",
    "read_range",
]

Consistency = Literal["pinned", "atleast"]
"""What to do about keys whose record of the cut may have been compacted away, because a newer one lies behind the cut.

- ``pinned``: fail. What comes is exactly the cut.
- ``atleast``: take the newer record. No key of the cut is missing; keys that are new since then may come, too.

Once a log has been compacted at its start, its holes tell nothing of when they were made. A key that is new behind the
cut is then taken for one whose record may be gone, unless it is younger than the topic's ``min.compaction.lag.ms``.
"""

PATIENCE = 120.0
"""Seconds without any progress until reading fails."""

MOMENT, MOMENTS = 1.0, 10
"""Seconds in which a broker does not clean what was written since, and how often that is relied upon; see `read_on`."""


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
) -> Generator[RecordBatch]:
    """The records of one partition from ``start`` up to, but without, ``end``.

    It is the position that ends the reading: the last offsets may hold no record, and never will.

    Raises:
        DataLoss: the log does not reach as far back, or as far.
        CatchUpTimeout: nothing moved for ``patience`` seconds.
        TransportError: the cluster cannot be reached or refuses.
    """
    for batch in _polled(cluster, topic, partition, start, lambda _: end, patience, headers=headers, late=late):
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
    """The records of one partition from ``start`` up to where its log ends: of each key at least one, if it has any.

    What supersedes a record may lie behind any end that was asked for, and compaction be faster than the reading. So
    the end is asked for again, until the stretch that was read to it had no hole in its offsets, or no stretch is left:
    at that moment the newest record of each key was there, and had been when it was passed.

    Raises:
        As `read_range`.
    """
    stretch, count, moments, asked = start, 0, 0, time.monotonic()

    def further(position: int) -> int:
        nonlocal stretch, count, moments, asked
        if position > stretch:
            # Where transactions follow each other, each with a marker, every stretch has a hole and the log never
            # stands still. A broker would have to close a segment and clean it within a moment, of one key each time.
            moments += time.monotonic() - asked < MOMENT
            if count == position - stretch or moments == MOMENTS:
                return position
        stretch, count, asked = position, 0, time.monotonic()
        return cluster.end_offsets(topic, stable=True)[partition]

    for batch in _polled(cluster, topic, partition, start, further, patience, headers=headers, late=late):
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
    *,
    headers: bool,
    late: bool,
) -> Generator[RecordBatch]:
    """What comes, until the position is not below what ``further`` says of it; that is asked when it was reached."""
    position, heard, end = start, time.monotonic(), further(start)
    if position >= end:
        return
    with closing(cluster.reader(topic, {partition: start}, headers=headers, late=late)) as reader:
        while position < end:
            try:
                fetch = reader.poll(1.0)
                stands = fetch.positions.get(partition, position) <= position
                if stands and (ends := cluster.end_offsets(topic).get(partition, 0)) < end:
                    raise DataLoss(
                        f"The log of partition {partition} of {topic} ends at offset {ends}, before offset {end}, up "
                        "to which it was to be read.",
                        hint="It was truncated, or the topic is another one by now: take a new cut.",
                    )
            except TransportError as error:
                if not error.retriable or time.monotonic() - heard > patience:
                    raise
                continue
            if not stands:
                position, heard = fetch.positions[partition], time.monotonic()
            elif time.monotonic() - heard > patience:
                raise halted(topic, [Shortfall(partition, position, end)])
            if len(fetch.batch):
                yield fetch.batch
            if position >= end:
                end = further(position)


def halted(topic: str, stuck: Sequence[Shortfall]) -> CatchUpTimeout:
    """The error for partitions of which nothing comes any more."""
    return CatchUpTimeout(
        f"Reading {topic} has come to a halt: {describe(stuck)}.",
        shortfalls=stuck,
        hint="Check that the partition's leader is there.",
    )


def check_deletes(spec: SnapshotSpec, partition: int, began: float | None, ended: float) -> None:
    """See that no delete of a partition was missed of what was read there; without holes in its offsets none can be.

    The cleaning that comes upon a delete first takes away what it deletes; the delete itself goes
    ``delete.retention.ms`` later. If what it deletes was read, that cleaning had not been done when the reading began:
    for that long from then on the delete was there to be read, too.

    Args:
        began, ended: the reading from the start to the end of the cut, in seconds since the epoch. Where it is not
            known when it began, it was not before the cut was pinned.

    Raises:
        DataLoss: it took longer.
    """
    since = spec.pinned if began is None else began
    if since is None or ended - since <= spec.delete_retention:
        return
    raise DataLoss(
        f"Reading partition {partition} of {spec.topic} took {ended - since:.1f} s"
        f"{' since the cut was pinned' if began is None else ''}, and the topic keeps deletes for "
        f"{spec.delete_retention:g} s (delete.retention.ms): some may have gone before they were read, and what they "
        "delete had not.",
        hint="Pin a new cut. If reading takes this long, raise delete.retention.ms, give Spark more cores or the topic "
        "more partitions.",
    )


def check_changes(cluster: Cluster, spec: SnapshotSpec, partition: int, ended: float) -> None:
    """See that a stream has missed no delete of what it read before (R18); without holes in the offsets none can be.

    A delete is there for ``delete.retention.ms``, from when it was written on. So none is missing where the stream had
    read all there was that long ago or later, and none where it went on behind, or at, a record that is not as old:
    what lies behind a record was written after it. No producer is taken to date its records ahead.

    Args:
        ended: when the batch had been read, in seconds since the epoch.

    Raises:
        DataLoss: neither is so.
    """
    retention = spec.delete_retention
    if spec.pinned is None or ended - spec.pinned <= retention:
        return
    young = cluster.offsets_at(spec.topic, math.ceil((ended - retention) * 1000))[partition]
    if young <= spec.start[partition]:
        return
    raise DataLoss(
        f"The stream has not kept up with partition {partition} of {spec.topic} for {ended - spec.pinned:.0f} s, and "
        f"the topic keeps deletes for {retention:g} s (delete.retention.ms): there may be keys whose delete it has "
        "missed.",
        hint="Start anew with another checkpoint and an empty target, or take that with failOnDataLoss=false.",
    )


def check_topic(cluster: Cluster, spec: SnapshotSpec) -> None:
    """Asked after the reading: ids never come back, so one that is the same now was the same all along.

    Raises:
        TopicRecreated: the topic is not the one that was pinned.
    """
    try:
        found = cluster.describe_topic(spec.topic).id
    except TopicNotFound:
        found = ""
    if found != spec.topic_id:
        raise TopicRecreated(
            f"The topic {spec.topic} was deleted{' and created again' if found else ''} after the cut was pinned.",
            topic=spec.topic,
            hint="Pin a new cut.",
        )


def check_uncut(cluster: Cluster, spec: SnapshotSpec, partition: int) -> None:
    """Asked after the reading: a leader that was elected although it lacked records writes others at their offsets.

    Raises:
        DataLoss: that has happened to records of the cut.
    """
    epoch = spec.epochs.get(partition, -1)
    if epoch >= 0 and cluster.stable_ends(spec.topic)[partition].leader_epoch != epoch:
        cluster.check_uncut(spec.topic, {partition: LogEnd(spec.end[partition], epoch)})
