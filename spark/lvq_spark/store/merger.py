"""Bring a Delta or Iceberg table up to date: choose what to read and what to merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from lvq_kafka.core.text.validation import at_least_one, delays, text
from lvq_kafka.errors import ConfigError, LVQError, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue
from lvq_spark.rules.expiry import lives
from lvq_spark.scan.log_range import Consistency
from lvq_spark.scan.serialization import map_in_arrow
from lvq_spark.session.local_session import require_spark
from lvq_spark.session.task_failures import task_errors
from lvq_spark.snapshots import client_config
from lvq_spark.store.guards import (
    LogState,
    OnStale,
    aged,
    aging,
    check_policies,
    log_state,
    now,
    overdue,
    quiet,
    unfit,
)
from lvq_spark.store.incremental import ATTEMPTS, Cut, IncrementalUpdate
from lvq_spark.store.layout import spark_delta
from lvq_spark.store.layout.builder import draft_of, horizon
from lvq_spark.store.layout.layers import STORED, hinted, reached
from lvq_spark.store.manifest import Version, cut_id
from lvq_spark.store.merge_partitions_arrow import MergePartitions
from lvq_spark.store.merged_table import Contents, MergedTable

__all__ = ["Merger"]


class Merger(IncrementalUpdate):
    """Merges one queue into one table. Arguments as for `lvq_spark.store.merging.merge`."""

    def __init__(
        self,
        spark: SparkSession,
        queue: LastValueQueue[Any],
        table: str,
        on_stale: OnStale,
        consistency: Consistency,
        timeout: float,
        slices: int = 1,
    ) -> None:
        require_spark(spark)
        check_policies(on_stale, consistency)
        delays(timeout=timeout)
        text("table", table)
        at_least_one(slices=slices)
        self._slices = slices
        self._spark, self._config, self._consistency = spark, client_config(queue), consistency
        self._table = MergedTable(spark, table)
        super().__init__(queue, on_stale, timeout, f"{table} is merged with the whole log")

    def bring_up_to_date(self, end: Mapping[int, int] | None = None, *, at_least: bool = False) -> Version:
        """See `merge`.

        With ``at_least``, the table may be beyond ``end``, and a full merge reads to the end of the log.
        """
        self._table.create()
        for _ in range(ATTEMPTS):
            done = self._step(end, at_least=at_least)
            if done is not None:
                return done
        raise OutcomeUnknown(
            f"Others merged into {self._table.name} first, {ATTEMPTS} times in a row.",
            hint="Run one merge at a time: merge less often, or from fewer places.",
        )

    def stay_fresh(self) -> None:
        """Merge if the table may soon be too old for a delta.

        An idle stream has missed nothing, so its table need not be rebuilt.
        """
        self._table.create()
        base = self._table.state()
        if base is not None and (self._has_due(base) or aging(base, log_state(self.queue, self.timeout))):
            self.bring_up_to_date()

    def _has_due(self, base: Version) -> bool:
        """Return whether a message has become due that is not in the table."""
        now_ms = self.queue.cluster.now() * 1000
        return any(one.due <= now_ms for one in (base.scheduled or {}).values())

    def _newest(self) -> Version | None:
        base = self._table.state()
        if base is None:
            self._table.check_isolation()
        return base

    def problem(self, base: Version, log: LogState) -> LVQError | None:
        """See `IncrementalUpdate`. The format looks after the table's files; this checks its rows."""
        return unfit(base, self.queue, log, self.timeout) or self._table.altered(base)

    def _there(self, base: Version, cut: Cut) -> Version | None:
        spec = cut.spec
        if any(spec.end[partition] < offset for partition, offset in base.end.items()):
            raise ConfigError(
                f"The cut at {dict(spec.end)} lies before that of {self._table.name}, {dict(base.end)}.",
                options=["end"],
                hint="A table never goes back: omit end, or read an earlier version of it.",
            )
        if base.cut != cut_id(spec) or base.due(spec) or quiet(base, cut.log):
            return None
        if cut.spec.times.expires and not self._expired(self._table.rows(), base, cut).isEmpty():
            return None
        return base

    def _full(self, base: Version | None, cut: Cut, reasons: tuple[str, ...]) -> Version | None:
        spec, log = cut.spec, cut.log
        rows = spark_delta.log_rows(self._spark, spec, self._config, self._consistency, slices=self._slices)
        counted = spark_delta.Counted(rows, spec)
        with task_errors():
            news = self._merge_partitions(counted.rows, base, cut)
            problem = overdue(log, "merge")
            if problem is not None:
                raise problem
            come = Contents.of(news.where("not lvq_forget"))
            draft = draft_of(self.queue, 1 if base is None else base.number + 1, spec, log)
            upserts, deletes = counted.read
            draft = replace(draft, **come._asdict(), reasons=reasons, upserts=upserts, deletes=deletes)
            draft = replace(draft, scheduled=counted.scheduled)
            altered = base is not None and self._table.altered(base) is not None
            return self._table.commit(news, base, draft, "replace" if altered else "whole")

    def _delta(self, base: Version, cut: Cut) -> Version | None:
        beyond = base.beyond(cut.spec)
        rows = spark_delta.log_rows(self._spark, beyond, self._config, self._consistency, base, slices=self._slices)
        with task_errors(), spark_delta.held(rows, scheduled=beyond.times.may_schedule) as delta:
            # A record that lost to one now below the log start may win, so look at all of them.
            whole = dict(cut.spec.start) != dict(base.start)
            known = self._table.rows()
            met = reached(known, cut.spec.start) if whole else self._met(known, base, delta, cut)
            news = self._merge_partitions(delta.rows.unionByName(met.drop("lvq_role")), base, cut)
            problem = aged(base, cut.log, now())
            if problem is not None:
                raise problem
            then = Contents.of(news.where("not lvq_forget"))
            if not whole:
                then = self._table.contents(base).replaced(Contents.of(met), then)
            draft = draft_of(self.queue, base.number + 1, cut.spec, cut.log)
            draft = replace(draft, kind="delta", base=base.number, read_from=beyond.start)
            draft = replace(draft, scheduled=base.still_scheduled(cut.spec, delta.scheduled))
            draft = replace(draft, **then._asdict(), upserts=delta.upserts, deletes=delta.deletes)
            return self._table.commit(news, base, draft, "whole" if whole else "delta")

    def _met(self, known: DataFrame, base: Version, delta: spark_delta.Delta, cut: Cut) -> DataFrame:
        """Return the table's rows of the delta's keys, and of any that may have to go.

        They are those with expired deletes and with values that have expired.
        """
        keys = delta.rows.select("key")
        if base.kept:
            forgotten = horizon(cut.log, cut.spec.times)
            old = known.where("lvq_role = 'delete'").where(f"unix_millis(timestamp) < {forgotten}")
            keys = keys.union(old.select("key"))
        number = delta.upserts + base.kept
        if cut.spec.times.expires:
            expired = self._expired(known, base, cut).select("key")
            keys, number = keys.union(expired), number + expired.count()
        return known.join(hinted(keys.distinct(), number), "key", "left_semi")

    def _expired(self, known: DataFrame, base: Version, cut: Cut) -> DataFrame:
        """Return the rows that have expired since the last merge."""
        return known.where("lvq_role = 'current'").where(self._gone(base, cut))

    @staticmethod
    def _gone(base: Version | None, cut: Cut) -> Column:
        """Return whether a row has expired at the time of a merge, which is never set back."""
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        times, as_of = cut.spec.times, cut.spec.as_of
        if not times.expires or as_of is None:
            return F.lit(False)
        return ~lives(times, max(as_of, 0.0 if base is None else base.pinned.timestamp()))

    def _merge_partitions(self, rows: DataFrame, base: Version | None, cut: Cut) -> DataFrame:
        """Resolve whole keys (R14), and mark what need not be kept: deletes and expired values.

        The rows are computed here and checkpointed. So nothing is read again after its age was judged, and rows that
        come from the table do not get in the way of the merge into it.
        """
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.storagelevel import StorageLevel

        spec = cut.spec
        settle = MergePartitions(spec.partitions, spark_delta.FORGET_NONE, spec.placement)
        # With one partition, there is no other record that a delete could count against.
        old = f"unix_millis(timestamp) < {horizon(cut.log, spec.times)}" if spec.partitions > 1 else "true"
        settled = map_in_arrow(rows.repartition("key"), settle, STORED)
        if spec.times.expires:
            gone = (F.col("lvq_role") == "current") & self._gone(base, cut)
            settled = settled.withColumn("lvq_role", F.when(gone, "expired").otherwise(F.col("lvq_role")))
        beaten = "false" if spec.partitions > 1 else "lvq_role = 'expired'"
        news = settled.selectExpr("*", f"lvq_role = 'delete' AND {old} OR {beaten} AS lvq_forget")
        return news.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
