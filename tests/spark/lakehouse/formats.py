"""Operations on a Delta or Iceberg table other than merging, with the same names for both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from lvq_spark.store.layout.layers import STORED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Delta", "Format", "Iceberg"]


class Format(ABC):
    """A table, by name. Its versions are the format's own commit numbers."""

    variants: Sequence[str]
    """Properties to create tables with."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name

    def create(self, variant: str) -> None:
        """Create the table, empty."""
        using = type(self).__name__.lower()
        self.spark.sql(f"CREATE TABLE {self.name} ({STORED}) USING {using} TBLPROPERTIES ({variant})")

    @abstractmethod
    def versions(self) -> list[int]:
        """Return the versions that can be restored, the current one last."""

    @abstractmethod
    def go_back(self, version: int) -> None:
        """Restore a version."""

    @abstractmethod
    def forget(self) -> None:
        """Delete everything that belongs to earlier versions."""

    @abstractmethod
    def tidy(self) -> None:
        """Rewrite the files, with the same rows."""


class Delta(Format):
    """See `Format`."""

    variants = ("'delta.enableDeletionVectors'='false'", "'delta.enableDeletionVectors'='true'")

    def __init__(self, spark: SparkSession, place: Path, topic: str) -> None:
        super().__init__(spark, f"delta.`{place}/delta/{topic}`")
        self._since = 0

    def versions(self) -> list[int]:
        """See `Format`."""
        found = sorted(row[0] for row in self.spark.sql(f"DESCRIBE HISTORY {self.name}").collect())
        return [version for version in found if version >= self._since]

    def go_back(self, version: int) -> None:
        """See `Format`."""
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {version}")

    def forget(self) -> None:
        """See `Format`."""
        self.spark.sql(f"VACUUM {self.name} RETAIN 0 HOURS")
        self._since = self.versions()[-1]

    def tidy(self) -> None:
        """See `Format`."""
        self.spark.sql(f"OPTIMIZE {self.name}")


class Iceberg(Format):
    """See `Format`."""

    variants = (
        "'format-version'='2'",
        "'format-version'='2', 'write.merge.mode'='merge-on-read'",
        "'format-version'='3', 'write.merge.mode'='merge-on-read'",
    )

    def __init__(self, spark: SparkSession, topic: str) -> None:
        self._table = f"db.{topic.replace('-', '_')}"
        super().__init__(spark, f"ice.{self._table}")

    def versions(self) -> list[int]:
        """See `Format`."""
        self.spark.catalog.refreshTable(self.name)
        there = {row[0] for row in self.spark.sql(f"SELECT snapshot_id FROM {self.name}.snapshots").collect()}
        order = f"SELECT snapshot_id FROM {self.name}.history ORDER BY made_current_at"
        history = dict.fromkeys(reversed([row[0] for row in self.spark.sql(order).collect()]))
        return [version for version in reversed(history) if version in there]

    def go_back(self, version: int) -> None:
        """See `Format`."""
        self._call("set_current_snapshot", f"snapshot_id => {version}L")

    def forget(self) -> None:
        """See `Format`."""
        now = datetime.now() + timedelta(seconds=1)
        self._call("expire_snapshots", f"older_than => TIMESTAMP '{now}', retain_last => 1")

    def tidy(self) -> None:
        """See `Format`."""
        self._call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def _call(self, procedure: str, arguments: str) -> None:
        self.spark.sql(f"CALL ice.system.{procedure}(table => '{self._table}', {arguments})")
