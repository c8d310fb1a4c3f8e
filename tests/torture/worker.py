"""The common part of consumer processes: their orders, their journal, and their end."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import LVQError, OutcomeUnknown, TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.runtime.overriding import override
from tests.torture.journal import Journal, Kind

__all__ = ["QUEUE", "Orders", "Worker", "run"]

QUEUE = "torture"
"""The queue's name."""

_PAUSE = 0.3  # seconds before the next attempt to open a consumer


@dataclass(frozen=True)
class Orders:
    """The orders of a process, as JSON in its only argument."""

    name: str
    servers: str
    definition: str
    """The queue's, as JSON."""
    journal: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    """Options of its consumers."""
    properties: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    """The topic that a transforming process writes to."""
    transactional_id: str = ""

    def text(self) -> str:
        """Return the orders as an argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the orders in an argument."""
        return cls(**json.loads(text))


class Worker:
    """A process that consumes until SIGTERM arrives or its parent has ended."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.journal = Journal(orders.journal)
        self.random = random.Random(orders.seed)
        self.leaving = threading.Event()
        self.cluster = _Clocked(ClientConfig(orders.servers, orders.properties))
        self._taken = 0
        self._count_pages: Callable[[], int] | None = None
        self._definition = QueueDefinition.from_json(orders.definition.encode(), name=QUEUE)
        signal.signal(signal.SIGTERM, lambda *_: self.leaving.set())
        faulthandler.register(signal.SIGUSR1)  # prints the stacks of all threads
        threading.Thread(target=_die_with_parent, daemon=True).start()
        if QueueRules.of(self._definition).ring is not None:
            _note_evictions(self.journal)
        library = logging.getLogger("lvq_kafka")
        library.setLevel(logging.INFO)
        library.addHandler(_ToJournal(self.journal))

    def consumer(self) -> Consumer[str]:
        """Return a new consumer of the queue."""
        consumer = Consumer(self.cluster, self._definition, TEXT, max_in_work=100, **self.orders.options)
        self._count_pages = None if QueueRules.of(self._definition).paged is None else lambda: consumer.stats.paged
        return consumer

    @property
    def grouped(self) -> bool:
        """Return whether messages have groups."""
        return self._definition.groups is not None

    @property
    def iterates(self) -> bool:
        """Return whether it prefetches messages."""
        return self.orders.options.get("prefetch", 1) > 1

    @property
    def gives_up(self) -> bool:
        """Return whether its consumers reject messages that were delivered too often."""
        return self.orders.options.get("max_deliveries") is not None

    @property
    def buries(self) -> bool:
        """Return whether its rejected messages become dead letters."""
        return self.orders.options.get("dead_letters") is not None

    def signature(self, number: int) -> str:
        """Return the reason of a rejection; see `tests.torture.history.Hold.signature`."""
        return f"{self.orders.name}, {number}"

    def note_taken(self, deliveries: Sequence[Delivery[str]], asked: float, session: int = 0) -> list[int]:
        """Record the acquired messages, and when they were asked for. Return the numbers given to them."""
        at = time.monotonic()
        clock = self.cluster.pop_reading()
        numbers = []
        for delivery in deliveries:
            self._taken += 1
            numbers.append(self._taken)
            self.journal.write(
                Kind.ACQUIRED,
                n=self._taken,
                asked=asked,
                acquired=at,
                partition=delivery.position.partition,
                offset=delivery.position.offset,
                key=delivery.key or "",
                value=delivery.value,
                count=delivery.delivery_count,
                redelivered=delivery.redelivered,
                session=session,
                ahead=self.iterates,
                clock=clock,
                appended=_ms(delivery.timestamp),
                expires=None if delivery.expires is None else _ms(delivery.expires),
            )
        if self._count_pages is not None and (paged := self._count_pages()):
            self.journal.write(Kind.PAGED, messages=paged)
        return numbers


class _Clocked(KafkaCluster):
    """A cluster that remembers by which clock reading its consumer has chosen what it hands out.

    A consumer reads the clock on the thread that acquires, before it picks messages and under the same lock.
    """

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._readings = threading.local()

    @override
    def now(self) -> float:
        self._readings.last = now = super().now()
        return now

    def pop_reading(self) -> int | None:
        """Return this thread's last reading, in ms since the epoch; None if there was none since the last call."""
        last: float | None = getattr(self._readings, "last", None)
        self._readings.last = None
        return None if last is None else int(last * 1000)


def run(work: Callable[[Worker], None]) -> None:
    """Work with one consumer after another, as long as a new one helps."""
    worker = Worker(Orders.of(sys.argv[1]))
    while not worker.leaving.is_set():
        try:
            work(worker)
        except LVQError as error:
            if not _helps(error):
                worker.journal.write(Kind.DIED, error=repr(error))
                raise
            worker.journal.write(Kind.FAILED, error=repr(error), code=getattr(error, "code", ""))
            worker.leaving.wait(_PAUSE)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _helps(error: Exception) -> bool:
    """Return whether a new consumer and producer help: always after trouble with the cluster or a transaction."""
    return isinstance(error, OutcomeUnknown | TransportError)


class _ToJournal(logging.Handler):
    """A log handler that records lines, and the partitions that the library gets and gives up, as they are logged."""

    _GONE = ("given up", "lost")

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        if text.endswith("was assigned partitions %s"):
            self._journal.write(Kind.GOT, partitions=self._partitions(record))
        elif text.endswith(tuple(f"has {how} partitions %s" for how in self._GONE)):
            how = next(how for how in self._GONE if how in text)
            self._journal.write(Kind.GONE, partitions=self._partitions(record), how=how)
        else:
            self._journal.write(Kind.SAID, text=f"{record.levelname} {record.getMessage()}")

    def _partitions(self, record: logging.LogRecord) -> Any:
        assert isinstance(record.args, tuple)
        return record.args[1]


def _note_evictions(journal: Journal) -> None:
    """Record each message that a ring drops, which the library only counts."""
    evict = PartitionLedger.evict

    def noting(self: PartitionLedger, item: Item) -> None:
        journal.write(Kind.EVICTED, partition=item.partition, offset=item.offset)
        evict(self, item)

    PartitionLedger.evict = noting  # type: ignore[method-assign]


def _die_with_parent() -> None:
    """Exit when the parent ends. It holds the other end of standard input, and never writes to it."""
    sys.stdin.read()
    os._exit(2)
