"""A table of latest values that expire."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Self

from lvq_kafka.core.latest.columns import IMPLIED, Columns, ColumnTable
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.expiry_queue import BUCKET, UNSCHEDULED, ExpiryQueue
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER

__all__ = ["ExpiringTable"]


class ExpiringTable(ColumnTable):
    """A `ColumnTable` whose records expire (R10).

    A look-up of one key judges by the time `now`, so it is right at any moment. All other methods include an expired
    record until `pop_expired` has returned its key and the owner has removed it.
    """

    def __init__(self, *, partitions: int, key_header: str | None, expiry_times: ExpiryTimes) -> None:
        super().__init__(partitions=partitions, key_header=key_header)
        self.now = 0
        """The time, in ms since the epoch."""
        self.expiry_times = expiry_times
        """The judge of when messages expire."""
        self._expiries = array("q")
        self._buckets = array("q")  # by slot, the bucket of the queue where the key counts
        self._queue: ExpiryQueue[bytes] = ExpiryQueue(self)

    # ---------------------------------------------------------------- reading

    def __contains__(self, key: bytes) -> bool:
        slot = self.index.get(key)
        return slot is not None and self._expiries[slot] >= self.now

    def value(self, key: bytes) -> bytes | None:
        """Return the current value of a key, or None if it has none."""
        slot = self.index.get(key)
        return None if slot is None or self._expiries[slot] < self.now else self._values[slot]

    def record(self, key: bytes) -> Record | None:
        """Return the newest record of a key, or None if it has no value, or has expired."""
        slot = self.index.get(key)
        return None if slot is None or self._expiries[slot] < self.now else self._record(key, slot)

    def expiry(self, key: bytes) -> int:
        """Return the last moment at which a key's value counts, in ms; `NEVER` without one."""
        slot = self.index.get(key)
        return NEVER if slot is None else self._expiries[slot]

    @property
    def next_expiry(self) -> int:
        """A time up to which nothing more expires; `NEVER` if nothing does."""
        due = self._queue.next
        return NEVER if due is None else due

    def copy(self) -> Self:
        """Return a copy that shares only the values. In the copy, time stands still."""
        twin = super().copy()
        twin._expiries = self._expiries[:]
        twin._buckets = array("q")
        twin._queue = ExpiryQueue(twin)
        return twin

    # ---------------------------------------------------------------- expiring

    def pop_expired(self, most: int) -> list[bytes]:
        """Return at most ``most`` keys whose records have expired by now, each once."""
        return self._queue.pop_due(self.now, most)

    def expired_record(self, key: bytes) -> Record:
        """Return the record of a key in the table, although it has expired."""
        return self._record(key, self.index[key])

    def due(self, key: bytes, bucket: int) -> int | None:
        """See `Schedule.due`."""
        slot = self.index.get(key)
        if slot is None or self._buckets[slot] != bucket:
            return None
        expiry = self._expiries[slot]
        if expiry == NEVER:
            self._buckets[slot] = UNSCHEDULED
            return None
        return expiry

    def moved(self, key: bytes, bucket: int) -> None:
        """See `Schedule.moved`."""
        self._buckets[self.index[key]] = bucket

    # ---------------------------------------------------------------- writing

    def _fill_columns(self, partition: int, columns: Columns) -> None:
        super()._fill_columns(partition, columns)
        expiries = self._judge(columns)
        self._expiries.fromlist(expiries)
        for bucket, rows in _by_bucket(expiries):
            self._buckets += array("q", [bucket]) * len(rows)
            if bucket <= self._queue.opened:
                for row in rows:
                    self._queue.add(columns[2][row], expiries[row])
            elif bucket != UNSCHEDULED:
                self._queue.extend(bucket, columns[2][rows.start : rows.stop])

    def overwrite(self, slots: Sequence[int], columns: Columns) -> None:
        """Write newer records into the existing slots of their keys."""
        super().overwrite(slots, columns)
        expiries, buckets, opened = self._expiries, self._buckets, self._queue.opened
        for slot, key, expiry in zip(slots, columns[2], self._judge(columns)):
            expiries[slot] = expiry
            bucket = expiry >> BUCKET
            if (bucket < buckets[slot] or bucket <= opened) and expiry != NEVER:
                self._queue.add(key, expiry)

    def remove(self, keys: Iterable[bytes]) -> int:
        """Remove keys; return how many were in the table. Their slots stay empty until `_compact`."""
        removed = super().remove(keys)
        self._queue.tidy(self.index.__len__)
        return removed

    def _judge(self, columns: Columns) -> list[int]:
        headers = columns[4]
        plain = bool(headers) and headers[0] is IMPLIED
        return self.expiry_times.expiries(columns[1], headers, plain=plain)

    def _compact(self) -> None:
        slots = sorted(self.index.values())
        super()._compact()
        self._expiries = array("q", map(self._expiries.__getitem__, slots))
        self._buckets = array("q", map(self._buckets.__getitem__, slots))


def _by_bucket(expiries: list[int]) -> Iterator[tuple[int, range]]:
    """Yield the rows of adjacent messages that expire in the same bucket."""
    buckets = [UNSCHEDULED if expiry == NEVER else expiry >> BUCKET for expiry in expiries]
    if buckets.count(buckets[0]) == len(buckets):
        yield buckets[0], range(len(buckets))
        return
    for bucket, group in groupby(range(len(buckets)), key=buckets.__getitem__):
        rows = list(group)
        yield bucket, range(rows[0], rows[-1] + 1)
