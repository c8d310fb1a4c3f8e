"""The window of a partition, within which messages are handed out by rank (R20).

Acks in the order of ranks leave holes in the commit map, and it has room for only so many. Messages handed out far from
the base would take the room of nearer ones, and in the end only the lowest message could be taken. So messages
beyond the window are kept from the ready queue until it reaches them, but for a few of the best rank. Within it,
everything has room, in whatever order it is acked.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush

from lvq_kafka.core.map_capacity import FAR, MapCapacity
from lvq_kafka.core.pending import Item, PendingList
from lvq_kafka.core.ranked_queue import rank_of
from lvq_kafka.core.ranking import Rank
from lvq_kafka.core.ready_queue import ReadyQueue

__all__ = ["RankWindow"]

_SPARE = 64  # offsets and ranks of messages that are gone, beside as many as there are
_AGAIN = 512  # times that the window is moved before it is measured again


class RankWindow:
    """The entrance to the ready queue for one partition. It keeps messages beyond the window.

    The window reaches so many offsets above the base as fit into the map. If few messages stay behind, such as delayed
    ones, it reaches further: they take little room, whatever lies between them and the others.

    Args:
        number: the partition.
        pending: its messages that are not done.
        line: the ready queue of all partitions.
        capacity: the room in the commit map. If it changes, call `resize`.
        waiting: the partitions in which messages wait for room. This one is added when one does.
        counted: whether delivery counts take room, too.
    """

    def __init__(
        self,
        number: int,
        pending: PendingList,
        line: ReadyQueue[Item],
        capacity: MapCapacity,
        waiting: set[int],
        *,
        counted: bool,
    ) -> None:
        self._number = number
        self._pending = pending
        self._line = line
        self._capacity = capacity
        self._waiting = waiting
        self._counted = counted
        self._room = capacity.rank_room(counted=counted)
        self._end = 0
        self._first: Item | None = None  # the lowest message at the last release
        self._measured_in = 0  # moves
        self._beyond: dict[Rank, OrderedDict[int, Item]] = {}  # by rank and offset; no line is empty
        self._ranks: list[Rank] = []  # a heap of these ranks, and of some that are gone
        self._offsets: deque[tuple[int, Rank]] = deque()  # of these messages, and of some that are gone
        self._ascends = True  # whether these are in order
        self._count = 0
        # Offsets beyond the window at which something is in work, or acked: at most so many pairs of runs.
        self._ahead = {first for first, _ in pending.loaded.done_from(pending.position)}
        self._ahead_order = list(self._ahead)
        heapify(self._ahead_order)
        self._unknown = 0  # below, anything may have been handed out
        self.exact_end = 0
        """The end of the window; 0 while something else takes its room."""

    def __len__(self) -> int:
        """Return the number of messages beyond the window."""
        return self._count

    def has_room(self, offset: int) -> bool:
        """Return whether a message has room, whatever else within the window is acked."""
        return offset < self.exact_end or (offset in self._ahead and self.exact_end > 0)

    @property
    def has_moved(self) -> bool:
        """True if the window may have moved since the last release."""
        return self._pending.first is not self._first

    @property
    def best(self) -> Rank | None:
        """The lowest rank beyond the window; None if nothing is there."""
        ranks = self._ranks
        while ranks and ranks[0] not in self._beyond:
            heappop(ranks)
        return ranks[0] if ranks else None

    @property
    def head(self) -> Item | None:
        """The best message beyond the window; None if nothing is there."""
        best = self.best
        return None if best is None else next(iter(self._beyond[best].values()))

    # ---------------------------------------------------------------- the messages

    def add(self, item: Item) -> None:
        """See `ReadyQueue.add`."""
        offset = item.offset
        if offset >= self._end and offset not in self._ahead:
            self._move()
            if offset >= self._end:
                self._keep(item)
                return
        self._line.add(item)

    def remove(self, item: Item) -> None:
        """See `ReadyQueue.remove`."""
        if self._pop_at(rank_of(item), item.offset) is None:
            self._line.remove(item)

    def release(self, *, measure: bool = False) -> bool:
        """Move to the ready queue what is within the window by now. Return whether anything was.

        Args:
            measure: whether to measure the window. That takes time, so it is otherwise done once in a while.
        """
        if measure or self._measured_in <= 0:
            self._measure()
        elif not self.has_moved:
            return False
        else:
            self._measured_in -= 1
            self._move()
        self._first = self._pending.first
        if not self._ascends:
            self._tidy()
        offsets, end, before = self._offsets, self._end, self._count
        while offsets and offsets[0][0] < end:
            offset, rank = offsets.popleft()
            item = self._pop_at(rank, offset)
            if item is not None:
                self._line.add(item)
        return self._count < before

    def rush(self) -> Item | None:
        """Pop the best message beyond the window, if one more has room beside all within it."""
        if len(self._ahead) < self._room.ahead and self.exact_end:
            return self.pop_best()
        return None

    def pop_best(self) -> Item | None:
        """Pop the best message beyond the window."""
        item = self.head
        if item is not None:
            self._pop_at(rank_of(item), item.offset)
            self._ahead.add(item.offset)
            heappush(self._ahead_order, item.offset)
            self._judge()
        return item

    def _keep(self, item: Item) -> None:
        offset, rank, offsets = item.offset, rank_of(item), self._offsets
        line = self._beyond.get(rank)
        if line is None:
            line = self._beyond[rank] = OrderedDict()
            heappush(self._ranks, rank)
        if offset not in line:
            self._count += 1
            if offsets and offset < offsets[-1][0]:
                self._ascends = False
            offsets.append((offset, rank))
        line[offset] = item
        self._waiting.add(self._number)
        if len(offsets) + len(self._ranks) > 4 * self._count + _SPARE:
            self._tidy()

    def _pop_at(self, rank: Rank, offset: int) -> Item | None:
        line = self._beyond.get(rank)
        item = None if line is None else line.pop(offset, None)
        if line is not None and item is not None:
            self._count -= 1
            if not line:
                del self._beyond[rank]
        return item

    def _tidy(self) -> None:
        """Sort the offsets, and forget those and the ranks of messages that are gone."""
        self._ranks = sorted(self._beyond)
        self._offsets = deque(sorted((offset, rank) for rank, line in self._beyond.items() for offset in line))
        self._ascends = True

    # ---------------------------------------------------------------- the window

    def resize(self) -> None:
        """Take note of another limit of the text."""
        room = self._capacity.rank_room(counted=self._counted)
        if room.window < self._room.window:
            self._unknown = self._pending.position
        self._room, self._end, self._first = room, 0, None
        self._measure()

    def _move(self) -> None:
        """Have the window begin at the base."""
        end = self._pending.base + self._room.window
        if end > self._end:
            self._end = end
            self._judge()

    def _measure(self) -> None:
        """Extend the window to the offset below which everything has room.

        Of the lowest messages, each adds a pair of runs at most, wherever it lies; all above them add a bit for each
        offset. So the more of them are counted one by one, the fewer offsets have room above them.
        """
        self._measured_in = _AGAIN
        self._move()
        pending = self._pending
        base, item, at = pending.base, pending.first, 0
        for lowest, span in self._room.spans:
            while at < lowest and item is not None:
                item = item.after
                at += 1
            offset = pending.position if item is None else item.offset
            if offset - base > FAR:
                break
            self._end = max(self._end, offset + span)
            if item is None:
                break
        self._judge()

    def _judge(self) -> None:
        """Judge whether everything within the window has room."""
        order, end = self._ahead_order, self._end
        while order and order[0] < end:
            self._ahead.discard(heappop(order))
        is_exact = len(self._ahead) <= self._room.ahead and self._unknown <= end
        self.exact_end = end if is_exact else 0
