"""The window of a partition, within which messages are handed out by rank (R20).

Acks in the order of ranks leave holes in the commit map, which has room for a limited number of them. Messages handed
out far from the base would take the room of nearer ones, and in the end only the lowest message could be handed out. So
messages beyond the window are kept from the ready queue until the window reaches them, except a few of the best rank.
Within the window, all messages have room, in whatever order they are acked.

The window is moved in steps, and only when a message beyond it would be the next: until then, nothing depends on it.

The messages beyond it are needed in two orders: the window reaches them by offset, and the best by rank and slot are
sent ahead of it. Messages arrive in the order of offsets and slots, except some that were delayed, scheduled, or waited
for an older value of their key. A removed message stays listed, without its mark, until it is reached or `tidy` is
called.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from lvq_kafka.core.commit_map.map_capacity import MapCapacity
from lvq_kafka.core.queue.ranking import Rank
from lvq_kafka.core.waiting.lazy_heap import LazyHeap
from lvq_kafka.core.waiting.pending import Item, PendingList
from lvq_kafka.core.waiting.ranked_queue import precedence
from lvq_kafka.core.waiting.ready_queue import Entrance, ReadyQueue

__all__ = ["Beyond", "BeyondByLevel", "BeyondByRank", "RankWindow"]

_SPARE = 64  # obsolete entries kept, in addition to one for each message beyond
_AGAIN = 8  # times that the window is moved before it is measured again
_PARTS = 16  # of a measurement: progress by one of them leads to another measurement


class RankWindow:
    """The entrance to the ready queue for one partition. It keeps messages beyond the window.

    The window spans as many offsets above the base as fit into the map. If few messages stay behind, such as delayed
    ones, it spans more: they take little room, whatever lies between them and the others.

    Args:
        number: the partition.
        pending: its messages that are not done.
        line: the ready queue of all partitions.
        capacity: the room in the commit map. If it changes, call `resize`.
        beyond: keeps the messages beyond the window, none so far.
        waiting: the windows beyond which messages wait, by partition. This one is added when some do.
        counted: whether delivery counts take room, too.
        groups: where messages keep their places while they are not ready; those beyond the window keep none.
    """

    def __init__(
        self,
        number: int,
        pending: PendingList,
        line: ReadyQueue[Item],
        capacity: MapCapacity,
        beyond: Beyond,
        waiting: dict[int, RankWindow],
        *,
        counted: bool,
        groups: Entrance[Item] | None = None,
    ) -> None:
        self._number = number
        self._groups = groups
        self.pending = pending
        """The messages of the partition that are not done."""
        self._line = line
        self._capacity = capacity
        self._beyond = beyond
        self._waiting = waiting
        self._counted = counted
        self._room = capacity.rank_room(counted=counted)
        self._end = 0
        self.due = 0
        """The base at which the window moves next."""
        self._measured_in = 0  # moves
        self._walked = 0  # messages, when it was last measured
        self._asked = 0  # calls of `reach` since then
        self._most: float = 0  # messages beyond, until the window is measured again
        self._count = 0  # of the messages beyond
        self._gone = 0  # an upper bound of the obsolete entries among those beyond
        self.ready: set[Item] = set()
        """The messages let through to the ready queue, except those found to have no room."""
        self._ahead = {first for first, _ in pending.loaded.done_from(pending.position)}
        """Offsets beyond the window of messages in work or acked.

        There are at most as many pairs of runs.
        """
        self._ahead_order = list(self._ahead)
        heapify(self._ahead_order)
        self._unknown = 0  # below this offset, any message may have been handed out
        self.best: Rank
        """The lowest rank beyond the window, while messages wait there."""
        self.best_slot = 0
        """The slot of the first message of that rank."""
        self.overtaken = False
        """Whether messages wait for room, and one of worse rank was handed out."""
        self.exact_end = 0
        """The end of the window; 0 while other messages take its room."""
        self.has_spare = False
        """Whether one more message beyond the window has room, beside all within it."""

    def __len__(self) -> int:
        """Return the number of messages beyond the window."""
        return self._count

    def has_room(self, offset: int) -> bool:
        """Return whether a message has room, whatever else within the window is acked."""
        return offset < self.exact_end or (offset in self._ahead and self.exact_end > 0)

    @property
    def is_due(self) -> bool:
        """True if the base has reached `due`, or so many messages arrived that some may have room."""
        first = self.pending.first
        return (first is not None and first.offset >= self.due) or self._count >= self._most

    # ---------------------------------------------------------------- the messages

    def add(self, item: Item) -> None:
        """See `ReadyQueue.add`."""
        offset = item.offset
        if offset >= self._end and self.is_due:
            self.release()
        if offset < self._end or offset in self._ahead:
            self.enter(item)
        elif not item.beyond:
            item.beyond = True
            if self._groups is not None:
                self._groups.remove(item)
            if not self._count:
                self._waiting[self._number] = self
                self.best, self.best_slot = item.rank, item.slot
            elif precedence(item) < (self.best, self.best_slot):
                self.best, self.best_slot = item.rank, item.slot
            self._count += 1
            self._beyond.add(item)

    def remove(self, item: Item) -> None:
        """See `ReadyQueue.remove`."""
        if item.beyond:
            self._remove_beyond(item)
        else:
            self.ready.discard(item)
            self._line.remove(item)

    def enter(self, item: Item) -> None:
        """Let a message through to the ready queue."""
        self.ready.add(item)
        self._line.add(item)

    def release(self) -> bool:
        """Move messages within the window to the ready queue. Return whether there were any."""
        if self._measured_in <= 0 or self._count >= self._most:
            self._measure()
        else:
            self._measured_in -= 1
            self._move()
        return self._let_in()

    def reach(self, *, exactly: bool) -> bool:
        """Move messages that the window reaches to the ready queue. Return whether there were any.

        Call it if no other message of the partition is ready.

        Args:
            exactly: whether to measure the window in any case. Otherwise, it is measured only now and then, so that on
                average a call examines few messages.
        """
        self._asked += 1
        if exactly or self._asked * _PARTS >= self._walked:
            self._measure()
        else:
            self._move()
        return self._let_in()

    def _let_in(self) -> bool:
        """Let messages within the window through. Return whether there were any."""
        found = self._beyond.pop_below(self._end)
        for item in found:
            self.enter(item)
        self._count -= len(found)
        self._forget(len(found))
        return bool(found)

    @property
    def head(self) -> Item | None:
        """The best message beyond the window, or None."""
        return self._beyond.head

    def pop_best(self) -> Item:
        """Pop the best message beyond the window, to be sent ahead of it. There must be one."""
        item = self._beyond.head
        assert item is not None
        self._remove_beyond(item)
        self._ahead.add(item.offset)
        heappush(self._ahead_order, item.offset)
        self._judge()
        return item

    def send_ahead(self) -> None:
        """Let the best message beyond the window through to the ready queue. There must be one."""
        self.enter(self.pop_best())

    def _remove_beyond(self, item: Item) -> None:
        item.beyond = False
        self._count -= 1
        self._forget(1)

    def _forget(self, gone: int) -> None:
        """Note that this many messages are no longer beyond the window."""
        self._gone += gone
        if self._gone > self._count + _SPARE:
            self._beyond.tidy()
            self._gone = 0
        if (head := self._beyond.head) is not None:
            self.best, self.best_slot = head.rank, head.slot
        elif self._waiting.get(self._number) is self:
            del self._waiting[self._number]
            self.overtaken = False

    # ---------------------------------------------------------------- the window

    def resize(self) -> None:
        """Note that the limit of the text has changed."""
        room = self._capacity.rank_room(counted=self._counted)
        if room.span < self._room.span:
            self._unknown = self.pending.position
        self._room, self._end = room, 0
        self._measure()
        self.due = 0

    def _move(self) -> None:
        """Move the window to the base."""
        base = self.pending.base
        self.due = base + self._room.step
        end = base + self._room.span
        if end > self._end:
            self._end = end
            self._judge()

    def _measure(self) -> None:
        """Extend the window to the offset below which all messages have room.

        Each pair of runs needs a message that is not done, and an ack after it. So the current messages, and the acks
        between them, make at most half as many pairs as their number, whatever is acked next. The lowest messages are
        counted this way, wherever they lie; above them, each offset takes a bit. Where messages are far apart, only the
        pairs count.
        """
        self._measured_in, self._asked = _AGAIN, 0
        self._move()
        pending, end, span = self.pending, self._end, self._room.span
        base, acked_behind = pending.base, pending.acked_behind
        item, messages, halves = pending.first, 0, 0
        for pairs, within, after in self._room.allowances:
            while item is not None and halves < 2 * pairs:
                halves += 2 if item in acked_behind else 1
                messages += 1
                item = item.after
            offset = pending.position if item is None else item.offset
            end = max(end, offset + after if offset <= base + within else base + within)
            if item is None:
                break
        self._end = end
        if end > base + span:  # by pairs, which change as messages are settled
            self.due = base + max(self._room.step, (end - base) // _PARTS)
            self._measured_in = 0
        self._walked = messages
        # If all current messages have room, later ones may have some, too.
        self._most = max(_SPARE, messages // _PARTS) if item is None and end >= pending.position else math.inf
        self._judge()

    def _judge(self) -> None:
        """Judge whether all messages within the window have room."""
        order, end = self._ahead_order, self._end
        while order and order[0] < end:
            self._ahead.discard(heappop(order))
        is_exact = len(self._ahead) <= self._room.ahead and self._unknown <= end
        self.exact_end = end if is_exact else 0
        self.has_spare = is_exact and len(self._ahead) < self._room.ahead


class Beyond(Protocol):
    """Messages in two orders. Those that are not marked as `Item.beyond` do not count."""

    def add(self, item: Item) -> None:
        """Add a message, which is marked."""

    @property
    def head(self) -> Item | None:
        """The best message, by rank and slot; None if there is none."""

    def pop_below(self, end: int) -> list[Item]:
        """Remove and return the messages below an offset, without their marks."""

    def tidy(self) -> None:
        """Forget messages that do not count."""


class BeyondByRank:
    """Any ranks, in logarithmic time."""

    def __init__(self) -> None:
        self._by_rank: LazyHeap[Item] = LazyHeap(_is_marked)
        self._by_offset: LazyHeap[Item] = LazyHeap(_is_marked)

    def __bool__(self) -> bool:
        return len(self._by_offset) > 0

    def add(self, item: Item) -> None:
        """See `Beyond.add`."""
        self._by_rank.add((item.rank, item.slot), item)
        self._by_offset.add(item.offset, item)

    @property
    def head(self) -> Item | None:
        """See `Beyond.head`."""
        return self._by_rank.first

    def pop_below(self, end: int) -> list[Item]:
        """See `Beyond.pop_below`."""
        heap, found = self._by_offset, list[Item]()
        while (offset := heap.lowest) is not None and offset < end and (item := heap.pop()) is not None:
            item.beyond = False
            found.append(item)
        return found

    def tidy(self) -> None:
        """See `Beyond.tidy`."""
        self._by_rank.sweep()
        self._by_offset.sweep()


class BeyondByLevel:
    """Few different ranks, in constant time for messages that arrive in order."""

    def __init__(self) -> None:
        self._lines: dict[Rank, deque[Item]] = {}  # each in the order of offsets, and of slots
        self._ranks: list[Rank] = []  # these ranks, in order
        self._strays = BeyondByRank()

    def add(self, item: Item) -> None:
        """See `Beyond.add`."""
        line = self._lines.get(item.rank)
        if line is None:
            self._lines[item.rank] = deque((item,))
            insort(self._ranks, item.rank)
        elif not line or ((last := line[-1]).slot < item.slot and last.offset < item.offset):
            line.append(item)
        else:
            self._strays.add(item)

    @property
    def head(self) -> Item | None:
        """See `Beyond.head`."""
        stray = self._strays.head
        for rank in self._ranks:
            line = self._lines[rank]
            while line and not line[0].beyond:
                line.popleft()
            if line:
                return line[0] if stray is None else min(line[0], stray, key=precedence)
        return stray

    def pop_below(self, end: int) -> list[Item]:
        """See `Beyond.pop_below`."""
        found = self._strays.pop_below(end) if self._strays else []
        for line in self._lines.values():
            while line and line[0].offset < end:
                item = line.popleft()
                if item.beyond:
                    item.beyond = False
                    found.append(item)
        return found

    def tidy(self) -> None:
        """See `Beyond.tidy`."""
        self._lines = {rank: deque(_marked(line)) for rank, line in self._lines.items()}
        self._strays.tidy()


def _is_marked(key: object, item: Item) -> bool:
    return item.beyond


def _marked(items: Iterable[Item]) -> Iterable[Item]:
    return (item for item in items if item.beyond)
