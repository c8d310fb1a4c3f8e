"""The functions that run on the executors: each task reads its shares of a cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lvq_kafka.core.log.records import RecordBatch
from lvq_spark.rules.expiry import LAST
from lvq_spark.scan.arrow_columns import Origin, to_arrow
from lvq_spark.scan.candidates import strays, to_candidates
from lvq_spark.scan.scanning import Scan, connected
from lvq_spark.scan.shares import Shares
from lvq_spark.scan.task_metrics import TaskMetrics

__all__ = ["ReadCandidates", "ReadRows", "ReadStored"]


@dataclass(frozen=True, slots=True)
class ReadRows:
    """A step that reads the shares of tasks, given by their places."""

    scan: Scan
    tasks: Sequence[Shares]

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these tasks."""
        with connected(self.scan.config) as cluster:
            for scan, partition in _shares(self.scan, self.tasks, places):
                yield from scan.rows_of(cluster, partition)


@dataclass(frozen=True, slots=True)
class ReadStored:
    """A step that reads for a store, which has to know what does not count yet.

    Each share with such records has one more row, without a key: its offset is that of the first of them in the log,
    and its timestamp is the time when the first of them counts.
    """

    scan: Scan
    tasks: Sequence[Shares]

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these tasks."""
        with connected(self.scan.config) as cluster:
            for scan, partition in _shares(self.scan, self.tasks, places):
                metrics = TaskMetrics()
                yield from scan.rows_of(cluster, partition, metrics=metrics)
                if metrics.waiting is not None:
                    offset, due = metrics.waiting
                    row = RecordBatch([partition], [offset], [min(due, LAST)], [None], [None], [None])
                    yield from to_arrow(row, Origin(scan.spec.topic), columns=scan.columns)


@dataclass(frozen=True, slots=True)
class ReadCandidates:
    """A step that reads every candidate for a key's current record (R14).

    `merge_partitions_spark` chooses among them. Records that are deleted, or done by a group, have rows that say so;
    see `to_candidates`.
    """

    scan: Scan
    tasks: Sequence[Shares]

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the candidates, deletes included whether the scan asks for them or not."""
        whole = replace(self.scan, spec=replace(self.scan.spec, done=None), deletes=True)
        with connected(whole.config) as cluster:
            for scan, partition in _shares(whole, self.tasks, places):
                metrics = TaskMetrics(strays=0)
                for rows in scan.rows_of(cluster, partition, metrics=metrics):
                    candidates = to_candidates(rows, partition, self.scan.spec)
                    metrics.strays = (metrics.strays or 0) + strays(candidates, self.scan.spec)
                    yield candidates


def _shares(scan: Scan, tasks: Sequence[Shares], places: Iterable[pa.RecordBatch]) -> Iterator[tuple[Scan, int]]:
    """Yield each partition to read, with the scan that keeps the right slice of its keys."""
    for batch in places:
        for place in batch.column(0).to_pylist():
            for share in tasks[place]:
                yield replace(scan, slice=share.slice), share.partition
