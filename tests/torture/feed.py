"""Producers that update a few thousand keys, and record what they have written."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from lvq_kafka.admitting.gates import gate_of
from lvq_kafka.cluster import Receipt
from lvq_kafka.codecs import TEXT
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import QueueOrder
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import DeliveryFailed, LVQError, OutcomeUnknown
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.producing.producer import Message, Producer
from tests.rules import rules

__all__ = ["Call", "Feed", "Place", "Sent", "group_of"]

Place = tuple[int, int]
"""Partition and offset."""

Sent = tuple[str | None, str | None]
"""Key (None: an ordinary message) and value (None: a delete)."""

_HOT = 50  # keys that get a third of the updates
_TICK = 0.05
_OWN_TTL = 0.4  # of the messages, where any expire
_SCHEDULED = 0.25  # of the messages, where any may be
_BELOW = 0.5  # of the scheduled messages, those with a value below them
_GROUPS = 40
_DEFAULT_PRIORITY = 4
_MAX_BLOCK = 180.0  # seconds; who waits for longer has an error
_SHORT_TTL = (0.05 ** (1 / 3), 5.0 ** (1 / 3))  # seconds: 50 ms to 5 s, most of them short


def group_of(key: str) -> str:
    """Return the group of a key's messages, where there are any."""
    return f"group-{int(key.removeprefix('key-')) % _GROUPS}"


@dataclass(slots=True)
class Call:
    """A call that sends a message or a delete. Times are by the monotonic clock."""

    producer: int
    key: str | None
    value: str | None
    begin: float
    end: float
    place: Place | None = None
    """Where it is stored; None if it is not, or unknown."""


class Feed:
    """Threads that write to a topic at a steady rate until `stop` is called."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        *,
        keys: int,
        rate: float,
        seed: int,
        ttl: Ttl | None = None,
        max_delay: float | None = None,
        groups: Groups | None = None,
        order: QueueOrder = "tail",
        width: int = 0,
        standard: bool = False,
        limited: QueueDefinition | None = None,
        threads: int = 2,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._keys = [f"key-{number:04}" for number in range(keys)]
        self._rate = rate / threads
        self._ttl = ttl
        self._max_delay = max_delay
        self._groups = groups
        self._order = order
        self._width = width
        self._standard = standard
        self._limited = limited
        self._stop = threading.Event()
        self._producer = threading.local()
        self._lock = threading.Lock()
        self._count = 0
        self.stored: dict[Place, Sent] = {}
        """Messages that the broker acknowledged."""
        self.sent_at: dict[Place, float] = {}
        """The earliest time at which each was sent, by the monotonic clock."""
        self.ranks: dict[Place, int] = {}
        """The rank of each by its priority, a lower one first."""
        self.refused: list[Sent] = []
        """Messages that failed and were reported as not stored."""
        self.unsure: list[Sent] = []
        """Messages that failed and may have been stored."""
        self.calls: list[Call] = []
        """All calls, in the order of their beginnings."""
        self.failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n, random.Random(f"{seed}/{n}"), self._keys[n::threads]))
            for n in range(threads)
        ]

    def start(self) -> None:
        """Write each key once, then continue at random."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until every outcome is known."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int, chance: random.Random, keys: list[str]) -> None:
        self._producer.number = number
        limited = self._limited
        try:
            gate = None if limited is None else gate_of(self._cluster, limited, consumed=True, max_block=_MAX_BLOCK)
            with Producer(
                self._cluster,
                rules(
                    topic=self._topic,
                    key_header=None,
                    ttl=self._ttl,
                    max_delay=self._max_delay,
                    conflate=not self._standard,
                    groups=self._groups,
                    order=self._order,
                ),
                value=TEXT,
                gate=gate,
            ) as producer:
                for key in keys:
                    if self._stop.is_set():
                        break
                    self._put(producer, key, chance)
                begun, sent = time.monotonic(), 0
                while not self._stop.wait(_TICK):
                    until = int((time.monotonic() - begun) * self._rate)
                    for _ in range(sent, until):
                        if self._stop.is_set():
                            break  # it may be far behind, after it waited for room
                        self._write(producer, chance, keys)
                    sent = until
        except LVQError as error:
            self.failures.append(error)

    def _write(self, producer: Producer[str], chance: random.Random, keys: list[str]) -> None:
        kind = chance.random()
        key = chance.choice(keys[:_HOT] if chance.random() < 0.3 else keys)
        if kind < 0.02:
            value = self._value()
            message = Message(value, ttl=self._own_ttl(chance), not_before=self._due(chance))
            self._send(partial(producer.send, message), None, value)
        elif kind < 0.06 and not self._standard:  # where a delete means nothing
            self._send(partial(producer.delete, key), key, None)
        else:
            self._put(producer, key, chance)

    def _put(self, producer: Producer[str], key: str, chance: random.Random) -> None:
        """Put a value of a key; often one that counts at once, and a scheduled one above it."""
        due = self._due(chance)
        for when in (None, due) if due is not None and chance.random() < _BELOW else (due,):
            value = self._value()
            group = None if self._groups is None else group_of(key)
            priority = chance.randrange(10) if self._order == "priority" else None
            own: dict[str, Any] = {"ttl": self._own_ttl(chance), "not_before": when, "priority": priority}
            self._send(partial(producer.send, Message(value, key=key, group=group, **own)), key, value, priority)

    def _own_ttl(self, chance: random.Random) -> float | None:
        """Return the TTL of a message; None for the default. Most that have their own live for less than a second."""
        if self._ttl is None or chance.random() > _OWN_TTL:
            return None
        return chance.uniform(*_SHORT_TTL) ** 3

    def _due(self, chance: random.Random) -> float | None:
        """Return from when on a message counts; None if it does at once."""
        if self._max_delay is None or chance.random() > _SCHEDULED:
            return None
        return time.time() + chance.uniform(0, self._max_delay)

    def _send(
        self, send: Callable[[], Receipt], key: str | None, value: str | None, priority: int | None = None
    ) -> None:
        call = Call(self._producer.number, key, value, time.monotonic(), inf)
        self.calls.append(call)
        try:
            receipt = send()
        finally:
            call.end = time.monotonic()
        receipt.add_done_callback(partial(self._decided, call, priority))

    def _decided(self, call: Call, priority: int | None, receipt: Receipt) -> None:
        key, value = call.key, call.value
        error = receipt.exception(0)
        if isinstance(error, OutcomeUnknown):
            self.unsure.append((key, value))
        elif isinstance(error, DeliveryFailed):
            self.refused.append((key, value))
        elif error is not None:
            self.failures.append(error)
        else:
            position = receipt.result(0)
            call.place = place = position.partition, position.offset
            self.stored[place] = (key, value)
            self.sent_at[place] = call.begin
            self.ranks[place] = 9 - (_DEFAULT_PRIORITY if priority is None else priority)

    def _value(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self._count:0{self._width}}"
