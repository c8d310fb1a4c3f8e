"""Holds what has happened against the contract: G9 to G13, and what transactions promise on top."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tests.torture.dead_letters import DeadLetter, DeadLetters
from tests.torture.feed import Place, Sent
from tests.torture.handover import HandOvers
from tests.torture.history import Hold, Life, holds_of
from tests.torture.journal import Kind
from tests.torture.tenures import Tenures

__all__ = ["Output", "Verdict", "judge"]

_HEARTBEAT = 1.5  # seconds; so much of a session may be over when a process is stopped, or the broker
_NEWS = 30.0  # seconds after which a process that goes on must have learned of what it lost


@dataclass(frozen=True, slots=True)
class Output:
    """A record that a transforming process wrote: by whom and for which of its deliveries, from which message."""

    life: str
    number: int
    source: Place
    key: str
    value: str


@dataclass(slots=True)
class Verdict:
    """The judge's findings. ``findings`` breaks the contract; the rest is for the summary."""

    findings: list[str] = field(default_factory=list)
    delivered: int = 0
    messages: int = 0
    """Different ones that were delivered."""
    durable: int = 0
    again: Counter[str] = field(default_factory=Counter)
    """Deliveries that were not the first of their message, by what explains them."""
    flagged: int = 0
    """How many of these said so themselves."""
    handed_over: int = 0
    """Acked messages whose partition was then given up, in order and in peace: they must not come again."""
    letters: Counter[str] = field(default_factory=Counter)
    """Dead letters, by who has rejected the message."""
    remembered: int = 0
    """Deliveries whose count had to go on from that of the one before, another consumer's included."""
    overlaps: int = 0
    """A message, or a newer one of its key, was handed out while a process that stood still, or was cut off, believed
    to hold it."""


