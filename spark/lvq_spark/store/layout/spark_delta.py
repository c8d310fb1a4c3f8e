"""A store's rows as Spark DataFrames: read, counted, and with a delta worked in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Row, SparkSession

from lvq_kafka.kafka import ClientConfig
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.expiry import lives
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.scan.log_range import Consistency
from lvq_spark.scan.serialization import map_in_arrow
from lvq_spark.schema import SCHEMA, SNAPSHOT_COLUMNS
from lvq_spark.session.observing import observed
from lvq_spark.store.layout.layers import STORED, beside, hinted, overlay, reached, stored
from lvq_spark.store.manifest import Version
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from lvq_spark.scan.scanning import Scan

__all__ = [
    "FORGET_ALL",
    "FORGET_NONE",
    "Counted",
    "Delta",
    "Met",
    "full",
    "held",
    "log_rows",
    "meet",
    "merged",
    "overlaid",
    "scan_of",
]

FORGET_ALL, FORGET_NONE = sys.maxsize, -sys.maxsize
"""Horizons that leave out all deletes, and none."""


def log_rows(
    spark: SparkSession,
    spec: SnapshotSpec,
    config: ClientConfig,
    consistency: Consistency,
    base: Version | None = None,
    *,
    slices: int = 1,
) -> DataFrame:
    """Return the newest record of each key in each partition of a cut.

    The executors read them, deletes included. If messages may be scheduled, there is one more row, without a key, for
    each share with some that do not count yet; see `lvq_spark.scan.tasks.ReadStored`.

    Args:
        base: the version on top of which the cut is read.
        slices: how many tasks read each partition.
    """
    from lvq_spark.scan.shares import tasks_of
    from lvq_spark.scan.tasks import ReadRows, ReadStored

    tasks, scan = tasks_of(spec, slices), scan_of(spec, config, consistency, base)
    read = ReadStored(scan, tasks) if spec.times.may_schedule else ReadRows(scan, tasks)
    return map_in_arrow(spark.range(0, len(tasks), 1, max(1, len(tasks))), read, SCHEMA)


def scan_of(spec: SnapshotSpec, config: ClientConfig, consistency: Consistency, base: Version | None) -> Scan:
    """Return the scan that reads the newest record of each key in one partition of a cut.

    Expired ones are included: a version is judged when it is read, which is later.
    """
    from lvq_spark.scan.filters import KnownCut
    from lvq_spark.scan.scanning import Scan

    known = None
    if base is not None and base.as_of is not None and base.times.may_schedule:
        known = KnownCut(base.end, base.as_of.timestamp(), base.times)
    spec = replace(spec, keep_expired=True)
    return Scan(spec, config, SNAPSHOT_COLUMNS, consistency, deletes=True, keyless="fail", known=known)


def full(rows: DataFrame, version: Version, horizon: int) -> DataFrame:
    """Return the rows that a full version stores, from the log's rows."""
    if version.partitions == 1:
        return _lasting(_current(rows), version)
    return _merge_partitions(rows, version, horizon)


def _lasting(rows: DataFrame, version: Version) -> DataFrame:
    """Leave out the rows that have expired before a version: nobody will see them.

    In several partitions they stay, as in the log, since they count against others (R14).
    """
    return rows.where(lives(version.times, version.pinned.timestamp())) if version.times.expires else rows


class Counted:
    """The log's rows, counted while the one action on the result reads them.

    If nothing is left of them, Spark may not have counted: then they are read once more.
    """

    def __init__(self, rows: DataFrame, spec: SnapshotSpec) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        self._seen, self._any, self._may_schedule = Observation(), bool(spec.ranges), spec.times.may_schedule
        deletes = F.count_if(F.col("value").isNull()).alias("deletes")
        self._all, self._counts = rows, [F.count("*").alias("upserts"), deletes]
        if self._may_schedule:
            self._counts.append(_scheduled().alias("scheduled"))
        self.rows = rows.observe(self._seen, *self._counts)
        if self._may_schedule:
            self.rows = self.rows.where("key is not null")

    @cached_property
    def _found(self) -> Mapping[str, Any]:
        found = observed(self._seen)
        if found is None:
            counted = self._all.agg(*self._counts).first()
            assert counted is not None
            found = counted.asDict()
        return found

    @property
    def read(self) -> tuple[int, int]:
        """The numbers of records and of deletes among them, once the action is done."""
        if not self._any:  # Spark then plans nothing, which an observation cannot handle
            return 0, 0
        extra = len(self._found["scheduled"]) if self._may_schedule else 0
        return self._found["upserts"] - extra, self._found["deletes"] - extra

    @property
    def scheduled(self) -> Mapping[int, NotDue] | None:
        """The records that do not count yet, once the action is done.

        None if nothing can be scheduled.
        """
        if not self._may_schedule:
            return None
        return _by_partition(self._found["scheduled"] if self._any else ())


def _scheduled() -> Column:
    """Return the aggregate of what does not count yet."""
    from pyspark.sql import functions as F  # noqa: N812

    facts = F.struct("partition", "offset", F.unix_millis("timestamp").alias("due"))
    return F.collect_list(F.when(F.col("key").isNull(), facts))


def _by_partition(found: Iterable[Row]) -> dict[int, NotDue]:
    """Return what does not count yet; a partition has a row for each of its slices."""
    waiting: dict[int, NotDue] = {}
    for row in found:
        waiting[row.partition] = NotDue(row.offset, row.due).with_more(waiting.get(row.partition))
    return waiting


