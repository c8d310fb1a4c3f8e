"""Which of a key's records in several partitions counts (R14), as Spark itself can tell.

Spark sorts and, if need be, spills; nothing of it goes through Python.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lvq_spark.pinning import SnapshotSpec
from lvq_spark.schema import SNAPSHOT_COLUMNS, ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["candidate_columns", "candidates_schema", "merge_partitions", "slot"]


def candidate_columns(columns: Collection[str] = SNAPSHOT_COLUMNS) -> tuple[str, ...]:
    """What is read of records for a snapshot with these columns: what it takes to settle, and what is to be seen."""
    seen = (name for name in ("value", "headers") if name in columns)
    return ("key", "partition", "offset", "timestamp", "deleted", *seen)


def candidates_schema(columns: Collection[str] = SNAPSHOT_COLUMNS) -> str:
    """The newest record of each key in each partition, one row for each; what is deleted only hides others."""
    return f"{ddl(candidate_columns(columns))}, home boolean"


def merge_partitions(
    candidates: DataFrame, spec: SnapshotSpec, columns: Collection[str] = SNAPSHOT_COLUMNS
) -> DataFrame:
    """One row for each key with a value, out of rows as `claims_schema` has them: that at home, else the latest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    winners = candidates
    if len(spec.ranges) > 1:
        place = F.col("offset") * spec.partitions + F.col("partition")
        keys = Window.partitionBy("slot", "key")
        best_first = keys.orderBy(F.desc("home"), F.desc("timestamp"), F.desc("partition"))
        # The first row has none before it. With row_number() Spark would sort once more, before the exchange, in vain.
        better = F.lag("partition").over(best_first)
        winners = candidates.withColumn("slot", slot(place)).withColumn("better", better).where("better is null")
    # Nullable, as all columns of the schema are.
    topic = F.when(F.col("partition").isNotNull(), F.lit(spec.topic)).alias("topic")
    return winners.where("not deleted").select(*(topic if name == "topic" else name for name in columns))


def slot(place: Column) -> Column:
    """What to group by before the key: a number that sorts in no time, where keys have to be compared byte by byte.

    Args:
        place: what sets a record without a key apart, which is newer or older than none (R1).
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.col("key").isNull(), place).otherwise(F.xxhash64("key"))
