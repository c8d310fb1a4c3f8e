"""A consumer's ledger and commits, shared between its I/O thread and its holders.

All locking is here, in two halves: in this module, holders acquire and settle messages; in `shared_state`, the I/O
thread adds records, prepares commits, and starts and ends assignments.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, RLock, Thread, current_thread
from typing import Literal

from lvq_kafka.clocks import uptime
from lvq_kafka.consuming.consumer_stats import ConsumerStats
from lvq_kafka.consuming.counted_reservations import CountedReservations
from lvq_kafka.consuming.crowding import crowding
from lvq_kafka.consuming.generations import Generations
from lvq_kafka.consuming.wait_queue import Waiter, WaitQueue
from lvq_kafka.core.commits import Commits
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.yielding import Yielding
from lvq_kafka.errors import AlreadySettled, Closed, LockLost, LVQError, ReaderFailed, StateError

__all__ = ["LEASE", "Acquisition", "ConsumerLimits", "Doing", "Durable", "SharedStateBase", "Step", "resolve"]

Durable = Future[None]

Doing = Literal["reading", "committing", "transacting"]
"""The activity of the I/O thread, or of a transaction, that has trouble."""

Step = Callable[[Ledger, Item], None]
"""A change of a message's state; see `Ledger`."""

LEASE = 5.0
"""Seconds after sending an accepted commit during which messages may be handed out.

A group removes a member that it has not heard from when the session times out, and others then work on its messages.
The member cannot know this while it is cut off or stands still. Brokers allow no session below 6 s unless configured
to.
"""

_SLOW = 1.0  # seconds after which a callback has held up the consumer for too long

logger = logging.getLogger("lvq_kafka.consumer")


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Limits for handing out messages, in messages and seconds.

    See `lvq_kafka.consuming.consumer.Consumer`.
    """

    max_in_work: int = 1000
    lock_timeout: float | None = None
    max_deliveries: int | None = None
    durable_counts: bool = False


Acquisition = tuple[list[Item], list[Item]]
"""The messages that were taken, and those already delivered ``max_deliveries`` times.

