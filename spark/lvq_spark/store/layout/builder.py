"""Build a version from a whole cut, or from the previous version and a delta."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.log_range import Consistency
from lvq_spark.schema import SCHEMA
from lvq_spark.session.task_failures import task_errors
from lvq_spark.store.guards import LogState, aged, epochs_of, now, overdue, pinned_at
from lvq_spark.store.layout import layers, spark_delta
from lvq_spark.store.manifest import Version, cut_id
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from lvq_spark.store.driver_delta import DriverDelta

__all__ = ["Builder", "draft_of", "horizon"]

OVERLAY = 0.25
"""Largest share of a version's records in an overlay. Readers look up each base row in it."""


@dataclass(frozen=True, slots=True)
class Builder:
    """Writes the files of versions of a queue's store.

    A version exists only once its manifest does.
    """

    spark: SparkSession
    queue: LastValueQueue[Any]
    config: ClientConfig
    store: Store
    consistency: Consistency
    slices: int = 1

    def full(self, number: int, spec: SnapshotSpec, log: LogState, reasons: tuple[str, ...]) -> Version:
        """Read a whole cut from the log.

        Raises:
            DataLoss: some of it may be gone, or was gone before it was read.
            TopicRecreated: the topic was recreated.
        """
        rows = spark_delta.log_rows(self.spark, spec, self.config, self.consistency, slices=self.slices)
        news = spark_delta.Counted(rows, spec)
        draft = replace(draft_of(self.queue, number, spec, log), reasons=reasons)
        with self.store.attempt(number) as folder, task_errors():
            version = self._written(draft, spark_delta.full(news.rows, draft, horizon(log, spec.times)), folder)
            upserts, deletes = news.read
            version = replace(version, upserts=upserts, deletes=deletes, scheduled=news.scheduled)
            problem = overdue(log, "refresh")
            if problem is not None:
                raise problem
        return version

    def delta(self, base: Version, spec: SnapshotSpec, log: LogState) -> Version:
        """Read the part of a cut beyond a version, and build on that version.

        Raises:
            DataLoss: as for `full`, or the version has grown too old meanwhile.
            TopicRecreated: the topic was recreated.
        """
        beyond = base.beyond(spec)
        draft = draft_of(self.queue, base.number + 1, spec, log)
        with self.store.attempt(draft.number) as folder, task_errors(), self._held(base, beyond) as delta:
            scheduled = base.still_scheduled(spec, delta.scheduled)
            draft = replace(draft, read_from=beyond.start, scheduled=scheduled)
            version = self.built_upon(base, delta, draft, log, folder)
            problem = aged(base, log, now())
            if problem is not None:
                raise problem
        return version

    def _held(self, base: Version, beyond: SnapshotSpec) -> AbstractContextManager[spark_delta.Delta | DriverDelta]:
        little = self._read(base, beyond)
        if little is not None:
            return nullcontext(little)
        rows = spark_delta.log_rows(self.spark, beyond, self.config, self.consistency, base, slices=self.slices)
        return spark_delta.held(rows, scheduled=beyond.times.may_schedule)

    def _read(self, base: Version, beyond: SnapshotSpec) -> DriverDelta | None:
        """Read a delta in the driver; return None if it is not small."""
        from lvq_spark.store import driver_delta

        if not driver_delta.fits(
            base, sum(beyond.end[partition] - beyond.start[partition] for partition in beyond.ranges)
        ):
            return None
        scan = spark_delta.scan_of(beyond, self.config, self.consistency, base)
        return driver_delta.read(scan, self.queue.cluster)

    def built_upon(
        self, base: Version, delta: spark_delta.Delta | DriverDelta, draft: Version, log: LogState, folder: str
    ) -> Version:
        """Merge a delta into a version, and write the result's own files to a folder."""
        draft = replace(draft, base=base.number, upserts=delta.upserts, deletes=delta.deletes, kind="delta")
        moved = dict(draft.start) != dict(base.start)
        contested = moved and base.partitions > 1 and base.kept > 0  # a loser to a removed record may win now
        if delta.upserts == 0 and not contested:  # only offsets have moved
            draft = replace(draft, data=base.data, files=base.files, overlaid=base.overlaid)
            return self._counted(draft) if moved else replace(draft, rows=base.rows, kept=base.kept, committed=now())
        if contested or base.overlaid + delta.upserts > OVERLAY * (base.rows + base.kept):
            return self._anew(base, delta, draft, log, folder)
        draft = replace(draft, data=folder)
        if isinstance(delta, spark_delta.Delta):
            return self._overlaid(base, delta, draft, moved=moved)
        return self._overlaid_here(base, delta, draft)

    def _anew(
        self, base: Version, delta: spark_delta.Delta | DriverDelta, draft: Version, log: LogState, folder: str
    ) -> Version:
        """Write a version that consists of new files only."""
        with self._spread(delta) as spread:
            rows = spark_delta.merged(self.spark, self.store, base, spread, draft, horizon(log, draft.times))
            return self._written(draft, rows, folder)

    def _spread(self, delta: spark_delta.Delta | DriverDelta) -> AbstractContextManager[spark_delta.Delta]:
        if isinstance(delta, spark_delta.Delta):
            return nullcontext(delta)
        rows = delta.rows if delta.upserts else []  # Spark stumbles over an Arrow table without rows
        return spark_delta.held(self.spark.createDataFrame(rows, SCHEMA))

    def _overlaid(self, base: Version, delta: spark_delta.Delta, draft: Version, *, moved: bool) -> Version:
        """Write a version that keeps the base files and gets a new overlay."""
        met = spark_delta.meet(self.spark, self.store, base, delta) if delta.distinct else None
        contested = met is None or met.elsewhere > 0
        rows = spark_delta.overlaid(self.spark, self.store, base, delta, draft.start, contested=contested)
        above = layers.write(self.spark, self.store, draft.data, rows, overlay=True)
        files = (*(file for file in base.files if not file.overlay), *above.files)
        draft = replace(draft, files=files, overlaid=above.rows + above.kept)
        if met is None or contested or moved:
            return self._counted(draft)
        rows_now = base.rows - met.current + delta.upserts - delta.deletes
        return replace(draft, rows=rows_now, kept=base.kept - met.others + delta.deletes, committed=now())

    def _overlaid_here(self, base: Version, delta: DriverDelta, draft: Version) -> Version:
        """Do the same as `_overlaid`, in the driver alone."""
        from lvq_spark.store.layout.driver_overlay import overlaid

        above = overlaid(self.store, base, delta, draft.data, draft.start)
        return replace(
            draft,
            files=(*(file for file in base.files if not file.overlay), above.file),
            overlaid=above.records,
            rows=above.rows,
            kept=above.kept,
            committed=now(),
        )

    def _counted(self, draft: Version) -> Version:
        """Count a version's records.

        Its files hold more than the version does: the overlay hides some records, and some lie below the log start.
        """
        rows, kept = layers.count(layers.stored(self.spark, self.store, draft))
        return replace(draft, rows=rows, kept=kept, committed=now())

    def _written(self, draft: Version, rows: DataFrame, folder: str) -> Version:
        """Write the files of a version."""
        done = layers.write(self.spark, self.store, folder, rows)
        return replace(draft, data=folder, files=done.files, rows=done.rows, kept=done.kept, committed=now())


