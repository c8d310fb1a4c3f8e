"""The effects of time on one partition: due messages count, and expired ones are removed.

A lane has one message that counts, which waits or is in work, and scheduled ones above it. All of them are pending in
the commit map: a message that is done there has counted for some consumer, so it supersedes all below it for every
consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from lvq_kafka.core.ledger.feature import Feature
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.log.offset_line import OffsetLine
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.waiting.ledger_stats import LedgerStats
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.core.waiting.pending import Deletion, Item

__all__ = ["TimedPartition"]

_ON_SUPERSEDE, _ON_EXPIRE, _ON_DUE = (
    TRANSITIONS[MessageEvent.SUPERSEDE],
    TRANSITIONS[MessageEvent.EXPIRE],
    TRANSITIONS[MessageEvent.DUE],
)
_ON_WITHDRAW, _ON_REVOKE = TRANSITIONS[MessageEvent.WITHDRAW], TRANSITIONS[MessageEvent.REVOKE]
_OFFSET = attrgetter("offset")


class TimedPartition(Feature):
    """The effects of time on the messages of an assigned partition.

    Args:
        part: the partition. It leaves new records to this object, which adds them.
    """

    def __init__(self, number: int, part: PartitionLedger, times: MessageTimes, stats: LedgerStats) -> None:
        self._number = number
        self._part = part
        self._times = times
        self._stats = stats
        self._scheduled: dict[bytes | int, OffsetLine[Item]] = {}  # by lane
        self._kept: dict[int, Item] = {}  # by offset, expired messages that are done once they are stored elsewhere
        self._late: list[Item] = []  # messages that expired during catch-up and must be stored
        self._judged = part.pending.position  # the offset below which messages were judged for expiry

    # ---------------------------------------------------------------- reading

    def add(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        """Add the next records, under these keys. Raises what `PartitionLedger.add` raises."""
        self._times.saw(batch.timestamps)
        at = 0
        for row, due in self._not_due(batch):
            self._add_counting(batch.rows(at, row), keys[at:row])
            self._add_scheduled(batch.rows(row, row + 1), keys[row], due)
            at = row + 1
        self._add_counting(batch.rows(at, len(batch)) if at else batch, keys[at:] if at else keys)

    def update(self) -> None:
        """Schedule the expiry of everything read since the last time."""
        since, self._judged = self._judged, self._part.pending.position
        if self._times.expiring is not None and self._judged > since:
            self._times.alarm = 0.0  # what was buffered in catch-up may have been read before the alarm was set
            for item in self._times.expiring.schedule(self._part.pending, since):
                self.expire(item)
        if self._late and self._part.open:
            late, self._late = self._late, []
            for item in late:  # a newer value may have replaced it, or have taken its place here
                if item.state in _ON_EXPIRE and item.expires < self._times.time.now:
                    self.expire(item)

    def _not_due(self, batch: RecordBatch) -> list[tuple[int, int]]:
        scheduling = self._times.scheduling
        rows = [] if scheduling is None else scheduling.rows(batch)
        return [(row, due) for row, due in rows if not self._part.is_done(batch.offsets[row])] if rows else rows

    def _add_counting(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        """Add records that count.

        Each supersedes the messages scheduled below it, even while it is only buffered.
        """
        if not keys:
            return
        self._part.add_counting(batch, keys)
        if self._scheduled and (lanes := self._scheduled.keys() & set(keys)):
            first = {lane: row for row, lane in zip(range(len(keys) - 1, -1, -1), reversed(keys)) if lane in lanes}
            for lane, row in first.items():
                if lane is not None:
                    (value,) = self._part.selected(batch.rows(row, row + 1), [lane]).values
                    self._drop(self._scheduled.pop(lane), deleted=value is None)

    def _add_scheduled(self, batch: RecordBatch, key: bytes | None, due: int) -> None:
        """Add one record that is not due."""
        scheduling = self._times.scheduling
        assert scheduling is not None
        batch = self._part.selected(batch, [key])
        kind = self._part.new_item if batch.values[0] is not None else Deletion
        item = kind(
            self._number, batch.offsets[0], batch.timestamps[0], key, batch.values[0] or b"", batch.headers[0], slot=-1
        )
        item.state = MessageState.SCHEDULED
        self._part.append(item)
        if item.lane in self._scheduled:
            self._scheduled[item.lane].append(item)
        else:
            self._scheduled[item.lane] = OffsetLine(item, _OFFSET)
        scheduling.add(item, due)

    # ---------------------------------------------------------------- scheduled messages

    @property
    def scheduled(self) -> Iterator[Item]:
        """The scheduled messages, and deletes."""
        for line in self._scheduled.values():
            yield from line

    def come_due(self, item: Item) -> None:
        """Make a scheduled message current; it supersedes all below it in its lane.

        Does nothing if one above it was due at the same time.
        """
        if item.state is not MessageState.SCHEDULED:
            return
        part, lane, deletes = self._part, item.lane, isinstance(item, Deletion)
        self._drop(self._scheduled[lane].pop_below(item.offset), deleted=deletes)
        self._unschedule(item)
        part.changed = True
        if lane in part.held:
            part.supersede_held(part.held[lane])
        old = part.waiting.get(lane)
        if old is not None:
            if part.is_in_place and not deletes:
                part.inherit(item, old)
            part.discard(old)
            self._count(deleted=deletes)
        if deletes:
            item.state = _ON_SUPERSEDE[item.state]
            part.pending.remove(item, acked=False)
            return
        item.state = _ON_DUE[item.state]
        part.enter(item)
        if self._times.expiring is not None and self._times.expiring.schedule_one(item):
            self.expire(item)

    def withdraw(self, item: Item) -> None:
        """Take a scheduled message out for the operator. It stays pending until it is buried."""
        item.state = _ON_WITHDRAW.get(item.state) or item.refuse()
        self._unschedule(item)

    def _unschedule(self, item: Item) -> None:
        line = self._scheduled[item.lane]
        line.remove(item)
        if not line:
            del self._scheduled[item.lane]
        assert self._times.scheduling is not None
        self._times.scheduling.drop(item)

    def _drop(self, items: Iterable[Item], *, deleted: bool) -> None:
        """Drop messages that were superseded before they counted.

        Args:
            deleted: whether by a delete.
        """
        part, scheduling = self._part, self._times.scheduling
        assert scheduling is not None
        for item in items:
            scheduling.drop(item)
            item.state = _ON_SUPERSEDE[item.state]
            part.pending.remove(item, acked=False)
            part.attempted.pop(item.offset, None)
            if not isinstance(item, Deletion):
                self._count(deleted=deleted)

    def _count(self, *, deleted: bool) -> None:
        self._stats.deleted += deleted
        self._stats.replaced += not deleted

    # ---------------------------------------------------------------- expiring

    def expire(self, item: Item) -> None:
        """Drop a waiting message that has expired.

        Its key is gone: the values that it replaced do not return (R8). If it must be stored elsewhere, it stays
        pending until `bury_expired`. During catch-up, it first waits for the end, since a newer value may follow.
        """
        part = self._part
        if not self._times.keeps_expired:
            part.discard(item, _ON_EXPIRE)
        elif part.open:
            self._keep(item)
        else:
            self._late.append(item)
            return
        part.dropped_early()
        self._stats.expired += 1

    def _keep(self, item: Item) -> None:
        """Take an expired message out of the queue. It is not done until it is stored elsewhere."""
        part = self._part
        item.state = _ON_EXPIRE[item.state]
        del part.waiting[item.lane]
        part.attempted.pop(item.offset, None)
        part.withdraw(item)
        for feature in part.features:
            feature.keep(item)
        self._kept[item.offset] = item
        self._times.kept.add((item.partition, item.offset), item)

    def keeps(self, item: Item) -> bool:
        """Return whether a message has expired, and must be stored elsewhere."""
        return self._kept.get(item.offset) is item

    def bury_expired(self, item: Item) -> None:
        """Remove an expired message that was stored elsewhere."""
        del self._kept[item.offset]
        self._part.bury(item)

    # ---------------------------------------------------------------- settling

    def replace(self, item: Item, twin: Item) -> None:
        """See `Feature.replace`."""
        self._times.comes_back(item, twin)

    def come_back(self, item: Item) -> None:
        """See `Feature.come_back`. A ring must not make room for a message that has expired."""
        if self._times.expiring is not None and item.expires < self._times.time.now:
            self.expire(item)

    # ---------------------------------------------------------------- revoking

    def revoke(self) -> None:
        """See `Feature.revoke`."""
        self._kept.clear()
        for item in list(self.scheduled):
            self._unschedule(item)
            item.state = _ON_REVOKE[item.state]
