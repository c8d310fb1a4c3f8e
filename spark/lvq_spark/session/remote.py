"""Spark Connect: detection of its sessions, and a check for code that cannot run there."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lvq_kafka.errors import ConfigError

__all__ = ["is_connect", "require_classic", "spark_errors"]


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect.

    Its JVM is behind a server, and only plans get there.
    """
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic(what: str, instead: str) -> None:
    """Check that this process does not use Spark Connect, which would send functions away.

    Raises:
        ConfigError: it does.
    """
    from pyspark.sql.utils import is_remote

    if is_remote():
        raise ConfigError(
            f"{what} does not work with Spark Connect: functions for foreachBatch run beside the server, where the "
            "queue's connection cannot go.",
            hint=f"Call {instead} on a schedule, from this session, or stream in a driver with a classic one.",
        )


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Spark's Python raises: its own, and those of a JVM.

    Without py4j there is no JVM either.
    """
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    except ImportError:  # pyspark-client, which supports Spark Connect only
        return (PySparkException,)
    return PySparkException, Py4JError
