"""One partition's part of the ledger: its waiting messages, those in work, and its claim.

It carries out the decisions of the ledger on which message is next, and whether a settlement is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import MOST_COUNTED
from lvq_kafka.core.ledger.catch_up_buffer import CatchUpBuffer
from lvq_kafka.core.ledger.feature import Feature, overrides_of
from lvq_kafka.core.ledger.scheduled_items import counts_since
from lvq_kafka.core.log.records import RawHeaders, RecordBatch
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.waiting.ledger_stats import LedgerStats
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.core.waiting.partition_room import PartitionRoom
from lvq_kafka.core.waiting.pending import Deletion, Item, PendingList, PlacedPendingList
from lvq_kafka.core.waiting.ready_queue import Entrance, ReadyQueue
from lvq_kafka.errors import StateError

__all__ = ["LedgerParts", "PartitionLedger"]

_ON_ACQUIRE, _ON_SUPERSEDE, _ON_EVICT, _ON_REVOKE = (
    TRANSITIONS[MessageEvent.ACQUIRE],
    TRANSITIONS[MessageEvent.SUPERSEDE],
    TRANSITIONS[MessageEvent.EVICT],
    TRANSITIONS[MessageEvent.REVOKE],
)
_AVAILABLE = MessageState.AVAILABLE
_NEWEST_IN_WORK = frozenset({MessageState.ACQUIRED, MessageState.LEAVING})
_NOBODY_GETS = frozenset({MessageState.LEAVING, MessageState.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerParts:
    """The parts of a ledger that its partitions share."""

    rules: QueueRules
    line: ReadyQueue[Item]
    """The ready messages of all of them."""
    new_item: Callable[..., Item]
    """Makes a message of the arguments of `Item`."""
    slots: Iterator[int]
    """Yields the next place in the queue."""
    stats: LedgerStats
    count_deliveries: bool


_Hooks = tuple[Callable[..., Any], ...]


class RecordSorter(Protocol):
    """The entrance to a partition where some records do not count yet; see `TimedPartition`."""

    def add(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None: ...


class PartitionLedger:
    """An assigned partition.

    Its `features` implement options of the queue: time, rings, message groups, paging.

    Args:
        pending: its messages, none so far.
        target: the offset to read up to before anything is handed out.
        generation: the number of this assignment.
        room: makes the judge of whether the commit map has room for a message.
        ledger: the parts that it shares with the ledger's other partitions.
    """

    __slots__ = (
        "_buffer",
        "_buffers",
        "_count_deliveries",
        "_counts",
        "_delivered",
        "_expiry_times",
        "_generation",
        "_line",
        "_number",
        "_on_free",
        "_on_hold",
        "_on_wait",
        "_place_givers",
        "_rules",
        "_selects",
        "_slots",
        "_sorter",
        "_stats",
        "_withheld",
        "attempted",
        "changed",
        "changes",
        "features",
        "held",
        "is_in_place",
        "most_deliveries",
        "new_item",
        "open",
        "pending",
        "reach",
        "room",
        "target",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        pending: PendingList,
        target: int,
        *,
        generation: int,
        room: Callable[[PartitionLedger], PartitionRoom],
        ledger: LedgerParts,
    ) -> None:
        rules = ledger.rules
        self._number = number
        self._generation = generation
        self._slots = ledger.slots
        self._stats = ledger.stats
        self.is_in_place = rules.order.in_place
        """Whether a newer value keeps the place of the waiting one that it replaces (R4)."""
        self._expiry_times = (
            rules.times.expiry_times() if self.is_in_place else None
        )  # a judge of its own, since judges count unreadable TTLs
        self._rules = rules
        self._selects = rules.selects is not None and rules.keys.conflates  # without conflation, the ledger has judged
        self._count_deliveries = ledger.count_deliveries
        loaded = pending.loaded
        self.pending = pending
        """All messages that a commit must not pass.

        Stale ones are not among them: they are done, whatever their holders do.
        """
        self.new_item = ledger.new_item
        self._buffer = CatchUpBuffer()
        self.target = target
        self.open = pending.position >= target
        """True once it has been read up to the target, unless it is withheld."""
        self._withheld = False
        self.waiting: dict[bytes | int, Item] = {}
        """By lane, the message that is available, now or after a delay."""
        self._place_givers: dict[bytes | int, Item] = {}  # in place, waiting messages of which only the place counts
        self.held: dict[bytes | int, Item] = {}
        """By lane, the message in work."""
        self._counts = loaded.counts
        # One past the highest offset ever handed out.
        self._delivered = max(loaded.delivered or 0, max(loaded.counts, default=-1) + 1)
        self.reach = max(self._delivered, loaded.end)
        """An offset beyond all messages handed out, by any consumer."""
        self.attempted: dict[int, Item] = {}
        """By offset, messages handed out before; only if counts are durable."""
        self.most_deliveries = max(loaded.counts.values(), default=1)
        """The highest delivery count of a message, or a higher number."""
        self.changes = 0
        """The number of messages that were taken, replaced or dropped since the assignment."""
        self.changed = True
        """True if the claim may differ from the last one sent."""
        self.room = room(self)
        """The judge of whether the commit map has room for a message."""
        self._line: Entrance[Any] = ledger.line if self.room.window is None else self.room.window
        self.features: Sequence[Feature] = ()
        """The features, in the order in which they are called."""
        self._sorter: RecordSorter | None = None
        self._buffers = not self.is_in_place  # in place, a key's first value sets its place
        self._on_hold: _Hooks = ()
        self._on_free: _Hooks = ()
        self._on_wait: _Hooks = ()

    def add_features(self, features: Sequence[Feature], sorter: RecordSorter | None) -> None:
        """Add the features, before any record.

        Args:
            sorter: adds new records, by `add_counting` and `append`; None if all records count at once.
        """
        self.features, self._sorter = features, sorter
        self._buffers = self._buffers and all(feature.buffers for feature in features)
        self._on_hold = overrides_of(features, "hold")
        self._on_free = overrides_of(features, "free")
        self._on_wait = overrides_of(features, "wait")

    # ---------------------------------------------------------------- reading

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self._buffer.position if self._buffer else self.pending.position

    @property
    def base(self) -> int:
        """The offset of the lowest message that is not done, else the next one to read."""
        return self.pending.base

    @property
    def hands_out(self) -> bool:
        """True if messages wait, and the target is reached. One may be acquired at any time."""
        return self.open and bool(self.waiting)

    @property
    def unsettled(self) -> tuple[int, Item | None]:
        """The number of unfinished messages tried before, and the lowest unfinished one."""
        return sum(1 for item in self.pending if item.deliveries), self.pending.lowest

    @property
    def available(self) -> int:
        """The number of waiting messages."""
        return len(self.waiting) - self._only_places + self._buffer.keys_beside(self.waiting)

    @property
    def alive(self) -> int:
        """The number of messages that are not done: waiting, scheduled, or held and the newest."""
        return self.pending.count - self._only_places + self._buffer.keys_beside(self.waiting)

    @property
    def _only_places(self) -> int:
        """The number of messages that a value still to be read has replaced, in place (R4)."""
        return sum(self.waiting.get(lane) is item for lane, item in self._place_givers.items())

    def add(
        self, batch: RecordBatch, keys: Sequence[bytes | None], names: Sequence[bytes | None] | None = None
    ) -> None:
        """Add the next records.

        Args:
            keys: the keys under which they conflate; None stands alone.
            names: the keys as properties of the messages, in a queue without conflation.

        Raises:
            StateError: an offset was read before. Earlier records of the batch are kept.
        """
        for feature in self.features:
            feature.prepare()
        try:
            if self._sorter is None:
                self.add_counting(batch, keys)
            else:
                self._sorter.add(batch, keys)
            if names is not None:
                self._name(batch, names)
        finally:
            for feature in self.features:
                feature.update()

    def add_counting(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        """Add records that count from now on. Raises what `add` raises."""
        self.changed = True
        if self._may_fall_behind(batch, keys):
            replaced = self._buffer.add(batch, keys)  # type: ignore[arg-type]  # no key is null
            self._stats.read += replaced
            self._stats.replaced += replaced
        else:
            self._drain_buffer()
            self._add_records(batch, keys)

    def _name(self, batch: RecordBatch, names: Sequence[bytes | None]) -> None:
        """Set these keys as properties of the messages of a batch that was added without keys."""
        first, _ = batch.ends
        named = dict(zip(batch.offsets, names))
        item = self.pending.last
        while item is not None and item.offset >= first:
            item.key = named[item.offset]
            item = item.before

    def _may_fall_behind(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> bool:
        """Return whether these records can be buffered for later, and whether that pays off."""
        if self.open or self._withheld or not self._buffers:
            return False
        first, _ = batch.ends
        return first >= self.position >= self.pending.loaded.end and self._buffer.suit(batch, keys, self.waiting)

    def _drain_buffer(self) -> None:
        if self._buffer:
            position = self._buffer.position
            for batch, keys in self._buffer.drain():
                self._add_records(batch, keys)
            self.pending.position = position

    def _add_records(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        if self._selects:  # not before: records that the buffer replaces need no judgment
            batch = self.selected(batch, keys)
        pending, waiting, held, line, slots = self.pending, self.waiting, self.held, self._line, self._slots
        number, is_open, in_place, new_item = self._number, self.open, self.is_in_place, self.new_item
        on_wait = self._on_wait
        renewable = (
            1 if new_item is Item and self._expiry_times is None else 0
        )  # with as many deliveries, a message is not reused
        delivered, position, next_done = self._delivered, pending.position, pending.next_done
        loaded, loaded_end = pending.loaded, pending.loaded.end
        read = replaced = deleted = 0
        try:
            for offset, key, value, timestamp, header in zip(
                batch.offsets, keys, batch.values, batch.timestamps, batch.headers
            ):
                if offset < position:
                    raise _read_before(number, offset, position)
                position = offset + 1
                if offset >= next_done:
                    next_done = pending.pass_over(offset)
                lane = offset if key is None else key
                ready = is_open
                if lane in held:
                    self.supersede_held(held[lane])
                    ready = False
                old = waiting.get(lane)
                if value is None or (offset < loaded_end and loaded.done(offset)):
                    if old is not None and in_place and value is not None:
                        # An ack of this newer value would have made its place done, too. So it was replaced, by a value
                        # that is still to be read.
                        self._keep_place(old, timestamp, header)
                    elif old is not None:
                        self.discard(old)
                        deleted += value is None
                        replaced += value is not None
                    continue
                read += 1
                if in_place and self._place_givers:
                    self._place_givers.pop(lane, None)
                if old is None or old.deliveries >= renewable:
                    item = new_item(number, offset, timestamp, key, value, header, next(slots))
                    if old is not None:
                        if in_place:
                            self.inherit(item, old)
                        self.discard(old)
                        replaced += 1
                    pending.append(item)
                    waiting[lane] = item
                else:
                    # Nobody has a handle to it, so reuse it for the newer message: half the work of a new item.
                    item = old
                    pending.renew(item, offset)
                    item.timestamp, item.value, item.headers, item.redelivered = timestamp, value, header, False
                    replaced += 1
                    if not in_place:
                        if ready or on_wait:
                            self.withdraw(item)
                        item.slot = next(slots)
                    elif on_wait:
                        self.withdraw(item)
                    else:
                        ready = False  # it keeps its place
                if offset < delivered:
                    self._recall(item)
                if ready:
                    line.add(item)
                elif on_wait and is_open:
                    for wait in on_wait:
                        wait(item)
        finally:
            pending.position = position
            self._stats.read += read
            self._stats.replaced += replaced
            self._stats.deleted += deleted
            self.changes += replaced + deleted

    def _keep_place(self, item: Item, timestamp: int, headers: RawHeaders) -> None:
        """Keep a waiting message for its place, unless it expired before the replaced value.

        Args:
            timestamp: the timestamp of the replaced value, which is done.
            headers: its headers.
        """
        if self._expiry_times is not None:
            if timestamp > self._expiry_times.expiry(item.timestamp, item.headers):
                self.discard(item)
                self._stats.replaced += 1
                return
            item.timestamp, item.headers = timestamp, headers
        self._place_givers[item.lane] = item

    def selected(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> RecordBatch:
        """Return the records as the queue sees them; see `QueueRules.selected`."""
        return self._rules.selected(batch, keys) if self._selects else batch

    def is_done(self, offset: int) -> bool:
        """Return whether the group's last commit calls a record done."""
        loaded = self.pending.loaded
        return offset < loaded.end and loaded.done(offset)

    def append(self, item: Item) -> None:
        """Add the next record as a message that does not count yet.

        It neither waits nor supersedes anything.

        Raises:
            StateError: its offset was read before.
        """
        self._drain_buffer()
        pending, offset = self.pending, item.offset
        if offset < pending.position:
            raise _read_before(self._number, offset, pending.position)
        self.changed = True
        pending.position = offset + 1
        if offset >= pending.next_done:
            pending.pass_over(offset)
        pending.append(item)
        if isinstance(item, Deletion):
            return
        self._stats.read += 1
        if offset < self._delivered:
            self._recall(item)

    def _recall(self, item: Item) -> None:
        """Restore the committed delivery count of a message."""
        item.redelivered = True
        item.deliveries = self._counts.get(item.offset, 0)
        if item.deliveries and self._count_deliveries:
            self.attempted[item.offset] = item

    def enter(self, item: Item) -> None:
        """Let a message wait that counts from now on."""
        self.waiting[item.lane] = item
        if item.lane not in self.held:
            self.offer(item)
        else:
            for wait in self._on_wait:
                wait(item)
        for feature in self.features:
            feature.enter(item)

    def inherit(self, item: Item, old: Item) -> None:
        """Give a message the place of the waiting one that it is about to replace (R4).

        It keeps its own place if that is better, since the old message was scheduled and never counted; or if the old
        message had expired before, so that its key was gone.
        """
        if item.slot < old.slot:
            return
        if self._expiry_times is not None and counts_since(item) > self._expiry_times.expiry(
            old.timestamp, old.headers
        ):
            return
        assert isinstance(self.pending, PlacedPendingList)
        item.slot = old.slot
        self.pending.pass_place(old, item)

    @property
    def awaits_acks(self) -> bool:
        """True if a message in work is not done. A superseded message in work is done."""
        return any(item.state in _NEWEST_IN_WORK for item in self.held.values())

    def forget_places(self) -> bool:
        """Claim as done the records that give waiting keys their places.

        Returns whether there were any.
        """
        pending = self.pending
        if not pending.places:
            return False
        assert isinstance(pending, PlacedPendingList)
        self._stats.displaced += len(pending.places)
        pending.forget_places()
        self.room.measure_again()
        return True

    def discard(self, item: Item, outcomes: Mapping[MessageState, MessageState] = _ON_SUPERSEDE) -> None:
        """Drop a waiting message that is superseded, or has expired."""
        item.state = outcomes[item.state]
        del self.waiting[item.lane]
        self.pending.remove(item, acked=False)
        self.attempted.pop(item.offset, None)
        self.withdraw(item)

    def supersede_held(self, item: Item) -> None:
        """Supersede a message in work."""
        if item.state in _NEWEST_IN_WORK:
            # Mark it as acked: a later ack must find it done in the commit map, however long a lower message is held.
            # Also, a transaction's commit that counts it as acked may be in flight.
            self.pending.remove(item, acked=True)
            self.attempted.pop(item.offset, None)
        item.state = _ON_SUPERSEDE[item.state]

    def dropped_early(self) -> None:
        """Note that a waiting message was dropped without being superseded."""
        self.changed = True
        self.changes += 1
        self._buffer.recount()

    def evict(self, item: Item) -> None:
        """Drop a waiting message that is beyond the ring, as done."""
        item.state = _ON_EVICT[item.state]
        del self.waiting[item.lane]
        self.withdraw(item)
        self.bury(item)

    def bury(self, item: Item) -> None:
        """Remove a message that is done although it is not held."""
        self.changed = True
        self.pending.remove(item, acked=True)
        self.changes += 1
        self.reach = max(self.reach, item.offset + 1)
        self.attempted.pop(item.offset, None)

    def advance(self, position: int) -> None:
        """Advance the read position. It never moves back."""
        if position > self.position:
            self.changed = True
            if self._buffer:
                self._buffer.position = position
            else:
                self.pending.position = position
                if position > self.pending.next_done:
                    self.pending.pass_over(position - 1)
        if not self.open and not self._withheld and self.position >= self.target:
            self._drain_buffer()
            for lane, item in self._place_givers.items():  # no newer value followed: a full text omitted its run
                if self.waiting.get(lane) is item:
                    self.discard(item)
                    self._stats.replaced += 1
            self._place_givers.clear()
            self.open = True
            for item in sorted(self.waiting.values(), key=attrgetter("slot")):
                self.offer(item)
        for feature in self.features:
            feature.update()

    # ---------------------------------------------------------------- handing out

    def offer(self, item: Item) -> None:
        """Queue a waiting message whose lane is free, if it and the partition are ready."""
        if self.open and item.state is _AVAILABLE:
            self._line.add(item)

    def withdraw(self, item: Item) -> None:
        """Remove a message from those that may be handed out."""
        self._line.remove(item)
        self.room.remove(item)

    @property
    def without_room(self) -> int:
        """The number of messages that wait for room in the map."""
        return len(self.room) + sum(feature.without_room for feature in self.features)

    @property
    def stands_still(self) -> bool:
        """True if messages wait for room, and a caller got none for that reason."""
        return self.room.stands_still and self.without_room > 0

    @property
    def is_overtaken(self) -> bool:
        """True if messages wait for room, and one of worse rank was handed out."""
        return self.room.window is not None and self.room.window.overtaken and self.without_room > 0

    def hold(self, item: Item) -> None:
        """Move a waiting message into work: it is set aside for a holder.

        Raises:
            PageUnreadable: its value was on disk, and cannot be read back. Nothing has changed.
        """
        if self._on_hold:
            for hold in self._on_hold:
                hold(item)
        self.changed = True
        lane = item.lane
        del self.waiting[lane]
        self.held[lane] = item
        self.changes += 1
        item.state = _ON_ACQUIRE[item.state]
        item.generation = self._generation
        item.reserved = True
        if item.deliveries:
            item.redelivered = True
        item.deliveries += 1
        if item.deliveries > self.most_deliveries:
            self.most_deliveries = item.deliveries
        offset = item.offset
        if offset >= self._delivered:
            self._delivered = offset + 1
            if offset >= self.reach:
                self.reach = offset + 1
        if self._count_deliveries:
            self.attempted[item.offset] = item

    # ---------------------------------------------------------------- settling

    def leave(self, item: Item, after: MessageState) -> None:
        """Keep a message in work whose holder is done with it.

        If it was only set aside, no holder will receive it, so that delivery is not counted.
        """
        item.state = after
        if item.reserved:
            self.changed = True

    def remove(self, item: Item, after: MessageState) -> None:
        """Finish a message in work, leaving its handle in state ``after``."""
        self.changed = True
        if item.state in _NEWEST_IN_WORK:
            self.pending.remove(item, acked=True)
            if self._count_deliveries:
                del self.attempted[item.offset]
        item.state = after
        lane = item.lane
        del self.held[lane]
        if lane in self.waiting:
            self.offer(self.waiting[lane])
        if self._on_free:
            for free in self._on_free:
                free(item)

    def give_back(self, item: Item, after: MessageState, delayed: bool) -> Item | None:
        """Take a message back from its holder, leaving its handle in state ``after``.

        Returns:
            A new handle if the message waits again, else None.
        """
        twin = None
        if item.reserved:  # it was counted as delivered, and was not
            self.changed = True
        if item.state in _NEWEST_IN_WORK:
            twin = item.again()
            self.pending.replace(item, twin)
            if not twin.deliveries:
                self.attempted.pop(item.offset, None)
            elif self._count_deliveries:
                self.attempted[item.offset] = twin
            self.waiting[item.lane] = twin
            if delayed:
                twin.state = MessageState.DELAYED
        item.state = after
        lane = item.lane
        del self.held[lane]
        if lane in self.waiting:
            self.offer(self.waiting[lane])
        if twin is not None:
            for feature in self.features:
                feature.replace(item, twin)
            for wait in self._on_wait if delayed else ():
                wait(twin)
        for free in self._on_free:
            free(item)
        return twin

    # ---------------------------------------------------------------- revoking

    def withhold(self) -> list[Item]:
        """Stop handing out, because the partition is about to be revoked.

        Holders can still settle. Returns the messages that are set aside: no holder will receive them.
        """
        self._withheld = True
        if self.open:
            self.open = False
            for item in self.waiting.values():
                self.withdraw(item)
        return [item for item in self.held.values() if item.reserved]

    def end_locks(self) -> list[Item]:
        """End all locks, and return the messages that were in work. Done offsets stay claimed."""
        lost = list(self.held.values())
        for item in lost:
            item.state = _ON_REVOKE[item.state]
        self.held.clear()
        for free in self._on_free:
            for item in lost:
                free(item)
        return lost

    def revoke(self) -> list[Item]:
        """Drop all messages after a revocation. Returns the messages that were in work."""
        lost = self.end_locks()
        for item in self.waiting.values():
            item.state = _ON_REVOKE[item.state]
        self.pending.clear()
        for feature in self.features:
            feature.revoke()
        return lost

    # ---------------------------------------------------------------- committing

    def claim(self, leaving: Collection[Item]) -> CommitMap:
        """Return the claim that the group may commit now; ``leaving`` messages count as acked."""
        mine = {item for item in leaving if item.partition == self._number and item.state is MessageState.LEAVING}
        base, runs = self.pending.claim(mine)
        counts: dict[int, int] = {}
        if self._count_deliveries:
            unread = max(base, self.pending.position)
            counts = {offset: count for offset, count in self._counts.items() if offset >= unread}
            for offset, item in self.attempted.items():
                # A message that is set aside is counted before it is delivered. One that is leaving or lost will not be
                # delivered.
                times = item.delivered if item.state in _NOBODY_GETS else item.deliveries
                if times and item not in mine:
                    counts[offset] = min(times, MOST_COUNTED)
        return CommitMap(base, runs, delivered=self._delivered if self._delivered > base else None, counts=counts)


def _read_before(partition: int, offset: int, position: int) -> StateError:
    return StateError(f"Offset {offset} of partition {partition} was read before: the next one is {position}.")
