"""The tables of a store: what its versions are written from, and how a delta is worked in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_kafka.kafka import ClientConfig
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.log_range import Consistency
from lvq_spark.schema import SCHEMA, SNAPSHOT_COLUMNS
from lvq_spark.serialization import map_in_arrow
from lvq_spark.store.layout.layers import STORED, beside, hinted, overlay, reached, stored
from lvq_spark.store.manifest import Version
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
"""Horizons: all deletes are left out, or none."""


def log_rows(
    spark: SparkSession, spec: SnapshotSpec, config: ClientConfig, consistency: Consistency, *, deletes: bool
) -> DataFrame:
    """The newest record of each key of each partition of a cut, as the executors read them from the log."""
    from lvq_spark.scan.tasks import ReadRows

    tasks = len(spec.ranges)
    scan = scan_of(spec, config, consistency, deletes=deletes)
    return map_in_arrow(spark.range(0, tasks, 1, max(1, tasks)), ReadRows(scan), SCHEMA)


def scan_of(spec: SnapshotSpec, config: ClientConfig, consistency: Consistency, *, deletes: bool) -> Scan:
    """What reads the newest record of each key of a partition of a cut."""
    from lvq_spark.scan.scanning import Scan

    return Scan(spec, config, SNAPSHOT_COLUMNS, consistency, deletes=deletes, keyless="fail")


def full(rows: DataFrame, spec: SnapshotSpec, horizon: int) -> DataFrame:
    """What a full version stores of the log's rows."""
    if spec.partitions == 1:
        return _current(rows)
    return _merge_partitions(rows, spec.topic, spec.partitions, horizon)


class Counted:
    """The log's rows, counted as they are read by the one action on what is made of them."""

    def __init__(self, rows: DataFrame, spec: SnapshotSpec) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        self._seen, self._any = Observation(), bool(spec.ranges)
        deletes = F.count_if(F.col("value").isNull()).alias("deletes")
        self.rows = rows.observe(self._seen, F.count("*").alias("upserts"), deletes)

    @property
    def read(self) -> tuple[int, int]:
        """How many there were, and how many deletes among them; once the action is done."""
        if not self._any:  # then Spark plans nothing, and its observation stumbles over that
            return 0, 0
        return self._seen.get["upserts"], self._seen.get["deletes"]


def _current(rows: DataFrame) -> DataFrame:
    """Rows that have nothing to be compared with: one for each key, of one partition."""
    return _with_roles(rows.where("value is not null"))


def _with_roles(rows: DataFrame) -> DataFrame:
    """The same, deletes included."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return rows.withColumn("lvq_role", F.when(F.col("value").isNull(), "delete").otherwise("current"))


def _merge_partitions(rows: DataFrame, topic: str, partitions: int, horizon: int) -> DataFrame:
    from lvq_spark.store.merge_partitions_arrow import MergePartitions

    return map_in_arrow(rows.repartition("key"), MergePartitions(topic, partitions, horizon), STORED)


@dataclass(frozen=True, slots=True)
class Delta:
    """Records that are held for a merge.

    ``upserts`` is how many they are, ``keys`` of how many keys, ``deletes`` how many of them are deletes, and ``bytes``
    how much their values take.
    """

    rows: DataFrame
    upserts: int
    keys: int
    deletes: int
    bytes: int

    @property
    def distinct(self) -> bool:
        """Whether no two are of the same key."""
        return self.upserts == self.keys


@contextmanager
def held(rows: DataFrame) -> Iterator[Delta]:
    """Compute rows once and hold them, on disk where memory does not take them. This is where a delta is read."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.storagelevel import StorageLevel

    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        size = F.coalesce(F.sum(F.octet_length("value")), F.lit(0))
        counts = (F.count("*"), F.count_distinct("key"), F.count_if(F.col("value").isNull()), size)
        counted = rows.select(*counts).first()
        assert counted is not None
        yield Delta(rows, *counted)
    finally:
        rows.unpersist()


@dataclass(frozen=True, slots=True)
class Met:
    """What a version has of a delta's keys: records that readers see, others, and ones in another partition."""

    current: int
    others: int
    elsewhere: int


def meet(spark: SparkSession, store: Store, base: Version, delta: Delta) -> Met:
    """Look up a delta's keys, which are distinct. Values are not read."""
    from pyspark.sql import functions as F  # noqa: N812

    places = delta.rows.select("key", F.col("partition").alias("place"))
    found = stored(spark, store, base).join(hinted(places, delta.upserts), "key")
    is_current = F.col("lvq_role") == "current"
    elsewhere = F.count_if(F.col("partition") != F.col("place"))
    counted = found.select(F.count_if(is_current), F.count_if(~is_current), elsewhere).first()
    assert counted is not None
    return Met(*counted)


def merged(
    spark: SparkSession, store: Store, base: Version, delta: Delta, start: Mapping[int, int], horizon: int
) -> DataFrame:
    """All that a version stores that is a base and a delta.

    Only what the base has of the delta's keys is looked at again; all its other rows pass. They leave out what lies
    below the log's start by now, as a full version would.
    """
    from pyspark.sql import functions as F  # noqa: N812

    known = stored(spark, store, base)
    if dict(start) != dict(base.start):
        known = reached(known, start)
        if base.partitions > 1 and base.kept:
            # Who has lost a contest to a record that is gone may win it now.
            rows = delta.rows.unionByName(known.drop("lvq_role"))
            return _merge_partitions(rows, base.topic, base.partitions, horizon)
    keys = delta.rows.select("key")
    others = beside(known, keys, delta.upserts)
    if base.partitions == 1:
        # No other partition can bring a record that a delete would count against.
        others = others.where(F.col("lvq_role") == "current")
        news = _current(delta.rows) if delta.distinct else _merge_partitions(delta.rows, base.topic, 1, FORGET_ALL)
    else:
        forgotten = (F.col("lvq_role") == "delete") & (F.unix_millis("timestamp") < horizon)
        others = others.where(~forgotten)
        of_same_keys = known.join(hinted(keys, delta.upserts), "key", "left_semi").drop("lvq_role")
        news = _merge_partitions(delta.rows.unionByName(of_same_keys), base.topic, base.partitions, horizon)
    return others.unionByName(news)


def overlaid(
    spark: SparkSession, store: Store, base: Version, delta: Delta, start: Mapping[int, int], *, contested: bool
) -> DataFrame:
    """What a version stores above the files of its base: the overlay that there was, and the delta.

    Deletes are kept, whatever their age: they hide what lies below.

    Args:
        start: where the log of each partition begins by now. What lies below counts against nothing any more.
        contested: whether one key may have several records in the delta, or others in other partitions of the base.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rows = delta.rows
    if contested:
        if base.partitions > 1:
            places = rows.select(F.col("key").alias("new"), F.col("partition").alias("place"))
            rival = (F.col("key") == F.col("new")) & (F.col("partition") != F.col("place"))
            known = reached(stored(spark, store, base), start).drop("lvq_role")
            rows = rows.unionByName(known.join(hinted(places, delta.upserts), rival, "left_semi"))
        rows = _merge_partitions(rows, base.topic, base.partitions, FORGET_NONE)
    else:
        rows = _with_roles(rows)
    if not base.overlaid:
        return rows
    return beside(overlay(spark, store, base), delta.rows.select("key"), delta.upserts).unionByName(rows)
