"""What runs on the executors: one task for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_spark.scan.scanning import Scan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Read"]


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the partitions whose places among those of the cut come in."""

    scan: Scan

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Their rows."""
        for batch in places:
            for place in batch.column(0).to_pylist():
                yield from self.scan.read(self.scan.spec.ranges[place])
