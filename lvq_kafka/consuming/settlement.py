"""The outcome of an ack: a future that resolves when the ack is durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Protocol

from lvq_kafka.core.pending import Item
from lvq_kafka.core.validation import waiting
from lvq_kafka.errors import LVQError, OutcomeUnknown
from lvq_kafka.forking import Bound, left_behind, notify_of_forks

__all__ = ["Decision", "Durability", "JointSettlement", "Settlement"]


class Durability(Protocol):
    """Who knows what is durable."""

    def when_durable(self, item: Item) -> Future[None]:
        """A future that resolves when the group holds that this message is done.

        It fails with `LockLost` when the partition went away before, and with `ReaderFailed` when the consumer stopped.
        """

    @property
    def obstacle(self) -> str:
        """What keeps acks from being durable just now, and what helps; empty where nothing is known to."""

    def check_may_wait(self) -> None:
        """Raise `StateError` on the thread that everything here comes from: who waits there waits for ever."""


class Decision(Future[None]):
    """Whether what a holder has left is removed, where something else decides: a transaction, or a dead letter.

    Nobody can cancel it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        notify_of_forks(self)

    def make(self, failure: BaseException | None) -> None:
        """It is removed, or there is a reason why not. Only the first time counts."""
        if self.done():
            return
        if failure is None:
            self.set_result(None)
        else:
            self.set_exception(failure)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self.make(left_behind("The settlement"))


class Settlement(Bound):
    """What `Delivery.ack` and `Delivery.reject` return. Nobody has to look at it.

    It can be waited for, by `result` or by ``await``, from any thread or event loop, also when the consumer is closed.

    Args:
        durability: knows what becomes of the message.
        item: the message.
        future: the outcome, where that is already on its way.
    """

    __slots__ = ("_durability", "_future", "_item")

    elsewhere = "Wait for it here."

    def __init__(self, durability: Durability, item: Item, future: Future[None] | None = None) -> None:
        self._durability = durability
        self._item = item
        self._future = future  # None: nobody has asked yet

    def __repr__(self) -> str:
        asked = self._future
        known = "not asked for" if asked is None else "decided" if asked.done() else "waited for"
        return f"<Settlement of {self._subject}, {known}>"

    def future(self) -> Future[None]:
        """The same as a future, for `concurrent.futures.wait` and the like. Asking for it makes the commit urgent.

        It cannot be cancelled: the ack stands.
        """
        if self._future is None:
            self._future = self._ask()
        return self._future

    def done(self) -> bool:
        """Whether it is durable, or known not to become so any more. Makes the commit urgent, too."""
        return self.future().done()

    def result(self, timeout: float | None = None) -> None:
        """Wait until it is durable: the message will not be handed out again, by anybody (G11).

        Raises:
            LockLost: the partition went to another consumer before, or the transaction was aborted; the message may
                come again.
            DeliveryFailed: the dead letter of a rejected message could not be stored; the message comes again.
            DeliveryUnknown: the dead letter may have been stored; the message comes again.
            OutcomeUnknown: not durable within ``timeout`` seconds, and may become so later; or it is not known whether
                the transaction has committed.
            ReaderFailed: the consumer stopped because of an error before.
            StateError: in a callback, on the consumer's own thread, which would wait for itself.
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
                + (self._durability.obstacle or "See whether the brokers can be reached."),
            ) from None

    def add_done_callback(self, callback: Callable[[Future[None]], object]) -> None:
        """Call back when it is decided, at once if it is. Runs mostly on the consumer's own thread: be short, and wait
        there for nothing that the consumer has to do.
        """
        self.future().add_done_callback(callback)

    def __await__(self) -> Generator[object, None, None]:
        return asyncio.wrap_future(self.future()).__await__()

    def _ask(self) -> Future[None]:
        return self._durability.when_durable(self._item)

    @property
    def _subject(self) -> str:
        return f"offset {self._item.offset} of partition {self._item.partition}"


class JointSettlement(Settlement):
    """What `Consumer.ack_many` returns: durable when all of the messages are, and in vain when one of them is.

    Args:
        durability: knows what becomes of the messages.
        items: the messages.
        future: the outcome, where that is already on its way.
    """

    __slots__ = ("_items",)

    def __init__(self, durability: Durability, items: Sequence[Item], future: Future[None] | None = None) -> None:
        self._durability = durability
        self._items = items
        self._future = future

    def _ask(self) -> Future[None]:
        return _all_of([self._durability.when_durable(item) for item in self._items])

    @property
    def _subject(self) -> str:
        return f"{len(self._items)} messages"


def _all_of(outcomes: Sequence[Future[None]]) -> Future[None]:
    """Succeeds with the last of them, and fails with the first that does."""
    joint, lock, left = Decision(), threading.Lock(), len(outcomes)

    def decided(outcome: Future[None]) -> None:
        nonlocal left
        failure = outcome.exception()
        with lock:  # callbacks come from any thread
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
