"""Reading a range of one partition's log, from where it starts to where it ends, or failing."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.errors import CatchUpTimeout, TopicNotFound, TopicRecreated, TransportError
from lvq_kafka.ports import Log
from lvq_spark.pinning import SnapshotSpec

__all__ = ["PATIENCE", "Consistency", "check_topic", "read_range"]

Consistency = Literal["pinned", "atleast"]
"""What to do about keys whose record of the cut may have been compacted away, because a newer one lies behind the cut.

- ``pinned``: fail. What comes is exactly the cut.
- ``atleast``: take the newer record. No key of the cut is missing; keys that are new since then may come, too.
"""

PATIENCE = 120.0
"""Seconds without any progress until reading fails."""


def read_range(
    log: Log,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    patience: float = PATIENCE,
    headers: bool = True,
    late: bool = False,
) -> Iterator[RecordBatch]:
    """The records of one partition from ``start`` up to, but without, ``end``.

    It is the position that ends the reading: the last offsets may hold no record, and never will.

    Raises:
        DataLoss: the log does not reach as far back, or as far.
        CatchUpTimeout: nothing moved for ``patience`` seconds.
        TransportError: the cluster cannot be reached or refuses.
    """
    position, heard = start, time.monotonic()
    with closing(log.reader(topic, {partition: start}, headers=headers, late=late)) as reader:
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
                yield batch if batch.offsets[-1] < end else batch.rows(0, bisect_left(batch.offsets, end))


def check_topic(log: Log, spec: SnapshotSpec) -> None:
    """Asked after the reading: ids never come back, so one that is the same now was the same all along.

    Raises:
        TopicRecreated: the topic is not the one that was pinned.
    """
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
