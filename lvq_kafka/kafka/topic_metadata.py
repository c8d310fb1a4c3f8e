"""Brokers' answers about topics, while some of them lag behind."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka import TopicCollection

from lvq_kafka.cluster import TopicDescription
from lvq_kafka.core.facts import Operation, Right
from lvq_kafka.errors import BrokerUnavailable, TopicNotFound, TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.topic_memory import TopicMemory

__all__ = ["PAUSE", "TopicMetadata", "on_topic"]

T = TypeVar("T")

PAUSE = 0.02  # seconds between retries while brokers catch up
_KNOWN_EVERYWHERE = 30.0
"""Seconds after its creation during which some brokers may not know a topic yet.

The client itself waits as long for new topics (its ``topic.metadata.propagation.max.ms``).
"""
_NOT_THERE = frozenset({"_NOENT", "_UNKNOWN_PARTITION"})
"""Client codes for an unknown topic or partition.

It was deleted after it was counted, or not all brokers know it yet.
"""


def on_topic(topic: str, operation: Operation) -> list[Right]:
    """Return the right to an operation on a topic."""
    return [Right(operation, "Topic", topic)]


class TopicMetadata:
    """Descriptions of topics, reconciled with what brokers have reported before. Thread-safe.

    A lagging broker may report less than another one did: a former id does not come back, and partitions never
    disappear.
    """

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._created: dict[str, float] = {}  # by topic: when it was created here, or found to exist
        self._memory = TopicMemory()

    def created(self, topic: str) -> None:
        """Record that the topic exists, though not every broker may know it yet."""
        self._created[topic] = time.monotonic()

    def deleting(self, topic: str) -> None:
        """Record that the topic is being deleted: a broker that does not know it may be right."""
        self._created.pop(topic, None)

    def deleted(self, topic: str) -> None:
        """Record that the topic was deleted."""
        self._memory.gone(topic)

    def describe(self, topic: str, deadline: float) -> TopicDescription:
        """Describe a topic."""
        while True:
            found = self.reported(topic, deadline, on_topic(topic, "Describe"))
            known = self._memory.says(topic, str(found.topic_id), len(found.partitions))
            if known is not None:
                topic_id, partitions = known
                return TopicDescription(topic, topic_id, partitions, min(len(one.replicas) for one in found.partitions))
            if time.monotonic() > deadline:
                raise TopicNotFound(
                    f"Cannot describe topic {topic!r}: it was deleted, but some brokers do not know that yet.",
                    topic=topic,
                    hint="Try again in a moment.",
                )
            time.sleep(PAUSE)

    def reported(self, topic: str, deadline: float, needs: Sequence[Right], **how: bool) -> Any:
        """Return one broker's description of the topic.

        ``how`` is passed to `AdminClient.describe_topics`.
        """
        [found] = self.ask_any(
            topic,
            lambda: self._requests.ask(
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

    def ask_any(self, topic: str, question: Callable[[], T], deadline: float) -> T:
        """Ask any broker about a topic, retrying while a new topic may not be known everywhere.

        A retry may reach the same broker or another one.
        """
        while True:
            try:
                return question()
            except TopicNotFound:
                now = time.monotonic()
                if now > min(deadline, self._created.get(topic, -math.inf) + _KNOWN_EVERYWHERE):
                    raise
                time.sleep(PAUSE)

    def ask_leaders(
        self, topic: str, question: Callable[[int], T], deadline: float, partitions: int | None = None
    ) -> T:
        """Ask a question that only partition leaders or a group's coordinator can answer.

        ``question`` takes the number of partitions: ``partitions`` if given, otherwise the described number. Before
        each retry the topic is described again: the client keeps asking the broker it takes for the leader until a
        description names the current one. The description also decides whether the topic exists; a leader or
        coordinator that denies it may not know it yet.
        """
        while True:
            count = self.describe(topic, deadline).partitions if partitions is None else partitions
            try:
                return question(count)
            except (TransportError, TopicNotFound) as error:
                if not _passes(error) or time.monotonic() + PAUSE > deadline:
                    raise
            partitions = None
            time.sleep(PAUSE)


def _passes(error: TransportError | TopicNotFound) -> bool:
    """Return whether the error is transient.

    `TopicNotFound` counts as transient here: a description decides whether the topic exists.
    """
    if isinstance(error, TopicNotFound):
        return True
    return error.code in _NOT_THERE or (error.retriable and not isinstance(error, BrokerUnavailable))
