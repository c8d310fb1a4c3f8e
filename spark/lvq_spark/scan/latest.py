"""The newest record of each key of one partition, with a bound on the memory that values take."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import closing
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import IO, Any

from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.mismatch import KeyMismatchPolicy, choose_keys
from lvq_kafka.core.records import Record, RecordBatch

__all__ = ["Latest"]

# Stands for the null value of a delete, so that the fold keeps deletes like values. Told by identity, never by content.
_DELETE = bytes(bytearray(b"deleted"))


class Latest:
    """Folds one partition's records: the newest of each key, deletes included, and all that have no key.

    Keys and positions stay in memory. When values take more than ``memory`` bytes of it, those there are go to a
    temporary file, and a place in that file takes the place of each.

    Use it as a context manager: the file is gone afterwards.
    """

    def __init__(
        self, topic: str, *, key_header: str | None, key_mismatch: KeyMismatchPolicy, memory: int, keyless: bool
    ) -> None:
        self._table = LatestValues(1, key_header=key_header, key_mismatch=key_mismatch, topic=topic)
        self._topic, self._key_header, self._key_mismatch = topic, key_header, key_mismatch
        self._keyless: list[Record] | None = [] if keyless else None
        self._memory = memory
        self._held = 0  # an upper bound of the bytes of values in memory
        self._spilled: _Spilled | None = None

    def __enter__(self) -> Latest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spilled is not None:
            self._spilled.close()

    def __contains__(self, key: bytes) -> bool:
        return key in self._table

    @property
    def spilled(self) -> int:
        """Bytes of values that were written to the file."""
        return 0 if self._spilled is None else self._spilled.size

    def apply(self, batch: RecordBatch) -> None:
        """Fold a batch in.

        Raises:
            KeyMismatch: a record's header and key disagree and the policy is ``"fail"``.
            OSError: there is no room for the file.
        """
        if self._keyless is not None and None in batch.keys:
            keys, _ = choose_keys(batch, self._topic, self._key_header, self._key_mismatch)
            self._keyless += batch.pick([row for row, key in enumerate(keys) if key is None])
        values = batch.values
        if not all(values) and None in values:
            batch.values = values = [_DELETE if value is None else value for value in values]
        self._table.apply(batch)
        self._held += sum(map(len, values))  # type: ignore[arg-type]
        if self._held > self._memory:
            self._spill()

    def batches(self, rows: int) -> Iterator[RecordBatch]:
        """The records in offset order, so many at a time; a delete's value is None."""
        if not self._keyless:
            for batch in self._table.batches(rows):
                batch.values = list(map(self._value, batch.values))
                yield batch
            return
        offset = attrgetter("offset")
        records = merge(self._table.records(), self._keyless, key=offset)
        while taken := [record._replace(value=self._value(record.value)) for record in islice(records, rows)]:
            yield RecordBatch.of(taken)

    def _value(self, stored: Any) -> bytes | None:
        if stored is _DELETE:
            return None
        if type(stored) is int:
            assert self._spilled is not None
            return self._spilled.read(stored)
        return stored  # type: ignore[no-any-return]

    def _spill(self) -> None:
        """Write the values in memory to the file, unless most of what was held is gone: replaced by newer ones."""
        self._held = 0
        self._table.convert_values(self._weigh)
        for record in self._keyless or ():
            self._weigh(record.value)
        if 2 * self._held <= self._memory:
            return
        self._held = 0
        if self._spilled is None:
            self._spilled = _Spilled()
        self._table.convert_values(self._write)
        if self._keyless:
            self._keyless = [record._replace(value=self._write(record.value)) for record in self._keyless]

    def _weigh(self, stored: Any) -> Any:
        if type(stored) is not int and stored is not None:
            self._held += len(stored)
        return stored

    def _write(self, stored: Any) -> Any:
        assert self._spilled is not None
        return stored if type(stored) is int or stored is None or stored is _DELETE else self._spilled.write(stored)


class _Spilled:
    """Values in a temporary file. A place is a number: where the value begins, and how long it is."""

    _LENGTH = 31  # bits; no message is longer

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="lvq-", buffering=1 << 20)  # noqa: SIM115
        self._map: mmap.mmap | None = None
        self.size = 0

    def write(self, value: bytes) -> int:
        self._unmap()
        self._file.write(value)
        place = self.size << self._LENGTH | len(value)
        self.size += len(value)
        return place

    def read(self, place: int) -> bytes:
        begin, length = place >> self._LENGTH, place & (1 << self._LENGTH) - 1
        if not length:
            return b""
        if self._map is None:
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._map[begin : begin + length]

    def close(self) -> None:
        self._unmap()
        self._file.close()

    def _unmap(self) -> None:
        if self._map is not None:
            with closing(self._map):
                self._map = None
