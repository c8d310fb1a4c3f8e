"""Which of a key's records in several partitions counts (R14), as Spark itself can tell.

Spark sorts and, if need be, spills; nothing of it goes through Python. `lvq_spark.scan.columns.merge_partitions` is the
same rule in Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lvq_spark.pinning import SnapshotSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CLAIMS", "CLAIM_COLUMNS", "settled"]

CLAIM_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")

CLAIMS = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>, home boolean"
)
"""The newest record of each key in each partition, one row for each; without a value it only hides others."""


def settled(claims: DataFrame, spec: SnapshotSpec) -> DataFrame:
    """One row for each key with a value, out of rows as `CLAIMS` has them: that at home, else the latest."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    # A record without a key is newer or older than none (R1): its place in the log sets it apart.
    alone = F.when(F.col("key").isNull(), F.col("offset") * spec.partitions + F.col("partition"))
    best_first = Window.partitionBy("key", alone).orderBy(F.desc("home"), F.desc("timestamp"), F.desc("partition"))
    # The first row has none before it. With row_number() Spark would sort once more, before the exchange, in vain.
    winners = claims.withColumn("better", F.lag("partition").over(best_first)).where("better is null")
    # Nullable, as all columns of the schema are.
    topic = F.when(F.col("partition").isNotNull(), F.lit(spec.topic)).alias("topic")
    return winners.where("value is not null").select(
        "key", "value", topic, "partition", "offset", "timestamp", "headers"
    )
