"""A delta that is little enough for the driver to work in by itself.

A Spark job costs most of a second of a processor before it looks at the first row, for plans and for code that the JVM
has to compile, and to work a delta in takes three. The driver reads a few ten thousand records, looks them up among the
keys of the store and writes them in less than one, with a bound on what it holds; `driver_overlay` does so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lvq_kafka.cluster import Cluster, LogReader
from lvq_kafka.core.records import Fetch
from lvq_spark.scan.arrow_columns import arrow_schema
from lvq_spark.scan.latest import RECORD
from lvq_spark.store.layout.spark_delta import Delta
from lvq_spark.store.manifest import Version

if TYPE_CHECKING:
    from lvq_spark.scan.scanning import Scan

__all__ = ["DriverDelta", "fits", "gathered", "read"]

OFFSETS = 200_000
"""Of a delta, at most. The driver reads partitions one after another, at some 5 us for a record."""

RECORDS = 4_000_000
"""Of the version below, at most: all of its keys are looked through, though not its values."""

BYTES = 64 << 20
"""Of a delta in memory, and of the overlay that it is put into, at most; each."""


@dataclass(frozen=True, slots=True)
class DriverDelta:
    """Records in memory. As `lvq_spark.store.layout.spark_delta.Delta`, which Spark holds."""

    rows: pa.Table

    @property
    def upserts(self) -> int:
        """How many they are."""
        return int(self.rows.num_rows)

    @property
    def deletes(self) -> int:
        """How many of them are deletes."""
        return int(self.rows["value"].null_count)


def fits(base: Version, offsets: int) -> bool:
    """Whether the driver may work in what lies in so many offsets beyond a version."""
    overlay = sum(file.bytes for file in base.files if file.overlay)
    return offsets <= OFFSETS and base.rows + base.kept <= RECORDS and overlay <= BYTES


def read(scan: Scan, cluster: Cluster) -> DriverDelta | None:
    """Read a cut over a connection that is there; None if that turns out to be more than may be held.

    Raises:
        LVQError: as for `Scan.read`.
    """
    metered = cast("Cluster", _Metered(cluster, BYTES))
    try:
        batches = [batch for partition in scan.spec.ranges for batch in scan.rows_of(metered, partition)]
    except _TooMuch:
        return None
    return DriverDelta(pa.Table.from_batches(batches, arrow_schema(scan.columns)))


def gathered(base: Version, delta: Delta) -> DriverDelta | None:
    """A delta that Spark holds, in memory; None if it is not little."""
    if not fits(base, delta.upserts) or delta.bytes + delta.upserts * RECORD > BYTES:
        return None
    return DriverDelta(delta.rows.toArrow().select(arrow_schema().names).cast(arrow_schema()))


class _TooMuch(Exception):  # no error: it is read in another way
    """More has been read than may be held."""


class _Metered:
    """A log of which no more is read than so many bytes."""

    def __init__(self, cluster: Cluster, room: int) -> None:
        self._cluster, self._room = cluster, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def reader(self, *positions: Any, **how: Any) -> LogReader:
        """See `lvq_kafka.cluster.Cluster.reader`."""
        return cast("LogReader", _MeteredReader(self, self._cluster.reader(*positions, **how)))

    def count(self, fetch: Fetch) -> Fetch:
        """Count what has come."""
        self._room -= RECORD * len(fetch.batch) + fetch.batch.size
        if self._room < 0:
            raise _TooMuch
        return fetch


class _MeteredReader:
    def __init__(self, meter: _Metered, reader: LogReader) -> None:
        self._meter, self._reader = meter, reader
        self.close = reader.close

    def poll(self, timeout: float) -> Fetch:
        """See `lvq_kafka.cluster.LogReader.poll`."""
        return self._meter.count(self._reader.poll(timeout))
