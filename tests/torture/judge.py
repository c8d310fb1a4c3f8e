"""The judge: checks a run against the contract, G9 to G13, its order, and the promises of transactions."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from lvq_kafka.core.queue.limits import Limits
from tests.torture.admissions import Admissions
from tests.torture.dead_letters import DeadLetter, DeadLetters
from tests.torture.feed import Call, Place, Sent, group_of
from tests.torture.handover import HandOvers
from tests.torture.history import Hold, Life, holds_of
from tests.torture.journal import Kind
from tests.torture.lifetimes import ExpiryLetter, Lifetimes, Times
from tests.torture.rings import Rings
from tests.torture.tenures import Tenures
from tests.torture.turns import Turns
from tests.torture.viewing import check_sights

__all__ = ["Output", "Verdict", "judge"]

_HEARTBEAT = 1.5  # seconds of a session that may have passed when a process or the broker is stopped
_MOVES = ("moved", "membership lost", "left")  # reasons for which a hold ends with its partition
_GIVING_UP = 5.0  # seconds that this may take: the last commit is stored before
_NEWS = 30.0  # seconds after which a running process must know what it lost


@dataclass(frozen=True, slots=True)
class Output:
    """A record written by a transforming process, with the delivery and the message that it came from."""

    life: str
    number: int
    source: Place
    key: str
    value: str


@dataclass(slots=True)
class Verdict:
    """The judge's findings. ``findings`` are breaches of the contract; the rest is for the summary."""

    findings: list[str] = field(default_factory=list)
    delivered: int = 0
    messages: int = 0
    """Distinct messages that were delivered."""
    durable: int = 0
    again: Counter[str] = field(default_factory=Counter)
    """Deliveries other than the first of their message, by their explanation."""
    flagged: int = 0
    """How many of these were marked as redelivered."""
    handed_over: int = 0
    """Acked messages whose partition was then given up in order and in peace. They must not come again."""
    letters: Counter[str] = field(default_factory=Counter)
    """Dead letters, by who rejected the message."""
    expired: int = 0
    """Messages that have a letter in the expiry topic."""
    expired_again: int = 0
    """Further letters of these."""
    late: int = 0
    """Durable acks of messages that had expired while they were held."""
    remembered: int = 0
    """Deliveries whose count had to continue from the previous one, maybe of another consumer."""
    scheduled: int = 0
    """Deliveries of messages that were scheduled."""
    beneath: int = 0
    """Deliveries of values that counted while a newer one of their key was scheduled."""
    grouped: int = 0
    """Deliveries while another message of their group was held, where messages have groups."""
    waited: int = 0
    """Times that a message that waited was compared with one that was handed out meanwhile."""
    sights: int = 0
    """Looks at a view that was open throughout the run."""
    evicted: int = 0
    """Messages that a ring dropped."""
    evictions_compared: int = 0
    """Evictions that were compared with what their partition held."""
    blocked: int = 0
    """Calls of producers that waited for room, or for the broker, for more than a second."""
    nearly_full: int = 0
    """Keys added to a queue that was certainly half full."""
    overlaps: int = 0
    """Deliveries of a message, or of a newer one of its key, while a frozen or cut-off process believed to hold it."""


