"""The fold: from a log to the newest record of each key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lvq_kafka.core.latest.columns import IMPLIED, Columns, pick
from lvq_kafka.core.latest.contest import winner
from lvq_kafka.core.latest.memory_tables import IN_MEMORY
from lvq_kafka.core.latest.tables import ExpiringRecords, Slot, Table, Tables
from lvq_kafka.core.log.mismatch import only_key_headers
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import UNSELECTED_HEADERS, Record, RecordBatch, rows_by_partition
from lvq_kafka.core.queue.foreign_headers import ForeignHeaders
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.queue.rules import PLAIN, QueueRules
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER

__all__ = ["Changes", "LatestValues", "Order", "ReaderStats"]

_SOME = 4096  # keys that expire at once, about 2 ms


@dataclass(slots=True)
class ReaderStats:
    """Counts of a fold since it began.

    ``added - replaced - deleted - expired - returned`` is its number of keys.
    """

    added: int = 0
    """Values added."""
    replaced: int = 0
    """Values replaced by a newer one of their key."""
    deleted: int = 0
    """Values removed by a delete."""
    expired: int = 0
    """Values that have expired (R10)."""
    stale: int = 0
    """Records below a partition's position: read twice, and ignored."""
    unkeyed: int = 0
    """Records with a null key, which have no last value: ignored."""
    mismatched: int = 0
    """Records whose key header disagrees with their record key, or is unreadable (R16)."""
    returned: int = 0
    """Messages of a standard queue that were returned to the caller and dropped."""
    malformed: int = 0
    """Values whose TTL is 0, or whose TTL or due time cannot be read: they count as having none (R10, R11)."""
    split: int = 0
    """Keys found in more than one partition (R14)."""
    scheduled: int = 0
    """Messages that are set aside now, since they are not due (R11).

    ``added`` includes them once they count, or once a newer record of their key does. Scheduled deletes are not
    counted.
    """


class Changes(NamedTuple):
    """The keys that a step through time has changed, by cause."""

    touched: Collection[bytes] = ()
    """Their records have become due (R11)."""
    deselected: Collection[bytes] = ()
    """Their new values have become due and are not selected; the previous values were."""
    expired: Collection[bytes] = ()
    """Their values have expired (R10)."""


