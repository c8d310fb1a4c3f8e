"""Read partitions of a topic: portions taken from the client, and errors met meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lvq_kafka.cluster import LogReader
from lvq_kafka.core.facts import Right
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.errors import Closed, LVQError, TopicNotFound, TransportError
from lvq_kafka.kafka.client import ClientConfig, PropertyValue
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.messages import HeaderReader, to_fetch
from lvq_kafka.runtime.forking import LeftBehind, left_behind, notify_of_forks
from lvq_kafka.runtime.overriding import override

__all__ = ["FETCH_DEFAULTS", "READ_RULES", "KafkaReader", "MessagePump", "Portion"]

_PORTION = 500  # messages taken from the client at once; more is no faster while this thread gets its turns
# The most objects to make at once. By default Python's cyclic collector runs after 700 new ones. These are freed before
# the next portion, so it does not run at all while a topic is read; otherwise it takes a fifth of the time.
_NEW_OBJECTS = 600
_WAITED = 0.002  # seconds without the CPU, in a call that waits for nothing else
_MOST_TURNS = 16

FETCH_DEFAULTS: Mapping[str, PropertyValue] = {
    "fetch.queue.backoff.ms": 1,  # by default a full queue pauses a partition for a second
    # By default the client queues 64 MiB, in memory that the system has to allocate and that no CPU cache holds: a
    # seventh of the time of a first read of 200,000 messages. 4 MiB are some 15 ms of work, and the most that a leader
    # of four partitions returns at once: so the next fetch is sent as soon as they are processed.
    "queued.max.messages.kbytes": 4096,
    # How long a broker holds back a response without data. The client learns that it is at the end of a partition only
    # from an empty response, and a partition that was just added is only in the next request.
    "fetch.wait.max.ms": 100,
    "reconnect.backoff.max.ms": 1000,  # by default a broker that is back may go unnoticed for ten seconds
    # A leader that hangs answers no fetch, and the client looks for its successor only once it has given up on that. By
    # default that takes a minute.
    "socket.timeout.ms": 10_000,
    "topic.metadata.propagation.max.ms": 2000,  # by default a missing topic is reported only after half a minute
}
"""Settings for speed; the user's own take precedence."""

READ_RULES: Mapping[str, PropertyValue] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}
"""Properties of every consumer in the library."""

_GROUP = "lvq-reader"  # the client requires a group id even if it joins and commits nothing
_TOLERATED = frozenset({KafkaError._MAX_POLL_EXCEEDED})  # the loss of the partitions follows, and reports it
_TOLERATED_WITHOUT_GROUP = _TOLERATED | {KafkaError.GROUP_AUTHORIZATION_FAILED}  # the client looks it up all the same


