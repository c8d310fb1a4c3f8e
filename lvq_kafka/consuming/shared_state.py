"""A consumer's core, shared by threads: the lock, callers that wait, and log lines."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Condition, RLock, Thread, current_thread

from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.consumer_stats import ConsumerStats
from lvq_kafka.consuming.page_file import PageFile
from lvq_kafka.consuming.settlement import Durable, resolve
from lvq_kafka.consuming.wait_queue import SessionWaitQueue, Waiter, WaitQueue
from lvq_kafka.core.commit_map.commit_map import ANY_LENGTH, CommitMap
from lvq_kafka.core.consumer.commits import Flight
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.consumer_transaction import LedgerStep
from lvq_kafka.core.consumer.hand_out import Acquisition, ConsumerLimits
from lvq_kafka.core.consumer.obstacles import Doing
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.session_pins import SessionPins
from lvq_kafka.errors import (
    AlreadySettled,
    Closed,
    CommitMapRefused,
    LockLost,
    LVQError,
    OutcomeUnknown,
    PageUnreadable,
    ReaderFailed,
    StateError,
    TransportError,
)
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.runtime.forking import left_behind, notify_of_forks
from lvq_kafka.selectors.of_queues import queue_selector

__all__ = ["SharedState"]

logger = logging.getLogger("lvq_kafka.consumer")


class SharedState:
    """A consumer's core, guarded by a lock.

    ``with shared as core:`` gives the core to one thread. At the end of the block, the outcome takes effect: callers
    for messages are woken and, after the lock is released, waiters for settlements are resolved. This class has methods
    only for operations that need more: the path of every message, waiting, and logging.

    A single property of `core` may be read without the lock where a slightly older value does no harm.

    Args:
        clock: returns seconds, for lock timeouts, delays and silence.
        now: returns seconds since the epoch, by which messages are due and expire.
        page_directory: where values are paged to; None for the system's directory of temporary files.
    """

    def __init__(
        self,
        definition: QueueDefinition,
        limits: ConsumerLimits,
        clock: Callable[[], float] = uptime,
        now: Callable[[], float] = time.time,
        page_directory: str | None = None,
    ) -> None:
        self.topic = definition.topic
        self._own_limits = limits
        self.limits = limits = limits.of_queue(definition.max_deliveries)
        self.clock = clock
        self._selector = selector = queue_selector(definition)
        rules = QueueRules.of(definition, None if selector is None else selector.matches)
        self.pages = None if rules.paged is None else PageFile(page_directory, self._fail_unreadable)
        """The values on disk; None in a queue that keeps all in memory."""
        self.core: ConsumerCore[Durable] = ConsumerCore(limits, rules, pages=self.pages, now=clock())
        self.thread: Thread | None = None
        """The I/O thread."""
        self.failed = False
        """True once the consumer has failed: no more messages will arrive."""
        self._definition = definition
        self._page_directory = page_directory
        self._foreign = rules.foreign_headers()
        self._now = now
        self._times = self.core.ledger.times
        self._timers = self.core.ledger.timers
        self._prepares = self._times is not None  # whether `acquire` has to call `_prepare`
        self._ring_times = self._times_of_ring()
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._awaited = 0  # threads that wait for a change, other than for messages
        self._waiters = WaitQueue() if definition.groups is None else SessionWaitQueue(self.core.hand_out.serves)
        self._wanted = self._waiters.wanted_by
        self._dropped: deque[SessionPins] = deque()
        self._orphans: deque[Item] = deque()  # messages set aside by iterations that were dropped
        self._failure: BaseException | None = None
        self._closed = False
        notify_of_forks(self)

    def __enter__(self) -> ConsumerCore[Durable]:
        self._lock.acquire()
        if self._ring_times is not None:
            self._expire_first(self._ring_times)
        return self.core

    def __exit__(self, *raised: object) -> None:
        try:
            outcome = self.core.pop_outcome()
            if self._awaited:
                self._changed.notify_all()
            for _ in range(outcome.wake):
                self._waiters.wake_next()
        finally:
            self._lock.release()
        try:
            resolve(outcome.ready)
        finally:
            resolve(outcome.failed, self._never_committed)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`."""
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._waiters.forget()
        self.fail(left_behind(f"The consumer of {self._definition.name}"))
        if self.pages is not None:  # before messages set aside are returned, and paged out
            self.pages.left_behind()
        with self as core:
            core.forget(core.partitions)

    # ---------------------------------------------------------------- acquiring

    @property
    def is_grouped(self) -> bool:
        """True if it matters which session acquires a message."""
        return self.core.ledger.groups is not None

    def open_session(self) -> SessionPins:
        """See `ConsumerCore.open_session`."""
        with self._lock:
            return self.core.open_session()

    def end_session(self, session: SessionPins) -> None:
        """See `ConsumerCore.end_session`. Its callers do not wait any longer."""
        with self as core:
            core.end_session(session)
            self._prepares = True  # a caller may still use it
            self._waiters.wake_session(session)

    def drop_session(self, session: SessionPins) -> None:
        """End a session that nothing refers to any longer, at the next turn.

        Python calls this wherever it collects garbage, on any thread and under any lock. So it takes no lock.
        """
        self._dropped.append(session)

    def give_back_dropped(self, items: Iterable[Item]) -> None:
        """Return messages that an iteration had set aside, before the next one is acquired.

        Python calls this as it calls `drop_session`, so it takes no lock either. Callers that wait are woken on the
        I/O thread's next turn.
        """
        self._orphans.extend(items)

    def _give_back(self) -> None:
        """Return the messages that dropped iterations had set aside. The lock is held."""
        items = self._orphans
        if self._ring_times is not None:
            self._expire_first(self._ring_times)
        while items:
            with suppress(AlreadySettled, LockLost):
                self.core.ledger.release(items.popleft())
        self._notify()

    def acquire(
        self,
        most: int,
        waiter: Waiter | None = None,
        session: SessionPins | None = None,
        *,
        ahead: bool = False,
    ) -> Acquisition:
        """Take up to ``most`` available messages. If there are none, the waiter joins the queue.

        Args:
            session: the session that acquires, where messages are grouped.
            ahead: only set the messages aside. `hand_over` hands them out later, one by one, or never.

        Raises:
            Closed: the consumer or the session was closed.
            LVQError: the consumer has stopped because of this error, or of another one (`ReaderFailed`).
        """
        with self._lock:
            if self._orphans:
                self._give_back()
            waiters, now = self._waiters, self.clock()
            if now >= self._timers.alarm:  # the I/O thread may be waiting for a broker that does not answer
                self._end_times(now)
            if self._prepares:  # last, since what has just come back may have expired meanwhile
                self._prepare(session)
            taken, exhausted = self.core.hand_out.acquire(
                most, now, session, wanted=self._wanted, first_try=waiter is None, ahead=ahead
            )
            if taken or exhausted:
                if waiters.present:
                    waiters.serve(waiter)
            elif waiter is not None:
                waiters.wait(waiter)
            return taken, exhausted

    def hand_over(self, item: Item, *, may_be_stale: bool = True) -> bool:
        """See `HandOut.hand_over`.

        Args:
            may_be_stale: whether to hand it out even if a newer value of its key has arrived.
        """
        with self._lock:
            if self._times is not None:
                self._pass_time(self._times)
            if item.state is MessageState.STALE and not may_be_stale:
                return False
            return self.core.hand_out.hand_over(item, self.clock())

    def _times_of_ring(self) -> MessageTimes | None:
        """Return the times, if a message that is returned may cost others their place; else None."""
        return None if self.core.ledger.ring is None else self._times

    def _expire_first(self, times: MessageTimes) -> None:
        """Drop what has expired, before a ring evicts others for a message that is returned."""
        times.time.advance(self._now())  # the alarm says nothing of what expires in work
        self._pass_time(times)

    def _end_times(self, now: float) -> None:
        """End the delays and locks whose time is over."""
        with self as core:
            core.wake(now)

    def _prepare(self, session: SessionPins | None) -> None:
        """Check that messages may be acquired, and judge by the time which of them count."""
        if self._closed or self.failed:
            self._check()
        if session is not None and session.ended:
            raise Closed(f"The session of the consumer of {self._definition.name} is closed.")
        if self._times is not None:
            self._pass_time(self._times)

    def _pass_time(self, times: MessageTimes) -> None:
        clock = self._now()
        if clock >= times.alarm:
            self.core.pass_time(clock)

    def step_out(self, waiter: Waiter) -> None:
        """Remove a waiter that no longer waits."""
        with self._lock:
            self._waiters.leave(waiter)

    # ---------------------------------------------------------------- settling

    def apply(self, step: LedgerStep, item: Item) -> None:
        """Apply a step of `Ledger` to a held message. Raises what the step raises."""
        with self._lock:
            if self._ring_times is not None:
                self._expire_first(self._ring_times)
            step(self.core.ledger, item)
            if self._awaited or self._waiters.present:
                self._notify()

    def apply_many(self, step: LedgerStep, items: Sequence[Item]) -> None:
        """Apply the step to every message that allows it, then raise the first error, if any."""
        refused: list[AlreadySettled | LockLost] = []
        with self._lock:
            if self._ring_times is not None:
                self._expire_first(self._ring_times)
            for item in items:
                try:
                    step(self.core.ledger, item)
                except (AlreadySettled, LockLost) as error:
                    refused.append(error)
            self._notify()
        if refused:
            refused[0].add_note(
                f"This is the first of {len(refused)} messages, of {len(items)}, that could not be "
                "settled; all others were."
            )
            raise refused[0]

    def when_durable(self, item: Item) -> Durable:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        future = Durable()
        future.set_running_or_notify_cancel()  # so that nobody can cancel it, and it can always be resolved
        with self._lock:
            durable = self.core.wait_done(item, future)
        if durable is not None:
            resolve([future], None if durable else self._never_committed)
        return future

    def check_may_wait(self) -> None:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        if current_thread() is self.thread:
            raise StateError(
                f"The consumer of {self._definition.name} would wait for itself: this is its own thread.",
                hint="Settlement callbacks run on it. Do anything that waits on another thread.",
            )

    # ---------------------------------------------------------------- state

    @property
    def stats(self) -> ConsumerStats:
        """The consumer's current state and counters."""
        with self._lock:
            if self._orphans:
                self._give_back()
            stats = ConsumerStats.of(self.core, self.clock())
        return stats if self._selector is None else replace(stats, unjudged=self._selector.unjudged)

    @property
    def kept_from_waiters(self) -> tuple[int, int]:
        """The number of groups that only other sessions can get, and of these sessions.

        Both are zero while any caller may get a message.
        """
        with self._lock:
            waiters, ledger = self._waiters, self.core.ledger
            groups = ledger.groups
            if groups is None or not isinstance(waiters, SessionWaitQueue) or self.core.hand_out.paused:
                return 0, 0
            sessions = waiters.sessions
            if not sessions or any(ledger.serves(session) for session in sessions):
                return 0, 0
            return groups.kept_from(sessions)

    @property
    def obstacle(self) -> str:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        with self._lock:
            return self.core.obstacle

    def fail(self, error: BaseException) -> None:
        """Stop permanently because of this error: no more messages will arrive."""
        with self._lock:
            self._failure = self._failure or error
            self.failed = True
            self._stop()

    def _fail_unreadable(self, error: PageUnreadable) -> None:
        """Stop because a value cannot be read back.

        Its message is not handed out, and all messages that are not acked are redelivered from the log.
        """
        if not self.failed:
            logger.error("the consumer of %s has failed: %s", self._definition.name, error)
        self.fail(error)

    def close(self) -> None:
        """Stop handing out messages for good."""
        with self._lock:
            self._closed = True
            self._stop()

    @property
    def closed(self) -> bool:
        """True once the consumer is closed."""
        return self._closed

    @property
    def group(self) -> str:
        """The consumer group of the queue."""
        return self._definition.group

    def _stop(self) -> None:
        self._prepares = True
        self._changed.notify_all()
        self._waiters.wake_all()

    def _check(self) -> None:
        """Raise if no more messages will arrive."""
        failure = self._failure
        if isinstance(failure, LVQError):
            raise failure
        if failure is not None:
            raise ReaderFailed(
                f"The consumer of {self._definition.name} has stopped: {failure!r}", hint="Open a new one."
            ) from failure
        if self._closed:
            raise Closed(f"The consumer of {self._definition.name} is closed.")

    def _notify(self) -> None:
        if self._awaited:
            self._changed.notify_all()
        self._waiters.wake_next()  # one is enough: it wakes the next

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait, with the lock, for a condition or the consumer's end; return False on timeout."""
        self._awaited += 1
        try:
            return self._changed.wait_for(lambda: condition() or self._closed or self.failed, timeout)
        finally:
            self._awaited -= 1

    def _never_committed(self) -> LVQError:
        """Return the error for waiters on a commit that will never happen."""
        if self._failure is not None:
            error: LVQError = ReaderFailed(f"The consumer stopped before this was committed: {self._failure!r}")
            error.__cause__ = self._failure
            return error
        return LockLost(
            "The partition went to another consumer before this was committed.",
            hint="Its current owner may handle the message again.",
        )

    # ---------------------------------------------------------------- the I/O thread

    def turn(self) -> bool:
        """Run the due timers. Return whether the process stood still since the last turn."""
        now = self.clock()
        silence = self.core.turn(now)
        if now >= self._timers.alarm:  # otherwise there is no need to wait for the lock
            self._end_times(now)
        if self._times is not None:
            with self:
                self._pass_time(self._times)
        if self._orphans:
            with self._lock:
                self._give_back()
        if self._waiters.present and self.core.hand_out.counting:
            with self._lock:
                if self.core.hand_out.has_left(self._wanted(), now):
                    self._waiters.wake_all()
        while self._dropped:
            self.end_session(self._dropped.popleft())
        if silence:
            logger.warning("the consumer of %s stood still for %.1f s", self._definition.name, silence)
        return silence > 0

    @property
    def until_due(self) -> float:
        """The seconds until a scheduled message is due; infinite if there is none."""
        due = math.inf if self._times is None else self._times.next_due
        return due if due == math.inf else due - self._now()

    def read(self, fetch: Fetch) -> None:
        """Add the records read.

        Raises:
            KeyMismatch: a header and a key disagree, and the queue's policy is ``"fail"``.
        """
        rule, times, timestamps = self.core.ledger.rules.keys, self._times, fetch.batch.timestamps
        self._foreign.check(fetch.batch.headers)
        for warning in self._foreign.pop_warnings():
            logger.warning("%s", warning)
        keys, mismatched = rule.choose(fetch.batch)
        with self as core:
            if times is not None and timestamps:  # what has expired, or is due, counts so from the start
                times.saw(timestamps)
                core.pass_time(self._now())
            core.read(fetch, keys, mismatched)
            if not rule.conflates:
                core.ignored += fetch.batch.values.count(None)

    def adopt(self, definition: QueueDefinition) -> bool:
        """Keep to the options of an altered queue (R39); return whether they are others.

        No partition is assigned meanwhile.
        """
        if not self.differs(definition):
            return False
        selector = self._selector
        rules = QueueRules.of(definition, None if selector is None else selector.matches)
        with self._lock:
            pages = self.pages
            if rules.paged is None:
                self.pages = None
            elif pages is None:
                self.pages = PageFile(self._page_directory, self._fail_unreadable)
            self._definition = definition
            self.limits = self._own_limits.of_queue(definition.max_deliveries)
            self.core.adopt(self.limits, rules, self.pages)
            self._foreign = rules.foreign_headers()
            self._times = self.core.ledger.times
            self._prepares = self._prepares or self._times is not None
            self._ring_times = self._times_of_ring()
        if pages is not None and self.pages is None:
            pages.close()
        return True

    def differs(self, definition: QueueDefinition) -> bool:
        """Return whether consumers have to start over to keep to these options."""
        return _that_consumers_go_by(self._definition) != _that_consumers_go_by(definition)

    def report(self, doing: Doing, error: Exception) -> None:
        """Record that an activity currently fails."""
        said = bounded(str(error))
        with self as core:
            if core.obstacles.report(doing, said):  # logged before the stats show it
                if doing == "watching":
                    logger.warning("the consumer of %s has left its group: %s", self._definition.name, said)
                else:
                    logger.warning("the consumer of %s continues despite: %s", self._definition.name, said)

    def wait_finished(self, partitions: Collection[int], timeout: float) -> bool:
        """Wait until no message of these partitions is held; return False on timeout.

        Returns early once the consumer is closed or has failed.
        """
        held = self.core.ledger.assignment.held
        with self._lock:
            return self._wait_for(lambda: not any(held(partitions)), timeout)

    def offsets(self, flight: Flight[Durable]) -> dict[int, Commit]:
        """Return a flight as the commits that the group stores."""
        epochs = self.core.epochs
        return {p: Commit(said.base, said.encode(ANY_LENGTH), epochs.get(p, -1)) for p, said in flight.maps.items()}

    def taken_back(self, commits: Mapping[int, Commit]) -> dict[int, Commit]:
        """Return the last durable commits in place of older ones (G11)."""
        found: dict[int, Commit] = {}
        now = self.clock()
        for partition, commit in commits.items():
            with suppress(CommitMapRefused):  # all commits are judged elsewhere
                stored = CommitMap.decode(commit.offset, commit.metadata)
                promise = self.core.promises.broken(partition, stored, now)
                if promise is not None:
                    found[partition] = Commit(promise.map.base, promise.map.encode(ANY_LENGTH), promise.epoch)
        return found

    @property
    def is_of_no_use(self) -> bool:
        """See `ConsumerCore.is_of_no_use`."""
        with self._lock:
            return self.core.is_of_no_use(self.clock(), awaited=bool(self._waiters.present))

    # ---------------------------------------------------------------- transactions

    def check_transaction(self) -> None:
        """Check that a transaction may be opened.

        Raises:
            StateError: a transaction is open, or this is the I/O thread, which a commit would wait for.
            Closed, LVQError: as in `acquire`.
        """
        self.check_may_wait()
        with self._lock:
            self._check()
            self.core.check_transaction()

    def open_transaction(self, timeout: float = 0.0) -> None:
        """Open a transaction once the outcome of the previous one is known.

        Raises:
            OutcomeUnknown: the outcome did not become known in time.
            StateError, Closed, LVQError: as in `check_transaction`.
        """
        with self as core:
            self._wait_for(lambda: core.transaction.undecided is None, timeout)
            self.check_transaction()
            if core.transaction.undecided is not None:
                raise OutcomeUnknown(
                    f"It is not yet known whether the previous transaction on {self.topic} committed.",
                    hint="Check whether the brokers can be reached: the group reports the outcome once it is decided.",
                )
            core.open_transaction()

    def prepare_commit(self, items: Collection[Item], timeout: float) -> Flight[Durable] | None:
        """Return the commit of a transaction for these messages, which are leaving.

        Waits until all plain commits are answered and the group is known to have decided on the last ones. See
        `ConsumerCore.prepare_commit`.

        Raises:
            LockLost: one of the messages is no longer held.
            TransportError: the previous commit was not answered in time, or the messages do not fit into the commit
                text.
        """
        with self as core:
            core.queue_transaction()
            arrived = self._wait_for(lambda: core.is_quiet, timeout)
            self._check()
            if not arrived:
                raise TransportError(
                    "The commit before the transaction's was not answered in time.",
                    code="_TIMED_OUT",
                    retriable=True,
                    hint="Check whether the brokers can be reached.",
                )
            return core.prepare_commit(items, self.clock())


def _that_consumers_go_by(definition: QueueDefinition) -> tuple[object, ...]:
    return (
        time_rule(definition),
        definition.limits,
        definition.expiry_topic,
        definition.max_deliveries,
        definition.dead_letters,
    )
