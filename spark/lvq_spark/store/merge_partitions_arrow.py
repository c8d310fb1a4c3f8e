"""Which of the records of a key counts, and which others have to be kept to tell so the next time (R14)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.records import Record, RecordBatch
from lvq_spark.scan.arrow_columns import ROWS, arrow_schema

__all__ = ["ROLE", "MergePartitions"]

ROLE = "lvq_role"
"""The column that says what a stored record is.

- ``current``: the value of its key. This is what readers see.
- ``delete``: the delete of a key that lies in no other partition. It counts against a record of another one that may
  come later, and is kept for as long as the log itself has to keep it.
- ``rival``: a record, or delete, of a key that lies in several partitions, where another one counts now, or a delete.
"""


@dataclass(frozen=True, slots=True)
class MergePartitions:
    """Settles keys: takes all that is known of them, and says of each record what it is.

    Older records of a key in the same partition are left out, and ones that came twice are there once.

    Args:
        topic, partitions: the topic and its partition count.
        horizon: deletes of before are left out where nothing contests them; milliseconds since the epoch.
    """

    topic: str
    partitions: int
    horizon: int

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of whole keys, with the column `ROLE`."""
        received = list(rows)
        if not received:
            return
        # Between two steps Spark renames what does not matter: the time zone of an instant, the element of a list.
        table = pa.Table.from_batches(received).select(arrow_schema().names).cast(arrow_schema())
        newest, contested = _compare(table)
        if not newest.all():
            table, contested = table.filter(pa.array(newest)), contested[newest]
        roles = pc.if_else(pc.is_valid(table["value"]), "current", "delete").combine_chunks()
        if contested.any():
            settled = self._roles(table.filter(pa.array(contested)))
            roles = pc.replace_with_mask(roles, pa.array(contested), pa.array(settled, pa.string()))
        forgotten = pc.and_(pc.equal(roles, "delete"), pc.less(_milliseconds(table), self.horizon))
        table = table.append_column(ROLE, roles)
        yield from table.filter(pc.invert(forgotten)).to_batches(max_chunksize=ROWS)

    def _roles(self, table: pa.Table) -> list[str]:
        """The roles of records of which each is the newest of its key in its partition, and none has its key alone."""
        names = ("partition", "offset", "key")
        partitions, offsets, keys = (table[name].to_pylist() for name in names)
        stamps, lives = _milliseconds(table).to_pylist(), pc.is_valid(table["value"]).to_pylist()
        # The very fold that a view uses, so its rule is the rule. It needs to know of a value only that there is one.
        records = (
            Record(partition, offset, stamp, key, b"" if live else None)
            for partition, offset, stamp, key, live in zip(partitions, offsets, stamps, keys, lives)
        )
        fold = LatestValues(self.partitions, topic=self.topic, tombstone_memory=sys.maxsize)
        fold.apply(RecordBatch.of(sorted(records, key=itemgetter(0, 1))))
        winners = {(record.partition, record.offset) for record in fold.records()}
        return ["current" if place in winners else "rival" for place in zip(partitions, offsets)]


def _compare(table: pa.Table) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which records are the newest of their key in their partition, and which keys lie in several.

    Of one that came twice, one is the newest.
    """
    places = table.select(["key", "partition", "offset"]).combine_chunks()
    by = [("key", "ascending"), ("partition", "ascending"), ("offset", "descending")]
    order = pc.sort_indices(places, sort_keys=by).to_numpy()
    keys, partitions = places["key"].take(order), places["partition"].to_numpy()[order]
    as_before = np.zeros(len(order) + 1, np.bool_)  # whether a record has the key of the one before, in this order
    as_before[1:-1] = pc.equal(keys[1:], keys[:-1]).to_numpy()
    elsewhere = np.zeros(len(order) + 1, np.bool_)  # and, if so, whether it lies in another partition
    elsewhere[1:-1] = as_before[1:-1] & (partitions[1:] != partitions[:-1])
    newest, contested = np.empty(len(order), np.bool_), np.empty(len(order), np.bool_)
    newest[order] = ~as_before[:-1] | elsewhere[:-1]
    group = np.cumsum(~as_before[:-1]) - 1
    contested[order] = np.bincount(group, elsewhere[:-1])[group] > 0
    return newest, contested


def _milliseconds(table: pa.Table) -> pa.ChunkedArray:
    return table["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
