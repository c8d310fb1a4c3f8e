"""The delivery ledger: messages held and in work, and the claim of the next commit.

Feed it every record of the assigned partitions in offset order. It conflates them, so only the newest value of each key
waits. It hands messages out, applies the holders' settlements, and derives the claims of commits. It knows no client,
thread or clock; times are seconds on the caller's clock.

Messages move only along the transitions in `lvq_kafka.core.waiting.lifecycle`; everything else is refused. The state of
a single partition is in `lvq_kafka.core.ledger.partition_ledger`; this module holds the state that a consumer's
partitions share. `Ledger.assignment` answers queries on them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count, repeat

from lvq_kafka.core.commit_map.commit_map import LONGEST_TEXT, CommitMap
from lvq_kafka.core.commit_map.map_capacity import MapCapacity
from lvq_kafka.core.ledger.assignment import Assignment
from lvq_kafka.core.ledger.feature import Feature
from lvq_kafka.core.ledger.grouped_partition import GroupedPartition
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.ledger.paging import PagedItem, PagedPartition, PageStore, Paging
from lvq_kafka.core.ledger.partition_ledger import LedgerParts, PartitionLedger
from lvq_kafka.core.ledger.ring import Ring, RingPartition
from lvq_kafka.core.ledger.scheduled_items import placed_items
from lvq_kafka.core.ledger.timed_partition import TimedPartition
from lvq_kafka.core.ledger.timers import Timers
from lvq_kafka.core.log.records import RawHeaders, RecordBatch, runs
from lvq_kafka.core.queue.rules import PLAIN, QueueRules
from lvq_kafka.core.queue.standard import no_keys
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.waiting.bounded_hand_out import BoundedHandOut
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue, by_slot
from lvq_kafka.core.waiting.ledger_stats import LedgerStats
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.core.waiting.partition_room import PartitionRoom
from lvq_kafka.core.waiting.pending import Item, PendingList, PlacedPendingList
from lvq_kafka.core.waiting.rank_window import BeyondByLevel, BeyondByRank, RankWindow
from lvq_kafka.core.waiting.ranked_queue import precedence, rank_of, ranked_items, ranked_line
from lvq_kafka.core.waiting.ready_queue import ByPrecedence, BySlot, InTurns, ReadyQueue
from lvq_kafka.core.waiting.session_pins import SessionPins
from lvq_kafka.errors import StateError

__all__ = ["Item", "Ledger", "LedgerStats"]

_Outcomes = Mapping[MessageState, MessageState]
_ON_ACK, _ON_REJECT, _ON_RELEASE = (
    TRANSITIONS[MessageEvent.ACK],
    TRANSITIONS[MessageEvent.REJECT],
    TRANSITIONS[MessageEvent.RELEASE],
)
_ON_LEAVE, _ON_COMMIT, _ON_BURY = (
    TRANSITIONS[MessageEvent.LEAVE],
    TRANSITIONS[MessageEvent.COMMIT],
    TRANSITIONS[MessageEvent.BURY],
)
_ON_RETURN, _ON_EXTEND = TRANSITIONS[MessageEvent.RETURN], TRANSITIONS[MessageEvent.EXTEND]
_ON_DUE, _ON_TIME_OUT, _ON_EXPIRE = (
    TRANSITIONS[MessageEvent.DUE],
    TRANSITIONS[MessageEvent.TIME_OUT],
    TRANSITIONS[MessageEvent.EXPIRE],
)


class Ledger:
    """The messages of a consumer's assigned partitions, and every operation on them.

    An operation that is not allowed raises and changes nothing. A handle that is not valid for an operation raises
    `AlreadySettled`, or `LockLost` if the partition was revoked since the hand-out or the holder's time ran out.

    Args:
        rules: the rules of the queue.
        limit: the maximum length of a commit map, in characters.
        count_deliveries: whether delivery counts are committed.
        bounded: whether to hand out only messages that the commit map has room for; see `bounded`.
        pages: where values are written beyond the limits of a queue that pages to disk (R12).
        hand_out: the policy that picks the next of the ready messages; by default that of the rules.
    """

    def __init__(
        self,
        rules: QueueRules = PLAIN,
        *,
        limit: int = LONGEST_TEXT,
        count_deliveries: bool = False,
        bounded: bool = False,
        pages: PageStore | None = None,
        hand_out: ReadyQueue[Item] | None = None,
    ) -> None:
        self.stats = LedgerStats()
        self.in_work = 0
        """The number of messages held."""
        self.capacity = MapCapacity(limit)
        """The room in a commit map."""
        self._partitions: dict[int, PartitionLedger] = {}
        self._timed: dict[int, TimedPartition] = {}  # all of them, if there is an option of time
        self.assignment = Assignment(self._partitions, self._timed)
        """Queries on the partitions."""
        self._count_deliveries = count_deliveries
        self._generations = count(1)
        self.timers = Timers()
        """The ends of locks and delays, which `wake` acts on."""
        self._time = LogTime()  # one for all rules: what has expired by it must not return (R39)
        ranked = () if rules.order.ranking() is None else (precedence, rank_of)
        self.groups = None if rules.groups is None else GroupedQueue(rules.groups, *ranked)
        """The ready queue, if messages are grouped; else None."""
        self._keep_to(rules, pages, hand_out)
        self.bounded = bounded

    def adopt(self, rules: QueueRules, pages: PageStore | None, *, count_deliveries: bool) -> None:
        """Keep to other rules from now on: those of the queue after an alteration (R39).

        Their order and groups are as before. Takes the arguments of the constructor.

        Raises:
            StateError: a partition is assigned, whose messages were judged by the rules so far.
        """
        if self._partitions:
            raise StateError(f"Partitions {sorted(self._partitions)} are assigned.")
        bounded = self.bounded
        self._count_deliveries = count_deliveries
        self._keep_to(rules, pages, None)
        self.bounded = bounded

    def _keep_to(self, rules: QueueRules, pages: PageStore | None, hand_out: ReadyQueue[Item] | None) -> None:
        self.rules = rules
        self.ranking = rules.order.ranking()
        """The ranks of messages; None in the order of arrival."""
        self.times = MessageTimes.of(rules.times, self._time)
        """The effects of time; None in a queue without options of time."""
        self.ring = None if rules.ring is None else Ring(rules.ring, self.stats, ranked=self.ranking is not None)
        """Evictions; None in a queue that is no ring."""
        self.paging = None if rules.paged is None or pages is None else Paging(rules.paged, pages)
        """The values on disk; None in a queue that keeps all in memory."""
        self._line: ReadyQueue[Item] = self._new_line() if hand_out is None else hand_out
        if self.groups is not None:
            self._line = self.groups
        self._parts = LedgerParts(
            rules=rules,
            line=self._line,
            new_item=self._item_factory(),
            slots=repeat(-1) if rules.times.may_schedule else count(),  # there, `placed_items` sets them
            stats=self.stats,
            count_deliveries=self._count_deliveries,
        )
        self._bounded_hand_out = BoundedHandOut(
            self._partitions,
            self._line,
            self.capacity,
            self.stats,
            ranked=self.ranking is not None,
            grouped=self.groups is not None,
        )

    def _item_factory(self) -> Callable[..., Item]:
        kind = Item if self.paging is None else PagedItem
        new_item = kind if self.ranking is None else ranked_items(self.ranking, kind)
        judge = None if self.times is None or self.times.scheduling is None else self.times.scheduling.due_times
        return new_item if judge is None else placed_items(new_item, judge)

    @property
    def bounded(self) -> bool:
        """Limit hand-out to the room in the commit map.

        If True, a message is handed out only while acks of everything in work would still fit, in any order, or if it
        is the lowest of its partition, whose ack shortens the map.

        Otherwise hand-out never waits for room, so messages that always fail, are delayed, or are held for long never
        block others. Acks beyond the room take effect at once and are committed once lower messages are settled. A
        ranked queue prefers messages that have room; see `BoundedHandOut`.
        """
        return self._bounded_hand_out.strict

    @bounded.setter
    def bounded(self, bounded: bool) -> None:
        self._bounded_hand_out.strict = bounded
        looks_for_room = bounded or self.ranking is not None
        self._is_plain = not looks_for_room and self.groups is None  # whether no message has to be checked
        if self.groups is None:
            self._pop = self._bounded_hand_out.next
        elif looks_for_room:
            self._pop = partial(self._bounded_hand_out.next_of_groups, self.groups)
        else:
            self._pop = self.groups.pop

    # ---------------------------------------------------------------- partitions

    def assign(self, partition: int, loaded: CommitMap, target: int, *, start: int | None = None) -> int:
        """Start a partition from the group's committed state.

        Nothing is handed out until the partition has been read up to ``target``, its end when it was assigned, and to
        the end of the commit map: a value may be superseded by one further on that the group has already consumed
        (G12). In a standard queue nothing is superseded, so nothing waits for that, unless it is a ring: then the
        lowest messages may have no room.

        Args:
            start: the offset to read from, if the log starts above the commit.

        Returns:
            The number of this assignment, which its handles carry.

        Raises:
            StateError: the partition is already assigned.
        """
        if partition in self._partitions:
            raise StateError(f"Partition {partition} is already assigned.")
        generation = next(self._generations)
        start = loaded.base if start is None else max(start, loaded.base)
        waits = self.rules.keys.conflates or self.ring is not None
        part = self._partitions[partition] = PartitionLedger(
            partition,
            (PlacedPendingList if self.rules.order.in_place else PendingList)(loaded, start),
            max(target, loaded.end) if waits else start,
            generation=generation,
            room=partial(self._new_room, partition),
            ledger=self._parts,
        )
        part.add_features(self._new_features(partition, part), self._timed.get(partition))
        return generation

    def _new_features(self, number: int, part: PartitionLedger) -> list[Feature]:
        """Return the features of a partition, in the order in which they are called."""
        features: list[Feature] = []
        if self.times is not None:
            self._timed[number] = TimedPartition(number, part, self.times, self.stats)
            features.append(self._timed[number])
        if self.ring is not None:
            features.append(RingPartition(part, self.ring, self.times))
        if self.groups is not None:
            features.append(GroupedPartition(number, part, self.groups))
        if self.paging is not None:
            features.append(PagedPartition(part.pending, self.paging))
        return features

    @property
    def window(self) -> int | None:
        """The offsets within which ranks are exact; None in the order of arrival."""
        return None if self.ranking is None else self.capacity.rank_room(counted=self._count_deliveries).window

    def _new_line(self) -> InTurns[Item]:
        as_they_come = not self.rules.times.may_schedule
        if self.ranking is not None:
            return InTurns(ranked_line(self.ranking, as_they_come=as_they_come), rank_of)
        return InTurns(BySlot() if as_they_come else ByPrecedence(by_slot))

    def _new_room(self, number: int, part: PartitionLedger) -> PartitionRoom:
        counted = self._count_deliveries
        window = None
        if self.ranking is not None:
            beyond = BeyondByLevel() if self.ranking.has_levels else BeyondByRank()
            waiting = self._bounded_hand_out.beyond
            window = RankWindow(
                number, part.pending, self._line, self.capacity, beyond, waiting, counted=counted, groups=self.groups
            )
        return PartitionRoom(part, self.capacity, self._new_line(), window, counted=counted)

    def withhold(self, partitions: Collection[int]) -> bool:
        """Stop handing out from these partitions, because they are about to be revoked.

        Holders can still settle. Messages that are set aside were not handed out, and never will be.

        Returns:
            Whether there were any, so that there is room for others.

        Raises:
            StateError: one of the partitions is not assigned.
        """
        before = self.in_work
        for part in self.assignment.known(partitions):
            for item in part.withhold():
                if item.state in _ON_RELEASE:
                    self._give_back(item, _ON_RELEASE, None)
        return self.in_work < before

    def end_locks(self, partitions: Collection[int]) -> list[Item]:
        """End all locks on these partitions, so that their claims are final.

        Returns:
            The messages that were in work; their handles are lost.

        Raises:
            StateError: one of the partitions is not assigned.
        """
        self.withhold(partitions)
        lost = [item for part in self.assignment.known(partitions) for item in part.end_locks()]
        self.in_work -= len(lost)
        self.stats.lost += len(lost)
        return lost

    def revoke(self, partitions: Collection[int]) -> list[Item]:
        """Forget these partitions.

        Returns:
            The messages that were in work; their handles are lost.

        Raises:
            StateError: one of the partitions is not assigned.
        """
        lost = self.end_locks(partitions)
        for partition in dict.fromkeys(partitions):
            self._partitions.pop(partition).revoke()
            self._bounded_hand_out.forget(partition)
            self._timed.pop(partition, None)
        if self.groups is not None and not self._partitions:
            self.groups.unpin_all()
        return lost

    # ---------------------------------------------------------------- reading

    def offer(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: RawHeaders = None,
    ) -> None:
        """Add one record; see `add`."""
        self.add(RecordBatch([partition], [offset], [timestamp], [key], [value], [headers]))

    def add(self, batch: RecordBatch, keys: Sequence[bytes | None] | None = None) -> None:
        """Add the next records.

        Each supersedes earlier values of its key and waits; a null value only deletes.

        Args:
            keys: the keys to use, if they are not the record keys (R16).

        Raises:
            StateError: a partition is not assigned, or an offset was read before. Earlier records of the batch are
                kept.
        """
        if keys is None:
            keys = batch.keys
        names = None
        if not self.rules.keys.conflates:  # none replaces another
            batch, names, keys = self.rules.selected(batch, keys), keys, no_keys(batch)
        for partition, rows in runs(batch.partitions):
            part = self._partitions.get(partition)
            if part is None:
                raise StateError(f"Partition {partition} is not assigned.")
            if rows is None:
                part.add(batch, keys, names)
            else:
                part.add(batch.rows(rows.start, rows.stop), keys[rows], None if names is None else names[rows])

    def advance(self, positions: Mapping[int, int]) -> None:
        """Advance read positions, including past markers and holes. A position never moves back.

        Raises:
            StateError: a partition is not assigned.
        """
        self.assignment.known(positions.keys())
        for partition, position in positions.items():
            self._partitions[partition].advance(position)

    # ---------------------------------------------------------------- working

    def acquire(self, locked_until: float | None = None, session: SessionPins | None = None) -> Item | None:
        """Hand out the next ready message, or return None.

        It is the caller's alone until settled (G9).

        Args:
            locked_until: when the caller's time runs out and `wake` ends the lock.
            session: see `reserve`.
        """
        item = self.reserve(session)
        if item is not None:
            self.hand_over(item, locked_until)
        return item

    def reserve(self, session: SessionPins | None = None) -> Item | None:
        """Set the next message aside for a later `hand_over`, or return None.

        It is in work from now on and already counted as delivered, so that a commit can store the count first. If
        nobody receives it, for whatever reason, it was not delivered and the count is taken back.

        Args:
            session: the session that will hold it, where messages are grouped; by default, all callers are one session.
        """
        item = self._line.pop() if self._is_plain else self._pop(session)
        if item is not None:
            self._partitions[item.partition].hold(item)
            self.in_work += 1
        return item

    def hand_over(self, item: Item, locked_until: float | None = None) -> None:
        """Deliver a message that was set aside. See `acquire` for ``locked_until``."""
        if item.state not in _ON_EXTEND:
            item.refuse()
        item.reserved = False
        if locked_until is not None:
            self.timers.set(item, locked_until)
        self.stats.delivered += 1
        if item.redelivered:
            self.stats.redelivered += 1

    def serves(self, session: SessionPins | None) -> bool:
        """Return whether a message may be on offer to a session, where messages are grouped."""
        return self.groups is None or self.groups.serves(session) or bool(self._bounded_hand_out.beyond)

    def ack(self, item: Item) -> None:
        """Ack a message. It is done; a newer value of its key is not affected (R6)."""
        after = _ON_ACK.get(item.state) or item.refuse()  # as `_remove`, with one call less for every message
        self._partitions[item.partition].remove(item, after)
        self.in_work -= 1
        self.stats.acked += 1

    def reject(self, item: Item) -> None:
        """Reject a message that cannot be processed. It is done, as after `ack`."""
        self._remove(item, _ON_REJECT)
        self.stats.rejected += 1

    def release(self, item: Item, due: float | None = None) -> None:
        """Return a message to the queue.

        It is available again in its old place, or dropped if it was superseded (R6, R7).

        Args:
            due: when it becomes available again (by `wake`); at once by default.
        """
        self._come_back(self._give_back(item, _ON_RELEASE, due))
        self.stats.released += not item.reserved

    def leave(self, item: Item) -> None:
        """Mark a message as finished by its holder, pending `commit`, `bury` or `give_back`."""
        after = _ON_LEAVE.get(item.state) or item.refuse()
        self._partitions[item.partition].leave(item, after)

    def commit(self, item: Item) -> None:
        """Remove a message that was left in a transaction, after the transaction committed."""
        self._remove(item, _ON_COMMIT)
        self.stats.acked += 1

    def bury(self, item: Item) -> None:
        """Remove a message that was left, after its dead letter was stored."""
        self._remove(item, _ON_BURY)
        self.stats.rejected += 1

    def give_back(self, item: Item, due: float | None = None) -> None:
        """Return a message that was left: it is available again, or dropped if superseded."""
        self._come_back(self._give_back(item, _ON_RETURN, due))

    def extend(self, item: Item, locked_until: float) -> None:
        """Set a new deadline for the holder, later or earlier than before."""
        item.state = _ON_EXTEND.get(item.state) or item.refuse()
        self.timers.set(item, locked_until)

    def wake(self, now: float) -> bool:
        """Make messages available whose delay is over, and take back those whose lock is.

        Returns whether there were any.
        """
        due = self.timers.pop_due(now)
        for item in due:
            if item.state in _ON_DUE:
                item.state = _ON_DUE[item.state]
                self._partitions[item.partition].offer(item)
            else:
                self._come_back(self._give_back(item, _ON_TIME_OUT, None))
                self.stats.timed_out += not item.reserved
        return bool(due)

    def pass_time(self, clock: float) -> bool:
        """Let due messages count, and drop waiting messages that have expired.

        Call it before messages are handed out. Messages that are set aside are no longer handed over once they expire.
        Those in work stay with their holders, and are dropped if returned. Returns whether any message was due or had
        expired.

        Args:
            clock: the time of this machine, in seconds since the epoch; see `LogTime.advance`.
        """
        times = self.times
        if times is None:
            return False
        times.time.advance(clock)
        due = [] if times.scheduling is None else times.scheduling.pop_due()
        features = [feature for part in {item.partition for item in due} for feature in self._partitions[part].features]
        for feature in features:
            feature.prepare()
        for item in due:
            self._timed[item.partition].come_due(item)
        expired = [] if times.expiring is None else times.expiring.pop_expired()
        for item in expired:
            one: Item | None = item
            if item.reserved and item.state in _ON_RELEASE:
                one = self._give_back(item, _ON_RELEASE, None)
            if one is not None and one.state in _ON_EXPIRE:
                self._timed[one.partition].expire(one)
        for feature in features:
            feature.update()
        if times.expiring is not None:
            times.expiring.tidy(lambda: sum(part.pending.count for part in self._partitions.values()))
        times.set_alarm()
        return bool(due or expired)

    def withdraw(self, item: Item) -> None:
        """Take a scheduled message out of the queue, for the operator, pending `bury_withdrawn`."""
        self._timed[item.partition].withdraw(item)

    def bury_withdrawn(self, item: Item) -> None:
        """Remove a withdrawn message, after a commit has claimed it as done."""
        item.state = _ON_COMMIT[item.state]
        self._partitions[item.partition].bury(item)

    @property
    def has_expired(self) -> bool:
        """True if `pop_expired` may return something."""
        return self.times is not None and len(self.times.kept) > 0

    def pop_expired(self, most: int) -> list[Item]:
        """Return at most ``most`` messages that have expired, each once, by partition and offset.

        The caller stores them elsewhere, and calls `bury_expired`.
        """
        found: list[Item] = []
        while self.times is not None and self.times.kept and len(found) < most:
            item = self.times.kept.pop()
            if self.keeps_expired(item):
                found.append(item)
        return found

    def keeps_expired(self, item: Item) -> bool:
        """Return whether an expired message must still be stored elsewhere.

        Once its partition is revoked, that is up to the next owner.
        """
        part = self._timed.get(item.partition)
        return part is not None and part.keeps(item)

    def bury_expired(self, item: Item) -> None:
        """Remove an expired message that was stored elsewhere, unless its partition was revoked."""
        if self.keeps_expired(item):
            self._timed[item.partition].bury_expired(item)

    @property
    def next_wake(self) -> float | None:
        """The time when `wake` next has something to do."""
        return self.timers.next

    def _come_back(self, item: Item | None) -> None:
        if item is not None:
            for feature in self._partitions[item.partition].features:
                feature.come_back(item)

    def _remove(self, item: Item, outcomes: _Outcomes) -> None:
        after = outcomes.get(item.state) or item.refuse()
        self._partitions[item.partition].remove(item, after)
        self.in_work -= 1

    def _give_back(self, item: Item, outcomes: _Outcomes, due: float | None) -> Item | None:
        """Return a message to the queue. Returns its new handle if it waits again."""
        after = outcomes.get(item.state) or item.refuse()
        twin = self._partitions[item.partition].give_back(item, after, delayed=due is not None)
        if twin is not None and due is not None:
            self.timers.set(twin, due)
        self.in_work -= 1
        return twin
