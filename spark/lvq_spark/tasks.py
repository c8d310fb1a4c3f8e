"""What runs on the executors for a snapshot: one task for each partition, and one for each share of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_spark.columns import merge_partitions
from lvq_spark.scanning import Scan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Merge", "Read"]


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the partitions whose places among those of the cut come in."""

    scan: Scan

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Their rows."""
        for batch in places:
            for place in batch.column(0).to_pylist():
                yield from self.scan.read(self.scan.spec.ranges[place])


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges what several partitions hold of the same keys (R14)."""

    topic: str
    partitions: int

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each key that is not deleted."""
        return merge_partitions(rows, self.topic, self.partitions)
