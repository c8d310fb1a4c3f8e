"""The rules of a consumer: its messages, commits, lease and transactions.

One object without locks, threads or clocks. Its owner reports the events of the cluster and the application to it, with
the time where that matters, and then calls `ConsumerCore.pop_outcome` for the waiters to resolve. In the library, the
owner is `lvq_kafka.consuming.shared_state.SharedState`; in tests, it is `tests/simulator`.

Each part decides one thing: the ledger (who may have which message), the commits (which settlements are durable), the
lease (whether the messages are still ours), the hand-out (how many, and when they are counted), the transaction (which
commit may be sent), yielding and absence. Commits read the ledger; the hand-out uses the ledger, commits, lease and
yielding. This module holds the rules that involve several parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Commits, Flight
from lvq_kafka.core.consumer.consumer_transaction import (
    ConsumerTransaction,
    LedgerStep,
    TransactionEvent,
    TransactionPhase,
    Undecided,
)
from lvq_kafka.core.consumer.hand_out import ConsumerLimits, HandOut
from lvq_kafka.core.consumer.lease import LEASE, Lease
from lvq_kafka.core.consumer.obstacles import FULL_TEXT_REMEDY, Obstacles, full_text_report
from lvq_kafka.core.consumer.past_assignments import Generations, Promises
from lvq_kafka.core.consumer.yielding import Yielding
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.paging import PageStore
from lvq_kafka.core.log.absence import Absence
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.queue.rules import PLAIN, QueueRules
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.session_pins import SessionPins
from lvq_kafka.errors import LockLost, StateError, TransportError

__all__ = ["ConsumerCore", "Outcome"]

W = TypeVar("W")

_LEAVING = frozenset({MessageState.LEAVING, MessageState.LEAVING_STALE})
# After these answers, the group will not store that commit later. Only members get them: a broker checks that the
# sender is a member before it checks the text.
_HEARD = frozenset({Answer.STORED, Answer.TOO_LARGE})


class Outcome(NamedTuple, Generic[W]):
    """The waiters to resolve, and the callers to wake, since the last outcome.

    Acquiring messages, steps of the ledger, and `ConsumerCore.wait_done` never produce one.
    """

    ready: Sequence[W]
    """Waiters whose message is durably settled."""
    failed: Sequence[W]
    """Waiters whose message this consumer can no longer settle durably."""
    wake: int
    """The number of callers to wake, since there may be messages for them."""


class ConsumerCore(Generic[W]):
    """Everything that a consumer knows and decides.

    ``W`` is the owner's type of waiter for a settlement; the core only keeps waiters, and gives them back.

    Messages are acquired from `hand_out`, and settled by the methods of `ledger`. Settling resolves no waiter; it may
    only make other messages available.

    Args:
        limits: how much to hand out, and for how long.
        rules: the rules of the queue.
        pages: see `Ledger`.
        now: seconds on the owner's clock, as in all methods.
    """

    def __init__(
        self,
        limits: ConsumerLimits,
        rules: QueueRules = PLAIN,
        *,
        pages: PageStore | None = None,
        now: float,
    ) -> None:
        self.ledger = Ledger(rules, count_deliveries=limits.durable_counts, pages=pages)
        self.commits: Commits[W] = Commits(self.ledger)
        self.lease = Lease()
        self.transaction = ConsumerTransaction()
        self.generations = Generations()
        self.promises = Promises()
        self.yielding = Yielding()
        self.hand_out = HandOut(limits, self.ledger, self.commits, self.lease, self.yielding)
        self.absence = Absence(DELETE_RETENTION)
        self.obstacles = Obstacles()
        self.epochs: dict[int, int] = {}
        """By partition, the latest leader epoch of the records read."""
        self.mismatched = 0
        """Records whose key header and key disagree."""
        self.ignored = 0
        """Deletes in a standard queue."""
        self.stands_by = False
        """True while there are more consumers than partitions, and this one has none."""
        self._turned_at = now
        # By partition, the last plain commit, until the group is known to have decided on it.
        self._unanswered: dict[int, Flight[W]] = {}
        self._failed: list[W] = []
        self._wake = 0

    def adopt(self, limits: ConsumerLimits, rules: QueueRules, pages: PageStore | None) -> None:
        """Keep to the limits and rules of an altered queue (R39).

        Raises what `Ledger.adopt` raises.
        """
        self.ledger.adopt(rules, pages, count_deliveries=limits.durable_counts)
        self.hand_out.adopt(limits)

    def pop_outcome(self) -> Outcome[W]:
        """Return the waiters to resolve and the callers to wake. Call after every other method."""
        wake = self._wake + self.hand_out.pop_counted()
        outcome = Outcome(self.commits.pop_ready(), self._failed, wake)
        self._failed, self._wake = [], 0
        return outcome

    # ---------------------------------------------------------------- state for the owner

    @property
    def partitions(self) -> list[int]:
        """The assigned partitions."""
        return list(self.generations)

    @property
    def settled(self) -> int:
        """The number of messages acked or rejected."""
        return self.ledger.stats.acked + self.ledger.stats.rejected

    @property
    def is_busy(self) -> bool:
        """True if a commit may become urgent at any moment: messages are held, or can be."""
        return self.ledger.in_work > 0 or (self.ledger.assignment.opened and not self.hand_out.paused)

    @property
    def is_quiet(self) -> bool:
        """True if no plain commit can still arrive."""
        return not (self._unanswered or self.commits.in_flight)

    @property
    def text_is_full(self) -> bool:
        """True if something does not fit into the commit text."""
        looks_for_room = self.ledger.bounded or self.ledger.ranking is not None
        return self.commits.text_is_full or (looks_for_room and self.ledger.assignment.gated > 0)

    @property
    def needs_room(self) -> bool:
        """True if something does not fit into the commit text, or soon may not."""
        return self.text_is_full or self.commits.fills_up

    @property
    def full_text_report(self) -> str:
        """A description of the parts that do not fit into the commit text; empty if all fit."""
        ledger = self.ledger
        omitted, evicts = self.commits.omitted, ledger.ring is not None
        return full_text_report(ledger.assignment, omitted, ledger.window, strict=ledger.bounded, evicts=evicts)

    @property
    def obstacle(self) -> str:
        """The obstacle to the consumer's progress, and its remedy; empty if all is well."""
        return self.yielding.reason or str(self.obstacles) or self.full_text_report

    def is_urgent(self, now: float) -> bool:
        """Return whether the next commit should not wait for its interval."""
        return self.commits.urgent or self.transaction.phase is TransactionPhase.NEXT or self.hand_out.is_suspended(now)

    def unanswered(self, now: float) -> float:
        """Return for how many seconds the last commit has been unanswered; 0 if none is in flight."""
        return self.lease.silence(now) if self.commits.in_flight else 0.0

    # ---------------------------------------------------------------- messages

    def pause(self, paused: bool) -> None:
        """Stop or resume handing out messages. Newer values still replace waiting ones."""
        self.hand_out.paused = paused
        self._wake += 1

    def open_session(self) -> SessionPins:
        """Return a new session, which counts as one consumer (R36)."""
        return SessionPins() if self.ledger.groups is None else self.ledger.groups.open()

    def end_session(self, session: SessionPins) -> None:
        """End a session. It gets no more messages, and keeps those that it holds."""
        if self.ledger.groups is None:
            session.ended = True
        else:
            self.hand_out.give_back_reserved(session)
            self.ledger.groups.end(session)
        self._wake += 1

    def wait_done(self, item: Item, waiter: W) -> bool | None:
        """Return whether the message is durably settled; None if the waiter has to wait for that.

        In that case, a later outcome lists it as ready or failed.
        """
        partition, offset, generation = item.partition, item.offset, item.generation
        if self.generations.is_current(partition, generation):
            return self.commits.wait_done(partition, offset, waiter) or None
        return self.generations.committed(offset, generation)

    # ---------------------------------------------------------------- reading

    def turn(self, now: float) -> float:
        """Record a sign of life.

        Returns the seconds since the last one if the process stood still for too long, else 0.
        """
        silence, self._turned_at = now - self._turned_at, now
        return silence if silence > LEASE and self.partitions else 0.0

    def wake(self, now: float) -> None:
        """End the delays and locks whose time is over. Call it before handing out."""
        self._wake += self.ledger.wake(now)

    def pass_time(self, clock: float) -> None:
        """Let due messages count, and drop expired ones. Call it before handing out.

        Args:
            clock: the time of this machine, in seconds since the epoch.
        """
        self._wake += self.ledger.pass_time(clock)  # there may be other messages to hand out, or room for them

    def pop_expired(self, most: int, now: float) -> list[Item]:
        """See `Ledger.pop_expired`.

        Returns nothing while the messages may belong to another consumer.
        """
        return [] if self.lease.lapsed(now) else self.ledger.pop_expired(most)

    def read(self, fetch: Fetch, keys: Sequence[bytes | None], mismatched: int) -> None:
        """Add the records read, under these keys."""
        self.ledger.add(fetch.batch, keys)
        self.ledger.advance(fetch.positions)
        self.epochs |= {p: max(epoch, self.epochs[p]) for p, epoch in fetch.epochs.items()}
        self.mismatched += mismatched
        self.obstacles.clear("reading")
        self._wake += self.ledger.assignment.opened  # while catching up, callers would be woken for nothing

    # ---------------------------------------------------------------- assignments

    def assign(
        self,
        loaded: Mapping[int, CommitMap],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        now: float,
        *,
        epochs: Mapping[int, int],
        tag: bytes,
        retention: float = DELETE_RETENTION,
        taken_back: Collection[int] = (),
    ) -> None:
        """Start with these partitions: read from the starts, hand out once the ends are reached.

        Args:
            epochs: the leader epochs that the commits name.
            tag: the topic's tag.
            retention: seconds for which the topic keeps tombstones.
            taken_back: the partitions whose maps are from `promises`, because the group's commits are older.
        """
        for partition, commit_map in loaded.items():
            self.promises.release(partition)
            generation = self.ledger.assign(partition, commit_map, ends[partition], start=starts[partition])
            self.commits.track(partition, commit_map, tag=tag, partitions=commit_map.partitions)
            self.generations.start(partition, generation)
            self.epochs[partition] = epochs[partition]
        self.commits.distrust(taken_back)
        self.absence.keeps(retention)
        self.absence.track(now, starts)
        self._turned_at = now  # the cluster may have been slow to report the starts and ends
        self._wake += 1

    def withhold(self, partitions: Collection[int]) -> None:
        """See `Ledger.withhold`. Callers are woken if that leaves room for other messages."""
        self._wake += self.ledger.withhold(partitions)

    def end_locks(self, partitions: Collection[int]) -> None:
        """End the locks on held messages of these partitions: settling then raises `LockLost`.

        The next commit includes every settlement accepted before. Without this, a settlement that is accepted while the
        last commit is in flight would never be stored.
        """
        self.ledger.end_locks(partitions)
        self._wake += 1

    def unstored(self, partitions: Collection[int]) -> list[int]:
        """Return the partitions whose done messages are not all known to be stored."""
        claim = self.ledger.assignment.claim
        return [p for p in partitions if not self.commits.last(p).covers(claim(p))]

    def forget(self, partitions: Collection[int]) -> None:
        """End the assignment of these partitions, and with it the locks on their messages."""
        self.ledger.revoke(partitions)
        self.absence.untrack(partitions)
        for partition in partitions:
            last, epoch = self.commits.last(partition), self.epochs.pop(partition, -1)
            self.generations.end(partition, last)
            self.promises.keep(partition, last, epoch, self._turned_at)
            self._unanswered.pop(partition, None)  # this consumer must not repeat it any more
        self.obstacles.clear("committing")  # if it persists for others, it is reported again
        self._failed += self.commits.untrack(partitions)
        self._wake += 1

    # ---------------------------------------------------------------- plain commits

    def next_commit(self, now: float, partitions: Collection[int] | None = None) -> Flight[W] | None:
        """Return the next commit: for all partitions once the last is answered, or for these now.

        Returns None while a transaction commits. A transaction about to commit waits for the plain commit before it.
        That commit is sent again until it is known to be stored, or to be too large for the broker.
        """
        if self.transaction.excludes_commits or (partitions is None and self.commits.in_flight):
            return None
        if self.transaction.phase is TransactionPhase.NEXT:
            if self._unanswered:
                self.commits.renew(self._unanswered)
            elif partitions is None:
                return None
        if self.hand_out.is_suspended(now):
            self.commits.renew(self.partitions)  # one accepted partition is enough: others may be refused
        flight = self.commits.prepare(partitions)
        if flight is not None:
            self._unanswered |= dict.fromkeys(flight.maps, flight)
            self.lease.sent(flight, now)
        return flight

    def answered(self, flight: Flight[W], answers: Mapping[int, Answer] | Answer) -> None:
        """Process the answer to a commit."""
        each = answers if isinstance(answers, Mapping) else dict.fromkeys(flight.maps, answers)
        said = set(each.values())
        self.commits.landed(flight, each)
        if said & _HEARD:
            self._wake += self.lease.renew(flight)
        if said == {Answer.STORED}:
            self.obstacles.clear("reading", "committing")
        for partition, answer in each.items():
            if answer in _HEARD and self._unanswered.get(partition) is flight:
                del self._unanswered[partition]

    @property
    def durable(self) -> dict[int, CommitMap]:
        """The commit maps that the group is known to hold."""
        return {partition: self.commits.last(partition) for partition in self.generations}

    def found(self, stored: Mapping[int, CommitMap], before: Mapping[int, CommitMap] | None = None) -> list[int]:
        """Compare the group's commits with ours; return the partitions that were overwritten.

        Args:
            before: the maps that the group was known to hold when it was asked. A partition is ignored if its map has
                changed since, as after a transaction.
        """
        judged = stored if before is None else [p for p in stored if before.get(p) is self.commits.last(p)]
        return [partition for partition in judged if not self.commits.found(partition, stored[partition])]

    # ---------------------------------------------------------------- yielding partitions to others

    def is_of_no_use(self, now: float, *, awaited: bool) -> bool:
        """Return whether no transaction has begun for long, and no caller consumes without.

        False while a transaction is open or may have committed: its offsets are pending for other consumers, too, and
        they could only wait for its end. Once it is decided here, they can continue at once.

        Args:
            awaited: whether a caller waits for messages, and would get them.
        """
        return (
            bool(self.generations)
            and self.transaction.phase is TransactionPhase.NONE
            and not awaited
            and self.yielding.is_due(now, self.settled)
        )

    def yield_partitions(self, now: float) -> str:
        """Leave the partitions to others, and return why.

        The consumer rejoins when it can use them again.
        """
        self.obstacles.idle = ""
        return self.yielding.leave(now, self.settled, self.obstacles.of("transacting"))

    # ---------------------------------------------------------------- transactions

    def check_transaction(self) -> None:
        """Check that a transaction may be opened, at once or when the last one is decided.

        There is one at a time: the commit of a second one would overwrite the first in all of its partitions.

        Raises:
            StateError: a transaction is open.
        """
        if self.transaction.is_open:
            raise StateError("This consumer already has an open transaction.", hint="Commit or abort it first.")

    def open_transaction(self) -> None:
        """Open a transaction. The last one must be decided."""
        self.transaction.advance(TransactionEvent.OPEN)
        self.obstacles.clear("transacting")
        self.ledger.bounded = True  # a transaction cannot commit acks that do not fit into the text

    def queue_transaction(self) -> None:
        """Make the transaction's commit the next one. `prepare_commit` builds it once `is_quiet`.

        A commit in flight could arrive after the transaction's, and undo it.
        """
        self.transaction.advance(TransactionEvent.QUEUE)

    def prepare_commit(self, items: Collection[Item], now: float) -> Flight[W] | None:
        """Return the commit of a transaction for these messages, which are leaving.

        No other commit is sent until the transaction ends. Returns None if the group's commit already marks all of them
        as done, since newer values have superseded them.

        Raises:
            LockLost: one of the messages is no longer held.
            TransportError: the messages do not fit into the commit text.
        """
        for item in items:
            if item.state not in _LEAVING:
                raise LockLost(
                    f"{item} is no longer held: its partition was revoked, or its lock timed out.",
                    hint="The transaction is aborted: the partition's current owner gets the message.",
                )
        self.transaction.advance(TransactionEvent.COMMIT)
        flight = self.commits.prepare({item.partition for item in items}, items)
        if not all(self._says_done(flight, item) for item in items):
            if flight is not None:
                self.commits.landed(flight, Answer.UNKNOWN)
            raise TransportError(
                "The commit has no room for all the messages settled out of order.",
                code="OFFSET_METADATA_TOO_LARGE",
                retriable=True,
                hint=f"Settle the lowest messages. {FULL_TEXT_REMEDY}",
            )
        if flight is not None:
            self.lease.sent(flight, now)
            self.transaction.commits(flight.maps)
        return flight

    def _says_done(self, flight: Flight[W] | None, item: Item) -> bool:
        said = None if flight is None else flight.maps.get(item.partition)
        return (said or self.commits.last(item.partition)).done(item.offset)

    def leave_undecided(self, undecided: Undecided) -> None:
        """Record that the transaction may have committed, or may yet commit.

        The group's commits show the outcome once none of them is pending.
        """
        self.transaction.advance(TransactionEvent.LOSE)
        self.transaction.undecided = undecided

    def decide(self, stored: Mapping[int, CommitMap], now: float) -> tuple[Undecided, bool] | None:
        """Determine the outcome from the group's commits, with none of them pending.

        Returns the transaction, and whether it has committed; None if that is not known yet.

        The transaction has committed if its messages are done in these commits. While a partition stays assigned to
        this consumer, no other consumer commits for it, so its map is that of the transaction or the one before. If the
        partition has moved and all messages are done, the next owner may have settled them; that makes no difference to
        a caller that asks about these messages.
        """
        undecided = self.transaction.undecided
        if undecided is None or not stored.keys() >= undecided.partitions:
            return None
        committed = all(stored[item.partition].done(item.offset) for item in undecided.left)
        self.transaction.pop_undecided()
        self.obstacles.clear("transacting")
        answer = Answer.STORED if committed else Answer.UNKNOWN
        self.end_transaction(undecided.outcome(committed), undecided.flight, answer, now)
        return undecided, committed

    def end_transaction(
        self, steps: Iterable[tuple[LedgerStep, Item]], flight: Flight[W] | None, answer: Answer, now: float
    ) -> None:
        """End a committed or aborted transaction. Each step is applied to its message."""
        self.transaction.advance(TransactionEvent.END)
        settled = self.settled
        for step, item in steps:
            with suppress(LockLost):  # its partition was revoked
                step(self.ledger, item)
        self.yielding.decided(self.settled - settled)
        if flight is not None:
            self.commits.landed(flight, answer)
            self.transaction.decided(flight.maps, now)
            if answer is Answer.STORED:
                self.lease.renew(flight)
        self._wake += 1
