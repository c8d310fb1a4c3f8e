"""A partition: an append-only log with transactions, compaction and truncation. Offsets are never reused."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from operator import attrgetter

from lvq_kafka.core.queue.message_groups import GROUP_HEADER
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.core.timing.ttl import TTL_HEADER

__all__ = ["MOST_SKEW", "Entry", "Lane", "Log", "Transaction"]

MOST_SKEW = 2000
"""The most milliseconds by which a clock differs from the cluster's."""

Lane = bytes | int
"""The key that a record conflates by. A record without a key conflates with nothing; its lane is its offset."""

_OFFSET = attrgetter("offset")


class Transaction:
    """A transaction. It commits or aborts once."""

    __slots__ = ("committed", "open")

    def __init__(self) -> None:
        self.open = True
        self.committed = False


class Entry:
    """A record in the log. A ``value`` of None is a delete."""

    __slots__ = ("due", "expires", "headers", "key", "lane", "offset", "timestamp", "transaction", "value")

    def __init__(
        self,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction | None,
        timestamp: int,
        headers: list[tuple[str, bytes]],
        expires: float,
        due: float,
    ) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.lane: Lane = offset if key is None else key
        self.transaction = transaction
        self.timestamp = timestamp
        """The time of the append, in ms."""
        self.headers = headers
        self.expires = expires
        """The last moment at which it counts, in ms."""
        self.due = due
        """The first moment at which it counts, in ms."""


class Log:
    """A partition. Reading stops at ``stable_end``, before the first open transaction.

    Args:
        times: from when until when messages count: as long as they say, or by default; and what that was before.
        groups: the number of message groups.
        ranked: whether messages have a priority.
    """

    def __init__(self, times: TimeRule = ALWAYS, groups: int = 0, *, ranked: bool = False) -> None:
        self._groups = groups
        self._ranked = ranked
        self._times = times
        self.start = 0
        self.end = 0
        self.stable_end = 0
        self.newest: dict[Lane, Entry] = {}
        """By lane, the newest record that was ever readable, even if the cleaner has removed it since."""
        self._readable: dict[Lane, list[Entry]] = {}  # all that ever were, likewise
        self._entries: list[Entry] = []
        self._unread: deque[Entry] = deque()  # at or above the stable end
        self._open: dict[Transaction, int] = {}  # first offset of each

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        transaction: Transaction | None = None,
        *,
        timestamp: int = 0,
        ttl: int | None = None,
        delay: int | None = None,
    ) -> None:
        """Append a record. Its own TTL and its delay are in ms."""
        headers = [(PRIORITY_HEADER, b"%d" % (self.end * 7 % 10))] if self._ranked else []
        headers += [] if ttl is None else [(TTL_HEADER, b"%d" % ttl)]
        headers += [] if delay is None else [(NOT_BEFORE_HEADER, b"%d" % (timestamp + delay))]
        group = self.end // 2 % (self._groups + 1)
        headers += [(GROUP_HEADER, b"g%d" % group)] if group else []
        terms: TimeRule | EarlierTerms = next(
            (one for one in self._times.earlier if timestamp < one.until), self._times
        )
        usual = math.inf if terms.ttl is None or terms.ttl.default is None else terms.ttl.default * 1000
        expires = math.inf if terms.ttl is None else timestamp + (ttl or usual)  # 0 says none (R10)
        due = timestamp + min(delay or 0, (terms.max_delay or 0.0) * 1000)
        entry = Entry(self.end, key, value, transaction, timestamp, headers, expires, due)
        self.end += 1
        self._entries.append(entry)
        self._unread.append(entry)
        if transaction is not None:
            self._open.setdefault(transaction, entry.offset)

    def decide(self, transaction: Transaction) -> None:
        """Append the marker of a decided transaction if it wrote to this partition. The marker takes an offset."""
        if self._open.pop(transaction, None) is not None:
            self.end += 1

    def settle(self) -> list[Entry]:
        """Update the stable end; return the records that became readable."""
        self.stable_end = min(self._open.values(), default=self.end)
        unread, readable = self._unread, []
        while unread and unread[0].offset < self.stable_end:
            entry = unread.popleft()
            if entry.transaction is None or entry.transaction.committed:
                self.newest[entry.lane] = entry
                self._readable.setdefault(entry.lane, []).append(entry)
                readable.append(entry)
        return readable

    def read(self, position: int, most: int) -> tuple[list[Entry], int]:
        """Return the next readable records and the position after them, past gaps and markers if none are left."""
        found: list[Entry] = []
        entries = self._entries
        for at in range(bisect_left(entries, position, key=_OFFSET), len(entries)):
            entry = entries[at]
            if entry.offset >= self.stable_end:
                break
            if entry.transaction is None or entry.transaction.committed:
                if len(found) == most:
                    return found, found[-1].offset + 1
                found.append(entry)
        return found, max(position, self.stable_end)

    def current(self, lane: Lane, time: float) -> Entry | None:
        """Return the record of a lane that counts at a time, in ms."""
        return next((entry for entry in reversed(self._readable[lane]) if entry.due <= time), None)

    def has(self, offset: int) -> bool:
        """Return whether a record is still in the log."""
        at = bisect_left(self._entries, offset, key=attrgetter("offset"))
        return at < len(self._entries) and self._entries[at].offset == offset

    def compact(self, mask: int, now: float, *, keeps_deletes: bool = False) -> int:
        """Remove some records: aborted or superseded ones, and deletes, each if no older record of its key is left.

        A broker's cleaner copies a log from its start and replaces its segments in that order, so what it leaves of a
        key when it is interrupted are the newest records.

        Where messages may be scheduled, what is younger than the compaction lag is neither removed nor removes others.

        Args:
            now: the time in ms.
            keeps_deletes: whether deletes are too young to be removed, as far as all who read are concerned.

        Returns:
            The number of records removed.
        """
        kept: list[Entry] = []
        lanes: set[Lane] = set()  # of the records kept
        longest = (self._times.longest_delay or 0.0) * 1000
        lag = longest and longest + MOST_SKEW
        old = [entry for entry in self._entries if entry.offset < self.stable_end and entry.timestamp + lag <= now]
        newest = {entry.lane: entry for entry in old if entry.transaction is None or entry.transaction.committed}
        for at, entry in enumerate(self._entries):
            if entry.offset >= self.stable_end or entry.timestamp + lag > now:
                kept += self._entries[at:]
                break
            aborted = entry.transaction is not None and not entry.transaction.committed
            is_newest = not aborted and newest[entry.lane] is entry
            obsolete = not is_newest or (entry.value is None and not keeps_deletes)
            if obsolete and (aborted or entry.lane not in lanes) and mask >> at % 8 & 1:
                continue
            kept.append(entry)
            if not aborted:
                lanes.add(entry.lane)
        gone = len(self._entries) - len(kept)
        self._entries = kept
        return gone

    def delete_records(self, before: int) -> list[Entry]:
        """Truncate the log; return the records removed."""
        at = bisect_left(self._entries, before, key=_OFFSET)
        gone, self._entries = self._entries[:at], self._entries[at:]
        self.start = before
        return gone
