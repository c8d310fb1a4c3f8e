"""Message groups: a ready queue in which the messages of a group are for one session at a time (R36).

A group is *pinned* to the session that has messages of it in work. A sticky group stays pinned until the session ends;
a shared one until nothing of it is in work.

Within a group, the order of the queue is exact. The group waits for its first message, whatever that one waits for: a
delay after a release, the settlement of an older value of its key, room in the commit map. Groups do not wait for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any

from lvq_kafka.core.fronts import Fronts, SessionPins
from lvq_kafka.core.groups import Groups
from lvq_kafka.core.pending import Item
from lvq_kafka.core.precedence_heap import PrecedenceHeap
from lvq_kafka.core.ready_queue import TRIED_OFTEN

__all__ = ["GroupedQueue", "by_slot"]

by_slot: Callable[[Item], Any] = attrgetter("slot")
"""Returns the precedence of a message in the order of arrival."""


class _WaitingGroup:
    """A group that has waiting messages, or a pin, or both."""

    __slots__ = ("first", "name", "received", "rest", "session", "unsettled")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.first: Item | None = None
        """The next of its waiting messages, ready or not."""
        self.rest: PrecedenceHeap[Item] | None = None
        """All others; most groups never need it."""
        self.session: SessionPins | None = None
        self.unsettled = 0
        """The number of messages in work."""
        self.received = False
        """Whether the session has received a message: others were only set aside."""


class GroupedQueue:
    """The ready queue of a queue with groups. See `ReadyQueue`.

    Popping a message takes logarithmic time, however many groups there are and whoever has them: what is pinned to a
    session waits in a line of its own.

    Args:
        groups: how messages are grouped.
        precedence: a message's place in the order of hand-out, lowest first; unique and constant while it is here.
    """

    def __init__(self, groups: Groups, precedence: Callable[[Item], Any] = by_slot) -> None:
        self.sessions = 0
        """The number of sessions that were opened and have not ended."""
        self.waiting = 0
        """The number of groups that have waiting messages."""
        self.pinned = 0
        """The number of groups that are pinned to a session."""
        self._group_of = groups.group
        self._sticky = groups.mode == "sticky"
        self._precedence = precedence
        self._free: Fronts[Item] = Fronts()
        self._groups: dict[bytes, _WaitingGroup] = {}
        self._where: dict[int, _WaitingGroup | None] = {}  # by slot, the group of each message that is here
        self._unready: set[int] = set()  # slots of messages that only keep their places
        self._in_work: dict[Item, _WaitingGroup] = {}
        self._owners: set[SessionPins] = set()  # sessions that groups are pinned to
        self._turns = count()
        self._sole = SessionPins()  # of callers that name none

    # ---------------------------------------------------------------- sessions

    def open(self) -> SessionPins:
        """Return a new session."""
        self.sessions += 1
        return SessionPins()

    def end(self, session: SessionPins) -> None:
        """End a session: it gets nothing more. What it holds stays with it, and so do the groups of that."""
        if session.ended:
            return
        session.ended = True
        self.sessions -= 1
        for group in list(session.groups):
            if not group.unsettled:
                self._unpin(group)

    def unpin_all(self) -> None:
        """End all pins. Nothing may be waiting or in work."""
        for group in list(self._groups.values()):
            if group.session is not None:
                self._unpin(group)

    def serves(self, session: SessionPins | None) -> bool:
        """Return whether something is there that the session may get."""
        return bool(self._free) or bool((session or self._sole).fronts)

    def kept_from(self, sessions: Collection[SessionPins | None]) -> tuple[int, int]:
        """Return the number of groups that could go on in other sessions than these, and the number of those."""
        others = [len(session.fronts) for session in self._owners if session.fronts and session not in sessions]
        return sum(others), len(others)

    # ---------------------------------------------------------------- what waits

    def __len__(self) -> int:
        """The number of messages that may be handed out as far as their groups are concerned, now or later."""
        return len(self._where)

    def gated_in(self, partition: int) -> int:
        """Return the number of messages, first of their groups or without one, that wait for room in a commit map."""
        lines = [self._free, *(session.fronts for session in self._owners)]
        return sum(len(fronts.gated[partition]) for fronts in lines if partition in fronts.gated)

    def add(self, item: Item) -> None:
        """See `ReadyQueue.add`."""
        if self._unready:
            self._unready.discard(item.slot)
        self._place(item)

    def keep_place(self, item: Item) -> None:
        """Have a message's group wait for it until it is added: it cannot be handed out yet."""
        self._unready.add(item.slot)
        self._place(item)

    def _place(self, item: Item) -> None:
        slot = item.slot
        if slot in self._where:  # with another value, handle or group than now
            ready = slot not in self._unready
            self.remove(item)
            if not ready:
                self._unready.add(slot)
        name = self._group_of(item.headers)
        if name is None:
            self._where[slot] = None
            if slot not in self._unready:
                self._free.add(self._precedence(item), item, next(self._turns))
            return
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _WaitingGroup(name)
        self._where[slot] = group
        first = group.first
        if first is None:
            group.first = item
            self.waiting += 1
            self._list(group)
            return
        precedence, others = self._precedence(item), self._precedence(first)
        if group.rest is None:
            group.rest = PrecedenceHeap()
        if precedence > others:
            group.rest.add(precedence, item)
            return
        self._unlist(group)
        group.rest.add(others, first)
        group.first = item
        self._list(group)

    def remove(self, item: Item) -> None:
        """See `ReadyQueue.remove`."""
        slot = item.slot
        if slot not in self._where:
            return
        group = self._where.pop(slot)
        if group is None:
            self._free.remove(self._precedence(item), item.partition)
        else:
            self._leave(group, item)
            if group.first is None and group.session is None:
                del self._groups[group.name]
        self._unready.discard(slot)

    def _leave(self, group: _WaitingGroup, item: Item) -> None:
        """Take a waiting message out of its group."""
        first = group.first
        if first is not None and first.slot == item.slot:
            self._unlist(group)
            self._advance(group)
            self._list(group)
        elif group.rest is not None:
            group.rest.remove(self._precedence(item))

    def _advance(self, group: _WaitingGroup) -> None:
        """Make the next message of a group its first."""
        if group.rest:
            group.first = group.rest.pop()
        else:
            group.first = None
            self.waiting -= 1

    def _list(self, group: _WaitingGroup) -> None:
        """Offer the first message of a group to those who may have it, if it is ready."""
        first = group.first
        if first is not None and (not self._unready or first.slot not in self._unready):
            self._fronts_of(group).add(self._precedence(first), first, next(self._turns))

    def _unlist(self, group: _WaitingGroup) -> None:
        first = group.first
        if first is not None:
            self._fronts_of(group).remove(self._precedence(first), first.partition)

    def _fronts_of(self, group: _WaitingGroup | None) -> Fronts[Item]:
        return self._free if group is None or group.session is None else group.session.fronts

    # ---------------------------------------------------------------- handing out

    def pop(self, session: SessionPins | None = None) -> Item | None:
        """Remove and return the next message for a session, and pin its group; or return None if there is none.

        Args:
            session: who takes it; the sole one by default.
        """
        session = session or self._sole
        item = self._pop_front(session)
        if item is not None:
            self._hand_out(item, session)
        return item

    def pop_with_room(
        self, session: SessionPins | None, admits: Callable[[Item], bool], lowest: Callable[[int], Item | None]
    ) -> Item | None:
        """Pop the next message for a session that there is room for in its partition's commit map.

        A partition's lowest message needs no room, and makes some. So it goes in place of a message that finds none,
        also before others of its own group.

        Args:
            admits: whether there is room for a message.
            lowest: the lowest message of a partition that is not done.
        """
        session = session or self._sole
        often_was_last = session.often_was_last
        self._ungate(session, admits)
        while (item := self._pop_front(session)) is not None and not admits(item):
            self._fronts_of(self._where[item.slot]).gate(self._precedence(item), item, item.partition)
        precedence, stand_in = self._stand_in(session, lowest)
        if stand_in is not None and (item is None or precedence < self._precedence(item)):
            is_often = stand_in.deliveries >= TRIED_OFTEN
            if item is None or not (is_often and often_was_last):
                if item is not None:
                    self._fronts_of(self._where[item.slot]).add(self._precedence(item), item, next(self._turns))
                session.often_was_last = is_often
                item = self._withdraw_front(stand_in)
        if item is not None:
            self._hand_out(item, session)
        return item

    def gated_before(self, session: SessionPins | None, item: Item) -> list[int]:
        """Return the partitions in which messages for the session wait for room, and should go before this one."""
        precedence = self._precedence(item)
        return [
            partition
            for fronts in ((session or self._sole).fronts, self._free)
            for partition, gated in fronts.gated.items()
            if gated and gated.lowest < precedence
        ]

    def _ungate(self, session: SessionPins, admits: Callable[[Item], bool]) -> None:
        """Have messages compete again that have found room."""
        for fronts in (session.fronts, self._free):
            for partition, gated in list(fronts.gated.items()):
                while gated and admits(gated.first):
                    item = gated.pop()
                    fronts.add(self._precedence(item), item, next(self._turns))
                if not gated:
                    del fronts.gated[partition]

    def _stand_in(self, session: SessionPins, lowest: Callable[[int], Item | None]) -> tuple[Any, Item | None]:
        """Return the lowest message of a partition where others wait for room, and the precedence of the first."""
        found: list[tuple[Any, Item]] = []
        for fronts in (session.fronts, self._free):
            for partition, gated in fronts.gated.items():
                item = lowest(partition)
                if gated and item is not None and self._may_have(session, item):
                    found.append((gated.lowest, item))
        return min(found, key=itemgetter(0)) if found else (None, None)

    def _withdraw_front(self, item: Item) -> Item:
        """Stop offering a message. If it is first of its group, it stays first."""
        self._fronts_of(self._where[item.slot]).remove(self._precedence(item), item.partition)
        return item

    def _pop_front(self, session: SessionPins) -> Item | None:
        """Pop the next of the messages that a session may get. It stays first of its group."""
        free, mine = self._free, session.fronts
        anyones, own = free.ready.lowest, mine.ready.lowest
        is_own = anyones is None or (own is not None and own < anyones)
        if free.often or mine.often:
            item = self._pop_often(session, own if is_own else anyones)
            if item is not None:
                return item
        session.often_was_last = False
        if is_own:
            return None if own is None else mine.ready.pop()
        return free.ready.pop()

    def _pop_often(self, session: SessionPins, lowest: Any) -> Item | None:
        """Pop a message that often came back, if it is its turn. See `lvq_kafka.core.ready_queue.InTurns`."""
        lines = [fronts for fronts in (self._free, session.fronts) if fronts.often]
        fronts = min(lines, key=lambda fronts: next(iter(fronts.often.values()))[0])
        precedence = next(iter(fronts.often))
        if lowest is not None and (precedence > lowest or session.often_was_last):
            return None
        session.often_was_last = True
        _, item = fronts.often.pop(precedence)
        return item

    def _may_have(self, session: SessionPins, item: Item) -> bool:
        slot = item.slot
        if slot not in self._where or slot in self._unready:
            return False
        group = self._where[slot]
        return group is None or group.session is None or group.session is session

    def _hand_out(self, item: Item, session: SessionPins) -> None:
        """Take a message out of the queue that is no longer offered, and pin its group to the session."""
        group = self._where.pop(item.slot)
        if group is None:
            return
        is_first = group.first is item
        if is_first:
            self._advance(group)
        if group.session is None:
            if not is_first:
                self._unlist(group)
            self._pin(group, session)
            self._list(group)
        elif is_first:
            self._list(group)
        if not is_first and group.rest is not None:
            group.rest.remove(self._precedence(item))
        group.unsettled += 1
        self._in_work[item] = group

    def _pin(self, group: _WaitingGroup, session: SessionPins) -> None:
        group.session = session
        self._owners.add(session)
        session.groups.add(group)
        self.pinned += 1

    # ---------------------------------------------------------------- in work

    def settled(self, item: Item) -> None:
        """Note that a message is no longer in work. That may end the pin of its group."""
        group = self._in_work.pop(item, None)
        if group is None:
            return
        group.unsettled -= 1
        if not item.reserved:
            group.received = True
        session = group.session
        assert session is not None
        if not group.unsettled and (not self._sticky or session.ended or not group.received):
            self._unpin(group)

    def _unpin(self, group: _WaitingGroup) -> None:
        session = group.session
        assert session is not None
        self._unlist(group)
        self.pinned -= 1
        session.groups.discard(group)
        if not session.groups:
            self._owners.discard(session)
        group.session, group.received = None, False
        if group.first is None:
            del self._groups[group.name]
        else:
            self._list(group)
