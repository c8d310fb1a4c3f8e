"""Producers of a queue that blocks: they keep to its limit, and wait only while there is no room (R12)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tests.torture.dead_letters import DeadLetter
from tests.torture.feed import Call, Place, Sent
from tests.torture.history import Hold

__all__ = ["Admissions"]

_NEWS = 5.0  # seconds from when something is stored or acked until all producers know, unless the broker is in trouble
_DECIDING = 1.0  # seconds between the end of a wait and that of its call
_PATIENCE = 20.0  # seconds of room after which no producer waits


@dataclass(slots=True)
class _Stay:
    """The time that a message may be in the queue, until a newer one of its key is."""

    call: Call
    settled: float
    """When it was first settled, whether that lasted or not; infinite if never."""
    done: float
    """When all producers knew that it was done."""
    replaced: float = inf
    """When a newer message or a delete of its key was under way."""
    deleted: float = inf
    """When a delete of its key was under way, if that was next."""


class Admissions:
    """The calls of all producers, compared with what the queue held.

    Args:
        most: how many messages the queue may hold.
        resume: the part of these down to which it must shrink before producers go on.
        calls: all calls that may have stored something, or waited.
        holds: all holds by place, in order of time.
        outages: times when the broker could not answer, from and to.
        find: called with each fault.
    """

    def __init__(
        self,
        most: int,
        resume: float,
        calls: Sequence[Call],
        holds: Mapping[Place, Sequence[Hold]],
        letters: Sequence[DeadLetter],
        outages: Sequence[tuple[float, float]],
        find: Callable[[str], None],
    ) -> None:
        self._most = most
        self._resume = resume
        self._calls = sorted(calls, key=lambda call: call.begin)
        self._holds = holds
        self._outages = outages
        self._find = find
        self._lettered: dict[Place, float] = {}
        for letter in letters:
            self._lettered[letter.source] = min(letter.at, self._lettered.get(letter.source, inf))
        self.near = 0
        """Admissions of new keys while the queue was certainly half full."""
        self.waits = 0
        """Calls that waited for more than a second."""

    def check(self, stored: Mapping[Place, Sent]) -> None:
        """Check all calls."""
        stays = self._stays(stored)
        self._within_limit(stays)
        self._no_needless_wait(stays)

    def _stays(self, stored: Mapping[Place, Sent]) -> list[_Stay]:
        last: dict[str, _Stay] = {}
        stays: list[_Stay] = []
        for call in self._calls:
            if call.place is None or call.place not in stored:
                continue
            if call.key is not None and call.key in last:
                before = last.pop(call.key)
                before.replaced = call.begin
                before.deleted = call.begin if call.value is None else inf
            if call.value is None:
                continue
            holds = self._holds.get(call.place, ())
            letter = self._lettered.get(call.place, inf)
            settled = min([letter, *(hold.let_go for hold in holds if hold.acked or hold.rejected)])
            done = letter
            if holds and holds[-1].acked:
                done = min(done, holds[-1].let_go + _NEWS)
            stay = _Stay(call, settled, done)
            stays.append(stay)
            if call.key is not None:
                last[call.key] = stay
        return stays

    def _within_limit(self, stays: Sequence[_Stay]) -> None:
        """Check that no producer adds a key to what it must know to be full.

        It knows its own messages, and those of others that it could have read. No message counts that may have been
        done or replaced by then.
        """
        of_key: dict[str, list[_Stay]] = defaultdict(list)
        present: list[_Stay] = []
        for stay in stays:
            call = stay.call
            begin = max(call.begin, call.end - _DECIDING)
            before = [] if call.key is None else of_key[call.key]
            is_update = any(self._may_hold(other, begin) for other in before)
            before.append(stay)
            present = [other for other in present if min(other.settled, other.replaced) > call.begin]
            known = sum(
                other.call.end <= (begin if other.call.producer == call.producer else begin - _NEWS)
                and min(other.settled, other.replaced) > call.end
                for other in present
            )
            present.append(stay)
            if is_update or self._troubled(begin - 2 * _NEWS, call.end):
                continue
            self.near += 2 * known >= self._most
            if known >= self._most:
                self._find(
                    f"R12: producer {call.producer} added {call.key}={call.value} at {call.end:.3f} to a queue with "
                    f"{known} messages, where {self._most} may be"
                )

    @staticmethod
    def _may_hold(stay: _Stay, at: float) -> bool:
        """Return whether a producer may have counted a message at a time."""
        return stay.done + _NEWS > at and stay.deleted > at - _NEWS

    def _no_needless_wait(self, stays: Sequence[_Stay]) -> None:
        """Check that no producer waits long while all know that there is room."""
        changes = sorted(
            change
            for stay in stays
            for change in ((stay.call.end - _DECIDING, 1), (min(stay.done, stay.replaced) + _NEWS, -1))
        )
        depths: list[tuple[float, int]] = [(-inf, 0)]
        for at, change in changes:
            depths.append((at, depths[-1][1] + change))
        for call in self._calls:
            self.waits += call.end - call.begin > _DECIDING
            if call.end - call.begin < _PATIENCE:
                continue
            since = call.begin
            first = bisect_left(depths, (call.begin, -1)) - 1
            for (_, depth), (until, _) in zip(depths[first:], [*depths[first + 1 :], (inf, 0)]):
                until = min(until, call.end)
                is_full = depth >= self._most or depth > self._resume * self._most
                if is_full or self._troubled(since - 2 * _NEWS, until):
                    since = until
                elif until - since > _PATIENCE:
                    self._find(
                        f"R12: producer {call.producer} waited with {call.key}={call.value} until {call.end:.3f}, and "
                        f"from {since:.3f} on there was room: {depth} messages, where {self._most} may be"
                    )
                    break
                if until >= call.end:
                    break

    def _troubled(self, begin: float, end: float) -> bool:
        return any(first < end and begin < last + _NEWS for first, last in self._outages)
