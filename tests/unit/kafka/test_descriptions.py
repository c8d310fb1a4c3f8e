"""Repeated looks at a topic: one description each, because the client never frees all of a description."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.reading.consumed_filter import ConsumedFilter
from tests.unit.kafka.mock_cluster import MockCluster

QUEUE = QueueDefinition(name="q", topic="t", key_header=None)


@pytest.fixture
def cluster(mock: MockCluster) -> Iterator[KafkaCluster]:
    """Yield a connection to a cluster where the queue's group has a commit."""
    with closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        cluster.groups.commit(QUEUE.group, "t", {0: Commit(0)})
        yield cluster


@pytest.fixture
def descriptions(cluster: KafkaCluster) -> list[str]:
    """Return a list that collects the topics described from then on."""
    described: list[str] = []
    metadata = cluster.topics._metadata
    original = metadata.describe

    def describe(topic: str, deadline: float) -> Any:
        described.append(topic)
        return original(topic, deadline)

    metadata.describe = describe  # type: ignore[method-assign]
    return described


def test_a_consumer_has_its_topic_described_once_a_look(cluster: KafkaCluster, descriptions: list[str]) -> None:
    monitor = GroupMonitor(cluster, QUEUE, "ignore")
    descriptions.clear()
    for _ in range(3):
        monitor.doubt()  # makes it read the group's commits, too
        assert monitor.observe(time.monotonic(), [0]).ends == {0: 0}
    assert descriptions == ["t"] * 3


def test_a_browser_has_it_described_once_a_look_at_what_was_consumed(
    cluster: KafkaCluster, descriptions: list[str]
) -> None:
    consumed = ConsumedFilter(cluster, QUEUE, QUEUE.group, "ignore")
    consumed.learn(consumed.ask())
    descriptions.clear()
    for _ in range(3):
        consumed.learn(consumed.ask())
    assert descriptions == ["t"] * 3
