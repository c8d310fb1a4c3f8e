"""A fold that holds the keys whose newest value is selected, and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.contest import is_home
from lvq_kafka.core.latest.fold import Changes, LatestValues
from lvq_kafka.core.log.records import UNSELECTED_HEADERS, RecordBatch
from lvq_kafka.core.queue.rules import QueueRules

__all__ = ["SelectedValues", "StrayKeys"]

_DOUBTS = 3  # readings of the topic for keys outside their home partitions, before all keys are remembered


@dataclass(slots=True)
class StrayKeys:
    """The keys with selected records outside their home partition.

    They are kept when a read starts over. ``keys`` is None once all keys count as strays.
    """

    keys: set[bytes] | None = field(default_factory=set)
    doubts: int = 0

    def doubt(self) -> None:
        """Note that the topic has to be read once more; if that happens often, count all keys."""
        self.doubts += 1
        if self.doubts > _DOUBTS:
            self.keys = None


class SelectedValues:
    """`LatestValues` of the keys whose newest value is selected.

    A value that is not selected arrives as `UNSELECTED`. It acts as a delete, so no older value of its key reappears
    (R7). No record of an unselected key is kept, unless the key may have records in several partitions:

    - The newest record in a key's home partition wins against any in other partitions (R14). If it is selected, nothing
      else matters; if it is not, the key is absent, whatever other partitions hold.
    - So only a selected record outside its home partition, a *stray*, raises a question: has the home partition a
      record of this key? If that one was not selected, it was forgotten. So the stray is skipped, its key is noted, and
      the fold ``needs_reread``: the topic must be read again, and this time all records of that key count.
    - Where messages are placed by group, no partition is a key's home: all keys are remembered from the start.

    Args:
        values: the fold, empty.
        rules: the rules of the queue, as the fold has them.
        strays: the keys noted by earlier reads.
        several: whether several partitions are read.
    """

    def __init__(
        self,
        values: LatestValues,
        rules: QueueRules,
        strays: StrayKeys,
        *,
        several: bool,
    ) -> None:
        self.table = values.table
        self.progress = values.progress
        self.stats = values.stats
        self.deselected: list[bytes] = []
        self.overdue: Collection[bytes] = ()
        self.needs_reread = False
        self._values = values
        self._rules = rules
        self._strays = strays
        if rules.placement == "group":
            strays.keys = None
        self._several = several
        self.forgetful: set[int] = set()
        """The partitions with records that may be forgotten."""

    @property
    def split_keys(self) -> list[bytes]:
        """Selected keys that currently have records in more than one partition (R14)."""
        return self._values.split_keys

    def apply(self, batch: RecordBatch, *, late: bool = False) -> list[bytes]:
        """Fold in a batch. Return the keys it touched, but not those in ``deselected``.

        ``deselected`` then holds the keys that were selected before, and have an unselected value now.

        Args:
            batch: the records.
            late: see `LatestValues.apply`.
        """
        self.deselected = []
        values = batch.values
        if None not in values and UNSELECTED not in values and not (self._several and self.forgetful):
            return self._values.apply(batch, late=late)
        keys = self._rules.keys.of(batch)
        if not self._several:
            plain = self._without_deletes(keys, values)
            if plain is not None:
                return self._values.apply(batch.pick(plain), late=late)
        rows, shown = self._rows(batch.partitions, keys, values)
        unselected = self._derive_deletes(batch, rows, keys)
        changed = self._values.apply(batch if len(rows) == len(batch) else batch.pick(rows), late=late)
        index = self.table.index
        if self._several:
            self._forget([keys[row] for row in rows if values[row] is None])
        self.deselected = [
            key for key in dict.fromkeys(changed) if key in unselected and key in shown and key not in index
        ]
        deselected = set(self.deselected)
        return [key for key in changed if key in index or (key in shown and key not in deselected)]

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Remove some of the values that have expired by now; see `ValueStore.pass_time`."""
        passed = self._values.pass_time(now, first)
        if self._several and passed is not None:
            self.forgetful.update(range(self.table.partitions))
            self._forget(passed.expired)
        return passed

    def grow(self, partitions: int) -> list[bytes]:
        """Raise the partition count: keys get other homes, so the topic has to be read again.

        Returns the keys whose value has changed already: the new read will not report them.
        """
        self._several = self.needs_reread = True
        return self._values.grow(partitions)

    def forget_returned(self, keys: Iterable[bytes]) -> None:
        """See `ValueStore.forget_returned`."""
        self._values.forget_returned(keys)

    def _without_deletes(self, keys: list[bytes | None], values: list[bytes | None]) -> list[int] | None:
        """Return the rows with selected values, or None if the others matter.

        They matter if one of their keys is in the table, or has a selected value, too. In most batches of a first read
        they do not.
        """
        rows, others = [], set()
        for row, (key, value) in enumerate(zip(keys, values)):
            if value is None or value is UNSELECTED:
                others.add(key)
            elif key is not None:
                rows.append(row)
        if self.table.lacks(others) and others.isdisjoint([keys[row] for row in rows]):
            return rows
        return None

    def _rows(
        self, partitions: list[int], keys: list[bytes | None], values: list[bytes | None]
    ) -> tuple[list[int], set[bytes]]:
        """Return the rows to fold, and their keys that are, or become, selected."""
        index, contested = self.table.index, self._values.contested
        rows: list[int] = []
        shown: set[bytes] = set()
        for row, (key, value) in enumerate(zip(keys, values)):
            if key is None:
                continue
            there = key in shown or key in index
            if value is not None and value is not UNSELECTED:
                if not there and self._several and key not in contested and self._is_stray(key, partitions[row]):
                    continue
                shown.add(key)
            else:
                self.forgetful.add(partitions[row])
                if there:
                    shown.add(key)
                elif key not in contested and not self._is_noted(key):
                    continue
            rows.append(row)
        return rows, shown

    def _is_noted(self, key: bytes) -> bool:
        return self._several and (self._strays.keys is None or key in self._strays.keys)

    def _is_stray(self, key: bytes, partition: int) -> bool:
        """Return whether another partition may hold a forgotten record of this key; note the key."""
        strays = self._strays.keys
        if not self.forgetful or self.forgetful == {partition} or strays is None or key in strays:
            return False
        if is_home(key, partition, self.table.partitions, self._rules.placement):
            return False
        strays.add(key)
        if not self.needs_reread:
            self.needs_reread = True
            self._strays.doubt()
        return True

    def _derive_deletes(self, batch: RecordBatch, rows: list[int], keys: list[bytes | None]) -> set[bytes | None]:
        """Turn unselected values into deletes; return the keys whose last row is one of them."""
        last: dict[bytes | None, bool] = {}
        for row in rows:
            unselected = last[keys[row]] = batch.values[row] is UNSELECTED
            if unselected:
                batch.values[row] = None
                if self._several:  # the fold may have to remember the record for as long as a value
                    batch.keys[row], batch.headers[row] = keys[row], UNSELECTED_HEADERS
        return {key for key, unselected in last.items() if unselected}

    def _forget(self, gone: Iterable[bytes | None]) -> None:
        """Forget deletes. A selected record of such a key elsewhere then counts as a stray."""
        self._values.forget_deletes(key for key in gone if key is not None and not self._is_noted(key))
