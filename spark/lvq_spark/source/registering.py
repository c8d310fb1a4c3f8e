"""Registration of the format ``lvq`` with a Spark session."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from lvq_kafka.core.text.validation import mapping
from lvq_kafka.errors import ConfigError
from lvq_spark.scan.serialization import carried
from lvq_spark.session.local_session import require_spark

__all__ = ["register"]


def register(spark: SparkSession, defaults: Mapping[str, str] = MappingProxyType({})) -> None:
    """Register the format ``lvq``, for batches, streams and ``USING lvq`` in SQL.

    It enables ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")``. A further call replaces the
    defaults::

        register(spark, {"kafka.bootstrap.servers": "broker:9092", "kafka.sasl.password": password})
        spark.sql("CREATE TABLE prices USING lvq OPTIONS (queue 'prices')")

    Args:
        spark: the session.
        defaults: options for every read of this session that does not override them: how to reach the cluster,
            passwords included. They appear in no catalog, plan or log.

    The tasks log at the level that the logger ``lvq_spark.tasks`` has at this moment; at INFO they log their counts.

    Raises:
        ConfigError: this Spark is too old (4.0 would plan a source again for every action), or this Python lacks a
            package that sources need.
    """
    require_spark(spark)
    mapping("defaults", defaults, "Give options of the format by name.")
    with warnings.catch_warnings():
        # Callers cannot act on this warning, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            spark.dataSource.register(_source(dict(defaults or {})))
        except ImportError as missing:
            raise ConfigError(
                f"This Python lacks a package for Spark: {missing}",
                hint="Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas.",
            ) from None


def _source(defaults: dict[str, str]) -> type[DataSource]:
    """Return a stand-in from which Spark makes the source, in the executors' Python.

    That Python may lack this package. A class of this package, or one that inherits from it, would be looked up where
    Spark unpickles it, and could not say why that fails.
    """
    from pyspark.sql.datasource import DataSource

    from lvq_spark.source.batch import lvq_source

    arrive, packed = carried(partial, lvq_source, defaults)

    class LvqSource(DataSource):
        def __new__(cls, options: Mapping[str, str]) -> Any:
            return arrive(*packed)(options)

        @classmethod
        def name(cls) -> str:
            return "lvq"

    return LvqSource
