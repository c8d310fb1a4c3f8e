"""Handling messages with a callback in several threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Condition, Event, Thread
from typing import Generic

from lvq_kafka.codecs import V
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.text.validation import at_least_one, delays, function, unfinished
from lvq_kafka.errors import AlreadySettled, LockLost, StateError

__all__ = ["Handler", "Source", "ThreadGroup", "Workers"]

logger = logging.getLogger("lvq_kafka.consumer")

_MOST_WORKERS = 10_000  # threads; more are a mistake, which would take the machine down

# Seconds. If a signal arrives just as a thread goes to sleep, Python sees it only when that thread wakes up.
_NAP = 0.2

_ASYNC = "In asyncio: async for delivery in consumer. Otherwise return, do not yield."

Handler = Callable[[Delivery[V]], object]
"""Handles one message.

It may settle the delivery itself; otherwise returning acks it, and raising releases it.
"""

Source = Callable[[Event], Iterator[Delivery[V]]]
"""Yields messages one by one, until the consumer is closed or the event is set."""


class Workers(Generic[V]):
    """Threads that take messages from a source and pass them to a callback.

    Only one message of each key is in work at a time (G13), across all threads. See `Consumer.run`.

    Raises:
        ConfigError: an option is out of range, or the handler is not a plain function of one argument.
    """

    def __init__(
        self,
        name: str,
        source: Source[V],
        handler: Handler[V],
        *,
        workers: int,
        retry_delay: float,
        attempts: Callable[[], int | None],
    ) -> None:
        function("handler", handler, "delivery", hint="In asyncio: async for delivery in consumer.", classes=False)
        at_least_one(_MOST_WORKERS, workers=workers)
        delays(retry_delay=retry_delay)
        self._source = source
        self._handler = handler
        self._retry_delay = retry_delay
        self._attempts = attempts
        self._threads = ThreadGroup(f"lvq-work-{name}", workers, self._work)

    def run(self) -> None:
        """Work until the consumer is closed.

        Raises:
            LVQError: the consumer has stopped because of this error.
            BaseException: an interrupt of this thread, or something raised by a handler that is not an `Exception`.
        """
        self._threads.run()

    def _work(self) -> None:
        for delivery in self._source(self._threads.stop):
            self._handle(delivery)

    def _handle(self, delivery: Delivery[V]) -> None:
        outcome = None
        with delivery:  # acks if still unsettled; releases if an exception ends the worker
            try:
                outcome = self._handler(delivery)
            except Exception as error:
                logger.exception("%s could not be handled", delivery)
                if (attempts := self._attempts()) is not None and delivery.delivery_count >= attempts:
                    with suppress(LockLost, AlreadySettled):
                        delivery.reject(error)
                else:
                    with suppress(LockLost, AlreadySettled):
                        delivery.release(delay=self._retry_delay)
            if what := unfinished(outcome):  # it has not handled anything yet
                raise StateError(f"The handler returned {what} for {delivery}.", hint=_ASYNC)


class ThreadGroup:
    """Runs a function in several threads.

    Args:
        name: the prefix of the threads' names.
        size: the number of threads.
        work: the function. It returns when there is no more to do, or soon after ``stop`` is set.
    """

    def __init__(self, name: str, size: int, work: Callable[[], object]) -> None:
        self.stop = Event()
        """Set when a thread has failed, or when the thread that waits for them was interrupted."""
        self._work = work
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(size)]
        self._changed = Condition()
        self._at_work = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Start the threads and wait until all have ended.

        On an interrupt, each thread finishes its current work.

        Raises:
            BaseException: a thread raised it, or it interrupted this one.
        """
        try:
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(_NAP)
        finally:
            self.stop.set()
            # Do not join: Python considers a thread ended once a join of it was interrupted.
            with self._changed:
                self._changed.wait_for(lambda: not self._at_work)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        with self._changed:
            self._at_work += 1
        try:
            if not self.stop.is_set():
                self._work()
        except BaseException as error:  # noqa: BLE001  # raised again by run()
            self._failure = self._failure or error
            self.stop.set()
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()
