"""A consumer process: its state, and its way of committing. `tests.simulator.member` tells the whole of it.

What it holds is in the library's own `SharedState`, by the world's clock. What is simulated is the engine around it,
broken into steps, and the holders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.consuming.settlers import DirectSettler
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.shared_state_base import LEASE, ConsumerLimits, Durable
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.commits import Answer, Commits, Flight
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.fold import Order
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.lifecycle import State
from tests.simulator.group import Connection, Group, Request
from tests.simulator.letters import Letters
from tests.simulator.log import Entry, Log, Transaction
from tests.simulator.proof import Life, Proof, Violation

__all__ = ["Options", "Process", "Work"]

_IN_WORK = frozenset({State.ACQUIRED, State.STALE, State.LEAVING, State.LEAVING_STALE})
_REMOVED = frozenset({State.ACKED, State.REJECTED})


@dataclass(frozen=True, slots=True)
class Options:
    """How a queue is consumed. ``partition_count`` is what the commits say, which need not be how many there are."""

    order: Order = "tail"
    limits: ConsumerLimits = field(default_factory=lambda: ConsumerLimits(max_in_work=4))
    text_limit: int = 4095
    ahead: bool = False
    """Whether messages are set aside, and given to holders one by one."""
    dead_letters: bool = False
    partition_count: int = 1
    ends_known: bool = True
    """Whether the end of a partition is asked for when it is assigned. Without it there is the end of the commit."""


@dataclass(eq=False, slots=True)
class Work:
    """A transaction over what a member takes: the messages it acked, and the commit that is a part of it."""

    transaction: Transaction = field(default_factory=Transaction)
    items: list[Item] = field(default_factory=list)
    flight: Flight[Durable] | None = None
    next: bool = False
    """Its commit waits for the plain one before it."""
    committing: bool = False
    sent_at: float = 0.0


class Watched(SharedState):
    """SharedState that the checks can look into."""

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def commits(self) -> Commits[Durable]:
        return self._commits


class Sync(Enum):
    """What the engine waits for an answer for, doing nothing else."""

    FINAL = "the last commit before partitions go"
    GRACE = "a commit that somebody waits for before partitions go"


class Process:
    """What a consumer process knows, and what it does about commits."""

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
        definition = QueueDefinition(name="queue", topic="topic", key_header=None, order=options.order)
        self.shared = Watched(definition, options.limits, clock)
        self.ledger, self.commits = self.shared.ledger, self.shared.commits
        self.ledger.limit = options.text_limit
        self.letters = Letters()
        self.dead_letters = DeadLetters(self.letters.cluster, "dead" if options.dead_letters else None, self.shared)
        self.settler = DirectSettler(self.shared, self.dead_letters)
        self.lives: dict[int, Life] = {}
        self.working: dict[Item, Life] = {}
        """What was acquired and is not settled, by the model."""
        self.held: dict[Item, None] = {}
        """What holders have, with the number of the assignment."""
        self.worked: set[Item] = set()
        """Those of the held ones whose side effect is done."""
        self.settlements: list[tuple[Item, Settlement]] = []
        """Of acks whose durability nobody has asked for."""
        self.fetched: tuple[int, list[Entry], int] | None = None
        self.work: Work | None = None
        self.going: list[int] = []
        """Partitions that are about to go. Meanwhile the engine is inside the group's callback."""
        self.closing = self.closed = False
        self.epoch = 0
        self.acks = 0
        """Acks that no commit has left for."""
        self.answered = False
        """Whether the last commit is known to be stored."""
        self.turned = clock()
        self._clock = clock
        self._logs = logs
        self._group = group
        self._proof = proof
        self._options = options
        self._coming: dict[int, int] = {}  # partitions that were assigned and wait for their commit, with their targets
        self._flight: Flight[Durable] | None = None
        self._said: dict[int, CommitMap] = {}  # by partition, the last commit that was sent
        self._sync: tuple[Sync, Flight[Durable]] | None = None
        self._asked: list[tuple[Item, Durable]] = []  # who waits for an ack to be durable
        self._sent_at: dict[Flight[Durable], float] = {}
        self._accepted = -math.inf  # when the last commit was sent that the group is known to have accepted
        group.join(number)

    # ---------------------------------------------------------------- turns

    @property
    def blocked(self) -> bool:
        """Whether the engine waits for an answer, or for holders, and does nothing else."""
        return self._sync is not None or bool(self.going)

    def turn(self) -> bool:
        """The engine's sign of life; whether something was due by the clock."""
        if self._sync is not None:
            return False
        wakes = self.ledger.next_wake
        self.turned = now = self._clock()
        self.shared.turn()
        self._observe()
        return wakes is not None and wakes <= now

    @property
    def in_doubt(self) -> bool:
        """Whether it is long since the group is known to have counted on it."""
        return self._clock() - self._accepted > LEASE

    # ---------------------------------------------------------------- committing

    def commit(self) -> bool:
        """Send what has changed, when the commit before is answered or was given up, and no transaction commits."""
        if self.blocked or self._flight is not None:
            return False
        self._flight = self._send(self.shared.next_commit())
        return self._flight is not None

    def _commit_now(self, purpose: Sync, partitions: list[int]) -> bool:
        """Begin a commit that the engine waits for."""
        if purpose is Sync.FINAL:
            self.shared.end_locks(partitions)
            self._observe()
        if self.shared.committing:  # a plain commit would win over that of the transaction
            self._synced(purpose, Answer.UNKNOWN)
            return True
        flight = self._send(self.shared.next_commit(partitions))
        for partition in self.going if purpose is Sync.FINAL else ():
            self._proof.last(self.lives[partition], self._said.get(partition, self.lives[partition].loaded))
        if flight is None:
            self._synced(purpose, Answer.STORED)
        else:
            self._sync = purpose, flight
        return True

    def _send(self, flight: Flight[Durable] | None) -> Flight[Durable] | None:
        self._report()
        if flight is not None:
            self.acks, self.answered = 0, False
            self._said |= flight.maps
            for partition in flight.maps.keys() - self.lives.keys():
                raise Violation("I3", f"a commit speaks for partition {partition}, which is another member's")
            offsets = {p: (said.base, said.encode()) for p, said in flight.maps.items()}
            self._proof.sent(offsets, dict(flight.maps), self._options.text_limit, {})
            for partition, said in flight.maps.items():
                self._proof.roomy(said, self.ledger.claim(partition), self.ledger.limit)
            self.connection.requests.append(Request(self.number, self.epoch, offsets, flight))
            self._sent_at[flight] = self._clock()
        return flight

    def answer(self) -> bool:
        """Take the next answer, however late it is."""
        if not self.connection.answers:
            return False
        self._landed(*self.connection.answers.popleft())
        return True

    def time_out(self) -> bool:
        """Wait no longer for an answer: nothing is known of that commit."""
        flight = self._flight if self._sync is None else self._sync[1]
        if flight is None:
            return False
        self._landed(flight, dict.fromkeys(flight.maps, Answer.UNKNOWN))
        return True

    def _landed(self, flight: Flight[Durable], answers: Mapping[int, Answer]) -> None:
        self.shared.answered(flight, answers)
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
        """The engine goes on. After a text that was too large it tries once more, shorter."""
        if purpose is Sync.FINAL and answer is not Answer.TOO_LARGE:
            if answer is Answer.STORED and self.ledger.limit == self._options.text_limit:
                for partition in set(self.going) - self.commits.unsaid.keys():
                    self._proof.accepted(self.lives[partition], self.commits.last(partition))
            self._end_going()

    def ask(self, item: Item, settlement: Settlement) -> None:
        """Somebody wants to know when an ack is durable."""
        self._asked.append((item, settlement.future()))
        self._report()

    @property
    def awaited(self) -> list[Item]:
        """Acks of which somebody waits to hear whether they are durable."""
        return [item for item, _ in self._asked]

    def _report(self) -> None:
        """Those whose wait is over are told."""
        waiting = []
        for item, future in self._asked:
            if not future.done():
                waiting.append((item, future))
            elif future.exception() is None:
                self._proof.reported(item)
        self._asked = waiting

    def look(self) -> bool:
        """See whether somebody has written over what was committed."""
        if self.blocked:
            return False
        stored = {partition: self._group.offsets(partition) for partition in self.lives}
        self.shared.found({p: CommitMap.decode(*commit) for p, commit in stored.items() if commit is not None})
        return bool(self.lives)

    # ---------------------------------------------------------------- giving partitions up

    def give_up(self, *, urgent: bool = False) -> bool:
        """One step of giving partitions up: commits that are waited for, the final one, its end, the end of locks."""
        if not self.going:
            return False
        if self._sync is not None:
            return self.time_out()
        if not urgent and self.shared.urgent and not self.shared.committing:
            return self._commit_now(Sync.GRACE, self.shared.partitions)
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
        self.shared.forget(partitions)
        self._report()
        for partition in partitions:
            del self.lives[partition]
            self._said.pop(partition, None)
        self.working = {item: generation for item, generation in self.working.items() if item.partition in self.lives}
        if self.fetched is not None and self.fetched[0] in partitions:
            self.fetched = None
        self.going = []
        self._sync = None

    def _owns(self, partition: int) -> bool:
        """Whether it really does; it may not know better."""
        return self._group.owner[partition] == self.number

    # ---------------------------------------------------------------- what the model sees of the library

    def _observe(self) -> None:
        """Take over what custody has done by itself: it has taken messages back, and then acquired others.

        What it says is done is not taken over: that is what the checks are about.
        """
        for item in [item for item in self.working if item.state not in _IN_WORK | _REMOVED]:
            self._end(item, acked=False)
        for item in self.ledger.held():
            if item not in self.working:
                generation = self.lives[item.partition]
                owner = self._owns(item.partition)
                if self.in_doubt:
                    raise Violation("I15", f"{item} is handed out, {LEASE} s after the group was last heard of")
                self._proof.handed_out(generation, item, owner=owner)
                self.working[item] = generation

    def _end(self, item: Item, *, acked: bool) -> None:
        self.working.pop(item).settled(item, acked=acked)

    # ---------------------------------------------------------------- what must hold at any moment

    def check(self) -> None:
        """I1, I3 and I11, of the commits that could leave now."""
        for partition, generation in self.lives.items():
            claim = self.ledger.claim(partition)
            self._proof.true(partition, claim)
            self._proof.faithful(generation, claim, self.commits.last(partition))
