"""The expiry of messages, by the TTL that their queue had when they were appended (R10)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl, in_ms, own_ttl

__all__ = ["ExpiryTimes"]

_MOST_KNOWN = 4096  # different TTLs; more are read each time


class ExpiryTimes:
    """Judges when messages of one queue expire, for one reader.

    Anyone can write any header. A TTL that is 0 or cannot be read counts as none, and is counted.
    """

    header = TTL_HEADER
    expected = "a positive number of milliseconds"

    def __init__(self, ttl: Ttl) -> None:
        self.malformed = 0
        """The number of messages whose TTL is 0 or could not be read."""
        self.example: bytes | None = None
        """The first such value."""
        self._minimum = 0 if ttl.minimum is None else in_ms(ttl.minimum)
        self._maximum = NEVER if ttl.maximum is None else in_ms(ttl.maximum)
        usual = ttl.maximum if ttl.default is None else ttl.default
        self._usual = NEVER if usual is None else in_ms(usual)
        self._known: dict[bytes | None, int] = {}  # TTLs in ms, by the value of the header: there are few of them

    @classmethod
    def of(cls, ttl: Ttl | None, earlier: Sequence[EarlierTerms] = ()) -> ExpiryTimes | None:
        """Return the judge of a queue; None if its messages never expire.

        Args:
            ttl: the lifetimes of messages; None if none expires.
            earlier: what the queue said before, oldest first.
        """
        if any(terms.expires for terms in earlier):
            return _InTurn(ttl, earlier)
        newest = None if ttl is None or ttl.never else cls(ttl)
        return _InTurn(ttl, earlier) if newest is not None and earlier else newest

    def expiry(self, timestamp: int, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
        """Return the last moment at which a message counts, in ms since the epoch; or `NEVER`."""
        ttl = self._usual
        for name, value in headers or ():
            if name == TTL_HEADER:  # the last one counts
                ttl = self._known.get(value) or self._learn(value)
        return min(timestamp + ttl, NEVER) if ttl < NEVER else NEVER

    def expiries(
        self, timestamps: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]] | None], *, plain: bool
    ) -> list[int]:
        """Return the `expiry` of each of these messages.

        Args:
            plain: whether none of them has a header other than the queue's key header.
        """
        found = self._unbounded(timestamps, headers, plain=plain)
        # Where producers set the times, a time may be any number of 64 bits.
        return found if max(found, default=0) <= NEVER else [min(expiry, NEVER) for expiry in found]

    def _unbounded(
        self, timestamps: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]] | None], *, plain: bool
    ) -> list[int]:
        """Return the result of `expiries`, but not limited to 64 bits."""
        if not plain and any(headers):
            # Producers send the TTL last; such a message is judged without a call.
            known = self._known.get
            return [
                timestamp + ttl
                if cells and cells[-1][0] == TTL_HEADER and (ttl := known(cells[-1][1]))
                else self.expiry(timestamp, cells)
                for timestamp, cells in zip(timestamps, headers)
            ]
        if self._usual == NEVER:
            return [NEVER] * len(timestamps)
        usual = self._usual
        return [timestamp + usual for timestamp in timestamps]

    def _learn(self, value: bytes | None) -> int:
        """Return the TTL, in ms, of a message whose header has this value."""
        own = own_ttl(value)
        if own is None:
            self.malformed += 1
            self.example = self.example or value
            return self._usual
        ttl = min(max(own, self._minimum), self._maximum)
        if len(self._known) < _MOST_KNOWN:
            self._known[value] = ttl
        return ttl


class _InTurn(ExpiryTimes):
    """Judges each message by the TTL that its queue had at its append time."""

    def __init__(self, ttl: Ttl | None, earlier: Sequence[EarlierTerms]) -> None:
        super().__init__(Ttl())
        self._untils = [terms.until for terms in earlier]
        self._judges = [ExpiryTimes.of(one) for one in (*(terms.ttl for terms in earlier), ttl)]

    def expiry(self, timestamp: int, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
        judge = self._judges[bisect_right(self._untils, timestamp)]
        if judge is None:
            return NEVER
        found = judge.expiry(timestamp, headers)
        self._count(judge)
        return found

    def _unbounded(
        self, timestamps: Sequence[int], headers: Sequence[Sequence[tuple[str, bytes | None]] | None], *, plain: bool
    ) -> list[int]:
        if min(timestamps, default=0) < self._untils[-1]:
            return [self.expiry(timestamp, cells) for timestamp, cells in zip(timestamps, headers)]
        newest = self._judges[-1]
        if newest is None:
            return [NEVER] * len(timestamps)
        found = newest._unbounded(timestamps, headers, plain=plain)
        self._count(newest)
        return found

    def _count(self, judge: ExpiryTimes) -> None:
        if judge.malformed:
            self.malformed += judge.malformed
            self.example = self.example or judge.example
            judge.malformed = 0
