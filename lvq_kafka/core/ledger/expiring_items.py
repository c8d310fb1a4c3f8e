"""The messages of a consumer that will expire."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter

from lvq_kafka.core.log.records import RawHeaders
from lvq_kafka.core.timing.expiry_queue import BUCKET, ExpiryQueue
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, own_ttl
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent
from lvq_kafka.core.waiting.pending import Item, PendingList

__all__ = ["Expiring"]

_WAITS = frozenset(TRANSITIONS[MessageEvent.EXPIRE])
_SET_ASIDE = frozenset(TRANSITIONS[MessageEvent.RELEASE])
_FIRST = _NAME = itemgetter(0)
_TOGETHER = 250  # messages
_ALL = 1 << 62


class Expiring:
    """The messages of a ledger that expire while they wait or are set aside.

    A message that a holder has received is not among them. It is scheduled again if it is returned.

    Most messages are consumed, or replaced, long before they expire. So messages that are read together are noted
    together, at the earliest of their expiry times. Only those that still wait by then are examined one by one.

    Args:
        expiry_times: when a message expires.
        time: the time by which messages expire.
    """

    def __init__(self, expiry_times: ExpiryTimes, time: LogTime) -> None:
        self.expiry_times = expiry_times
        self.malformed: tuple[int, int] | None = None
        """Partition and offset of the first message whose TTL is 0 or could not be read."""
        self._time = time
        self._queue: ExpiryQueue[Item] = ExpiryQueue(self)

    @property
    def next(self) -> float:
        """A time before which nothing expires, in ms; infinite if nothing will."""
        first = self._queue.next
        return math.inf if first is None else first

    # ---------------------------------------------------------------- scheduling

    def schedule(self, pending: PendingList, since: int) -> list[Item]:
        """Schedule the messages just read: those at or above an offset.

        Returns the messages that have expired already.
        """
        items: list[Item] = []
        item = pending.last
        while item is not None and item.offset >= since:
            if item.state in _WAITS:
                items.append(item)
            item = item.before
        return [one for at in range(0, len(items), _TOGETHER) for one in self._schedule(items[at : at + _TOGETHER])]

    def schedule_one(self, item: Item) -> bool:
        """Schedule a message that counts from now on. Returns whether it has expired already."""
        return bool(self._schedule([item]))

    def _schedule(self, items: list[Item]) -> list[Item]:
        expiries = self._judge(items)
        for item, expires in zip(items, expiries):
            item.expires = expires
        first, now, queue = min(expiries), self._time.now, self._queue
        if first >= now and first >> BUCKET > queue.opened:
            if first != NEVER:
                queue.extend(first >> BUCKET, items)
            return []
        for item in items:
            if now <= item.expires != NEVER:
                self._note(item)
        return [item for item in items if item.expires < now]

    def schedule_again(self, item: Item, twin: Item) -> None:
        """Schedule a message that was returned, under its new handle."""
        twin.expires = item.expires
        if twin.expires != NEVER:
            self._note(twin)

    def _note(self, item: Item) -> None:
        self._queue.add(item, item.expires)

    def _judge(self, items: Sequence[Item]) -> list[int]:
        expiry_times, before = self.expiry_times, self.expiry_times.malformed
        headers = [item.headers for item in items]
        expiries = expiry_times.expiries([item.timestamp for item in items], headers, plain=_have_no_ttl(headers))
        if expiry_times.malformed > before and self.malformed is None:
            self.malformed = next((item.partition, item.offset) for item in reversed(items) if _is_malformed(item))
        return expiries

    # ---------------------------------------------------------------- expiring

    def pop_expired(self) -> list[Item]:
        """Return the messages that have expired."""
        now = self._time.now
        return self._queue.pop_due(now, _ALL) if self.next < now else []

    def tidy(self, count: Callable[[], int]) -> None:
        """Forget messages that were consumed or replaced, once they may be most of the entries.

        Args:
            count: returns the number of messages that are not done.
        """
        self._queue.tidy(count)

    def due(self, item: Item, bucket: int) -> int | None:
        """See `Schedule.due`."""
        return item.expires if _counts(item) and item.expires != NEVER else None

    def moved(self, item: Item, bucket: int) -> None:
        """See `Schedule.moved`."""


def _counts(item: Item) -> bool:
    return item.state in _WAITS or (item.reserved and item.state in _SET_ASIDE)


def _have_no_ttl(headers: Sequence[RawHeaders]) -> bool:
    """Return whether each message has exactly one header, which is not a TTL."""
    if not all(headers):
        return False
    given: Sequence[Sequence[tuple[str, bytes | None]]] = headers  # type: ignore[assignment]
    return sum(map(len, given)) == len(given) and TTL_HEADER not in map(_NAME, map(_FIRST, given))


def _is_malformed(item: Item) -> bool:
    return any(name == TTL_HEADER and own_ttl(value) is None for name, value in item.headers or ())
