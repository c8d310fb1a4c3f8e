"""Candidates for a key's current record: its newest one in each partition.

`merge_partitions_spark` chooses among them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.arrays import booleans
from lvq_spark.scan.expiries import as_deletes
from lvq_spark.scan.home_partition import home_partitions

__all__ = ["strays", "to_candidates"]


def to_candidates(rows: pa.RecordBatch, partition: int, spec: SnapshotSpec) -> pa.RecordBatch:
    """Add a column ``home`` to one partition's rows, deletes included.

    It is true if the row's key is at home in the partition; none is where messages are placed by group. Records that a
    group has done count as deleted: they hide older ones in other partitions (R7).
    """
    if spec.done is not None:
        rows = as_deletes(rows, booleans(map(spec.done[partition].done, rows["offset"].to_pylist())))
    if spec.placement == "group":
        return rows.append_column("home", booleans([False] * len(rows)))
    homes = home_partitions(rows["key"], spec.partitions)
    return rows.append_column("home", booleans(homes == partition))


def strays(candidates: pa.RecordBatch, spec: SnapshotSpec) -> int:
    """Count the keys that are not at home, where keys have a home."""
    if spec.placement == "group":
        return 0
    return pc.sum(pc.and_not(pc.is_valid(candidates["key"]), candidates["home"])).as_py() or 0
