"""Decide which record of each key counts, and which to keep for later contests (R14)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Groups, Placement
from lvq_kafka.core.queue.rules import QueueRules
from lvq_spark.scan.arrow_columns import ROWS, arrow_schema

__all__ = ["ROLE", "MergePartitions"]

ROLE = "lvq_role"
"""The column with the role of a stored record.

- ``current``: the value of its key. This is what readers see.
- ``delete``: the delete of a key that lies in no other partition. It counts against a record that another partition may
  bring later, and is kept for as long as the log itself has to keep it.
- ``expired``: in a merged table of several partitions, the newest value of its key, which has expired.
- ``rival``: a record or delete of a key that lies in several partitions, where another record or a delete counts now.
"""


@dataclass(frozen=True, slots=True)
class MergePartitions:
    """Resolves keys: takes all that is known of them, and gives each record its role.

    Older records of a key in the same partition are left out, and duplicates are dropped.

    Args:
        partitions: the topic's partition count.
        horizon: uncontested deletes from before are left out; milliseconds since the epoch.
        placement: what writers choose the partition of a message by.
    """

    partitions: int
    horizon: int
    placement: Placement = "key"

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the records of whole keys, with the column `ROLE`."""
        received = list(rows)
        if not received:
            return
        # Between two steps, Spark changes irrelevant names: the time zone of a timestamp, the element of a list.
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
        """Return the roles of records that compete with other partitions.

        Each is the newest of its key in its partition.
        """
        names = ("partition", "offset", "key")
        partitions, offsets, keys = (table[name].to_pylist() for name in names)
        stamps, lives = _milliseconds(table).to_pylist(), pc.is_valid(table["value"]).to_pylist()
        # This is the fold that views use, so the rule is the same. It only needs to know whether there is a value.
        records = (
            Record(partition, offset, stamp, key, b"" if live else None)
            for partition, offset, stamp, key, live in zip(partitions, offsets, stamps, keys, lives)
        )
        rules = QueueRules(groups=Groups(placement="group") if self.placement == "group" else None)
        fold = LatestValues(self.partitions, rules, tombstone_memory=sys.maxsize)
        fold.apply(RecordBatch.of(sorted(records, key=itemgetter(0, 1))))
        winners = {(record.partition, record.offset) for record in fold.table.records()}
        return ["current" if place in winners else "rival" for place in zip(partitions, offsets)]


def _compare(table: pa.Table) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which records are newest in their partition, and which keys lie in several.

    Of duplicates, exactly one is the newest.
    """
    places = table.select(["key", "partition", "offset"]).combine_chunks()
    by = [("key", "ascending"), ("partition", "ascending"), ("offset", "descending")]
    order = pc.sort_indices(places, sort_keys=by).to_numpy()
    keys, partitions = places["key"].take(order), places["partition"].to_numpy()[order]
    as_before = np.zeros(len(order) + 1, np.bool_)  # whether a record has the key of the previous one, in this order
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
