"""A process that consumes and settles in every way: many messages at once in any order, or one by one."""

from __future__ import annotations

import heapq
import threading
import time

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.consumer_session import Session
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from tests.torture.journal import Kind
from tests.torture.settling import Settling
from tests.torture.worker import Worker, run

__all__ = ["Consuming", "Iterating"]

_IN_WORK = 40
_SESSIONS = 3
_CLOSES = 0.02  # of the turns of a session


class _Sessions:
    """The sessions of a consumer, of which now and then one is closed, and another one opened."""

    def __init__(self, worker: Worker, consumer: Consumer[str]) -> None:
        self._worker = worker
        self._consumer = consumer
        self._opened = 0
        self._open = [self._new() for _ in range(_SESSIONS)]

    def pick(self) -> tuple[int, Session[str]]:
        """Return one of the sessions, with its number."""
        chance = self._worker.random
        place = chance.randrange(_SESSIONS)
        if chance.random() < _CLOSES:
            self._open[place][1].close()
            self._open[place] = self._new()
        return self._open[place]

    def _new(self) -> tuple[int, Session[str]]:
        self._opened += 1
        return self._opened, self._consumer.session()


class Consuming:
    """A consumer that holds many messages at a time, in several sessions where messages have groups."""

    def __init__(self, worker: Worker, consumer: Consumer[str]) -> None:
        self._worker = worker
        self._consumer = consumer
        self._sessions = _Sessions(worker, consumer) if worker.grouped else None
        self._settling = Settling(worker)
        self._due: list[tuple[float, int, Delivery[str]]] = []
        self._unasked: list[tuple[float, int, Settlement]] = []

    def go_on(self) -> None:
        """Work until SIGTERM arrives or the consumer raises."""
        worker = self._worker
        while not worker.leaving.is_set():
            self._take(self._next())
            self._settle(time.monotonic())
        if worker.random.random() < 0.5:  # otherwise the next owner gets what is held
            self._settle(float("inf"))
        worker.journal.write(Kind.CLOSING)

    def _next(self) -> float:
        """Return the seconds until the next settlement is due; at most a moment, to notice SIGTERM."""
        return max(0.0, min(0.1, self._due[0][0] - time.monotonic() if self._due else 0.1))

    def _take(self, timeout: float) -> None:
        room = _IN_WORK - len(self._due)
        if room <= 0:
            self._worker.leaving.wait(timeout)
            return
        asked = time.monotonic()
        most = min(room, self._worker.random.choice((1, 5, 20)))
        session, source = (0, self._consumer) if self._sessions is None else self._sessions.pick()
        deliveries = source.acquire_many(most, timeout)
        for number, delivery in zip(self._worker.note_taken(deliveries, asked, session), deliveries):
            chance = self._worker.random.random()
            if chance < 0.01:
                continue  # forgotten: its lock times out
            work = self._worker.random.uniform(0, 0.05) if chance < 0.97 else self._worker.random.uniform(1, 3)
            heapq.heappush(self._due, (time.monotonic() + work, number, delivery))

    def _settle(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            _, number, delivery = heapq.heappop(self._due)
            settlement = self._settling.settle(number, delivery)
            if settlement is not None:
                # Most callers do not wait for the result of an ack.
                later = self._worker.random.choice((0.0, self._worker.random.uniform(0.1, 1.0)))
                self._unasked.append((time.monotonic() + later, number, settlement))
        asked = [waiting for waiting in self._unasked if waiting[0] <= until]
        self._unasked = [waiting for waiting in self._unasked if waiting[0] > until]
        for _, number, settlement in asked:
            self._settling.ask(number, settlement)


class Iterating:
    """A consumer that prefetches several messages, and works on one at a time."""

    def __init__(self, worker: Worker, consumer: Consumer[str]) -> None:
        self._worker = worker
        self._consumer = consumer
        self._settling = Settling(worker)

    def go_on(self) -> None:
        """Work until SIGTERM arrives or the consumer raises."""
        worker = self._worker
        threading.Thread(target=self._close_when_leaving, daemon=True).start()
        asked = time.monotonic()
        for delivery in self._consumer:
            (number,) = worker.note_taken([delivery], asked)
            chance = worker.random.random()
            if chance < 0.05:  # otherwise it takes no time
                worker.leaving.wait(worker.random.uniform(0, 0.05) if chance < 0.045 else worker.random.uniform(1, 3))
            settlement = self._settling.settle(number, delivery)
            if settlement is not None and worker.random.random() < 0.2:
                self._settling.ask(number, settlement)
            if worker.leaving.is_set():
                return
            asked = time.monotonic()

    def _close_when_leaving(self) -> None:
        """Close the consumer on SIGTERM, which ends an iteration that gets no messages."""
        self._worker.leaving.wait()
        self._consumer.close()


def consume(worker: Worker) -> None:
    try:
        with worker.consumer() as consumer:
            (Iterating if worker.iterates else Consuming)(worker, consumer).go_on()
    finally:
        worker.journal.write(Kind.CLOSED)


if __name__ == "__main__":
    run(consume)