class Portion:
    """The number of messages to take from the client at once.

    It is small enough to leave the garbage collector asleep, while this thread gets its turns. When other threads keep
    the interpreter busy it gets one every 5 ms (`sys.getswitchinterval`), and 500 messages per turn are at most 100,000
    a second: so the portion grows while more are waiting, because a reader that lags hands out values that are already
    superseded. When a caller disables the collector in order to read a lot, it is the maximum: each turn has a cost of
    its own.
    """

    def __init__(self) -> None:
        self._usual = _PORTION
        self._turns = 1

    @property
    def size(self) -> int:
        """The current number of messages."""
        return self._usual * self._turns if gc.isenabled() else _PORTION * _MOST_TURNS

    def consumed(self, messages: int, waited: float) -> None:
        """Adapt to a call that returned ``messages`` and waited ``waited`` seconds for the CPU."""
        if waited < _WAITED:
            self._turns = max(1, self._turns // 2)
        elif messages >= self.size:
            self._turns = min(_MOST_TURNS, self._turns * 2)

    def suit(self, batch: RecordBatch) -> None:
        """Adapt to the number of objects that a message takes.

        The next messages are assumed to resemble the last one of this batch: one object for it, its headers, and each
        header.
        """
        (headers,) = batch.rows(len(batch) - 1, len(batch)).headers or (None,)
        self._usual = max(2, min(_PORTION, _NEW_OBJECTS // (2 + len(headers)))) if headers else _PORTION


class MessagePump:
    """Poller of a consumer: takes what is there, waits only if nothing is, and raises errors.

    Records that came together with an error are returned first; the next `poll` raises it. A permanent error is raised
    by every later `poll`, too: reading only the other partitions would be incomplete. A missing topic may be a
    transient error for a group member: a lagging broker reports it for a new topic.
    """

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        health: Health,
        *,
        needs: Sequence[Right] = (),
        groupless: bool = False,
        headers: bool = True,
        late: bool = False,
    ) -> None:
        self._tolerated = _TOLERATED_WITHOUT_GROUP if groupless else _TOLERATED
        self._groupless = groupless
        self._consumer = consumer
        self._topic = topic
        self._health = health
        self._needs = needs or [Right("Read", "Topic", topic)]
        self._read_headers = HeaderReader() if headers else None
        self._late = late
        self._broken: dict[int | None, LVQError] = {}
        self._portion = Portion()
        self.sole: int | None = None
        """The partition that is read, while there is only one."""

    def poll(self, timeout: float) -> Fetch:
        """Wait for records and return what is ready, as `LogReader.poll` does."""
        self._raise_broken()
        try:
            messages = self._consume(self._portion.size)
            if not messages:
                # consume() would wait for all of them or the timeout; poll() returns with the first
                first = self._consumer.poll(timeout)
                messages = [] if first is None else [first, *self._consume(self._portion.size - 1)]
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self._explain(error) from None
        fetch, events = to_fetch(messages, self.sole, read_headers=self._read_headers, late=self._late)
        if self._read_headers is not None:
            self._portion.suit(fetch.batch)
        if fetch.positions:
            self._health.recovered()
        for event in events:
            error, partition = event.error(), event.partition()
            if error is not None and error.code() not in self._tolerated:
                self._broken[partition] = self._explain(error, partition)
        news = self._health.pop_news()
        if news is not None:
            self._broken[None] = self._explain(news)
        if not fetch.positions:
            self._raise_broken()
        return fetch

    def _consume(self, most: int) -> list[Message]:
        """Return the messages that are there, at most ``most``."""
        began, worked = time.monotonic(), time.thread_time()
        messages = self._consumer.consume(most, 0)
        self._portion.consumed(len(messages), time.monotonic() - began - (time.thread_time() - worked))
        return messages

    def mend(self, partitions: Iterable[int]) -> None:
        """Forget the errors of partitions that were reassigned."""
        for partition in partitions:
            self._broken.pop(partition, None)

    def _raise_broken(self) -> None:
        for partition, error in self._broken.items():
            doubtful = isinstance(error, TopicNotFound) and not self._groupless
            if doubtful or (isinstance(error, TransportError) and error.retriable):
                del self._broken[partition]
            raise error

    def _explain(self, error: KafkaError, partition: int | None = None) -> LVQError:
        where = "" if partition is None or partition < 0 else f", partition {partition}"
        doing = f"read topic {self._topic!r}{where}"
        return self._health.explain(error, doing, topic=self._topic, needs=self._needs)


class KafkaReader(LogReader, LeftBehind):
    """Reader of assigned partitions of one topic.

    With ``decided=False`` it reads up to the high watermark, records of open and aborted transactions included.
    """

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
        decided: bool = True,
    ) -> None:
        health = Health(config.bootstrap_servers, config.properties)
        rules = {**READ_RULES, "group.id": _GROUP}
        if not decided:
            rules["isolation.level"] = "read_uncommitted"
        self._topic = topic
        self._consumer: Consumer | None = open_consumer(config, health, rules, FETCH_DEFAULTS)
        self._pump = MessagePump(self._consumer, topic, health, groupless=True, headers=headers, late=late)
        self._assigned: set[int] = set()
        self._left: Consumer | None = None  # in a forked child: the parent's
        notify_of_forks(self)
        self.assign(positions)

    @override
    def left_behind(self) -> None:
        self._left, self._consumer = self._consumer, None

    @override
    def poll(self, timeout: float) -> Fetch:
        self._open()
        return self._pump.poll(timeout)

    @override
    def assign(self, positions: Mapping[int, int]) -> None:
        consumer = self._open()
        again = self._assigned.intersection(positions)
        if again:
            consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in again])
        # absolute offsets: a logical one ("beginning") waits half a second for a retry timer
        consumer.incremental_assign([TopicPartition(self._topic, p, offset) for p, offset in positions.items()])
        self._assigned.update(positions)
        self._pump.sole = next(iter(self._assigned)) if len(self._assigned) == 1 else None
        self._pump.mend(positions)

    @override
    def unassign(self, partitions: Iterable[int]) -> None:
        left = self._assigned.intersection(partitions)
        if left:
            self._open().incremental_unassign([TopicPartition(self._topic, partition) for partition in left])
        self._assigned -= left
        self._pump.sole = next(iter(self._assigned)) if len(self._assigned) == 1 else None
        self._pump.mend(left)

    @override
    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._left is not None:
            raise left_behind(f"The reader of topic {self._topic!r}")
        if self._consumer is None:
            raise Closed(f"The reader of topic {self._topic!r} is closed.")
        return self._consumer
