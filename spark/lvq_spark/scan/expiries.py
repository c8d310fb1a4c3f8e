"""Records that have expired at the time of a cut, which shows them no longer (R8, R10).

They are judged after the fold: one that has expired still beats the older records of its key, and then its key is gone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lvq_spark.scan.arrays import booleans
from lvq_spark.scan.arrow_columns import moments
from lvq_spark.schema import EXPIRES

__all__ = ["as_deletes", "expired"]


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
