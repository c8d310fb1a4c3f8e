"""Random accidents of consumers and brokers, dealt from a deck of cards over and over."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.torture.coordinator import time_left
from tests.torture.members import Member, Members
from tests.torture.outages import Outage

__all__ = ["CARDS", "Chaos"]

CARDS = frozenset(
    {
        "kill",
        "kill all",
        "stop for less than the session",
        "stop beyond the session",
        "stop, then kill",
        "leave",
        "join",
    }
)
"""Accidents of consumers, without the outages of brokers."""

_GUEST = 9  # the slot of a member that joins for a while
_SOME = 40_000  # bytes of journals, about 200 messages
_PATIENCE = 20.0  # seconds
_LOOK = 0.1  # seconds
_UNDER_WAY = 0.5  # seconds to work off requests that were sent
_RESTART = 20.0  # seconds that a restart takes at most

Say = Callable[[str], None]


class Chaos:
    """Deals one card after another. A card's follow-up happens when it is due.

    Args:
        servers: the cluster's bootstrap servers.
        deck: the brokers' outages.
        session: seconds without a heartbeat after which the group drops a member.
        pause: seconds between two cards, from and to.
        transactional: whether consumers use transactions.
        progress: returns how much the consumers have done. Half of the cards wait for progress: otherwise a slow
            machine would do nothing but start processes.
    """

    def __init__(
        self,
        servers: str,
        deck: Sequence[Outage],
        members: Members,
        chance: random.Random,
        *,
        session: float,
        pause: tuple[float, float],
        transactional: bool,
        progress: Callable[[], int],
        say: Say,
    ) -> None:
        self._servers = servers
        self._deck = deck
        self._members = members
        self._chance = chance
        self._session = session
        self._pause = pause
        self._transactional = transactional
        self._progress = progress
        self._say = say
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._ties = itertools.count()
        self._clock = threading.Event()  # never set
        self.counts: Counter[str] = Counter()
        self.outages: list[tuple[float, float]] = []
        """Times when a broker could not answer, from and to."""
        self.memory = 0
        """Size of the largest process in bytes, at the end of outages."""

    def rage(self, seconds: float) -> None:
        """Deal cards for this long, but at least one whole deck; then let all consumers come back.

        Stop early if a process has ended by itself: when all do, later cards would find nobody to hit.
        """
        until = time.monotonic() + seconds
        cards: list[Callable[[], bool]] = []
        first = True
        while (first or time.monotonic() < until) and not self._members.failed():  # a failed member ends the run
            if not cards:
                cards = [
                    self._kill, self._kill, self._nap, self._nap, self._coma, self._die_asleep,
                    self._leave, self._join, self._kill_all, *(partial(self._befall, one) for one in self._deck),
                ]  # fmt: skip
                self._chance.shuffle(cards)
            self._wait(self._chance.uniform(*self._pause))
            if self._chance.random() < 0.5:
                self._await_progress()
            card = cards.pop()
            if not card():
                cards.insert(0, card)  # it found nobody to hit
            first = first and bool(cards)
        while self._later:
            self._wait(max(0.0, self._later[0][0] - time.monotonic()))

    # ---------------------------------------------------------------- cards

    def _kill(self) -> bool:
        member = self._members.one(self._chance)
        if member is not None:
            self._end(member, "kill")
        return member is not None

    def _kill_all(self) -> bool:
        running = [member for member in self._members.all if member.runs]
        for member in running:
            self._end(member, "kill all")
        return bool(running)

    def _nap(self) -> bool:
        return self._stop(
            "stop for less than the session", self._chance.uniform(0.1, 0.8) * self._session, Member.go_on
        )

    def _coma(self) -> bool:
        return self._stop("stop beyond the session", self._session + self._chance.uniform(1, 5), Member.go_on)

    def _die_asleep(self) -> bool:
        return self._stop("stop, then kill", self._chance.uniform(0.2, 1.2) * self._session, self._bury)

    def _leave(self) -> bool:
        member = self._members.one(self._chance)
        if member is not None:
            self._note(f"leave {member.name}")
            member.send_away()
            self._replace(member)
        return member is not None

    def _join(self) -> bool:
        guest = self._members.add(_GUEST)
        self._note(f"join {guest.name}")
        self._after(self._chance.uniform(3, 7), guest.send_away)
        return True

    def _befall(self, outage: Outage) -> bool:
        with self._stand_still(leaderless=outage.leaderless) as can:
            if not can:
                return False
            self._note(outage.name)
            begun = time.monotonic()
            outage.begin()
        self._wait(self._chance.uniform(*outage.lasts))
        self.memory = max(self.memory, self._members.memory())
        outage.end()
        self.outages.append((begun, time.monotonic()))
        return True

    @contextmanager
    def _stand_still(self, *, leaderless: bool) -> Iterator[bool]:
        """Stop all consumers at a moment when no transaction is about to end. Yield False if there is none.

        This matters for transactions when partitions lose their leader. Kafka 4.3 then completes a transaction without
        its markers (its issue 20734), as when a lone broker registers again. The commit is then neither visible nor
        counted for the group.
        """
        if not (self._transactional and leaderless):
            yield True
            return
        until = time.monotonic() + _PATIENCE
        while True:
            stopped = [member for member in self._members.present() if member.stopped is None]
            for member in stopped:
                member.stop()
            try:
                self._clock.wait(_UNDER_WAY)
                ends = min(time_left(self._servers).values(), default=_RESTART)
                if ends >= _RESTART or time.monotonic() > until:
                    yield ends >= _RESTART
                    return
            finally:
                for member in stopped:
                    member.go_on()
            self._clock.wait(_UNDER_WAY)

    # ---------------------------------------------------------------- inside

    def _end(self, member: Member, how: str) -> None:
        self._note(f"{how} {member.name}")
        member.kill()
        self._replace(member)

    def _stop(self, how: str, seconds: float, then: Callable[[Member], object]) -> bool:
        member = self._members.one(self._chance)
        if member is not None:
            self._note(f"{how} {member.name}")
            member.stop()
            self._after(seconds, lambda: then(member))
        return member is not None

    def _bury(self, member: Member) -> None:
        member.kill()
        self._replace(member)

    def _replace(self, member: Member) -> None:
        if member.slot != _GUEST:
            self._after(self._chance.uniform(0, 2), lambda: self._members.add(member.slot))

    def _note(self, what: str) -> None:
        self.counts[what.rstrip("0123456789.").rstrip()] += 1
        self._say(what)

    def _after(self, seconds: float, then: Callable[[], object]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._ties), then))

    def _await_progress(self) -> None:
        before, until = self._progress(), time.monotonic() + _PATIENCE
        while self._progress() < before + _SOME and time.monotonic() < until:
            self._wait(_LOOK)

    def _wait(self, seconds: float) -> None:
        """Let time pass, and run what falls due meanwhile."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until or (self._later and self._later[0][0] <= now):
            if self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            else:
                self._clock.wait(min([until, *(due for due, _, _ in self._later[:1])]) - now)
