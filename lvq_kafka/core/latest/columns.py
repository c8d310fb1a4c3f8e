"""The newest record of each key, stored by column.

A key maps to a slot; the values, offsets and timestamps of all slots are in one list and a few arrays. This has three
consequences. A batch is applied by the built-in containers at their own speed, without a Python statement per record.
The cyclic garbage collector has nothing to walk, because there is no container per key. And keeping position and
timestamp with each value costs only some 60 bytes.

An update keeps its slot, so the order of the index, a dict, is the in-place order of R4. The tail order (1 2 3 4, then
2: 1 3 4 2) is the order of offsets.
"""

from __future__ import annotations

import marshal
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, islice
from operator import itemgetter
from typing import Any, Self, TypeVar
from weakref import ref

from lvq_kafka.core.latest.sorted_keys import SortedKeys
from lvq_kafka.core.log.records import Headers, RawHeaders, Record, RecordBatch
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.timing.ttl import NEVER

T = TypeVar("T")

__all__ = ["IMPLIED", "ColumnRange", "ColumnTable", "Columns", "KeyOrder", "pick"]

Columns = tuple[list[int], list[int], list[bytes], list[bytes | None], list[RawHeaders]]
"""Offsets, timestamps, keys, values and headers of records of one partition."""

IMPLIED: Headers = (("", None),)
"""Placeholder, compared by identity, for the key header alone with the key as its value.

A batch uses it for all of its records or for none.
"""

# The values of a slot's header flag. The common case, the key header alone, is implied by the key and costs one byte.
_NO_HEADERS, _KEY_HEADER, _OWN_HEADERS = 0, 1, 2  # the first is falsy

_new_record = partial(tuple.__new__, Record)  # takes half the time of the constructor

_PART = 16_384  # rows sorted at once, which takes some 3 ms
_FEW = 10_000  # records that are taken from a table one by one, which takes some 10 ms


