"""The fold: from a log to the newest record of each key.

`LatestValues` holds the result by column. A key maps to a slot; values, offsets and timestamps of all slots lie in one
list and a few arrays. Three things follow. A batch is applied by the built-in containers at their own speed, without a
Python statement per record. The cyclic garbage collector has nothing to walk, since no container is held per key. And
the price of keeping position and timestamp with each value is some 60 bytes.

An update keeps its slot, so the order of the index, a dict, is the in-place order of R4. The tail order (1 2 3 4, then
2: 1 3 4 2) is the order of offsets.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import repeat
from operator import itemgetter
from typing import Literal, NamedTuple

from lvq_kafka.core.keys import home_partition
from lvq_kafka.core.mismatch import KeyMismatchPolicy, choose_keys
from lvq_kafka.core.records import Headers, Record, RecordBatch

__all__ = ["Counters", "LatestValues", "Order"]

Order = Literal["tail", "in-place"]

# What a slot's flag says of its headers. The common case, the key header alone, is implied by the key and costs a byte.
_NO_HEADERS, _KEY_HEADER, _OWN_HEADERS = 0, 1, 2

_Headers = Sequence[tuple[str, bytes | None]] | None
# Offsets, timestamps, keys, values and headers of records of one partition.
_Columns = tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[_Headers]]


@dataclass(slots=True)
class Counters:
    """What a fold has seen since it began. ``added - replaced - deleted`` is the number of keys it holds."""

    added: int = 0
    """Values taken over."""
    replaced: int = 0
    """Values that a newer one for their key put out."""
    deleted: int = 0
    """Values that a delete removed."""
    stale: int = 0
    """Records below a partition's position: read twice, and ignored."""
    unkeyed: int = 0
    """Records with a null key, which a last value cannot be told for: ignored."""
    mismatched: int = 0
    """Records whose key header disagrees with their record key (R16)."""
    split: int = 0
    """Keys that were found in more than one partition (R14)."""


class _Candidate(NamedTuple):
    """The newest record of a key in one partition, for keys that have, or may come to have, one in several (R14)."""

    timestamp: int
    offset: int
    value: bytes | None
    headers: _Headers


