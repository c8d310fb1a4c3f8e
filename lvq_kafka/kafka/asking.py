"""Asking what a consumer group has committed, decided or by now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Lock

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lvq_kafka.core.rights import Right
from lvq_kafka.errors import BrokerUnavailable, Closed, OffsetsPending
from lvq_kafka.forking import tell_of_forks
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.errors import TRANSIENT, UNREACHABLE, kafka_error
from lvq_kafka.kafka.reader import READ_RULES

__all__ = ["COMMITS", "Asker", "home_of", "why_pending"]

COMMITS = "__consumer_offsets"
"""Where brokers keep what groups commit."""

_PAUSE = 0.02  # seconds
_SLICE = 1.0  # seconds; after that it is looked whether the broker refuses us, which the call itself does not tell


class Asker:
    """Asks for a group's commits by a consumer that never joins. Thread-safe, one question at a time.

    librdkafka's admin call for it (up to 2.16.0 at least) ends the process with a segmentation fault when the
    coordinator moves or is still loading. The consumer of the group that was asked about last is kept: to open one and
    to find the coordinator takes much longer than to ask.

    Args:
        decided: wait for transactions that hold offsets of the group; else tell what is committed by now.
    """

    def __init__(self, config: ClientConfig, *, decided: bool) -> None:
        self._config = config
        self._decided = decided
        self._lock = Lock()
        self._asked_last: tuple[str, Consumer, Health] | None = None
        self._closed = False
        tell_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`. The consumer stays with this object, which is kept: to close it waits for ever."""
        self._lock = Lock()
        self._left, self._asked_last = self._asked_last, None

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            self._closed = True
            self._forget()

    def ask(self, group: str, topic: str, partitions: Iterable[int], deadline: float) -> list[TopicPartition]:
        """What the group has committed. Asks again while that fails in a way that passes, and there is time.

        Raises:
            OffsetsPending: an open transaction holds some of it, or replicas of it are not in sync.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            return self._ask(group, asked, f"read the commits of group {group!r}", deadline)
        except BrokerUnavailable as error:
            if self._decided and (why := why_pending(self._config, group, asked)):
                raise why from error
            raise

    def _ask(self, group: str, asked: list[TopicPartition], doing: str, deadline: float) -> list[TopicPartition]:
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise BrokerUnavailable(
                f"Cannot {doing}: others still wait for an answer to that.",
                code="_TIMED_OUT",
                retriable=True,
                hint="Check that the group's coordinator can be reached.",
            )
        try:
            consumer, health = self._consumer_of(group)
            while True:
                left = deadline - time.monotonic()
                try:
                    answer = _without_errors(consumer.committed(asked, max(0.1, min(left, _SLICE))))
                except KafkaException as exception:
                    error = kafka_error(exception)
                    if error is None:
                        raise
                    told = consumer.poll(0)  # the call only says that nothing came; what the client has seen comes here
                    error = (told.error() if told is not None else None) or error
                    if error.code() not in TRANSIENT | UNREACHABLE or health.refused or left <= _PAUSE:
                        self._forget()  # it tells why it is refused only once; a new one says it again
                        needs = [Right("Describe", "Group", group), Right("Describe", "Topic", asked[0].topic)]
                        raise health.explain(error, doing, needs=needs) from exception
                    time.sleep(_PAUSE)
                else:
                    health.recovered()
                    return answer
        finally:
            self._lock.release()

    def _consumer_of(self, group: str) -> tuple[Consumer, Health]:
        if self._closed:
            raise Closed("The log is closed.")
        if self._asked_last is None or self._asked_last[0] != group:
            self._forget()
            self._asked_last = (group, *_open_consumer(self._config, group, decided=self._decided))
        return self._asked_last[1:]

    def _forget(self) -> None:
        if self._asked_last is not None:
            self._asked_last[1].close()
            self._asked_last = None


def _open_consumer(config: ClientConfig, group: str, *, decided: bool) -> tuple[Consumer, Health]:
    """A consumer to ask for commits: of one that reads uncommitted records a broker does not keep back an answer."""
    level = {} if decided else {"isolation.level": "read_uncommitted"}
    health = Health(config.bootstrap_servers, config.properties)
    return open_consumer(config, health, {**READ_RULES, **level, "group.id": group}), health


def why_pending(
    config: ClientConfig, group: str, asked: list[TopicPartition], *, known: bool = False
) -> OffsetsPending | None:
    """The error for whoever asked for what is decided and got no answer, if that is why; else None.

    The client keeps the reason to itself: it asks again until the time is up, and says only that it is. But a
    coordinator answers at once who asks for what is committed by now. If it answers both, it was only late.

    Args:
        known: that was the reason just before, too, so that nothing is asked twice.
    """
    consumer, _ = _open_consumer(config, group, decided=False)
    try:
        consumer.committed(asked, _SLICE)
        if not known and _is_decided(config, group, asked):
            return None
        return _pending(group, asked[0].topic, *_replicas(consumer, group))
    except KafkaException:
        return None
    finally:
        consumer.close()


def _is_decided(config: ClientConfig, group: str, asked: list[TopicPartition]) -> bool:
    consumer, _ = _open_consumer(config, group, decided=True)
    try:
        consumer.committed(asked, _SLICE)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def _replicas(consumer: Consumer, group: str) -> tuple[int, list[int], list[int]]:
    """The partition that holds a group, its replicas, and those that are in sync."""
    partitions = consumer.list_topics(COMMITS, _SLICE).topics[COMMITS].partitions
    home = home_of(group, max(1, len(partitions)))
    found = partitions.get(home)
    return (home, sorted(found.replicas), sorted(found.isrs)) if found else (home, [], [])


def home_of(group: str, partitions: int) -> int:
    """The partition of `COMMITS` in which brokers keep a group: by Java's hash of its name."""
    code = 0
    for character in group:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return abs(code - (code >> 31 << 32)) % partitions


def _pending(group: str, topic: str, partition: int, replicas: list[int], in_sync: list[int]) -> OffsetsPending:
    """A broker answers when no transaction holds offsets of the group, and all that it has committed is replicated."""
    if len(in_sync) < len(replicas):
        return OffsetsPending(
            f"What group {group!r} has committed in topic {topic!r} is not decided yet: of the replicas {replicas} of "
            f"partition {partition} of {COMMITS}, which holds the group, only {in_sync} are in sync.",
            code="NOT_ENOUGH_REPLICAS",
            retriable=True,
            hint="The broker waits for replicas, or for the end of an open transaction. Look after the brokers that "
            "are missing; kafka-transactions.sh lists what is open.",
        )
    return OffsetsPending(
        f"An open transaction holds the offsets of group {group!r} in topic {topic!r}: what is consumed is known when "
        "it ends.",
        code="UNSTABLE_OFFSET_COMMIT",
        retriable=True,
        hint="Its consumer may have died: a producer with its transactional id ends it at once, and the broker when "
        "its transaction.timeout.ms is over, a minute by default. kafka-transactions.sh lists what is open.",
    )


def _without_errors(partitions: list[TopicPartition]) -> list[TopicPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions
