"""The shares of a cut that tasks read: partitions, or slices of their keys."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lvq_spark.cut.pinning import SnapshotSpec

__all__ = ["PartitionShare", "Shares", "Slice", "slices_of", "tasks_of"]

SMALL = 50_000
"""The most offsets of several partitions that one task reads.

That takes about as long as starting the task and its client.
"""

# Knuth's multiplier. The hash alone will not do: it is a partitioner's, too (CRC32), by which the keys of one partition
# are alike.
_SPREAD = np.uint64(0x9E3779B1)
_LOW, _BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Slice:
    """The keys of one task among several that read the same partition.

    A hash that is the same in every process decides: that of the key, or of the offset if a record has none.

    Args:
        number: which slice it is, from 0.
        of: the number of slices.
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"slice {self.number + 1} of {self.of}"

    def rows(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> list[int]:
        """Return the rows of these records that are in the slice."""
        if None in keys:
            keys = [b"%d" % offset if key is None else key for key, offset in zip(keys, offsets)]
        hashes = np.fromiter(map(zlib.crc32, keys), np.uint64, len(keys))  # type: ignore[arg-type]
        slices = (hashes * _SPREAD & _LOW) * np.uint64(self.of) >> _BITS
        return np.flatnonzero(slices == np.uint64(self.number)).tolist()


class PartitionShare(NamedTuple):
    """A partition that a task reads.

    The slice of its keys that the task keeps is None if it keeps all of them.
    """

    partition: int
    slice: Slice | None = None


Shares = tuple[PartitionShare, ...]
"""The shares of one task."""


def slices_of(number: int) -> Sequence[Slice | None]:
    """Return this number of slices; a single one leaves a partition whole."""
    return [Slice(one, number) for one in range(number)] if number > 1 else [None]


def tasks_of(spec: SnapshotSpec, slices: int = 1) -> list[Shares]:
    """Return the tasks that read a cut.

    Small partitions share a task, and each large one has its own: ``slices`` of them, but not more than there are
    offsets.
    """
    tasks: list[Shares] = []
    for together in _together(spec):
        most = max(spec.end[partition] - spec.start[partition] for partition in together)
        tasks += [tuple(PartitionShare(one, part) for one in together) for part in slices_of(min(slices, most))]
    return tasks


def _together(spec: SnapshotSpec) -> list[list[int]]:
    """Return the partitions of a cut in groups, each of as many as are small together."""
    groups: list[list[int]] = []
    room = 0
    for partition in spec.ranges:
        size = spec.end[partition] - spec.start[partition]
        if size > room or not groups:
            groups.append([])
            room = SMALL
        groups[-1].append(partition)
        room -= size
    return groups
