"""The I/O thread's view of the shared state: records, assignments, commits, transactions."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from threading import Condition, RLock

from lvq_kafka.clocks import uptime
from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.crowding import CROWDED_REMEDY
from lvq_kafka.consuming.shared_state_base import LEASE, ConsumerLimits, Doing, Durable, SharedStateBase, Step, resolve
from lvq_kafka.core.absence import Absence, Lapse
from lvq_kafka.core.commit_map import ANY_LENGTH, CommitMap
from lvq_kafka.core.commits import Answer, Flight
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.mismatch import choose_keys
from lvq_kafka.core.policy import DELETE_RETENTION
from lvq_kafka.core.quoting import bounded
from lvq_kafka.core.records import Fetch
from lvq_kafka.errors import LockLost, OutcomeUnknown, StateError, TransportError
from lvq_kafka.forking import left_behind, notify_of_forks

__all__ = ["SharedState"]

logger = logging.getLogger("lvq_kafka.consumer")

_LEAVING = frozenset({State.LEAVING, State.LEAVING_STALE})
# Answers after which the group will not store that commit later. Only members get them: a broker checks texts only
# after it has found that the group knows the sender.
_HEARD = frozenset({Answer.STORED, Answer.TOO_LARGE})


class _TransactionPhase(Enum):
    """The phase of this consumer's transaction."""

    NONE = "none"
    OPEN = "open"
    NEXT = "next"
    """Its commit is next, once the one before it is known to have arrived."""
    COMMITTING = "committing"
    """Its commit is in flight. No other is sent, since that would override it."""
    UNDECIDED = "undecided"
    """Its outcome is unknown. Until the group reports it, no other commit is sent."""


@dataclass(frozen=True, slots=True)
class _Undecided:
    """A transaction whose outcome is unknown."""

    flight: Flight[Durable]
    left: Mapping[Item, Step]
    notify: Callable[[bool | None], None]


_COMMITTING = frozenset({_TransactionPhase.COMMITTING, _TransactionPhase.UNDECIDED})


