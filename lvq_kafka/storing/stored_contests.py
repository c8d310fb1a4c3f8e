"""The keys with records in several partitions, in a file (R14)."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping

from lvq_kafka.core.log.records import Record
from lvq_kafka.storing.record_format import pack_key, pack_rivals, unpack_rivals
from lvq_kafka.storing.value_file import CONTESTS, ValueFile

__all__ = ["StoredContests"]

Rivals = dict[int, Record]


class StoredContests(MutableMapping[bytes, Rivals]):
    """`Contests` in a file."""

    def __init__(self, file: ValueFile, key_header: str | None) -> None:
        self._file = file
        self._key_header = key_header
        self._contests = file.tables[CONTESTS]

    def _find(self, key: object) -> memoryview | None:
        if not isinstance(key, bytes):
            return None
        found: memoryview | None = self._file.txn.get(pack_key(key), None, self._contests)
        return found

    def __getitem__(self, key: bytes) -> Rivals:
        data = self._find(key)
        if data is None:
            raise KeyError(key)
        return unpack_rivals(data)[1]

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __setitem__(self, key: bytes, rivals: Rivals) -> None:
        data = pack_rivals(key, rivals, self._key_header)
        self._file.attempt(lambda txn: txn.put(pack_key(key), data, db=self._contests))

    def __delitem__(self, key: bytes) -> None:
        if not self._file.attempt(lambda txn: txn.delete(pack_key(key), db=self._contests)):
            raise KeyError(key)

    def __len__(self) -> int:
        entries: int = self._file.txn.stat(self._contests)["entries"]
        return entries

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key, _ in self._all()])

    def items(self) -> ItemsView[bytes, Rivals]:
        """Return all of them at once: later changes do not show."""
        return dict(self._all()).items()

    def _all(self) -> Iterator[tuple[bytes, Rivals]]:
        for _, data in self._file.txn.cursor(self._contests):
            yield unpack_rivals(data)
