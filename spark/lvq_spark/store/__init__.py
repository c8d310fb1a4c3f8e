"""Snapshots of queues that are kept up to date on storage.

`refresh` updates a store; `versions` and `read_version` read it. `merge` and
`merge_each` update a Delta or Iceberg table, and `read_merged` reads it.
"""

from lvq_spark.store.guards import OnStale
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.merged_table import read_merged
from lvq_spark.store.merging import merge, merge_each
from lvq_spark.store.read_version import read_version, versions
from lvq_spark.store.refreshing import refresh

__all__ = [
    "DataFile",
    "OnStale",
    "Version",
    "merge",
    "merge_each",
    "read_merged",
    "read_version",
    "refresh",
    "versions",
]
