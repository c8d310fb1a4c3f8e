"""The outcome of an ack: a future that resolves when the ack is durable."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from lvq_kafka.core.text.validation import function, waiting
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import LVQError, OutcomeUnknown
from lvq_kafka.runtime.forking import Bound, left_behind, notify_of_forks

__all__ = ["Decision", "Durability", "Durable", "JointSettlement", "Settlement", "resolve"]

Durable = Future[None]
"""Resolves when something is durably settled."""

_SLOW = 1.0  # seconds after which a callback has held up the consumer for too long

logger = logging.getLogger("lvq_kafka.consumer")


class Durability(Protocol):
    """Knows which messages are durably settled."""

    def when_durable(self, item: Item) -> Durable:
        """Return a future that resolves when the group's commit has the message as done.

        It fails with `LockLost` if the partition was revoked or lost first, and with `ReaderFailed` if the consumer
        stopped.
        """

    @property
    def obstacle(self) -> str:
        """The reason why acks are not becoming durable, and its remedy; empty if none is known."""

    def check_may_wait(self) -> None:
        """Raise `StateError` on the consumer's own thread, where waiting would deadlock."""


class Decision(Future[None]):
    """A removal that depends on a transaction or a dead letter.

    It cannot be cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        notify_of_forks(self)

    def make(self, failure: BaseException | None) -> None:
        """Resolve it as removed, or fail it with a reason. Only the first call counts."""
        if self.done():
            return
        if failure is None:
            self.set_result(None)
        else:
            self.set_exception(failure)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`."""
        self.make(left_behind("The settlement"))


class Settlement(Bound):
    """The result of `Delivery.ack` and `Delivery.reject`. It can be ignored.

    Wait for it with `result` or ``await``, from any thread or event loop, even after the consumer is closed.

    Args:
        durability: knows when the message is durably settled.
        item: the message.
        future: the outcome, if it is already pending.
    """

    __slots__ = ("_durability", "_future", "_item")

    elsewhere = "Wait for it here."

    def __init__(self, durability: Durability, item: Item, future: Durable | None = None) -> None:
        self._durability = durability
        self._item = item
        self._future = future  # None until it is first asked for

    def __repr__(self) -> str:
        asked = self._future
        known = "not asked for" if asked is None else "decided" if asked.done() else "waited for"
        return f"<Settlement of {self._subject}, {known}>"

    def future(self) -> Durable:
        """Return the outcome as a future, for `concurrent.futures.wait` and the like.

        Asking for it makes the commit urgent. It cannot be cancelled: the ack stands.
        """
        if self._future is None:
            self._future = self._ask()
        return self._future

    def done(self) -> bool:
        """Return whether it is durable, or known never to become so. Also makes the commit urgent."""
        return self.future().done()

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is durable: no consumer will be handed the message again (G11).

        Raises:
            LockLost: the partition went to another consumer first, or the transaction was aborted; the message may be
                redelivered.
            DeliveryFailed: the dead letter of a rejected message could not be stored; the message is redelivered.
            DeliveryUnknown: the dead letter may have been stored; the message is redelivered.
            OutcomeUnknown: it was not durable within ``timeout`` seconds, and may become so later; or the outcome of
                the transaction is unknown.
            ReaderFailed: the consumer stopped because of an error first.
            StateError: called in a callback on the consumer's own thread, which would wait for itself.
        """
        timeout = waiting(timeout)
        future = self.future()
        if not future.done():
            self._durability.check_may_wait()
        try:
            future.result(timeout)
        except LVQError:
            raise
        except TimeoutError:
            raise OutcomeUnknown(
                f"Not durable within {timeout:g} s: the settlement of {self._subject}.",
                hint="It may become durable later. "
                + (self._durability.obstacle or "Check whether the brokers can be reached."),
            ) from None

    def add_done_callback(self, callback: Callable[[Durable], object]) -> None:
        """Call ``callback`` when the outcome is known, immediately if it already is.

        It usually runs on the consumer's own thread: keep it short, and do not make it wait for anything that the
        consumer has to do.

        Raises:
            ConfigError: the callback is not a plain function of one argument.
        """
        function("callback", callback, "future", hint="In asyncio: await the settlement.", classes=False)
        self.future().add_done_callback(callback)

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.wrap_future(self.future()).__await__()

    def _ask(self) -> Durable:
        return self._durability.when_durable(self._item)

    @property
    def _subject(self) -> str:
        return f"offset {self._item.offset} of partition {self._item.partition}"


class JointSettlement(Settlement):
    """The result of `Consumer.ack_many`: durable when all messages are, failed if one fails.

    Args:
        durability: knows when the messages are durably settled.
        items: the messages.
        future: the outcome, if it is already pending.
    """

    __slots__ = ("_items",)

    def __init__(self, durability: Durability, items: Sequence[Item], future: Durable | None = None) -> None:
        self._durability = durability
        self._items = items
        self._future = future

    def _ask(self) -> Durable:
        return _all_of([self._durability.when_durable(item) for item in self._items])

    @property
    def _subject(self) -> str:
        return f"{len(self._items)} messages"


def _all_of(outcomes: Sequence[Durable]) -> Durable:
    """Return a future that succeeds with the last outcome and fails with the first failure."""
    joint, lock, left = Decision(), threading.Lock(), len(outcomes)

    def decided(outcome: Durable) -> None:
        nonlocal left
        failure = outcome.exception()
        with lock:  # callbacks run on any thread
            if not left:
                return
            left = left - 1 if failure is None else 0
            last = left == 0
        if last:
            joint.make(failure)

    for outcome in outcomes:
        outcome.add_done_callback(decided)
    if not outcomes:
        joint.make(None)
    return joint


def resolve(ready: Iterable[Durable], error: Callable[[], Exception] | None = None) -> None:
    """Resolve the futures, or fail each with an ``error``.

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
                future.set_exception(error())
        except BaseException as raised:  # noqa: BLE001  # others wait, too
            ended = ended or raised
        taken = time.monotonic() - began
        if taken > _SLOW:
            logger.warning(
                "a settlement callback took %.1f s: meanwhile the consumer neither reads nor commits, and after "
                "max.poll.interval.ms the group removes it; do long work on another thread",
                taken,
            )
    if ended is not None:
        raise ended
