"""Pytest fixtures for code that uses last value queues.

The plugin is active wherever the package is installed.

``memory_cluster``
    A fresh `MemoryCluster`: fast, and enough for most tests.
``lvq_broker``
    A real broker for the session, see `lvq_kafka.testing.brokers.provide_broker`. It never skips: if none can be
    provided, the test fails with the reason. ``LVQ_TEST_BROKER=embedded`` or ``docker`` forces one.
``lvq_cluster``
    A `KafkaCluster` on that broker.
``lvq_topic``
    A fresh topic name on it. The topic is not created; it is deleted afterwards.

Nothing heavy is imported before a test asks for it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lvq_kafka.kafka import KafkaCluster
    from lvq_kafka.testing import MemoryCluster
    from lvq_kafka.testing.brokers import ProvidedBroker

__all__ = ["lvq_broker", "lvq_cluster", "lvq_topic", "memory_cluster"]


@pytest.fixture
def memory_cluster() -> MemoryCluster:
    """An empty in-memory cluster."""
    from lvq_kafka.testing import MemoryCluster

    return MemoryCluster()


@pytest.fixture(scope="session")
def lvq_broker() -> Iterator[ProvidedBroker]:
    """A real broker (``bootstrap_servers``, ``kind``). Shared; leave it running."""
    from lvq_kafka.testing.brokers import provide_broker

    with provide_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def lvq_cluster(lvq_broker: ProvidedBroker) -> Iterator[KafkaCluster]:
    """The real broker as a `Cluster`. Shared; leave it open."""
    from lvq_kafka.kafka import KafkaCluster

    cluster = KafkaCluster(lvq_broker.bootstrap_servers)
    yield cluster
    cluster.close()


@pytest.fixture
def lvq_topic(request: pytest.FixtureRequest, lvq_cluster: KafkaCluster) -> Iterator[str]:
    """A fresh topic name. If the test creates the topic, it is deleted afterwards."""
    from lvq_kafka.errors import TopicNotFound

    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    topic = f"{test}-{uuid.uuid4().hex[:8]}"
    yield topic
    with suppress(TopicNotFound):
        lvq_cluster.topics.delete(topic, timeout=60)  # irrelevant to the test: even a busy broker gets there in time
