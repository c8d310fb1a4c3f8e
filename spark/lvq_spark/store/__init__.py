"""Snapshots of queues that are kept up to date on storage.

`refresh` brings one up to date, `upsert` does so from a stream, `versions` and `read_version` read it.
"""

from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.refreshing import OnStale, refresh
from lvq_spark.store.upserting import upsert
from lvq_spark.store.versions import read_version, versions

__all__ = ["DataFile", "OnStale", "Version", "read_version", "refresh", "upsert", "versions"]
