"""What the connector cannot know of the records it has read: whether compaction has overtaken it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.records import Record, RecordBatch
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_spark.merge_partitions_spark import candidate_columns
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.arrays import integers
from lvq_spark.scan.arrow_columns import ROWS, arrow_schema, to_arrow
from lvq_spark.scan.candidates import strays, to_candidates
from lvq_spark.scan.compaction_gap import first_without_gap
from lvq_spark.scan.log_range import PATIENCE, Consistency, check_deletes, check_topic, check_uncut
from lvq_spark.scan.scanning import Scan, vanished
from lvq_spark.scan.task_metrics import TaskMetrics

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True)
class Guard:
    """Makes claims of the newest records of whole partitions, once it is sure that none is missing.

    Its column ``number`` counts the records as they were read by a task, from one. Before the first row comes, the log
    has been read to the end of the cut: rows come sorted. A row without an offset only names a partition.

    Args:
        partitions: those to look at even when no row comes of them, since all of their records may be gone.
        columns: those of a record that come; see `claim_columns`.
        split: whether several tasks may have read one partition, so that ``number`` does not count its records.
        keys: the only keys that come, if not all do. Then ``number`` does not count the records either.
    """

    spec: SnapshotSpec
    config: ClientConfig
    consistency: Consistency
    partitions: tuple[int, ...] = ()
    columns: tuple[str, ...] = candidate_columns()
    split: bool = False
    keys: frozenset[bytes] | None = None

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The claims, as `lvq_spark.merge_partitions_spark.merge_partitions` takes them.

        What was met is logged as by the other engine; see `TaskMetrics`.

        Raises:
            DataLoss: a key of the cut may be missing, and the cut has to be exact; or a delete may be.
            TopicRecreated: the topic is not the one that was pinned.
        """
        watches: dict[int, _PartitionCheck] = {}
        with closing(KafkaCluster(self.config)) as cluster:
            for batch in rows:
                for partition in pc.unique(batch["partition"]).to_pylist():
                    if partition not in watches:
                        watches[partition] = self._check(cluster, partition)
                    # Not the plain number: pyarrow would import pandas to make a scalar of it.
                    here = pc.equal(batch["partition"], integers(pa.int32(), [partition])[0])
                    mine = batch.filter(pc.and_(here, pc.is_valid(batch["offset"])))
                    watches[partition].see(mine)
                    yield self._candidates(mine, partition, watches[partition].metrics)
            for partition in self.partitions:
                if partition not in watches:
                    watches[partition] = self._check(cluster, partition)
            for partition, check in sorted(watches.items()):
                if self._counts:
                    check.metrics.records, check.metrics.replaced = check.count, check.count - check.metrics.rows
                for behind in self._missing(check, partition):
                    yield self._candidates(behind, partition, check.metrics)
            check_topic(cluster, self.spec)
            for partition, check in sorted(watches.items()):
                check_uncut(cluster, self.spec, partition)
                check.metrics.log(self.spec, partition)

    @property
    def _counts(self) -> bool:
        return not self.split and self.keys is None

    def _check(self, cluster: Cluster, partition: int) -> _PartitionCheck:
        """All keys of records that may have superseded one of the cut; reading it now is not too early, see above."""
        scan, ended = Scan(self.spec, self.config, self.columns, keys=self.keys), time.time()
        behind = {record.key: record for record in scan.overtaken(cluster, partition, frozenset(), PATIENCE)}
        return _PartitionCheck(
            behind, first_without_gap(cluster, self.spec, self.config, partition) if behind else {}, ended
        )

    def _missing(self, check: _PartitionCheck, partition: int) -> Iterator[pa.RecordBatch]:
        """The newest records of keys that the cut may have lost: without holes in its offsets it has lost nothing."""
        spec = self.spec
        if self._counts and check.count == spec.end[partition] - spec.start[partition]:
            return
        check_deletes(spec, partition, None, check.ended)
        if check.untouched:
            return
        if check.behind and self.consistency == "pinned":
            raise vanished(spec, partition, check.behind)
        missing = list(check.behind.values())
        for at in range(0, len(missing), ROWS):
            yield from to_arrow(RecordBatch.of(missing[at : at + ROWS]), spec.topic, columns=self.columns)

    def _candidates(self, rows: pa.RecordBatch, partition: int, metrics: TaskMetrics) -> pa.RecordBatch:
        # On the way Spark renames what does not matter: the time zone of an instant, the element of a list.
        rows = rows.select(self.columns).cast(arrow_schema(self.columns))
        candidates = to_candidates(rows, partition, self.spec)
        metrics.rows += len(rows)
        metrics.deletes += rows["deleted"].true_count
        metrics.keyless = (metrics.keyless or 0) + rows["key"].null_count
        metrics.strays = (metrics.strays or 0) + strays(candidates)
        return candidates


@dataclass(slots=True)
class _PartitionCheck:
    """What was seen of one partition, and what lies behind its cut of keys that were not.

    ``first`` is what `unbroken` says, ``ended`` when the reading of the cut had, and ``untouched`` whether the first
    records prove that nothing of the cut is missing.
    """

    behind: dict[bytes | None, Record]
    first: Mapping[bytes, int]
    ended: float
    untouched: bool = field(default=False, init=False)
    metrics: TaskMetrics = field(default_factory=lambda: TaskMetrics(keyless=0, strays=0), init=False)
    count: int = field(default=0, init=False)

    def see(self, rows: pa.RecordBatch) -> None:
        # The last record of a partition is the newest of its key, so its number is how many there were.
        self.count = max(self.count, pc.max(rows["number"]).as_py() or 0)
        if self.behind:
            for key, offset in zip(rows["key"].to_pylist(), rows["offset"].to_pylist()):
                self.behind.pop(key, None)
                self.untouched = self.untouched or self.first.get(key, offset) < offset