The latter are leaving, for the caller to reject.
"""


class SharedStateBase:
    """The holders' half of the state: a ledger and its commits, for several threads.

    Args:
        clock: returns the seconds by which lock time-outs, delays and silence are judged.
    """

    def __init__(
        self, definition: QueueDefinition, limits: ConsumerLimits, clock: Callable[[], float] = uptime
    ) -> None:
        self.topic = definition.topic
        self.limits = limits
        self.clock = clock
        self.thread: Thread | None = None
        """The I/O thread."""
        self._definition = definition
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._awaited = 0  # threads that wait for a change, other than for messages
        self._ledger = Ledger(order=definition.order, count_deliveries=limits.durable_counts)
        self._commits: Commits[Durable] = Commits(self._ledger)
        self._generations = Generations()
        self._waiters = WaitQueue()
        self._reservations = CountedReservations(self._commits, self._wake_waiter) if limits.durable_counts else None
        self._counted_on = -math.inf  # when we sent the last commit that proves our membership
        self._paused = False
        self._mismatched = 0
        self._trouble: dict[Doing, str] = {}  # why the last attempt failed
        self._idle_reason = ""  # why nothing is handed out although everything works
        self._yielding = Yielding()
        self._yielded = ""  # why the partitions were left to others
        self._failure: BaseException | None = None
        self._closed = False

    # ---------------------------------------------------------------- acquiring

    def acquire(self, most: int, waiter: Waiter | None = None, *, ahead: bool = False) -> Acquisition:
        """Take up to ``most`` available messages. If there are none, the waiter joins the queue.

        Args:
            ahead: only set the messages aside. `hand_over` hands them out later, one by one, or never.

        Raises:
            Closed: the consumer was closed.
            LVQError: the consumer has stopped because of this error, or of another one (`ReaderFailed`).
        """
        with self._lock:
            if self._closed or self._failure is not None:
                self._check()
            taken: list[Item] = []
            exhausted: list[Item] = []
            if not (self._paused or self._is_in_doubt()):
                if self._reservations is None:
                    taken = self._reserve(most, exhausted)
                else:
                    taken = self._count(most, exhausted, comes_now=waiter is None)
                # They have arrived: time spent on the way does not count against the time to settle them.
                locked_until = self._locked_until()
                if not ahead:
                    for item in taken:
                        self._ledger.hand_over(item, locked_until)
                elif locked_until is not None:
                    for item in taken:
                        self._ledger.extend(item, locked_until)
            if taken or exhausted:
                if self._waiters:
                    self._waiters.serve(waiter)
            else:
                self._yielding.asked(self.clock())
                if waiter is not None:
                    self._waiters.wait(waiter)
            return taken, exhausted

    def _count(self, most: int, exhausted: list[Item], *, comes_now: bool) -> list[Item]:
        """Take counted messages, and have others counted for the waiters."""
        assert self._reservations is not None
        now = self.clock()
        for item in self._reservations.overtaken(now, comes_now=comes_now):
            self._ledger.release(item)
        taken = self._reservations.pop_counted(most)
        wanted = self._waiters.wanted + (0 if taken else most)
        self._reservations.add(self._reserve(wanted - len(self._reservations), exhausted), now)
        return taken

    def _reserve(self, most: int, exhausted: list[Item]) -> list[Item]:
        ledger, limits = self._ledger, self.limits
        max_deliveries, most_in_work = limits.max_deliveries, limits.max_in_work
        taken: list[Item] = []
        while len(taken) < most and ledger.in_work < most_in_work:
            item = ledger.reserve()
            if item is None:
                break
            if max_deliveries is not None and item.deliveries > max_deliveries:
                ledger.leave(item)
                exhausted.append(item)
            else:
                taken.append(item)
        return taken

    def hand_over(self, item: Item) -> bool:
        """Hand out a prefetched message.

        Returns False if it is no longer held, or may belong to another consumer by now.
        """
        with self._lock:
            if self._is_in_doubt():
                return False
            try:
                self._ledger.hand_over(item, self._locked_until())
            except (AlreadySettled, LockLost):
                return False
            return True

    def _locked_until(self) -> float | None:
        timeout = self.limits.lock_timeout
        return None if timeout is None else self.clock() + timeout

    def step_out(self, waiter: Waiter) -> None:
        """Remove a waiter that takes nothing more for now."""
        with self._lock:
            self._waiters.leave(waiter)

    def _wake_waiter(self, _: object = None) -> None:
        with self._lock:
            self._waiters.wake_next()

    # ---------------------------------------------------------------- settling

    def apply(self, step: Step, item: Item) -> None:
        """Apply a step of `Ledger` to a held message. Raises what the step raises."""
        with self._lock:
            step(self._ledger, item)
            if self._awaited or self._waiters:
                self._notify()

    def apply_many(self, step: Step, items: Sequence[Item]) -> None:
        """Apply the step to every message that allows it, then raise the first error, if any."""
        refused: list[AlreadySettled | LockLost] = []
        with self._lock:
            for item in items:
                try:
                    step(self._ledger, item)
                except (AlreadySettled, LockLost) as error:
                    refused.append(error)
            self._notify()
        if refused:
            refused[0].add_note(f"The first of {len(refused)} of {len(items)} messages that cannot be; all others are.")
            raise refused[0]

    def when_durable(self, item: Item) -> Durable:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        future = Durable()
        future.set_running_or_notify_cancel()  # so that nobody can cancel it, and it can always be resolved
        with self._lock:
            assigned = self._generations.is_current(item.partition, item.generation)
            if assigned:
                self._commits.wait_done(item.partition, item.offset, future)
            ready = self._commits.pop_ready()
        resolve(ready)
        if not assigned:
            if self._generations.committed(item.offset, item.generation):
                future.set_result(None)
            else:
                future.set_exception(self._in_vain())
        return future

    def check_may_wait(self) -> None:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        if current_thread() is self.thread:
            raise StateError(
                f"The consumer of {self._definition.name} would wait for itself: this is its own thread.",
                hint="A callback of a settlement runs there. Let another thread do what has to wait.",
            )

    # ---------------------------------------------------------------- state

    def pause(self, paused: bool) -> None:
        """Stop or resume handing out messages. Newer values still replace waiting ones."""
        with self._lock:
            self._paused = paused
            self._notify()

    @property
    def suspended(self) -> bool:
        """True while messages wait for the group to accept a commit.

        For all we know, others may have them by now.
        """
        return self._is_in_doubt() and (self._ledger.available > 0 or bool(self._reservations))

    def _is_in_doubt(self) -> bool:
        return self.clock() - self._counted_on > LEASE

    @property
    def paused(self) -> bool:
        """True while the application has paused the consumer."""
        return self._paused

    @property
    def stats(self) -> ConsumerStats:
        """The consumer's current state and counters."""
        with self._lock:
            return ConsumerStats.of(
                self._ledger, self._commits, self._generations, mismatched=self._mismatched, trouble=self.obstacle
            )

    @property
    def obstacle(self) -> str:
        """See `lvq_kafka.consuming.settlement.Durability`."""
        with self._lock:
            away = self._yielded if self._yielding.away else ""
            return away or next(iter(self._trouble.values()), "") or self._idle_reason or self.crowding

    @property
    def is_crowded(self) -> bool:
        """True if something does not fit into the commit text. Needs no lock."""
        return self._commits.is_crowded or (self._ledger.bounded and self._ledger.gated > 0)

    @property
    def crowding(self) -> str:
        """A description of what does not fit into the commit text; empty if all is well."""
        with self._lock:
            return crowding(self._ledger, self._commits.unsaid)

    def fail(self, error: BaseException) -> None:
        """Stop for good because of this error: no more messages will come."""
        with self._lock:
            self._failure = self._failure or error
            self._notify()
            self._waiters.wake_all()

    def close(self) -> None:
        """Stop handing out messages for good."""
        with self._lock:
            self._closed = True
            self._notify()
            self._waiters.wake_all()

    def _check(self) -> None:
        """Raise if no more messages will come."""
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
        if self._waiters:  # one is enough: it wakes the next
            self._waiters.wake_next()

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for a condition while holding the lock; return False on timeout.

        Used by the I/O thread and by transactions.
        """
        self._awaited += 1
        try:
            return self._changed.wait_for(condition, timeout)
        finally:
            self._awaited -= 1

    def _in_vain(self) -> LVQError:
        """Return the error for waiters on a commit that will never come."""
        if self._failure is not None:
            error: LVQError = ReaderFailed(f"The consumer stopped before this was committed: {self._failure!r}")
            error.__cause__ = self._failure
            return error
        return LockLost(
            "The partition went to another consumer before this was committed.",
            hint="Whoever has it now may handle the message again.",
        )


def resolve(ready: Iterable[Durable], error: Exception | None = None) -> None:
    """Resolve the futures, or fail them with ``error``.

    Call it without the lock, since callbacks may do anything.

    Raises:
        BaseException: a callback raised something that is not an `Exception`, or was interrupted. All other futures are
            resolved first.
    """
    ended: BaseException | None = None
    for future in ready:
        began = time.monotonic()
        try:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        except BaseException as raised:  # noqa: BLE001  # others wait, too
            ended = ended or raised
        taken = time.monotonic() - began
        if taken > _SLOW:
            logger.warning(
                "a callback of a settlement took %.1f s: meanwhile the consumer neither reads nor commits, and after "
                "max.poll.interval.ms the group puts it out; give long work to another thread",
                taken,
            )
    if ended is not None:
        raise ended
