"""Checks that the connector lacks: whether compaction has overtaken the records it read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.timing.terms import Terms
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.expiry import MALFORMED
from lvq_spark.rules.merge_partitions_spark import candidate_columns, judged_columns
from lvq_spark.rules.scheduling import MALFORMED_TIME, SCHEDULED
from lvq_spark.scan.arrays import integers
from lvq_spark.scan.arrow_columns import ROWS, Origin, arrow_schema, to_arrow
from lvq_spark.scan.candidates import as_deletes, expired, strays, to_candidates
from lvq_spark.scan.compaction_gap import first_without_gap
from lvq_spark.scan.filters import selector_of, unselected
from lvq_spark.scan.log_range import PATIENCE, Consistency, check_deletes, check_topic, check_uncut
from lvq_spark.scan.scanning import Scan, due_now, vanished
from lvq_spark.scan.task_metrics import TaskMetrics

__all__ = ["Guard"]


@dataclass(frozen=True, slots=True)
class Guard:
    """A step that turns the newest records of whole partitions into candidates.

    It ends by making sure that none is missing. The column ``number`` counts the records as a task read them, from one.
    When the first row arrives, the log has been read to the end of the cut, since rows arrive sorted. A row without an
    offset only names a partition.

    Args:
        partitions: partitions to check even if they have no row, since all of their records may be missing.
        columns: the columns of the candidates; see `candidate_columns`. If records may expire, the incoming ones have
            `EXPIRES` and `MALFORMED`, too; see `judged_columns`. If they may be scheduled, they have `SCHEDULED` and
            `MALFORMED_TIME`.
        split: whether several tasks may have read one partition, so that ``number`` does not count its records.
        keys: the only keys that arrive, if not all do. Then ``number`` does not count the records either.
    """

    spec: SnapshotSpec
    config: ClientConfig
    consistency: Consistency
    partitions: tuple[int, ...] = ()
    columns: tuple[str, ...] = candidate_columns()
    split: bool = False
    keys: frozenset[bytes] | None = None

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the candidates for `lvq_spark.rules.merge_partitions_spark.merge_partitions`.

        The counters are logged as by the other engine; see `TaskMetrics`.

        Raises:
            DataLoss: a key of the cut may be missing, and the cut has to be exact; or a delete may be missing.
            TopicRecreated: the topic is not the one that was pinned.
        """
        watches: dict[int, _PartitionCheck] = {}
        with closing(KafkaCluster(self.config)) as cluster:
            for batch in rows:
                for partition in pc.unique(batch["partition"]).to_pylist():
                    if partition not in watches:
                        watches[partition] = self._check(cluster, partition)
                    # Not the plain number, for which pyarrow would import pandas to make a scalar.
                    here = pc.equal(batch["partition"], integers(pa.int32(), [partition])[0])
                    mine = batch.filter(pc.and_(here, pc.is_valid(batch["offset"])))
                    yield self._candidates(watches[partition].see(mine), partition, watches[partition].metrics)
            for partition in self.partitions:
                if partition not in watches:
                    watches[partition] = self._check(cluster, partition)
            for partition, check in sorted(watches.items()):
                if self._counts:
                    shown = check.metrics.rows + (check.metrics.scheduled or 0)
                    check.metrics.records, check.metrics.replaced = check.count, check.count - shown
                for behind in self._missing(check, partition):
                    yield self._candidates(behind, partition, check.metrics)
            check_topic(cluster, self.spec)
            for partition, check in sorted(watches.items()):
                check_uncut(cluster, self.spec, partition)
                check.metrics.log(self.spec, partition)

    @property
    def _incoming(self) -> list[str]:
        return list(judged_columns(self.spec, self.columns))

    @property
    def _counts(self) -> bool:
        return not self.split and self.keys is None

    def _check(self, cluster: Cluster, partition: int) -> _PartitionCheck:
        """Find all records that may have superseded one of the cut.

        It is not too early for that: the log has been read to the end of the cut, see `Guard`.
        """
        scan, ended = Scan(self.spec, self.config, self.columns, keys=self.keys), time.time()
        behind = {record.key: record for record in scan.overtaken(cluster, partition, frozenset(), PATIENCE)}
        return _PartitionCheck(
            behind, first_without_gap(cluster, self.spec, self.config, partition) if behind else {}, ended
        )

    def _missing(self, check: _PartitionCheck, partition: int) -> Iterator[pa.RecordBatch]:
        """Return the newest records of keys that the cut may have lost.

        Without gaps in its offsets it has lost nothing.
        """
        spec = self.spec
        if self._counts and check.count == spec.end[partition] - spec.start[partition]:
            return
        check_deletes(spec, partition, None, check.ended)
        if check.untouched:
            return
        if check.behind and self.consistency == "pinned":
            raise vanished(spec, partition, check.behind)
        origin = Origin(spec.topic, terms=Terms.of(spec.ttl), groups=spec.groups)
        missing = due_now(RecordBatch.of(check.behind.values()), spec)
        for at in range(0, len(missing), ROWS):
            yield from to_arrow(missing.rows(at, at + ROWS), origin, columns=self._incoming)

    def _candidates(self, rows: pa.RecordBatch, partition: int, metrics: TaskMetrics) -> pa.RecordBatch:
        # Spark changes irrelevant names on the way: the time zone of an instant, the element of a list.
        selector = selector_of(self.spec)
        if MALFORMED in rows.schema.names:
            metrics.malformed_ttls = (metrics.malformed_ttls or 0) + rows[MALFORMED].true_count
        rows = rows.select(self._incoming).cast(arrow_schema(self._incoming))
        metrics.rows += len(rows)
        metrics.deletes += rows["deleted"].true_count
        if self.spec.expired_by is not None:
            gone = expired(rows, self.spec.expired_by)
            metrics.expired = (metrics.expired or 0) + gone.true_count
            rows = as_deletes(rows, gone)
        if selector is not None:
            out = unselected(rows, selector.matches)
            metrics.unjudged = (metrics.unjudged or 0) + selector.unjudged
            metrics.unselected = (metrics.unselected or 0) + out.true_count
            rows = as_deletes(rows, out)
        candidates = to_candidates(rows.select(self.columns), partition, self.spec)
        metrics.keyless = (metrics.keyless or 0) + rows["key"].null_count
        metrics.strays = (metrics.strays or 0) + strays(candidates, self.spec)
        return candidates