class _Judge:
    """Checks each promise over all holds, in order of time."""

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
        """Record a finding."""
        self.verdict.findings.append(what)

    # ---------------------------------------------------------------- G9, G11, G13: one holder, one message of a key

    def repetitions(self) -> None:
        """Check that each redelivery has an explanation, and that none comes after a durable ack."""
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
        """Check that acked messages do not come again after an orderly hand-over of their partition."""
        for before in self.holds:
            gone = self.hand_overs.done(before)
            self.verdict.handed_over += gone < inf
            for hold in self.by_place[before.partition, before.offset] if gone < inf else ():
                if hold.asked > gone:
                    self.find(
                        f"G11: {hold} was handed out again; it was acked at {before.let_go:.3f} by {before.life.name}, "
                        f"which gave the partition up at {gone:.3f}, in order"
                    )

    def serial(self, *, standard: bool) -> None:
        """Check that no message is handed out while it, or another one of its key, is held.

        In a standard queue each message stands alone (R35).
        """
        lanes: Iterable[Sequence[Hold]] = self.by_place.values() if standard else self.by_key.values()
        for holds in lanes:
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

    def grouped(self) -> None:
        """Check that no message of a group is handed out to one session while another of the process has one.

        Sessions are those of one process: what others hold are other partitions.
        """
        by_group: dict[tuple[str, str], list[Hold]] = defaultdict(list)
        for hold in self.holds:
            if hold.key.startswith("key-"):
                held = by_group[hold.life.name, group_of(hold.key)]
                held[:] = [before for before in held if before.let_go > hold.acquired]
                self.verdict.grouped += bool(held)
                for before in held:
                    # Locks end a little before the log says that the partition is given up.
                    is_moving = before.why in _MOVES and before.void - hold.acquired < _GIVING_UP
                    if before.session != hold.session and not is_moving:
                        self.find(f"R36: {hold} was handed out while another session held {before} of its group")
                held.append(hold)

    def in_turn(
        self, tenures: Tenures, ranks: Mapping[Place, int] | None, letters: Collection[DeadLetter], *, grouped: bool
    ) -> None:
        """Check that each message was handed out when it was its turn."""
        buried = {letter.key for letter in letters}
        turns = Turns(tenures, ranks=ranks, grouped=grouped, buried=buried, find=self.find)
        turns.check(self.holds)
        self.verdict.waited = turns.waited

    def ring(
        self,
        share: int,
        lives: Sequence[Life],
        tenures: Tenures,
        stored: Mapping[Place, Sent],
        sent_at: Mapping[Place, float],
    ) -> Collection[Place]:
        """Check what a ring evicted. Return these messages: they are done."""
        rings = Rings(share, lives, self.by_place, tenures, self.hand_overs, self.find)
        rings.check(stored, sent_at)
        self.verdict.evicted, self.verdict.evictions_compared = len(rings.evicted), rings.compared
        return rings.evicted

    def admitted(
        self, limits: Limits, calls: Sequence[Call], stored: Mapping[Place, Sent], letters: Sequence[DeadLetter]
    ) -> None:
        """Check that producers kept to the limit of a queue that blocks, and waited for nothing else."""
        assert limits.messages is not None
        assert limits.resume is not None
        admissions = Admissions(limits.messages, limits.resume, calls, self.by_place, letters, self.outages, self.find)
        admissions.check(stored)
        self.verdict.blocked, self.verdict.nearly_full = admissions.waits, admissions.near

    def _unheard(self, before: Hold, hold: Hold) -> bool:
        """Return whether the group had dropped the first holder unnoticed, while it or the broker was frozen."""
        if before.life is hold.life:
            return False
        over = before.void
        if before.offset < hold.offset:  # a late ack of a replaced message still counts: the work was done
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
        """Check that no message comes after a newer one of its key: durably acked, or in the same assignment."""
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

    # ---------------------------------------------------------------- G14: stored in order, or reported as not stored

    def stored_as_said(self, stored: Mapping[Place, Sent], newest: Mapping[Place, Sent]) -> None:
        """Check that nothing is stored that was reported as not stored, and that the values of each key ascend.

        A copy of an older value may follow a newer one, if a copy of that comes after it: they were sent again.
        """
        for place in newest.keys() - stored.keys():
            self.find(f"G14: {newest[place]} at {place[0]}/{place[1]} was said not to be stored")
        logs: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        for (partition, offset), (key, value) in sorted(stored.items()):
            if key is not None and value is not None:
                logs[partition, key].append((offset, value))
        for (partition, key), log in logs.items():
            last = {value: offset for offset, value in log}
            before, seen = "", set[str]()
            for offset, value in log:
                older = (len(before), before) > (len(value), value)  # numbers
                if older and not (value in seen and offset < last[before]):
                    self.find(f"G14: {key}={value} at {partition}/{offset} lies after {key}={before}")
                if not older:
                    before = value
                seen.add(value)

    def complete(self, newest: Mapping[Place, Sent], buried: Collection[Place]) -> None:
        """Check that the newest message of every key was delivered and acked, or has a letter.

        In a standard queue, ``newest`` are all messages.
        """
        for place, (key, value) in newest.items():
            holds = self.by_place.get(place, [])
            if value is None or place in buried:
                continue
            if not holds:
                self.find(f"G10: {place[0]}/{place[1]} ({key}={value}) was never delivered")
            elif not any(hold.acked for hold in holds):
                self.find(f"G10: {holds[-1]} was never acked, has no letter, and is gone")

    # ---------------------------------------------------------------- delivery counts

    def counted(self, tenures: Tenures, sent_at: Mapping[Place, float]) -> None:
        """Check that delivery counts forget no delivery that the consumer can know of, and invent none."""
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

    # ---------------------------------------------------------------- R8, R10, R11: when messages count

    def in_time(
        self,
        times: Times,
        tenures: Tenures,
        stored: Mapping[Place, Sent],
        output: Sequence[Output] | None,
        buried: Collection[Place],
    ) -> frozenset[Place]:
        """Check that messages count from when they are due until they expire, and then never again.

        Return those that have a letter in the expiry topic.
        """
        lifetimes = Lifetimes(times, self.by_place, tenures, self.find)
        check_sights(times.sights, times.log, stored, self.find)
        lifetimes.in_time()
        lifetimes.none_overtaken()
        lifetimes.none_revived()
        lifetimes.none_passed_over(buried)
        lifetimes.letters(stored, {made.source for made in output or ()})
        self.verdict.expired = len(lifetimes.lettered)
        self.verdict.expired_again = len(times.letters) - len(lifetimes.lettered)
        self.verdict.late = lifetimes.late
        self.verdict.scheduled, self.verdict.beneath = lifetimes.scheduled, lifetimes.beneath
        self.verdict.sights = len(times.sights)
        return frozenset(lifetimes.lettered)

    # ---------------------------------------------------------------- transactions

    def exactly_once(
        self,
        output: Sequence[Output],
        newest: Mapping[Place, Sent],
        letters: Sequence[DeadLetter],
        expired: Collection[Place],
    ) -> None:
        """Check that the output holds each committed message once, in order for each key, and the newest of every key.

        A message rejected in a committed transaction has a dead letter instead. When the library gives a message up,
        that is not part of a transaction and may happen twice. An expired one has an expiry letter instead.
        """
        seen: dict[Place, Output] = {}
        buried = {letter.source for letter in letters} | set(expired)
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
    times: Times | None = None,
    grouped: bool = False,
    ranks: Mapping[Place, int] | None = None,
    standard: bool = False,
    limits: Limits | None = None,
    partitions: int = 1,
    calls: Sequence[Call] = (),
) -> Verdict:
    """Judge a run.

    Args:
        session: seconds without a heartbeat after which the group drops a member.
        stored: all messages that the broker acknowledged to producers. The values are numbers, and ascend.
        newest: the log's last message of each key at the end; of a standard queue, all its messages.
        unsure: messages that may have been stored, as reported to their producer.
        output: visible output of transactions, in the order of the log.
        outages: times when the broker could not answer, from and to.
        letters: all visible dead letters.
        max_deliveries: the limit of all consumers that have one.
        sent_at: the earliest time at which each message was sent; by default the beginning.
        times: the times of all messages, if they count for a limited time only.
        grouped: whether messages have groups.
        ranks: the rank of each message, a lower one first; None if they come in the order of arrival.
        standard: whether no message replaces another (R35).
        limits: those of the queue, in messages.
        partitions: how many the queue has.
        calls: all calls of producers.
    """
    outages, sent_at = list(outages), sent_at or {}
    hand_overs = HandOvers(outages)
    tenures = Tenures(lives, hand_overs, transactional=output is not None)
    holds = [hold for life in lives for hold in holds_of(life, lock_timeout=lock_timeout)]
    stored = {**stored, **_turned_up(unsure, holds, newest, [*letters, *(times.letters if times else ())])}
    one = _Judge(holds, session, outages, hand_overs)
    dead = DeadLetters(letters, one.by_place, max_deliveries, outages if output is None else (), one.find)
    one.verdict.letters = dead.counts
    one.repetitions()
    one.serial(standard=standard)
    if not standard:
        one.no_step_back()
    if grouped:
        one.grouped()
    one.contents(stored)
    one.stored_as_said(stored, newest)
    expired = one.in_time(times, tenures, stored, output, dead.buried | dead.exhausted) if times else frozenset[Place]()
    evicted: Collection[Place] = ()
    if limits is not None and limits.policy == "ring":
        evicted = one.ring(limits.share(partitions).messages or 0, lives, tenures, stored, sent_at)
    elif limits is not None and limits.policy == "block":
        one.admitted(limits, calls, stored, letters)
    one.complete(newest, dead.buried | expired | set(evicted))
    one.counted(tenures, sent_at)
    dead.contents(stored, standard=standard)
    dead.rejected()
    dead.given_up(tenures, sent_at)
    if output is None and times is None:  # a transaction keeps messages back, and one may not be due
        one.in_turn(tenures, ranks, letters, grouped=grouped)
    if output is None:
        one.handed_over()
    else:
        one.exactly_once(output, newest, letters, expired)
    return one.verdict


