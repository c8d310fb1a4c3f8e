"""Random settling in every way that a process's habits allow."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial

from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.errors import LockLost
from tests.torture.journal import Kind
from tests.torture.worker import Worker

__all__ = ["RejectedError", "Settling", "is_poison", "is_sick", "reason"]

_POISON = 40  # one in this many messages cannot be processed
_SICK = 4  # one in this many messages fails at first
_YOUTH = 6.0  # seconds


class RejectedError(Exception):
    """A fault in a message, like the exception that most rejecting programs have at hand."""


def is_poison(delivery: Delivery[str]) -> bool:
    """Return whether no process can process the message. All processes agree."""
    return int(delivery.value) % _POISON == 0


def is_sick(delivery: Delivery[str]) -> bool:
    """Return whether processing fails because the message is still young. All processes agree."""
    return int(delivery.value) % _SICK == 1 and time.time() - delivery.timestamp < _YOUTH


def reason(worker: Worker, text: str) -> str | RejectedError:
    """Return the reason of a rejection, as text or as an error."""
    return text if worker.random.random() < 0.5 else RejectedError(text)


class Settling:
    """Settles the deliveries of a process, and records the outcomes."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def settle(self, number: int, delivery: Delivery[str]) -> Settlement | None:
        """Ack, release or reject. Return the settlement of an ack, for callers that want to wait."""
        try:
            return self._settle(number, delivery)
        except LockLost:
            self._worker.journal.write(Kind.VAIN, n=[number], refused=True)
            return None

    def _settle(self, number: int, delivery: Delivery[str]) -> Settlement | None:
        worker, chance = self._worker, self._worker.random.random()
        poison = is_poison(delivery)
        if chance < 0.08 or (poison and worker.gives_up):
            worker.journal.write(Kind.RELEASING, n=[number])
            delivery.release(delay=worker.random.choice((0.0, 0.5)))
            return None
        if is_sick(delivery):  # the others have to get past them
            worker.journal.write(Kind.RELEASING, n=[number])
            delivery.release(delay=worker.random.choice((0.0, 0.5, 3.0)))
            return None
        if chance < 0.1 or poison:
            return self._reject(number, delivery)
        worker.journal.write(Kind.ACKING, n=[number])
        return delivery.ack()

    def _reject(self, number: int, delivery: Delivery[str]) -> Settlement | None:
        if not self._worker.buries:
            self._worker.journal.write(Kind.ACKING, n=[number])
            return delivery.reject(RejectedError("at random"))
        self._worker.journal.write(Kind.REJECTING, n=[number])
        # Ask at once: if the letter is not stored, the message comes again, and the journal must say so before.
        signature = self._worker.signature(number)
        self.ask(number, delivery.reject(reason(self._worker, signature)))
        return None

    def ask(self, number: int, settlement: Settlement) -> None:
        """Record the outcome when it is known. Asking makes the commit urgent."""
        settlement.add_done_callback(partial(self._decided, number))

    def _decided(self, number: int, future: Future[None]) -> None:
        self._worker.journal.write(Kind.DURABLE if future.exception() is None else Kind.VAIN, n=[number])
