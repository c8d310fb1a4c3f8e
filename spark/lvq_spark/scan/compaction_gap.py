"""Proof that compaction has not overtaken a cut whose offsets have gaps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.kafka import ClientConfig
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.log_range import PATIENCE, read_range

__all__ = ["Superseded", "aborted_without_gap", "first_without_gap"]


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
    if spec.decisive_header is not None or not _same_replica(cluster, spec, config, partition):
        return {}
    first = _run(cluster, spec, partition, patience, decided=True)
    if not _same_replica(cluster, spec, config, partition):
        return {}
    found: dict[bytes, int] = {}
    for key, offset in zip(first.keys, first.offsets):
        if key is not None:
            found.setdefault(key, offset)
    return found


class Superseded:
    """Keys among a cut's first records that later ones supersede, whichever keys a task keeps.

    With `first_without_gap` they prove that nothing is missing. Some suffice, so the search ends with the first batch
    that has any.
    """

    def __init__(self) -> None:
        self._first: frozenset[bytes | None] | None = None
        self._last: dict[bytes | None, int] = {}  # the last offset of each key of that batch

    def search(self, batch: RecordBatch) -> None:
        """Search the next batch of the cut."""
        if self._last or not len(batch):
            return
        keys = batch.keys
        last = dict(zip(keys, batch.offsets))
        if self._first is None:
            self._first = frozenset(last)
            if len(last) < len(keys):
                self._last = last
        elif not self._first.isdisjoint(keys):
            self._last = last

    def among(self, first: Mapping[bytes, int]) -> bool:
        """Return whether a later record supersedes one of these."""
        return any(self._last.get(key, offset) > offset for key, offset in first.items())


def aborted_without_gap(
    cluster: Cluster, spec: SnapshotSpec, config: ClientConfig, partition: int, *, patience: float = PATIENCE
) -> bool:
    """Return whether an aborted record is among a cut's first records, before the first gap.

    Call this after the cut has been read. If so, no record of the cut has been removed: a cleaner leaves none of an
    aborted transaction behind, whatever its key, so none has come as far. The answer is False where it would prove
    nothing; see `first_without_gap`.

    Raises:
        As `read_range`.
    """
    if not _same_replica(cluster, spec, config, partition):
        return False
    left = set(_run(cluster, spec, partition, patience, decided=False).offsets)
    start, end = spec.start[partition], spec.start[partition] + len(left)
    with closing(read_range(cluster, spec.topic, partition, start, end, patience=patience, headers=False)) as batches:
        left = left.difference(*(batch.offsets for batch in batches))
    return bool(left) and _same_replica(cluster, spec, config, partition)


def _run(cluster: Cluster, spec: SnapshotSpec, partition: int, patience: float, *, decided: bool) -> RecordBatch:
    """Return the first records of a cut, up to the first gap, of a single fetch."""
    start, end = spec.start[partition], spec.end[partition]
    with closing(
        read_range(cluster, spec.topic, partition, start, end, patience=patience, headers=False, decided=decided)
    ) as batches:
        first = next(batches, RecordBatch())
    gap = next((row for row, offset in enumerate(first.offsets) if offset != start + row), len(first))
    return first.rows(0, gap)


def _same_replica(cluster: Cluster, spec: SnapshotSpec, config: ClientConfig, partition: int) -> bool:
    """Return whether a cut has been read from one replica, the leader at its pinning."""
    epoch = spec.epochs.get(partition, -1)
    if config.properties.get("client.rack") or epoch < 0:
        return False
    return cluster.logs.stable_ends(spec.topic)[partition].leader_epoch == epoch
