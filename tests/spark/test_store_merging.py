"""Merging without Delta and Iceberg: an error says what is missing. ``test_lakehouse.py`` has all other tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_spark.store.merging import merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["delta.`{}/prices`", "db.prices", "nosuch.db.prices"])
def test_a_session_without_delta_or_iceberg_says_what_it_lacks(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str, tmp_path: Path, name: str
) -> None:
    queue = LastValueQueue(lvq_topic, key_header=None, cluster=lvq_cluster)
    with pytest.raises(ConfigError, match="does not exist") as error:
        merge(spark, queue, name.format(tmp_path))
    assert error.value.options == ("table",)
    assert "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" in error.value.hint
    assert "spark.sql.catalog.<name>=org.apache.iceberg.spark.SparkCatalog" in error.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"on_stale": "ignore"}, {"consistency": "exact"}])
def test_bad_options_are_refused(spark: SparkSession, lvq_cluster: KafkaCluster, options: dict[str, Any]) -> None:
    queue = LastValueQueue("t", key_header=None, cluster=lvq_cluster)
    with pytest.raises(ConfigError, match="must be one of") as error:
        merge(spark, queue, "lake.db.prices", **options)
    assert error.value.options == tuple(options)
