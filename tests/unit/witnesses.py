"""Made-up journals for the judge of the torture test, and its verdict on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from lvq_kafka.core.queue.limits import Limits
from tests.torture.dead_letters import DeadLetter
from tests.torture.feed import Call
from tests.torture.history import Life
from tests.torture.journal import Event, Kind
from tests.torture.judge import Output, Verdict, judge
from tests.torture.lifetimes import Times

__all__ = ["MOST", "Witness", "verdict"]

SESSION = 6.0
LOCK = 4.0
MOST = 2


class Witness:
    """A witness that writes a journal as a consumer process would, at the times that the test gives."""

    def __init__(self, name: str, *stops: tuple[float, float], killed: float = inf) -> None:
        self.life = Life(name, [], stops, killed)
        self._taken = 0
        self._counts: Counter[int] = Counter()

    def note(self, kind: Kind, at: float, **facts: Any) -> None:
        assert isinstance(self.life.events, list)
        self.life.events.append(Event(kind, at, facts))

    def take(
        self,
        at: float,
        offset: int,
        key: str = "k",
        *,
        value: str = "",
        count: int = 0,
        redelivered: bool = False,
        clock: int | None = None,
        appended: int = 1000,
        expires: int = 5000,
        session: int = 0,
        ahead: bool = False,
        waited: float = 0.1,
    ) -> int:
        """Take a message; by default, the witness counts its deliveries itself.

        Args:
            waited: seconds since it asked for one.
        """
        self._taken += 1
        self._counts[offset] += 1
        self.note(
            Kind.ACQUIRED,
            at,
            n=self._taken,
            asked=at - waited,
            acquired=at,
            partition=0,
            offset=offset,
            key=key,
            value=value or f"v{offset}",
            count=count or self._counts[offset],
            redelivered=redelivered,
            clock=clock,
            appended=appended,
            expires=expires,
            session=session,
            ahead=ahead,
        )
        return self._taken

    def ack(self, at: float, number: int, durable: float | None = None) -> None:
        self.note(Kind.ACKING, at, n=[number])
        if durable is not None:
            self.note(Kind.DURABLE, durable, n=[number])

    def reject(self, at: float, number: int, durable: float | None = None) -> str:
        """Reject a message, and return the reason given."""
        self.note(Kind.REJECTING, at, n=[number])
        if durable is not None:
            self.note(Kind.DURABLE, durable, n=[number])
        return f"{self.life.name}, {number}"

    def evict(self, at: float, *offsets: int) -> None:
        for offset in offsets:
            self.note(Kind.EVICTED, at, partition=0, offset=offset)

    def get(self, at: float) -> None:
        self.note(Kind.GOT, at, partitions=[0])

    def lose(self, at: float, how: str = "given up") -> None:
        self.note(Kind.GONE, at, partitions=[0], how=how)


def verdict(
    *witnesses: Witness,
    messages: Mapping[int, tuple[str | None, str | None]] | None = None,
    output: list[Output] | None = None,
    lock_timeout: float | None = LOCK,
    outages: Sequence[tuple[float, float]] = (),
    letters: Sequence[DeadLetter] = (),
    unsure: Mapping[int, tuple[str, str | None]] | None = None,
    refused: Mapping[int, tuple[str, str | None]] | None = None,
    times: Times | None = None,
    grouped: bool = False,
    ranks: Mapping[int, int] | None = None,
    standard: bool = False,
    limits: Limits | None = None,
    calls: Sequence[Call] = (),
    sent_at: Mapping[int, float] | None = None,
) -> Verdict:
    """Return the verdict. By default there is only message 1 of key k; ``unsure`` and ``refused`` exist, too."""
    given: Mapping[int, tuple[str | None, str | None]] = messages or {1: ("k", "v1")}
    sent = {(0, offset): message for offset, message in given.items()}
    there = {(0, offset): message for offset, message in {**(unsure or {}), **(refused or {})}.items()} | sent
    last = {key: place for place, (key, _) in sorted(there.items())}
    return judge(
        [witness.life for witness in witnesses],
        session=SESSION,
        lock_timeout=lock_timeout,
        stored=sent,
        newest=there if standard else {place: there[place] for place in last.values()},
        unsure=(unsure or {}).values(),
        output=output,
        outages=outages,
        letters=letters,
        max_deliveries=MOST,
        times=times,
        grouped=grouped,
        ranks=None if ranks is None else {(0, offset): rank for offset, rank in ranks.items()},
        standard=standard,
        limits=limits,
        calls=calls,
        sent_at={(0, offset): at for offset, at in (sent_at or {}).items()},
    )
