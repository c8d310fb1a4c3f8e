"""What a version's files hold: a base, and above it an overlay, whose keys hide what the base holds of them.

So a version that changes little is written by writing that little. The overlay holds all that is known of each of its
keys, the deletes too: a key is looked up in one of the two layers, never pieced together from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_kafka.errors import StateError
from lvq_spark.schema import SCHEMA
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "STORED",
    "Written",
    "beside",
    "count",
    "hinted",
    "overlay",
    "reached",
    "read",
    "stored",
    "visible",
    "write",
]

STORED = f"{SCHEMA}, lvq_role string"
"""The columns of a store's files; see `lvq_spark.store.merge_partitions_arrow.ROLE` for the last."""

_BROADCAST = 500_000
"""Up to so many keys are sent to every executor, so that what they are looked for in is not shuffled."""

# Whatever the session says: a base with a hole in it must not pass for a base, nor a page that was changed for one.
_STRICT = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_CHECKSUMS = {"parquet.page.write-checksum.enabled": "true"}


def visible(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """The rows of a version that readers see."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    return stored(spark, store, version).where(F.col("lvq_role") == "current").drop("lvq_role")


def stored(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """All that a version holds: what readers see, and what is kept for the next contest (R14)."""
    rows = _read(spark, store, version, overlay=False)
    if version.overlaid:
        above = overlay(spark, store, version)
        rows = beside(rows, above.select("key"), version.overlaid).unionByName(above)
    # The base may be older than the log's start; a snapshot has nothing from below that.
    return reached(rows, version.start) if any(version.start.values()) else rows


def overlay(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """The upper layer of a version."""
    return _read(spark, store, version, overlay=True)


def _read(spark: SparkSession, store: Store, version: Version, *, overlay: bool) -> DataFrame:
    return read(spark, store, [file for file in version.files if file.overlay == overlay], version.schema)


def read(spark: SparkSession, store: Store, files: Iterable[DataFile], schema: str = STORED) -> DataFrame:
    """What is in files, every one of which has to be there."""
    paths = store.paths(files)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).options(**_STRICT).parquet(*paths)


def count(rows: DataFrame) -> tuple[int, int]:
    """How many rows readers see, and how many others there are."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = rows.select(F.count("*"), F.count_if(F.col("lvq_role") == "current")).first()
    assert counted is not None
    return counted[1], counted[0] - counted[1]


def beside(rows: DataFrame, keys: DataFrame, number: int) -> DataFrame:
    """The rows of all other keys than these, which are at most so many."""
    return rows.join(hinted(keys, number), "key", "left_anti")


def hinted(keys: DataFrame, number: int) -> DataFrame:
    """Keys to look for, at most so many."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.broadcast(keys) if number <= _BROADCAST else keys


def reached(rows: DataFrame, start: Mapping[int, int]) -> DataFrame:
    """The rows at these offsets and beyond."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.where(F.col("offset") >= _by_partition(start))


def _by_partition(offsets: Mapping[int, int]) -> Column:
    """The offset of a row's partition."""
    from pyspark.sql import functions as F  # noqa: N812

    cells = [F.lit(number) for pair in sorted(offsets.items()) for number in pair]
    return F.create_map(*cells)[F.col("partition")]


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and how many records they hold for readers and beyond that."""

    files: tuple[DataFile, ...]
    rows: int
    kept: int


def write(spark: SparkSession, store: Store, folder: str, rows: DataFrame, *, overlay: bool = False) -> Written:
    """Write what a version stores into a folder of its own.

    Raises:
        StateError: there is less in the files than was written: somebody has deleted some of them.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation()
    current = F.count_if(F.col("lvq_role") == "current").alias("current")
    watched = rows.observe(seen, F.count("*").alias("all"), current)
    watched.write.options(**_CHECKSUMS).parquet(f"{store.storage.root}/{folder}")
    counts = seen.get
    there = [entry for entry in store.storage.files(folder) if entry.name.endswith(".parquet")]
    files = tuple(DataFile(*entry, overlay) for entry in there)
    found = read(spark, store, files).count()
    if found != counts["all"]:
        raise StateError(
            f"{counts['all']} records were written to {store.storage.root}/{folder}, and {found} are there.",
            hint="Has another refresh taken it for one that was given up? Let grace be longer than a refresh takes.",
        )
    return Written(store.sealed(files), counts["current"], counts["all"] - counts["current"])
