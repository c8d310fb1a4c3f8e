"""Records of a partition that have been read and not been taken in: of each key the newest, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from lvq_kafka.core.records import RecordBatch

__all__ = ["CatchUpBuffer"]

_SAMPLE = 16  # keys of a batch
_AT_A_TIME = 250  # records
_FEW = 8192  # keys of a partition; before there are as many, it is too early to tell whether they come again


class CatchUpBuffer:
    """What a partition that catches up has still to take in.

    Nothing of it is handed out before it has been read to its end. So of the many records that are replaced before
    then nothing but the key has to be looked at, by a dict, which costs a tenth of taking each of them in.
    """

    __slots__ = ("_beside", "_counted", "_gather", "_kind", "_newest", "position")

    def __init__(self) -> None:
        self._newest: dict[bytes, Any] = {}  # entries of the batches
        self._gather = RecordBatch().gather
        self._kind = RecordBatch
        self._beside = self._counted = 0
        self.position = 0
        """One past the last record that was read, and past what followed it."""

    def __bool__(self) -> bool:
        return bool(self._newest)

    def keys_beside(self, others: Collection[bytes | int]) -> int:
        """How many keys are here that are not among the others, which stay the same until `settle`."""
        if self._counted != len(self._newest):  # as many keys as before are the same ones
            self._beside, self._counted = sum(key not in others for key in self._newest), len(self._newest)
        return self._beside

    def suit(self, batch: RecordBatch, keys: Sequence[bytes | None], others: Collection[bytes | int]) -> bool:
        """Whether records can be noted here: each has a key and a value, and all that are here make a batch with them.
        And whether that may save work: there are few keys as yet, or most of these are here or among the others, as a
        sample says.
        """
        if self._newest and type(batch) is not self._kind:  # what one kind of batch is made of is nothing to another
            return False
        if (not all(keys) and None in keys) or batch.deletes:
            return False
        if len(self._newest) + len(others) < _FEW:
            return True
        sample = keys[:: len(keys) // _SAMPLE + 1]
        return 2 * sum(key in self._newest or key in others for key in sample) >= len(sample)

    def add(self, batch: RecordBatch, keys: Sequence[bytes]) -> int:
        """Take note of records beyond all that are here; returns how many records have been replaced."""
        before = len(self._newest)
        self._newest.update(zip(keys, batch.entries()))
        self._gather, self._kind = batch.gather, type(batch)
        self.position = batch.ends[1] + 1
        return before + len(keys) - len(self._newest)

    def drain(self) -> Iterator[tuple[RecordBatch, list[bytes]]]:
        """The records in offset order, and the keys they were noted by, some at a time. They are here no more.

        They are let go of as they are taken in: else Python's cyclic collector would walk through both.
        """
        newest, self._newest = self._newest, {}
        self._beside = self._counted = 0
        keys, entries = list(newest), list(newest.values())
        newest.clear()
        rows = sorted(range(len(keys)), key=self._gather(entries).offsets.__getitem__)
        for at in range(0, len(rows), _AT_A_TIME):
            some = rows[at : at + _AT_A_TIME]
            batch = self._gather([entries[row] for row in some])
            for row in some:
                entries[row] = None
            yield batch, [keys[row] for row in some]
