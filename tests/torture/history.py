"""Histories of the messages that consumers held, compiled from their journals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from tests.torture.journal import Event, Kind

__all__ = ["Hold", "Life", "holds_of"]


_GIVEN_BACK = ("released", "aborted")
_LOST_BY = {Kind.VAIN: "lock lost", Kind.ABORTED: "aborted", Kind.UNKNOWN: "outcome unknown"}


@dataclass(slots=True)
class Life:
    """A process, as the judge sees it."""

    name: str
    events: Sequence[Event]
    stops: Sequence[tuple[float, float]] = ()
    killed: float = inf
    counts: bool = False
    """Whether it commits its delivery counts."""


@dataclass(slots=True, eq=False)
class Hold:
    """A message held by a process.

    Each event is given by a time, or by two times between which it happened.
    """

    life: Life
    number: int
    partition: int
    offset: int
    key: str
    value: str
    count: int
    """The delivery count that the delivery reported."""
    redelivered: bool
    asked: float
    """It was handed out after this time,"""
    acquired: float
    """and before this time."""
    clock: int | None = None
    """The consumer's last look at its clock before that, in ms since the epoch, as in the next two."""
    appended: int = 0
    """The append time that the delivery reported."""
    expires: int | None = None
    """The expiry that the delivery reported; None if it never expires."""
    session: int = 0
    """The session of its consumer that it was handed out to, where messages have groups."""
    ahead: bool = False
    """Whether its holder takes messages ahead of their turns."""
    let_go: float = inf
    """It was held at least until this time."""
    durable: float = inf
    """Its ack was known to be durable at this time."""
    void: float = inf
    """From this time on, the message may be handed out again."""
    why: str = ""
    """Why it may be handed out again."""
    acked: bool = False
    rejected: bool = False
    refused: bool = False
    """Whether the ack was refused, because the lock was lost before it."""
    aborted: bool = False

    @property
    def reason(self) -> str:
        """Return why the message may be handed out again, in words for a summary."""
        settled = "acked" if self.acked else "rejected" if self.rejected else ""
        return f"{self.why}, {settled} and not durable" if settled and self.why not in _GIVEN_BACK else self.why

    @property
    def signature(self) -> str:
        """Return the unique reason that its holder gives when it rejects the message."""
        return f"{self.life.name}, {self.number}"

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset} ({self.key}={self.value}) at {self.acquired:.3f} by {self.life.name}"


@dataclass(slots=True)
class _Reading:
    """The state of reading one journal."""

    life: Life
    lock_timeout: float
    holds: dict[int, Hold] = field(default_factory=dict)
    vain: dict[int, tuple[float, str]] = field(default_factory=dict)
    goings: list[tuple[float, frozenset[int] | None, str]] = field(default_factory=list)

    def read(self, event: Event) -> None:
        kind, at, facts = event
        match kind:
            case Kind.ACQUIRED:
                about = {name: fact for name, fact in facts.items() if name != "n"}
                self.holds[facts["n"]] = Hold(self.life, facts["n"], **about)
            case Kind.ACKING | Kind.REJECTING | Kind.RELEASING | Kind.DURABLE:
                for number in facts["n"]:
                    self._settle(self.holds[number], kind, at)
            case Kind.VAIN | Kind.ABORTED | Kind.UNKNOWN:
                for number in facts["n"]:
                    self.vain[number] = (at, _LOST_BY[kind])
                    self.holds[number].aborted = kind is Kind.ABORTED
                    self.holds[number].refused |= facts.get("refused", False)
            case Kind.GONE:
                moved = "moved" if facts["how"] == "given up" else "membership lost"
                self.goings.append((at, frozenset(facts["partitions"]), moved))
            case Kind.CLOSED:
                self.goings.append((at, None, "left"))

    def _settle(self, hold: Hold, kind: Kind, at: float) -> None:
        if kind is Kind.DURABLE:
            hold.durable = at
        else:
            hold.let_go = min(hold.let_go, at)
            if kind is Kind.ACKING:
                hold.acked = True
            elif kind is Kind.REJECTING:
                hold.rejected = True
            elif hold.void > at:
                hold.void, hold.why = at, "released"

    def finish(self, hold: Hold) -> None:
        """Find the end of a hold that was not settled durably."""
        if hold.durable == inf:
            ends = [
                (at, how)
                for at, partitions, how in self.goings
                if at > hold.asked and (partitions is None or hold.partition in partitions)
            ]
            if hold.number in self.vain:
                ends.append(self.vain[hold.number])
            if hold.let_go > hold.asked + self.lock_timeout:
                ends.append((hold.asked + self.lock_timeout, "timed out"))
            ends.append((self.life.killed, "killed"))
            at, how = min(ends)
            if at < hold.void:
                hold.void, hold.why = at, how
        hold.let_go = min(hold.let_go, hold.void)


def holds_of(life: Life, *, lock_timeout: float | None) -> list[Hold]:
    """Return all holds of a process, in delivery order."""
    reading = _Reading(life, inf if lock_timeout is None else lock_timeout)
    for event in life.events:
        reading.read(event)
    for hold in reading.holds.values():
        reading.finish(hold)
    return list(reading.holds.values())