@dataclass(slots=True)
class _PartitionCheck:
    """The records seen of one partition, and those after its cut whose keys were not seen.

    ``first`` is the result of `first_without_gap`, ``ended`` is when the cut had been read, and ``untouched`` is
    whether the first records prove that nothing of the cut is missing.
    """

    behind: dict[bytes | None, Record]
    first: Mapping[bytes, int]
    ended: float
    untouched: bool = field(default=False, init=False)
    metrics: TaskMetrics = field(default_factory=lambda: TaskMetrics(keyless=0, strays=0), init=False)
    count: int = field(default=0, init=False)

    def see(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that count."""
        # The last record of a partition is the newest of its key, or of those that do not count yet, so its number is
        # the count.
        self.count = max(self.count, pc.max(rows["number"]).as_py() or 0)
        if SCHEDULED in rows.schema.names:
            rows = self._counting(rows)
        if self.behind:
            for key, offset in zip(rows["key"].to_pylist(), rows["offset"].to_pylist()):
                self.behind.pop(key, None)
                self.untouched = self.untouched or self.first.get(key, offset) < offset
        return rows

    def _counting(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out the rows that do not count yet."""
        metrics, later = self.metrics, rows[SCHEDULED]
        metrics.malformed_times = (metrics.malformed_times or 0) + rows[MALFORMED_TIME].true_count
        metrics.scheduled = (metrics.scheduled or 0) + later.true_count
        return rows.filter(pc.invert(later))
