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

__all__ = ["Asker", "is_pending", "pending"]

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
            OffsetsPending: an open transaction holds some of it.
        """
        asked = [TopicPartition(topic, partition) for partition in partitions]
        try:
            return self._ask(group, asked, f"read the commits of group {group!r}", deadline)
        except BrokerUnavailable as error:
            if self._decided and is_pending(self._config, group, asked):
                raise pending(group, topic) from error
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


def is_pending(config: ClientConfig, group: str, asked: list[TopicPartition]) -> bool:
    """Whether an open transaction is why a question for commits is not answered.

    The client keeps that to itself: it asks again until the time is up, and says only that it is. But whoever does not
    ask for what is decided is answered.
    """
    consumer, _ = _open_consumer(config, group, decided=False)
    try:
        consumer.committed(asked, _SLICE)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def pending(group: str, topic: str) -> OffsetsPending:
    """The error of whoever needs to know what is decided."""
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
