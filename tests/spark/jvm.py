"""The JVM of this process's Spark session, which may end before its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["end_jvm", "stop"]


def end_jvm() -> None:
    """Kill the JVM of this process's session, and let PySpark forget it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if (gateway := SparkContext._gateway) is None:
        return
    gateway.proc.kill()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def stop(session: SparkSession) -> None:
    """Stop a session, unless its JVM was ended after a test that timed out."""
    if session._sc._gateway is not None:
        session.stop()
