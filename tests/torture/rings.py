"""Rings: what is evicted is the lowest that waits, never in work, never too early, and never comes again (R12).

Processes record each eviction. It ends a message as an ack does, without a hand-out. A message that is set aside, to be
prefetched or counted first, is in work, and no journal says so: what such processes evict is judged by less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tests.torture.feed import Place, Sent
from tests.torture.handover import HandOvers
from tests.torture.history import Hold, Life
from tests.torture.journal import Kind
from tests.torture.tenures import Tenures

__all__ = ["Rings"]

_SLACK = 1.0  # seconds from the end of a delivery until the consumer knows of it


@dataclass(frozen=True, slots=True)
class _Eviction:
    life: Life
    at: float
    partition: int
    offset: int
    number: int
    """Those of one process ascend."""
    tenure: tuple[float, float] | None
    """From when to when the process had the partition."""

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset} was evicted at {self.at:.3f} by {self.life.name}"


class Rings:
    """The evictions of all processes, compared with what they held and handed out.

    Args:
        share: how many messages a partition may hold.
        holds: all holds by place, in order of time.
        find: called with each fault.
    """

    def __init__(
        self,
        share: int,
        lives: Sequence[Life],
        holds: Mapping[Place, Sequence[Hold]],
        tenures: Tenures,
        hand_overs: HandOvers,
        find: Callable[[str], None],
    ) -> None:
        self._share = share
        self._holds = holds
        self._tenures = tenures
        self._hand_overs = hand_overs
        self._find = find
        self._evictions = [
            _Eviction(
                life,
                event.at,
                partition := event.facts["partition"],
                event.facts["offset"],
                number,
                tenures.at(life, partition, event.at),
            )
            for life in lives
            for number, event in enumerate(life.events)
            if event.kind is Kind.EVICTED
        ]
        self.evicted: Collection[Place] = {eviction.place for eviction in self._evictions}
        """The messages that are done without a hand-out."""
        self._aside = {life.name for life in lives if life.counts}
        self._aside |= {hold.life.name for of_place in holds.values() for hold in of_place if hold.ahead}
        self.compared = 0
        """Evictions that were compared with what the partition held."""

    def check(self, stored: Mapping[Place, Sent], sent_at: Mapping[Place, float]) -> None:
        """Check all rules."""
        for eviction in self._evictions:
            self._not_in_work(eviction)
            self._stays_away(eviction)
        self._needed(stored, sent_at)
        for (life, partition, begin), evictions, holds in self._by_tenure():
            if life.name not in self._aside:
                self._lowest_first(evictions, holds)
                self._within_share(life, partition, begin, evictions, holds)

    # ---------------------------------------------------------------- one eviction

    def _not_in_work(self, eviction: _Eviction) -> None:
        for hold in self._holds.get(eviction.place, ()):
            if hold.life is eviction.life and hold.acquired < eviction.at < _end(hold):
                self._find(f"G9: {eviction}, while {hold} was in work")

    def _stays_away(self, eviction: _Eviction) -> None:
        """Check that the message comes not again in the same assignment, nor after the eviction was committed."""
        again = [hold for hold in self._holds.get(eviction.place, ()) if hold.asked > eviction.at]
        if not again:
            return
        tenure = eviction.tenure
        committed = self._committed(eviction, inf if tenure is None else tenure[1])
        for hold in again:
            if hold.life is eviction.life and tenure is not None and hold.acquired <= tenure[1]:
                self._find(f"R12: {eviction}, and {hold} was handed out afterwards, in the same assignment")
            elif hold.asked > committed:
                self._find(f"R12: {eviction}, committed by {committed:.3f}, and {hold} was handed out afterwards")

    def _committed(self, eviction: _Eviction, end: float) -> float:
        """Return when an eviction was certainly committed: with a later ack, or as the partition was handed over."""
        facts = {"key": "", "value": "", "count": 0, "redelivered": False}
        like_an_ack = Hold(
            eviction.life, 0, *eviction.place, **facts, asked=eviction.at, acquired=eviction.at, acked=True
        )
        like_an_ack.let_go = eviction.at
        later = (
            hold.durable
            for (partition, _), holds in self._holds.items()
            if partition == eviction.partition
            for hold in holds
            if hold.life is eviction.life and hold.acked and eviction.at < hold.let_go < end
        )
        return min(self._hand_overs.done(like_an_ack), min(later, default=inf))

    # ---------------------------------------------------------------- only beyond the share

    def _needed(self, stored: Mapping[Place, Sent], sent_at: Mapping[Place, float]) -> None:
        """Check that beside each evicted message there may have been as many as the partition may hold.

        That is the newest of each key above it that was sent and not known to be done, and what was in work below it.
        """
        sent: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for place in stored:
            sent[place[0]].append((sent_at.get(place, 0.0), place[1]))
        for log in sent.values():
            log.sort()
        in_work: dict[tuple[str, int], list[Hold]] = defaultdict(list)
        for (partition, _), holds in self._holds.items():
            for hold in holds:
                in_work[hold.life.name, partition].append(hold)
        gone: dict[object, dict[int, float]] = defaultdict(dict)
        for one in self._evictions:
            gone[one.life.name, one.partition, one.tenure][one.offset] = one.at
        for eviction in self._evictions:
            life = eviction.life
            if life.name in self._aside or eviction.at > life.killed - _SLACK:
                continue
            self.compared += 1
            below = sum(
                hold.offset < eviction.offset and hold.asked <= eviction.at <= _known_end(hold)
                for hold in in_work[life.name, eviction.partition]
            )
            mine = gone[life.name, eviction.partition, eviction.tenure]
            beside = below + self._above(eviction, sent[eviction.partition], stored, mine, self._share - below)
            if beside < self._share:
                self._find(
                    f"R12: {eviction}, and there were {beside} others at most, where the partition may hold "
                    f"{self._share}"
                )

    def _above(
        self,
        eviction: _Eviction,
        log: Sequence[tuple[float, int]],
        stored: Mapping[Place, Sent],
        gone: Mapping[int, float],
        enough: int,
    ) -> int:
        """Return how many keys may have had a message above an evicted one; no more than ``enough``."""
        seen = {stored.get(eviction.place, (None, None))[0]}
        found = 0
        for at in range(bisect_right(log, (eviction.at, inf)) - 1, -1, -1):
            offset = log[at][1]
            key, value = stored[eviction.partition, offset]
            if found >= enough:
                break
            if offset <= eviction.offset or value is None or (key is not None and key in seen):
                continue  # whether a delete was read yet is unknown
            seen.add(key)
            done = gone.get(offset, inf) < eviction.at or any(
                hold.durable < eviction.at for hold in self._holds.get((eviction.partition, offset), ())
            )
            found += not done
        return found

    # ---------------------------------------------------------------- one assignment

    def _by_tenure(self) -> list[tuple[tuple[Life, int, float], Sequence[_Eviction], Sequence[Hold]]]:
        """Return the evictions and the hand-outs of each assignment of a partition, each in order of time."""
        lives: dict[str, Life] = {}
        evictions: dict[tuple[str, int, float], list[_Eviction]] = defaultdict(list)
        holds: dict[tuple[str, int, float], list[Hold]] = defaultdict(list)
        for eviction in self._evictions:
            if eviction.tenure is not None:
                lives[eviction.life.name] = eviction.life
                evictions[eviction.life.name, eviction.partition, eviction.tenure[0]].append(eviction)
        for of_place in self._holds.values():
            for hold in of_place:
                tenure = self._tenures.of(hold)
                if tenure is not None:
                    lives[hold.life.name] = hold.life
                    holds[hold.life.name, hold.partition, tenure[0]].append(hold)
        return [
            (
                (lives[name], partition, begin),
                sorted(evictions[name, partition, begin], key=lambda one: one.number),
                sorted(holds[name, partition, begin], key=lambda hold: hold.number),
            )
            for name, partition, begin in {**evictions, **holds}
        ]

    def _lowest_first(self, evictions: Sequence[_Eviction], holds: Sequence[Hold]) -> None:
        """Check that nothing lower waited when a message was evicted.

        A lower one was read, and waited if it was evicted or handed out afterwards, and not in work before.
        """
        by_offset: dict[int, list[Hold]] = defaultdict(list)
        for hold in holds:
            by_offset[hold.offset].append(hold)
        waiting = [(one.at, one.offset, one.number) for one in evictions]
        waiting += [(hold.asked, hold.offset, 0) for hold in holds]
        waiting.sort()
        begin = 0
        for eviction in evictions:
            while begin < len(waiting) and waiting[begin][0] < eviction.at:
                begin += 1
            for until, offset, number in waiting[begin:]:
                if offset >= eviction.offset or (number and number < eviction.number):
                    continue
                if not any(hold.asked <= eviction.at <= _known_end(hold) for hold in by_offset[offset]):
                    self._find(f"R12: {eviction}, while the lower one at {offset} waited until {until:.3f}")
                    break

    def _within_share(
        self, life: Life, partition: int, begin: float, evictions: Sequence[_Eviction], holds: Sequence[Hold]
    ) -> None:
        """Check that no more messages wait than the partition may hold.

        One waits when a later one was evicted or handed out, so that it was read, until it is itself.
        """
        ends: dict[int, float] = {}
        events: list[tuple[int, float]] = []  # by offset, by when it and all below it were read
        for hold in holds:
            events.append((hold.offset, hold.acquired))
            ends.setdefault(hold.offset, hold.asked)
        for eviction in evictions:
            events.append((eviction.offset, eviction.at))
            ends.setdefault(eviction.offset, eviction.at)
        events.sort(reverse=True)
        changes: list[tuple[float, int]] = []
        read, at = inf, 0
        for offset in sorted(ends, reverse=True):
            while at < len(events) and events[at][0] > offset:
                read = min(read, events[at][1])
                at += 1
            if read < ends[offset]:
                changes += [(read, 1), (ends[offset], -1)]
        waiting = most = 0
        when = begin
        for at_time, change in sorted(changes):
            waiting += change
            if waiting > most:
                most, when = waiting, at_time
        if most > self._share:
            self._find(
                f"R12: {most} messages waited in partition {partition} at {when:.3f}, and {life.name} kept them, where "
                f"{self._share} may be"
            )


def _end(hold: Hold) -> float:
    """Return until when a message was in work; a rejected one until its letter is stored."""
    return hold.durable if hold.rejected and hold.durable < inf else hold.let_go


def _known_end(hold: Hold) -> float:
    """Return by when the consumer knew that a message was in work no longer. A frozen one learns it later."""
    end = _end(hold)
    for begin, until in hold.life.stops:
        if begin <= end + _SLACK:
            end = max(end, until)
    return end + _SLACK
