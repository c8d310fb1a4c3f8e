"""Refreshing a store: the next version, from the log and what there is, or the reason why there is none to write."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_kafka.errors import ConfigError, DataLoss, LVQError, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.remote import spark_errors
from lvq_spark.scan.log_range import Consistency
from lvq_spark.session import require_spark
from lvq_spark.snapshots import client_config
from lvq_spark.store.guards import AGAIN, LogState, OnStale, check_policies, check_upkeep, quiet, unfit
from lvq_spark.store.incremental import ATTEMPTS, Cut, IncrementalUpdate
from lvq_spark.store.layout.builder import Builder
from lvq_spark.store.manifest import Version, cut_id
from lvq_spark.store.storage import open_storage
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession

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
    keep: int = 3,
    grace: float = 3600.0,
    timeout: float = 10.0,
) -> Version:
    """Bring a store up to date: a snapshot of a queue in Parquet files, in numbered versions that readers choose from.

    The first version is read from the whole log. Every further one is made of the one before and what the log has had
    since: what has changed is written to an overlay over the files that are there, and once that has grown to a quarter
    of them, all is written anew. Its rows are those of a snapshot at the same cut. Where nothing has changed there is
    no new version, so a refresh can be repeated at will. `read_version` reads one.

    What is little, up to 200,000 offsets over a version of up to four million records, the driver reads and works in by
    itself, without a Spark job; the rest is up to the executors.

    A version is there for readers when its manifest is, which comes last and in one step: a refresh that dies leaves
    the store as it was, and what it has left behind is deleted by a later one. Several may run at once, anywhere: one
    of them writes the next version, and the others go on from that.

    A version cannot be built upon when deletes since then may be gone from the log (it is older than the topic's
    ``delete.retention.ms``), when the topic was created again, was cut short or begins behind the version's cut, has
    another partition count or the queue another key, when a file of the version is missing or not what was written, or
    when compaction may have taken records of what is to be read. ``version.reasons`` says which of these made it a full
    one.

    The manifest has a checksum of each file. Those of the overlay, and of up to 256 MB of the other files, by chance,
    are compared each time; pages of the rest when they are read. What was written whole is read once more for its
    checksums, by the driver.

    Args:
        spark: the session. Local paths have to be on storage that all of its machines share.
        queue: the queue, on a Kafka cluster.
        path: a directory for this store alone, on any file system of Hadoop's. On an object store the connector must
            refuse to replace an object (conditional writes; S3A does from Hadoop 3.4.2 on).
        end: the offset to stop before in each partition; by default all that is committed now. See `pin`.
        on_stale: see `OnStale`.
        consistency: as for `snapshot`.
        keep: how many versions to keep at least.
        grace: seconds for which a version is kept after it has stopped being the newest, and for which what an attempt
            has left behind is: longer than the longest job that reads a version, and than the longest refresh.
        timeout: seconds for each question to the cluster.

    Raises:
        ConfigError: an option is bad; ``end`` is older than the newest version, and no version has that cut; the
            store was written by a newer library; or something else lies at ``path``.
        DataLoss, TopicRecreated, TopicMismatch, QueueMismatch: the newest version cannot be built upon, and
            ``on_stale`` says to fail. `DataLoss` also where the whole log cannot be read for sure.
        OutcomeUnknown: others have written the next version ten times in a row.
        KeyMismatch: a record has no key, or two that differ where the queue says that this is to fail.
        TopicNotFound, TransportError: as for `pin`, here or in a task. `CatchUpTimeout`: reading has come to a halt.
    """
    refresher = Refresher(spark, queue, path, on_stale, consistency, keep, grace, timeout)
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
    ) -> None:
        require_spark(spark)
        check_policies(on_stale, consistency)
        check_upkeep(keep, grace, timeout)
        config = client_config(queue)
        self.store = Store(open_storage(spark, path))
        self.builder = Builder(spark, queue, config, self.store, consistency)
        self.keep, self.grace = keep, grace
        super().__init__(queue, on_stale, timeout, f"{self.store.storage.root} is read anew")

    def bring_up_to_date(self, end: Mapping[int, int] | None = None) -> Version:
        """See `refresh`."""
        for _ in range(ATTEMPTS):
            version = self._step(end)
            if version is not None:
                return version
        raise OutcomeUnknown(
            f"Others have written the next version of {self.store.storage.root} {ATTEMPTS} times in a row.",
            hint="One refresh at a time is enough: refresh less often, or from fewer places.",
        )

    def commit(self, version: Version) -> bool:
        """Make it a version, and clean up; False if another was faster, and then its files are gone."""
        where = self.store.storage.root
        if not self.store.commit(version):
            self.store.discard(version)
            logger.info("Another writer of %s was faster with version %d.", where, version.number)
            return False
        said = (version.number, where, version.kind, version.rows, version.records_read)
        logger.info("Version %d of %s: %s, %d rows, %d offsets read.", *said)
        self.clean()
        return True

    def clean(self) -> None:
        """Delete what is old. The version is there: that this fails, say for want of rights, does not undo it."""
        harmless: tuple[type[Exception], ...] = (OSError, LVQError, *spark_errors())
        try:
            self.store.clean(self.keep, self.grace)
        except harmless as error:
            logger.warning("Old versions of %s could not be deleted: %s", self.store.storage.root, error)

    # ---------------------------------------------------------------- the next version

    def _newest(self) -> Version | None:
        base = self.store.latest()
        if base is None:
            self.store.check_vacant()
        return base

    def _full(self, base: Version | None, cut: Cut, reasons: tuple[str, ...]) -> Version | None:
        number = 1 if base is None else base.number + 1
        return self._committed(self.builder.full(number, cut.spec, cut.log, reasons))

    def _delta(self, base: Version, cut: Cut) -> Version | None:
        return self._committed(self.builder.delta(base, cut.spec, cut.log))

    def _committed(self, version: Version) -> Version | None:
        return version if self.commit(version) else None

    def problem(self, base: Version, log: LogState) -> LVQError | None:
        """Why nothing can be built on a version."""
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
                    hint="A store only goes on. Leave end out to refresh up to now.",
                )
        elif base.cut == cut_id(spec) and not quiet(base, cut.log):
            found = base
        if found is not None:
            self.clean()
        return found


def _has_cut(version: Version, spec: SnapshotSpec) -> bool:
    """Whether it holds the rows of a cut, but for what the log has dropped at its start since."""
    kept = (version.topic_id, version.key_header, version.key_mismatch)
    return kept == (spec.topic_id, spec.key_header, spec.key_mismatch) and dict(version.end) == dict(spec.end)
