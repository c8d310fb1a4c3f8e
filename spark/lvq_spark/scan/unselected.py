"""Records that a selector leaves out of a snapshot (R26, R30).

They are judged after the fold, like expired ones: the newest record of a key decides. One that is not selected is a
delete, which hides older records of its key in other partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lvq_kafka.core.log.records import UNREADABLE, Headers, Record
from lvq_kafka.core.log.selecting import Selects
from lvq_kafka.selectors.selector import Selector
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.arrays import booleans

__all__ = ["selector_of", "unselected"]


def selector_of(spec: SnapshotSpec) -> Selector | None:
    """Return the selector of a cut; None if it has none.

    Raises:
        MissingExtra: the extra ``selectors`` is not installed here.
    """
    return None if spec.selector is None else Selector(spec.selector, spec.topic)


def unselected(rows: pa.RecordBatch, selects: Selects) -> pa.Array:
    """Return which rows with a value are not selected.

    They have the columns of candidates, and headers.
    """
    times = rows["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    columns = [rows[name].to_pylist() for name in ("deleted", "partition", "offset", "key", "headers")]
    return booleans(
        not deleted and not selects(Record(partition, offset, time, key, b"", _headers(headers)))
        for time, deleted, partition, offset, key, headers in zip(times.to_pylist(), *columns)
    )


def _headers(cell: Sequence[dict[str, Any]] | None) -> Headers:
    """Return headers as our client reads them: none if a name among them is not UTF-8 (R16)."""
    headers = tuple((header["key"], header["value"]) for header in cell or ())
    return UNREADABLE if any("\ufffd" in name for name, _ in headers) else headers
