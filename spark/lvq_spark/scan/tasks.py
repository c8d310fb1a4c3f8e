"""What runs on the executors: one task for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lvq_spark.scan.claims import strays, to_claims
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.tally import Tally

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

    What is not to be seen, be it deleted or done by a group, has a row that says so; see `to_claims`.
    """

    scan: Scan

    def __call__(self, places: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Their rows; deletes come, whether the scan asks for them or not."""
        whole = replace(self.scan, spec=replace(self.scan.spec, done=None), deletes=True)
        for partition in _partitions(whole, places):
            tally = Tally(strays=0)
            for rows in whole.read(partition, tally):
                claims = to_claims(rows, partition, self.scan.spec)
                tally.strays = (tally.strays or 0) + strays(claims)
                yield claims


def _partitions(scan: Scan, places: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in places:
        for place in batch.column(0).to_pylist():
            yield scan.spec.ranges[place]