class LatestValues:
    """The newest record of each key of one topic, up to a position in each partition.

    ``table`` holds the records, and ``progress`` the positions.

    The position in the log decides which record is newest, not the timestamp (R5). A key with records in several
    partitions still has one current value: the newest by home partition first, then timestamp, partition, offset; where
    messages are placed by group, there is no home partition (R14). A delete takes part in that contest, so that an
    older value in another partition does not reappear. It is remembered until records are ``tombstone_memory``
    milliseconds newer, about as long as the log itself keeps it.

    If messages expire, call `expire` until nothing is left to remove, before looking up anything but single keys.
    Expired values are remembered like deletes (R8).

    Args:
        partitions: the topic's partition count.
        rules: the rules of the queue. With the order in place (R4), a key that had expired before its new value arrived
            moves to the end, also for a reader that learns of both at once.
        tombstone_memory: milliseconds of log time; the topic's ``delete.retention.ms``.
        foreign: looks for headers of other systems; None to ignore them.
        tables: makes what the records are kept in.

    Not thread-safe.
    """

    deselected: Collection[bytes] = ()
    overdue: Collection[bytes] = ()
    needs_reread = False

    def __init__(
        self,
        partitions: int = 1,
        rules: QueueRules = PLAIN,
        *,
        tombstone_memory: int = 86_400_000,
        foreign: ForeignHeaders | None = None,
        tables: Tables = IN_MEMORY,
    ) -> None:
        key_header = rules.keys.naming_header
        self.expiry_times = expiry_times = rules.times.expiry_times()
        """The judge of lifetimes; None if nothing expires."""
        self.table: Table
        self._expiring: ExpiringRecords | None = None
        if expiry_times is None:
            self.table = tables.table(partitions, key_header)
        else:
            self.table = self._expiring = tables.expiring(partitions, key_header, expiry_times)
        self._place_expiry_times = (
            rules.times.expiry_times() if rules.order.in_place else None
        )  # a judge of its own, since judges count malformed TTLs
        self.progress = Progress({})
        self.stats = ReaderStats()
        self._rules = rules
        self._tombstone_memory = tombstone_memory
        self._placement = rules.placement
        self._foreign = foreign
        self.newest_timestamp = 0
        """The append time of the newest record, in ms."""
        self._malformed = 0  # counted so far
        # The newest record in each partition, of keys that have, or may get, records in several (R14).
        self._contested = tables.contests(key_header)
        self.prune_at = 1024
        """The number of contested keys beyond which old deletes are looked for."""
        self._all_new = True  # whether the last run had only new keys, so the next one may, too

    @property
    def split_keys(self) -> list[bytes]:
        """Keys that currently have records in more than one partition (R14)."""
        return [key for key, rivals in self._contested.items() if len(rivals) > 1]

    @property
    def contested(self) -> Collection[bytes]:
        """Keys whose newest record in each partition is remembered (R14)."""
        return self._contested.keys()

    # ---------------------------------------------------------------- folding

    def apply(self, batch: RecordBatch, *, late: bool = False) -> list[bytes]:
        """Fold in a batch, and return the keys it touched. A key may be listed more than once.

        Args:
            batch: the records.
            late: whether the records were read before, and not folded in. They are newer than the known records of
                their keys in their partitions.

        Raises:
            KeyMismatch: a record's header and key disagree and the policy is ``"fail"``; nothing is applied.
        """
        keys, headers = batch.keys, batch.headers
        name = self.table.key_header
        if name is not None and any(headers):
            if only_key_headers(name, keys, headers):
                headers = [IMPLIED] * len(keys)  # there is no other header to check, row by row
            else:
                keys, mismatched = self._rules.keys.choose(batch)
                self.stats.mismatched += mismatched
                if self._foreign is not None:
                    self._foreign.check(headers)
        elif self._foreign is not None:
            self._foreign.check(headers)
        # Null keys may still be among them; `_fold_run` removes them before any use.
        columns: Columns = (batch.offsets, batch.timestamps, keys, batch.values, headers)  # type: ignore[assignment]
        changed: list[bytes] = []
        for partition, rows in rows_by_partition(batch.partitions):
            run = columns if rows is None else pick(rows, columns)
            changed += self._fold_run(partition, run if late else self._drop_stale(partition, run))
        if len(self._contested) > self.prune_at:
            self._forget_old_deletes()
        self._count_malformed()
        return changed

    def grow(self, partitions: int) -> list[bytes]:
        """Raise the partition count, so keys get new homes; return the keys whose value changed."""
        self.table.grow(partitions)
        changed = [key for key, rivals in self._contested.items() if self._pick_winner(key, rivals)]
        self._count_malformed()
        return changed

    def _fold_run(self, partition: int, columns: Columns) -> list[bytes]:
        """Fold records of one partition in offset order; return the keys they touched."""
        columns = self._drop_unkeyed(columns)
        if self._place_expiry_times is None:
            return self._fold_keyed(partition, columns)
        assert self._expiring is not None
        changed, since = [], 0
        for row in self._after_expiry(self._place_expiry_times, columns):
            changed += self._fold_keyed(partition, pick(slice(since, row), columns))
            timestamp, key = columns[1][row], columns[2][row]
            if timestamp > self._expiring.expiry(key):  # what counts may be in another partition (R14)
                self._remove_expired([key])
            since = row
        return changed + self._fold_keyed(partition, pick(slice(since, None), columns))

    def _after_expiry(self, expiry_times: ExpiryTimes, columns: Columns) -> list[int]:
        """Return the rows of records before which their key's value had expired (R8)."""
        _, timestamps, keys, values, headers = columns
        expiries = expiry_times.expiries(timestamps, headers, plain=bool(headers) and headers[0] is IMPLIED)
        known: dict[bytes, int] = {}
        found: list[int] = []
        for row, (timestamp, key, value, expiry) in enumerate(zip(timestamps, keys, values, expiries)):
            if key not in known and self._expiring is not None:
                known[key] = self._expiring.expiry(key)
            if timestamp > known[key]:
                found.append(row)
            known[key] = NEVER if value is None else expiry
        return found

    def _fold_keyed(self, partition: int, columns: Columns) -> list[bytes]:
        """Fold records with keys; see `_fold_run`."""
        _, timestamps, keys, values, _ = columns
        if not keys:
            return keys
        self.newest_timestamp = max(self.newest_timestamp, timestamps[-1])
        deletes = not all(values) and None in values
        if not deletes and self._fold_plain(partition, columns):
            return keys
        last = dict(zip(keys, range(len(keys))))
        if len(last) == len(keys):
            self._fold_distinct(partition, columns)
            return keys
        if deletes and self.table.partitions == 1:
            last = self._replay(keys, values)
        else:
            self._count_conflated(keys, values, last, deletes=deletes)
        # New keys enter in the order of their first record, as "in-place" shows them; changes are reported in the order
        # of their last.
        self._fold_distinct(partition, pick(list(last.values()), columns))
        return [keys[row] for row in sorted(last.values())]

    def _drop_stale(self, partition: int, columns: Columns) -> Columns:
        """Advance past records of one partition; drop those read before."""
        offsets = columns[0]
        position = self.progress.positions.get(partition, 0)
        self.progress.advance({partition: offsets[-1] + 1})
        if offsets[0] < position:
            fresh = bisect_left(offsets, position)
            self.stats.stale += fresh
            columns = pick(slice(fresh, None), columns)
        return columns

    def _drop_unkeyed(self, columns: Columns) -> Columns:
        """Drop records without a key."""
        keys = columns[2]
        if not all(keys) and None in keys:
            keyed = [row for row, key in enumerate(keys) if key is not None]  # type: ignore[redundant-expr]
            self.stats.unkeyed += len(keys) - len(keyed)
            columns = pick(keyed, columns)
        return columns

    def _count_conflated(
        self, keys: list[bytes], values: list[bytes | None], last: dict[bytes, int], *, deletes: bool
    ) -> None:
        """Count the values that are replaced within their batch, and so never reach the table."""
        conflated = len(keys) - len(last)
        if deletes:
            conflated = sum(v is not None and last[k] != row for row, (k, v) in enumerate(zip(keys, values)))
        self.stats.added += conflated
        self.stats.replaced += conflated

    def _fold_plain(self, partition: int, columns: Columns) -> bool:
        """Fold records without deletes in bulk, or return False if that is not possible.

        It is not possible if a key has, or would have, records in several partitions. The first read of a topic takes
        this path, so it runs no Python statement per record where that can be avoided.
        """
        keys = columns[2]
        if self._contested and not self._contested.keys().isdisjoint(keys):
            return False
        if self._all_new and self.table.append_new(partition, columns):
            self.stats.added += len(keys)
            return True
        known = self.table.all_slots(keys)
        if known is None:
            return self._fold_mixed(partition, columns)
        self._all_new = False
        if self.table.partitions > 1 and not self.table.lie_in(partition, known):
            return False
        self.table.overwrite(known, columns)
        self.stats.added += len(keys)
        self.stats.replaced += len(keys)
        return True

    def _fold_mixed(self, partition: int, columns: Columns) -> bool:
        """Fold records in bulk like `_fold_plain`, where some keys are new."""
        keys = columns[2]
        met = self.table.slots(keys)
        old = [slot for slot in met if slot is not None]
        self._all_new = not old
        if len(set(keys)) < len(keys) or (self.table.partitions > 1 and not self.table.lie_in(partition, old)):
            return False
        self._put_all(partition, columns, met)
        return True

    def _replay(self, keys: list[bytes], values: list[bytes | None]) -> dict[bytes, int]:
        """Return the last row of each key of mixed puts and deletes; count the conflated rows."""
        stats, index = self.stats, self.table.index
        puts: dict[bytes, int] = {}
        deletes: dict[bytes, int] = {}
        for row, (key, value) in enumerate(zip(keys, values)):
            there = key in puts or key in index
            if value is not None:
                stats.replaced += there
                stats.added += 1
                deletes.pop(key, None)
                puts[key] = row
            else:
                stats.deleted += there
                self.table.remove([key])  # at once, so that a later put enters again at the tail
                puts.pop(key, None)
                deletes[key] = row
        # Subtract the rows that `_fold_distinct` will count again.
        stats.added -= len(puts)
        stats.replaced -= sum(key in index for key in puts)
        return {**puts, **deletes}

    def _fold_distinct(self, partition: int, columns: Columns) -> None:
        """Fold records of one partition with distinct keys."""
        met = self.table.slots(columns[2])
        if self.table.partitions > 1:
            contested = self._contested_keys(partition, columns, met)
            if contested:
                self._contend(partition, columns, contested)
                columns = pick([row for row, key in enumerate(columns[2]) if key not in contested], columns)
                met = self.table.slots(columns[2])
        _, _, keys, values, _ = columns
        if not all(values) and None in values:
            self.stats.deleted += self.table.remove(key for key, value in zip(keys, values) if value is None)
            columns = pick([row for row, value in enumerate(values) if value is not None], columns)
            met = self.table.slots(columns[2])
        self._put_all(partition, columns, met)

    def _put_all(self, partition: int, columns: Columns, met: list[Slot | None]) -> None:
        self.stats.added += len(met)
        self.stats.replaced += self.table.put(partition, columns, met)

    def forget_returned(self, keys: Iterable[bytes]) -> None:
        """See `ValueStore.forget_returned`."""
        self.stats.returned += self.table.remove(keys)

    # ---------------------------------------------------------------- expiring

    def expire(self, now: int, most: int = _SOME) -> list[bytes]:
        """Remove values that have expired by now, in ms; return their keys.

        Args:
            most: the maximum number to remove. If that many are returned, call again.
        """
        table = self._expiring
        if table is None:
            return []
        table.now = now
        if table.next_expiry >= now:
            return []
        keys = table.pop_expired(most)
        self._remove_expired(keys)
        return keys

    def _remove_expired(self, keys: list[bytes]) -> None:
        table = self._expiring
        if table is not None and table.partitions > 1:
            for key in keys:
                if key in table.index:
                    self._remember(table.expired_record(key))
        self.stats.expired += self.table.remove(keys)

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Remove some of the values that have expired by now; see `ValueStore.pass_time`."""
        expired = self.expire(now)
        return Changes(expired=expired) if expired else None

    def _count_malformed(self) -> None:
        total = 0 if self._expiring is None else self._expiring.expiry_times.malformed
        self.stats.malformed += total - self._malformed
        self._malformed = total

    def _remember(self, record: Record) -> None:
        """Keep an expired value in contests, as a delete."""
        assert record.key is not None
        rivals = self._contested.get(record.key, {})
        rivals[record.partition] = record._replace(value=None, headers=())
        self._contested[record.key] = rivals

    # ---------------------------------------------------------------- keys in several partitions (R14)

    def _contested_keys(self, partition: int, columns: Columns, met: Sequence[Slot | None]) -> set[bytes]:
        """Return the keys that have, or may get, a record in another partition.

        Each of their records has to be compared.
        """
        _, _, keys, values, _ = columns
        contested = self._contested.keys() & keys if self._contested else set()
        if not all(values):
            contested.update(key for key, value in zip(keys, values) if value is None)
        contested.update(self.table.outside(partition, keys, met))
        return contested

    def _contend(self, partition: int, columns: Columns, contested: set[bytes]) -> None:
        for offset, timestamp, key, value, headers in zip(*columns):
            if key not in contested:
                continue
            rivals = self._contested.get(key)
            if rivals is None:
                rivals = {}
            current = None if rivals else self._held(key)
            if current is not None:
                rivals[current.partition] = current
            if rivals and partition not in rivals:
                self.stats.split += len(rivals) == 1
            rivals[partition] = Record(partition, offset, timestamp, key, value, headers)  # type: ignore[arg-type]
            self._pick_winner(key, rivals)
            if len(rivals) > 1 or value is None:
                self._contested[key] = rivals
            else:
                self._contested.pop(key, None)

    def _held(self, key: bytes) -> Record | None:
        """Return a key's record in the table, which may have expired, or None."""
        if key not in self.table.index:
            return None
        return self.table.record(key) if self._expiring is None else self._expiring.expired_record(key)

    def _pick_winner(self, key: bytes, rivals: Mapping[int, Record]) -> bool:
        """Make the winner of a contest the key's current value; return whether anything changed."""
        table = self.table
        best = winner(key, rivals, table.partitions, self._placement)
        partition = best.partition
        slot = table.slot(key)
        if slot is None:
            if best.value is None:
                return False
        elif table.position(slot) == (partition, best.offset):
            return False
        if best.value is None:
            self.stats.deleted += table.remove([key])
        else:
            if slot is not None:
                slot = table.relocated(slot, partition)
            row: Columns = ([best.offset], [best.timestamp], [key], [best.value], [best.headers])
            self._put_all(partition, row, [slot])
        return True

    def forget_deletes(self, keys: Iterable[bytes]) -> None:
        """Forget the deletes of these keys, where no record of them is known in another partition."""
        for key in keys:
            if len(self._contested.get(key, ())) == 1:
                del self._contested[key]

    def _forget_old_deletes(self) -> None:
        """Forget uncontested deletes that the log itself may have dropped by now."""
        horizon = self.newest_timestamp - self._tombstone_memory
        for key, rivals in list(self._contested.items()):
            first = next(iter(rivals.values()))
            if len(rivals) == 1 and first.timestamp < horizon and first.headers is not UNSELECTED_HEADERS:
                del self._contested[key]
        self.prune_at = 2 * len(self._contested) + 1024
