"""The jars of Delta and Iceberg for the Spark of this folder's requirements. Run it to rewrite their lock."""

from __future__ import annotations

import sys
from pathlib import Path

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.jars import JarSet

LAKEHOUSE = JarSet(
    what="jars of Delta and Iceberg",
    directory="lakehouse",
    lock_file=Path(__file__).with_name("jars.lock"),
    # Spark has everything else that they need.
    roots=(
        Module("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
        Module("io.delta", "delta-storage", "4.4.0"),
        Module("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ),
    relocked_by="python -m tests.spark.lakehouse.jars",
)

if __name__ == "__main__":
    sys.stdout.write(f"{LAKEHOUSE.relock()} jars locked in {LAKEHOUSE.lock_file}\n")
