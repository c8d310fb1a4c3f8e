"""A store whose records count once they are due, and the records set aside (R11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.fold import Changes, LatestValues
from lvq_kafka.core.latest.memory_tables import IN_MEMORY
from lvq_kafka.core.latest.selected_values import SelectedValues
from lvq_kafka.core.latest.tables import RecordsAside, SetAside, Tables
from lvq_kafka.core.log.records import Record, RecordBatch, new_record, rows_by_partition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.due_times import DueTimes

__all__ = ["Scheduled", "ScheduledValues"]

_SOME = 1024  # records that are due at once, a few ms


class ScheduledValues:
    """A store that sets records aside until they are due, and then folds them into another.

    Until then a record takes part in nothing, whether it is selected or not: neither in the contest of partitions
    (R14), nor in doubts about strays. Once due, it is the newest of its key in its partition, since a record that
    counts drops those below it.

    Args:
        values: the store of the records that count, empty.
        rules: the rules of the queue, as the fold has them.
        judge: decides when records are due.
        tables: makes what the records are set aside in.
    """

    def __init__(
        self,
        values: LatestValues | SelectedValues,
        rules: QueueRules,
        judge: DueTimes,
        *,
        tables: Tables = IN_MEMORY,
    ) -> None:
        self.overdue: Collection[bytes] = ()
        """See `ValueStore.overdue`."""
        self.table = values.table
        self.progress = values.progress
        self.stats = values.stats
        self._values = values
        self._rules = rules
        self._judge = judge
        self._scheduled = Scheduled(tables.aside())
        self._now = 0

    @property
    def deselected(self) -> Collection[bytes]:
        """See `ValueStore.deselected`."""
        return self._values.deselected

    @property
    def needs_reread(self) -> bool:
        """See `ValueStore.needs_reread`."""
        return self._values.needs_reread

    @property
    def split_keys(self) -> list[bytes]:
        """See `ValueStore.split_keys`."""
        return self._values.split_keys

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fold in a batch, but set aside the records that are not due; see `ValueStore.apply`."""
        unreadable = self._judge.malformed
        scheduled = self._judge.scheduled(batch.timestamps, batch.headers)
        not_due = [one for one in scheduled if one[1] > self._now]
        self.overdue = self._keys_of_overdue(batch, scheduled) if len(not_due) < len(scheduled) else ()
        changed = self._apply_due(batch, not_due) if not_due or self._scheduled else self._values.apply(batch)
        self.stats.malformed += self._judge.malformed - unreadable
        return changed

    def _keys_of_overdue(self, batch: RecordBatch, scheduled: Iterable[tuple[int, int]]) -> Collection[bytes]:
        keys = self._rules.keys.of(batch)
        found = [keys[row] for row, due in scheduled if due <= self._now]
        return [key for key in found if key is not None]

    def _apply_due(self, batch: RecordBatch, not_due: Collection[tuple[int, int]]) -> list[bytes]:
        ends: dict[int, int] = {}
        if not_due and (aside := self._set_aside(batch, not_due)):
            ends = {batch.partitions[row]: batch.offsets[row] + 1 for row in aside}
            batch = batch.without(aside)
        keys = self._rules.keys.of(batch)
        for row, dropped in self._scheduled.supersede(batch, keys, self.progress.positions):
            self._count_superseded(dropped, batch.values[row])
        changed = self._values.apply(batch)
        self.progress.advance(ends)  # only now: the fold drops records below
        return changed

    def _set_aside(self, batch: RecordBatch, not_due: Iterable[tuple[int, int]]) -> list[int]:
        """Set aside the records in these rows, but not those read before; return the rows."""
        keys, positions, aside = self._rules.keys.of(batch), self.progress.positions, []
        for row, due in not_due:
            key, partition, offset = keys[row], batch.partitions[row], batch.offsets[row]
            if key is not None and offset >= positions.get(partition, 0):
                fields = (partition, offset, batch.timestamps[row], batch.keys[row], batch.values[row])
                record = new_record((*fields, batch.headers[row]))
                self._scheduled.add(SetAside(due, key, record))
                self.stats.scheduled += _is_message(record)
                aside.append(row)
        return aside

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Fold in some of the records due by now, and remove some of the expired values."""
        self._now = now
        if self._scheduled.next_due > now or not (due := self._pop_due(now, first)):
            return self._values.pass_time(now, first)
        touched, deselected = self._values.apply(RecordBatch.of(due), late=True), self._values.deselected
        passed = self._values.pass_time(now, first)  # later, as a value may be due after it has expired
        return Changes(touched, deselected, () if passed is None else passed.expired)

    def _pop_due(self, now: int, first: bytes | None) -> list[Record]:
        """Return some of the records that are due, by partition and offset.

        Each is the newest of its key in its partition.
        """
        due: list[Record] = []
        for *dropped, one in self._scheduled.pop_due(now, _SOME, first):
            if dropped:
                self._count_superseded(dropped, one.record.value)
            due.append(one.record)
            self.stats.scheduled -= _is_message(one.record)
        due.sort(key=lambda record: (record.partition, record.offset))
        return due

    def grow(self, partitions: int) -> list[bytes]:
        """Raise the partition count, and return the keys whose value changed."""
        return self._values.grow(partitions)

    def forget_returned(self, keys: Iterable[bytes]) -> None:
        """See `ValueStore.forget_returned`."""
        self._values.forget_returned(keys)

    def _count_superseded(self, dropped: Iterable[SetAside], value: bytes | None) -> None:
        """Count the messages that a newer value or delete superseded before they were due."""
        count = sum(_is_message(one.record) for one in dropped)
        self.stats.scheduled -= count
        self.stats.added += count
        if value is None or value is UNSELECTED:
            self.stats.deleted += count
        else:
            self.stats.replaced += count


def _is_message(record: Record) -> bool:
    """Return whether a record has a value that is selected."""
    return record.value is not None and record.value is not UNSELECTED


class Scheduled:
    """The records of a log that are not due yet, by partition and key.

    Among the due records of one key in one partition, the one with the highest offset counts. So when a record counts,
    all below it are superseded for good. Therefore records leave a key's line only from its front.

    Args:
        aside: what the records are in, empty.
    """

    def __init__(self, aside: RecordsAside) -> None:
        self._aside = aside
        self.add = aside.add

    def __len__(self) -> int:
        """Return the number of records that are set aside."""
        return len(self._aside)

    @property
    def next_due(self) -> int:
        """A time before which nothing is due; `NEVER` if nothing is set aside."""
        return self._aside.next_due

    def supersede(
        self, batch: RecordBatch, keys: Sequence[bytes | None], positions: Mapping[int, int]
    ) -> Iterator[tuple[int, list[SetAside]]]:
        """Drop the records that are superseded by records that count.

        Yields the row of each record that supersedes others, and the records dropped.

        Args:
            batch: the records. Those read before change nothing.
            keys: their keys.
            positions: by partition, the offset below which all was read before.
        """
        aside = self._aside
        if not aside:
            return
        for partition, rows in rows_by_partition(batch.partitions):
            there = range(len(keys)) if rows is None else rows if isinstance(rows, list) else range(len(keys))[rows]
            met = aside.among(partition, keys if rows is None else map(keys.__getitem__, there))
            if met:
                position = positions.get(partition, 0)
                for row in there:
                    key, offset = keys[row], batch.offsets[row]
                    if key is None or key not in met or offset < position:
                        continue
                    if dropped := aside.pop_up_to(partition, key, offset):
                        yield row, dropped

    def pop_due(self, now: int, most: int, first: bytes | None = None) -> list[list[SetAside]]:
        """Remove some of the records due by now; call again until none is left.

        Returns a list for each partition and key: first the superseded records, last the record that counts.

        Args:
            now: the time in ms.
            most: the maximum number of records to examine.
            first: a key whose due records are all removed.
        """
        aside = self._aside
        found = aside.pop_due(now, most)
        if first is not None and aside.next_due <= now:  # there may be more than were examined
            found += aside.due_of(first, now)
        newest: dict[tuple[int, bytes], int] = {}
        for one in found:
            at = (one.record.partition, one.key)
            newest[at] = max(newest.get(at, 0), one.record.offset)
        return [aside.pop_up_to(partition, key, offset) for (partition, key), offset in newest.items()]
