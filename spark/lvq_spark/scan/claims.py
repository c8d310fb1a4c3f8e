"""Claims: the newest record of each key in each partition, out of which `lvq_spark.settling` finds what counts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.homes import home_partitions

__all__ = ["CLAIM_COLUMNS", "to_claims"]

CLAIM_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")


def to_claims(rows: pa.RecordBatch, partition: int, spec: SnapshotSpec) -> pa.RecordBatch:
    """Rows of one partition, deletes included, with a column ``home``: whether the key of a row is at home there.

    What a group has done loses its value: it hides what is older in another partition (R7).
    """
    if spec.done is not None:
        done = pa.array(map(spec.done[partition].done, rows["offset"].to_pylist()), pa.bool_())
        visible = pc.if_else(done, pa.scalar(None, pa.binary()), rows["value"])
        rows = rows.set_column(rows.schema.get_field_index("value"), "value", visible)
    keys = rows["key"]
    homes = home_partitions(keys.fill_null(b"") if keys.null_count else keys, spec.partitions)
    return rows.append_column("home", pa.array(homes == partition))
