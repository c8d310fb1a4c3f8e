"""Rings: the lowest waiting messages beyond a partition's share are evicted (R12).

An evicted message is done for its queue, as if it had been acked, and the next commit says so. It could not be left to
the next owner to evict it again: the message may lie above one in work, and the queue may be shorter by then.

It takes no more room in the commit map than the acks of what is in work: all that waited below an evicted message was
evicted before it, so between two messages in work there is one run. Where messages have ranks, or some are scheduled,
there may be more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from lvq_kafka.core.counted_pending import CountedPendingList
from lvq_kafka.core.ledger_stats import LedgerStats
from lvq_kafka.core.lifecycle import TRANSITIONS, Event, State
from lvq_kafka.core.limits import RESUME, Limits, size_of
from lvq_kafka.core.partition_ledger import PartitionLedger
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ranked_queue import rank_of
from lvq_kafka.core.ranking import Rank

__all__ = ["Oversized", "Ring", "RingPartition"]

_WAITS = frozenset(TRANSITIONS[Event.EVICT])
_AVAILABLE = State.AVAILABLE
_SPARE = 1024  # entries that may be obsolete, beside as many as there are messages

_Entry = tuple[Any, int, int, Item]  # precedence, offset, a tie breaker, message


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
        limits: those of the whole queue.
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

    def precedence(self, item: Item) -> Any:
        """Return a value that is less for a message that is evicted earlier, whatever the offsets."""
        return _worst_first(rank_of(item)) if self._ranked else 0


class RingPartition:
    """The ring of an assigned partition.

    Nothing is evicted before the partition has been read to its end: newer values and deletes further on decide what it
    holds.

    Args:
        pending: the partition's messages.
    """

    def __init__(self, part: PartitionLedger, pending: CountedPendingList, ring: Ring) -> None:
        self._part = part
        self._pending = pending
        self._ring = ring
        share = ring.limits.share(max(1, pending.loaded.partitions))
        self._messages = math.inf if share.messages is None else share.messages
        self._bytes = math.inf if share.bytes is None else share.bytes
        self._weighs = share.bytes is not None
        self._counted = 0  # the offset up to which all that was read has been looked at
        self._newest = -1  # the offset of the message that came last
        self._waiting: list[_Entry] = []  # a heap of what waits; some entries are obsolete
        self._ticks = count()
        self._before = 0, 0  # the depth before the last change, in messages and bytes
        self._evicts = False

    def prepare(self) -> None:
        """Note the depth before more is read or comes due."""
        self._before = self._pending.messages, self._pending.bytes

    def update(self) -> None:
        """Count what was read since `prepare`, and evict what is beyond the share."""
        if self._part.open and self._counted < self._part.position:
            new: list[Item] = []
            item = self._pending.last
            while item is not None and item.offset >= self._counted:
                new.append(item)
                item = item.before
            self._counted = self._part.position
            self.enter(reversed(new))

    def enter(self, items: Iterable[Item]) -> None:
        """Count messages that count from now on, and evict what is beyond the share.

        Nothing is evicted if they make the queue no longer than it was at `prepare`. It may have been beyond its share
        because of what is in work, and an update must not cost another key its value.
        """
        if not self._part.open:
            return
        waiting, precedence, ticks = self._waiting, self._ring.precedence, self._ticks
        for item in items:
            if item.state is not _AVAILABLE:
                continue  # it is scheduled, or has expired
            size = size_of(item.key, item.value, item.headers) if self._weighs else 0
            if size > self._bytes:
                self._ring.found_oversized(item, size, int(self._bytes))
                self._evict(item)
            else:
                self._pending.include(item, size)
                self._newest = item.offset
                heappush(waiting, (precedence(item), item.offset, next(ticks), item))
        messages, size = self._before
        self._evict_surplus(
            self._messages if self._pending.messages > messages else math.inf,
            self._bytes if self._pending.bytes > size else math.inf,
        )

    def come_back(self, item: Item) -> None:
        """Consider a message that a holder has returned, under its new handle."""
        if self._part.open:
            heappush(self._waiting, (self._ring.precedence(item), item.offset, next(self._ticks), item))
            self._evict_surplus(self._messages, self._bytes)

    def leave_out(self, item: Item) -> None:
        """Leave out a message that has expired, though it stays until it is stored elsewhere."""
        self._pending.exclude(item)

    # ---------------------------------------------------------------- evicting

    def _evict_surplus(self, most_messages: float, most_bytes: float) -> None:
        pending, waiting = self._pending, self._waiting
        spared: _Entry | None = None
        while waiting and (pending.messages > most_messages or pending.bytes > most_bytes):
            entry = heappop(waiting)
            if not _is_current(entry):
                continue
            if entry[1] == self._newest:
                spared = entry  # there is room for what came last, whatever else must go
                continue
            self._evict(entry[3])
            if not self._evicts:
                self._evicts = True
                self._ring.crossings += 1
        if spared is not None:
            heappush(waiting, spared)
        if self._evicts and pending.messages <= RESUME * self._messages and pending.bytes <= RESUME * self._bytes:
            self._evicts = False
        if len(waiting) > 2 * pending.messages + _SPARE:
            self._waiting = [entry for entry in waiting if _is_current(entry)]
            heapify(self._waiting)

    def _evict(self, item: Item) -> None:
        self._part.evict(item)
        self._ring.stats.evicted += 1


def _is_current(entry: _Entry) -> bool:
    """Return whether the message of an entry still waits.

    Its object may be that of a newer message by now.
    """
    _, offset, _, item = entry
    return item.offset == offset and item.state in _WAITS


def _worst_first(rank: Rank) -> Any:
    return -rank if isinstance(rank, int) else _Reversed(rank)


class _Reversed(bytes):
    """Bytes of which the greater come first."""

    __slots__ = ()

    def __lt__(self, other: bytes) -> bool:
        return bytes.__gt__(self, other)
