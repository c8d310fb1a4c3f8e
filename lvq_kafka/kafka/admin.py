"""Topic and offset queries, and changes to topics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from lvq_kafka.cluster import LogEnd, TopicDescription
from lvq_kafka.core.rights import Operation, Right, lacking
from lvq_kafka.errors import BrokerUnavailable, TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.settings import await_brokers, changes, culprits_among, settings_of
from lvq_kafka.kafka.threads import in_thread
from lvq_kafka.kafka.topic_memory import TopicMemory

__all__ = ["EARLIEST", "LATEST", "KafkaAdmin", "at"]

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

T = TypeVar("T")

_PAUSE = 0.02  # seconds between retries while brokers catch up
_KNOWN_EVERYWHERE = 30.0
"""Seconds after its creation during which some brokers may not know a topic yet.

The client itself waits as long for new topics (its ``topic.metadata.propagation.max.ms``).
"""
_ALTERED = 5.0  # seconds within which all brokers learn of a changed setting
_NO_TOPIC = "*"  # not a legal topic name, so the answer is short and no broker creates the topic
_CLUSTER = "kafka-cluster"  # the cluster's resource name in ACLs
_NO_BROKER = KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "The broker that answers knows of none that lives")
_NOT_THERE = frozenset({"_NOENT", "_UNKNOWN_PARTITION"})
"""Client codes for an unknown topic or partition.

It was deleted after it was counted, or not all brokers know it yet.
"""


def at(timestamp: int) -> OffsetSpec:
    """Return the spec for the first offset at or after a timestamp (ms)."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp)
    return spec