class LatestValues:
    """The newest record of each key of one topic, and the position in each partition up to which that holds.

    The position in the log decides what is newest, not a timestamp (R5). A key that lies in several partitions has one
    current value all the same: the newest by home partition first, then timestamp, partition, offset (R14). A delete
    takes part in that contest, so an older value in a foreign partition does not come back behind it; it is remembered
    until records are ``tombstone_memory`` milliseconds newer, about as long as the log itself keeps it.

    Args:
        partitions: the topic's partition count.
        key_header: the header that names the key; None when the record key alone does.
        key_mismatch: what a record's key is when header and record key disagree (R16).
        tombstone_memory: milliseconds of log time; the topic's ``delete.retention.ms``.

    Not thread-safe.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        key_header: str | None = None,
        key_mismatch: KeyMismatchPolicy = "record",
        topic: str = "",
        tombstone_memory: int = 86_400_000,
    ) -> None:
        self.partitions = partitions
        self.positions: dict[int, int] = {}
        self.counters = Counters()
        self._topic = topic
        self._key_header = key_header
        self._key_mismatch = key_mismatch
        self._tombstone_memory = tombstone_memory
        self._contested: dict[bytes, dict[int, _Candidate]] = {}
        self._prune_at = 1024
        self._newest_timestamp = 0
        self._sorted: list[bytes] | None = None
        self._index: dict[bytes, int] = {}
        self._values: list[bytes | None] = []
        self._offsets = array("q")
        self._timestamps = array("q")
        self._partition_of = array("i")
        self._flags = bytearray()
        self._own_headers: dict[int, Headers] = {}
        self._with_headers = False

    # ---------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def value(self, key: bytes) -> bytes | None:
        """The current value of a key, or None when it has none."""
        slot = self._index.get(key)
        return None if slot is None else self._values[slot]

    def record(self, key: bytes) -> Record | None:
        """The newest record of a key, or None when it has no value."""
        slot = self._index.get(key)
        return None if slot is None else self._record(key, slot)

    def _record(self, key: bytes, slot: int) -> Record:
        return Record(
            self._partition_of[slot],
            self._offsets[slot],
            self._timestamps[slot],
            key,
            self._values[slot],
            self._headers(key, slot),
        )

    def _headers(self, key: bytes, slot: int) -> Headers:
        flag = self._flags[slot]
        if flag == _NO_HEADERS:
            return ()
        if flag == _OWN_HEADERS:
            return self._own_headers[slot]
        assert self._key_header is not None
        return ((self._key_header, key),)

    def copy(self) -> LatestValues:
        """A copy that shares the values and nothing else."""
        twin = copy(self)
        twin.positions = dict(self.positions)
        twin.counters = replace(self.counters)
        twin._index = dict(self._index)
        twin._values = list(self._values)
        twin._offsets = self._offsets[:]
        twin._timestamps = self._timestamps[:]
        twin._partition_of = self._partition_of[:]
        twin._flags = self._flags[:]
        twin._own_headers = dict(self._own_headers)
        twin._contested = {key: dict(rivals) for key, rivals in self._contested.items()}
        return twin

    def keys(self, order: Order = "tail") -> list[bytes]:
        """All keys in queue order. Over several partitions the tail order is that of append time."""
        if order == "in-place":
            return list(self._index)
        return [key for key, _ in self._in_tail_order()]

    def _in_tail_order(self) -> list[tuple[bytes, int]]:
        items = list(self._index.items())
        timestamps, partitions, offsets = self._timestamps, self._partition_of, self._offsets
        if self.partitions == 1:
            items.sort(key=lambda item: offsets[item[1]])
        else:
            items.sort(key=lambda item: (timestamps[item[1]], partitions[item[1]], offsets[item[1]]))
        return items

    def records(self, order: Order = "tail") -> Iterator[Record]:
        """The newest record of every key, in queue order."""
        items = list(self._index.items()) if order == "in-place" else self._in_tail_order()
        for key, slot in items:
            yield self._record(key, slot)

    def key_range(self, start: bytes = b"", stop: bytes | None = None) -> list[bytes]:
        """The keys from ``start`` up to but without ``stop``, in byte order."""
        if self._sorted is None:
            self._sorted = sorted(self._index)
        low = bisect_left(self._sorted, start)
        return self._sorted[low : None if stop is None else bisect_left(self._sorted, stop)]

    @property
    def split_keys(self) -> list[bytes]:
        """Keys that lie in more than one partition right now (R14)."""
        return [key for key, rivals in self._contested.items() if len(rivals) > 1]

    # ---------------------------------------------------------------- folding

    def advance(self, positions: Mapping[int, int]) -> None:
        """Move positions past what holds no record: transaction markers, aborted records, holes."""
        mine = self.positions
        for partition, position in positions.items():
            if position > mine.get(partition, 0):
                mine[partition] = position

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fold a batch in, and return the keys it touched. One that it touched often may come up more than once.

        Raises:
            KeyMismatch: a record's header and key disagree and the policy is ``"fail"``; nothing is applied.
        """
        keys, mismatched = choose_keys(batch, self._topic, self._key_header, self._key_mismatch)
        self.counters.mismatched += mismatched
        columns: _Columns = (batch.offsets, batch.timestamps, keys, batch.values, batch.headers)
        changed: list[bytes] = []
        for partition, rows in _by_partition(batch.partitions):
            changed += self._fold_run(partition, columns if rows is None else _pick(rows, columns))
        if len(self._values) > 2 * len(self._index) + 4096:
            self._compact()
        if len(self._contested) > self._prune_at:
            self._forget_old_deletes()
        return changed

    def grow(self, partitions: int) -> list[bytes]:
        """The topic has more partitions now, so keys have new homes. Returns the keys whose current value changed."""
        self.partitions = partitions
        return [key for key in self._contested if self._settle(key)]

    def _fold_run(self, partition: int, columns: _Columns) -> list[bytes]:
        """Fold records of one partition, in offset order; returns the keys they touched."""
        offsets, keys = columns[0], columns[2]
        position = self.positions.get(partition, 0)
        self.positions[partition] = max(position, offsets[-1] + 1)
        if offsets[0] < position:
            fresh = bisect_left(offsets, position)
            self.counters.stale += fresh
            columns = _pick(list(range(fresh, len(offsets))), columns)
            keys = columns[2]
        if not all(keys) and None in keys:
            keyed = [row for row, key in enumerate(keys) if key is not None]
            self.counters.unkeyed += len(keys) - len(keyed)
            columns = _pick(keyed, columns)
            keys = columns[2]
        last: dict[bytes, int] = dict(zip(keys, range(len(keys))))  # type: ignore[arg-type]
        if len(last) != len(keys):
            self._count_conflated(keys, columns[3], last)  # type: ignore[arg-type]
            columns = _pick(sorted(last.values()), columns)
        touched: list[bytes] = columns[2]  # type: ignore[assignment]
        if touched:
            self._fold_distinct(partition, columns)
        return touched

    def _count_conflated(self, keys: list[bytes], values: list[bytes | None], last: dict[bytes, int]) -> None:
        """Count the records of a run that a later one in the same run conflates away."""
        counters = self.counters
        if all(values) or None not in values:
            conflated = len(keys) - len(last)
            counters.added += conflated
            counters.replaced += conflated
            return
        alive: dict[bytes, bool] = {}
        for row, (key, value) in enumerate(zip(keys, values)):
            before = alive.get(key)
            if before is None:
                before = key in self._index
            if last[key] != row:
                if value is not None:
                    counters.added += 1
                    counters.replaced += before
                else:
                    counters.deleted += before
                alive[key] = value is not None
            elif before != (key in self._index):
                # The last record will be counted against the index; say what it will really meet.
                correction = 1 if before else -1
                if value is not None:
                    counters.replaced += correction
                else:
                    counters.deleted += correction

    def _fold_distinct(self, partition: int, columns: _Columns) -> None:
        """Fold records of one partition with distinct keys."""
        _, timestamps, keys, values, _ = columns
        index = self._index
        # Most runs of a first read meet no key that is known: ask that first, it takes no list of slots.
        met = [] if index.keys().isdisjoint(keys) else list(map(index.get, keys))  # type: ignore[arg-type]
        if self.partitions > 1:
            self._newest_timestamp = max(self._newest_timestamp, timestamps[-1])
            contested = self._contested_keys(partition, columns, met)
            if contested:
                self._contend(partition, columns, contested)
                rest = [row for row, key in enumerate(keys) if key not in contested]
                if not rest:
                    return
                columns = _pick(rest, columns)
                _, _, keys, values, _ = columns
                met = list(map(index.get, keys))  # type: ignore[arg-type]
        if not all(values) and None in values:
            self._remove(key for key, value in zip(keys, values) if value is None)
            columns = _pick([row for row, value in enumerate(values) if value is not None], columns)
            if not columns[0]:
                return
            met = list(map(index.get, columns[2]))  # type: ignore[arg-type]
        self._put(partition, columns, met)

    def _put(self, partition: int, columns: _Columns, met: list[int | None]) -> None:
        """Take over values of distinct keys of one partition. ``met`` are the slots they had, or empty for none."""
        self.counters.added += len(columns[0])
        if met:
            self._overwrite(partition, columns, met)
            columns = _pick([row for row, slot in enumerate(met) if slot is None], columns)
        if columns[0]:
            self._append(partition, columns)

    def _append(self, partition: int, columns: _Columns) -> None:
        """Give new keys new slots."""
        offsets, timestamps, keys, values, headers = columns
        count, base = len(keys), len(self._values)
        self._values += values
        self._offsets.fromlist(offsets)
        self._timestamps.fromlist(timestamps)
        self._partition_of.extend(repeat(partition, count))
        if any(headers):
            self._with_headers = True
            flag = self._flag
            self._flags.extend(flag(base + row, keys[row], cell) for row, cell in enumerate(headers))
        else:
            self._flags.extend(bytes(count))
        self._index.update(zip(keys, range(base, base + count)))  # type: ignore[arg-type]
        self._sorted = None

    def _overwrite(self, partition: int, columns: _Columns, met: list[int | None]) -> None:
        """Put newer values into the slots that their keys have."""
        values, offsets, timestamps, partition_of = self._values, self._offsets, self._timestamps, self._partition_of
        replaced = 0
        for slot, offset, timestamp, value in zip(met, columns[0], columns[1], columns[3]):
            if slot is not None:
                values[slot] = value
                offsets[slot] = offset
                timestamps[slot] = timestamp
                partition_of[slot] = partition
                replaced += 1
        self.counters.replaced += replaced
        if self._with_headers or any(columns[4]):
            self._with_headers = True
            for slot, key, cell in zip(met, columns[2], columns[4]):
                if slot is not None:
                    self._own_headers.pop(slot, None)
                    self._flags[slot] = self._flag(slot, key, cell)

    def _flag(self, slot: int, key: bytes | None, headers: _Headers) -> int:
        """The flag of a slot, its headers put away where they are not implied."""
        if not headers:
            return _NO_HEADERS
        if len(headers) == 1 and headers[0][1] == key and headers[0][0] == self._key_header:
            return _KEY_HEADER
        self._own_headers[slot] = tuple(headers)
        return _OWN_HEADERS

    def _remove(self, keys: Iterable[bytes | None]) -> None:
        """Take keys out. Their slots stay behind, empty, until the next `_compact`."""
        pop, values, own = self._index.pop, self._values, self._own_headers
        for key in keys:
            slot = pop(key, None)  # type: ignore[arg-type]
            if slot is not None:
                values[slot] = None
                own.pop(slot, None)
                self.counters.deleted += 1
                self._sorted = None

    def _compact(self) -> None:
        """Close the gaps that deleted keys have left."""
        items = sorted(self._index.items(), key=itemgetter(1))
        slots = [slot for _, slot in items]
        own = self._own_headers
        self._own_headers = {new: own[old] for new, old in enumerate(slots) if old in own} if own else {}
        self._values = [self._values[slot] for slot in slots]
        self._offsets = array("q", map(self._offsets.__getitem__, slots))
        self._timestamps = array("q", map(self._timestamps.__getitem__, slots))
        self._partition_of = array("i", map(self._partition_of.__getitem__, slots))
        self._flags = bytearray(map(self._flags.__getitem__, slots))
        self._index.update(zip([key for key, _ in items], range(len(items))))  # an update keeps a dict's order

    # ---------------------------------------------------------------- keys in several partitions (R14)

    def _contested_keys(self, partition: int, columns: _Columns, met: list[int | None]) -> set[bytes]:
        """The keys for which another partition has, or may later bring, a record: each record of theirs counts."""
        keys: list[bytes] = columns[2]  # type: ignore[assignment]
        values = columns[3]
        contested = self._contested.keys() & keys if self._contested else set()
        if not all(values):
            contested.update(key for key, value in zip(keys, values) if value is None)
        partition_of = self._partition_of
        contested.update(key for key, slot in zip(keys, met) if slot is not None and partition_of[slot] != partition)
        return contested

    def _contend(self, partition: int, columns: _Columns, contested: set[bytes]) -> None:
        for offset, timestamp, key, value, headers in zip(*columns):
            if key not in contested:
                continue
            rivals = self._contested.setdefault(key, {})
            slot = self._index.get(key)
            if not rivals and slot is not None:
                rivals[self._partition_of[slot]] = _Candidate(
                    self._timestamps[slot], self._offsets[slot], self._values[slot], self._headers(key, slot)
                )
            if rivals and partition not in rivals:
                self.counters.split += len(rivals) == 1
            rivals[partition] = _Candidate(timestamp, offset, value, headers)
            self._settle(key)
            if len(rivals) == 1 and value is not None:
                del self._contested[key]

    def _settle(self, key: bytes) -> bool:
        """Make the winner of a contest the key's current value; whether that changed anything."""
        rivals = self._contested[key]
        home = home_partition(key, self.partitions) if len(rivals) > 1 else -1
        partition, best = max(rivals.items(), key=lambda rival: (rival[0] == home, rival[1].timestamp, rival[0]))
        slot = self._index.get(key)
        if slot is None:
            if best.value is None:
                return False
        elif (self._partition_of[slot], self._offsets[slot]) == (partition, best.offset):
            return False
        if best.value is None:
            self._remove([key])
        else:
            row: _Columns = ([best.offset], [best.timestamp], [key], [best.value], [best.headers])
            self._put(partition, row, [] if slot is None else [slot])
        return True

    def _forget_old_deletes(self) -> None:
        """Drop deletes that the log itself may have dropped by now, where nothing contests them."""
        horizon = self._newest_timestamp - self._tombstone_memory
        for key, rivals in list(self._contested.items()):
            if len(rivals) == 1 and next(iter(rivals.values())).timestamp < horizon:
                del self._contested[key]
        self._prune_at = 2 * len(self._contested) + 1024


def _by_partition(partitions: list[int]) -> Iterator[tuple[int, list[int] | None]]:
    """The rows of each partition, in order; None for all rows, the common case."""
    if not partitions:
        return
    if partitions.count(partitions[0]) == len(partitions):
        yield partitions[0], None
        return
    rows: dict[int, list[int]] = {}
    for row, partition in enumerate(partitions):
        rows.setdefault(partition, []).append(row)
    yield from rows.items()


def _pick(rows: list[int], columns: _Columns) -> _Columns:
    return tuple([column[row] for row in rows] for column in columns)  # type: ignore[return-value]
