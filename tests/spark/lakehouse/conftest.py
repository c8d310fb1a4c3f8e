"""A session with Delta and Iceberg, on the Spark that they are made for; see ``tests/spark/test_lakehouse.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lvq_spark import local_session
from tests.spark.conftest import SMALL_JVM
from tests.spark.lakehouse.jars import LAKEHOUSE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As the other tests have it, with a path for Delta and a catalog, ``ice``, for Iceberg."""
    place = tmp_path_factory.mktemp("lakehouse")
    config = {
        "spark.jars": ",".join(map(str, LAKEHOUSE.ensure())),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(place / "iceberg"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        # A few rows: what is split up, or compiled, takes longer than they do.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": SMALL_JVM,
    }
    session = local_session("local[2,2]", config, connector=True)
    yield session
    session.stop()


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, lvq_topic: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a table that is not there yet."""
    if request.param == "delta":
        return f"delta.`{tmp_path_factory.mktemp('delta')}/prices`"
    return f"ice.db.{lvq_topic.replace('-', '_').replace('.', '_')}"
