"""The input topic as it was before compaction: what was appended, when, and until when it counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.torture.feed import Place

__all__ = ["NEVER", "Logged", "Rule", "Tape"]

NEVER = 1 << 62
"""The expiry of what never expires, in ms."""

_TTL, _NOT_BEFORE = "lvq-ttl", "lvq-not-before"  # ms, as decimal text
_POLL = 0.2  # seconds
_MOST = 1000  # messages a poll
_PATIENCE = 60.0  # seconds to read up to the end

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Logged:
    """A record. Times are in ms since the epoch, by the broker's clock, which is the clock of all processes."""

    key: str
    value: str | None
    appended: int
    due: int = 0
    """The first moment at which it counts (R11)."""
    expires: int = NEVER
    """The last moment at which it counts (R10)."""

    @property
    def scheduled(self) -> bool:
        """Return whether it counts later than it was appended."""
        return self.due > self.appended


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a queue for the times of its messages, in seconds."""

    default_ttl: float
    max_delay: float = 0.0

    def logged(self, key: str, value: str | None, appended: int, headers: Headers) -> Logged:
        """Return a record, whose times follow from its append time (in ms) and its headers."""
        said = dict(headers)
        latest = appended + round(self.max_delay * 1000)
        due = max(appended, min(int(said.get(_NOT_BEFORE) or 0), latest))
        return Logged(key, value, appended, due, appended + int(said.get(_TTL) or round(self.default_ttl * 1000)))


class Tape:
    """A thread that reads a topic from the beginning, with a client of its own, and keeps all records.

    Records that compaction removes before the thread has read them are missing. They were replaced within a moment.
    """

    def __init__(self, servers: str, topic: str, partitions: int, rule: Rule) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._rule = rule
        self._stop = threading.Event()
        self._next = dict.fromkeys(range(partitions), 0)
        self.records: dict[Place, Logged] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def finish(self, ends: Mapping[int, int]) -> None:
        """Stop at these offsets, when they are reached."""
        until = time.monotonic() + _PATIENCE
        behind = threading.Event()
        while any(self._next[partition] < end for partition, end in ends.items()):
            assert time.monotonic() < until, f"the tape has got to {self._next}, and the topic ends at {ends}"
            behind.wait(_POLL)
        self.stop()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "tape",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
            while not self._stop.is_set():
                for message in consumer.consume(_MOST, _POLL):
                    self._take(message)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            return  # an error of the client, which tries again
        if message.error() is None:
            value, key = message.value(), message.key() or b""
            headers: Headers = message.headers() or ()  # type: ignore[assignment]
            self.records[partition, offset] = self._rule.logged(
                key.decode(), None if value is None else value.decode(), message.timestamp()[1], headers
            )
            self._next[partition] = offset + 1
        elif (
            message.error().code() == KafkaError._PARTITION_EOF
        ):  # the end, for now: compaction may have removed what was there
            self._next[partition] = max(self._next[partition], offset)
