"""Questions to a cluster about topics and their offsets, and changes to them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from lvq_kafka.errors import BrokerUnavailable, ConfigError, TopicNotFound, TransportError
from lvq_kafka.kafka.errors import TRANSIENT
from lvq_kafka.kafka.questions import Questions
from lvq_kafka.ports import LogEnd, TopicDescription

__all__ = ["EARLIEST", "LATEST", "KafkaAdmin", "at"]

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_PAUSE = 0.02  # seconds until it is looked again at what is about to change
_NOT_THERE = frozenset({"_NOENT", "_UNKNOWN_PARTITION"})
"""The client knows no such topic, or partition: it was deleted since it was counted, or not all brokers know it yet."""


def at(timestamp: int) -> OffsetSpec:
    """The first offset at or after a time (ms)."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp)
    return spec


class KafkaAdmin:
    """The topic part of `lvq_kafka.kafka.KafkaLog`; its methods are those of `lvq_kafka.ports.Log`."""

    def __init__(self, questions: Questions) -> None:
        self._ask = questions.ask

    def describe_topic(self, topic: str, timeout: float) -> TopicDescription:
        """See `lvq_kafka.ports.Log.describe_topic`."""
        found = self._describe(topic, time.monotonic() + timeout)
        return TopicDescription(
            name=topic,
            id=str(found.topic_id),
            partitions=len(found.partitions),
            replication_factor=min(len(partition.replicas) for partition in found.partitions),
        )

    def topic_config(self, topic: str, timeout: float) -> dict[str, str]:
        """See `lvq_kafka.ports.Log.topic_config`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        [entries] = self._ask(
            lambda client, left: client.describe_configs([resource], request_timeout=left).values(),
            f"read the settings of topic {topic!r}",
            time.monotonic() + timeout,
            topic=topic,
            harmless=True,
        )
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def create_topic(
        self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str], timeout: float
    ) -> bool:
        """See `lvq_kafka.ports.Log.create_topic`. Returns when the topic can be used."""
        deadline = time.monotonic() + timeout
        new = NewTopic(topic, partitions, -1 if replication_factor is None else replication_factor, config=dict(config))
        try:
            with _culprits_among(config):
                self._ask(
                    lambda client, left: client.create_topics([new], request_timeout=left).values(),
                    f"create topic {topic!r}",
                    deadline,
                )
        except TransportError as error:
            if error.code != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        self._await_partitions(topic, partitions, deadline)
        return True

    def alter_topic_config(self, topic: str, config: Mapping[str, str], timeout: float) -> None:
        """See `lvq_kafka.ports.Log.alter_topic_config`."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=_settings(config))
        with _culprits_among(config):
            self._ask(
                lambda client, left: client.incremental_alter_configs([resource], request_timeout=left).values(),
                f"change the settings of topic {topic!r}",
                time.monotonic() + timeout,
                topic=topic,
            )

    def add_partitions(self, topic: str, total: int, timeout: float) -> None:
        """See `lvq_kafka.ports.Log.add_partitions`. Returns when the partitions can be used."""
        deadline = time.monotonic() + timeout
        self._ask(
            lambda client, left: client.create_partitions([NewPartitions(topic, total)], request_timeout=left).values(),
            f"raise the partitions of topic {topic!r} to {total}",
            deadline,
            topic=topic,
        )
        self._await_partitions(topic, total, deadline)

    def delete_topic(self, topic: str, timeout: float) -> None:
        """See `lvq_kafka.ports.Log.delete_topic`. Returns when the topic is gone for readers, too."""
        deadline = time.monotonic() + timeout
        self._ask(
            lambda client, left: client.delete_topics([topic], request_timeout=left).values(),
            f"delete topic {topic!r}",
            deadline,
            topic=topic,
        )
        while time.monotonic() < deadline:
            try:
                self._describe(topic, deadline)
            except TopicNotFound:
                return
            time.sleep(_PAUSE)

    def delete_before(self, topic: str, offsets: Mapping[int, int], timeout: float) -> dict[int, int]:
        """See `lvq_kafka.ports.Log.delete_before`."""
        deadline = time.monotonic() + timeout
        self._describe(topic, deadline)  # of a topic that is not there the call itself says only that it has no leaders
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        answers = self._ask(
            lambda client, left: client.delete_records(asked, request_timeout=left, operation_timeout=left).values(),
            f"delete records of topic {topic!r}",
            deadline,
            topic=topic,
            passing=TRANSIENT | {KafkaError._NOENT},
        )
        return {one.partition: answer.low_watermark for one, answer in zip(asked, answers, strict=True)}

    def brokers(self, timeout: float) -> list[int]:
        """The ids of the brokers that the cluster has now."""
        [cluster] = self._ask(
            lambda client, left: [client.describe_cluster(request_timeout=left)],
            "describe the cluster",
            time.monotonic() + timeout,
            harmless=True,
        )
        return [node.id for node in cluster.nodes]

    def alter_broker_config(self, config: Mapping[str, str], timeout: float) -> None:
        """Set dynamic settings on each broker."""
        deadline = time.monotonic() + timeout
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=_settings(config))
            for broker in self.brokers(timeout)
        ]
        self._ask(
            lambda client, left: client.incremental_alter_configs(resources, request_timeout=left).values(),
            "change the settings of the brokers",
            deadline,
        )

    def _describe(self, topic: str, deadline: float) -> Any:
        [found] = self._ask(
            lambda client, left: client.describe_topics(TopicCollection([topic]), request_timeout=left).values(),
            f"describe topic {topic!r}",
            deadline,
            topic=topic,
            harmless=True,
        )
        return found

    def _await_partitions(self, topic: str, partitions: int, deadline: float) -> None:
        """Wait until brokers know the partitions and their leaders answer: creation returns before that."""
        while True:
            try:
                if len(self.offsets(topic, LATEST, max(0.0, deadline - time.monotonic()))) >= partitions:
                    return
            except TopicNotFound:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def offsets(
        self, topic: str, spec: OffsetSpec, timeout: float, *, stable: bool = False, partitions: int | None = None
    ) -> dict[int, int]:
        """Each partition's offset for a specification; -1 where there is none. See `ends`."""
        found = self.ends(topic, timeout, spec, stable=stable, partitions=partitions)
        return {partition: end.offset for partition, end in found.items()}

    def ends(
        self,
        topic: str,
        timeout: float,
        spec: OffsetSpec = LATEST,
        *,
        stable: bool = False,
        partitions: int | None = None,
    ) -> dict[int, LogEnd]:
        """Each partition's offset for a specification, and the leader epoch in the same answer.

        ``partitions`` is how many there are, where that is known; if there are fewer, it is found out.
        """
        deadline = time.monotonic() + timeout
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        while True:
            # Before it is asked again the topic is described again: the client goes on asking whom it took for the
            # leader, until a description says who it is now.
            count = len(self._describe(topic, deadline).partitions) if partitions is None else partitions
            try:
                return self._ends(topic, count, spec, isolation, deadline)
            except TransportError as error:
                passing = error.code in _NOT_THERE or (error.retriable and not isinstance(error, BrokerUnavailable))
                if not passing or time.monotonic() + _PAUSE > deadline:
                    raise
            partitions = None
            time.sleep(_PAUSE)

    def _ends(
        self, topic: str, partitions: int, spec: OffsetSpec, isolation: IsolationLevel, deadline: float
    ) -> dict[int, LogEnd]:
        wanted = {TopicPartition(topic, partition): spec for partition in range(partitions)}
        answers = self._ask(
            lambda client, left: client.list_offsets(wanted, isolation_level=isolation, request_timeout=left).values(),
            f"read the offsets of topic {topic!r}",
            deadline,
            topic=topic,
            passing=frozenset(),
            harmless=True,
            # When no broker answers, the client (2.16.0) says that all went well, and this: an end below any log's.
            answered=lambda answer: answer.offset != OFFSET_INVALID,
        )
        ends = (LogEnd(answer.offset, -1 if answer.leader_epoch is None else answer.leader_epoch) for answer in answers)
        return {partition.partition: end for partition, end in zip(wanted, ends, strict=True)}


@contextmanager
def _culprits_among(config: Mapping[str, str]) -> Iterator[None]:
    """Let the error about settings that the cluster refuses say which they are; the cluster only tells in words."""
    try:
        yield
    except ConfigError as error:
        culprits = [name for name in config if re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", str(error))]
        if not culprits:
            raise
        raise ConfigError(
            str(error),
            options=culprits,
            hint="Kafka's documentation of topic configs says which there are, and what they take.",
        ) from error


def _settings(config: Mapping[str, str]) -> list[ConfigEntry]:
    return [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