def _turned_up(
    unsure: Collection[Sent],
    holds: Iterable[Hold],
    newest: Mapping[Place, Sent],
    letters: Iterable[DeadLetter | ExpiryLetter],
) -> dict[Place, Sent]:
    """Return the places of messages with an unknown outcome, where anybody has seen them."""
    maybe = set(unsure)
    key_of = {value: key for key, value in maybe if value is not None}
    seen = {(hold.partition, hold.offset): hold.value for hold in holds}
    seen |= {letter.source: letter.value for letter in letters}
    found = {place: (key_of[value], value) for place, value in seen.items() if value in key_of}
    return found | {place: sent for place, sent in newest.items() if sent in maybe}


def _durable_so_far(holds: Sequence[Hold]) -> tuple[list[float], list[Hold]]:
    """Return when acks became durable, and the newest durable message at each of these times."""
    times: list[float] = []
    newest: list[Hold] = []
    for hold in sorted((hold for hold in holds if hold.durable < inf), key=lambda hold: hold.durable):
        times.append(hold.durable)
        newest.append(hold if not newest or newest[-1].offset < hold.offset else newest[-1])
    return times, newest


def _went(hold: Hold, before: Hold) -> bool:
    """Return whether the process lost the partition between two deliveries."""
    return any(
        event.kind in (Kind.GONE, Kind.CLOSED)
        and before.asked < event.at < hold.acquired
        and hold.partition in event.facts.get("partitions", (hold.partition,))
        for event in before.life.events
    )
