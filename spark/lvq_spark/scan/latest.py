"""The newest record of each key of one partition, with bounded memory for values."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy, choose_keys
from lvq_kafka.core.log.newest_messages import NewestMessages
from lvq_kafka.core.log.records import RecordBatch
from lvq_spark.scan.arrow_columns import ROWS, header_bytes
from lvq_spark.scan.spilling import Spill

__all__ = ["RECORD", "Latest"]

RECORD = 300
"""Bytes that a record takes in memory beyond its value and headers, as measured.

They are for the client's message, the key, and the entry here.
"""


class Latest:
    """The newest record of each key of one partition, and every record without a key.

    Deletes are kept, too. Records are kept as the reader returns them, so of the many that are replaced only the key is
    ever read. Beyond ``memory`` bytes, the records held so far go to a temporary file. Their keys stay in memory, each
    with the offset of its newest record in the file, which takes half of `RECORD`. At the end these offsets show which
    records of the file still count. Without ``values`` the file holds none, and only marks deletes.

    Use it as a context manager, which removes the file at the end.
    """

    def __init__(
        self,
        topic: str,
        *,
        key_header: str | None,
        key_mismatch: KeyMismatchPolicy,
        memory: int,
        keyless: bool,
        values: bool = True,
    ) -> None:
        self._topic, self._key_header, self._key_mismatch = topic, key_header, key_mismatch
        # Newer than those in the file. A message without a key has its offset as the key: nothing replaces it.
        self._held: NewestMessages[bytes | int | None] = NewestMessages()
        self._keeps_keyless = keyless
        # The offsets of the records in the file, by key, and of those without a key.
        self._stored: dict[bytes | int | None, int] = {}
        self._stored_keyless = array("q")
        self._spill: Spill | None = None
        self._memory, self._values = memory, values
        self._weight = 0  # upper bound of the bytes in memory, as far as some headers are typical of all
        self._applied = 0
        self.keyless = 0
        self.mismatched = 0

    def __enter__(self) -> Latest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spill is not None:
            self._spill.close()

    def __contains__(self, key: bytes) -> bool:
        return key in self._held.entries or key in self._stored

    def offset(self, key: bytes) -> int:
        """Return the offset of the newest record of a key that is present."""
        return self._held.offset(key) if key in self._held.entries else self._stored[key]

    @property
    def spilled(self) -> int:
        """Bytes of values written to the file."""
        return 0 if self._spill is None else self._spill.bytes

    @property
    def replaced(self) -> int:
        """The number of records replaced by newer ones; valid until `batches` releases these."""
        only_held = sum(key not in self._stored for key in self._held.entries)
        dropped = 0 if self._keeps_keyless else self.keyless
        return self._applied - dropped - len(self._stored) - len(self._stored_keyless) - only_held

    def apply(self, batch: RecordBatch) -> None:
        """Add a batch; all batches are of one kind, and each follows the one before.

        Raises:
            KeyMismatch: a record's header and key disagree, and the policy is ``"fail"``.
            SpillFailed: there is no room for the file.
        """
        keys, mismatched = choose_keys(batch, self._topic, self._key_header, self._key_mismatch)
        self._applied += len(keys)
        self.mismatched += mismatched
        if all(keys) or None not in keys:
            self._held.add(batch, keys)
        else:
            self._add_with_keyless(batch, keys)
        self._weight += _weight(batch)
        if self._weight > self._memory:
            self._make_room()

    def _add_with_keyless(self, batch: RecordBatch, keys: list[bytes | None]) -> None:
        self.keyless += keys.count(None)
        if self._keeps_keyless:
            self._held.add(batch, [offset if key is None else key for key, offset in zip(keys, batch.offsets)])
        else:
            self._held.add(batch, keys)
            del self._held.entries[None]

    def batches(self, rows: int) -> Iterator[RecordBatch]:
        """Yield the records in offset order, at most ``rows`` at a time; deletes have value None.

        Records are released as they are yielded, so this works once. Those in the file precede those in memory.

        Raises:
            SpillFailed: the file cannot be read.
        """
        if self._spill is not None:
            for block in self._newest(self._spill):
                for start in range(0, len(block), rows):
                    yield block.rows(start, start + rows)
        yield from self._let_go(rows)

    def _newest(self, spill: Spill) -> Iterator[RecordBatch]:
        """Yield the records of the file that have not been replaced, and release the keys."""
        for key in self._held.entries:
            self._stored.pop(key, None)
        newest = np.sort(np.fromiter(chain(self._stored.values(), self._stored_keyless), np.int64))
        self._stored.clear()
        for block in spill.read():
            first, end = np.searchsorted(newest, [block.offsets[0], block.offsets[-1] + 1])
            if end - first == len(block):
                yield block
            else:
                yield block.pick(np.searchsorted(block.offsets, newest[first:end]).tolist())

    def _let_go(self, rows: int) -> Iterator[RecordBatch]:
        """Yield the records in memory in offset order, at most ``rows`` at a time; release them."""
        for batch, keys in self._held.drain(rows):
            chosen: list[Any] = [None if type(key) is int else key for key in keys] if self.keyless else keys
            yield RecordBatch(batch.partitions, batch.offsets, batch.timestamps, chosen, batch.values, batch.headers)

    def _make_room(self) -> None:
        """Write the records in memory to the file, unless newer ones have replaced most of them."""
        self._weight = _weight(self._held.batch())
        if 2 * self._weight <= self._memory:
            return
        self._spill = self._spill or Spill(values=self._values)
        for batch in self._let_go(ROWS):
            self._spill.write(batch)
            self._stored.update(zip(batch.keys, batch.offsets))
            if self._stored.pop(None, None) is not None:
                self._stored_keyless.extend(offset for key, offset in zip(batch.keys, batch.offsets) if key is None)
        self._weight = 0


def _weight(batch: RecordBatch) -> int:
    return RECORD * len(batch) + batch.size + header_bytes(batch)
