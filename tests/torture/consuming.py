"""A process that consumes, with several messages in work, and settles them in any order and in every way there is."""

from __future__ import annotations

import heapq
import time
from concurrent.futures import Future
from functools import partial

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.errors import LockLost
from tests.torture.journal import Kind
from tests.torture.worker import Worker, run

__all__ = ["Consuming"]

_IN_WORK = 40


class Consuming:
    """One consumer at its work."""

    def __init__(self, worker: Worker, consumer: Consumer[str]) -> None:
        self._worker = worker
        self._consumer = consumer
        self._due: list[tuple[float, int, Delivery[str]]] = []
        self._unasked: list[tuple[float, int, Settlement]] = []

    def go_on(self) -> None:
        """Until it is told to leave, or the consumer raises."""
        worker = self._worker
        while not worker.leaving.is_set():
            self._take(self._next())
            self._settle(time.monotonic())
        if worker.random.random() < 0.5:  # else what is held is left to whoever comes after
            self._settle(float("inf"))
        worker.journal.write(Kind.CLOSING)

    def _next(self) -> float:
        """Seconds until something has to be settled; a moment at most, to see whether to leave."""
        return max(0.0, min(0.1, self._due[0][0] - time.monotonic() if self._due else 0.1))

    def _take(self, timeout: float) -> None:
        room = _IN_WORK - len(self._due)
        if room <= 0:
            self._worker.leaving.wait(timeout)
            return
        asked = time.monotonic()
        most = min(room, self._worker.random.choice((1, 5, 20)))
        deliveries = self._consumer.acquire_many(most, timeout)
        for number, delivery in zip(self._worker.note_taken(deliveries, asked), deliveries):
            chance = self._worker.random.random()
            if chance < 0.01:
                continue  # forgotten: its lock times out
            work = self._worker.random.uniform(0, 0.05) if chance < 0.97 else self._worker.random.uniform(1, 3)
            heapq.heappush(self._due, (time.monotonic() + work, number, delivery))

    def _settle(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            _, number, delivery = heapq.heappop(self._due)
            try:
                self._finish(number, delivery)
            except LockLost:
                self._worker.journal.write(Kind.VAIN, n=[number], refused=True)
        asked = [waiting for waiting in self._unasked if waiting[0] <= until]
        self._unasked = [waiting for waiting in self._unasked if waiting[0] > until]
        for _, number, settlement in asked:
            settlement.add_done_callback(partial(self._decided, number))

    def _finish(self, number: int, delivery: Delivery[str]) -> None:
        random, journal = self._worker.random, self._worker.journal
        chance = random.random()
        if chance < 0.08:
            journal.write(Kind.RELEASING, n=[number])
            delivery.release(delay=random.choice((0.0, 0.5)))
            return
        journal.write(Kind.ACKING, n=[number])
        settlement = delivery.reject("at random") if chance < 0.1 else delivery.ack()
        # To ask makes the commit urgent; most who ack do not ask.
        later = random.choice((0.0, random.uniform(0.1, 1.0)))
        self._unasked.append((time.monotonic() + later, number, settlement))

    def _decided(self, number: int, future: Future[None]) -> None:
        self._worker.journal.write(Kind.DURABLE if future.exception() is None else Kind.VAIN, n=[number])


def consume(worker: Worker) -> None:
    try:
        with worker.consumer() as consumer:
            Consuming(worker, consumer).go_on()
    finally:
        worker.journal.write(Kind.CLOSED)


if __name__ == "__main__":
    run(consume)
