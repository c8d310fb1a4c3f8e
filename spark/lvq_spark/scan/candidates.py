"""Candidates for a key's current record: its newest one in each partition.

`merge_partitions_spark` chooses among them. Those that have expired at the time of the cut (R8, R10) are judged after
the fold: such a record still beats the older ones of its key, and then its key is gone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.arrays import booleans
from lvq_spark.scan.arrow_columns import moments
from lvq_spark.scan.home_partition import home_partitions
from lvq_spark.schema import EXPIRES

__all__ = ["as_deletes", "expired", "strays", "to_candidates"]


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


def expired(rows: pa.RecordBatch, as_of: float) -> pa.Array:
    """Return which rows have expired at a time, in seconds since the epoch, by `EXPIRES`."""
    return pc.coalesce(pc.less(rows[EXPIRES], moments([round(as_of * 1000)])[0]), booleans([False])[0])


def as_deletes(rows: pa.RecordBatch, hidden: pa.Array) -> pa.RecordBatch:
    """Turn some rows into deletes, which hide older ones of their keys in other partitions.

    They have no value, and say in the column ``deleted`` that they are deletes, as far as the rows have these columns.
    """
    if "deleted" in rows.schema.names:
        rows = _with(rows, "deleted", pc.or_(rows["deleted"], hidden))
    if "value" in rows.schema.names:
        rows = _with(rows, "value", pc.if_else(hidden, pa.NULL, rows["value"]))
    return rows


def _with(rows: pa.RecordBatch, name: str, cells: pa.Array) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index(name), name, cells)
