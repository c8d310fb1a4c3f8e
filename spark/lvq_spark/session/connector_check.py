"""Checks for Spark's Kafka connector in a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lvq_kafka.errors import ConfigError

__all__ = ["has_connector", "require_connector"]


def has_connector(spark: SparkSession) -> bool:
    """Return whether a session can load Spark's Kafka connector.

    This contacts no broker, and works over Spark Connect, too.
    """
    from pyspark.errors import AnalysisException

    source = spark.read.format("kafka").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "lvq")
    try:
        return "offset" in source.load().columns
    except AnalysisException as error:
        if "KAFKA_DATA_SOURCE_NOT_ENABLED" in str(error) or "Failed to find data source" in str(error):
            return False
        raise


def require_connector(spark: SparkSession) -> None:
    """Check that a session can load the connector.

    Raises:
        ConfigError: it cannot, or the connector it loads is for another Spark version.
    """
    coordinates = f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    hint = f"Start Spark with {coordinates}, or read with engine='python'."
    try:
        there = has_connector(spark)
    except Exception as error:
        raise ConfigError(
            f"The Kafka connector of this Spark {spark.version} session cannot be loaded: {str(error).splitlines()[0]}",
            options=["engine"],
            hint=hint,
        ) from error
    if not there:
        raise ConfigError(
            "Spark's Kafka connector is not in this session.",
            options=["engine"],
            hint=f"{hint} For a session on this machine: lvq_spark.local_session(connector=True).",
        )
