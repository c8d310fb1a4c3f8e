"""The vocabulary of the scenarios: send, browse, take, ack, restart.

Scenarios run on any cluster: in memory from this package, and on a real broker from
``tests/integration/test_scenarios.py``. They use only the public API. Any look inside a consumer is in `Taking` here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Protocol, TypeVar

from lvq_kafka import LastValueQueue, Message, TopicSpec
from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.consumer_session import Session
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.core.facts import Position
from lvq_kafka.producing.producer import Producer
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry
from lvq_kafka.reading.view import View
from tests.contract.harness import Faults, settled
from tests.waiting import eventually

__all__ = [
    "KEY",
    "PATIENCE",
    "PRODUCERS_TIMES",
    "Browsing",
    "Declare",
    "Queue",
    "Send",
    "Taking",
    "Venue",
    "declaring",
    "text",
]

KEY = "k"
"""The key header of every scenario's queue."""

PATIENCE = 30.0
"""Seconds after which a wait fails."""

PRODUCERS_TIMES = TopicSpec(config={"message.timestamp.type": "CreateTime"})
"""A topic that keeps producers' timestamps. The policy warns about it, but scenarios about time need it."""

_PATIENTLY: dict[str, Any] = {"catch_up_timeout": PATIENCE, "metadata_interval": 0.1}


class Venue(Faults, Protocol):
    """The cluster that a scenario runs on, with the acts of other programs and of the operator."""

    @property
    def cluster(self) -> Cluster:
        """The current cluster."""

    def write(self, topic: str, partition: int, key: str, value: str | None, timestamp: int | None = None) -> None:
        """Store a value in any partition, as a program with another partitioner does; None deletes.

        The timestamp, in ms, is kept if the topic has `PRODUCERS_TIMES`.
        """

    def restart(self) -> None:
        """Restart the broker. It keeps its storage."""

    def later(self, seconds: float) -> None:
        """Let this much time pass, and a moment more."""


