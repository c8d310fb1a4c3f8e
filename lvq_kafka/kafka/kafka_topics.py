"""Topics of a Kafka cluster: created, described, changed and deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka.admin import ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]

from lvq_kafka.cluster import TopicDescription, Topics
from lvq_kafka.cluster.rights import lacking
from lvq_kafka.core.facts import Operation
from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.kafka_brokers import KafkaBrokers
from lvq_kafka.kafka.kafka_logs import KafkaLogs
from lvq_kafka.kafka.settings import await_brokers, changes, culprits_among, settings_of
from lvq_kafka.kafka.topic_metadata import PAUSE, TopicMetadata, on_topic
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaTopics"]

_ALTERED = 5.0  # seconds within which all brokers learn of a changed setting


class KafkaTopics(Topics):
    """The topics of a Kafka cluster.

    A change returns once the brokers know it: a new topic can be used, a deleted one has disappeared for readers, too.
    The cluster may reject a setting, a partition count or a replication factor: `ConfigError`.
    """

    def __init__(
        self, requests: AdminRequests, brokers: KafkaBrokers, metadata: TopicMetadata, logs: KafkaLogs
    ) -> None:
        self._requests = requests
        self._ask = requests.ask
        self._brokers = brokers
        self._metadata = metadata
        self._logs = logs

    @override
    def describe(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        return self._metadata.describe(topic, time.monotonic() + timeout)

    @override
    def config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        deadline = time.monotonic() + timeout
        return self._metadata.ask_any(topic, lambda: settings_of(self._requests, topic, deadline), deadline)

    @override
    def create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        deadline = time.monotonic() + timeout
        created = self._create(topic, partitions, replication_factor, config, deadline)
        self._metadata.created(topic)
        if created:
            self._await_partitions(topic, partitions, deadline)
            self._await_brokers(topic, lambda settings: settings is not None, deadline)
        return created

    @override
    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        deadline = time.monotonic() + timeout
        self._create(topic, partitions, replication_factor, config, deadline, validate_only=True)

    def _create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, str],
        deadline: float,
        *,
        validate_only: bool = False,
    ) -> bool:
        """Create a topic, or only validate that; return False if it already exists."""
        new = NewTopic(topic, partitions, -1 if replication_factor is None else replication_factor, config=dict(config))
        try:
            with culprits_among(config):
                self._ask(
                    lambda client, left: client.create_topics(
                        [new], request_timeout=left, validate_only=validate_only
                    ).values(),
                    f"create topic {topic!r}",
                    deadline,
                    needs=on_topic(topic, "Create"),
                )
        except TransportError as error:
            if error.code != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    @override
    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        needs = on_topic(topic, operation)
        found = self._metadata.reported(topic, time.monotonic() + timeout, needs, include_authorized_operations=True)
        allowed = {one.name.replace("_", "") for one in found.authorized_operations or ()}
        # A cluster that does not report authorized operations forbids nothing.
        if allowed and operation.upper() not in allowed:
            raise lacking(needs[0], f"use topic {topic!r} this way")

    @override
    def alter_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes(config))
        with culprits_among(config):
            self._ask(
                lambda client, left: client.incremental_alter_configs([resource], request_timeout=left).values(),
                f"change the settings of topic {topic!r}",
                deadline,
                topic=topic,
                needs=on_topic(topic, "AlterConfigs"),
            )
        # A broker may store a value in another form, so it may never compare equal: wait only briefly.
        limit = min(deadline, time.monotonic() + _ALTERED)
        self._await_brokers(topic, lambda settings: settings is None or config.items() <= settings.items(), limit)

    @override
    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        self._ask(
            lambda client, left: client.create_partitions([NewPartitions(topic, total)], request_timeout=left).values(),
            f"raise the partitions of topic {topic!r} to {total}",
            deadline,
            topic=topic,
            needs=on_topic(topic, "Alter"),
        )
        self._await_partitions(topic, total, deadline)

    @override
    def delete(self, topic: str, *, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        self._metadata.deleting(topic)
        with suppress(TopicNotFound):  # the broker that answers may not know the topic yet
            self._metadata.describe(topic, deadline)
        self._ask(
            lambda client, left: client.delete_topics([topic], request_timeout=left).values(),
            f"delete topic {topic!r}",
            deadline,
            topic=topic,
            needs=on_topic(topic, "Delete"),
        )
        self._metadata.deleted(topic)
        try:
            self._metadata.describe(topic, deadline)
        except TopicNotFound:  # otherwise a new topic of this name already exists
            # A group coordinator that learns of the deletion late would drop the commits for the next topic of this
            # name, too.
            self._await_brokers(topic, lambda settings: settings is None, deadline)

    def _await_brokers(self, topic: str, so: Callable[[Mapping[str, str] | None], bool], deadline: float) -> None:
        with suppress(TransportError):  # the change itself is done
            brokers = self._brokers.ids(max(0.1, deadline - time.monotonic()))
            await_brokers(self._requests, brokers, topic, so, deadline)

    def _await_partitions(self, topic: str, partitions: int, deadline: float) -> None:
        """Wait until brokers know the partitions and their leaders answer.

        The request to create them returns before that.
        """
        while True:
            try:
                if len(self._logs.end_offsets(topic, timeout=max(0.0, deadline - time.monotonic()))) >= partitions:
                    return
            except TopicNotFound:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE)