def _current(rows: DataFrame) -> DataFrame:
    """Return rows with roles, without deletes: one row for each key, all of one partition.

    They have nothing to compete with.
    """
    return _with_roles(rows.where("value is not null"))


def _with_roles(rows: DataFrame) -> DataFrame:
    """Return rows with roles, deletes included."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return rows.withColumn("lvq_role", F.when(F.col("value").isNull(), "delete").otherwise("current"))


def _merge_partitions(rows: DataFrame, version: Version, horizon: int) -> DataFrame:
    from lvq_spark.store.merge_partitions_arrow import MergePartitions

    settle = MergePartitions(version.partitions, horizon, version.placement)
    return map_in_arrow(rows.repartition("key"), settle, STORED)


@dataclass(frozen=True, slots=True)
class Delta:
    """Records that are held for a merge.

    ``upserts`` counts the records, ``keys`` their keys, and ``deletes`` the deletes among them. ``bytes`` is the total
    size of their values. ``scheduled`` is what does not count yet, by partition; None if nothing can be scheduled.
    """

    rows: DataFrame
    upserts: int
    keys: int
    deletes: int
    bytes: int
    scheduled: Mapping[int, NotDue] | None = None

    @property
    def distinct(self) -> bool:
        """True if no two records have the same key."""
        return self.upserts == self.keys


@contextmanager
def held(rows: DataFrame, *, scheduled: bool = False) -> Iterator[Delta]:
    """Compute rows once and hold them, on disk if memory is short. This reads the delta.

    Args:
        scheduled: whether they are `log_rows` of a queue whose messages may be scheduled.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.storagelevel import StorageLevel

    all_rows = rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        aside = None
        if scheduled:
            [(found,)] = all_rows.select(_scheduled()).collect()
            aside, rows = _by_partition(found), all_rows.where("key is not null")
        size = F.coalesce(F.sum(F.octet_length("value")), F.lit(0))
        counts = (F.count("*"), F.count_distinct("key"), F.count_if(F.col("value").isNull()), size)
        counted = rows.select(*counts).first()
        assert counted is not None
        yield replace(Delta(rows, *counted), scheduled=aside)
    finally:
        all_rows.unpersist()


@dataclass(frozen=True, slots=True)
class Met:
    """A version's records of a delta's keys: visible ones, others, and ones elsewhere.

    ``elsewhere`` counts those in a partition other than the delta's.
    """

    current: int
    others: int
    elsewhere: int


def meet(spark: SparkSession, store: Store, base: Version, delta: Delta) -> Met:
    """Look up a delta's keys, which are distinct, in a version. Values are not read."""
    from pyspark.sql import functions as F  # noqa: N812

    places = delta.rows.select("key", F.col("partition").alias("place"))
    found = stored(spark, store, base).join(hinted(places, delta.upserts), "key")
    is_current = F.col("lvq_role") == "current"
    elsewhere = F.count_if(F.col("partition") != F.col("place"))
    counted = found.select(F.count_if(is_current), F.count_if(~is_current), elsewhere).first()
    assert counted is not None
    return Met(*counted)


def merged(spark: SparkSession, store: Store, base: Version, delta: Delta, version: Version, horizon: int) -> DataFrame:
    """Return all rows of a version that is a base with a delta worked in.

    Only the base's rows of the delta's keys are examined again; all others pass through. Rows below the current log
    start are left out, as in a full version.
    """
    from pyspark.sql import functions as F  # noqa: N812

    known = stored(spark, store, base)
    if dict(version.start) != dict(base.start):
        known = reached(known, version.start)
        if base.partitions > 1 and base.kept:
            # A record that lost a contest to one that was removed may win it now.
            rows = delta.rows.unionByName(known.drop("lvq_role"))
            return _merge_partitions(rows, base, horizon)
    keys = delta.rows.select("key")
    others = beside(known, keys, delta.upserts)
    if base.partitions == 1:
        # There is no other partition with records that a delete would count against.
        others = _lasting(others.where(F.col("lvq_role") == "current"), version)
        news = _current(delta.rows) if delta.distinct else _merge_partitions(delta.rows, base, FORGET_ALL)
    else:
        forgotten = (F.col("lvq_role") == "delete") & (F.unix_millis("timestamp") < horizon)
        others = others.where(~forgotten)
        of_same_keys = known.join(hinted(keys, delta.upserts), "key", "left_semi").drop("lvq_role")
        news = _merge_partitions(delta.rows.unionByName(of_same_keys), base, horizon)
    return others.unionByName(news)


def overlaid(
    spark: SparkSession, store: Store, base: Version, delta: Delta, start: Mapping[int, int], *, contested: bool
) -> DataFrame:
    """Return the rows of a new overlay: the previous overlay with a delta worked in.

    Deletes are kept, whatever their age: they hide the rows below.

    Args:
        start: the current log start of each partition. Records below it no longer count against others.
        contested: whether a key may have several records in the delta, or rivals in other partitions of the base.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rows = delta.rows
    if contested:
        if base.partitions > 1:
            places = rows.select(F.col("key").alias("new"), F.col("partition").alias("place"))
            rival = (F.col("key") == F.col("new")) & (F.col("partition") != F.col("place"))
            known = reached(stored(spark, store, base), start).drop("lvq_role")
            rows = rows.unionByName(known.join(hinted(places, delta.upserts), rival, "left_semi"))
        rows = _merge_partitions(rows, base, FORGET_NONE)
    else:
        rows = _with_roles(rows)
    if not base.overlaid:
        return rows
    return beside(overlay(spark, store, base), delta.rows.select("key"), delta.upserts).unionByName(rows)
