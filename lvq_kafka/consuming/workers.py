"""Handling messages with a callback in several threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event
from typing import Generic

from lvq_kafka.codecs import V
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.thread_group import ThreadGroup
from lvq_kafka.core.text.validation import at_least_one, delays, function, unfinished
from lvq_kafka.errors import AlreadySettled, LockLost, StateError

__all__ = ["Handler", "Source", "Workers"]

logger = logging.getLogger("lvq_kafka.consumer")

_MOST_WORKERS = 10_000  # threads; more are a mistake, which would take the machine down

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
        attempts: int | None,
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
                if self._attempts is not None and delivery.delivery_count >= self._attempts:
                    with suppress(LockLost, AlreadySettled):
                        delivery.reject(error)
                else:
                    with suppress(LockLost, AlreadySettled):
                        delivery.release(delay=self._retry_delay)
            if what := unfinished(outcome):  # it has not handled anything yet
                raise StateError(f"The handler returned {what} for {delivery}.", hint=_ASYNC)
