"""Jars that Spark's tests and benchmarks add to it. Run it to rewrite their lock.

They are Spark's Kafka connector, with which users read topics otherwise, and Avro's functions.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.jars import JarSet

__all__ = ["JARS", "with_jars"]

JARS = JarSet(
    what="jars of Spark's Kafka connector",
    directory="spark-kafka",
    lock_file=Path(__file__).with_name("jars.lock"),
    # All modules are named, and no dependencies are resolved, so the rest stays as Spark has it. The connector calls
    # Spark's internals, which may change: batches run on Spark 4.1 to 4.3, and streams from 4.2 on.
    roots=(
        Module("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Module("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        Module("org.apache.kafka", "kafka-clients", "3.9.2"),
        Module("org.apache.commons", "commons-pool2", "2.12.1"),
        Module("org.apache.spark", "spark-avro_2.13", "4.1.1"),
    ),
    relocked_by="python -m tests.spark.jars",
)


def with_jars(**properties: str) -> dict[str, str]:
    """Return Spark properties with these jars added."""
    own = properties.get("spark.jars")
    return {**properties, "spark.jars": ",".join([*([own] if own else []), *map(str, JARS.ensure())])}


if __name__ == "__main__":
    sys.stdout.write(f"{JARS.relock()} jars locked in {JARS.lock_file}\n")