class _Judge:
    """Goes through the holds in time, for each promise."""

    def __init__(
        self, holds: Sequence[Hold], session: float, outages: Sequence[tuple[float, float]], hand_overs: HandOvers
    ) -> None:
        self.hand_overs = hand_overs
        self.outages = outages
        self.holds = sorted(holds, key=lambda hold: hold.acquired)
        self.session = session
        self.verdict = Verdict(delivered=len(holds), durable=sum(hold.durable < inf for hold in holds))
        self.by_place: dict[Place, list[Hold]] = defaultdict(list)
        self.by_key: dict[tuple[int, str], list[Hold]] = defaultdict(list)
        for hold in self.holds:
            self.by_place[hold.partition, hold.offset].append(hold)
            self.by_key[hold.partition, hold.key].append(hold)
        self.verdict.messages = len(self.by_place)

    def find(self, what: str) -> None:
        """Something is wrong."""
        self.verdict.findings.append(what)

    # ---------------------------------------------------------------- G9, G11, G13: one holder, one message of a key

    def repetitions(self) -> None:
        """A delivery that is not the first of its message has an explanation, and none comes after a durable ack."""
        for holds in self.by_place.values():
            for index, hold in enumerate(holds):
                for before in holds[:index]:
                    self._repeated(before, hold, count=before is holds[index - 1])

    def _repeated(self, before: Hold, hold: Hold, *, count: bool) -> None:
        if before.durable <= hold.asked:
            self.find(f"G11: {hold}, durably acked at {before.durable:.3f} by {before.life.name}, was handed out again")
            return
        reason = before.reason if before.void <= hold.acquired else ""
        if not reason and self._unheard(before, hold):
            reason = "its holder was not heard of" + (", acked and not durable" if before.acked else "")
        if not reason:
            self.find(f"G9: {hold} was handed out again, and nothing had ended its delivery to {before}")
        elif count:
            self.verdict.again[reason] += 1
            self.verdict.flagged += hold.redelivered

    def handed_over(self) -> None:
        """Check that acked messages do not come again if their partition was given up after that, and all was well."""
        for before in self.holds:
            gone = self.hand_overs.done(before)
            self.verdict.handed_over += gone < inf
            for hold in self.by_place[before.partition, before.offset] if gone < inf else ():
                if hold.asked > gone:
                    self.find(
                        f"G11: {hold} was handed out again; it was acked at {before.let_go:.3f} by {before.life.name}, "
                        f"which gave the partition up at {gone:.3f}, in order"
                    )

    def serial(self) -> None:
        """No message is handed out while it, or another one of its key, is held."""
        for holds in self.by_key.values():
            held: list[Hold] = []
            for hold in holds:
                held = [before for before in held if before.let_go > hold.acquired]
                for before in held:
                    if self._unheard(before, hold):
                        self.verdict.overlaps += 1
                    else:
                        promise = "G9" if before.offset == hold.offset else "G13"
                        self.find(f"{promise}: {hold} was handed out while {before} was held until {before.let_go:.3f}")
                held.append(hold)

    def _unheard(self, before: Hold, hold: Hold) -> bool:
        """Return whether the group had given up the first holder unnoticed, as it, or the broker, stood still."""
        if before.life is hold.life:
            return False
        over = before.void
        if before.offset < hold.offset:  # the ack of one that was replaced counts, late or not: it was done before
            over = min(over, before.durable)
        return any(
            before.asked < end
            and begin + self.session - _HEARTBEAT <= hold.acquired
            and hold.asked < end + _NEWS
            and over < end + _NEWS
            for begin, end in (*before.life.stops, *self.outages)
        )

    # ---------------------------------------------------------------- G12: no step back

    def no_step_back(self) -> None:
        """Nothing is handed out after something newer of its key was durable; nor in turn within one assignment."""
        for holds in self.by_key.values():
            times, newest = _durable_so_far(holds)
            for hold in holds:
                index = bisect_left(times, hold.asked)
                if index and newest[index - 1].offset > hold.offset:
                    self.find(f"G12: {hold} was handed out after {newest[index - 1]} was durably acked")
            last: dict[str, Hold] = {}
            for hold in holds:
                before = last.get(hold.life.name)
                if before is not None and before.offset > hold.offset and not _went(hold, before):
                    self.find(f"G12: {hold} came after {before} in one assignment")
                last[hold.life.name] = hold

    # ---------------------------------------------------------------- G10: nothing lost

    def contents(self, stored: Mapping[Place, Sent]) -> None:
        """Check that deliveries equal what was sent."""
        for place, holds in self.by_place.items():
            key, value = stored.get(place, (None, None))
            for hold in holds:
                if value != hold.value or key not in (None, hold.key):
                    self.find(f"{hold} is not what was sent: {key}={value}")

    # ---------------------------------------------------------------- G14: stored in order, or said not to be

    def stored_as_said(self, stored: Mapping[Place, Sent], newest: Mapping[Place, Sent]) -> None:
        """Nothing is there that its producer said was not stored; and of each key the values ascend, as they did."""
        for place in newest.keys() - stored.keys():
            self.find(f"G14: {newest[place]} at {place[0]}/{place[1]} was said not to be stored")
        last: dict[tuple[int, str], str] = {}
        for (partition, offset), (key, value) in sorted(stored.items()):
            if key is None or value is None:
                continue
            before = last.get((partition, key), "")
            if (len(before), before) > (len(value), value):  # numbers
                self.find(f"G14: {key}={value} at {partition}/{offset} lies after {key}={before}")
            last[partition, key] = value

    def complete(self, newest: Mapping[Place, Sent], buried: Collection[Place]) -> None:
        """Of every key the newest message was delivered and acked, or has a dead letter."""
        for place, (key, value) in newest.items():
            holds = self.by_place.get(place, [])
            if value is None or place in buried:
                continue
            if not holds:
                self.find(f"G10: {place[0]}/{place[1]} ({key}={value}) was never delivered")
            elif not any(hold.acked for hold in holds):
                self.find(f"G10: {holds[-1]} was never acked, has no dead letter, and is gone")

    # ---------------------------------------------------------------- delivery counts

    def counted(self, tenures: Tenures, sent_at: Mapping[Place, float]) -> None:
        """A delivery count forgets no delivery that its consumer can know of, and makes none up."""
        for place, holds in self.by_place.items():
            for index, hold in enumerate(holds):
                most = tenures.most(place[0], index + 1, sent_at.get(place, 0.0), hold.acquired)
                if hold.count > most:
                    self.find(f"{hold} says delivery {hold.count}, and no more than {most} can have been counted")
                before = holds[index - 1] if index else None
                if before is not None and tenures.remembered(before, hold):
                    self.verdict.remembered += 1
                    if hold.count <= before.count:
                        self.find(f"{hold} says delivery {hold.count}; it was {before.count} at {before}")

    # ---------------------------------------------------------------- transactions

    def exactly_once(
        self, output: Sequence[Output], newest: Mapping[Place, Sent], letters: Sequence[DeadLetter]
    ) -> None:
        """The output holds what committed, once, and of every key the newest message; of one key all in order.

        Messages rejected in a transaction that committed have a dead letter instead. Giving up by the library is
        not part of a transaction: that may be done twice.
        """
        seen: dict[Place, Output] = {}
        buried = {letter.source for letter in letters}
        dead = {letter.source for letter in letters if not letter.given_up}
        last: dict[str, Output] = {}
        for made in output:
            if made.source in seen:
                self.find(f"twice in the output: {made}, and {seen[made.source]}")
            seen[made.source] = made
            if made.key in last and last[made.key].source > made.source:
                self.find(f"G12: in the output {made} comes after {last[made.key]}")
            last[made.key] = made
        for place, (key, value) in newest.items():
            if value is not None and place not in seen and place not in buried:
                self.find(f"lost: {place[0]}/{place[1]} ({key}={value}) is not in the output, nor among dead letters")
        for made in output:
            if made.source in dead:
                self.find(f"twice: {made} is in the output, and has a dead letter from a transaction")
        made_by = {(made.life, made.number) for made in output}
        for hold in self.holds:
            if hold.durable < inf and not hold.rejected and (hold.life.name, hold.number) not in made_by:
                self.find(f"{hold} was committed and is not in the output")
            if hold.aborted and (hold.life.name, hold.number) in made_by:
                self.find(f"{hold} was not committed and is in the output")


