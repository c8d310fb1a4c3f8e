"""Records that a cut leaves out: scheduled (R11), or not selected (R26, R30).

Those that do not count yet are left out before the fold, so none of them hides the value that counts. Selectors judge
after the fold, as expiry does: the newest record of a key decides, and one that is not selected is a delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.selectors.selector import Selector
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.scheduling import NotDue

__all__ = ["DueFilter", "KnownCut", "selector_of"]


class DueFilter:
    """Sets aside the records of one partition that do not count yet.

    Args:
        times: from when messages count.
        as_of: the time of the cut, in seconds since the epoch.
    """

    def __init__(self, times: TimeRule, as_of: float) -> None:
        self.count = 0
        """The number of records set aside."""
        self.scheduled: NotDue | None = None
        """Where these begin, and when the first of them is due."""
        self._judge = _schedule(times)
        self._as_of = round(as_of * 1000)
        self._old = self._as_of - round(1000 * (times.longest_delay or 0.0))

    @classmethod
    def of(cls, spec: SnapshotSpec) -> Self | None:
        """Return what a cut sets aside; None if all of its records count."""
        return None if spec.due_by is None else cls(spec.times, spec.due_by)

    @property
    def malformed(self) -> int:
        """The number of records with a time that cannot be read, and counts as none.

        Records older than the longest delay are not looked at.
        """
        return self._judge.malformed

    def counting(self, batch: RecordBatch) -> RecordBatch:
        """Return the records of a batch that count."""
        timestamps = batch.timestamps
        # An older one is due whatever its headers say, and reading them would cost more than all the rest.
        young = [row for row, timestamp in enumerate(timestamps) if timestamp > self._old]
        if not young:
            return batch
        headers = batch.headers
        found = self._judge.scheduled([timestamps[row] for row in young], [headers[row] for row in young])
        later = {young[place]: due for place, due in found if due > self._as_of}
        if not later:
            return batch
        self.count += len(later)
        offsets = batch.offsets
        self.scheduled = NotDue(offsets[min(later)], min(later.values())).with_more(self.scheduled)
        return batch.pick([row for row in range(len(batch)) if row not in later])


@dataclass(frozen=True, slots=True)
class KnownCut:
    """A cut whose rows are known, as of a time before the one that is read now.

    Args:
        end: the offset that it ends before, in each partition.
        as_of: its time, in seconds since the epoch.
        times: from when messages count.
    """

    end: Mapping[int, int]
    as_of: float
    times: TimeRule

    def news(self, batch: RecordBatch) -> RecordBatch:
        """Return the newest records that are not among its own: written later, or not due then."""
        if not len(batch) or batch.offsets[0] >= self.end[batch.partitions[0]]:
            return batch
        end, as_of = self.end[batch.partitions[0]], round(self.as_of * 1000)
        found = _schedule(self.times).scheduled(batch.timestamps, batch.headers)
        due_since = {row for row, due in found if due > as_of}
        return batch.pick([row for row, offset in enumerate(batch.offsets) if offset >= end or row in due_since])


def _schedule(times: TimeRule) -> DueTimes:
    """Return a new judge of a queue whose messages may be scheduled."""
    judge = times.due_times()
    assert judge is not None
    return judge


def selector_of(spec: SnapshotSpec) -> Selector | None:
    """Return the selector of a cut; None if it has none.

    Raises:
        MissingExtra: the extra ``selectors`` is not installed here.
    """
    return None if spec.selector is None else Selector(spec.selector, spec.topic)
