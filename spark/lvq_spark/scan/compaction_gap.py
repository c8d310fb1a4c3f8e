"""Telling that compaction has not overtaken a cut, where holes in its offsets leave that open."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.kafka import ClientConfig
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.log_range import PATIENCE, read_range

__all__ = ["first_without_gap"]


def first_without_gap(
    cluster: Cluster, spec: SnapshotSpec, config: ClientConfig, partition: int, *, patience: float = PATIENCE
) -> Mapping[bytes, int]:
    """Where the first records of a cut lie, by key, as far as they are there without a hole. Ask after it was read.

    If one of them is superseded within the cut, then nothing of the cut is missing in favour of what lies behind it,
    and its holes are markers of transactions, or were there before. For Kafka's cleaner goes through a log from the
    start, segment by segment, and leaves no record there that it knows to be superseded. One that knows of anything
    behind the cut has not come as far as that record, and has taken nothing before it.

    Nothing comes where that proves nothing: where other keys count than those that a broker cleans by, and where
    reading may have been from several replicas. Each is cleaned by itself.

    Nor where the first offsets are holes of an earlier cleaning. What comes behind them does not tell: a cleaning that
    knows of what lies behind the cut may have emptied the segments before it, and be at work still. It would take what
    the log began with before the cut was pinned, to compare.

    Raises:
        As `read_range`.
    """
    epoch = spec.epochs.get(partition, -1)
    if spec.decisive_header is not None or config.properties.get("client.rack") or epoch < 0:
        return {}
    start, end = spec.start[partition], spec.end[partition]
    with closing(read_range(cluster, spec.topic, partition, start, end, patience=patience, headers=False)) as batches:
        first = next(batches, RecordBatch())
    if cluster.stable_ends(spec.topic)[partition].leader_epoch != epoch:
        return {}
    found: dict[bytes, int] = {}
    for place, (key, offset) in enumerate(zip(first.keys, first.offsets), start):
        if offset != place:
            break
        if key is not None:
            found.setdefault(key, offset)
    return found
