"""Making the format ``lvq`` known to a Spark session."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lvq_kafka.errors import ConfigError
from lvq_spark.scan.tally import listen, logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_spark.source.batch import LvqDataSource

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("lvq")`` and ``spark.readStream.format("lvq")`` work. Once more does no harm.

    The tasks log at the level that the logger ``lvq_spark.tasks`` has here and now: at INFO, what each has met.

    Raises:
        ConfigError: this Spark has no Python data sources, or plans them anew for every action, which 4.0 does; or this
            Python lacks a package that they need.
    """
    version = spark.version
    if tuple(map(int, version.split(".")[:2])) < (4, 1):
        raise ConfigError(
            f"The format lvq needs Spark 4.1 or newer, and this is {version}.",
            hint="Use a newer one, with PySpark of the same version. lvq_spark.snapshot works with 4.0, too.",
        )
    with warnings.catch_warnings():
        # A session of its own cannot act on it, and nothing here goes through pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        try:
            spark.dataSource.register(_source())
        except ImportError as missing:
            raise ConfigError(
                f"This Python lacks a package for Spark: {missing}",
                hint="Install lvq-kafka[spark]: it brings pyspark, pyarrow and pandas.",
            ) from missing


def _source() -> type[LvqDataSource]:
    """The source, with the level to log at: Spark makes it in another process, which knows nothing of this one."""
    from lvq_spark.source.batch import LvqDataSource

    level = logger.getEffectiveLevel()

    class LvqSource(LvqDataSource):
        def __init__(self, options: Mapping[str, str]) -> None:
            listen(level)
            super().__init__(options)

    return LvqSource
