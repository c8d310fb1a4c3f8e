"""Making the format ``lvq`` known to a Spark session."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lvq_kafka.errors import ConfigError
from lvq_spark.serialization import carried
from lvq_spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["register"]


def register(spark: SparkSession, defaults: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")`` work, and ``USING lvq`` in SQL.

    Called once more, it replaces the defaults::

        register(spark, {"kafka.bootstrap.servers": "broker:9092", "kafka.sasl.password": password})
        spark.sql("CREATE TABLE prices USING lvq OPTIONS (queue 'prices')")

    Args:
        spark: the session.
        defaults: options for all that this session reads, unless it says something else: how to reach the cluster,
            passwords included. These are in no catalog, plan or log.

    The tasks log at the level that the logger ``lvq_spark.tasks`` has here and now: at INFO, what each has met.

    Raises:
        ConfigError: this Spark is too old (4.0 would plan a source anew for every action), or this Python lacks a
            package that sources need.
    """
    require_spark(spark)
    with warnings.catch_warnings():
        # A session of its own cannot act on it, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            spark.dataSource.register(_source(dict(defaults)))
        except ImportError as missing:
            raise ConfigError(
                f"This Python lacks a package for Spark: {missing}",
                hint="Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas.",
            ) from missing


def _source(defaults: dict[str, str]) -> type[DataSource]:
    """What stands for the source until Spark makes one, in the executors' Python: that may lack this package.

    A class of this package, or one that inherits from it, is looked up where Spark unpacks it, and could not say why
    that fails.
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
