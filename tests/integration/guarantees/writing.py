"""Writing to a queue: some values, a transaction, or a stream of numbers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

from lvq_kafka import LastValueQueue, Producer
from lvq_kafka.cluster import Receipt
from tests.contract.harness import settled
from tests.waiting import eventually

__all__ = ["Ticker", "put", "ticking", "transaction"]


def put(queue: LastValueQueue[str], **values: str | None) -> None:
    """Store values by key, None for a delete, and wait until all are acknowledged."""
    with queue.producer() as producer:
        for key, value in values.items():
            producer.delete(key) if value is None else producer.put(key, value)


class _Abort(Exception):
    """Raised to abort a transaction."""


@contextmanager
def transaction(queue: LastValueQueue[str], *, abort: bool = False) -> Iterator[Producer[str]]:
    """Run a transaction, and wait until its marker is in the log."""
    transactional_id = f"{queue.name}-{uuid.uuid4().hex}"
    with queue.producer(transactional_id=transactional_id) as producer, suppress(_Abort), producer.transaction(30):
        yield producer
        if abort:
            producer.flush(30)  # unsent messages would leave no trace
            raise _Abort
    settled(queue.cluster, queue.topic)


class Ticker:
    """Puts ascending numbers from its own thread: message number n has the key ``key(n)``.

    Each value is its message's number, so the greater of two values of a key is the newer.
    """

    def __init__(self, queue: LastValueQueue[str], key: Callable[[int], str], limit: int | None) -> None:
        self._queue = queue
        self._key = key
        self._limit = limit
        self._stop = Event()
        self._receipts: list[Receipt] = []
        self._decided = 0
        self._counting = Lock()
        self._thread = Thread(target=self._tick, daemon=True)
        self._thread.start()

    def _tick(self) -> None:
        with self._queue.producer() as producer:
            while not self._stop.is_set() and len(self._receipts) != self._limit:
                number = len(self._receipts)
                self._receipts.append(producer.put(self._key(number), str(number)))
                while number - self._decided > 500 and not self._stop.is_set():  # a bounded lead
                    self._decide()
                    self._stop.wait(0.001)

    @property
    def count(self) -> int:
        """Return the number of messages sent so far."""
        return len(self._receipts)

    @property
    def running(self) -> bool:
        """Return whether it still writes."""
        return self._thread.is_alive()

    def await_count(self, count: int) -> None:
        """Wait until this many messages are acknowledged."""
        eventually(lambda: self._decide() >= count, 60)

    def _decide(self) -> int:
        """Return how many messages are decided, without a gap from the first."""
        with self._counting:
            while self._decided < len(self._receipts) and self._receipts[self._decided].done():
                self._decided += 1
            return self._decided

    def acknowledged(self) -> dict[str, int]:
        """Return the newest acknowledged number of each key."""
        newest: dict[str, int] = {}
        for number, receipt in enumerate(self._receipts[:]):
            if receipt.done() and receipt.exception(0) is None:
                newest[self._key(number)] = number
        return newest

    def stop(self) -> dict[str, int]:
        """Stop, and return the last number of each key. All are acknowledged."""
        self._stop.set()
        self._thread.join(60)
        assert not self.running, "the ticker has not come to an end"
        last = self.acknowledged()
        assert last == {self._key(number): number for number in range(len(self._receipts))}
        return last


@contextmanager
def ticking(
    queue: LastValueQueue[str],
    key: Callable[[int], str] = lambda number: f"k{number % 20}",
    *,
    limit: int | None = None,
) -> Iterator[Ticker]:
    """Run a `Ticker` in the block, with 20 keys by default."""
    ticker = Ticker(queue, key, limit)
    try:
        yield ticker
    finally:
        ticker._stop.set()
        ticker._thread.join(60)
