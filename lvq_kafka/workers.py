"""Handling messages by a callback in several threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic

from lvq_kafka.codecs import V
from lvq_kafka.errors import AlreadySettled, Closed, ConfigError, LockLost

if TYPE_CHECKING:
    from lvq_kafka.consumer import Consumer
    from lvq_kafka.delivery import Delivery

__all__ = ["Handler", "Workers"]

logger = logging.getLogger("lvq_kafka.consumer")

Handler = Callable[["Delivery[V]"], object]
"""Handles one message. It may settle the delivery itself; else a return acks it, and an exception releases it."""

_POLL = 0.2  # seconds; how long a worker without work takes to see that it shall stop


class Workers(Generic[V]):
    """Threads that take messages of one consumer and hand them to a callback.

    Of a key only one message is in work at a time (G13), whichever thread has it. See `Consumer.run`.
    """

    def __init__(
        self, consumer: Consumer[V], handler: Handler[V], *, workers: int, retry_delay: float, attempts: int | None
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers={workers!r} is out of range.", options=["workers"], hint="At least 1.")
        if not retry_delay >= 0:
            raise ConfigError(f"retry_delay={retry_delay!r} is negative.", options=["retry_delay"])
        self._consumer = consumer
        self._handler = handler
        self._retry_delay = retry_delay
        self._attempts = attempts
        self._stop = Event()
        self._failure: BaseException | None = None
        self._threads = [
            Thread(target=self._work, name=f"lvq-work-{consumer.name}-{number}", daemon=True)
            for number in range(workers)
        ]

    def run(self) -> None:
        """Work until the consumer is closed.

        Raises:
            LVQError: the consumer has stopped because of this error.
            BaseException: what interrupted this thread, or a handler, and is no `Exception`.
        """
        try:
            for thread in self._threads:
                thread.start()
            self._join()
        finally:  # interrupted: let each finish the message it has
            self._stop.set()
            self._join()
        if self._failure is not None:
            raise self._failure

    def _join(self) -> None:
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                delivery = self._consumer.acquire(_POLL)
                if delivery is not None:
                    self._handle(delivery)
        except Closed:
            pass
        except BaseException as error:  # noqa: BLE001  # it goes to whoever waits
            self._failure = error
            self._stop.set()

    def _handle(self, delivery: Delivery[V]) -> None:
        if self._stop.is_set():
            self._release(delivery, 0.0)
            return
        with delivery:  # acks what is not settled, and releases it where an exception ends the worker
            try:
                self._handler(delivery)
            except Exception as error:
                logger.exception("%s could not be handled", delivery)
                if self._attempts is not None and delivery.delivery_count >= self._attempts:
                    with suppress(LockLost, AlreadySettled):
                        delivery.reject(f"{type(error).__name__}: {error}")
                else:
                    self._release(delivery, self._retry_delay)

    @staticmethod
    def _release(delivery: Delivery[V], delay: float) -> None:
        with suppress(LockLost, AlreadySettled):
            delivery.release(delay=delay)
