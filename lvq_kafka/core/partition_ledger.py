"""One partition's part of the ledger: what waits, what is in work, and what of it is done.

Its steps follow what the ledger has decided: which message is next, and that a settlement is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter

from lvq_kafka.core.catch_up_buffer import CatchUpBuffer
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.ledger_stats import LedgerStats
from lvq_kafka.core.lifecycle import TRANSITIONS, Event, State
from lvq_kafka.core.map_capacity import GatedQueue, MapCapacity
from lvq_kafka.core.pending import Item, PendingList
from lvq_kafka.core.ready_queue import TRIED_OFTEN, ReadyQueue
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.errors import StateError

__all__ = ["PartitionLedger"]

_ON_ACQUIRE, _ON_SUPERSEDE, _ON_REVOKE = (
    TRANSITIONS[Event.ACQUIRE],
    TRANSITIONS[Event.SUPERSEDE],
    TRANSITIONS[Event.REVOKE],
)
_AVAILABLE = State.AVAILABLE
_NEWEST_IN_WORK = frozenset({State.ACQUIRED, State.LEAVING})
_NOBODY_GETS = frozenset({State.LEAVING, State.LOST})
_MOST_COUNTED = (1 << 14) - 1  # as many deliveries as `MapCapacity` reckons with


class PartitionLedger:
    """A partition that is assigned.

    Args:
        life: the number of this assignment.
        start: the offset that reading starts at.
        target: the offset up to which it has to be read before anything of it is handed out.
        line: where its messages stand that may be handed out, with those of all other partitions.
        slots: gives the next place in the queue.
    """

    __slots__ = (
        "_acked_since",
        "_attempted",
        "_base_had_its_turn",
        "_buffer",
        "_count_deliveries",
        "_counts",
        "_delivered",
        "_generation",
        "_in_place",
        "_line",
        "_most_deliveries",
        "_number",
        "_reach",
        "_slots",
        "_stats",
        "_withheld",
        "_written",
        "gated",
        "held",
        "open",
        "pending",
        "target",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        loaded: CommitMap,
        start: int,
        target: int,
        *,
        life: int,
        line: ReadyQueue[Item],
        slots: Iterator[int],
        stats: LedgerStats,
        in_place: bool,
        count_deliveries: bool,
    ) -> None:
        self._number = number
        self._generation = life
        self._line = line
        self._slots = slots
        self._stats = stats
        self._in_place = in_place
        self._count_deliveries = count_deliveries
        self.pending = PendingList(loaded, start)
        """All that a commit must not pass. Not the stale ones: they are dead, whatever their holders do."""
        self._buffer = CatchUpBuffer()
        self.target = target
        self.open = start >= target
        """Whether its messages may be handed out: it has been read up to the target, and is not withheld."""
        self._withheld = False
        self.waiting: dict[bytes | int, Item] = {}
        """By lane, the message that is available, now or after a delay."""
        self.held: dict[bytes | int, Item] = {}
        """By lane, the message in work."""
        self.gated = GatedQueue()
        self._counts = loaded.counts
        # One past the highest offset that was ever handed out.
        self._delivered = max(loaded.delivered or 0, max(loaded.counts, default=-1) + 1)
        self._reach = max(self._delivered, loaded.end)  # beyond it nothing was handed out, by anybody
        self._attempted: dict[int, Item] = {}  # by offset, what was handed out before, where that is counted durably
        self._most_deliveries = max(loaded.counts.values(), default=1)
        self._written: int | None = None  # the characters of the last commit text that says all, where that is known
        self._acked_since = 0
        self._base_had_its_turn = False

    # ---------------------------------------------------------------- reading

    @property
    def position(self) -> int:
        """The next offset to read."""
        return self._buffer.position if self._buffer else self.pending.position

    @property
    def available(self) -> int:
        """How many messages wait."""
        return len(self.waiting) + self._buffer.keys_beside(self.waiting)

    @property
    def alive(self) -> int:
        """How many messages are not done: those that wait, and the held ones that are still newest."""
        return self.pending.count + self._buffer.keys_beside(self.waiting)

    def add(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        """Take in the next records, which count under these keys.

        Raises:
            StateError: an offset has been read already. The records before it count.
        """
        if self._may_fall_behind(batch, keys):
            replaced = self._buffer.add(batch, keys)  # type: ignore[arg-type]  # no key is null
            self._stats.read += replaced
            self._stats.replaced += replaced
        else:
            self._drain_buffer()
            self._add_records(batch, keys)

    def _may_fall_behind(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> bool:
        """Whether it is right, and worth while, to look at these records later."""
        if self.open or self._withheld or self._in_place:  # in place, the first value of a key says where it stands
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
        pending, waiting, held, line, slots = self.pending, self.waiting, self.held, self._line, self._slots
        number, is_open, in_place, gated = self._number, self.open, self._in_place, self.gated
        delivered, position, next_done = self._delivered, pending.position, pending.next_done
        loaded, loaded_end = pending.loaded, pending.loaded.end
        read = replaced = deleted = 0
        try:
            for offset, key, value, timestamp, header in zip(
                batch.offsets, keys, batch.values, batch.timestamps, batch.headers
            ):
                if offset < position:
                    raise StateError(
                        f"Offset {offset} of partition {number} was read before: the next one is {position}."
                    )
                position = offset + 1
                if offset >= next_done:
                    next_done = pending.pass_over(offset)
                lane = offset if key is None else key
                ready = is_open
                if lane in held:
                    self._supersede_held(held[lane])
                    ready = False
                old = waiting.get(lane)
                done = offset < loaded_end and loaded.done(offset)
                if value is None or done:
                    if old is not None:
                        self._discard(old)
                        deleted += value is None
                        replaced += value is not None
                    continue
                read += 1
                if old is None:
                    item = Item(number, offset, timestamp, key, value, header, next(slots))
                    pending.append(item)
                    waiting[lane] = item
                elif old.deliveries:
                    item = Item(number, offset, timestamp, key, value, header, old.slot if in_place else next(slots))
                    self._discard(old)
                    pending.append(item)
                    waiting[lane] = item
                    replaced += 1
                else:
                    # Nobody has a handle of it, so it can be the newer message: half the work of another one.
                    item = old
                    pending.renew(item, offset)
                    item.timestamp, item.value, item.headers, item.redelivered = timestamp, value, header, False
                    replaced += 1
                    if in_place:
                        ready = False  # it stands where it is to stand
                    else:
                        if ready:
                            self._withdraw(item)
                        item.slot = next(slots)
                if offset < delivered:
                    self._recall(item)
                if ready:
                    (gated or line).add(item)
        finally:
            pending.position = position
            self._stats.read += read
            self._stats.replaced += replaced
            self._stats.deleted += deleted

    def _recall(self, item: Item) -> None:
        """What the group had committed about earlier deliveries of a message."""
        item.redelivered = True
        item.deliveries = self._counts.get(item.offset, 0)
        if item.deliveries and self._count_deliveries:
            self._attempted[item.offset] = item

    def _discard(self, item: Item) -> None:
        """A waiting message is superseded."""
        item.state = _ON_SUPERSEDE[item.state]
        del self.waiting[item.lane]
        self.pending.remove(item, acked=False)
        self._attempted.pop(item.offset, None)
        self._withdraw(item)

    def _supersede_held(self, item: Item) -> None:
        if item.state in _NEWEST_IN_WORK:
            # As if acked: whoever acks it shall find it done in the commit map, however long a lower one is held; and
            # a transaction's commit, in which it counts as acked, may be on its way.
            self.pending.remove(item, acked=True)
            self._acked_since += 1
            self._attempted.pop(item.offset, None)
        item.state = _ON_SUPERSEDE[item.state]

    def advance(self, position: int) -> bool:
        """It has been read up to there; whether that is further than before."""
        moved = position > self.position
        if moved and self._buffer:
            self._buffer.position = position
        elif moved:
            self.pending.position = position
            if position > self.pending.next_done:
                self.pending.pass_over(position - 1)
        if not self.open and not self._withheld and self.position >= self.target:
            self._drain_buffer()
            self.open = True
            for item in sorted(self.waiting.values(), key=attrgetter("slot")):
                self.offer(item)
        return moved

    # ---------------------------------------------------------------- handing out

    def offer(self, item: Item) -> None:
        """The lane of a waiting message is free: let it be handed out, unless it or the partition is not ready."""
        if self.open and item.state is _AVAILABLE:
            (self.gated or self._line).add(item)

    def _withdraw(self, item: Item) -> None:
        self._line.remove(item)
        self.gated.remove(item)

    def next_gated(self, capacity: MapCapacity) -> Item | None:
        """Take out of the gate the message at the base, which needs no room, or the next one if there is some.

        A message at the base that is tried again and again lets others go in between.
        """
        first, gated = self.pending.first, self.gated
        if not gated:
            return None
        has_room = self.has_room(next(iter(gated.values())), capacity)
        if first is not None and gated.get(first.slot) is first:
            stands_back = first.deliveries >= TRIED_OFTEN and self._base_had_its_turn
            if not (has_room and stands_back):
                self._base_had_its_turn = True
                return gated.pop(first.slot)
        self._base_had_its_turn = False
        return gated.popitem(last=False)[1] if has_room else None

    def has_room(self, item: Item, capacity: MapCapacity) -> bool:
        """Whether the commit map has room for the acks of all that is in work, and of this one."""
        pending, counts = self.pending, self._count_deliveries
        pairs = pending.splits + len(self.held) + 1
        if pairs <= capacity.always and not counts:
            return True
        # Every run but the last ends at or before the highest message that was ever handed out.
        span = max(self._reach, item.offset + 1) - pending.base
        most = min(max(self._most_deliveries, item.deliveries + 1), _MOST_COUNTED)
        if capacity.fits(pairs, span, len(self._attempted) + 1 if counts else 0, most):
            return True
        # That is the worst case. What was written says more.
        acks = self._acked_since + len(self.held) + 1
        return self._written is not None and capacity.fits_after(self._written, acks, span, counted=counts)

    def wrote(self, characters: int | None) -> None:
        """The claim of now takes so many characters in a commit; None where they are more than it may have."""
        self._written = characters
        self._acked_since = 0

    def hold(self, item: Item) -> None:
        """A waiting message is handed out."""
        lane = item.lane
        del self.waiting[lane]
        self.held[lane] = item
        item.state = _ON_ACQUIRE[item.state]
        item.generation = self._generation
        if item.deliveries:
            item.redelivered = True
        item.deliveries += 1
        if item.deliveries > self._most_deliveries:
            self._most_deliveries = item.deliveries
        offset = item.offset
        if offset >= self._delivered:
            self._delivered = offset + 1
            if offset >= self._reach:
                self._reach = offset + 1
        if self._count_deliveries:
            self._attempted[item.offset] = item

    # ---------------------------------------------------------------- settling

    def remove(self, item: Item, after: State) -> None:
        """A message in work is done with, and is in this state now."""
        if item.state in _NEWEST_IN_WORK:
            self.pending.remove(item, acked=True)
            self._acked_since += 1
            if self._count_deliveries:
                del self._attempted[item.offset]
        item.state = after
        self._unlock(item)

    def give_back(self, item: Item, after: State, delayed: bool) -> Item | None:
        """Take a message from its holder, whose handle is in this state now; returns a new one if it waits again."""
        twin = None
        if item.state in _NEWEST_IN_WORK:
            twin = item.again()
            self.pending.replace(item, twin)
            if not twin.deliveries:
                self._attempted.pop(item.offset, None)
            elif self._count_deliveries:
                self._attempted[item.offset] = twin
            self.waiting[item.lane] = twin
            if delayed:
                twin.state = State.DELAYED
        item.state = after
        self._unlock(item)
        return twin

    def _unlock(self, item: Item) -> None:
        """Let what waits for the lane go ahead."""
        lane = item.lane
        del self.held[lane]
        if lane in self.waiting:
            self.offer(self.waiting[lane])

    # ---------------------------------------------------------------- going

    def withhold(self) -> None:
        """Hand out nothing more, because it is about to go. Holders can still settle."""
        self._withheld = True
        if self.open:
            self.open = False
            for item in self.waiting.values():
                self._withdraw(item)

    def end_locks(self) -> list[Item]:
        """Nothing of it is held any more, and what was done by now stays claimed. Returns the messages in work."""
        lost = list(self.held.values())
        for item in lost:
            item.state = _ON_REVOKE[item.state]
        self.held.clear()
        return lost

    def revoke(self) -> list[Item]:
        """It is gone. Returns the messages that were in work."""
        lost = self.end_locks()
        for item in self.waiting.values():
            item.state = _ON_REVOKE[item.state]
        self.pending.clear()
        return lost

    # ---------------------------------------------------------------- committing

    def claim(self, leaving: Collection[Item]) -> CommitMap:
        """What the group may commit now; ``leaving``, some of the messages, count as acked."""
        mine = {item for item in leaving if item.partition == self._number and item.state is State.LEAVING}
        base, runs = self.pending.claim(mine)
        counts: dict[int, int] = {}
        if self._count_deliveries:
            unread = max(base, self.pending.position)
            counts = {offset: count for offset, count in self._counts.items() if offset >= unread}
            for offset, item in self._attempted.items():
                # What is set aside is counted before somebody gets it. What leaves, or is lost, nobody gets.
                times = item.delivered if item.state in _NOBODY_GETS else item.deliveries
                if times and item not in mine:
                    counts[offset] = min(times, _MOST_COUNTED)
        return CommitMap(base, runs, delivered=self._delivered if self._delivered > base else None, counts=counts)