class KeyOrder(list[bytes]):
    """Keys in queue order. A subclass, because a list cannot be weakly referenced."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order


class ColumnTable:
    """One record per key, written by `LatestValues`, which decides which one is the newest.

    ``index`` maps each key to its slot, in in-place order; ``partition_of`` and ``offsets`` tell where the record of a
    slot lies in the log.

    Not thread-safe.
    """

    def __init__(self, *, partitions: int, key_header: str | None) -> None:
        self.partitions = partitions
        self.key_header = key_header
        self.index: dict[bytes, int] = {}
        self._values: list[bytes | None] = []
        self.offsets = array("q")
        self._timestamps = array("q")
        self.partition_of = array("i")
        self._flags = bytearray()
        self._own_headers: dict[int, bytes] = {}
        self._shared_flag: int | None = _NO_HEADERS  # the common flag of all slots, if any
        self._sorted: SortedKeys | None = None  # once it was scanned
        self._moved: list[bytes] = []  # keys that came or went since then
        self._noted: tuple[set[bytes], ...] = ()  # see `note_changes`
        self._line: ref[KeyOrder] | None = None  # the last result of `keys`, while it is in use and unchanged

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_line": None, "_noted": ()}  # weak references cannot be pickled

    # ---------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, key: bytes) -> bool:
        return key in self.index

    def value(self, key: bytes) -> bytes | None:
        """Return the current value of a key, or None if it has none."""
        slot = self.index.get(key)
        return None if slot is None else self._values[slot]

    def expiry(self, key: bytes) -> int:
        """See `NewestRecords.expiry`."""
        return NEVER

    def record(self, key: bytes) -> Record | None:
        """Return the newest record of a key, or None if it has no value."""
        slot = self.index.get(key)
        return None if slot is None else self._record(key, slot)

    def _record(self, key: bytes, slot: int) -> Record:
        return _new_record(
            (
                self.partition_of[slot],
                self.offsets[slot],
                self._timestamps[slot],
                key,
                self._values[slot],
                self._headers(key, slot) if self._flags[slot] else (),
            )
        )

    def _headers(self, key: bytes, slot: int) -> Headers:
        flag = self._flags[slot]
        if flag == _NO_HEADERS:
            return ()
        if flag == _OWN_HEADERS:
            return _unpack(self._own_headers[slot])
        assert self.key_header is not None
        return ((self.key_header, key),)

    def keys(self, order: Order = "tail") -> Sequence[bytes]:
        """Return all keys in queue order. Across partitions, tail order is by append time.

        The list is shared by all callers between two changes, so do not modify it.
        """
        line = None if self._line is None else self._line()
        if line is None or line.order != order:
            line = KeyOrder(order)
            for keys, _ in self._in_order(order):
                line += keys
            self._line = ref(line)
        return line

    def _in_order(self, order: Order) -> Iterator[tuple[list[bytes], list[int]]]:
        """Yield all keys and their slots in queue order, in parts.

        No step handles all keys at once: one sort of a million keys takes 0.3 s, during which no other thread runs.
        """
        keys, slots = _listed(self.index), _listed(self.index.values())
        if order == "in-place":
            yield keys, slots
            return
        columns = [self.offsets] if self.partitions == 1 else [self._timestamps, self.partition_of, self.offsets]
        if len(slots) < len(self._values):  # otherwise rows equal slots: the index is in their order
            columns = [array(column.typecode, map(column.__getitem__, slots)) for column in columns]
        for rows in _parts(columns[0]):
            for column in reversed(columns):  # sorts are stable, so the last column sorted counts most
                rows.sort(key=column.__getitem__)
            yield list(map(keys.__getitem__, rows)), list(map(slots.__getitem__, rows))

    def headers(self, keys: Sequence[bytes]) -> Iterator[Headers]:
        """Yield the headers of the newest record of each of these keys. All must have one."""
        slots, own = map(self.index.__getitem__, keys), self._own_headers
        if len(own) == len(self.index):  # the common case if the queue uses headers, in half the time
            return map(_unpack, map(own.__getitem__, slots))
        return map(self._headers, keys, slots)

    def newest(self, keys: Sequence[bytes]) -> RecordBatch:
        """Return the newest records of these keys, without headers. Skips keys without a value."""
        slots = self.all_slots(keys) if keys else ()
        if slots is None:
            keys = [key for key in keys if key in self.index]
            slots = list(map(self.index.__getitem__, keys))
        return self._batch(keys, slots, [None] * len(keys))

    def records(self, order: Order = "tail") -> Iterator[Record]:
        """Yield the newest record of every key, in queue order."""
        for keys, slots in self._in_order(order):
            yield from map(self._record, keys, slots)

    def batches(self, rows: int) -> Iterator[RecordBatch]:
        """Yield the newest record of every key in tail order, in batches of ``rows``."""
        items = chain.from_iterable(zip(keys, slots) for keys, slots in self._in_order("tail"))
        while some := list(islice(items, rows)):
            keys, slots = zip(*some)
            plain = self._shared_flag == _NO_HEADERS
            headers: list[RawHeaders] = [None] * len(keys) if plain else list(map(self._headers, keys, slots))
            yield self._batch(keys, slots, headers)

    def _batch(self, keys: Sequence[bytes], slots: Sequence[int], headers: list[RawHeaders]) -> RecordBatch:
        return RecordBatch(
            list(map(self.partition_of.__getitem__, slots)),
            list(map(self.offsets.__getitem__, slots)),
            list(map(self._timestamps.__getitem__, slots)),
            list(keys),
            list(map(self._values.__getitem__, slots)),
            headers,
        )

    def key_range(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> list[bytes]:
        """See `NewestRecords.key_range`.

        The first call sorts the keys. From then on their order is kept, until many have come and gone without a scan.
        """
        if self._sorted is None:
            self._sorted = SortedKeys(self.index)
        moved, self._moved = self._moved, []
        for key in set(moved):
            if key in self.index:
                self._sorted.add(key)
            else:
                self._sorted.discard(key)
        return self._sorted.within(start, stop, most)

    def changed_since(self, offsets: Mapping[int, int], moment: int | None) -> None:
        """Return None: memory does not know; see `NewestRecords.changed_since`."""

    def scan(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> ColumnRange:
        """See `NewestRecords.scan`."""
        keys = self.key_range(start, stop, most)
        if len(keys) <= _FEW:
            return ColumnRange(keys, dict(zip(keys, map(self._there, keys))).__getitem__)
        return ColumnRange(keys, self.copy()._there)

    def as_now(self, keys: Collection[bytes]) -> Callable[[bytes], Record | None]:
        """Return a look-up of these keys, which records applied later do not change."""
        if len(keys) <= _FEW:
            return dict(zip(keys, map(self.record, keys))).__getitem__
        return self.copy().record

    def _there(self, key: bytes) -> Record:
        """Return the record of a key that is in the table."""
        return self._record(key, self.index[key])

    def _move(self, keys: Iterable[bytes]) -> None:
        """Note that keys came or went, since the order of keys is kept."""
        self._moved += keys
        if len(self._moved) > len(self.index) // 4 + 4096:
            self._sorted, self._moved = None, []

    def note_changes(self, changed: set[bytes]) -> None:
        """Add to a set each key whose record changes from now on.

        It is dropped once it has more keys than the table.
        """
        self._noted = (*self._noted, changed)

    def notes(self, changed: set[bytes]) -> bool:
        """Return whether keys still enter this set; see `note_changes`."""
        return any(changed is noted for noted in self._noted)

    def _note(self, keys: Sequence[bytes]) -> None:
        for changed in self._noted:
            changed.update(keys)
            if len(changed) > len(self.index) + 4096:
                self._noted = tuple(other for other in self._noted if other is not changed)
                changed.clear()

    def copy(self) -> Self:
        """Return a copy that shares only the values."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._noted = ()
        twin.index = dict(self.index)
        twin._values = list(self._values)
        twin.offsets = self.offsets[:]
        twin._timestamps = self._timestamps[:]
        twin.partition_of = self.partition_of[:]
        twin._flags = self._flags[:]
        twin._own_headers = dict(self._own_headers)
        twin._sorted = None if self._sorted is None else self._sorted.copy()
        twin._moved = self._moved[:]
        return twin

    # ---------------------------------------------------------------- writing

    def grow(self, partitions: int) -> None:
        """Raise the partition count, on which the tail order depends."""
        self.partitions, self._line = partitions, None

    def lacks(self, keys: Iterable[bytes | None]) -> bool:
        """See `Table.lacks`."""
        return self.index.keys().isdisjoint(keys)

    def slot(self, key: bytes) -> int | None:
        """See `Table.slot`."""
        return self.index.get(key)

    def slots(self, keys: Sequence[bytes]) -> list[int | None]:
        """Return the slots of these keys; None for a key that is not in the table."""
        return list(map(self.index.get, keys))

    def all_slots(self, keys: Sequence[bytes]) -> Sequence[int] | None:
        """Return the slots of these keys if all have one, else None; twice as fast as `slots`."""
        try:
            slots: tuple[int, ...] = itemgetter(keys[0], *keys)(self.index)  # with a single item it returns no tuple
            return slots[1:]
        except KeyError:
            return None

    def append_new(self, partition: int, columns: Columns) -> bool:
        """Add records if their keys are distinct and all new, else do nothing.

        Most batches of a first read are like that. Returns whether the records were added.
        """
        keys, index, base = columns[2], self.index, len(self._values)
        if not index.keys().isdisjoint(keys):
            return False
        before = len(index)
        index.update(zip(keys, count(base)))
        if len(index) - before < len(keys):
            for key in set(keys):
                del index[key]
            return False
        self._fill_columns(partition, columns)
        return True

    def put(self, partition: int, columns: Columns, met: list[int | None]) -> int:
        """Add records, and return how many of them replace one.

        New keys must be distinct. The other keys must be in the table with records of the same partition.

        Args:
            met: the `slots` of the keys.
        """
        slots: list[int] = met  # type: ignore[assignment]
        if None in met:
            new = [row for row, slot in enumerate(met) if slot is None]
            self.index.update(zip([columns[2][row] for row in new], count(len(self._values))))
            self._fill_columns(partition, pick(new, columns))
            columns = pick([row for row, slot in enumerate(met) if slot is not None], columns)
            slots = [slot for slot in met if slot is not None]
        if slots:
            self.overwrite(slots, columns)
        return len(slots)

    def position(self, slot: int) -> tuple[int, int]:
        """See `Table.position`."""
        return self.partition_of[slot], self.offsets[slot]

    def outside(self, partition: int, keys: Iterable[bytes], met: Iterable[int | None]) -> list[bytes]:
        """See `Table.outside`."""
        partition_of = self.partition_of
        return [key for key, slot in zip(keys, met) if slot is not None and partition_of[slot] != partition]

    def relocated(self, slot: int, partition: int) -> int:
        """See `Table.relocated`."""
        self.partition_of[slot] = partition
        return slot

    def lie_in(self, partition: int, slots: Sequence[int]) -> bool:
        """Return whether the records in these slots all belong to that partition."""
        # itemgetter is twice as fast as any loop, but with a single item it returns no tuple.
        found = itemgetter(0, *slots)(self.partition_of) if slots else ()
        return found[1:].count(partition) == len(slots)

    def _fill_columns(self, partition: int, columns: Columns) -> None:
        """Fill the slots just assigned to new keys, which are the next free ones in order."""
        offsets, timestamps, keys, values, headers = columns
        base = len(self._values)
        self._values += values
        self.offsets.fromlist(offsets)
        self._timestamps.fromlist(timestamps)
        self.partition_of += array("i", [partition]) * len(keys)
        flag = _flag_of_all(headers)
        if flag is None:
            self._flags.extend(map(self._flag, count(base), keys, headers))
        else:
            self._flags += bytes([flag]) * len(keys)
        if base == 0:
            self._shared_flag = flag
        elif flag != self._shared_flag:
            self._shared_flag = None
        self._line = None
        if self._sorted is not None:
            self._move(keys)
        if self._noted:
            self._note(keys)

    def overwrite(self, slots: Sequence[int], columns: Columns) -> None:
        """Write newer records into the existing slots of their keys."""
        values, offsets, timestamps = self._values, self.offsets, self._timestamps
        self._line = None
        if self._noted:
            self._note(columns[2])
        for slot, offset, timestamp, value in zip(slots, columns[0], columns[1], columns[3]):
            values[slot] = value
            offsets[slot] = offset
            timestamps[slot] = timestamp
        flag = _flag_of_all(columns[4])
        if flag is None or flag != self._shared_flag:
            self._shared_flag = None
            for slot, key, cell in zip(slots, columns[2], columns[4]):
                self._own_headers.pop(slot, None)
                self._flags[slot] = self._flag(slot, key, cell)

    def _flag(self, slot: int, key: bytes, headers: RawHeaders) -> int:
        """Return the flag of a slot, and store its headers unless they are implied."""
        if not headers:
            return _NO_HEADERS
        if headers is IMPLIED:
            return _KEY_HEADER
        if len(headers) == 1 and headers[0][1] == key and headers[0][0] == self.key_header:
            return _KEY_HEADER
        self._own_headers[slot] = _pack(headers)
        return _OWN_HEADERS

    def remove(self, keys: Iterable[bytes]) -> int:
        """Remove keys; return how many were in the table. Their slots stay empty until `_compact`."""
        pop, values, own = self.index.pop, self._values, self._own_headers
        removed = 0
        if self._sorted is not None or self._noted:
            keys = list(keys)
            self._note(keys)
            if self._sorted is not None:
                self._move(keys)
        for key in keys:
            slot = pop(key, None)
            if slot is not None:
                values[slot] = None
                own.pop(slot, None)
                removed += 1
        if removed:
            self._line = None
            if len(values) > 2 * len(self.index) + 4096:
                self._compact()
        return removed

    def _compact(self) -> None:
        """Close the gaps left by deleted keys."""
        items = sorted(self.index.items(), key=itemgetter(1))
        slots = [slot for _, slot in items]
        own = self._own_headers
        self._own_headers = {new: own[old] for new, old in enumerate(slots) if old in own} if own else {}
        self._values = [self._values[slot] for slot in slots]
        self.offsets = array("q", map(self.offsets.__getitem__, slots))
        self._timestamps = array("q", map(self._timestamps.__getitem__, slots))
        self.partition_of = array("i", map(self.partition_of.__getitem__, slots))
        self._flags = bytearray(map(self._flags.__getitem__, slots))
        self.index.update(zip([key for key, _ in items], range(len(items))))  # an update keeps the order of a dict