class Closeable(Protocol):
    """An object to close."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


class _Abort(Exception):
    """Raised to abort a transaction."""


Send = Callable[..., list[Position]]


class Queue:
    """A declared queue, and everything opened on it.

    Messages are written like this: ``"a=a1"`` is the value a1 with the key a, ``"=v1"`` has the empty key, and
    ``"-=x1"`` has no key header.
    """

    def __init__(self, venue: Venue, name: str, **options: Any) -> None:
        self.venue = venue
        self.name = name
        self._opened: list[Closeable] = []
        self.queue = LastValueQueue.declare(name, key_header=KEY, value=TEXT, cluster=venue.cluster, **options)
        self._producer = self._keep(self.queue.producer())

    def close(self) -> None:
        """Close everything that is open, concurrently, since each object waits for its own thread."""
        opened, self._opened = self._opened, []
        with ThreadPoolExecutor() as threads:
            for closed in [threads.submit(one.close) for one in opened]:
                closed.result()

    def restart(self) -> None:
        """Close everything, restart the broker, and open the queue again."""
        self.close()
        self.venue.restart()
        self.queue = LastValueQueue.open(self.name, value=TEXT, cluster=self.venue.cluster)
        self._producer = self._keep(self.queue.producer())

    def restart_broker(self) -> None:
        """Restart the broker. Everything stays open and resumes."""
        self.venue.restart()
        self.queue = LastValueQueue.open(self.name, value=TEXT, cluster=self.venue.cluster)

    def _keep(self, opened: C) -> C:
        self._opened.append(opened)
        return opened

    # ---------------------------------------------------------------- writing

    def send(self, *messages: str, **headers: str) -> list[Position]:
        """Send messages in order, with these headers, and wait until they are stored."""
        return _send(self._producer, messages, headers)

    def send_at(self, time: float, message: str) -> None:
        """Send with a timestamp, in seconds since the epoch. The topic must have `PRODUCERS_TIMES`."""
        key, _, value = message.partition("=")
        self.venue.write(self.queue.topic, 0, key, value, round(time * 1000))

    def send_for(self, ttl: float, message: str) -> None:
        """Send a message that lives for this many seconds, and wait until it is stored."""
        key, _, value = message.partition("=")
        self._producer.put(key, value, ttl=ttl).result(PATIENCE)

    def send_in(self, delay: float, message: str) -> None:
        """Send a message that counts from this many seconds on, and wait until it is stored."""
        key, _, value = message.partition("=")
        self._producer.put(key, value, not_before=self.venue.cluster.now() + delay).result(PATIENCE)

    def delete(self, *keys: str) -> None:
        """Delete keys."""
        for receipt in [self._producer.delete(key) for key in keys]:
            receipt.result(PATIENCE)

    @contextmanager
    def transaction(self, *, abort: bool = False) -> Iterator[Send]:
        """Begin a transaction; yield a function that sends in it."""
        producer = self.queue.producer(transactional_id=f"{self.name}-{uuid.uuid4().hex}")
        with producer, suppress(_Abort), producer.transaction(PATIENCE):
            yield lambda *messages: _send(producer, messages, {})
            if abort:
                raise _Abort
        settled(self.venue.cluster, self.queue.topic)

    # ---------------------------------------------------------------- reading

    def browse(self, **options: Any) -> Browsing:
        """Return an open browser that has read its dump."""
        return Browsing(self._keep(self.queue.browser(**_PATIENTLY | options).open()))

    def view(self, **options: Any) -> View[str]:
        """Return an open view that has caught up."""
        return self._keep(self.queue.view(**_PATIENTLY | options).__enter__())

    def consume(self, **options: Any) -> Taking:
        """Return an open consumer."""
        consumer = self.queue.consumer(commit_interval=0.01, revoke_grace=0.0, **options)
        return Taking(self._keep(consumer), self)

    def content(self) -> list[str]:
        """Return the values that a new browser shows."""
        with self.queue.browser(follow=False, **_PATIENTLY) as browser:
            return [text(event) for event in browser if not isinstance(event, EndOfDump)]


class Browsing:
    """A browser whose events are read as text."""

    def __init__(self, browser: Browser[str]) -> None:
        self.browser = browser

    def drain(self) -> list[str]:
        """Read all current events. Skip the end of the dump."""
        return [text(event) for event in self.browser.drain(PATIENCE) if not isinstance(event, EndOfDump)]

    def dump(self) -> tuple[list[str], EndOfDump]:
        """Read the dump and its end."""
        values = []
        while not isinstance(event := self._take(), EndOfDump):
            values.append(text(event))
        return values, event

    def take(self) -> str:
        """Read one value. Skip the end of the dump."""
        event = self._take()
        return text(self._take() if isinstance(event, EndOfDump) else event)

    def _take(self) -> Entry[str] | Deleted | EndOfDump:
        event = self.browser.poll(PATIENCE)
        assert event is not None, "no event came"
        return event

    def close(self) -> None:
        self.browser.close()


class Taking:
    """A consumer, with the steps of its user."""

    def __init__(self, consumer: Consumer[str], queue: Queue, session: Session[str] | None = None) -> None:
        self.consumer = consumer
        self._queue = queue
        self._source = session or consumer

    def session(self) -> Taking:
        """Open a session of this consumer, with the same steps."""
        return Taking(self.consumer, self._queue, self.consumer.session())

    def take(self, tx: Transaction[str] | None = None) -> Delivery[str]:
        """Acquire a message, in a transaction if one is given."""
        delivery = (tx or self._source).acquire(PATIENCE)
        assert delivery is not None, f"no message came: {self.consumer.stats}"
        return delivery

    @contextmanager
    def transaction(self, *, abort: bool = False) -> Iterator[Transaction[str]]:
        """Begin a consumer transaction."""
        producer = self._queue.queue.producer(transactional_id=f"{self._queue.name}-{uuid.uuid4().hex}")
        with producer, suppress(_Abort), self.consumer.transaction(producer, timeout=PATIENCE) as tx:
            yield tx
            if abort:
                raise _Abort

    def take_and_ack(self, count: int) -> list[str]:
        """Acquire this many messages, and ack each before the next."""
        values = []
        for _ in range(count):
            with self.take() as delivery:
                values.append(delivery.value)
        return values

    def take_all(self) -> list[str]:
        """Acquire and ack all messages."""
        values = []
        self.settle()
        while (delivery := self._next()) is not None:
            with delivery:
                values.append(delivery.value)
        return values

    def has_nothing(self) -> bool:
        """Return whether nothing is left to hand out, once everything sent before has been read."""
        self.settle()
        return self._next() is None

    def _next(self) -> Delivery[str] | None:
        """Return the next waiting message. None means that there is none, and never that the lease has lapsed."""
        shared = self.consumer._shared
        while True:
            with shared._changed:
                delivery = self._source.acquire(0.0)
                if delivery is not None or not shared.core.hand_out.is_suspended(shared.clock()):
                    return delivery
            self.settle()

    def settle(self) -> None:
        """Wait until the consumer has read everything sent before, and may hand it out."""
        shared = self.consumer._shared
        ends = self._queue.venue.cluster.logs.end_offsets(self._queue.queue.topic, stable=True)

        def has_read_all() -> bool:
            with shared as core:
                return core.ledger.assignment.positions == ends and not core.hand_out.is_suspended(shared.clock())

        eventually(has_read_all, PATIENCE)

    @property
    def waiting(self) -> int:
        """Return the number of waiting messages, once everything sent before has been read."""
        self.settle()
        return self.consumer.stats.available

    @property
    def held(self) -> int:
        """Return the number of held messages."""
        return self.consumer.stats.in_work

    @property
    def index_size(self) -> int:
        """Return the number of entries in all tables of the consumer, which would grow if it leaked."""
        shared = self.consumer._shared
        with shared._changed:
            ledger = shared.core.ledger
            line: Any = ledger._line
            others = line._others
            tables = [line._often, others._line, others._returned, others._returned_order]
            for partition in ledger._partitions.values():
                tables += [list(partition.pending), partition.waiting, partition.held]
            return sum(map(len, tables))

    def close(self) -> None:
        """Close the consumer, whose held messages are released; or the session, which keeps them."""
        if isinstance(self._source, Consumer):
            self._source.close(PATIENCE)
        else:
            self._source.close()


def text(event: Entry[str] | Deleted | EndOfDump) -> str:
    """Return the text of an event: its value, or the key that was deleted or has left."""
    if isinstance(event, Entry):
        return event.value
    if isinstance(event, Deleted):
        return f"{event.key} {'left' if event.left else 'deleted'}"
    return "end of dump"


def _send(producer: Producer[str], messages: tuple[str, ...], headers: Mapping[str, str]) -> list[Position]:
    receipts = []
    for message in messages:
        key, _, value = message.partition("=")
        receipts.append(producer.send(Message(value, headers={**headers} if key == "-" else {**headers, KEY: key})))
    return [receipt.result(PATIENCE) for receipt in receipts]


class Declare(Protocol):
    """A function that declares a queue, with the options of `LastValueQueue.declare`."""

    def __call__(self, suffix: str = "", **options: Any) -> Queue: ...


@contextmanager
def declaring(venue: Venue, name: str) -> Iterator[Declare]:
    """Yield a function that declares queues named ``name`` plus a suffix; close everything opened on them."""
    with ExitStack() as queues:

        def declare(suffix: str = "", **options: Any) -> Queue:
            queue = Queue(venue, name + suffix, **options)
            queues.callback(queue.close)
            return queue

        yield declare
