"""What runs on the executors: one task for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lvq_spark.scan.homes import home_partitions
from lvq_spark.scan.scanning import Scan

__all__ = ["Read", "ReadClaims"]


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the partitions whose places among those of the cut come in."""

    scan: Scan

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Their rows."""
        for partition in _partitions(self.scan, places):
            yield from self.scan.read(partition)


@dataclass(frozen=True, slots=True)
class ReadClaims:
    """Reads as `Read` does, for `lvq_spark.settling.settled`: all that takes part in what counts for a key (R14).

    A column ``home`` says whether the key of a row is at home in its partition. What is not to be seen, be it deleted
    or done by a group, has a row without a value: it hides what is older in another partition (R7).
    """

    scan: Scan

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Their rows; deletes come, whether the scan asks for them or not."""
        whole = replace(self.scan, spec=replace(self.scan.spec, done=None), deletes=True)
        for partition in _partitions(whole, places):
            for rows in whole.read(partition):
                yield self._claims(rows, partition)

    def _claims(self, rows: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        spec = self.scan.spec
        if spec.done is not None:
            done = pa.array(map(spec.done[partition].done, rows["offset"].to_pylist()), pa.bool_())
            visible = pc.if_else(done, pa.scalar(None, pa.binary()), rows["value"])
            rows = rows.set_column(rows.schema.get_field_index("value"), "value", visible)
        keys = rows["key"]
        homes = home_partitions(keys.fill_null(b"") if keys.null_count else keys, spec.partitions)
        return rows.append_column("home", pa.array(homes == partition))


def _partitions(scan: Scan, places: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in places:
        for place in batch.column(0).to_pylist():
            yield scan.spec.ranges[place]