class KafkaAdmin:
    """Topic operations of `lvq_kafka.kafka.KafkaCluster`.

    The methods are those of `lvq_kafka.cluster.Cluster`.
    """

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._ask = requests.ask
        self._created: dict[str, float] = {}  # by topic: when it was created here, or found to exist
        self._memory = TopicMemory()

    def describe_topic(self, topic: str, timeout: float) -> TopicDescription:
        """See `lvq_kafka.cluster.Cluster.describe_topic`."""
        return self._describe(topic, time.monotonic() + timeout)

    def topic_config(self, topic: str, timeout: float) -> dict[str, str]:
        """See `lvq_kafka.cluster.Cluster.topic_config`."""
        deadline = time.monotonic() + timeout
        return self._ask_of(topic, lambda: settings_of(self._requests, topic, deadline), deadline)

    def create_topic(
        self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str], timeout: float
    ) -> bool:
        """See `lvq_kafka.cluster.Cluster.create_topic`. Returns once the topic is usable."""
        deadline = time.monotonic() + timeout
        created = self._create(topic, partitions, replication_factor, config, deadline)
        self._created[topic] = time.monotonic()
        if created:
            self._await_partitions(topic, partitions, deadline)
            self._await_brokers(topic, lambda settings: settings is not None, deadline)
        return created

    def check_may_create(
        self, topic: str, partitions: int, replication_factor: int | None, config: Mapping[str, str], timeout: float
    ) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may_create`."""
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
                    needs=_on(topic, "Create"),
                )
        except TransportError as error:
            if error.code != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    def check_may(self, operation: Operation, topic: str, timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.check_may`.

        A cluster that does not report authorized operations forbids nothing.
        """
        needs = _on(topic, operation)
        found = self._found(topic, time.monotonic() + timeout, needs, include_authorized_operations=True)
        allowed = {one.name.replace("_", "") for one in found.authorized_operations or ()}
        if allowed and operation.upper() not in allowed:
            raise lacking(needs[0], f"use topic {topic!r} so")

    def alter_topic_config(self, topic: str, config: Mapping[str, str], timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.alter_topic_config`."""
        deadline = time.monotonic() + timeout
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes(config))
        with culprits_among(config):
            self._ask(
                lambda client, left: client.incremental_alter_configs([resource], request_timeout=left).values(),
                f"change the settings of topic {topic!r}",
                deadline,
                topic=topic,
                needs=_on(topic, "AlterConfigs"),
            )
        # A broker may store a value in another form, so it may never compare equal: wait only briefly.
        limit = min(deadline, time.monotonic() + _ALTERED)
        self._await_brokers(topic, lambda settings: settings is None or config.items() <= settings.items(), limit)

    def add_partitions(self, topic: str, total: int, timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.add_partitions`. Returns once the partitions are usable."""
        deadline = time.monotonic() + timeout
        self._ask(
            lambda client, left: client.create_partitions([NewPartitions(topic, total)], request_timeout=left).values(),
            f"raise the partitions of topic {topic!r} to {total}",
            deadline,
            topic=topic,
            needs=_on(topic, "Alter"),
        )
        self._await_partitions(topic, total, deadline)

    def delete_topic(self, topic: str, timeout: float) -> None:
        """See `lvq_kafka.cluster.Cluster.delete_topic`.

        Returns once the topic has disappeared for readers, too.
        """
        deadline = time.monotonic() + timeout
        self._created.pop(topic, None)
        with suppress(TopicNotFound):  # the broker that answers may not know the topic yet
            self._describe(topic, deadline)
        self._ask(
            lambda client, left: client.delete_topics([topic], request_timeout=left).values(),
            f"delete topic {topic!r}",
            deadline,
            topic=topic,
            needs=_on(topic, "Delete"),
        )
        self._memory.gone(topic)
        try:
            self._describe(topic, deadline)
        except TopicNotFound:  # otherwise a new topic of this name already exists
            # A group coordinator that learns of the deletion late would drop the commits for the next topic of this
            # name, too.
            self._await_brokers(topic, lambda settings: settings is None, deadline)

    def delete_before(self, topic: str, offsets: Mapping[int, int], timeout: float) -> dict[int, int]:
        """See `lvq_kafka.cluster.Cluster.delete_before`."""
        deadline = time.monotonic() + timeout
        asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        answers = self.ask_brokers(
            topic,
            lambda _: self._ask(
                lambda client, left: client.delete_records(
                    asked, request_timeout=left, operation_timeout=left
                ).values(),
                f"delete records of topic {topic!r}",
                deadline,
                topic=topic,
                needs=_on(topic, "Delete"),
                passing=frozenset(),
            ),
            deadline,
        )
        return {one.partition: answer.low_watermark for one, answer in zip(asked, answers, strict=True)}

    def brokers(self, timeout: float) -> list[int]:
        """Return the ids of the live brokers, at least one.

        Does not use `AdminClient.describe_cluster`: the client (2.16.0) aborts the process if the answer names no
        broker.
        """
        [cluster] = self._ask(
            lambda client, left: [in_thread(lambda: client.list_topics(_NO_TOPIC, timeout=left))],
            "describe the cluster",
            time.monotonic() + timeout,
            harmless=True,
            answered=lambda answer: bool(answer.brokers),
            unanswered=_NO_BROKER,
        )
        return list(cluster.brokers)

    def commit_text_limit(self, timeout: float) -> int:
        """See `lvq_kafka.cluster.Cluster.commit_text_limit`.

        Leaves room for the NUL that the client appends.
        """
        deadline = time.monotonic() + timeout
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(self.brokers(timeout))))
        [entries] = self._ask(
            lambda client, left: client.describe_configs([resource], request_timeout=left).values(),
            "read the settings of a broker",
            deadline,
            needs=[Right("DescribeConfigs", "Cluster", _CLUSTER)],
            harmless=True,
        )
        return int(entries["offset.metadata.max.bytes"].value) - 1

    def alter_broker_config(self, config: Mapping[str, str], timeout: float) -> None:
        """Set dynamic settings on every broker."""
        deadline = time.monotonic() + timeout
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=changes(config))
            for broker in self.brokers(timeout)
        ]
        self._ask(
            lambda client, left: client.incremental_alter_configs(resources, request_timeout=left).values(),
            "change the settings of the brokers",
            deadline,
            needs=[Right("AlterConfigs", "Cluster", _CLUSTER)],
        )

    def _describe(self, topic: str, deadline: float) -> TopicDescription:
        """Describe a topic, reconciled with what brokers have reported before.

        A lagging broker may report less than another one did: a former id does not come back, and partitions never
        disappear.
        """

        while True:
            found = self._found(topic, deadline, _on(topic, "Describe"))
            told = self._memory.says(topic, str(found.topic_id), len(found.partitions))
            if told is not None:
                topic_id, partitions = told
                return TopicDescription(topic, topic_id, partitions, min(len(one.replicas) for one in found.partitions))
            if time.monotonic() > deadline:
                raise TopicNotFound(
                    f"Cannot describe topic {topic!r}: it was deleted, which some brokers have not heard of yet.",
                    topic=topic,
                    hint="Try again in a moment.",
                )
            time.sleep(_PAUSE)

    def _found(self, topic: str, deadline: float, needs: Sequence[Right], **how: bool) -> Any:
        """Return one broker's description of the topic.

        ``how`` is passed to `AdminClient.describe_topics`.
        """
        [found] = self._ask_of(
            topic,
            lambda: self._ask(
                lambda client, left: client.describe_topics(
                    TopicCollection([topic]), request_timeout=left, **how
                ).values(),
                f"describe topic {topic!r}",
                deadline,
                topic=topic,
                needs=needs,
                harmless=True,
            ),
            deadline,
        )
        return found

    def _ask_of(self, topic: str, question: Callable[[], T], deadline: float) -> T:
        """Ask a broker about a topic, retrying while a new topic may not be known everywhere.

        A retry may reach the same broker or another one.
        """
        while True:
            try:
                return question()
            except TopicNotFound:
                now = time.monotonic()
                if now > min(deadline, self._created.get(topic, -math.inf) + _KNOWN_EVERYWHERE):
                    raise
                time.sleep(_PAUSE)

    def ask_brokers(
        self, topic: str, question: Callable[[int], T], deadline: float, partitions: int | None = None
    ) -> T:
        """Ask a question that only certain brokers can answer, such as partition leaders.

        ``question`` takes the number of partitions: ``partitions`` if given, otherwise the described number. Before
        each retry the topic is described again: the client keeps asking the broker it takes for the leader until a
        description names the current one. The description also decides whether the topic exists; a leader or
        coordinator that denies it may not know it yet.
        """
        while True:
            count = self._describe(topic, deadline).partitions if partitions is None else partitions
            try:
                return question(count)
            except (TransportError, TopicNotFound) as error:
                if not _passes(error) or time.monotonic() + _PAUSE > deadline:
                    raise
            partitions = None
            time.sleep(_PAUSE)

    def _await_brokers(self, topic: str, so: Callable[[Mapping[str, str] | None], bool], deadline: float) -> None:
        with suppress(TransportError):  # the change itself is done
            brokers = self.brokers(max(0.1, deadline - time.monotonic()))
            await_brokers(self._requests, brokers, topic, so, deadline)

    def _await_partitions(self, topic: str, partitions: int, deadline: float) -> None:
        """Wait until brokers know the partitions and their leaders answer.

        The request to create them returns before that.
        """
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
        """Return each partition's offset for an `OffsetSpec`; -1 where there is none. See `ends`."""
        found = self.ends(topic, timeout, spec, stable=stable, partitions=partitions)
        return {partition: end.offset for partition, end in found.items()}

    def newest(self, topic: str, choose: Callable[[int], int], timeout: float) -> int:
        """Return the greatest record timestamp (ms) of one partition.

        ``choose`` picks the partition, given their number.
        """
        deadline = time.monotonic() + timeout

        def ask(partitions: int) -> int:
            wanted = {TopicPartition(topic, choose(partitions)): NEWEST}
            [answer] = self._ask(
                lambda client, left: client.list_offsets(wanted, request_timeout=left).values(),
                f"read the times of topic {topic!r}",
                deadline,
                topic=topic,
                needs=_on(topic, "Describe"),
                passing=frozenset(),
                harmless=True,
                answered=lambda answer: answer.offset != OFFSET_INVALID,
            )
            return int(answer.timestamp)

        return self.ask_brokers(topic, ask, deadline)

    def ends(
        self,
        topic: str,
        timeout: float,
        spec: OffsetSpec = LATEST,
        *,
        stable: bool = False,
        partitions: int | None = None,
    ) -> dict[int, LogEnd]:
        """Return each partition's offset for an `OffsetSpec`, with its leader epoch.

        Both come from the same answer. ``partitions`` is their number, where it is known; if there are fewer, the topic
        is described.
        """
        deadline = time.monotonic() + timeout
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        return self.ask_brokers(
            topic, lambda count: self._ends(topic, count, spec, isolation, deadline), deadline, partitions
        )

    def _ends(
        self, topic: str, partitions: int, spec: OffsetSpec, isolation: IsolationLevel, deadline: float
    ) -> dict[int, LogEnd]:
        wanted = {TopicPartition(topic, partition): spec for partition in range(partitions)}
        answers = self._ask(
            lambda client, left: client.list_offsets(wanted, isolation_level=isolation, request_timeout=left).values(),
            f"read the offsets of topic {topic!r}",
            deadline,
            topic=topic,
            needs=_on(topic, "Describe"),
            passing=frozenset(),
            harmless=True,
            # When no broker answers, the client (2.16.0) reports success and this offset, which is below the end of any
            # log.
            answered=lambda answer: answer.offset != OFFSET_INVALID,
        )
        ends = (LogEnd(answer.offset, -1 if answer.leader_epoch is None else answer.leader_epoch) for answer in answers)
        return {partition.partition: end for partition, end in zip(wanted, ends, strict=True)}


def _on(topic: str, operation: Operation) -> list[Right]:
    return [Right(operation, "Topic", topic)]


def _passes(error: TransportError | TopicNotFound) -> bool:
    """Return whether the error is transient.

    `TopicNotFound` counts as transient here: a description decides whether the topic exists.
    """
    if isinstance(error, TopicNotFound):
        return True
    return error.code in _NOT_THERE or (error.retriable and not isinstance(error, BrokerUnavailable))
