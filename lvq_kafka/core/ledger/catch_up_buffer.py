"""Records of a partition read but not yet processed: the newest of each key only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from lvq_kafka.core.log.newest_messages import NewestMessages
from lvq_kafka.core.log.records import RecordBatch

__all__ = ["CatchUpBuffer"]

_SAMPLE = 16  # keys of a batch
_AT_A_TIME = 250  # records
_FEW = 8192  # keys of a partition; with fewer, it is too early to see whether keys repeat


class CatchUpBuffer:
    """Records that a partition has yet to process while it catches up.

    Nothing is handed out before the partition has been read to its end. Many records are replaced before that: only
    their keys are looked up, at a tenth of the cost of processing them.
    """

    __slots__ = ("_beside", "_counted", "_kind", "_newest", "position")

    def __init__(self) -> None:
        self._newest: NewestMessages[bytes] = NewestMessages()
        self._kind = RecordBatch
        self._beside = self._counted = 0
        self.position = 0
        """The next offset to read: past the last record, and any markers and holes after it."""

    def __bool__(self) -> bool:
        return bool(self._newest.entries)

    def keys_beside(self, others: Collection[bytes | int]) -> int:
        """Count the buffered keys that are not in ``others``.

        Call `recount` if others change before `drain`.
        """
        keys = self._newest.entries
        if self._counted != len(keys):  # the same number of keys means the same keys
            self._beside, self._counted = sum(key not in others for key in keys), len(keys)
        return self._beside

    def recount(self) -> None:
        """Make `keys_beside` count again."""
        self._beside = self._counted = 0

    def suit(self, batch: RecordBatch, keys: Sequence[bytes | None], others: Collection[bytes | int]) -> bool:
        """Return whether these records can be buffered, and whether that may save work.

        They can if each has a key and a value, and if they are of the same kind as the buffered batches. It may save
        work while there are few keys, or if a sample shows that most are known, buffered or in ``others``.
        """
        known = self._newest.entries
        if known and type(batch) is not self._kind:  # kinds of batches do not mix
            return False
        if (not all(keys) and None in keys) or batch.deletes:
            return False
        if len(known) + len(others) < _FEW:
            return True
        sample = keys[:: len(keys) // _SAMPLE + 1]
        return 2 * sum(key in known or key in others for key in sample) >= len(sample)

    def add(self, batch: RecordBatch, keys: Sequence[bytes]) -> int:
        """Buffer records beyond all others. Returns how many records were replaced."""
        newest = self._newest
        before = len(newest.entries)
        newest.add(batch, keys)
        self._kind = type(batch)
        self.position = batch.ends[1] + 1
        return before + len(keys) - len(newest.entries)

    def drain(self) -> Iterator[tuple[RecordBatch, list[bytes]]]:
        """Empty the buffer: yield its records in offset order, with their keys, in parts."""
        self.recount()
        return self._newest.drain(_AT_A_TIME)
