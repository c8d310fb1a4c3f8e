"""A store whose records count from the moment they are due (R11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lvq_kafka.core.conditions import UNSELECTED, keys_of
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.fold import Changes, LatestValues
from lvq_kafka.core.not_before import NotBefore
from lvq_kafka.core.records import Record, RecordBatch, new_record
from lvq_kafka.core.scheduled import Scheduled, SetAside
from lvq_kafka.core.selected_values import SelectedValues

__all__ = ["ScheduledValues"]

_SOME = 1024  # records that are due at once, a few ms


class ScheduledValues:
    """A store that sets records aside until they are due, and then folds them into another.

    Until then a record takes part in nothing, whether it is selected or not: neither in the contest of partitions
    (R14), nor in doubts about strays. Once due, it is the newest of its key in its partition, since a record that
    counts drops those below it.

    Args:
        values: the store of what counts, empty.
        definition: the queue, for the keys of its records, as the fold chooses them.
        judge: the judge of when records are due.
    """

    def __init__(self, values: LatestValues | SelectedValues, definition: QueueDefinition, judge: NotBefore) -> None:
        self.table = values.table
        self.progress = values.progress
        self.stats = values.stats
        self._values = values
        self._definition = definition
        self._judge = judge
        self._scheduled = Scheduled()
        self._now = 0

    @property
    def left(self) -> Collection[bytes]:
        """See `ValueStore.left`."""
        return self._values.left

    @property
    def doubtful(self) -> bool:
        """See `ValueStore.doubtful`."""
        return self._values.doubtful

    @property
    def split_keys(self) -> list[bytes]:
        """See `ValueStore.split_keys`."""
        return self._values.split_keys

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fold in a batch but for what is not due; see `ValueStore.apply`."""
        unreadable = self._judge.malformed
        not_due = [one for one in self._judge.scheduled(batch.timestamps, batch.headers) if one[1] > self._now]
        changed = self._apply_due(batch, not_due) if not_due or self._scheduled else self._values.apply(batch)
        self.stats.malformed += self._judge.malformed - unreadable
        return changed

    def _apply_due(self, batch: RecordBatch, not_due: Collection[tuple[int, int]]) -> list[bytes]:
        ends: dict[int, int] = {}
        if not_due and (aside := self._set_aside(batch, not_due)):
            ends = {batch.partitions[row]: batch.offsets[row] + 1 for row in aside}
            batch = batch.without(aside)
        keys = keys_of(batch, self._definition)
        for row, dropped in self._scheduled.supersede(batch, keys, self.progress.positions):
            self._count_superseded(dropped, batch.values[row])
        changed = self._values.apply(batch)
        self.progress.advance(ends)  # only now: the fold drops what lies below
        return changed

    def _set_aside(self, batch: RecordBatch, not_due: Iterable[tuple[int, int]]) -> list[int]:
        """Set aside the records in these rows, but not those read before; return the rows."""
        keys, positions, aside = keys_of(batch, self._definition), self.progress.positions, []
        for row, due in not_due:
            key, partition, offset = keys[row], batch.partitions[row], batch.offsets[row]
            if key is not None and offset >= positions.get(partition, 0):
                fields = (partition, offset, batch.timestamps[row], batch.keys[row], batch.values[row])
                record = new_record((*fields, batch.headers[row]))
                self._scheduled.add(due, key, record)
                self.stats.scheduled += _is_message(record)
                aside.append(row)
        return aside

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Fold in some of what is due by now, and remove some of what has expired."""
        self._now = now
        if self._scheduled.next_due > now or not (due := self._pop_due(now, first)):
            return self._values.pass_time(now, first)
        touched, left = self._values.apply(RecordBatch.of(due), late=True), self._values.left
        passed = self._values.pass_time(now, first)  # later, as a value may be due after it has expired
        return Changes(touched, left, () if passed is None else passed.expired)

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
        """Count what was dropped for a newer value or delete, although it never counted."""
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