class ColumnRange:
    """`KeyRange` of a table in memory.

    Args:
        keys: its keys, in order.
        record: returns the record of each.
    """

    def __init__(self, keys: Sequence[bytes], record: Callable[[bytes], Record]) -> None:
        self._keys = keys
        self._record = record

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> Iterator[bytes]:
        """See `KeyRange.keys`."""
        return iter(self._keys)

    def records(self) -> Iterator[Record]:
        """See `KeyRange.records`."""
        return map(self._record, self._keys)

    def headers(self) -> Iterator[tuple[bytes, Headers]]:
        """See `KeyRange.headers`."""
        return ((key, self._record(key).headers) for key in self._keys)


def pick(rows: slice | list[int], columns: Columns) -> Columns:
    """Return some rows of columns."""
    if isinstance(rows, slice):
        return tuple(column[rows] for column in columns)  # type: ignore[return-value]
    return tuple([column[row] for row in rows] for column in columns)  # type: ignore[return-value]


def _listed(items: Iterable[T]) -> list[T]:
    """Copy items to a list without blocking other threads for long."""
    found: list[T] = []
    coming = iter(items)
    while some := list(islice(coming, _PART)):
        found += some
    return found


def _parts(column: array[int]) -> Iterator[list[int]]:
    """Yield the rows of a column in parts, none with a greater number than the next part."""
    if len(column) <= _PART:
        yield list(range(len(column)))
        return
    ends = [(min(some), max(some)) for at in range(0, len(column), _PART) if (some := column[at : at + _PART])]
    least, greatest = min(end[0] for end in ends), max(end[1] for end in ends)
    width = (greatest - least) * _PART // len(column) + 1
    parts: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(column):
        parts[(number - least) // width].append(row)
    for part in sorted(parts):
        yield parts.pop(part)


def _pack(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Pack headers into one object.

    It takes a third of the memory, and the garbage collector has nothing to walk in it.
    """
    try:
        return marshal.dumps(headers)  # type: ignore[arg-type]
    except ValueError:  # subclasses of str or bytes, which only an in-memory cluster has
        return marshal.dumps([(str(name), value and bytes(value)) for name, value in headers])


def _unpack(packed: bytes) -> Headers:
    return tuple(marshal.loads(packed))


def _flag_of_all(headers: list[RawHeaders]) -> int | None:
    """Return the flag that all these headers share, or None if each must be checked."""
    if not any(headers):
        return _NO_HEADERS
    return _KEY_HEADER if headers[0] is IMPLIED else None
