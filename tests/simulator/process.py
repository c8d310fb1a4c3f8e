"""A consumer process: its state and its commits. `tests.simulator.member` completes it.

All knowledge and decisions are those of the library's own `ConsumerCore`, which runs on the world's clock without a
lock. Only the engine around it, in single steps, and the holders are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Flight
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.rules import OrderRule, QueueRules
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.simulator.group import Connection, Group, Request
from tests.simulator.grouping import Grouping
from tests.simulator.letters import Letters, Removing
from tests.simulator.log import Entry, Log, Transaction
from tests.simulator.proof import Life, Proof, Violation
from tests.simulator.waiting import Heard, Question

__all__ = ["Options", "Process", "Work"]

_IN_WORK = frozenset({MessageState.ACQUIRED, MessageState.STALE, MessageState.LEAVING, MessageState.LEAVING_STALE})
_NEWEST_IN_WORK = frozenset({MessageState.ACQUIRED, MessageState.LEAVING})
_REMOVED = frozenset({MessageState.ACKED, MessageState.REJECTED})
_SKEWS = (0, -2, 1)  # seconds by which the clocks of processes differ from the cluster's; see `MOST_SKEW`


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a queue's consumers. Commits carry ``partition_count``, which need not be the real number."""

    order: Order = "tail"
    limits: ConsumerLimits = field(default_factory=lambda: ConsumerLimits(max_in_work=4))
    text_limit: int = 4095
    ahead: bool = False
    """Whether messages are taken ahead and handed over one by one."""
    dead_letters: bool = False
    partition_count: int = 1
    ttl: Ttl | None = None
    """How long messages live: by default, and without a minimum or a maximum."""
    max_delay: float | None = None
    """The longest time, in seconds, by which a message may be scheduled; None if none may."""
    earlier: tuple[EarlierTerms, ...] = ()
    """The same two before the queue is altered, at times of the world. Its consumers know that shortly before."""
    groups: Groups | None = None
    """How messages are grouped."""
    expiry_topic: bool = False
    """Whether what has expired is stored elsewhere before it is done."""
    ranked: bool = False
    """Whether messages are handed out by priority."""
    ring: int | None = None
    """The most messages that the queue may hold; None for any number."""
    ends_known: bool = True
    """Whether the end offset of an assigned partition is fetched. If not, the end of the commit map counts."""

    @property
    def times(self) -> TimeRule:
        """The rule of when messages count."""
        return TimeRule(self.ttl, self.max_delay, self.expiry_topic, self.earlier)


@dataclass(eq=False, slots=True)
class Work:
    """A consumer transaction: the messages acked in it and its commit."""

    transaction: Transaction = field(default_factory=Transaction)
    items: list[Item] = field(default_factory=list)
    flight: Flight[Question] | None = None
    next: bool = False
    """Whether its commit waits for the outstanding plain commit."""
    committing: bool = False
    sent_at: float = 0.0


class Sync(Enum):
    """The purpose of a commit that blocks the engine."""

    FINAL = "the last commit before partitions go"
    GRACE = "a commit that somebody waits for before partitions go"