class SharedState(SharedStateBase):
    """The whole shared state, with the operations of the I/O thread and of transactions."""

    def __init__(
        self, definition: QueueDefinition, limits: ConsumerLimits, clock: Callable[[], float] = uptime
    ) -> None:
        super().__init__(definition, limits, clock)
        self._transaction = _TransactionPhase.NONE
        self._undecided: _Undecided | None = None
        # By partition, the last plain commit, until the group is known to have decided on it.
        self._unanswered: dict[int, Flight[Durable]] = {}
        self._asked: Flight[Durable] | None = None  # the last commit, plain or of a transaction
        self._asked_at = -math.inf  # when it was prepared
        # By partition, when the last commit of a transaction was decided; infinity while it is not.
        self._decided_at: dict[int, float] = {}
        self._epochs: dict[int, int] = {}  # by partition, the latest leader epoch of the records read
        self._absence = Absence(DELETE_RETENTION)
        self._turned_at = clock()
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._waiters.forget()
        self.fail(left_behind(f"The consumer of {self._definition.name}"))
        self.forget(self.partitions)

    # ---------------------------------------------------------------- state

    @property
    def partitions(self) -> list[int]:
        """The assigned partitions."""
        return list(self._generations)

    @property
    def positions(self) -> dict[int, int]:
        """The position up to which each partition has been read."""
        with self._lock:
            return dict(self._ledger.positions)

    @property
    def unanswered(self) -> float:
        """Seconds for which the last commit has been unanswered; 0 if none is in flight."""
        return self.clock() - self._asked_at if self._commits.in_flight else 0.0

    @property
    def busy(self) -> bool:
        """True if a commit may become urgent at any moment: messages are held, or can be."""
        return self._ledger.in_work > 0 or (self._ledger.opened and not self._paused)

    @property
    def in_trouble(self) -> bool:
        """True if the last attempt to read or to commit failed."""
        return bool(self._trouble.keys() - {"transacting"})

    @property
    def is_full(self) -> bool:
        """True if as many messages are held as allowed."""
        return self._ledger.in_work >= self.limits.max_in_work

    @property
    def delivered(self) -> int:
        """The number of messages handed out."""
        return self._ledger.stats.delivered

    @property
    def urgent(self) -> bool:
        """True if the next commit should not wait for its interval."""
        return self._commits.urgent or self._transaction is _TransactionPhase.NEXT or self.suspended

    @property
    def committing(self) -> bool:
        """True if a transaction's commit is or may be in flight, so that no other may be sent."""
        return self._transaction in _COMMITTING

    @property
    def failed(self) -> bool:
        """True once the consumer has failed: no more messages will come."""
        return self._failure is not None

    # ---------------------------------------------------------------- reading

    def turn(self) -> bool:
        """Do what is due by the clock. Return whether the process stood still since the last turn."""
        now = self.clock()
        silence, self._turned_at = now - self._turned_at, now
        if self._ledger.alarmed:  # otherwise there is no need to wait for the lock
            with self._lock:
                due = self._ledger.next_wake
                if due is not None and due <= now:
                    self._ledger.wake(now)
                    self._notify()
        stood_still = silence > LEASE and bool(self.partitions)
        if stood_still:
            logger.warning("the consumer of %s stood still for %.1f s", self._definition.name, silence)
        return stood_still

    @property
    def outdated(self) -> bool:
        """See `Absence.outdated`."""
        return self._absence.outdated(self.clock())

    def asked(self, retention: float) -> None:
        """Record for how many seconds the topic keeps tombstones, as asked after an absence."""
        with self._lock:
            self._absence.asked(self.clock(), retention)

    def came_too_late(self, fetch: Fetch) -> Lapse | None:
        """Return a lapse if tombstones may have been cleaned before this was read (R18).

        Then it must be discarded, along with everything read before it.
        """
        with self._lock:
            return self._absence.read(self.clock(), fetch)

    def ended(self, then: float, ends: Mapping[int, int], retention: float) -> None:
        """Record the partitions' ends at that time, or later.

        Args:
            retention: seconds for which the topic keeps tombstones.
        """
        with self._lock:
            self._absence.keeps(retention)
            self._absence.ended(then, ends)

    def read(self, fetch: Fetch) -> None:
        """Add what was read.

        Raises:
            KeyMismatch: a header and a key disagree, and the queue's policy is ``"fail"``.
        """
        definition, batch = self._definition, fetch.batch
        keys, mismatched = choose_keys(batch, self.topic, definition.key_header, definition.key_mismatch)
        with self._lock:
            self._ledger.add(batch, keys)
            self._ledger.advance(fetch.positions)
            self._epochs |= {p: max(epoch, self._epochs[p]) for p, epoch in fetch.epochs.items()}
            self._mismatched += mismatched
            self._trouble.pop("reading", None)
            if self._ledger.opened:  # while catching up, waiters would be woken for nothing
                self._notify()

    def trouble(self, while_: Doing, error: Exception) -> None:
        """Record that an activity currently fails.

        Activities are tracked separately: incoming messages do not prove that commits are stored.
        """
        with self._lock:
            said = bounded(str(error))
            if not self._trouble:
                logger.warning("the consumer of %s goes on after: %s", self._definition.name, said)
            self._trouble[while_] = said

    def report_idle(self, reason: str) -> None:
        """Set why nothing is handed out although the cluster answers; empty if nothing is wrong."""
        self._idle_reason = reason

    def recovered(self) -> None:
        """Clear the reading trouble: the cluster answers.

        Messages, which would also show that, may be a long time coming.
        """
        with self._lock:
            self._trouble.pop("reading", None)

    # ---------------------------------------------------------------- assignments

    def assign(
        self,
        loaded: Mapping[int, CommitMap],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        epochs: Mapping[int, int],
        tag: bytes,
        retention: float = DELETE_RETENTION,
    ) -> None:
        """Start with these partitions: read from the starts, hand out once the ends are reached.

        Args:
            epochs: the leader epochs that the commits name.
            tag: the topic's tag.
            retention: seconds for which the topic keeps tombstones.
        """
        with self._lock:
            for partition, commit_map in loaded.items():
                generation = self._ledger.assign(partition, commit_map, ends[partition], start=starts[partition])
                self._commits.track(partition, commit_map, tag=tag, partitions=commit_map.partitions)
                self._generations.start(partition, generation)
                self._epochs[partition] = epochs[partition]
            self._absence.keeps(retention)
            self._absence.track(self.clock(), starts)
            self._turned_at = self.clock()  # the cluster may have been slow to report the starts and ends
            self._notify()

    def withhold(self, partitions: Collection[int]) -> None:
        """Hand out nothing more from these partitions."""
        with self._lock:
            self._ledger.withhold(partitions)

    def wait_finished(self, partitions: Collection[int], timeout: float) -> bool:
        """Wait until nothing of these partitions is held; return False on timeout.

        Returns early once the consumer is closed or has failed.
        """
        with self._lock:
            return self._wait_for(
                lambda: self._closed or self.failed or not any(self._ledger.held(partitions)), timeout
            )

    def end_locks(self, partitions: Collection[int]) -> None:
        """End the locks on held messages of these partitions: settling then raises `LockLost`.

        Everything accepted before is in the commit to come. Otherwise, settlements would be accepted while the last
        commit is in flight, and never stored.
        """
        with self._lock:
            self._ledger.end_locks(partitions)
            self._notify()

    def unstored(self, partitions: Collection[int]) -> list[int]:
        """Return the partitions of which the group is not known to hold everything done."""
        with self._lock:
            return [p for p in partitions if not self._commits.last(p).covers(self._ledger.claim(p))]

    def forget(self, partitions: Collection[int]) -> None:
        """End the assignment of these partitions, and with it the locks on their messages."""
        with self._lock:
            self._ledger.revoke(partitions)
            self._absence.untrack(partitions)
            for partition in partitions:
                self._generations.end(partition, self._commits.last(partition))
                self._epochs.pop(partition, None)
                self._unanswered.pop(partition, None)  # no longer this consumer's to repeat
            self._trouble.pop("committing", None)  # if it persists for others, it is reported again
            vain = self._commits.untrack(partitions)
            self._notify()
        for future in vain:
            resolve([future], self._in_vain())

    # ---------------------------------------------------------------- plain commits

    def next_commit(self, partitions: Collection[int] | None = None) -> Flight[Durable] | None:
        """Return the next commit: of all partitions once the last is answered, or of these now.

        Returns None while a transaction commits. A transaction about to commit waits for the commit before it, so that
        one is sent again until it is known to be stored, or to be too large for the broker.
        """
        with self._lock:
            if self.committing or (partitions is None and self._commits.in_flight):
                return None
            if self._transaction is _TransactionPhase.NEXT:
                if self._unanswered:
                    self._commits.renew(self._unanswered)
                elif partitions is None:
                    return None
            if self.suspended:
                self._commits.renew(self.partitions)  # one accepted partition is enough: others may be refused
            asked_at = self.clock()
            flight = self._commits.prepare(partitions)
            if flight is not None:
                self._unanswered |= dict.fromkeys(flight.maps, flight)
                self._asked, self._asked_at = flight, asked_at
            ready = self._commits.pop_ready()
        resolve(ready)
        return flight

    def commits_of(self, flight: Flight[Durable]) -> dict[int, Commit]:
        """Return a flight as the commits that the group stores."""
        return {
            p: Commit(said.base, said.encode(ANY_LENGTH), self._epochs.get(p, -1)) for p, said in flight.maps.items()
        }

    def answered(self, flight: Flight[Durable], answers: Mapping[int, Answer] | Answer) -> None:
        """Process the answer to a commit."""
        each = answers if isinstance(answers, Mapping) else dict.fromkeys(flight.maps, answers)
        said = set(each.values())
        with self._lock:
            self._commits.landed(flight, each)
            if said & _HEARD and flight is self._asked:
                self.proven()
            if said == {Answer.STORED}:
                for doing in ("reading", "committing"):
                    self._trouble.pop(doing, None)
            for partition, answer in each.items():
                if answer in _HEARD and self._unanswered.get(partition) is flight:
                    del self._unanswered[partition]
            ready = self._commits.pop_ready()
            self._changed.notify_all()
        resolve(ready)

    def proven(self) -> None:
        """Renew the lease: the group accepted (or size-rejected) our last commit.

        So we were a member when we sent it, or later.
        """
        with self._lock:
            self._counted_on = self._asked_at
            self._waiters.wake_next()

    def allow(self, limit: int) -> None:
        """Set the number of characters that the broker accepts in a commit text."""
        with self._lock:
            self._commits.allow(limit)

    @property
    def durable(self) -> dict[int, CommitMap]:
        """The commit maps that the group is known to hold."""
        with self._lock:
            return {partition: self._commits.last(partition) for partition in self._generations}

    def found(self, stored: Mapping[int, CommitMap], before: Mapping[int, CommitMap] | None = None) -> list[int]:
        """Compare the group's commits with ours; return the partitions that were overwritten.

        Args:
            before: what the group was known to hold when it was asked. If a transaction has changed that since, the
                answer is ignored.
        """
        with self._lock:
            judged = stored if before is None else [p for p in stored if before.get(p) is self._commits.last(p)]
            over = [partition for partition in judged if not self._commits.found(partition, stored[partition])]
            ready = self._commits.pop_ready()
        resolve(ready)
        return over

    @property
    def doubted(self) -> bool:
        """See `Commits.doubted`."""
        return self._commits.doubted

    def doubt(self) -> None:
        """Treat nothing as durable before the group's commits are read: a commit may arrive late."""
        with self._lock:
            self._commits.doubt()

    # ---------------------------------------------------------------- yielding partitions to others

    @property
    def away(self) -> bool:
        """True if the consumer has left its group, or is about to.

        It rejoins when it can use its partitions again.
        """
        return self._yielding.away

    @property
    def is_of_no_use(self) -> bool:
        """True if transactions have failed to begin for long, and nobody consumes without them.

        False while one is open or may have committed: its offsets are pending for others, too, who could only wait for
        it. Once it is decided here, they can go on at once.
        """
        with self._lock:
            return (
                bool(self._generations)
                and self._transaction is _TransactionPhase.NONE
                and not self._waiters  # waiters would get the messages
                and self._yielding.is_due(self.clock(), self._settled)
            )

    def excuse(self) -> None:
        """Restart the time for transactions to begin: the group or the topic is not answering."""
        with self._lock:
            self._yielding.excused(self.clock())

    def yield_partitions(self) -> None:
        """Leave the partitions to others, if the consumer is still of no use."""
        with self._lock:
            if not self.is_of_no_use:
                return
            lasted = self._yielding.lasted(self.clock(), self._settled)
            why = self._trouble.get("transacting")
            self._yielding.away = True
            self._yielded = (
                f"it leaves its partitions to others, since no transaction of it has begun for {lasted:.0f} s"
                f"{f' ({why})' if why else ''}. It joins again when one begins, or when somebody acquires outside of "
                "transactions. See whether their coordinator can be reached from here, and go on trying"
            )
            self._idle_reason = ""
        logger.warning("the consumer of %s leaves the group: %s", self._definition.name, self._yielded)

    @property
    def _settled(self) -> int:
        return self._ledger.stats.acked + self._ledger.stats.rejected

    # ---------------------------------------------------------------- transactions

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Track an attempt to begin a transaction within the block."""
        with self._lock:
            self._yielding.attempt(self.clock(), self._settled)
        try:
            yield
        except BaseException:
            with self._lock:
                self._yielding.failed(self.clock())
            raise
        with self._lock:
            self._yielding.begun(self.clock(), self._settled)

    def check_transaction(self) -> None:
        """Check that a transaction may be opened.

        A second one would undo what the first says about all of its partitions.

        Raises:
            StateError: a transaction is open, or this is the I/O thread, which a commit would wait for.
            Closed, LVQError: as in `acquire`.
        """
        self.check_may_wait()
        with self._lock:
            self._check()
            if self._transaction not in (_TransactionPhase.NONE, _TransactionPhase.UNDECIDED):
                raise StateError("A transaction is open already on this consumer.", hint="One at a time.")

    def open_transaction(self, timeout: float = 0.0) -> None:
        """Open a transaction once the outcome of the previous one is known.

        Raises:
            OutcomeUnknown: the outcome did not become known in time.
            StateError, Closed, LVQError: as in `check_transaction`.
        """
        with self._lock:
            self._wait_for(lambda: self._undecided is None or self._closed or self.failed, timeout)
            self.check_transaction()
            if self._undecided is not None:
                raise OutcomeUnknown(
                    f"Whether the transaction before on {self.topic} has committed is not known yet.",
                    hint="See whether the brokers can be reached: the group says so when it is decided.",
                )
            self._transaction = _TransactionPhase.OPEN
            self._trouble.pop("transacting", None)
            self._ledger.bounded = True  # a transaction cannot commit what does not fit into the text

    def prepare_commit(self, items: Collection[Item], timeout: float) -> Flight[Durable] | None:
        """Return the commit of a transaction for these messages, which are leaving.

        Waits until all plain commits are answered and the group is known to have decided on the last ones: one in
        flight could arrive after the transaction's, and undo it. No other commit is sent until the transaction ends.
        Returns None if the group already holds all of it, since newer values have come.

        Raises:
            LockLost: one of the messages is no longer held.
            TransportError: the previous commit was not answered in time, or the messages do not fit into the commit
                text.
        """
        with self._lock:
            self._transaction = _TransactionPhase.NEXT
            arrived = self._wait_for(lambda: self._is_quiet or self._closed or self.failed, timeout)
            self._check()
            if not arrived:
                raise TransportError(
                    "The commit before the transaction's was not answered in time.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="See whether the brokers can be reached.",
                )
            lost = [item for item in items if item.state not in _LEAVING]
            if lost:
                raise LockLost(
                    f"{lost[0]} is no longer held: its partition was revoked, or the time to settle it was over.",
                    hint="The transaction is aborted: whoever has the partition now gets the message.",
                )
            self._transaction = _TransactionPhase.COMMITTING
            asked_at = self.clock()
            flight = self._commits.prepare({item.partition for item in items}, items)
            if not all(self._says_done(flight, item) for item in items):
                if flight is not None:
                    self._commits.landed(flight, Answer.UNKNOWN)
                raise TransportError(
                    "The commit has no room for all that is done out of order.",
                    code="OFFSET_METADATA_TOO_LARGE",
                    retriable=True,
                    hint=f"Settle the lowest messages. {CROWDED_REMEDY}",
                )
            if flight is not None:
                self._asked, self._asked_at = flight, asked_at
                self._decided_at |= dict.fromkeys(flight.maps, math.inf)
            return flight

    def leave_undecided(
        self, flight: Flight[Durable], left: Mapping[Item, Step], tell: Callable[[bool | None], None]
    ) -> None:
        """Record that the transaction may have committed, or may yet commit.

        The group's commits show the outcome once none of them is pending.

        Args:
            left: its messages, and the step for each if it has committed.
            tell: called with the outcome, or with None if this consumer ends before it is known.
        """
        with self._lock:
            self._transaction = _TransactionPhase.UNDECIDED
            self._undecided = _Undecided(flight, left, tell)

    @property
    def undecided(self) -> Collection[int]:
        """The partitions for which a transaction may have committed."""
        undecided = self._undecided
        return () if undecided is None else undecided.flight.maps.keys()

    def decide(self, stored: Mapping[int, CommitMap]) -> None:
        """Determine the outcome from the group's commits, with none of them pending.

        The transaction has committed if its messages are done there. While a partition stays here, nobody else commits
        for it, so the map is that of the transaction or the one before. If the partition has moved and all messages are
        done, the next owner may have done them; that makes no difference to anyone asking about these messages.
        """
        with self._lock:
            undecided = self._undecided
            if undecided is None or not stored.keys() >= undecided.flight.maps.keys():
                return
            self._undecided = None
            self._trouble.pop("transacting", None)
        committed = all(stored[item.partition].done(item.offset) for item in undecided.left)
        steps = [(step if committed else Ledger.give_back, item) for item, step in undecided.left.items()]
        logger.warning(
            "the consumer of %s goes on: the transaction of which nobody knew %s committed",
            self._definition.name,
            "has" if committed else "has not",
        )
        self.end_transaction(steps, undecided.flight, Answer.STORED if committed else Answer.UNKNOWN)
        undecided.notify(committed)

    def end_undecided(self) -> None:
        """End without knowing the outcome of the transaction, and report that."""
        with self._lock:
            undecided, self._undecided = self._undecided, None
        if undecided is not None:
            undecided.notify(None)

    def check_decided(self, partitions: Iterable[int], since: float) -> None:
        """Check that no transaction of ours may have changed these partitions' commits since then.

        If one was in flight when the partitions were lost, the group accepts it once they are back.

        Raises:
            TransportError: one may have. The commits must be read again.
        """
        with self._lock:
            undecided = sorted(p for p in partitions if self._decided_at.get(p, -math.inf) >= since)
        if undecided:
            raise TransportError(
                f"A transaction of this consumer commits for partition {', '.join(map(str, undecided))}, "
                "which has come back meanwhile.",
                code="UNSTABLE_OFFSET_COMMIT",
                retriable=True,
                hint="It begins when that is decided.",
            )

    @property
    def _is_quiet(self) -> bool:
        """True if no plain commit can still arrive."""
        return not (self._unanswered or self._commits.in_flight)

    def _says_done(self, flight: Flight[Durable] | None, item: Item) -> bool:
        said = None if flight is None else flight.maps.get(item.partition)
        return (said or self._commits.last(item.partition)).done(item.offset)

    def end_transaction(
        self, steps: Iterable[tuple[Step, Item]], flight: Flight[Durable] | None, answer: Answer
    ) -> None:
        """End a committed or aborted transaction. Each step is applied to its message."""
        with self._lock:
            self._transaction = _TransactionPhase.NONE
            settled = self._settled
            for step, item in steps:
                with suppress(LockLost):
                    step(self._ledger, item)
            self._yielding.decided(self._settled - settled)
            if flight is not None:
                self._commits.landed(flight, answer)
                self._decided_at |= dict.fromkeys(flight.maps, self.clock())
                if answer is Answer.STORED:
                    self.proven()
            ready = self._commits.pop_ready()
            self._notify()
        resolve(ready)
