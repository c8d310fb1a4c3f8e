"""Rings: the lowest waiting messages beyond a partition's share are evicted (R12).

An evicted message is done for its queue, as if it had been acked, and the next commit claims it. The next owner might
not evict it again: the message may lie above one in work, and the queue may be shorter by then.

Evictions take no more room in the commit map than the acks of the messages in work: all messages that waited below an
evicted one were evicted before it, so between two messages in work there is one run. With ranks or scheduled messages,
there may be more.

Messages are evicted by offset; where they have ranks, the worst rank first, then by offset. Within a rank, messages are
handed out by place instead, and a scheduled message takes its place only when it is due. It is still evicted by its
offset, as one of the oldest records. So evicted messages lie at the low end of the log, where they take no room in a
commit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from lvq_kafka.core.ledger.feature import Feature
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.queue.limits import RESUME, Limits, size_of
from lvq_kafka.core.queue.ranking import Rank
from lvq_kafka.core.waiting.lazy_heap import LazyHeap
from lvq_kafka.core.waiting.ledger_stats import LedgerStats
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.core.waiting.pending import Item, SizeMeter
from lvq_kafka.core.waiting.ranked_queue import rank_of

__all__ = ["WAITS", "ByOffset", "ByRank", "EvictionOrder", "Oversized", "Ring", "RingPartition"]

_AVAILABLE = MessageState.AVAILABLE


class Oversized(NamedTuple):
    """A message that is larger than all that its partition may hold."""

    partition: int
    offset: int
    size: int
    """In bytes."""
    share: int
    """The bytes that the partition may hold."""


class Ring:
    """The common part of the rings of a ledger's partitions.

    Args:
        limits: the limits of the whole queue.
        ranked: whether messages have ranks.
    """

    def __init__(self, limits: Limits, stats: LedgerStats, *, ranked: bool) -> None:
        self.limits = limits
        self.stats = stats
        self.crossings = 0
        """The number of times that a partition began to evict, with room in between."""
        self.oversized: Oversized | None = None
        """The first message that was evicted because it alone is too large."""
        self._ranked = ranked

    def found_oversized(self, item: Item, size: int, share: int) -> None:
        """Note a message that alone is too large."""
        if self.oversized is None:
            self.oversized = Oversized(item.partition, item.offset, size, share)

    def new_order(self) -> EvictionOrder:
        """Return an order of evictions for one partition, empty."""
        return ByRank() if self._ranked else ByOffset()


class RingPartition(Feature):
    """The ring of an assigned partition.

    Nothing is evicted before the partition has been read to its end: the newer values and deletes up to there decide
    which messages it holds. Messages are put into the order of evictions only when there is something to evict.

    Args:
        times: the times of messages; None if they neither expire nor may be scheduled. Those that are not due, or have
            expired, do not count.
    """

    def __init__(self, part: PartitionLedger, ring: Ring, times: MessageTimes | None) -> None:
        self._part = part
        self._times = times
        self._pending = part.pending
        self._ring = ring
        share = ring.limits.share(max(1, part.pending.loaded.partitions))
        self._messages = math.inf if share.messages is None else share.messages
        self._bytes = math.inf if share.bytes is None else share.bytes
        self._weighs = share.bytes is not None
        self._meter = SizeMeter() if times is not None or self._weighs else None  # else all pending messages count
        self._pending.meter = self._meter
        self._counted = 0  # the offset below which all messages have been counted
        self._entered: list[Item] = []  # messages that became due since the last update
        self._newest = -1  # the offset of the last message
        self._order = ring.new_order()
        self._ordered = 0  # the offset below which all waiting messages are in that order
        self._before = 0, 0  # the depth before the last change, in messages and bytes
        self._evicts = False

    @property
    def messages(self) -> int:
        """The number of messages that wait or are in work."""
        return self._pending.count if self._meter is None else len(self._meter)

    @property
    def bytes(self) -> int:
        """The bytes of these; 0 where there is no limit of bytes."""
        return 0 if self._meter is None else self._meter.bytes

    def prepare(self) -> None:
        """See `Feature.prepare`. There is no depth until the end was reached."""
        if self._part.open:
            self._before = self.messages, self.bytes

    def enter(self, item: Item) -> None:
        """See `Feature.enter`."""
        if self._part.open:
            self._entered.append(item)

    def update(self) -> None:
        """Count messages read or due since `prepare`, and evict those beyond the share."""
        if not self._part.open or (self._counted >= self._part.position and not self._entered):
            return
        if self._counted < self._part.position:
            if self._meter is not None:
                self._include(self._pending.since(self._counted))
            item = self._pending.last
            while item is not None and item.offset >= self._counted and item.state is not _AVAILABLE:
                item = item.before
            if item is not None and item.offset >= self._counted:
                self._newest = item.offset
            self._counted = self._part.position
        if self._entered:
            for item in self._include(self._entered):
                self._newest = item.offset
                self._add(item)
            self._entered.clear()
        self._evict_growth()

    def come_back(self, item: Item) -> None:
        """See `Feature.come_back`. It may be evicted at once, unless it has just expired."""
        if self._part.open and item.state in WAITS:
            self._add(item)
            self._evict_surplus(self._messages, self._bytes)

    def keep(self, item: Item) -> None:
        """See `Feature.keep`. It does not count."""
        assert self._meter is not None
        self._meter.exclude(item)

    # ---------------------------------------------------------------- counting

    def _include(self, items: Iterable[Item]) -> list[Item]:
        """Count messages from now on, and return them.

        A message that alone is too large is evicted at once.
        """
        waiting = [item for item in items if item.state is _AVAILABLE]  # others are scheduled, or have expired
        sizes = [0] * len(waiting)
        if self._weighs:
            sizes = [size_of(item.key, item.value, item.headers) for item in waiting]
            if max(sizes, default=0) > self._bytes:
                for item, size in zip(waiting, sizes):
                    if size > self._bytes:
                        self._ring.found_oversized(item, size, int(self._bytes))
                        self._evict(item)
                waiting = [item for item, size in zip(waiting, sizes) if size <= self._bytes]
                sizes = [size for size in sizes if size <= self._bytes]
        if self._meter is not None:
            self._meter.include(waiting, sizes)
        return waiting

    def _add(self, item: Item) -> None:
        if item.offset < self._ordered:  # else `_evict_surplus` will add it
            self._order.add(item)

    # ---------------------------------------------------------------- evicting

    def _evict_growth(self) -> None:
        """Evict messages beyond the share, unless the depth has not grown since `prepare`.

        The depth may have been beyond the share because of messages in work, and an update must not cost another key
        its value.
        """
        messages, size = self._before
        self._evict_surplus(
            self._messages if self.messages > messages else math.inf,
            self._bytes if self.bytes > size else math.inf,
        )

    def _evict_surplus(self, most_messages: float, most_bytes: float) -> None:
        order = self._order
        spared: Item | None = None
        if self.messages > most_messages or self.bytes > most_bytes:
            self._exclude_expired()
        if self.messages > most_messages or self.bytes > most_bytes:
            order.extend([item for item in self._pending.since(self._ordered) if item.state in WAITS])
            self._ordered = self._counted
        while self.messages > most_messages or self.bytes > most_bytes:
            item = order.pop()
            if item is None:
                break
            if item.offset == self._newest:
                spared = item  # the newest message stays, whatever else is evicted
                continue
            self._evict(item)
            if not self._evicts:
                self._evicts = True
                self._ring.crossings += 1
        if spared is not None:
            order.add(spared)
        if self._evicts and self.messages <= RESUME * self._messages and self.bytes <= RESUME * self._bytes:
            self._evicts = False

    def _exclude_expired(self) -> None:
        """Stop counting the messages that have expired in work."""
        times, meter = self._times, self._meter
        if times is not None and times.expiring is not None and meter is not None:
            now = times.time.now
            for item in self._part.held.values():
                if item.expires < now:
                    meter.exclude(item)

    def _evict(self, item: Item) -> None:
        self._part.evict(item)
        self._ring.stats.evicted += 1


WAITS = frozenset(TRANSITIONS[MessageEvent.EVICT])
"""The states of a message that waits, and may be evicted."""

_SWEEP_AT_LEAST = 1024  # entries
_OFFSET = attrgetter("offset")


class EvictionOrder(Protocol):
    """The messages that wait, the next to be evicted first.

    Entries of messages that no longer wait are skipped, and removed once they may be the majority.
    """

    def __len__(self) -> int:
        """Return the number of entries."""

    def extend(self, items: Sequence[Item]) -> None:
        """Add messages that lie beyond all others, in the order of the log."""

    def add(self, item: Item) -> None:
        """Add a message that waits from now on, at any offset."""

    def pop(self) -> Item | None:
        """Remove and return the next message that waits, or return None if none does."""


class ByOffset:
    """The lowest offset first."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, Item]] = deque()  # in the order of the log
        self._returned: LazyHeap[Item] = LazyHeap(_is_current)
        self._sweep_at = _SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._line) + len(self._returned)

    def extend(self, items: Sequence[Item]) -> None:
        """See `EvictionOrder.extend`."""
        self._line.extend(zip(map(_OFFSET, items), items))
        if len(self._line) >= self._sweep_at:
            self._line = deque(entry for entry in self._line if _is_current(*entry))
            self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._line))

    def add(self, item: Item) -> None:
        """See `EvictionOrder.add`."""
        self._returned.add(item.offset, item)

    def pop(self) -> Item | None:
        """See `EvictionOrder.pop`."""
        line = self._line
        while line and not _is_current(*line[0]):
            line.popleft()
        lowest = self._returned.lowest
        if lowest is not None and not (line and line[0][0] < lowest):
            return self._returned.pop()
        return line.popleft()[1] if line else None


class ByRank:
    """The worst rank first, and of one rank the lowest offset."""

    def __init__(self) -> None:
        self._waiting: LazyHeap[Item] = LazyHeap(lambda key, item: _is_current(key[1], item))

    def __len__(self) -> int:
        return len(self._waiting)

    def extend(self, items: Sequence[Item]) -> None:
        """See `EvictionOrder.extend`."""
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """See `EvictionOrder.add`."""
        self._waiting.add((_worst_first(rank_of(item)), item.offset), item)

    def pop(self) -> Item | None:
        """See `EvictionOrder.pop`."""
        return self._waiting.pop()


def _is_current(offset: int, item: Item) -> bool:
    """Return whether the message of an entry still waits.

    The object may have been reused for a newer message.
    """
    return item.offset == offset and item.state in WAITS


def _worst_first(rank: Rank) -> Any:
    return -rank if isinstance(rank, int) else _Reversed(rank)


class _Reversed(bytes):
    """Bytes in descending order."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)
