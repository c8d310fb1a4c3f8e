"""Spark Connect: its sessions told from classic ones, and what cannot be done there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lvq_kafka.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_connect", "require_classic", "spark_errors"]


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: its JVM is behind a server, and only plans get there."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic(what: str, instead: str) -> None:
    """See that this process is not one of Spark Connect, for functions that would be sent away there.

    Raises:
        ConfigError: it is one.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise ConfigError(
            f"{what} does not work with Spark Connect: functions for foreachBatch run beside the server, and the "
            "queue's connection cannot go there.",
            hint=f"Call {instead} on a schedule, from this session, or stream in a driver with a classic one.",
        )


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark's Python raises: its own errors, and those of a JVM. Where py4j is not there, no JVM is either."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:  # pyspark-client, which knows Spark Connect only
        return (PySparkException,)
    return PySparkException, Py4JError
