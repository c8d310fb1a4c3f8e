"""The newest record of each key of one partition, with a bound on the memory that values take."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from itertools import chain, repeat
from operator import itemgetter
from typing import IO, Any

from lvq_kafka.core.mismatch import KeyMismatchPolicy, choose_keys
from lvq_kafka.core.records import Record, RecordBatch
from lvq_spark.scan.columns import BYTES, header_bytes

__all__ = ["RECORD", "Latest"]

RECORD = 300
"""Bytes that a record takes in memory beside value and headers, as measured: the client's message, key, place here."""


class Latest:
    """Keeps of one partition's records the newest of each key, deletes included, and all that have no key.

    They are kept as they come from the reader, so that of the many that are replaced nothing but the key is looked at.
    When they take more than ``memory`` bytes, the records there are go to a temporary file, and a place in that file
    takes the place of each. Keys stay in memory, with half of `RECORD` for each. Where nobody wants the ``values``, the
    file has none, but knows deletes.

    Use it as a context manager: the file is gone afterwards.
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
        self._newest: dict[bytes | None, Any] = {}  # entries of the batches, or places in the file
        self._keyless: list[Any] | None = [] if keyless else None
        self._gather = RecordBatch().gather
        self._memory, self._values = memory, values
        self._held = 0  # bytes in memory, at most, as far as the headers of some tell those of others
        self._spilled: _Spilled | None = None
        self._applied = 0
        self.keyless = 0
        self.mismatched = 0

    def __enter__(self) -> Latest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spilled is not None:
            self._spilled.close()

    def __contains__(self, key: bytes) -> bool:
        return key in self._newest

    def offset(self, key: bytes) -> int:
        """Where the newest record of a key lies, which is there."""
        entry = self._newest[key]
        return self._read((key, entry)).offset if type(entry) is int else self._gather([entry]).offsets[0]

    @property
    def spilled(self) -> int:
        """Bytes of values that were written to the file."""
        return 0 if self._spilled is None else self._spilled.values

    @property
    def replaced(self) -> int:
        """How many records were replaced by newer ones, until `batches` lets go of these."""
        return self._applied - self.keyless - len(self._newest)

    def apply(self, batch: RecordBatch) -> None:
        """Take a batch in; all are of one kind, and each lies behind the one before.

        Raises:
            KeyMismatch: a record's header and key disagree and the policy is ``"fail"``.
            OSError: there is no room for the file.
        """
        keys, mismatched = choose_keys(batch, self._topic, self._key_header, self._key_mismatch)
        self._applied += len(keys)
        self.mismatched += mismatched
        entries, self._gather = batch.entries(), batch.gather
        self._newest.update(zip(keys, entries))
        if not all(keys) and None in keys:
            del self._newest[None]
            self.keyless += keys.count(None)
            if self._keyless is not None:
                self._keyless += [entry for key, entry in zip(keys, entries) if key is None]
        self._held += _weight(batch)
        if self._held > self._memory:
            self._spill()

    def batches(self, rows: int, size: int = BYTES) -> Iterator[RecordBatch]:
        """The records in offset order, at most so many at a time; a delete's value is None.

        What comes is let go, so it comes once. What comes from the file is of at most so many bytes, too; a single
        record may be larger.
        """
        # What went to the file lies before what is in memory, and the file is in the order of offsets itself.
        places = sorted((item for item in self._items() if type(item[1]) is int), key=itemgetter(1))
        first = taken = 0
        for at, (_, place) in enumerate(places):
            if at - first == rows or (taken and taken + _Spilled.length(place) > size):
                yield RecordBatch.of(map(self._read, places[first:at]))
                first, taken = at, 0
            taken += _Spilled.length(place)
        if places:
            yield RecordBatch.of(map(self._read, places[first:]))
        held = self._in_memory()
        self._newest.clear()
        for start in range(0, len(held), rows):
            keys, entries = zip(*held[start : start + rows])
            held[start : start + rows] = [(None, None)] * len(keys)  # with headers, which are read now, it would grow
            found = self._gather(entries)
            yield RecordBatch(
                found.partitions, found.offsets, found.timestamps, list(keys), found.values, found.headers
            )

    def _items(self) -> Iterator[tuple[bytes | None, Any]]:
        return chain(self._newest.items(), zip(repeat(None), self._keyless or ()))

    def _in_memory(self) -> list[tuple[bytes | None, Any]]:
        """Keys and entries in offset order."""
        held = [item for item in self._items() if type(item[1]) is not int]
        offsets = self._gather([entry for _, entry in held]).offsets
        return [held[row] for row in sorted(range(len(held)), key=offsets.__getitem__)]

    def _read(self, item: tuple[bytes | None, int]) -> Record:
        assert self._spilled is not None
        return self._spilled.read(item[1])._replace(key=item[0])

    def _spill(self) -> None:
        """Write the records in memory to the file, unless most of what was held is gone: replaced by newer ones."""
        self._held = _weight(self._gather([entry for _, entry in self._items() if type(entry) is not int]))
        if 2 * self._held <= self._memory:
            return
        held = self._in_memory()
        batch = self._gather([entry for _, entry in held])
        self._held = 0
        if self._spilled is None:
            self._spilled = _Spilled()
        places = map(self._spilled.write, batch if self._values else map(_bare, batch))
        keyless = [stored for stored in self._keyless or () if type(stored) is int]
        for (key, _), place in zip(held, places):
            if key is None:
                keyless.append(place)
            else:
                self._newest[key] = place
        if self._keyless is not None:
            self._keyless = keyless


def _weight(batch: RecordBatch) -> int:
    return RECORD * len(batch) + batch.size + header_bytes(batch)


def _bare(record: Record) -> Record:
    return record._replace(value=record.value and b"")


def _local_dir() -> str | None:
    """Where Spark has its own files, as ``spark.local.dir`` says; None where it has not said."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0].strip()
    return first if os.path.isdir(first) else None


class _Spilled:
    """Records in a temporary file. A place is a number: where the record begins, and how long it is."""

    _LENGTH = 32  # bits; no message is longer

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="lvq-", dir=_local_dir(), buffering=1 << 20)  # noqa: SIM115
        self._size = 0
        self.values = 0  # bytes of them

    def write(self, record: Record) -> int:
        packed = pickle.dumps(tuple(record), pickle.HIGHEST_PROTOCOL)
        self._file.write(packed)
        place = self._size << self._LENGTH | len(packed)
        self._size += len(packed)
        self.values += len(record.value or b"")
        return place

    @classmethod
    def length(cls, place: int) -> int:
        """The bytes that a record takes there."""
        return place & (1 << cls._LENGTH) - 1

    def read(self, place: int) -> Record:
        # Not mapped into memory: a file may be longer than the addresses that a Python worker is allowed.
        self._file.flush()
        return Record(*pickle.loads(os.pread(self._file.fileno(), self.length(place), place >> self._LENGTH)))

    def close(self) -> None:
        self._file.close()
