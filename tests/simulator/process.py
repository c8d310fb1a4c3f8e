"""A consumer process: its state, and its way of committing. `tests.simulator.member` tells the whole of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.commits import Answer, Commits, Flight
from lvq_kafka.core.fold import Order
from lvq_kafka.core.ledger import Item, Ledger
from tests.simulator.group import Connection, Group, Request, Waiter
from tests.simulator.log import Entry, Log, Transaction
from tests.simulator.proof import Life, Proof

__all__ = ["Options", "Process", "Work"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a queue is consumed. ``partition_count`` is what the commits say, which need not be how many there are."""

    order: Order = "tail"
    max_in_work: int = 4
    text_limit: int = 4095
    durable_counts: bool = False
    max_deliveries: int | None = None
    dead_letters: bool = False
    partition_count: int = 1
    ends_known: bool = True
    """Whether the end of a partition is asked for when it is assigned. Without it there is the end of the commit."""


@dataclass(eq=False, slots=True)
class Work:
    """A transaction over what a member takes: the messages it acked, and the commit that is a part of it."""

    transaction: Transaction = field(default_factory=Transaction)
    items: list[Item] = field(default_factory=list)
    flight: Flight[Waiter] | None = None
    committing: bool = False


class Process:
    """What a consumer process knows, and what it does about commits."""

    def __init__(self, number: int, logs: list[Log], group: Group, proof: Proof, options: Options) -> None:
        self.number = number
        self.connection = Connection()
        self.stopped = False
        self.ledger = Ledger(order=options.order, limit=options.text_limit, count_deliveries=options.durable_counts)
        self.commits: Commits[Waiter] = Commits(self.ledger, limit=options.text_limit)
        self.lives: dict[int, Life] = {}
        self.held: list[Item] = []
        self.worked: set[Item] = set()
        """Those of the held ones whose side effect is done."""
        self.letters: deque[Item] = deque()
        """Messages whose dead letters are on their way."""
        self.fetched: tuple[int, list[Entry], int] | None = None
        self.work: Work | None = None
        self.going: list[int] = []
        """Partitions that are about to go. Meanwhile the engine is inside the group's callback."""
        self.final: Flight[Waiter] | None = None
        self.closing = self.closed = False
        self.epoch = 0
        self.acks = 0
        """Acks that no commit has left for."""
        self.answered = False
        """Whether the last commit is known to be stored."""
        self._logs = logs
        self._group = group
        self._proof = proof
        self._options = options
        self._coming: dict[int, int] = {}  # partitions that were assigned and wait for their commit, with their targets
        self._flight: Flight[Waiter] | None = None
        self._unanswered: Flight[Waiter] | None = None  # the last one that was sent, until an answer to it comes
        self._counting: list[Item] = []  # acquired, and on their way to a holder when that is counted durably
        group.join(number)

    # ---------------------------------------------------------------- committing

    def commit(self) -> bool:
        """Send what has changed, when the commit before is answered, or was given up, and no transaction commits."""
        if self.going or self._flight is not None or self._transacting:
            return False
        self._flight = self._send(None)
        return self._flight is not None

    def _send(self, partitions: list[int] | None) -> Flight[Waiter] | None:
        flight = self.commits.take(partitions)
        self._report()
        if flight is not None:
            self.acks, self.answered = 0, False
            offsets = {p: (said.base, said.encode()) for p, said in flight.maps.items()}
            self._proof.sent(offsets, dict(flight.maps), self._options.text_limit, {})
            self.connection.requests.append(Request(self.number, self.epoch, offsets, flight))
            self._unanswered = flight
        return flight

    def answer(self) -> bool:
        """Take the next answer, however late it is."""
        if not self.connection.answers:
            return False
        flight, answers = self.connection.answers.popleft()
        if flight is self._unanswered:
            self._unanswered = None
        self._landed(flight, answers)
        return True

    def time_out(self) -> bool:
        """Wait no longer for an answer: nothing is known of that commit."""
        flight = self._flight if self.final is None else self.final
        if flight is None:
            return False
        self._landed(flight, dict.fromkeys(flight.maps, Answer.UNKNOWN))
        return True

    def _landed(self, flight: Flight[Waiter], answers: Mapping[int, Answer]) -> None:
        self.commits.landed(flight, answers)
        self.answered = not self.commits.in_flight and Answer.STORED in answers.values()
        self._report()
        if flight is self._flight:
            self._flight = None
        if flight is self.final:
            self.final = None
            if Answer.TOO_LARGE not in answers.values():  # else once more, shorter
                self._end_going()

    def _report(self) -> None:
        """Tell those whose wait is over."""
        for item, counting in self.commits.take_ready():
            if not counting:
                self._proof.reported(item)
            elif item in self._counting:
                self._counting.remove(item)
                self._deliver(item)

    def _deliver(self, item: Item) -> None:
        self.held.append(item)
        counted = self._options.durable_counts and self._owns(item.partition)
        self._proof.delivered(item, counted=counted)

    def look(self) -> bool:
        """See whether somebody has written over what was committed."""
        if self.going:
            return False
        for partition in self.lives:
            commit = self._group.offsets(partition)
            if commit is not None:
                self.commits.found(partition, CommitMap.decode(*commit))
        return bool(self.lives)

    @property
    def _transacting(self) -> bool:
        return self.work is not None and self.work.committing

    # ---------------------------------------------------------------- giving partitions up

    def give_up(self) -> bool:
        """One step of giving partitions up: the final commit, its end, the end of the locks."""
        if not self.going:
            return False
        if self.final is not None:
            return self.time_out()
        if not self._transacting:  # else a plain commit would win over that of the transaction
            self.final = self._send(self.going)
        if self.final is None:
            self._end_going()
        return True

    def _end_going(self) -> None:
        going = self.going
        self._forget(going)
        self._group.given_up(self.number, going)
        if self.closing:
            self.closed = True
            if self.number in self._group.members:
                self._group.remove(self.number)

    def _forget(self, partitions: list[int]) -> None:
        self.ledger.revoke(partitions)
        self.commits.end(partitions)
        for partition in partitions:
            del self.lives[partition]
        if self.fetched is not None and self.fetched[0] in partitions:
            self.fetched = None
        self._counting = [item for item in self._counting if item.partition in self.lives]
        self.going = []
        self.final = None

    def _owns(self, partition: int) -> bool:
        """Whether it really does; it may not know better."""
        return self._group.owner[partition] == self.number

    # ---------------------------------------------------------------- what must hold at any moment

    def check(self) -> None:
        """I1, I3 and I11, of the commits that could leave now."""
        for partition, life in self.lives.items():
            claim = self.ledger.claim(partition)
            self._proof.true(partition, claim)
            self._proof.faithful(life, claim, self.commits.last(partition))
