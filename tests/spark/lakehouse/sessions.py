"""Properties of a session for Delta and Iceberg tables."""

from __future__ import annotations

from pathlib import Path

from tests.spark.jars import LAKEHOUSE

__all__ = ["properties"]

_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def properties(place: Path) -> dict[str, str]:
    """Return the properties of a session with Delta paths and a catalog, ``ice``, for Iceberg tables at ``place``."""
    return {
        "spark.jars": ",".join(map(str, LAKEHOUSE.ensure())),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(place / "iceberg"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        # With a few rows, splitting up and compiling take longer than the work.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # VACUUM takes files that are a moment old
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # otherwise VACUUM takes ten thousand tasks
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
