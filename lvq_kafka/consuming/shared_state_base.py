"""What a consumer holds: the ledger and the commits, shared between the thread that reads and those that work.

The only place that knows the lock, in two halves: here holders acquire and settle messages; in `custody` the I/O thread
brings records, takes what is to be committed, and gives and ends assignments.
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
"""What the I/O thread, or a transaction, has trouble with."""

Step = Callable[[Ledger, Item], None]
"""What becomes of a message; see `Ledger`."""

LEASE = 5.0
"""Seconds for which messages are handed out after a commit was sent that the group has accepted.

A member that the group does not hear of is put out when its session is over, and others work on what it has. It cannot
know: neither when it is cut off, nor when it stood still. No broker allows sessions below 6 s unless it is told to.
"""

_SLOW = 1.0  # seconds after which a callback has held up the consumer for too long

logger = logging.getLogger("lvq_kafka.consumer")


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """How a consumer hands messages out. Seconds and messages; see `lvq_kafka.consuming.consumer.Consumer`."""

    max_in_work: int = 1000
    lock_timeout: float | None = None
    max_deliveries: int | None = None
    durable_counts: bool = False


Acquisition = tuple[list[Item], list[Item]]
"""What a look has brought: messages that were taken, and others that were delivered ``max_deliveries`` times. These
have been left, for somebody to reject.
"""


class SharedStateBase:
    """A ledger and its commits, for several threads: what holders do with them.

    Args:
        clock: seconds, by which locks end, delays are over, and silence is judged.
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
        self._awaited = 0  # those who wait for a change, other than for messages
        self._ledger = Ledger(order=definition.order, count_deliveries=limits.durable_counts)
        self._commits: Commits[Durable] = Commits(self._ledger)
        self._generations = Generations()
        self._waiters = WaitQueue()
        self._reservations = CountedReservations(self._commits, self._wake_waiter) if limits.durable_counts else None
        self._counted_on = -math.inf  # when the group is known to have counted on us
        self._paused = False
        self._mismatched = 0
        self._trouble: dict[Doing, str] = {}  # why something did not work when it was last tried
        self._idle_reason = ""  # why nothing is handed out though everything works
        self._yielding = Yielding()
        self._yielded = ""  # why the partitions are left to others
        self._failure: BaseException | None = None
        self._closed = False

    # ---------------------------------------------------------------- acquiring

    def acquire(self, most: int, waiter: Waiter | None = None, *, ahead: bool = False) -> Acquisition:
        """Take what can be had at once, up to so many. Where that is nothing, the taker is in the line from now on.

        Args:
            ahead: set them aside: somebody gets them later, one by one, by `hand_over`; or never.

        Raises:
            Closed: the consumer was closed.
            LVQError: it has stopped because of this error, or of another one (`ReaderFailed`).
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
                # They are on their way no more: what that took is not part of the time to settle them.
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
        """Those that are counted; and let others be, for whoever waits."""
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
        """Somebody gets what was taken ahead; False when it is not held any more, or may be somebody else's by now."""
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
        """They take no more for now."""
        with self._lock:
            self._waiters.leave(waiter)

    def _wake_waiter(self, _: object = None) -> None:
        with self._lock:
            self._waiters.wake_next()

    # ---------------------------------------------------------------- settling

    def apply(self, step: Step, item: Item) -> None:
        """Take a step of `Ledger` with a message that is held; raises what the step raises."""
        with self._lock:
            step(self._ledger, item)
            if self._awaited or self._waiters:
                self._notify()

    def apply_many(self, step: Step, items: Sequence[Item]) -> None:
        """Take the step with each message that it can be taken with; then raise what the first of the others raised."""
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
        """Hand nothing out for now, or again. What is read goes on to replace what waits."""
        with self._lock:
            self._paused = paused
            self._notify()

    @property
    def suspended(self) -> bool:
        """Whether messages wait for the group to accept a commit, since for all we know others may have them by now."""
        return self._is_in_doubt() and (self._ledger.available > 0 or bool(self._reservations))

    def _is_in_doubt(self) -> bool:
        return self.clock() - self._counted_on > LEASE

    @property
    def paused(self) -> bool:
        """Whether nothing is handed out because somebody said so."""
        return self._paused

    @property
    def stats(self) -> ConsumerStats:
        """What this consumer has and has done."""
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
        """Whether the commit text has no room for something. No lock is needed to ask."""
        return self._commits.is_crowded or (self._ledger.bounded and self._ledger.gated > 0)

    @property
    def crowding(self) -> str:
        """What the commit text has no room for, and what helps; empty where all is well."""
        with self._lock:
            return crowding(self._ledger, self._commits.unsaid)

    def fail(self, error: BaseException) -> None:
        """Nothing will come any more, because of this."""
        with self._lock:
            self._failure = self._failure or error
            self._notify()
            self._waiters.wake_all()

    def close(self) -> None:
        """Nothing will be handed out any more."""
        with self._lock:
            self._closed = True
            self._notify()
            self._waiters.wake_all()

    def _check(self) -> None:
        """Raise when no message will come any more."""
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
        if self._waiters:  # as for few messages
            self._waiters.wake_next()

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait with the lock, as the I/O thread and transactions do; False when time is up."""
        self._awaited += 1
        try:
            return self._changed.wait_for(condition, timeout)
        finally:
            self._awaited -= 1

    def _in_vain(self) -> LVQError:
        """What those are told who waited for a commit that will not come."""
        if self._failure is not None:
            error: LVQError = ReaderFailed(f"The consumer stopped before this was committed: {self._failure!r}")
            error.__cause__ = self._failure
            return error
        return LockLost(
            "The partition went to another consumer before this was committed.",
            hint="Whoever has it now may handle the message again.",
        )


def resolve(ready: Iterable[Durable], error: Exception | None = None) -> None:
    """Tell those whose wait is over, or in vain; without the lock, since they may do anything.

    Raises:
        BaseException: what a callback has raised that is no `Exception`, or an interrupt; all others are told first.
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
