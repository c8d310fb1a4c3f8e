"""Overlays that the driver writes by itself, in Arrow, for small changes to a version."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lvq_kafka.errors import DataLoss, StateError
from lvq_spark.scan.arrow_columns import arrow_schema
from lvq_spark.session.task_failures import REBUILT
from lvq_spark.store.driver_delta import DriverDelta
from lvq_spark.store.layout.spark_delta import FORGET_NONE
from lvq_spark.store.manifest import DataFile, Version
from lvq_spark.store.merge_partitions_arrow import ROLE, MergePartitions
from lvq_spark.store.versions import Store

__all__ = ["Overlaid", "overlaid"]

_KEYS, _RECORDS = 1 << 18, 1 << 12
"""Rows of a batch, without values and with them. The lookup set is rebuilt for each batch."""

_STORED = arrow_schema().append(pa.field(ROLE, pa.string()))


@dataclass(frozen=True, slots=True)
class Overlaid:
    """The overlay that was written, its record count, and the version's counts; see `Version`."""

    file: DataFile
    records: int
    rows: int
    kept: int


def overlaid(store: Store, base: Version, delta: DriverDelta, folder: str, start: Mapping[int, int]) -> Overlaid:
    """Write an overlay on top of a base: the previous overlay with a delta worked in.

    It holds all that is known of each of its keys, including deletes of any age: they hide the rows below.

    Args:
        start: the current log start of each partition. Records below it are not in the version.

    Raises:
        StateError: someone has deleted what was written.
        DataLoss: a file of the base is damaged.
        FileNotFoundError: a file of the base has been deleted.
    """
    begin = _by_partition(start)
    above = pa.Table.from_batches(_batches(store, [file for file in base.files if file.overlay]), _STORED)
    under = [file for file in base.files if not file.overlay]
    hidden, news = above["key"].combine_chunks(), delta.rows["key"].combine_chunks()
    below = _look_up(store, under, hidden, delta, begin)
    met = pc.is_in(hidden, value_set=news)
    known = [above.filter(met)]
    if below.rivals:
        known += [_of(batch, news, but=hidden) for batch in _batches(store, under)]
    parties = [delta.rows, *(_reached(table, begin).select(delta.rows.column_names) for table in known)]
    settle = MergePartitions(base.partitions, FORGET_NONE, base.placement)
    settled = settle(batch for table in parties for batch in table.to_batches())
    overlay = pa.concat_tables([above.filter(pc.invert(met)), pa.Table.from_batches(settled, _STORED)])
    file = _write(store, f"{folder}/part-0.parquet", overlay)
    seen = _reached(overlay, begin)
    current = below.current + _current(seen)
    return Overlaid(file, overlay.num_rows, current, below.records + seen.num_rows - current)


@dataclass(frozen=True, slots=True)
class _Below:
    """Counts of base records that are not hidden.

    ``rivals`` says whether the base has records of the delta's keys in other partitions.
    """

    records: int
    current: int
    rivals: bool


def _look_up(
    store: Store, files: Iterable[DataFile], above: pa.Array, delta: DriverDelta, begin: npt.NDArray[np.int64]
) -> _Below:
    """Look up the keys of the old overlay and of the delta in the files below, without values."""
    hiding = pa.concat_arrays([above, delta.rows["key"].combine_chunks()])
    places = delta.rows["partition"].to_numpy()
    records = current = 0
    rivals = False
    for batch in _batches(store, files, ("key", "partition", "offset", ROLE), _KEYS):
        rows = _reached(pa.Table.from_batches([batch]), begin)
        # `index_in` finds a key's first place, so keys of the old overlay are not looked up in the delta.
        place = pc.index_in(rows["key"], value_set=hiding)
        seen = rows.filter(pc.is_null(place))
        records += seen.num_rows
        current += _current(seen)
        at = place.fill_null(-1).to_numpy() - len(above)
        met = at >= 0
        rivals = rivals or bool((rows["partition"].to_numpy()[met] != places[at[met]]).any())
    return _Below(records, current, rivals)


def _of(batch: pa.RecordBatch, keys: pa.Array, *, but: pa.Array) -> pa.Table:
    """Return the rows of some keys, except those of others."""
    wanted = pc.and_not(pc.is_in(batch["key"], value_set=keys), pc.is_in(batch["key"], value_set=but))
    return pa.Table.from_batches([batch.filter(wanted)])


def _batches(
    store: Store, files: Iterable[DataFile], columns: Iterable[str] = _STORED.names, rows: int = _RECORDS
) -> Iterator[pa.RecordBatch]:
    """Read files, in the column types of the store."""
    schema = pa.schema([_STORED.field(name) for name in columns])
    for file in files:
        # Spark writes timestamps of 96 bits, which would be read as nanoseconds.
        with (
            _as_data_loss(f"{store.storage.root}/{file.name}"),
            store.storage.open(file.name) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us", page_checksum_verification=True) as parquet,
        ):
            for batch in parquet.iter_batches(rows, columns=schema.names, use_threads=False):
                yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()


@contextmanager
def _as_data_loss(file: str) -> Iterator[None]:
    """Raise damage to a file as data loss; let other read errors pass unchanged."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EIO):
            raise
        raise DataLoss(f"{file} is damaged: {error}", hint=REBUILT) from error


def _reached(table: pa.Table, begin: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows at or above the log start."""
    if not begin.any():
        return table
    return table.filter(pa.array(table["offset"].to_numpy() >= begin[table["partition"].to_numpy()]))


def _by_partition(offsets: Mapping[int, int]) -> npt.NDArray[np.int64]:
    return np.array([offset for _, offset in sorted(offsets.items())], np.int64)


def _current(table: pa.Table) -> int:
    """Return the number of records that readers see."""
    return int(pc.sum(pc.equal(table[ROLE], "current")).as_py() or 0)


def _write(store: Store, name: str, table: pa.Table) -> DataFile:
    sink = pa.BufferOutputStream()
    # Keys and values rarely repeat: a dictionary of them would be built, then dropped after a megabyte.
    dictionaries = ["topic", "partition", ROLE]
    pq.write_table(table, sink, compression="snappy", use_dictionary=dictionaries, write_page_checksum=True)
    content = sink.getvalue().to_pybytes()
    store.storage.create(name, content)
    folder, size = name.rpartition("/")[0], len(content)
    if [entry.bytes for entry in store.storage.files(folder) if entry.name == name] != [size]:
        raise StateError(
            f"{store.storage.root}/{name} was written, but is missing.",
            hint="Another refresh may have taken it for an abandoned one: set grace longer than a refresh takes.",
        )
    return DataFile(name, size, overlay=True, crc32=zlib.crc32(content))
