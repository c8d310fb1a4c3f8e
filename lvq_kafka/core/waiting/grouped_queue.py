"""Message groups: their messages are in work for one session at a time (R36).

This is the ready queue of a queue with groups.

A group is *pinned* to the session that has messages of it in work. A sticky group stays pinned until the session ends;
a shared one until none of its messages is in work.

Within a group, the order of the queue is exact. The group waits for its first message, whatever that one waits for: a
delay after a release, the settlement of an older value of its key, room in the commit map. Groups do not wait for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush, heapreplace
from itertools import count
from operator import attrgetter, itemgetter
from typing import Any

from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.ready_queue import TRIED_OFTEN, no_rank
from lvq_kafka.core.waiting.session_pins import Offers, SessionPins, WaitingGroup

__all__ = ["GroupedQueue", "by_slot"]

by_slot: Callable[[Item], Any] = attrgetter("slot")
"""Returns the precedence of a message in the order of arrival."""

_SPARE = 64  # obsolete entries of a heap, in addition to one for each current one


class GroupedQueue:
    """The ready queue of a queue with groups. See `ReadyQueue`.

    Popping a message takes logarithmic time, however many groups there are, and whichever sessions they are pinned to.
    A pinned group stays in the offers to any session, since often the same session asks again, or the pin ends. Once
    another session finds it there, it moves to the offers of its own session.

    Args:
        groups: how messages are grouped.
        precedence: a message's place in the order of hand-out, lowest first; unique and constant while it waits.
        rank: returns a message's rank, which its precedence begins with. Messages of a rank that are returned often
            take turns.
    """

    def __init__(
        self, groups: Groups, precedence: Callable[[Item], Any] = by_slot, rank: Callable[[Item], Any] = no_rank
    ) -> None:
        self.sessions = 0
        """The number of sessions that were opened and have not ended."""
        self.waiting = 0
        """The number of groups that have waiting messages."""
        self._group_of = groups.group
        self._sticky = groups.mode == "sticky"
        self._precedence = precedence
        self._rank = rank
        self._free: Offers[Item] = Offers()
        self._groups: dict[bytes, WaitingGroup] = {}
        self._items: dict[Any, Item] = {}
        self._unready: set[Any] = set()  # messages that only keep their places
        self._often = 0  # waiting messages that were returned often
        self._turns = count()
        self._sole = SessionPins()  # the session of callers that name none
        self._owners = {self._sole}  # sessions that groups are pinned to, or may be

    # ---------------------------------------------------------------- sessions

    def open(self) -> SessionPins:
        """Return a new session."""
        self.sessions += 1
        session = SessionPins()
        self._owners.add(session)
        return session

    def end(self, session: SessionPins) -> None:
        """End a session: it gets no more messages.

        Messages that it holds stay with it, and so do their groups.
        """
        if session.ended:
            return
        session.ended = True
        self.sessions -= 1
        groups, session.groups = session.groups, set()
        for group in groups:
            group.stays = False
            if not group.unsettled:
                self._unpin(group, session)
        if not session.pinned:
            self._owners.discard(session)

    def unpin_all(self) -> None:
        """End all pins. Nothing may be waiting or in work."""
        for session in list(self._owners):
            groups, session.groups = session.groups, set()
            for group in groups:
                group.stays = False
                self._unpin(group, session)

    def serves(self, session: SessionPins | None) -> bool:
        """Return whether a message is on offer to the session."""
        session, free = session or self._sole, self._free
        if session.offers or free.turns or free.is_gated:
            return True
        return self._lowest(free, session) is not None

    @property
    def pinned(self) -> int:
        """The number of groups that are pinned to a session."""
        return sum(session.pinned for session in self._owners)

    def kept_from(self, sessions: Collection[SessionPins | None]) -> tuple[int, int]:
        """Return the number of groups that only other sessions can get, and of these sessions."""
        others = [len(session.offers) for session in self._owners if session.offers and session not in sessions]
        return sum(others), len(others)

    # ---------------------------------------------------------------- waiting messages

    def __len__(self) -> int:
        """The number of waiting messages that are ready, or keep their places."""
        return len(self._items)

    def gated_in(self, partition: int) -> int:
        """Return the number of messages that wait for room in a commit map.

        Of each group, only the first message does.
        """
        lines = [self._free, *(session.offers for session in self._owners)]
        return sum(len(offers.gated[partition]) for offers in lines if partition in offers.gated)

    def add(self, item: Item) -> None:
        """See `ReadyQueue.add`."""
        precedence = self._precedence(item)
        if precedence in self._items:
            self._remove(precedence)
        name = self._group_of(item.headers)
        self._items[precedence] = item
        if item.deliveries >= TRIED_OFTEN:
            self._often += 1
        if name is None:
            item.group = None
            self._offer(precedence, item, self._free)
        else:
            self._join(name, precedence, item)

    def keep_place(self, item: Item) -> None:
        """Keep a message's place in its group until it is added: it cannot be handed out yet."""
        precedence = self._precedence(item)
        if precedence in self._items:
            self._remove(precedence)
        name = self._group_of(item.headers)
        if name is not None:
            self._items[precedence] = item
            if item.deliveries >= TRIED_OFTEN:
                self._often += 1
            self._unready.add(precedence)
            self._join(name, precedence, item)

    def remove(self, item: Item) -> None:
        """See `ReadyQueue.remove`."""
        precedence = self._precedence(item)
        if precedence in self._items:
            self._remove(precedence)

    def _join(self, name: bytes, precedence: Any, item: Item) -> None:
        """Add a message to its group."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = WaitingGroup(name, self._free)
        item.group = group
        if group.first is None:
            group.first = precedence
            self.waiting += 1
            self._list(group)
        elif precedence > group.first:
            group.add_to_rest(precedence)
        else:
            self._unlist(group)
            group.add_to_rest(group.first)
            group.first = precedence
            self._list(group)

    def _remove(self, precedence: Any) -> None:
        item = self._items[precedence]
        group = item.group
        if group is None:
            self._withdraw(precedence, item, self._free)
        elif group.first == precedence:
            self._unlist(group)
        del self._items[precedence]
        self._unready.discard(precedence)
        if item.deliveries >= TRIED_OFTEN:
            self._often -= 1
        if group is None:
            return
        if group.first == precedence:
            self._advance(group)
            if group.first is None and group.session is None:
                del self._groups[group.name]
            return
        group.obsolete += 1
        if group.obsolete > _SPARE and 2 * group.obsolete > len(group.rest):
            here = {one for one in group.rest if self._is_in(group, one)}
            group.rest[:] = sorted(here - {group.first})
            group.obsolete = 0

    def _advance(self, group: WaitingGroup) -> None:
        """Make the next message of a group its first, and offer it if it is ready."""
        rest = group.rest
        while rest:
            first = heappop(rest)
            if self._is_in(group, first):
                group.first = first
                self._list(group)
                return
            group.obsolete -= 1
        group.first = None
        self.waiting -= 1

    def _is_in(self, group: WaitingGroup, precedence: Any) -> bool:
        item = self._items.get(precedence)
        return item is not None and item.group is group

    # ---------------------------------------------------------------- messages on offer

    def _list(self, group: WaitingGroup) -> None:
        """Offer the first message of a group to the sessions that may have it, if it is ready."""
        first = group.first
        if first is not None and not (self._unready and first in self._unready):
            group.listed = True
            offers = group.offers
            item = self._items[first]
            if item.deliveries >= TRIED_OFTEN and group.session is not None:
                offers = group.offers = group.session.offers
            self._offer(first, item, offers)

    def _unlist(self, group: WaitingGroup) -> None:
        """Stop offering the first message of a group."""
        if group.listed:
            group.listed = False
            self._withdraw(group.first, self._items[group.first], group.offers)

    def _offer(self, precedence: Any, item: Item, offers: Offers[Item]) -> None:
        if offers is not self._free:
            item.group.session.note()
        if item.deliveries >= TRIED_OFTEN:
            turn = offers.turns[precedence] = (self._rank(item), next(self._turns))
            offers.often.add(turn, precedence)
        else:
            offers.number += 1
            if offers is self._free and (not offers.line or precedence > offers.line[-1]):
                offers.line.append(precedence)
            else:
                heappush(offers.heap, precedence)

    def _withdraw(self, precedence: Any, item: Item, offers: Offers[Item]) -> None:
        gated = offers.gated.get(item.partition) if offers.gated else None
        if gated is not None and gated.remove(precedence) is not None:
            return
        if offers.turns and (turn := offers.turns.pop(precedence, None)) is not None:
            offers.often.remove(turn)
            return
        offers.number -= 1  # its entry stays until it reaches the top, or until most are obsolete
        line, heap = offers.line, offers.heap
        if not offers.number:
            line.clear()
            heap.clear()
        elif len(line) + len(heap) > 2 * offers.number + _SPARE:
            entries = {*line, *heap} - {precedence}
            offers.replace(one for one in entries if self._is_on_offer(one, offers))

    def _is_on_offer(self, precedence: Any, offers: Offers[Item]) -> bool:
        item = self._items.get(precedence)
        if item is None or not self._is_in_heap(precedence, item, offers):
            return False
        group = item.group
        if group is None:
            return offers is self._free
        return group.listed and group.first == precedence and group.offers is offers

    # ---------------------------------------------------------------- handing out

    def pop(self, session: SessionPins | None = None) -> Item | None:
        """Pop the next message for a session, and pin its group; return None if there is none.

        Args:
            session: the session that receives it; by default, all callers are one session.
        """
        if session is None:
            session = self._sole
        free, mine = self._free, session.offers
        if self._often:
            item = self._pop_offer(session)
            if item is not None:
                self._hand_out(item, session)
            return item
        session.often_was_last = False
        # As `_pop_offer` and `_hand_out`, in half the time, since the next message of the group takes its place.
        items, offers, lowest = self._items, free, None
        if free.number:
            line, heap = free.line, free.heap
            lowest = line[0] if line and not (heap and heap[0] < line[0]) else heap[0]
            if len(line) + len(heap) > free.number or (
                (group := items[lowest].group) is not None
                and group.session is not None
                and group.session is not session
            ):
                lowest = self._lowest(free, session)
        if mine.number:
            own = mine.heap[0] if len(mine.heap) == mine.number else self._lowest(mine, session)
            if lowest is None or own < lowest:
                lowest, offers = own, mine
        if lowest is None:
            return None
        item = items.pop(lowest)
        group = item.group
        if group is not None:
            if group.session is None:
                group.session = session
                session.pinned += 1
            group.unsettled += 1
            rest = group.rest
            if not rest:
                group.first, group.listed = None, False
                self.waiting -= 1
            elif group.obsolete or self._unready:
                group.listed = False
                self._advance(group)
            else:
                first = group.first = heappop(rest)
                line = offers.line
                if line and line[0] == lowest:
                    line.popleft()
                    heappush(offers.heap, first)
                else:
                    heapreplace(offers.heap, first)
                return item
        offers.drop(lowest)
        offers.number -= 1
        return item

    def _pop_offer(self, session: SessionPins) -> Item | None:
        """Return the next message that a session may get.

        It is no longer on offer, but still in its group.
        """
        free, mine = self._free, session.offers
        own = self._lowest(mine, session)
        anyones = self._lowest(free, session)
        is_own = anyones is None or (own is not None and own < anyones)
        offers, lowest = (mine, own) if is_own else (free, anyones)
        if (free.turns or mine.turns) and (item := self._pop_often(session, lowest)) is not None:
            return item
        session.often_was_last = False
        if lowest is None:
            return None
        offers.drop(lowest)
        offers.number -= 1
        item = self._items[lowest]
        if item.group is not None:
            item.group.listed = False
        return item

    def lowest(self, session: SessionPins | None) -> Any:
        """Return the lowest precedence on offer to a session, or None.

        Messages that were returned often do not count.
        """
        session = session or self._sole
        found = [self._lowest(offers, session) for offers in (self._free, session.offers)]
        return min((one for one in found if one is not None), default=None)

    def _lowest(self, offers: Offers[Item], session: SessionPins) -> Any:
        """Return the lowest precedence in these offers that a session may get; see `lowest`.

        Groups that precede it, but are pinned to other sessions, move to the offers of those sessions, each once while
        it is pinned.
        """
        items, line, heap = self._items, offers.line, offers.heap
        while line or heap:
            lowest = line[0] if line and not (heap and heap[0] < line[0]) else heap[0]
            if len(line) + len(heap) == offers.number or self._is_on_offer(lowest, offers):
                group = items[lowest].group
                if group is None or group.session is None or group.session is session:
                    return lowest
                offers.number -= 1
                owned = group.offers = group.session.offers
                owned.number += 1
                heappush(owned.heap, lowest)
                group.session.note()
            offers.drop(lowest)
        return None

    def _is_in_heap(self, precedence: Any, item: Item, offers: Offers[Item]) -> bool:
        gated = offers.gated.get(item.partition)
        return precedence not in offers.turns and (gated is None or precedence not in gated)

    def _pop_often(self, session: SessionPins, lowest: Any) -> Item | None:
        """Pop a message that was returned often, if it is its turn.

        See `lvq_kafka.core.waiting.ready_queue.InTurns`.
        """
        lines = [offers for offers in (self._free, session.offers) if offers.turns]
        offers = min(lines, key=lambda offers: offers.often.lowest)
        precedence = offers.often.first
        if lowest is not None and (precedence > lowest or session.often_was_last):
            return None
        session.often_was_last = True
        del offers.turns[offers.often.pop()]
        item = self._items[precedence]
        if item.group is not None:
            item.group.listed = False
        return item

    def _hand_out(self, item: Item, session: SessionPins) -> None:
        """Take out a message that is no longer on offer, and pin its group to the session."""
        precedence = self._precedence(item)
        del self._items[precedence]
        if item.deliveries >= TRIED_OFTEN:
            self._often -= 1
        group = item.group
        if group is None:
            return
        if group.session is None:
            self._pin(group, session)
        group.unsettled += 1
        if group.first == precedence:
            if group.rest:
                self._advance(group)
            else:
                group.first = None
                self.waiting -= 1
        else:
            group.obsolete += 1

    def _pin(self, group: WaitingGroup, session: SessionPins) -> None:
        group.session = session
        session.pinned += 1
        if group.listed:
            self._unlist(group)
            group.offers = session.offers
            self._list(group)

    # ---------------------------------------------------------------- handing out messages that have room

    def pop_with_room(
        self, session: SessionPins | None, admits: Callable[[Item], bool], lowest: Callable[[int], Item | None]
    ) -> Item | None:
        """Pop the next message for a session that there is room for in its partition's commit map.

        A partition's lowest message needs no room, and its ack makes some. So it is handed out in place of a message
        that has none, even before others of its own group.

        Args:
            admits: whether there is room for a message.
            lowest: the lowest message of a partition that is not done.
        """
        session = session or self._sole
        often_was_last = session.often_was_last
        self._ungate(session, admits)
        while (item := self._pop_offer(session)) is not None and not admits(item):
            self._gate(item)
        precedence, stand_in = self._stand_in(session, lowest)
        if stand_in is not None and (item is None or precedence < self._precedence(item)):
            is_often = stand_in.deliveries >= TRIED_OFTEN
            if item is None or not (is_often and often_was_last):
                if item is not None:
                    self._offer_again(item)
                session.often_was_last = is_often
                item = self._pop_stand_in(stand_in)
        if item is not None:
            self._hand_out(item, session)
        return item

    def pop_stuck(
        self, session: SessionPins | None, lowest: Iterable[Item], in_work: Callable[[int], bool]
    ) -> Item | None:
        """Pop a partition's lowest message whose group waits for room in another partition.

        Nothing is in work in that other partition, so no ack will make the room. Its own lowest message may wait for
        its group, and so on in a circle. Call it if `pop_with_room` returns nothing.

        Args:
            lowest: the lowest messages of all partitions.
            in_work: returns whether any message of a partition is in work.
        """
        session = session or self._sole
        if not (session.offers.is_gated or self._free.is_gated):
            return None
        for item in lowest:
            if self._may_have(session, item) and (first := self._gated_first(item)) and not in_work(first.partition):
                self._hand_out(self._pop_stand_in(item), session)
                return item
        return None

    def gated_before(self, session: SessionPins | None, item: Item) -> list[int]:
        """Return the partitions where messages that precede this one wait for room.

        Only messages that the session may get are considered.
        """
        precedence = self._precedence(item)
        return [
            partition
            for offers in ((session or self._sole).offers, self._free)
            for partition, gated in offers.gated.items()
            if gated and gated.lowest < precedence
        ]

    def gated_for(self, session: SessionPins | None) -> list[int]:
        """Return the partitions where messages that the session may get wait for room."""
        return [
            partition
            for offers in ((session or self._sole).offers, self._free)
            for partition, gated in offers.gated.items()
            if gated
        ]

    def _gate(self, item: Item) -> None:
        """Let a message wait for room. It is no longer on offer."""
        offers, precedence = self._free, self._precedence(item)
        if (group := item.group) is not None:
            if group.session is not None:
                group.offers = group.session.offers
                group.session.note()
            offers, group.listed = group.offers, True
        offers.gated.setdefault(item.partition, PrecedenceHeap()).add(precedence, item)

    def _ungate(self, session: SessionPins, admits: Callable[[Item], bool]) -> None:
        """Put gated messages that have room by now on offer again."""
        for offers in (session.offers, self._free):
            for partition, gated in list(offers.gated.items()):
                while gated and admits(gated.first):
                    item = gated.pop()
                    self._offer(self._precedence(item), item, offers)
                if not gated:
                    del offers.gated[partition]

    def _stand_in(self, session: SessionPins, lowest: Callable[[int], Item | None]) -> tuple[Any, Item | None]:
        """Return a partition's lowest message that can stand in for a gated one.

        The first part of the result is the precedence of the gated message.
        """
        found: list[tuple[Any, Item]] = []
        for offers in (session.offers, self._free):
            for partition, gated in offers.gated.items():
                item = lowest(partition)
                if gated and item is not None and self._may_have(session, item):
                    found.append((gated.lowest, item))
        return min(found, key=itemgetter(0)) if found else (None, None)

    def _may_have(self, session: SessionPins, item: Item) -> bool:
        precedence = self._precedence(item)
        if self._items.get(precedence) is not item or precedence in self._unready:
            return False
        return item.group is None or item.group.session is None or item.group.session is session

    def _gated_first(self, item: Item) -> Item | None:
        """Return the first message of a message's group, if it waits for room."""
        group: WaitingGroup | None = item.group
        if group is None:
            return None
        first = self._items[group.first]
        gated = group.offers.gated.get(first.partition)
        return first if gated is not None and group.first in gated else None

    def _offer_again(self, item: Item) -> None:
        if item.group is not None:
            self._list(item.group)
        else:
            self._offer(self._precedence(item), item, self._free)

    def _pop_stand_in(self, item: Item) -> Item:
        """Stop offering a message, if it is on offer."""
        precedence, group = self._precedence(item), item.group
        if group is None:
            self._withdraw(precedence, item, self._free)
        elif group.listed and group.first == precedence:
            self._unlist(group)
        return item

    # ---------------------------------------------------------------- in work

    def settled(self, item: Item, group: WaitingGroup) -> None:
        """Note that a message of a group is no longer in work. That may end the group's pin."""
        group.unsettled -= 1
        session = group.session
        assert session is not None
        if self._sticky and not item.reserved and not session.ended:
            group.stays = True
            session.groups.add(group)
        elif not (group.unsettled or group.stays):
            if session.ended or group.first is None or group.offers is not self._free:
                self._unpin(group, session)
            else:  # as `_unpin`, without a call
                group.session = None
                session.pinned -= 1

    def _unpin(self, group: WaitingGroup, session: SessionPins) -> None:
        session.pinned -= 1
        if session.ended and not session.pinned:
            self._owners.discard(session)
        group.session = None
        if group.first is None:
            del self._groups[group.name]
        elif group.offers is not self._free:
            self._unlist(group)
            group.offers = self._free
            self._list(group)
