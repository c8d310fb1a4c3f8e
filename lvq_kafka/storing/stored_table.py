"""The newest record of each key, in a file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count, islice, starmap
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Self
from weakref import ref

from lvq_kafka.core.latest.columns import IMPLIED, Columns, KeyOrder, pick
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.log.records import Headers, Record, RecordBatch, new_record
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.storing.change_traces import traces_of
from lvq_kafka.storing.index_keeper import IndexKeeper
from lvq_kafka.storing.record_format import (
    HEAD,
    Head,
    bounds,
    head_of,
    in_key_order,
    is_long,
    key_of,
    pack_key,
    pack_keys,
    pack_records,
    pack_time,
    unpack_headers,
    unpack_time,
    unpack_value,
)
from lvq_kafka.storing.value_file import EXPIRIES, RECORDS, Pages, ValueFile

if TYPE_CHECKING:
    from lvq_kafka.storing.value_file import Txn

__all__ = ["StoredExpiringTable", "StoredRange", "StoredTable"]

_TIME = 8  # bytes
_POSITION = Struct(">xiqq")  # the first fields of a `Head`, less its flags


class _Keys:
    """The keys of a table."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._table.find(key) is not None


class StoredTable(Bound):
    """`Table` in a file. The slot of a key is the `Head` of its record."""

    def __init__(
        self, file: ValueFile, partitions: int, key_header: str | None, indexes: IndexKeeper | None = None
    ) -> None:
        self.partitions = partitions
        self.key_header = key_header
        self._file = file
        self._indexes = indexes
        self.pages: Pages = file
        """The file, or the cut of it, that is read."""
        self._records = file.tables[RECORDS]
        self._line: tuple[int, ref[KeyOrder]] | None = None  # the last result of `keys`, and the version of the file

    @property
    def index(self) -> Container[bytes]:
        """See `Table.index`."""
        return _Keys(self)  # not kept: in a circle, a cut would outlive its last use

    # ---------------------------------------------------------------- reading

    def find(self, key: bytes) -> memoryview | None:
        """Return the record of a key as it is stored. It is valid until the next write."""
        return self.pages.txn.get(pack_key(key), None, self._records)

    def _current(self, key: bytes) -> memoryview | None:
        """Return the record of a key, as `find` does, if it counts."""
        return self.find(key)

    def __len__(self) -> int:
        entries: int = self.pages.txn.stat(self._records)["entries"]
        return entries

    def __contains__(self, key: bytes) -> bool:
        return self._current(key) is not None

    def value(self, key: bytes) -> bytes | None:
        """See `NewestRecords.value`."""
        data = self._current(key)
        return None if data is None else unpack_value(data)

    def expiry(self, key: bytes) -> int:
        """See `NewestRecords.expiry`."""
        return NEVER

    def record(self, key: bytes) -> Record | None:
        """See `NewestRecords.record`."""
        data = self._current(key)
        return None if data is None else self._record(key, data)

    def _record(self, key: bytes, data: memoryview) -> Record:
        flags, partition, offset, timestamp, _, _, _ = HEAD.unpack_from(data)
        if not flags:
            return new_record((partition, offset, timestamp, key, bytes(data[HEAD.size :]), ()))
        headers = unpack_headers(data, key, self.key_header)
        return new_record((partition, offset, timestamp, key, unpack_value(data), headers))

    def keys(self, order: Order = "tail") -> Sequence[bytes]:
        """Return all keys in queue order. Across partitions, tail order is by append time.

        The list is shared by all callers between two changes, so do not modify it.
        """
        version, known = self._file.version, self._line
        line = None if known is None or (known[0] != version and self.pages is self._file) else known[1]()
        if line is None or line.order != order:
            line = KeyOrder(order)
            line += map(itemgetter(-1), sorted(self._places(order)))
            self._line = (version, ref(line))
        return line

    def _places(self, order: Order) -> Iterator[tuple[object, ...]]:
        """Yield each key, after what it is sorted by."""
        several = self.partitions > 1
        for packed, data in self.pages.txn.cursor(self._records):
            _, partition, offset, timestamp, _, _, place = HEAD.unpack_from(data)
            key = key_of(packed, data)
            if order == "in-place":
                yield place, key
            elif several:
                yield timestamp, partition, offset, key
            else:
                yield offset, key

    def headers(self, keys: Sequence[bytes]) -> Iterator[Headers]:
        """See `NewestRecords.headers`."""
        for key in keys:
            data = self.find(key)
            assert data is not None
            yield unpack_headers(data, key, self.key_header)

    def newest(self, keys: Sequence[bytes]) -> RecordBatch:
        """See `NewestRecords.newest`."""
        batch = RecordBatch()
        for key in keys:
            data = self.find(key)
            if data is not None:
                _, partition, offset, timestamp, _, _, _ = HEAD.unpack_from(data)
                batch.partitions.append(partition)
                batch.offsets.append(offset)
                batch.timestamps.append(timestamp)
                batch.keys.append(key)
                batch.values.append(unpack_value(data))
                batch.headers.append(None)
        return batch

    def records(self, order: Order = "tail") -> Iterator[Record]:
        """See `NewestRecords.records`."""
        for key in self.keys(order):
            data = self.find(key)
            if data is not None:
                yield self._record(key, data)

    def key_range(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> list[bytes]:
        """See `NewestRecords.key_range`."""
        return list(StoredRange(self, start, stop, most).keys())

    def scan(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> StoredRange:
        """See `NewestRecords.scan`."""
        return StoredRange(self.copy() if self.pages is self._file else self, start, stop, most)

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, memoryview]]:
        """Yield the keys of a range, in byte order, and their records as they are stored."""
        low, high = bounds(start, stop)
        cursor = self.pages.txn.cursor(self._records)
        if not cursor.set_range(low):
            return
        yield from in_key_order(self._found(cursor, high, start, stop))

    def _found(
        self, cursor: Iterable[tuple[memoryview, memoryview]], high: bytes | None, start: bytes, stop: bytes | None
    ) -> Iterator[tuple[bytes, bool, memoryview]]:
        for packed, data in cursor:
            if high is not None and bytes(packed) >= high:
                return
            key = key_of(packed, data)
            if start <= key and (stop is None or key < stop):
                yield key, is_long(packed), data

    def record_of(self, key: bytes, data: memoryview) -> Record:
        """Return a record that `walk` has yielded."""
        return self._record(key, data)

    def changed_since(self, offsets: Mapping[int, int], moment: int | None) -> Mapping[bytes, Cause | None] | None:
        """See `NewestRecords.changed_since`."""
        traces = traces_of(self.pages, offsets, moment)
        if traces is None:
            return None
        changed: dict[bytes, Cause | None] = {}
        for key, trace in traces:
            if trace.valued == (self.find(key) is not None):  # otherwise its record shows what came later
                changed[key] = trace.cause
        newer = []
        for packed, data in self.pages.txn.cursor(self._records):
            partition, offset, timestamp = _POSITION.unpack_from(data)
            if offset >= offsets.get(partition, 0):
                newer.append((timestamp, partition, offset, key_of(packed, data)))
        newer.sort()
        for *_, key in newer:
            changed[key] = None
        return changed

    def some_after(self, packed: bytes, most: int) -> list[tuple[bytes, Record]]:
        """See `RecordsByKey.some_after`."""
        cursor = self.pages.txn.cursor(self._records)
        there = cursor.set_range(packed + b"\0") if packed else cursor.first()
        found = islice(cursor, most) if there else ()
        return [(bytes(name), self._record(key_of(name, data), data)) for name, data in found]

    def copy(self) -> Self:
        """Return a cut of the file, which later commits do not change."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.pages, twin._line = self._file.cut(), None
        return twin

    def __repr__(self) -> str:
        return f"<values in {self._file.path.parent}>"

    # ---------------------------------------------------------------- writing

    def grow(self, partitions: int) -> None:
        """See `Table.grow`."""
        self.partitions = partitions

    def lacks(self, keys: Iterable[bytes | None]) -> bool:
        """See `Table.lacks`."""
        return all(self.find(key) is None for key in keys if key is not None)

    def slot(self, key: bytes) -> Head | None:
        """See `Table.slot`."""
        data = self.find(key)
        return None if data is None else head_of(data)

    def slots(self, keys: Sequence[bytes]) -> list[Head | None]:
        """See `Table.slots`."""
        return list(map(self.slot, keys))

    def all_slots(self, keys: Sequence[bytes]) -> Sequence[Head] | None:
        """See `Table.all_slots`."""
        found = []
        for key in keys:
            data = self.find(key)
            if data is None:
                return None
            found.append(head_of(data))
        return found

    def position(self, slot: Head) -> tuple[int, int]:
        """See `Table.position`."""
        return slot.partition, slot.offset

    def outside(self, partition: int, keys: Iterable[bytes], met: Iterable[Head | None]) -> list[bytes]:
        """See `Table.outside`."""
        return [key for key, slot in zip(keys, met) if slot is not None and slot.partition != partition]

    def relocated(self, slot: Head, partition: int) -> Head:
        """See `Table.relocated`."""
        return slot._replace(partition=partition)

    def lie_in(self, partition: int, slots: Sequence[Head]) -> bool:
        """See `Table.lie_in`."""
        return all(slot.partition == partition for slot in slots)

    def append_new(self, partition: int, columns: Columns) -> bool:
        """See `Table.append_new`."""
        packed = pack_keys(columns[2])
        if len(set(packed)) < len(packed):
            return False
        return not packed or self._file.attempt(lambda txn: self._append_new(txn, partition, columns, packed))

    def _append_new(self, txn: Txn, partition: int, columns: Columns, packed: Sequence[bytes]) -> bool:
        """Write records of new keys, or none if any of them is there.

        To look them up first would take nearly as long again.
        """
        expiries = self._expiries(columns)
        first = self._file.next_numbers(len(packed))
        places = range(first, first + len(packed))
        items = pack_records(partition, packed, columns, expiries, expiries, places, self.key_header)
        if self._put_sorted(txn, items, overwrite=False) < len(items):
            for name in packed:
                data = txn.get(name, None, self._records)
                if data is not None and head_of(data).place >= first:
                    txn.delete(name, db=self._records)
            return False
        self._queue(txn, packed, [None] * len(packed), expiries)
        self._enter_indexes(txn, partition, columns, packed)
        return True

    def put(self, partition: int, columns: Columns, met: list[Head | None]) -> int:
        """See `Table.put`."""
        if None in met:
            new = [slot is None for slot in met]
            rows = list(compress(range(len(met)), new))
            added = pick(rows, columns)
            self._write(partition, added, [None] * len(rows), self._expiries(added))
            rows = [row for row, is_new in enumerate(new) if not is_new]
            columns, met = pick(rows, columns), [met[row] for row in rows]
        if met:
            self.overwrite(met, columns)  # type: ignore[arg-type]  # none of them is None
        return len(met)

    def overwrite(self, slots: Sequence[Head], columns: Columns) -> None:
        """See `Table.overwrite`."""
        if not slots:
            return
        expiries = self._expiries(columns)
        rows = list(dict(zip(columns[2], range(len(slots)))).values())
        if len(rows) < len(slots):
            slots, expiries = [slots[row] for row in rows], [expiries[row] for row in rows]
            columns = pick(rows, columns)
        self._write(slots[0].partition, columns, slots, expiries)

    def _write(
        self,
        partition: int,
        columns: Columns,
        slots: Sequence[Head | None],
        expiries: Sequence[int],
    ) -> None:
        """Write records of distinct keys, over those in the slots where there are any.

        Args:
            partition: their partition.
            columns: the records.
            slots: the slots of their keys.
            expiries: the last moment at which each counts.
        """
        packed = pack_keys(columns[2])
        if packed:
            self._file.attempt(lambda txn: self._write_in(txn, partition, columns, slots, packed, expiries))

    def _write_in(
        self,
        txn: Txn,
        partition: int,
        columns: Columns,
        slots: Sequence[Head | None],
        packed: Sequence[bytes],
        expiries: Sequence[int],
    ) -> None:
        queued = self._queue(txn, packed, slots, expiries)
        numbers = count(self._file.next_numbers(slots.count(None)))
        places = [next(numbers) if slot is None else slot.place for slot in slots]
        self._put_sorted(txn, pack_records(partition, packed, columns, expiries, queued, places, self.key_header))
        self._enter_indexes(txn, partition, columns, packed)

    def _put_sorted(self, txn: Txn, items: list[tuple[bytes, bytes]], *, overwrite: bool = True) -> int:
        """Put packed records, and return how many keys were new."""
        items.sort()  # what is written in order is written faster
        _, added = txn.cursor(self._records).putmulti(items, overwrite=overwrite)
        return added

    def _enter_indexes(self, txn: Txn, partition: int, columns: Columns, packed: Sequence[bytes]) -> None:
        if self._indexes:
            self._indexes.enter(txn, list(zip(packed, self._records_of(partition, columns))))

    def _records_of(self, partition: int, columns: Columns) -> Iterator[Record]:
        """Yield columns by row."""
        for offset, timestamp, key, value, headers in zip(*columns):
            own = ((self.key_header, key),) if headers is IMPLIED else tuple(headers or ())
            yield new_record((partition, offset, timestamp, key, value, own))

    def _expiries(self, columns: Columns) -> Sequence[int]:
        """Return the last moment at which each of these records counts."""
        return [NEVER] * len(columns[2])

    def _queue(
        self, txn: Txn, packed: Sequence[bytes], slots: Sequence[Head | None], expiries: Sequence[int]
    ) -> Sequence[int]:
        """Enter keys into the index of expiries before their records are written.

        Returns their times in the index.
        """
        return expiries

    def remove(self, keys: Iterable[bytes]) -> int:
        """See `Table.remove`."""
        packed = pack_keys(list(keys))
        return self._file.attempt(lambda txn: sum(self._remove(txn, one) for one in packed)) if packed else 0

    def _remove(self, txn: Txn, packed: bytes) -> bool:
        if self._indexes:
            self._indexes.remove(txn, packed)
        return txn.delete(packed, db=self._records)


class StoredRange:
    """`KeyRange` of a table in a file, which is read by a cursor."""

    def __init__(self, table: StoredTable, start: bytes, stop: bytes | None, most: int | None) -> None:
        self._table = table
        self._bounds = start, stop
        self._most = most

    def _walk(self) -> Iterator[tuple[bytes, memoryview]]:
        return islice(self._table.walk(*self._bounds), self._most)

    def __len__(self) -> int:
        if self._bounds == (b"", None) and self._most is None:
            return len(self._table)
        return sum(1 for _ in self._walk())

    def keys(self) -> Iterator[bytes]:
        """See `KeyRange.keys`."""
        return map(itemgetter(0), self._walk())

    def records(self) -> Iterator[Record]:
        """See `KeyRange.records`."""
        return starmap(self._table.record_of, self._walk())

    def headers(self) -> Iterator[tuple[bytes, Headers]]:
        """See `KeyRange.headers`."""
        for key, data in self._walk():
            yield key, unpack_headers(data, key, self._table.key_header)


class StoredExpiringTable(StoredTable):
    """`ExpiringRecords` in a file, with an index of keys by the time at which they expire.

    The index has each key that ever expires once. While its value is renewed, a key stays where it is: its record is
    looked up when that time has come, and the key moves then.
    """

    def __init__(
        self,
        file: ValueFile,
        partitions: int,
        key_header: str | None,
        expiry_times: ExpiryTimes,
        indexes: IndexKeeper | None = None,
    ) -> None:
        super().__init__(file, partitions, key_header, indexes)
        self.now = 0
        self.expiry_times = expiry_times
        self._index = file.tables[EXPIRIES]
        self._next: tuple[int, int] | None = None  # the first time of the index, and the version of the file

    # ---------------------------------------------------------------- reading

    def _current(self, key: bytes) -> memoryview | None:
        data = self.find(key)
        return None if data is None or head_of(data).expiry < self.now else data

    def expiry(self, key: bytes) -> int:
        """See `NewestRecords.expiry`."""
        data = self.find(key)
        return NEVER if data is None else head_of(data).expiry

    @property
    def next_expiry(self) -> int:
        """See `ExpiringRecords.next_expiry`."""
        version = self._file.version
        if self._next is None or self._next[0] != version or self._file.writing:
            cursor = self.pages.txn.cursor(self._index)
            self._next = (version, unpack_time(cursor.key()) if cursor.first() else NEVER)
        return self._next[1]

    def expired_record(self, key: bytes) -> Record:
        """See `ExpiringRecords.expired_record`."""
        data = self.find(key)
        assert data is not None
        return self._record(key, data)

    # ---------------------------------------------------------------- expiring

    def pop_expired(self, most: int) -> list[bytes]:
        """See `ExpiringRecords.pop_expired`."""
        return self._file.attempt(lambda txn: self._pop_expired(txn, most))

    def _pop_expired(self, txn: Txn, most: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < most:
            cursor = txn.cursor(self._index)
            if not cursor.first() or unpack_time(cursor.key()) >= self.now:
                break
            packed = bytes(cursor.key()[_TIME:])
            cursor.delete()
            data = txn.get(packed, None, self._records)
            assert data is not None  # the index has keys of the table only
            expiry = head_of(data).expiry
            if expiry < self.now:
                found.append(key_of(packed, data))
            else:
                self._move(txn, packed, bytes(data), expiry)
        return found

    def _move(self, txn: Txn, packed: bytes, data: bytes, expiry: int) -> None:
        """Enter a key into the index under a later time."""
        if expiry < NEVER:
            txn.put(pack_time(expiry) + packed, b"", db=self._index)
        flags, *head = head_of(data)._replace(queued=expiry)
        txn.put(packed, HEAD.pack(flags, *head) + data[HEAD.size :], db=self._records)

    # ---------------------------------------------------------------- writing

    def append_new(self, partition: int, columns: Columns) -> bool:
        """See `Table.append_new`.

        This looks the keys up first, since judging when records expire counts malformed headers.
        """
        return self.lacks(columns[2]) and super().append_new(partition, columns)

    def _expiries(self, columns: Columns) -> Sequence[int]:
        headers = columns[4]
        plain = bool(headers) and headers[0] is IMPLIED
        return self.expiry_times.expiries(columns[1], headers, plain=plain)

    def _queue(
        self, txn: Txn, packed: Sequence[bytes], slots: Sequence[Head | None], expiries: Sequence[int]
    ) -> Sequence[int]:
        times = []
        for name, slot, expiry in zip(packed, slots, expiries):
            queued = NEVER if slot is None else slot.queued
            if expiry < queued:
                if queued < NEVER:
                    txn.delete(pack_time(queued) + name, db=self._index)
                txn.put(pack_time(expiry) + name, b"", db=self._index)
                queued = expiry
            times.append(queued)
        return times

    def _remove(self, txn: Txn, packed: bytes) -> bool:
        data = txn.get(packed, None, self._records)
        if data is None:
            return False
        queued = head_of(data).queued
        if queued < NEVER:
            txn.delete(pack_time(queued) + packed, db=self._index)
        return super()._remove(txn, packed)
