"""The records that are not due yet, in a file (R11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from struct import Struct
from typing import TYPE_CHECKING

from lvq_kafka.core.latest.tables import SetAside
from lvq_kafka.core.timing.ttl import NEVER
from lvq_kafka.storing.record_format import OFFSET, PLACE, pack_aside, pack_key, pack_time, unpack_aside, unpack_time
from lvq_kafka.storing.value_file import ASIDE, DUE, LINES, ValueFile

if TYPE_CHECKING:
    from lvq_kafka.storing.value_file import Txn

__all__ = ["StoredAside"]

_PARTITION = Struct(">I")
_TIME = 8  # bytes


class StoredAside:
    """`RecordsAside` in a file.

    It has the records by place, the offsets of each line, and an index by due time.
    """

    def __init__(self, file: ValueFile) -> None:
        self._file = file
        self._aside, self._lines, self._index = (file.tables[name] for name in (ASIDE, LINES, DUE))
        self._next: tuple[int, int] | None = None  # the first time of the index, and the version of the file

    def __len__(self) -> int:
        entries: int = self._file.txn.stat(self._aside)["entries"]
        return entries

    @property
    def next_due(self) -> int:
        """See `RecordsAside.next_due`."""
        version = self._file.version
        if self._next is None or self._next[0] != version or self._file.writing:
            cursor = self._file.txn.cursor(self._index)
            self._next = (version, unpack_time(cursor.key()) if cursor.first() else NEVER)
        return self._next[1]

    def add(self, one: SetAside) -> None:
        """See `RecordsAside.add`."""
        self._file.attempt(lambda txn: self._add(txn, one))

    def _add(self, txn: Txn, one: SetAside) -> None:
        record = one.record
        place = PLACE.pack(record.partition, record.offset)
        txn.put(place, pack_aside(one), db=self._aside)
        txn.put(_line(record.partition, one.key), OFFSET.pack(record.offset), db=self._lines)
        txn.put(pack_time(one.due) + place, b"", db=self._index)

    def among(self, partition: int, keys: Iterable[bytes | None]) -> Collection[bytes | None]:
        """See `RecordsAside.among`."""
        txn, lines = self._file.txn, self._lines
        return {key for key in set(keys) if key is not None and txn.get(_line(partition, key), None, lines) is not None}

    def pop_due(self, now: int, most: int) -> list[SetAside]:
        """See `RecordsAside.pop_due`."""
        found: list[SetAside] = []
        txn = self._file.txn
        cursor = txn.cursor(self._index)
        for entry in cursor.iternext(keys=True, values=False):
            if len(found) == most or unpack_time(entry) > now:
                break
            found.append(self._at(txn, bytes(entry[_TIME:])))
        return found

    def _at(self, txn: Txn, place: bytes) -> SetAside:
        data = txn.get(place, None, self._aside)
        assert data is not None
        return unpack_aside(place, data)

    def due_of(self, key: bytes, now: int) -> list[SetAside]:
        """See `RecordsAside.due_of`."""
        txn, found = self._file.txn, []
        for partition in self._partitions(txn):
            line = [self._at(txn, place) for place in self._places(txn, partition, key)]
            found += [one for one in line if one.due <= now]
        return found

    def _partitions(self, txn: Txn) -> list[int]:
        """Return the partitions that have records here."""
        cursor, found, at = txn.cursor(self._aside), [], 0
        while cursor.set_range(PLACE.pack(at, 0)):
            partition, _ = PLACE.unpack(cursor.key())
            found.append(partition)
            at = partition + 1
        return found

    def _places(self, txn: Txn, partition: int, key: bytes) -> list[bytes]:
        """Return the places of a line, in order."""
        cursor = txn.cursor(self._lines)
        if not cursor.set_key(_line(partition, key)):
            return []
        return [_PARTITION.pack(partition) + bytes(offset) for offset in cursor.iternext_dup()]

    def pop_up_to(self, partition: int, key: bytes, offset: int) -> list[SetAside]:
        """See `RecordsAside.pop_up_to`."""
        places = [place for place in self._places(self._file.txn, partition, key) if PLACE.unpack(place)[1] <= offset]
        return self._file.attempt(lambda txn: [self._pop(txn, place) for place in places]) if places else []

    def _pop(self, txn: Txn, place: bytes) -> SetAside:
        one = self._at(txn, place)
        txn.delete(place, db=self._aside)
        txn.delete(_line(one.record.partition, one.key), OFFSET.pack(one.record.offset), db=self._lines)
        txn.delete(pack_time(one.due) + place, db=self._index)
        return one


def _line(partition: int, key: bytes) -> bytes:
    return _PARTITION.pack(partition) + pack_key(key)
