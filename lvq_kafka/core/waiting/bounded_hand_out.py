"""Hand-out of messages that the commit maps have room for.

A message whose turn arrives while it has no room waits at the gate of its partition. In a ranked queue, messages beyond
a partition's window do not even reach the ready queue. Both compete again as soon as they have room. In a ranked queue
outside of transactions, they also do so when no message has room and no later ack will make any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from typing import Protocol

from lvq_kafka.core.commit_map.map_capacity import MapCapacity
from lvq_kafka.core.queue.ranking import Rank
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue
from lvq_kafka.core.waiting.ledger_stats import LedgerStats
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.partition_room import PartitionRoom
from lvq_kafka.core.waiting.pending import Item, PendingList
from lvq_kafka.core.waiting.rank_window import RankWindow
from lvq_kafka.core.waiting.ranked_queue import precedence, rank_of
from lvq_kafka.core.waiting.ready_queue import ReadyQueue
from lvq_kafka.core.waiting.session_pins import SessionPins

__all__ = ["BoundedHandOut"]


class _Roomy(Protocol):
    """An assigned partition; see `PartitionLedger`."""

    pending: PendingList
    room: PartitionRoom

    @property
    def held(self) -> Sized: ...

    @property
    def awaits_acks(self) -> bool: ...

    def forget_places(self) -> bool: ...


class BoundedHandOut:
    """Hands out the next message that there is room for.

    Args:
        partitions: the assigned partitions, by number.
        line: the ready queue.
        capacity: the room in a commit map.
        ranked: whether messages have ranks.
        grouped: whether they are grouped.
    """

    def __init__(
        self,
        partitions: Mapping[int, _Roomy],
        line: ReadyQueue[Item],
        capacity: MapCapacity,
        stats: LedgerStats,
        *,
        ranked: bool,
        grouped: bool,
    ) -> None:
        self.beyond: dict[int, RankWindow] = {}
        """The windows beyond which messages wait."""
        self._partitions = partitions
        self._line = line
        self._capacity = capacity
        self._stats = stats
        self._ranked = ranked
        self._grouped = grouped
        self._strict = True
        self._gating: set[int] = set()  # partitions at whose gates messages wait, or did
        self._sized_for = capacity.window  # to notice when the limit changes

    @property
    def strict(self) -> bool:
        """True if messages without room wait in any case, as in transactions.

        Otherwise, they wait only in a ranked queue, and not forever.
        """
        return self._strict

    @strict.setter
    def strict(self, strict: bool) -> None:
        self._strict = strict
        for part in self._partitions.values() if strict else ():
            part.room.keep()

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self.beyond.pop(partition, None)
        self._gating.discard(partition)

    def next(self, session: SessionPins | None = None) -> Item | None:
        """Pop the next message that there is room for. ``session`` only matters to groups."""
        if self._sized_for != self._capacity.window:
            self._resize()
        if self._gating:
            self._let_through()
        line = self._line
        while True:
            item = line.pop()
            if item is None:
                if self._reach() or (self._give_up_places(self._gating) and self._reach()):
                    continue
                for partition in {*self.beyond, *self._gating}:
                    room = self._partitions[partition].room
                    room.stands_still = len(room) > 0
                return None
            overtakes = self._overtakes(*precedence(item)) if self._ranked and (self.beyond or self._gating) else False
            if overtakes is None:
                line.add(item)
            elif self._partitions[item.partition].room.admit(item):
                self._stats.out_of_order += overtakes
                return item
            else:
                self._gating.add(item.partition)

    def next_of_groups(self, groups: GroupedQueue, session: SessionPins | None) -> Item | None:
        """Pop the next message for a session that there is room for.

        Popping it pins its group, so all messages that precede it must compete first.
        """
        if self._sized_for != self._capacity.window:
            self._resize()
        while self.beyond and (lowest := groups.lowest(session)) is not None and self._overtakes(*lowest) is None:
            pass
        item = groups.pop_with_room(session, self._admits, self._lowest)
        while item is None and self._reach():
            item = groups.pop_with_room(session, self._admits, self._lowest)
        if item is None and self._ranked and not self._strict:
            item = self._pop_without_room(groups, session)
        gated = groups.gated_for(session) if item is None else []
        for partitions in (gated, self._partitions) if gated else ():  # others may hold what gated ones need
            if item is None and self._give_up_places(partitions):
                item = groups.pop_with_room(session, self._admits, self._lowest)
        if item is None:
            lowest = filter(None, map(self._lowest, self._partitions))
            item = groups.pop_stuck(session, lowest, self._is_in_work)
        if item is None:
            for partition in {*self.beyond, *groups.gated_for(session)}:
                self._partitions[partition].room.stands_still = True
            return None
        room = self._partitions[item.partition].room
        room.stands_still = False
        if self._ranked:
            room.note_hand_out(item, with_room=room.admits(item))
            gated = groups.gated_before(session, item)
            for partition in gated:
                self._mark(partition)
            # `_overtakes` returns None if a better message has found room only now.
            self._stats.out_of_order += bool(gated) or self._overtakes(*precedence(item)) is not False
        return item

    def _pop_without_room(self, groups: GroupedQueue, session: SessionPins | None) -> Item | None:
        """Pop the best message for a session that gets nothing else.

        Messages that have room may be in groups of other sessions. So may messages beyond the windows, which join their
        groups one by one.
        """
        while True:
            item = groups.pop_with_room(session, self._goes_without_room, self._lowest)
            if item is not None:
                return item
            stuck = [window for number, window in self.beyond.items() if self._partitions[number].room.is_stuck]
            if not stuck:
                return None
            self._line.add(min(stuck, key=lambda window: (window.best, window.best_slot)).pop_best())

    def _goes_without_room(self, item: Item) -> bool:
        room = self._partitions[item.partition].room
        return not room.waits_for_acks or room.admits(item)

    def _admits(self, item: Item) -> bool:
        room = self._partitions[item.partition].room
        if room.admits(item):
            return True
        if room.window is not None:
            room.window.ready.discard(item)
        return not self._strict and room.is_stuck

    def _is_in_work(self, partition: int) -> bool:
        return len(self._partitions[partition].held) > 0

    def _lowest(self, partition: int) -> Item | None:
        """Return the message that a partition may hand out without room, if it waits."""
        lowest = self._partitions[partition].room.exempt
        return lowest if lowest is not None and lowest.state is MessageState.AVAILABLE else None

    # ---------------------------------------------------------------- messages that wait for room

    def _overtakes(self, rank: Rank, slot: int) -> bool | None:
        """Return whether better messages than one of this rank wait for room.

        Returns None if a message that precedes it has found room: then that one is in the ready queue.
        """
        overtakes = False
        for number, window in self.beyond.items():
            best = window.best
            if best > rank or (best == rank and window.best_slot > slot):  # type: ignore[operator]  # of one type
                continue
            if window.is_due and window.release():
                return None
            if best != rank and window.has_spare:
                window.send_ahead()
                return None
            if self._let_go(number):
                return None
            if best != rank:
                window.overtaken = overtakes = True
        for number in self._gating:
            head = self._partitions[number].room.gated.head
            if head is None or precedence(head) > (rank, slot):
                continue
            if self._let_go(number):
                return None
            if rank_of(head) != rank:
                self._mark(number)
                overtakes = True
        return overtakes

    def _let_go(self, partition: int) -> bool:
        """Let a partition's best message compete without room, if none of its messages has room.

        Return whether there is one.
        """
        room = self._partitions[partition].room
        if self._strict or room.window is None or not room.is_stuck:
            return False
        if self._grouped:
            if not len(room.window):
                return False
            self._line.add(room.window.pop_best())  # its group decides whether it is next
            return True
        found = room.let_go()
        if room.gated:
            self._gating.add(partition)
        return found

    def _mark(self, partition: int) -> None:
        """Note that a message in a partition was overtaken by one of worse rank."""
        window = self._partitions[partition].room.window
        if window is not None:
            window.overtaken = True

    def _let_through(self) -> None:
        """Let the lowest messages, and gated ones that have room by now, compete again."""
        for partition in tuple(self._gating):
            room = self._partitions[partition].room
            room.let_through(self._line)
            if not room.gated:
                self._gating.discard(partition)

    def _reach(self) -> bool:
        """Move messages that have room by now to the ready queue. Return whether there were any.

        Call it if the ready queue is empty.
        """
        line, waiting, moved = self._line, {*self.beyond, *self._gating}, False
        for exactly in (False, True):
            for partition in waiting:
                room = self._partitions[partition].room
                moved = room.reach(exactly=exactly) or moved
                moved = (bool(room.gated) and room.let_through(line)) or moved
            if moved or any(self._let_go(partition) for partition in waiting):
                return True
        return False

    def _give_up_places(self, partitions: Collection[int]) -> bool:
        """Drop places of keys in these partitions, where no ack will make room (R4).

        That is the case where no message is in work, or only superseded ones are. Call it if there is nothing else to
        hand out. Return whether there were any places.
        """
        parts = [self._partitions[partition] for partition in partitions]
        given_up = [part.forget_places() for part in parts if not part.awaits_acks]
        return any(given_up)

    def _resize(self) -> None:
        self._sized_for = self._capacity.window
        for part in self._partitions.values():
            if part.room.window is not None:
                part.room.window.resize()
