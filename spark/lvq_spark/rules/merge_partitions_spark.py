"""Choice of the current record among several partitions of a key (R14), done by Spark.

Spark sorts, and spills if it has to. No data goes through Python.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Column, DataFrame

from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.schema import EXPIRES, GROUP, SNAPSHOT_COLUMNS, ddl

__all__ = ["candidate_columns", "candidates_schema", "merge_partitions"]


def candidate_columns(columns: Collection[str] = SNAPSHOT_COLUMNS) -> tuple[str, ...]:
    """Return the columns to read for a snapshot: those R14 needs, and those to be shown."""
    seen = (name for name in ("value", "headers", EXPIRES, GROUP) if name in columns)
    return ("key", "partition", "offset", "timestamp", "deleted", *seen)


def candidates_schema(columns: Collection[str] = SNAPSHOT_COLUMNS) -> str:
    """Return the schema of candidates: the newest record of each key in each partition.

    Each has one row. Deleted ones only hide others.
    """
    return f"{ddl(candidate_columns(columns))}, home boolean"


def merge_partitions(
    candidates: DataFrame, spec: SnapshotSpec, columns: Collection[str] = SNAPSHOT_COLUMNS
) -> DataFrame:
    """Reduce candidates to one row for each key that has a value.

    The candidates are rows of `candidates_schema`. The one in the home partition wins; without one, the latest wins.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    winners = candidates
    if len(spec.ranges) > 1:
        place = F.col("offset") * spec.partitions + F.col("partition")
        keys = Window.partitionBy("slot", "key")
        best_first = keys.orderBy(F.desc("home"), F.desc("timestamp"), F.desc("partition"))
        # The best row has none before it. With row_number() Spark would sort once more before the exchange, for
        # nothing.
        better = F.lag("partition").over(best_first)
        winners = candidates.withColumn("slot", _slot(place)).withColumn("better", better).where("better is null")
    # Nullable, like all columns of the schema.
    topic = F.when(F.col("partition").isNotNull(), F.lit(spec.topic)).alias("topic")
    return winners.where("not deleted").select(*(topic if name == "topic" else name for name in columns))


def _slot(place: Column) -> Column:
    """Return the column to group by before the key: a hash, which sorts faster than bytes.

    Args:
        place: a value that sets each record without a key apart, since it replaces no other (R1).
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.col("key").isNull(), place).otherwise(F.xxhash64("key"))
