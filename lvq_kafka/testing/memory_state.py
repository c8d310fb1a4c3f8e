"""Shared state of the in-memory cluster: topics, groups, lock, clock and planned failures."""

from __future__ import annotations

import base64
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from itertools import count

from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import home_partition, key_text
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import BrokerUnavailable, Closed, ConfigError, DeliveryFailed, MessageTooLarge, TopicNotFound
from lvq_kafka.testing.memory_group import Group
from lvq_kafka.testing.memory_partition import PartitionLog, Topic, TransactionState

__all__ = ["DEFAULTS", "OPERATIONS", "ClusterState", "no_answer", "record_size", "refused"]

DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Topic settings and their values on a broker with default configuration."""

OPERATIONS = frozenset(
    """
    topics.describe topics.config topics.create topics.check_may_create topics.check_may topics.alter_config
    topics.add_partitions topics.delete
    logs.start_offsets logs.end_offsets logs.stable_ends logs.offsets_at logs.delete_before logs.check_uncut
    logs.overwritten
    groups.committed groups.committed_at groups.check_may_commit groups.commit_text_limit groups.retention
    groups.member_count groups.delete
    broker_count
    append begin_transaction send_offsets commit_transaction abort_transaction poll commit
    """.split()  # noqa: SIM905 -- a list of forty lines reads worse
)
"""Calls that `MemoryCluster.fail_next` can fail, by their names in `lvq_kafka.cluster`."""

ANSWERED = frozenset({"append", "commit", "commit_transaction"})
"""The calls whose answers `MemoryCluster.lose_answers` can lose."""


class ClusterState:
    """The state that a broker would hold. Guarded by ``changed``, which every change notifies."""

    def __init__(
        self, clock: Callable[[], float], brokers: int, fetch_limit: int, metadata_limit: int, retention: float
    ) -> None:
        self.changed = threading.Condition()
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.brokers = brokers
        self.fetch_limit = fetch_limit
        self.closed = False
        self.connected = True
        self.outages = 0
        self.outbox: list[Callable[[], Callable[[], None]]] = []  # one for each writer; see MemoryWriter
        self.producers: dict[str, int] = {}  # the current producer of each transactional id
        self.clock = clock
        self.metadata_limit = metadata_limit
        self.retention = retention
        self._failures: dict[str, deque[Exception]] = {}
        self._lost_answers: Counter[str] = Counter()
        self._last_producer = 0
        self._keyless = count()  # records without a key

    def now(self) -> int:
        """Return the time for a timestamp, in ms."""
        return int(self.clock() * 1000)

    def wait(self, deadline: float) -> bool:
        """Wait for a change, holding the lock.

        Return False once the deadline (monotonic) has passed.
        """
        remaining = deadline - time.monotonic()
        if remaining > 0:
            self.changed.wait(min(remaining, threading.TIMEOUT_MAX))
        return remaining > 0

    def plan(self, operation: str, error: Exception, times: int) -> None:
        """Make the next calls of an operation fail."""
        _check_operation(operation, OPERATIONS)
        self._failures.setdefault(operation, deque()).extend([error] * times)

    def lose_answers(self, operation: str, times: int) -> None:
        """Let the next calls of an operation take effect, but lose the answer."""
        _check_operation(operation, ANSWERED)
        self._lost_answers[operation] += times

    def answers(self, operation: str) -> bool:
        """Return whether the caller of a completed operation gets an answer."""
        if not self._lost_answers[operation]:
            return True
        self._lost_answers[operation] -= 1
        return False

    def check_open(self) -> None:
        """Raise `Closed` if the cluster was closed, which ends nothing that it has opened."""
        if self.closed:
            raise Closed("The cluster is closed.")

    def ask(self, operation: str) -> None:
        """Enter an operation of the cluster itself."""
        self.check_open()
        self.enter(operation)

    def ask_about(self, operation: str, topic: str) -> Topic:
        """Enter an operation of the cluster on a topic; return the topic."""
        self.ask(operation)
        return self.topic(topic)

    def enter(self, operation: str) -> None:
        """Raise the error planned for this call, or `BrokerUnavailable` during an outage."""
        if planned := self._failures.get(operation):
            raise planned.popleft()
        if not self.connected:
            raise unavailable()

    def topic(self, name: str) -> Topic:
        """Return the topic of that name.

        Raises:
            TopicNotFound: there is no such topic.
        """
        try:
            return self.topics[name]
        except KeyError:
            raise TopicNotFound(
                f"The topic {name!r} does not exist.",
                topic=name,
                hint="Check the topic's name and the cluster, or declare a queue.",
            ) from None

    def partition(self, topic: str, partition: int) -> PartitionLog:
        """Return one partition of a topic.

        Raises:
            TopicNotFound: the topic or the partition does not exist.
        """
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise TopicNotFound(
                f"The topic {topic!r} has no partition {partition}; it has {len(partitions)}.", topic=topic
            )
        return partitions[partition]

    def store(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        producer: int | None = None,
    ) -> Position:
        """Store one record as a broker does.

        It goes to the given partition, or to the key's home; without a key, to each partition in turn.

        Raises:
            DeliveryFailed: the topic does not exist or does not accept the record.
            MessageTooLarge: the record is larger than the topic allows.
        """
        try:
            found = self.topic(topic)
        except TopicNotFound as error:
            raise refused(key, "UNKNOWN_TOPIC_OR_PART", str(error).removesuffix(error.hint), error.hint) from error
        if key is None and "compact" in found.config.get("cleanup.policy", ""):
            raise refused(key, "INVALID_RECORD", f"The compacted topic {topic!r} accepts no record without a key.")
        if record_size(key, value, headers) > int(self.setting(found, "max.message.bytes")):
            raise MessageTooLarge(
                f"The message for key {quoted(key_text(key or b''))} is larger than {topic!r} takes.",
                key=key,
                code="MSG_SIZE_TOO_LARGE",
                hint=f"Raise max.message.bytes of {topic!r}, or store the value elsewhere.",
            )
        if partition is None:
            there = len(found.partitions)
            partition = next(self._keyless) % there if key is None else home_partition(key, there)
        log = self.partition(topic, partition)
        offset = log.append(self.now() if timestamp is None else timestamp, key, value, headers, producer)
        self.changed.notify_all()
        return Position(topic, partition, offset)

    def group(self, name: str) -> Group:
        """Return the group of that name, created if there is none."""
        return self.groups.setdefault(name, Group(name, self.now, self.metadata_limit))

    def expire_commits(self) -> None:
        """Forget commits of groups without members whose time is over."""
        horizon = self.now() - self.retention * 1000
        for group in list(self.groups.values()):
            if group.expire(horizon):
                del self.groups[group.name]

    def new_producer(self, transactional_id: str | None) -> int:
        """Return the number of a new producer.

        It aborts the transaction that its predecessor with the same transactional id left open.
        """
        self._last_producer += 1
        if transactional_id is not None:
            predecessor = self.producers.get(transactional_id)
            if predecessor is not None:
                self.end_transaction(predecessor, TransactionState.ABORTED)
            self.producers[transactional_id] = self._last_producer
        return self._last_producer

    def end_transaction(self, producer: int, state: TransactionState) -> None:
        """Decide a producer's transaction in every partition and group that it has touched."""
        timestamp = self.now()
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.end_transaction(producer, state, timestamp)
        for group in self.groups.values():
            group.end_transaction(producer, keep=state is TransactionState.COMMITTED)
        self.changed.notify_all()

    def setting(self, topic: Topic, name: str) -> str:
        """Return a topic's setting: its own or the default."""
        return topic.config.get(name, DEFAULTS[name])

    @staticmethod
    def new_topic_id() -> str:
        """Return an id in Kafka's format: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def no_answer(operation: str) -> BrokerUnavailable:
    """Return the error of a call whose answer was lost."""
    return BrokerUnavailable(
        f"No broker has answered in time: {operation}.", code="_TIMED_OUT", retriable=True, hint="It may have happened."
    )


def _check_operation(operation: str, operations: Collection[str]) -> None:
    if operation not in operations:
        raise ConfigError(
            f"{operation!r} is not an operation that can fail this way.",
            options=["operation"],
            hint=f"Choose one of {', '.join(sorted(operations))}.",
        )


def unavailable() -> BrokerUnavailable:
    """Return the error of every call while the cluster is disconnected."""
    return BrokerUnavailable(
        "No broker answers: the in-memory cluster is disconnected.",
        code="_TRANSPORT",
        retriable=True,
        hint="Call reconnect() to end the outage.",
    )


def refused(key: bytes | None, code: str, message: str, hint: str = "") -> DeliveryFailed:
    """Return the error of a record that was not stored."""
    return DeliveryFailed(message.rstrip(), key=key, code=code, hint=hint)


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size of a record in bytes, without protocol overhead."""
    return len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") for name, text in headers)
