"""The tables of a store: what lies in its files, what readers see of it, and how a delta is worked in."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_kafka.errors import DataLoss, StateError, TopicRecreated
from lvq_kafka.kafka import ClientConfig
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.reading import Consistency
from lvq_spark.schema import SCHEMA
from lvq_spark.shipping import map_in_arrow
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "STORED",
    "Delta",
    "Written",
    "full",
    "held",
    "log_rows",
    "merged",
    "task_errors",
    "visible",
    "write",
]

STORED = f"{SCHEMA}, lvq_role string"
"""The columns of a store's files; see `lvq_spark.store.contest.ROLE` for the last."""

_BROADCAST = 500_000
"""Up to so many keys of a delta are sent to every executor, so that the base is not shuffled."""

# Whatever the session says: a base with a hole in it must not pass for a base.
_STRICT = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


def visible(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """The rows of a version that readers see."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    rows = _stored(spark, store, version)
    return rows.where(F.col("lvq_role") == "current").drop("lvq_role")


def _stored(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    if not version.files:
        return spark.createDataFrame([], version.schema)
    return spark.read.schema(version.schema).options(**_STRICT).parquet(*store.paths(version))


def log_rows(
    spark: SparkSession, spec: SnapshotSpec, config: ClientConfig, consistency: Consistency, *, deletes: bool
) -> DataFrame:
    """The newest record of each key of each partition of a cut, as the executors read them from the log."""
    from lvq_spark.scan.columns import SNAPSHOT_COLUMNS
    from lvq_spark.scan.scanning import Scan
    from lvq_spark.scan.tasks import Read

    tasks = len(spec.ranges)
    scan = Scan(spec, config, SNAPSHOT_COLUMNS, consistency, deletes=deletes, keyless="fail")
    return map_in_arrow(spark.range(0, tasks, 1, max(1, tasks)), Read(scan), SCHEMA)


def full(
    spark: SparkSession, spec: SnapshotSpec, config: ClientConfig, consistency: Consistency, horizon: int
) -> DataFrame:
    """What a full version stores."""
    if spec.partitions == 1:
        return _current(log_rows(spark, spec, config, consistency, deletes=False))
    return _settled(log_rows(spark, spec, config, consistency, deletes=True), spec.topic, spec.partitions, horizon)


def _current(rows: DataFrame) -> DataFrame:
    """Rows that have nothing to be compared with: one for each key, of one partition."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.where(F.col("value").isNotNull()).withColumn("lvq_role", F.lit("current"))


def _settled(rows: DataFrame, topic: str, partitions: int, horizon: int) -> DataFrame:
    from lvq_spark.store.contest import Settle

    # With one partition no other can bring a record that a delete would count against.
    settle = Settle(topic, partitions, horizon if partitions > 1 else sys.maxsize)
    return map_in_arrow(rows.repartition("key"), settle, STORED)


@dataclass(frozen=True, slots=True)
class Delta:
    """Records that are held for a merge, and how many they and the deletes among them are.

    ``conflated``: no partition has two of a key.
    """

    rows: DataFrame
    upserts: int
    deletes: int
    conflated: bool


@contextmanager
def held(rows: DataFrame, *, conflated: bool) -> Iterator[Delta]:
    """Compute rows once and hold them, on disk where memory does not take them. This is where a delta is read."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.storagelevel import StorageLevel

    rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = rows.select(F.count("*"), F.count_if(F.col("value").isNull())).first()
        assert counted is not None
        yield Delta(rows, int(counted[0]), int(counted[1]), conflated)
    finally:
        rows.unpersist()


def merged(
    spark: SparkSession, store: Store, base: Version, delta: Delta, start: Mapping[int, int], horizon: int
) -> DataFrame:
    """What a version stores that is a base and a delta.

    Only what the base has of the delta's keys is looked at again; all its other rows pass. They leave out what lies
    below the log's start by now, as a full version would.
    """
    from pyspark.sql import functions as F  # noqa: N812

    stored = _stored(spark, store, base)
    if dict(start) != dict(base.start):
        stored = reached(stored, start)
    keys = delta.rows.select("key")
    if delta.upserts <= _BROADCAST:
        keys = F.broadcast(keys)
    others = stored.join(keys, "key", "left_anti")
    if base.partitions == 1 and delta.conflated:
        return others.unionByName(_current(delta.rows))
    news = delta.rows
    if base.partitions > 1:
        forgotten = (F.col("lvq_role") == "delete") & (F.unix_millis("timestamp") < horizon)
        others = others.where(~forgotten)
        news = news.unionByName(stored.join(keys, "key", "left_semi").drop("lvq_role"))
    return others.unionByName(_settled(news, base.topic, base.partitions, horizon))


def reached(rows: DataFrame, end: Mapping[int, int]) -> DataFrame:
    """The rows at these offsets and beyond."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.where(F.col("offset") >= _by_partition(end))


def _by_partition(offsets: Mapping[int, int]) -> Column:
    """The offset of a row's partition."""
    from pyspark.sql import functions as F  # noqa: N812

    cells = [F.lit(number) for pair in sorted(offsets.items()) for number in pair]
    return F.create_map(*cells)[F.col("partition")]


@contextmanager
def task_errors() -> Iterator[None]:
    """Errors of ours that a task has failed with, of which Spark hands on no more than the text.

    Raises:
        DataLoss, TopicRecreated: what the task has found.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        if found[1] == "DataLoss":
            raise DataLoss(found[2]) from error
        raise TopicRecreated(found[2], topic="") from error


_OURS = re.compile(r"lvq_kafka\.errors\.(DataLoss|TopicRecreated): (.*)")


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and how many records they hold for readers and beyond that."""

    files: tuple[DataFile, ...]
    rows: int
    kept: int


def write(spark: SparkSession, store: Store, folder: str, rows: DataFrame) -> Written:
    """Write what a version stores into a folder of its own.

    Raises:
        StateError: there is less in the files than was written: somebody has deleted some of them.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation()
    current = F.count_if(F.col("lvq_role") == "current").alias("current")
    rows.observe(seen, F.count("*").alias("all"), current).write.parquet(f"{store.storage.root}/{folder}")
    counts = seen.get
    there = [entry for entry in store.storage.files(folder) if entry.name.endswith(".parquet")]
    files = tuple(DataFile(entry.name, entry.bytes) for entry in there)
    paths = [f"{store.storage.root}/{file.name}" for file in files]
    found = spark.read.schema(STORED).options(**_STRICT).parquet(*paths).count() if paths else 0
    if found != counts["all"]:
        raise StateError(
            f"{counts['all']} records were written to {store.storage.root}/{folder}, and {found} are there.",
            hint="Has another refresh taken it for one that was given up? Let grace be longer than a refresh takes.",
        )
    return Written(files, counts["current"], counts["all"] - counts["current"])