def draft_of(queue: LastValueQueue[Any], number: int, spec: SnapshotSpec, log: LogState) -> Version:
    """Return a version with everything that is known before anything is written."""
    definition = queue.definition
    pinned = pinned_at(queue, log, spec.end)
    return Version(
        number=number,
        kind="full",
        queue=definition.name,
        topic=spec.topic,
        topic_id=spec.topic_id,
        key_header=spec.key_header,
        key_mismatch=spec.key_mismatch,
        selector=spec.selector,
        start=spec.start,
        end=spec.end,
        read_from=spec.start,
        pinned=pinned,
        committed=pinned,
        rows=0,
        kept=0,
        overlaid=0,
        upserts=0,
        deletes=0,
        cut=cut_id(spec),
        schema=layers.STORED,
        data="",
        files=(),
        epochs=epochs_of(queue, log, spec.end),
        times=spec.times,
        placement=spec.placement,
        as_of=None if spec.due_by is None else datetime.fromtimestamp(spec.due_by, UTC),
    )


def horizon(log: LogState, times: TimeRule) -> int:
    """Return the time before which deletes need not be kept, in milliseconds since the epoch.

    The log may no longer have them either, and what was scheduled before them is due.
    """
    return int(max(0.0, log.at.timestamp() - log.retention - (times.longest_delay or 0.0)) * 1000)