class Process:
    """A consumer process: its state and its commits."""

    def __init__(
        self,
        number: int,
        logs: list[Log],
        group: Group,
        proof: Proof,
        options: Options,
        clock: Callable[[], float],
    ) -> None:
        self.number = number
        self.connection = Connection()
        self.stopped = False
        self.notice = 1.0 + number % 2
        """Seconds before an alteration holds in which it is noticed."""
        self.rules = QueueRules(
            times=options.times.until(int((clock() + self.notice) * 1000)),
            order=OrderRule("priority" if options.ranked else options.order),
            groups=options.groups,
            limits=None if options.ring is None else Limits(policy="ring", messages=options.ring),
        )
        self.core: ConsumerCore[Question] = ConsumerCore(options.limits, self.rules, now=clock())
        self.ledger, self.commits = self.core.ledger, self.core.commits
        self.ledger.capacity.limit = options.text_limit
        self.sessions = [self.core.open_session() for _ in range(1 if options.groups is None else 2)]
        self.session = self.sessions[0]
        """The session that takes what is handed out."""
        self.grouping = Grouping(options.groups)
        self.letters = Letters()
        self.dead_letters = DeadLetters(
            self.letters.cluster, "dead" if options.dead_letters else None, Removing(self.core, clock).shared
        )
        self.lives: dict[int, Life] = {}
        self.working: dict[Item, Life] = {}
        """The model's messages that are acquired and not settled."""
        self.held: dict[Item, None] = {}
        """Messages that holders have, in the order of delivery."""
        self.worked: set[Item] = set()
        """Held messages whose side effect has happened."""
        self.acked: list[Item] = []
        """Acked messages that nobody waits for yet."""
        self.kept: dict[Item, Life] = {}
        """Messages that have expired, and must be stored elsewhere."""
        self.fetched: tuple[int, list[Entry], int] | None = None
        self.work: Work | None = None
        self.going: list[int] = []
        """Partitions being given up. Meanwhile the engine is inside the rebalance callback."""
        self.closing = self.closed = False
        self.epoch = 0
        self.acks = 0
        """Acks since the last commit was sent."""
        self.answered = False
        """Whether the last commit is known to be stored."""
        self.turned = clock()
        self.time = 0
        """The time by which messages are due and expire here, in ms; it never goes back."""
        self.newest_at = 0
        """The latest append time read, in ms."""
        self._clock = clock
        self._logs = logs
        self._group = group
        self._proof = proof
        self._options = options
        self._coming: dict[int, int] = {}  # targets of assigned partitions that wait for their commit
        self._flight: Flight[Question] | None = None
        self._said: dict[int, CommitMap] = {}  # the last commit sent, by partition
        self._sync: tuple[Sync, Flight[Question]] | None = None
        self._asked: list[Question] = []  # waits for durable acks
        self._sent_at: dict[Flight[Question], float] = {}
        self._accepted = -math.inf  # send time of the last commit known to be accepted
        group.join(number)

    # ---------------------------------------------------------------- turns

    @property
    def blocked(self) -> bool:
        """Return whether the engine does nothing but wait for an answer or for holders."""
        return self._sync is not None or bool(self.going)

    def turn(self) -> bool:
        """Run a turn of the engine; return whether a timer was due."""
        if self._sync is not None:
            return False
        wakes = self.ledger.next_wake
        self.turned = now = self._clock()
        self.core.turn(now)
        self.core.wake(now)
        self._observe()  # what is evicted was so before time has its effect
        self._pass_time()
        return wakes is not None and wakes <= now

    def _pass_time(self) -> None:
        """Let time have its effect by this process's clock, which is fast or slow."""
        if self._options.times.matters:
            clock = self._clock() + _SKEWS[self.number % len(_SKEWS)]
            self.time = max(self.time, int(clock * 1000), self.newest_at)
            self._proof.later(self.time)
            for life in self.lives.values():
                life.pass_time(self.time)
            self.core.pass_time(clock)
        self._observe()

    @property
    def in_doubt(self) -> bool:
        """Return whether the last commit known to be accepted was sent more than a lease ago."""
        return self._clock() - self._accepted > LEASE

    # ---------------------------------------------------------------- committing

    def commit(self) -> bool:
        """Commit changes, unless a commit is outstanding or a transaction commits."""
        if self.blocked or self._flight is not None:
            return False
        self._flight = self._send(self.core.next_commit(self._clock()))
        return self._flight is not None

    def _commit_now(self, purpose: Sync, partitions: list[int]) -> bool:
        """Send a commit that blocks the engine."""
        if purpose is Sync.FINAL:
            self.core.end_locks(partitions)
            self._observe()
        if self.core.transaction.excludes_commits:  # a plain commit would win over the transaction's
            self._synced(purpose, Answer.UNKNOWN)
            return True
        flight = self._send(self.core.next_commit(self._clock(), partitions))
        for partition in self.going if purpose is Sync.FINAL else ():
            self._proof.last(self.lives[partition], self._said.get(partition, self.lives[partition].loaded))
        if flight is None:
            self._synced(purpose, Answer.STORED)
        else:
            self._sync = purpose, flight
        return True

    def _send(self, flight: Flight[Question] | None) -> Flight[Question] | None:
        self._report()
        if flight is not None:
            self.acks, self.answered = 0, False
            self._said |= flight.maps
            for partition in flight.maps.keys() - self.lives.keys():
                raise Violation("I3", f"a commit speaks for partition {partition}, which is another member's")
            offsets = {p: (said.base, said.encode()) for p, said in flight.maps.items()}
            self._proof.sent(offsets, dict(flight.maps), self._options.text_limit, {})
            for partition, said in flight.maps.items():
                self._proof.roomy(said, self.ledger.assignment.claim(partition), self.ledger.capacity.limit)
            self.connection.requests.append(Request(self.number, self.epoch, offsets, flight))
            self._sent_at[flight] = self._clock()
        return flight

    def answer(self) -> bool:
        """Take the next answer, no matter how late."""
        if not self.connection.answers:
            return False
        self._landed(*self.connection.answers.popleft())
        return True

    def time_out(self) -> bool:
        """Stop waiting for an answer. The outcome of the commit is unknown."""
        flight = self._flight if self._sync is None else self._sync[1]
        if flight is None:
            return False
        self._landed(flight, dict.fromkeys(flight.maps, Answer.UNKNOWN))
        return True

    def _landed(self, flight: Flight[Question], answers: Mapping[int, Answer]) -> None:
        self.core.answered(flight, answers)
        self.answered = not self.commits.in_flight and Answer.STORED in answers.values()
        if Answer.UNKNOWN not in answers.values():
            self._accepted = max(self._accepted, self._sent_at[flight])
        self._report()
        if flight is self._flight:
            self._flight = None
        if self._sync is not None and flight is self._sync[1]:
            purpose, self._sync = self._sync[0], None
            self._synced(purpose, *set(answers.values()))

    def _synced(self, purpose: Sync, answer: Answer) -> None:
        """Unblock the engine. If the text was too large, a shorter commit follows."""
        if purpose is Sync.FINAL and answer is not Answer.TOO_LARGE:
            if answer is Answer.STORED and self.ledger.capacity.limit == self._options.text_limit:
                for partition in set(self.going) - self.commits.omitted.keys():
                    self._proof.accepted(self.lives[partition], self.commits.last(partition))
            self._end_going()

    def ask(self, item: Item) -> None:
        """Wait for an ack to be durable."""
        question = Question(item)
        durable = self.core.wait_done(item, question)
        if durable is None:
            self._asked.append(question)
        elif durable:
            self._proof.reported(item)
        self._report()

    @property
    def awaited(self) -> list[Item]:
        """Return the acks that have waiters."""
        return [question.item for question in self._asked]

    def _report(self) -> None:
        """Answer the waiters whose outcome is known."""
        outcome = self.core.pop_outcome()
        for question in outcome.ready:
            question.heard = Heard.DURABLE
            self._proof.reported(question.item)
        for question in outcome.failed:
            question.heard = Heard.FAILED
        self._asked = [question for question in self._asked if question.heard is Heard.NOTHING]

    def look(self) -> bool:
        """Check whether the commits were overwritten."""
        if self.blocked:
            return False
        stored = {partition: self._group.offsets(partition) for partition in self.lives}
        self.core.found({p: CommitMap.decode(*commit) for p, commit in stored.items() if commit is not None})
        self._report()
        return bool(self.lives)

    # ---------------------------------------------------------------- giving partitions up

    def give_up(self, *, urgent: bool = False) -> bool:
        """Do the next step of giving partitions up: a commit with waiters, the final commit, or a timeout."""
        if not self.going:
            return False
        if self._sync is not None:
            return self.time_out()
        if not urgent and self.core.is_urgent(self._clock()) and not self.core.transaction.excludes_commits:
            return self._commit_now(Sync.GRACE, self.core.partitions)
        return self._commit_now(Sync.FINAL, self.going)

    def _end_going(self) -> None:
        going = self.going
        self._forget(going)
        self._group.given_up(self.number, going)
        if self.closing:
            self.closed = True
            if self.number in self._group.members:
                self._group.remove(self.number)

    def _forget(self, partitions: list[int]) -> None:
        self.core.forget(partitions)
        self._report()
        for partition in partitions:
            del self.lives[partition]
            self._said.pop(partition, None)
        self.working = {item: generation for item, generation in self.working.items() if item.partition in self.lives}
        self.kept = {item: generation for item, generation in self.kept.items() if item.partition in self.lives}
        if not self.lives:
            self.grouping.forget()
        if self.fetched is not None and self.fetched[0] in partitions:
            self.fetched = None
        self.going = []
        self._sync = None

    def _owns(self, partition: int) -> bool:
        """Return whether it is the real owner. The process itself may not know."""
        return self._group.owner[partition] == self.number

    # ---------------------------------------------------------------- the model of the core

    def _observe(self) -> None:
        """Copy the core's own actions to the model: lost messages first, then evicted and acquired ones.

        Done offsets are not copied, because the checks are about those. Expired messages are checked as they leave.
        """
        for item in [item for item in self.working if item.state not in _IN_WORK | _REMOVED]:
            self._end(item, acked=False)
        if self._options.ring is not None:
            for partition, generation in self.lives.items():
                self._observe_ring(self.ledger._partitions[partition], generation)
        for item in self.ledger.assignment.held():
            if item not in self.working:
                generation = self.lives[item.partition]
                owner = self._owns(item.partition)
                if self.in_doubt:
                    raise Violation("I15", f"{item} is handed out, {LEASE} s after the group was last heard of")
                if generation.due[item.offset] > max(self.time, item.timestamp):
                    raise Violation("I20", f"{item} is handed out at {self.time}, and is not due")
                self._proof.handed_out(generation, item, owner=owner)
                self.grouping.handed_out(item, self.session, self.working)
                in_place = self._options.order == "in-place"
                in_order = not (self.ledger.bounded or self._options.ranked)
                if in_order and not (in_place and self._options.times.expires):
                    self.grouping.in_order(item, generation, self.time, in_place=in_place)
                self.working[item] = generation
        for item in () if self.ledger.times is None else list(self.ledger.times.kept._items.values()):
            if item not in self.kept and self.ledger.keeps_expired(item):
                self._proof.kept(item, owner=self._owns(item.partition))
                self.kept[item] = self.lives[item.partition]

    def _observe_ring(self, part: PartitionLedger, generation: Life) -> None:
        """Check I23, and copy evictions to the model, where they count as acks.

        The core says which messages are pending, the model which ones must be.
        """
        if not part.open:
            return
        pending = {item.offset for item in part.pending}
        waits = sorted(item.offset for item in part.waiting.values())
        share = max(1, (self._options.ring or 0) // self._options.partition_count)
        now = 0 if self.ledger.times is None else self.ledger.times.time.now
        in_work = sum(item.state in _NEWEST_IN_WORK and generation.expires[item.offset] >= now for item in part.pending)
        depth, may_be_longer = len(waits) + in_work, generation.depth
        if not generation.came_back.isdisjoint(waits) or depth > may_be_longer:
            may_be_longer = max(share, in_work + 1)
        if depth > may_be_longer:
            raise Violation("I23", f"{waits} wait with {in_work} in work, where {share} may")
        generation.depth = depth
        stayed = [offset for offset in waits if offset not in generation.came_back]
        generation.came_back.clear()
        held, time = set(generation.holding.values()), max(self.time, self.newest_at)
        gone = [offset for offset in generation.out.values() if offset not in pending and offset not in held]
        # Of those, some have expired here. Others are evicted, though they may have expired elsewhere, or just after.
        evicted = sorted(offset for offset in gone if generation.expires[offset] >= time)
        gone = [
            offset for offset in gone if offset in evicted or not self._proof.has_expired(generation.partition, offset)
        ]
        if evicted and len(waits) + in_work < share:
            raise Violation("I23", f"{evicted} are evicted, though {waits} and {in_work} in work are all that is left")
        if generation.came_last in evicted and not self._options.times.may_schedule:
            raise Violation("I23", f"{evicted} are evicted, and {generation.came_last} came last")
        if self._options.ranked:  # what came last stays, whatever its rank
            stayed = [offset for offset in stayed if offset != waits[-1]]
        # One that came back may have been in work when others, which came back before it, were judged.
        before = self._evicted_before(generation, stayed, evicted)
        # The one that came last may have been due just now, or been there before one that has expired.
        unsure = self._options.times.may_schedule or (self._options.ranked and self._options.times.expires)
        if len(before) > unsure:
            raise Violation("I23", f"{evicted} are evicted before {before}")
        for lane, offset in list(generation.out.items()):
            if offset in gone:
                item = Item(generation.partition, offset, 0, lane if isinstance(lane, bytes) else None, b"", None, -1)
                item.generation = part._generation
                generation.evicted(item)
                self._proof.acked(item)
                if offset % 2:
                    self.ask(item)

    def _evicted_before(self, generation: Life, waits: list[int], evicted: list[int]) -> list[int]:
        """Return those messages that wait although they go before some that are evicted."""
        ranking = self.ledger.ranking

        def place(offset: int) -> tuple[Any, int]:
            return 0 if ranking is None else -ranking.rank(generation.headers[offset]), offset  # type: ignore[operator]

        last = max(map(place, evicted), default=(0, -1))
        return [offset for offset in waits if evicted and place(offset) < last]

    def _end(self, item: Item, *, acked: bool) -> None:
        self.working.pop(item).settled(item, acked=acked)

    # ---------------------------------------------------------------- checks at any moment

    def check(self) -> None:
        """Check I1, I3 and I11 for the commits that could be sent now."""
        for partition, generation in self.lives.items():
            claim = self.ledger.assignment.claim(partition)
            self._proof.true(partition, claim)
            self._proof.faithful(generation, claim, self.commits.last(partition))
            self._check_places(generation, claim)

    def _check_places(self, generation: Life, claim: CommitMap) -> None:
        """Check I26."""
        options = self._options
        if options.order == "tail" or options.times.expires or self.ledger.stats.displaced:
            return
        for lane, offset in generation.out.items():
            if claim.done(generation.place[lane]):
                raise Violation("I26", f"{claim} says {generation.place[lane]} is done, the place of {offset}")
