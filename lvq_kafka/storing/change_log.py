"""The keys that changed lately in a file, for readers in other processes (R41)."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from struct import Struct
from typing import TYPE_CHECKING

from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.storing.value_file import CHANGES, Pages, ValueFile

if TYPE_CHECKING:
    from lvq_kafka.storing.value_file import Txn

__all__ = ["ChangeLog", "changes_since", "next_change"]

_MOST = 4 << 20  # bytes of changes that are kept: some 100,000 keys
_NUMBER = Struct(">Q")
_HEAD = Struct("=BI")  # the cause, and the number of keys; their lengths follow, then they themselves
_CAUSES: tuple[Cause | None, ...] = (None, "deselected", "expired")


class ChangeLog:
    """The writer's side of the changes of a file.

    Each entry has a number one above that of the entry before, and the keys of one change. They are written in the
    transaction that makes the change. Old entries are removed, except the last one: a reader that is further behind
    compares its cut with the new one.
    """

    def __init__(self, file: ValueFile) -> None:
        self._file = file
        self._sizes: deque[int] = deque()  # of the entries, in bytes
        self._next = 0
        self._total = 0
        self._as_of = -1  # the number of aborts of the file when this was right

    def add(self, keys: Iterable[bytes], cause: Cause | None = None) -> None:
        """Note that keys have changed, or lost their value for a cause. Raises `StoreFailed`."""
        known = list(dict.fromkeys(keys))
        if known:
            head = _HEAD.pack(_CAUSES.index(cause), len(known))
            data = b"".join((head, array("I", map(len, known)).tobytes(), *known))
            self._file.attempt(lambda txn: self._add(txn, data))

    def _add(self, txn: Txn, data: bytes) -> None:
        if self._as_of != self._file.aborts:
            self._load(txn)
        txn.put(_NUMBER.pack(self._next), data, db=self._file.tables[CHANGES], append=True)
        self._next += 1
        self._sizes.append(len(data))
        self._total += len(data)
        while self._total > _MOST and len(self._sizes) > 1:
            first = self._next - len(self._sizes)
            txn.delete(_NUMBER.pack(first), db=self._file.tables[CHANGES])
            self._total -= self._sizes.popleft()

    def _load(self, txn: Txn) -> None:
        cursor = txn.cursor(self._file.tables[CHANGES])
        self._sizes = deque(len(data) for data in cursor.iternext(keys=False))
        self._total = sum(self._sizes)
        self._next = _NUMBER.unpack(cursor.key())[0] + 1 if cursor.last() else 0
        self._as_of = self._file.aborts


def next_change(pages: Pages) -> int:
    """Return the number that the next change of a cut would have."""
    cursor = pages.txn.cursor(pages.file.tables[CHANGES])
    return int(_NUMBER.unpack(cursor.key())[0]) + 1 if cursor.last() else 0


def changes_since(pages: Pages, number: int) -> list[tuple[list[bytes], Cause | None]] | None:
    """Return the changes from a number on: keys, and why they lost their values.

    None if some of them are no longer there.
    """
    cursor = pages.txn.cursor(pages.file.tables[CHANGES])
    if number >= next_change(pages):
        return []
    if not cursor.set_key(_NUMBER.pack(number)):
        return None
    return [_parsed(data) for data in cursor.iternext(keys=False)]


def _parsed(data: memoryview) -> tuple[list[bytes], Cause | None]:
    cause, count = _HEAD.unpack_from(data)
    lengths = array("I")
    begin = _HEAD.size + count * lengths.itemsize
    lengths.frombytes(data[_HEAD.size : begin])
    return list(_split(bytes(data[begin:]), lengths)), _CAUSES[cause]


def _split(data: bytes, lengths: Iterable[int]) -> Iterator[bytes]:
    for start, stop in pairwise(accumulate(lengths, initial=0)):
        yield data[start:stop]
