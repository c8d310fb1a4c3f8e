"""How much Avro takes a value's word for.

A value says how long each text in it is, and each list. Avro (1.12) makes room for that before it looks whether the
value goes on so long. Two gigabytes, which six bytes can ask for, end the JVM, and each one that tries the task again.
Avro has limits that make an error of it, and so a bad row. It reads them once, from properties of the JVM.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lvq_spark.remote import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AVRO_LIMITS", "limit_avro"]

AVRO_LIMITS = {
    "org.apache.avro.limits.bytes.maxLength": 64 << 20,
    "org.apache.avro.limits.string.maxLength": 64 << 20,
    "org.apache.avro.limits.collectionItems.maxLength": 10_000_000,
}
"""Far above what a message holds, and far below what a JVM does."""

_OPTIONS = "spark.executor.extraJavaOptions"

logger = logging.getLogger("lvq_spark")


def limit_avro(spark: SparkSession) -> None:
    """Set the limits in the driver's JVM, where nobody has; say what executors need that are not part of it."""
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
            "a damaged Avro value can end an executor, since Avro believes whatever length it says: start Spark with "
            "--conf '%s=%s'",
            _OPTIONS,
            " ".join(f"-D{name}={limit}" for name, limit in AVRO_LIMITS.items()),
        )
