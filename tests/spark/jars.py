"""Jars that Spark's tests and benchmarks add to it. Run it to rewrite their locks.

They are Spark's Kafka connector, with which users read topics otherwise, and Avro's functions; and Delta and Iceberg.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.jars import JarSet

__all__ = ["JARS", "LAKEHOUSE", "with_jars"]

_HERE = Path(__file__).parent
_RELOCK = "python -m tests.spark.jars"

JARS = JarSet(
    what="jars of Spark's Kafka connector",
    directory="spark-kafka",
    lock_file=_HERE / "jars.lock",
    # All modules are named, and no dependencies are resolved, so the rest stays as Spark has it. The connector calls
    # Spark's internals, which may change: batches run on Spark 4.1 to 4.3, and streams from 4.2 on.
    roots=(
        Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Module("org.apache.kafka", "kafka-clients", "3.9.2"),
        Module("org.apache.commons", "commons-pool2", "2.12.1"),
        Module("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    ),
    relocked_by=_RELOCK,
)

LAKEHOUSE = JarSet(
    what="jars of Delta and Iceberg",
    directory="lakehouse",
    lock_file=_HERE / "lakehouse" / "jars.lock",
    # They are for the Spark of that folder's requirements, which has everything else that they need.
    roots=(
        Module("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
        Module("io.delta", "delta-storage", "4.4.0"),
        Module("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ),
    relocked_by=_RELOCK,
)


def with_jars(**properties: str) -> dict[str, str]:
    """Return Spark properties with the connector's jars added."""
    own = properties.get("spark.jars")
    return {**properties, "spark.jars": ",".join([*([own] if own else []), *map(str, JARS.ensure())])}


if __name__ == "__main__":
    for jars in (JARS, LAKEHOUSE):
        sys.stdout.write(f"{jars.relock()} jars locked in {jars.lock_file}\n")
