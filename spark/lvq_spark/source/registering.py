"""Making the format ``lvq`` known to a Spark session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lvq_kafka.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")`` work. Once more does no harm.

    Raises:
        ConfigError: this Spark has no Python data sources, or lacks a package that they need.
    """
    version = spark.version
    if int(version.split(".", 1)[0]) < 4:
        raise ConfigError(
            f"Data sources in Python need Spark 4.0 or newer, and this is {version}.",
            hint="lvq_spark.snapshot works with this one.",
        )
    with warnings.catch_warnings():
        # A session of its own cannot act on it, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            from lvq_spark.source.batch import LvqDataSource

            spark.dataSource.register(LvqDataSource)
        except ImportError as missing:
            raise ConfigError(
                f"This Python lacks a package for Spark: {missing}",
                hint="Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas.",
            ) from missing
