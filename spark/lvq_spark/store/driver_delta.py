"""A delta that is small enough for the driver to handle by itself.

A Spark job costs most of a second of processor time before it looks at the first row, for plans and for code that the
JVM has to compile, and working a delta in takes three jobs. The driver reads tens of thousands of records, looks them
up among the store's keys and writes them for less than one job, within bounded memory; see `driver_overlay`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lvq_kafka.cluster import Cluster, LogReader
from lvq_kafka.core.log.records import Fetch
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.scan.arrow_columns import arrow_schema
from lvq_spark.scan.latest import RECORD
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.store.manifest import Version

if TYPE_CHECKING:
    from lvq_spark.scan.scanning import Scan

__all__ = ["DriverDelta", "fits", "read"]

OFFSETS = 200_000
"""Most offsets of a delta. The driver reads partitions one by one, at some 5 us a record."""

RECORDS = 4_000_000
"""Most records of the base version. All of its keys are scanned, though not its values."""

BYTES = 64 << 20
"""Most bytes of a delta in memory, and also of the overlay that it goes into."""


@dataclass(frozen=True, slots=True)
class DriverDelta:
    """Records in memory; the counterpart of `lvq_spark.store.layout.spark_delta.Delta`."""

    rows: pa.Table
    scheduled: Mapping[int, NotDue] | None = None

    @property
    def upserts(self) -> int:
        """The number of records."""
        return int(self.rows.num_rows)

    @property
    def deletes(self) -> int:
        """The number of deletes among them."""
        return int(self.rows["value"].null_count)


def fits(base: Version, offsets: int) -> bool:
    """Return whether the driver may work in this many offsets on top of a version."""
    overlay = sum(file.bytes for file in base.files if file.overlay)
    return offsets <= OFFSETS and base.rows + base.kept <= RECORDS and overlay <= BYTES


def read(scan: Scan, cluster: Cluster) -> DriverDelta | None:
    """Read a cut over an existing connection; return None if it turns out to be too large.

    Raises:
        LVQError: as for `Scan.rows_of`.
    """
    met = {partition: TaskMetrics() for partition in scan.spec.ranges}
    metered = cast("Cluster", _Metered(cluster, BYTES))
    try:
        batches = [batch for p, metrics in met.items() for batch in scan.rows_of(metered, p, metrics=metrics)]
    except _TooMuch:
        return None
    scheduled = {partition: found for partition, metrics in met.items() if (found := metrics.waiting) is not None}
    return DriverDelta(pa.Table.from_batches(batches, arrow_schema(scan.columns)), scheduled)


class _TooMuch(Exception):  # not an error: the cut is read in another way
    """More was read than may be held."""


class _Metered:
    """A cluster with a limit on the bytes read from it."""

    def __init__(self, cluster: Cluster, room: int) -> None:
        self._cluster, self._room = cluster, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def reader(self, *positions: Any, **how: Any) -> LogReader:
        """See `lvq_kafka.cluster.Cluster.reader`."""
        return cast("LogReader", _MeteredReader(self, self._cluster.reader(*positions, **how)))

    def count(self, fetch: Fetch) -> Fetch:
        """Count fetched records against the limit."""
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
