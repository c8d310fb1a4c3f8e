"""The layers of a version: a base, and an overlay whose keys hide their base records.

Writing a small change therefore takes a small write. The overlay holds all that is known of each of its keys, including
deletes: a key is looked up in one of the two layers, never pieced together from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from lvq_kafka.errors import StateError
from lvq_spark.rules.expiry import lives
from lvq_spark.schema import SCHEMA
from lvq_spark.session.observing import observed
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.versions import Store

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
"""The columns of a store's files.

See `lvq_spark.store.merge_partitions_arrow.ROLE` for the last one.
"""

_BROADCAST = 500_000
"""Most keys to broadcast to all executors, so that the rows they join are not shuffled."""

# These override the session's settings: missing files and changed pages must not go unnoticed.
_STRICT = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_CHECKSUMS = {"parquet.page.write-checksum.enabled": "true"}


def visible(spark: SparkSession, store: Store, version: Version, as_of: float) -> DataFrame:
    """Return the rows of a version that readers see at a time, in seconds since the epoch."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    rows = stored(spark, store, version).where(F.col("lvq_role") == "current")
    return (rows.where(lives(version.times, as_of)) if version.times.expires else rows).drop("lvq_role")


def stored(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """Return all rows of a version: those readers see, and those kept for contests (R14)."""
    rows = _read(spark, store, version, overlay=False)
    if version.overlaid:
        above = overlay(spark, store, version)
        rows = beside(rows, above.select("key"), version.overlaid).unionByName(above)
    # The base may reach below the log start; a snapshot has nothing from there.
    return reached(rows, version.start) if any(version.start.values()) else rows


def overlay(spark: SparkSession, store: Store, version: Version) -> DataFrame:
    """Return the upper layer of a version."""
    return _read(spark, store, version, overlay=True)


def _read(spark: SparkSession, store: Store, version: Version, *, overlay: bool) -> DataFrame:
    return read(spark, store, [file for file in version.files if file.overlay == overlay], version.schema)


def read(spark: SparkSession, store: Store, files: Iterable[DataFile], schema: str = STORED) -> DataFrame:
    """Read files, all of which must exist."""
    paths = store.paths(files)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).options(**_STRICT).parquet(*paths)


def count(rows: DataFrame) -> tuple[int, int]:
    """Return how many rows readers see, and how many others there are."""
    from pyspark.sql import functions as F  # noqa: N812

    counted = rows.select(F.count("*"), F.count_if(F.col("lvq_role") == "current")).first()
    assert counted is not None
    return counted[1], counted[0] - counted[1]


def beside(rows: DataFrame, keys: DataFrame, number: int) -> DataFrame:
    """Return the rows of all keys but these, of which there are at most ``number``."""
    return rows.join(hinted(keys, number), "key", "left_anti")


def hinted(keys: DataFrame, number: int) -> DataFrame:
    """Return keys to join on, at most ``number``, with a broadcast hint if they are few."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.broadcast(keys) if number <= _BROADCAST else keys


def reached(rows: DataFrame, start: Mapping[int, int]) -> DataFrame:
    """Return the rows at or above these offsets."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.where(F.col("offset") >= _by_partition(start))


def _by_partition(offsets: Mapping[int, int]) -> Column:
    """Return the offset of a row's partition."""
    from pyspark.sql import functions as F  # noqa: N812

    cells = [F.lit(number) for pair in sorted(offsets.items()) for number in pair]
    return F.create_map(*cells)[F.col("partition")]


@dataclass(frozen=True, slots=True)
class Written:
    """The files that were written, and their numbers of visible and of other records."""

    files: tuple[DataFile, ...]
    rows: int
    kept: int


def write(spark: SparkSession, store: Store, folder: str, rows: DataFrame, *, overlay: bool = False) -> Written:
    """Write the rows of a version to a folder of its own.

    Raises:
        StateError: the files hold fewer records than were written, as someone has deleted some of them.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    seen = Observation()
    current = F.count_if(F.col("lvq_role") == "current").alias("current")
    watched = rows.observe(seen, F.count("*").alias("all"), current)
    watched.write.options(**_CHECKSUMS).parquet(f"{store.storage.root}/{folder}")
    counts = observed(seen) or {"all": 0, "current": 0}  # dropped only if there are no rows
    there = [entry for entry in store.storage.files(folder) if entry.name.endswith(".parquet")]
    files = tuple(DataFile(*entry, overlay) for entry in there)
    found = read(spark, store, files).count()
    if found != counts["all"]:
        raise StateError(
            f"{counts['all']} records were written to {store.storage.root}/{folder}, but {found} are there.",
            hint="Another refresh may have taken it for an abandoned one: set grace longer than a refresh takes.",
        )
    return Written(store.sealed(files), counts["current"], counts["all"] - counts["current"])
