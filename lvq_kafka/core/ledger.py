"""The delivery ledger: what a consumer holds, what is in work, and what its group may commit.

Feed it every record of the assigned partitions in offset order, and it conflates them: of each key only the newest
value waits. It hands messages out, takes the holders' decisions, and says what a commit may claim. It knows no client,
thread or clock; times come in as seconds of whatever clock the caller keeps.

Messages move by the table in `lvq_kafka.core.lifecycle`; what is not in it is refused. What happens within a partition
is in `lvq_kafka.core.partition_ledger`; here is what the partitions of a consumer share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, groupby

from lvq_kafka.core.assignment import Assignment
from lvq_kafka.core.commit_map import LONGEST_TEXT, CommitMap
from lvq_kafka.core.fold import Order
from lvq_kafka.core.ledger_stats import LedgerStats
from lvq_kafka.core.lifecycle import TRANSITIONS, Event, State
from lvq_kafka.core.map_capacity import MapCapacity
from lvq_kafka.core.partition_ledger import PartitionLedger
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ready_queue import InTurns, ReadyQueue
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.core.timers import Timers
from lvq_kafka.errors import StateError

__all__ = ["Item", "Ledger", "LedgerStats"]

_Outcomes = Mapping[State, State]
_ON_ACK, _ON_REJECT, _ON_RELEASE = TRANSITIONS[Event.ACK], TRANSITIONS[Event.REJECT], TRANSITIONS[Event.RELEASE]
_ON_LEAVE, _ON_COMMIT, _ON_BURY = TRANSITIONS[Event.LEAVE], TRANSITIONS[Event.COMMIT], TRANSITIONS[Event.BURY]
_ON_RETURN, _ON_EXTEND = TRANSITIONS[Event.RETURN], TRANSITIONS[Event.EXTEND]
_ON_DUE, _ON_TIME_OUT = TRANSITIONS[Event.DUE], TRANSITIONS[Event.TIME_OUT]


class Ledger(Assignment):
    """The messages of the partitions that a consumer is assigned, and every step with them.

    A step that is not allowed raises and leaves everything as it was. A handle that is not good for a step raises
    `AlreadySettled`, or `LockLost` when the partition was revoked since the hand-out or the holder's time is over.

    Args:
        order: where a new value of a waiting key stands (R4): at the tail, or in the place of the one it replaces.
        hand_out: which of the messages that may be handed out is next; by default the one that waits longest
            (`InTurns`).
        limit: how many characters a commit map may have.
        count_deliveries: whether counts of deliveries are part of what is committed.
        bounded: whether to hand out only what the commit map has room for; see `bounded`.
    """

    def __init__(
        self,
        *,
        order: Order = "tail",
        hand_out: ReadyQueue[Item] | None = None,
        limit: int = LONGEST_TEXT,
        count_deliveries: bool = False,
        bounded: bool = False,
    ) -> None:
        super().__init__()
        self.bounded = bounded
        """Whether a message is handed out only while acks of all that is in work find their place in the commit map, in
        whatever order; or if it is the lowest of its partition, whose ack makes the map shorter.

        Otherwise hand-out never waits for room, so that messages which fail always, or are held or delayed for long,
        hold up no others. What is acked beyond the room is done here, and is committed when lower ones are settled.
        """
        self.stats = LedgerStats()
        self.dirty: set[int] = set()
        """The partitions whose claim may be another than when they were last taken out of this set."""
        self._in_place = order == "in-place"
        self._line: ReadyQueue[Item] = InTurns() if hand_out is None else hand_out
        self._count_deliveries = count_deliveries
        self._capacity = MapCapacity(limit)
        self._gated: set[int] = set()  # the partitions that have, or had, messages for which there is no room
        self._slots = count()
        self._generations = count(1)
        self._timers = Timers()

    @property
    def limit(self) -> int:
        """How many characters a commit map may have. Where it sinks, maps may be longer until more is settled."""
        return self._capacity.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._capacity = MapCapacity(limit)

    def wrote(self, partition: int, characters: int | None) -> None:
        """The claim of now takes so many characters in a commit; None where that is more than it may have."""
        self._partitions[partition].wrote(characters)

    # ---------------------------------------------------------------- partitions

    def assign(self, partition: int, loaded: CommitMap, target: int, *, start: int | None = None) -> int:
        """Begin with a partition at what the group has committed.

        Nothing of it is handed out before it has been read up to ``target``, the end of the partition when it was
        assigned, and to the end of the commit map: a value may be superseded by one that the group has consumed
        already, and which lies further on (G12). Returns the number of this assignment, which its handles carry.

        Args:
            start: where reading starts, when the log begins beyond the commit.

        Raises:
            StateError: the partition is assigned already.
        """
        if partition in self._partitions:
            raise StateError(f"Partition {partition} is assigned already.")
        life = next(self._generations)
        self._partitions[partition] = PartitionLedger(
            partition,
            loaded,
            loaded.base if start is None else max(start, loaded.base),
            max(target, loaded.end),
            life=life,
            line=self._line,
            slots=self._slots,
            stats=self.stats,
            in_place=self._in_place,
            count_deliveries=self._count_deliveries,
        )
        self.dirty.add(partition)
        return life

    def withhold(self, partitions: Collection[int]) -> None:
        """Hand out nothing more of these, because they are about to go. Holders can still settle.

        What is set aside was not handed out, so it never is.

        Raises:
            StateError: one of them is not assigned.
        """
        for part in self._known(partitions):
            part.withhold()
            for item in [item for item in part.held.values() if item.reserved and item.state in _ON_RELEASE]:
                self._give_back(item, _ON_RELEASE, None)

    def end_locks(self, partitions: Collection[int]) -> list[Item]:
        """Let nobody settle anything of these any more, so that what is claimed from now on is their last word.

        Returns the messages that were in work; their handles are lost.

        Raises:
            StateError: one of them is not assigned.
        """
        self.withhold(partitions)
        lost = [item for part in self._known(partitions) for item in part.end_locks()]
        self.in_work -= len(lost)
        self.stats.lost += len(lost)
        return lost

    def revoke(self, partitions: Collection[int]) -> list[Item]:
        """Forget these partitions. Returns the messages that were in work; their handles are lost.

        Raises:
            StateError: one of them is not assigned.
        """
        lost = self.end_locks(partitions)
        for partition in dict.fromkeys(partitions):
            self._partitions.pop(partition).revoke()
        self.dirty.difference_update(partitions)
        self._gated.difference_update(partitions)
        return lost

    # ---------------------------------------------------------------- reading

    def offer(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Take in one record, as `take` does."""
        self.add(RecordBatch([partition], [offset], [timestamp], [key], [value], [headers]))

    def add(self, batch: RecordBatch, keys: Sequence[bytes | None] | None = None) -> None:
        """Take in the next records: each supersedes what there is of its key, and waits; a null value only deletes.

        Args:
            keys: the keys that count, where they are not those of the records (R16).

        Raises:
            StateError: a partition is not assigned, or an offset has been read already. The records before it count.
        """
        if keys is None:
            keys = batch.keys
        for partition, rows in _runs(batch.partitions):
            if partition not in self._partitions:
                raise StateError(f"Partition {partition} is not assigned.")
            self.dirty.add(partition)
            if rows is None:
                self._partitions[partition].add(batch, keys)
            else:
                self._partitions[partition].add(batch.rows(rows.start, rows.stop), keys[rows])

    def advance(self, positions: Mapping[int, int]) -> None:
        """Take over how far partitions have been read; past markers and holes too. A position never moves back.

        Raises:
            StateError: a partition is not assigned.
        """
        self._known(positions.keys())
        for partition, position in positions.items():
            if self._partitions[partition].advance(position):
                self.dirty.add(partition)

    # ---------------------------------------------------------------- working

    def acquire(self, locked_until: float | None = None) -> Item | None:
        """Hand out the next message that may be, or None. It is the caller's alone until it is settled (G9).

        Args:
            locked_until: when the caller's time is over, and `wake` ends the lock.
        """
        item = self.reserve()
        if item is not None:
            self.hand_over(item, locked_until)
        return item

    def reserve(self) -> Item | None:
        """Set the next message aside for somebody who gets it later, by `hand_over`; or None.

        It is in work from now on, and its count says what it will be then, so that a commit can say so before. If they
        never get it, whatever the reason, it was not delivered: the count is taken back.
        """
        item = self._next()
        if item is None:
            return None
        self._partitions[item.partition].hold(item)
        item.reserved = True
        self.dirty.add(item.partition)
        self.in_work += 1
        return item

    def hand_over(self, item: Item, locked_until: float | None = None) -> None:
        """Whom a message was set aside for gets it. ``locked_until`` as in `acquire`."""
        if item.state not in _ON_EXTEND:
            item.refuse()
        item.reserved = False
        if locked_until is not None:
            self._timers.set(item, locked_until)
        self.stats.delivered += 1
        if item.redelivered:
            self.stats.redelivered += 1

    def _next(self) -> Item | None:
        """Take the next message out of the line for which the commit map has room."""
        if self._gated and (item := self._next_gated()) is not None:
            return item
        while (item := self._line.pop()) is not None:
            part = self._partitions[item.partition]
            if not self.bounded or item is part.pending.first:
                return item
            if not part.gated and part.has_room(item, self._capacity):
                return item
            part.gated.add(item)
            self._gated.add(item.partition)
        return None

    def _next_gated(self) -> Item | None:
        for partition in list(self._gated):
            part = self._partitions[partition]
            item = part.next_gated(self._capacity)
            if not part.gated:
                self._gated.discard(partition)
            if item is not None:
                return item
        return None

    def ack(self, item: Item) -> None:
        """The message is done: it is removed, and does not touch a newer value of its key (R6)."""
        self._remove(item, _ON_ACK)
        self.stats.acked += 1

    def reject(self, item: Item) -> None:
        """The message cannot be processed: it is removed as by `ack`."""
        self._remove(item, _ON_REJECT)
        self.stats.rejected += 1

    def release(self, item: Item, due: float | None = None) -> None:
        """Give the message back: it is available again in its old place, or dropped if it was superseded (R6, R7).

        Args:
            due: when it is available again; at once by default. `wake` makes it so.
        """
        self._give_back(item, _ON_RELEASE, due)
        self.stats.released += not item.reserved

    def leave(self, item: Item) -> None:
        """The holder is done with it; whether it is removed is decided elsewhere: `commit`, `bury` or `give_back`.

        One that was set aside nobody gets any more: that time is not counted.
        """
        item.state = _ON_LEAVE.get(item.state) or item.refuse()
        if item.reserved:
            self.dirty.add(item.partition)

    def commit(self, item: Item) -> None:
        """The transaction in which a message was left has committed: it is removed."""
        self._remove(item, _ON_COMMIT)
        self.stats.acked += 1

    def bury(self, item: Item) -> None:
        """The dead letter of a message that was left is stored: it is removed."""
        self._remove(item, _ON_BURY)
        self.stats.rejected += 1

    def give_back(self, item: Item, due: float | None = None) -> None:
        """A message that was left is not removed after all: it is available again, or dropped if it was superseded."""
        self._give_back(item, _ON_RETURN, due)

    def extend(self, item: Item, locked_until: float) -> None:
        """Give the holder time until then, more or less than before."""
        item.state = _ON_EXTEND.get(item.state) or item.refuse()
        self._timers.set(item, locked_until)

    def wake(self, now: float) -> None:
        """Do what is due: make delayed messages available, and take those away whose holders' time is over."""
        for item in self._timers.pop_due(now):
            if item.state in _ON_DUE:
                item.state = _ON_DUE[item.state]
                self._partitions[item.partition].offer(item)
            else:
                self._give_back(item, _ON_TIME_OUT, None)
                self.stats.timed_out += not item.reserved

    @property
    def alarmed(self) -> bool:
        """Whether there is anything that `wake` may have to do, some time. No lock is needed to ask."""
        return len(self._timers) > 0

    @property
    def next_wake(self) -> float | None:
        """When `wake` has something to do next."""
        return self._timers.next

    def _remove(self, item: Item, outcomes: _Outcomes) -> None:
        after = outcomes.get(item.state) or item.refuse()
        self._partitions[item.partition].remove(item, after)
        self.dirty.add(item.partition)
        self.in_work -= 1

    def _give_back(self, item: Item, outcomes: _Outcomes, due: float | None) -> None:
        after = outcomes.get(item.state) or item.refuse()
        twin = self._partitions[item.partition].give_back(item, after, delayed=due is not None)
        if twin is not None and due is not None:
            self._timers.set(twin, due)
        if item.reserved:
            self.dirty.add(item.partition)
        self.in_work -= 1


def _runs(partitions: list[int]) -> Iterator[tuple[int, slice | None]]:
    """The rows of a batch that lie together, partition by partition; None for all there are."""
    if partitions and partitions.count(partitions[0]) == len(partitions):
        yield partitions[0], None
        return
    begin = 0
    for partition, run in groupby(partitions):
        end = begin + sum(1 for _ in run)
        yield partition, slice(begin, end)
        begin = end