def judge(
    lives: Sequence[Life],
    *,
    session: float,
    lock_timeout: float | None,
    stored: Mapping[Place, Sent],
    newest: Mapping[Place, Sent],
    unsure: Collection[Sent] = (),
    output: Sequence[Output] | None = None,
    outages: Iterable[tuple[float, float]] = (),
    letters: Sequence[DeadLetter] = (),
    max_deliveries: int = 1,
    sent_at: Mapping[Place, float] | None = None,
) -> Verdict:
    """Judge a run.

    Args:
        session: seconds after which the group gives up a member that it does not hear of.
        stored: all that the broker has acknowledged to the producers. The values are numbers, and ascend.
        newest: what the log holds of each key in the end.
        unsure: what may be stored as well, by the word of its producer.
        output: what is visible of what transactions have written, in the order of the log.
        outages: when the broker could not answer, from and to.
        letters: all dead letters that are visible.
        max_deliveries: of all consumers that have a limit.
        sent_at: when messages were sent, at the earliest; by default at the beginning.
    """
    outages, sent_at = list(outages), sent_at or {}
    hand_overs = HandOvers(outages)
    tenures = Tenures(lives, hand_overs, transactional=output is not None)
    holds = [hold for life in lives for hold in holds_of(life, lock_timeout=lock_timeout)]
    stored = {**stored, **_turned_up(unsure, holds, newest, letters)}
    one = _Judge(holds, session, outages, hand_overs)
    dead = DeadLetters(letters, one.by_place, max_deliveries, one.find)
    one.verdict.letters = dead.counts
    one.repetitions()
    one.serial()
    one.no_step_back()
    one.contents(stored)
    one.stored_as_said(stored, newest)
    one.complete(newest, dead.buried)
    one.counted(tenures, sent_at)
    dead.contents(stored)
    dead.rejected()
    dead.given_up(tenures, sent_at)
    if output is None:
        one.handed_over()
    else:
        one.exactly_once(output, newest, letters)
    return one.verdict


def _turned_up(
    unsure: Collection[Sent], holds: Iterable[Hold], newest: Mapping[Place, Sent], letters: Iterable[DeadLetter]
) -> dict[Place, Sent]:
    """Return where that lies of which nobody knew whether it was stored, as far as anybody has seen it."""
    maybe = set(unsure)
    key_of = {value: key for key, value in maybe if value is not None}
    seen = {(hold.partition, hold.offset): hold.value for hold in holds}
    seen |= {letter.source: letter.value for letter in letters}
    found = {place: (key_of[value], value) for place, value in seen.items() if value in key_of}
    return found | {place: sent for place, sent in newest.items() if sent in maybe}


def _durable_so_far(holds: Sequence[Hold]) -> tuple[list[float], list[Hold]]:
    """Return when acks became durable, and which was the newest of them at each time."""
    times: list[float] = []
    newest: list[Hold] = []
    for hold in sorted((hold for hold in holds if hold.durable < inf), key=lambda hold: hold.durable):
        times.append(hold.durable)
        newest.append(hold if not newest or newest[-1].offset < hold.offset else newest[-1])
    return times, newest


def _went(hold: Hold, before: Hold) -> bool:
    """Return whether the partition was away between two deliveries to one process."""
    return any(
        event.kind in (Kind.GONE, Kind.CLOSED)
        and before.asked < event.at < hold.acquired
        and hold.partition in event.facts.get("partitions", (hold.partition,))
        for event in before.life.events
    )
