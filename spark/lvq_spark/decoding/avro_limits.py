"""Limits on the lengths that Avro believes.

A value states the length of each text and list in it. Avro (1.12) allocates that much before it checks whether the
value is that long. Six bytes can ask for two gigabytes, which kills the JVM, and then each JVM that retries the task.
With Avro's limits such a value becomes an error, and so a bad row. Avro reads the limits once, from JVM properties.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from lvq_spark.session.remote import is_connect

__all__ = ["AVRO_LIMITS", "limit_avro"]

AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": 64 << 20,
    "org.apache.avro.limits.string.maxLength": 64 << 20,
    "org.apache.avro.limits.collectionItems.maxLength": 10_000_000,
}
"""Far above anything a message holds, and far below what a JVM holds."""

_OPTIONS = "spark.executor.extraJavaOptions"

logger = logging.getLogger("lvq_spark")


def limit_avro(spark: SparkSession) -> None:
    """Set the limits in the driver's JVM unless they are set; log what other JVMs need."""
    if is_connect(spark):
        return
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    for name, limit in AVRO_LIMITS.items():
        if system.getProperty(name) is None:
            system.setProperty(name, str(limit))
    context = spark.sparkContext
    own_jvms = not context._jsc.sc().isLocal()
    if own_jvms and "org.apache.avro.limits." not in str(spark.conf.get(_OPTIONS, "")):
        logger.warning(
            "a damaged Avro value can crash an executor, because Avro trusts the length it states: start Spark with "
            "--conf '%s=%s'",
            _OPTIONS,
            " ".join(f"-D{name}={limit}" for name, limit in AVRO_LIMITS.items()),
        )
