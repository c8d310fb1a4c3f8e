"""Proof that compaction has not overtaken a cut whose offsets have gaps."""

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
    """Return the offsets of a cut's first records by key, up to the first gap.

    Call this after the cut has been read. If one of these records is superseded within the cut, then no record of the
    cut has been removed in favor of one after the cut: the gaps are transaction markers, or were there before. Kafka's
    cleaner goes through a log from the start, segment by segment, and leaves no record there that it knows to be
    superseded. A cleaner that knows of anything after the cut has not reached that record, and has removed nothing
    before it.

    The result is empty if it would prove nothing: if keys differ from the record keys that a broker cleans by, or if
    several replicas may have been read, since each is cleaned by itself.

    It is empty, too, if the first offsets are gaps of an earlier cleaning. The records after those gaps prove nothing:
    a cleaner that knows of records after the cut may have emptied the segments before it, and still be running. To rule
    that out, the start of the log would have to be compared with that before the cut was pinned.

    Raises:
        As `read_range`.
    """
    epoch = spec.epochs.get(partition, -1)
    if spec.decisive_header is not None or config.properties.get("client.rack") or epoch < 0:
        return {}
    start, end = spec.start[partition], spec.end[partition]
    with closing(read_range(cluster, spec.topic, partition, start, end, patience=patience, headers=False)) as batches:
        first = next(batches, RecordBatch())
    if cluster.logs.stable_ends(spec.topic)[partition].leader_epoch != epoch:
        return {}
    found: dict[bytes, int] = {}
    for place, (key, offset) in enumerate(zip(first.keys, first.offsets), start):
        if offset != place:
            break
        if key is not None:
            found.setdefault(key, offset)
    return found
