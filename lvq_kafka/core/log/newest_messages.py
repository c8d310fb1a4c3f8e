"""The newest message of each key, kept as the reader returned it until all have been read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from lvq_kafka.core.log.records import RecordBatch

__all__ = ["NewestMessages"]

K = TypeVar("K")


class NewestMessages(Generic[K]):
    """The newest message of each key.

    For a message that is replaced by a newer one, only the key is ever looked up, in a dict. All others become columns
    once, at the end. All batches must be of one kind (see `RecordBatch.gather`), and each must follow the one before.
    """

    __slots__ = ("_gather", "entries")

    def __init__(self) -> None:
        self.entries: dict[K, Any] = {}
        """Entries of the batches by key, to be counted and looked up; see `RecordBatch.entries`."""
        self._gather = RecordBatch().gather

    def add(self, batch: RecordBatch, keys: Sequence[K]) -> None:
        """Add messages, which replace earlier ones of their keys."""
        self.entries.update(zip(keys, batch.entries()))
        self._gather = batch.gather

    def offset(self, key: K) -> int:
        """Return the offset of the message of a key that is present."""
        return self._gather([self.entries[key]]).offsets[0]

    def batch(self) -> RecordBatch:
        """Return the messages, in no particular order."""
        return self._gather(list(self.entries.values()))

    def drain(self, rows: int) -> Iterator[tuple[RecordBatch, list[K]]]:
        """Remove and yield the messages with their keys, in offset order, ``rows`` at a time.

        Each message is released as it is yielded. Otherwise, all of them would grow as their columns are read, and
        Python's cyclic garbage collector would walk them and the objects made from them.
        """
        keys, entries = list(self.entries), list(self.entries.values())
        self.entries.clear()
        order = sorted(range(len(keys)), key=self._gather(entries).offsets.__getitem__)
        for at in range(0, len(order), rows):
            some = order[at : at + rows]
            batch = self._gather([entries[row] for row in some])
            for row in some:
                entries[row] = None
            yield batch, [keys[row] for row in some]
