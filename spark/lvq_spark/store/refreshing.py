"""Refresh a store: write its next version, or say why there is none to write."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from os import PathLike
from typing import Any

from pyspark.sql import SparkSession

from lvq_kafka.core.text.validation import at_least_one
from lvq_kafka.errors import ConfigError, DataLoss, LVQError, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.log_range import Consistency
from lvq_spark.session.local_session import require_spark
from lvq_spark.session.remote import spark_errors
from lvq_spark.snapshots import client_config
from lvq_spark.store.guards import AGAIN, LogState, OnStale, check_policies, check_upkeep, quiet, unfit
from lvq_spark.store.incremental import ATTEMPTS, Cut, IncrementalUpdate
from lvq_spark.store.layout.builder import Builder
from lvq_spark.store.manifest import HOW_READ, Version, cut_id
from lvq_spark.store.open_storage import open_storage
from lvq_spark.store.storage import storage_errors
from lvq_spark.store.versions import Store

__all__ = ["Refresher", "refresh"]

logger = logging.getLogger("lvq_spark.store")


def refresh(
    spark: SparkSession,
    queue: LastValueQueue[Any],
    path: str | PathLike[str],
    *,
    end: Mapping[int, int] | None = None,
    on_stale: OnStale = "rebuild",
    consistency: Consistency = "pinned",
    slices: int = 1,
    keep: int = 3,
    grace: float = 3600.0,
    timeout: float = 10.0,
) -> Version:
    """Bring a store up to date: a snapshot of a queue as numbered versions in Parquet files.

    The first version is read from the whole log. Each later one is made of the previous version and what the log has
    received since: changes are written to an overlay on top of the existing files, and once the overlay has grown to a
    quarter of them, everything is rewritten. A version's rows are those of a snapshot at the same cut. If nothing has
    changed, no version is written, so a refresh can be repeated at will. Read versions with `read_version`; it leaves
    out the values that have expired by then (R10). Scheduled messages count in a version if they were due when it was
    written (R11), at ``version.as_of``; others come with a later refresh, even if nothing has been written since.

    The driver handles small deltas by itself, without a Spark job: up to 200,000 offsets on top of a version of up to
    four million records, as long as the delta takes at most 64 MB, and so does the overlay that it goes into. Larger
    ones go to the executors.

    A version becomes visible with its manifest, which is written last and atomically. A refresh that fails leaves the
    store as it was and deletes what it has written; if it dies, a later one does so. Several refreshes may run at once,
    anywhere: one of them writes the next version, and the others continue from it.

    A version cannot be built on in these cases: deletes written since may be gone from the log (the version is older
    than the topic's ``delete.retention.ms``); the topic was recreated, was truncated or starts after the version's cut;
    the topic's partition count, or the queue's key, TTL, selector or longest delay, has changed; a file of the version
    is missing or not what was written, or its manifest is damaged; or compaction may have removed records that were to
    be read. ``version.reasons`` says which of these forced a full version, and a warning does.

    The manifest has a checksum of each file. Every refresh verifies up to 256 MB of files, those of the overlay first,
    then others at random: a small store completely, a large one over time. Pages are also verified when they are read.
    The driver rereads files that Spark wrote, once, to compute their checksums.

    Args:
        spark: the session. Local paths have to be on storage that all of its machines share.
        queue: the queue, on a Kafka cluster.
        path: a directory for this store alone, on any file system that Hadoop supports. On an object store, the
            connector must refuse to replace an object (conditional writes; S3A does from Hadoop 3.4.2 on).
        end: the offset to stop before in each partition; by default everything committed so far. See `pin`.
        on_stale: see `OnStale`.
        consistency: as for `snapshot`.
        slices: as for `snapshot`, wherever the executors read the log.
        keep: how many versions to keep at least.
        grace: seconds to keep a version after it has stopped being the newest, and the leftovers of an attempt. Choose
            more than the longest job that reads a version, and more than the longest refresh.
        timeout: seconds for each request to the cluster.

    Raises:
        ConfigError: an option is invalid; ``end`` is older than the newest version, and no version has that cut; a
            newer library wrote the store; or something else lies at ``path``.
        DataLoss, TopicRecreated, TopicMismatch, QueueMismatch: the newest version cannot be built on, and ``on_stale``
            is ``"fail"``. `DataLoss` is also raised if a complete read of the log cannot be guaranteed.
        OutcomeUnknown: others have written the next version ten times in a row.
        KeyMismatch: a record has no key, or two that differ and the queue's policy is to fail.
        TopicNotFound, TransportError: as for `pin`, here or in a task.
        CatchUpTimeout: reading has stalled.
        StoreFailed: the directory cannot be read or written, for lack of room or rights.
    """
    refresher = Refresher(spark, queue, path, on_stale, consistency, keep, grace, timeout, slices)
    return refresher.bring_up_to_date(end)


class Refresher(IncrementalUpdate):
    """Writes versions of one store of one queue. Arguments as for `refresh`."""

    def __init__(
        self,
        spark: SparkSession,
        queue: LastValueQueue[Any],
        path: str | PathLike[str],
        on_stale: OnStale,
        consistency: Consistency,
        keep: int,
        grace: float,
        timeout: float,
        slices: int = 1,
    ) -> None:
        require_spark(spark)
        check_policies(on_stale, consistency)
        check_upkeep(keep, grace, timeout)
        at_least_one(slices=slices)
        config = client_config(queue)
        self.store = Store(open_storage(spark, path))
        self.builder = Builder(spark, queue, config, self.store, consistency, slices)
        self.keep, self.grace, self._next = keep, grace, 1
        super().__init__(queue, on_stale, timeout, f"{self.store.storage.root} is rebuilt from the log")

    def bring_up_to_date(self, end: Mapping[int, int] | None = None) -> Version:
        """See `refresh`."""
        with storage_errors(self.store.storage.root):
            for _ in range(ATTEMPTS):
                version = self._step(end)
                if version is not None:
                    return version
        raise OutcomeUnknown(
            f"Others wrote the next version of {self.store.storage.root} first, {ATTEMPTS} times in a row.",
            hint="Run one refresh at a time: refresh less often, or from fewer places.",
        )

    def commit(self, version: Version) -> bool:
        """Publish a version and clean up. Return False, with its files deleted, if another won."""
        where = self.store.storage.root
        if not self.store.commit(version):
            self.store.discard(version)
            logger.info("Another writer of %s wrote version %d first.", where, version.number)
            return False
        said = (version.number, where, version.kind, version.rows, version.records_read)
        logger.info("Version %d of %s: %s, %d rows, %d offsets read.", *said)
        self.clean()
        return True

    def clean(self) -> None:
        """Delete old versions. A failure, say for lack of rights, does not undo the new version."""
        harmless: tuple[type[Exception], ...] = (OSError, LVQError, *spark_errors())
        try:
            self.store.clean(self.keep, self.grace)
        except harmless as error:
            logger.warning("Old versions of %s could not be deleted: %s", self.store.storage.root, error)

    # ---------------------------------------------------------------- the next version

    def _newest(self) -> Version | None:
        try:
            base = self.store.latest()
        except DataLoss as error:
            # No earlier version will do: the lost one may have been written because that could not be built on.
            # Its number is chosen before its cut, which is then later than those of all others.
            self._next = max(self.store.numbers(), default=0) + 1
            said = str(error).removesuffix(error.hint).rstrip()
            raise DataLoss(f"The newest version is lost: {said}", hint=AGAIN) from error
        if base is None:
            self.store.check_vacant()
        self._next = 1 if base is None else base.number + 1
        return base

    def _full(self, base: Version | None, cut: Cut, reasons: tuple[str, ...]) -> Version | None:
        return self._committed(self.builder.full(self._next, cut.spec, cut.log, reasons))

    def _delta(self, base: Version, cut: Cut) -> Version | None:
        return self._committed(self.builder.delta(base, cut.spec, cut.log))

    def _committed(self, version: Version) -> Version | None:
        return version if self.commit(version) else None

    def problem(self, base: Version, log: LogState) -> LVQError | None:
        """Return why nothing can be built on a version, or None."""
        found = unfit(base, self.queue, log, self.timeout)
        if found is None and (damage := self.store.damage(base)):
            found = DataLoss(f"Version {base.number} is damaged: {damage}.", hint=AGAIN)
        return found

    def _there(self, base: Version, cut: Cut) -> Version | None:
        spec, found = cut.spec, None
        if any(spec.end[partition] < offset for partition, offset in base.end.items()):
            found = next((one for one in self.store.all() if _has_cut(one, spec)), None)
            if found is None:
                raise ConfigError(
                    f"The cut at {dict(spec.end)} lies before that of version {base.number}, {dict(base.end)}.",
                    options=["end"],
                    hint="A store never goes back: omit end to refresh up to now.",
                )
        elif base.cut == cut_id(spec) and not base.due(spec) and not quiet(base, cut.log):
            found = base
        if found is not None:
            self.clean()
        return found


def _has_cut(version: Version, spec: SnapshotSpec) -> bool:
    """Return whether a version has the rows of a cut, but for any dropped at the log start."""
    same = all(getattr(version, name) == getattr(spec, name) for name in ("topic_id", *HOW_READ))
    return same and version.judged_by(spec.times) and dict(version.end) == dict(spec.end)
