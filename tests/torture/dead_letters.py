"""Checks of the dead letter topic against rejections and delivery counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from tests.torture.feed import Place, Sent
from tests.torture.history import Hold
from tests.torture.tenures import Tenures

__all__ = ["DeadLetter", "DeadLetters"]

_GIVEN_UP = "delivered "  # the beginning of the library's own reason
_CLOCKS = 0.5  # seconds that the clocks of letters and journals may differ


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the dead letter topic. ``at`` is when it was written, by the journals' clock."""

    source: Place
    key: str
    value: str
    count: int
    reason: str
    at: float

    @property
    def given_up(self) -> bool:
        """Return whether the library rejected it after ``max_deliveries``. Otherwise a worker rejected it."""
        return self.reason.startswith(_GIVEN_UP)

    def __str__(self) -> str:
        return f"dead letter of {self.source[0]}/{self.source[1]} ({self.key}={self.value}), {self.reason!r}"


class DeadLetters:
    """The dead letters of a run.

    Args:
        holds: all holds by place, in order of time.
        max_deliveries: the limit of all consumers that have one.
        outages: times when the broker could not answer, from and to; none where letters are part of transactions.
        find: called with each fault.
    """

    def __init__(
        self,
        letters: Sequence[DeadLetter],
        holds: Mapping[Place, Sequence[Hold]],
        max_deliveries: int,
        outages: Sequence[tuple[float, float]],
        find: Callable[[str], None],
    ) -> None:
        self._outages = outages
        self._letters = letters
        self._holds = holds
        self._max = max_deliveries
        self._find = find
        self._by_reason: dict[str, list[DeadLetter]] = defaultdict(list)
        for letter in letters:
            self._by_reason[letter.reason].append(letter)
        self.buried = {letter.source for letter in letters}
        """The messages that have a dead letter."""
        self.exhausted = {
            (hold.partition, hold.offset)
            for held in holds.values()
            for hold in held
            if hold.count >= max_deliveries and hold.durable == inf
        }
        """The messages that a consumer may have been about to give up when it ended."""

    @property
    def counts(self) -> Counter[str]:
        """Return the number of dead letters, by who rejected the message."""
        return Counter("delivered too often" if letter.given_up else "rejected" for letter in self._letters)

    def contents(self, stored: Mapping[Place, Sent], *, standard: bool) -> None:
        """Check that each dead letter equals the message that was sent.

        In a standard queue, where each message stands alone, the key of its letter is its position (R35). Elsewhere, a
        message that was sent without a key has one of its own (R1).
        """
        for letter in self._letters:
            key, value = stored.get(letter.source, (None, None))
            partition, offset = letter.source
            if standard:
                is_key = letter.key.endswith(f"/{partition}/{offset}")
            else:
                is_key = letter.key.startswith(f"{UNKEYED_HEADER}:") if key is None else letter.key == key
            if value != letter.value or not is_key:
                self._find(f"{letter} is not what was sent: {key}={value}")

    def rejected(self) -> None:
        """Check that each durable rejection has one dead letter, or copies of it, and each dead letter a rejection."""
        known: set[str] = set()
        for hold in (hold for holds in self._holds.values() for hold in holds if hold.rejected):
            reason = hold.signature
            known.add(reason)
            letters = [one for one in self._by_reason[reason] if one.source == (hold.partition, hold.offset)]
            if hold.durable < inf and not letters:
                self._find(f"lost: {hold} was rejected, durably, and has no dead letter")
            if len(letters) > 1 and not self._stored_twice(hold, letters):
                self._find(f"{hold} has {len(letters)} dead letters")
            if letters and hold.aborted:
                self._find(f"{hold} was rejected in a transaction that was aborted, and has a dead letter")
            if letters and letters[0].count != hold.count:
                self._find(f"the dead letter of {hold} says {letters[0].count} deliveries, it was the {hold.count}.")
        for letter in self._letters:
            if not letter.given_up and letter.reason not in known:
                self._find(f"{letter}: nobody has rejected it")

    def _stored_twice(self, hold: Hold, letters: Sequence[DeadLetter]) -> bool:
        """Return whether these may be copies of one letter, which an outage let a leader store again (G14)."""
        last = max(letter.at for letter in letters) + _CLOCKS
        disturbed = any(begin <= last and hold.acquired <= end for begin, end in self._outages)
        return disturbed and len({replace(letter, at=0.0) for letter in letters}) == 1

    def given_up(self, tenures: Tenures, sent_at: Mapping[Place, float]) -> None:
        """Check that messages were given up after as many deliveries as allowed, and not durably acked before."""
        for letter in self._letters:
            if not letter.given_up:
                continue
            holds = [hold for hold in self._holds.get(letter.source, ()) if hold.acquired < letter.at + _CLOCKS]
            most = tenures.most(letter.source[0], len(holds), sent_at.get(letter.source, 0.0), letter.at + _CLOCKS)
            if letter.count < self._max:
                self._find(f"{letter} was given up after {letter.count} deliveries, {self._max} are allowed")
            elif letter.count > most:
                self._find(f"{letter} says {letter.count} deliveries, and no more than {most} can have been counted")
            for hold in holds:
                if hold.durable + _CLOCKS < letter.at:
                    self._find(f"G11: {letter} was written after {hold} was settled, durably at {hold.durable:.3f}")
