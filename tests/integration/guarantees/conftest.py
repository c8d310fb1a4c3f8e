"""Queues on a real broker, for tests of the guarantees in product.md section 2, one file for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

pytest.register_assert_rewrite("tests.integration.guarantees.cluster", "tests.integration.guarantees.writing")

from lvq_kafka import TEXT, LastValueQueue, TopicSpec  # noqa: E402
from lvq_kafka.core.queue.topic_settings import topic_settings  # noqa: E402
from lvq_kafka.kafka import KafkaCluster  # noqa: E402
from lvq_kafka.testing.brokers import ProvidedBroker  # noqa: E402


class QueueOf(Protocol):
    """A factory of queues keyed by the header ``ticker``. The topic is as `declare` makes it, without a definition."""

    def __call__(self, partitions: int = 1, *, config: Mapping[str, str] | None = None) -> LastValueQueue[str]: ...


class Declare(Protocol):
    """A factory of declared queues, for tests that consume, or that open a queue by name."""

    def __call__(self, partitions: int = 1) -> LastValueQueue[str]: ...


@pytest.fixture
def queue_of(kafka_cluster: KafkaCluster, topic_name: str) -> QueueOf:
    """Return a factory of queues on the session's broker."""

    def make(partitions: int = 1, *, config: Mapping[str, str] | None = None) -> LastValueQueue[str]:
        settings = topic_settings(TopicSpec(config=config or {}))
        kafka_cluster.topics.create(topic_name, partitions=partitions, config=settings)
        return LastValueQueue(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster)

    return make


@pytest.fixture
def queue(queue_of: QueueOf) -> LastValueQueue[str]:
    """Return an empty queue with one partition."""
    return queue_of()


@pytest.fixture
def declare(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[Declare]:
    """Yield a factory of declared queues on the session's broker."""
    with ExitStack() as queues:

        def declare(partitions: int = 1) -> LastValueQueue[str]:
            spec = TopicSpec(partitions=partitions)
            queue = LastValueQueue.declare(
                topic_name, key_header="ticker", spec=spec, value=TEXT, cluster=kafka_cluster
            )
            queues.callback(queue.drop)
            return queue

        yield declare


@pytest.fixture
def servers(broker: ProvidedBroker) -> str:
    """Return the address of the session's broker."""
    return broker.bootstrap_servers


@pytest.fixture
def private_queue(private_broker: ProvidedBroker) -> Iterator[LastValueQueue[str]]:
    """Declare an empty queue on a private broker."""
    with LastValueQueue.declare(
        "prices", key_header="ticker", value=TEXT, bootstrap_servers=private_broker.bootstrap_servers
    ) as queue:
        yield queue
