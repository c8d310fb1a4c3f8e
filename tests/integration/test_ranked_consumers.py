"""Consumers of a queue by rank on a real broker, through compaction and restarts (R20)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from lvq_kafka import TEXT, Consumer, LastValueQueue, TopicSpec
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction

PATIENCE = 60.0


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[str]]:
    with LastValueQueue.declare(
        topic_name,
        key_header=None,
        value=TEXT,
        order="priority",
        spec=TopicSpec(config={**FORCED_COMPACTION, **DELETES_STAY}),
        cluster=kafka_cluster,
    ) as queue:
        yield queue


def send(servers: str, topic: str, *records: tuple[str, str]) -> None:
    """Send key and priority; the value is both."""
    client = Producer({"bootstrap.servers": servers})
    for key, priority in records:
        client.produce(topic, f"{key}{priority}", key, headers=[(PRIORITY_HEADER, priority.encode())])
    assert client.flush(PATIENCE) == 0


def take(consumer: Consumer[str], count: int) -> list[str]:
    values = []
    for _ in range(count):
        delivery = consumer.acquire(PATIENCE)
        assert delivery is not None, consumer.stats
        values.append(delivery.value)
        delivery.ack(wait=True)
    return values


def test_r20_the_best_comes_first_across_compaction_and_a_restart(
    queue: LastValueQueue[str], lvq_broker: ProvidedBroker
) -> None:
    topic = queue.topic
    send(lvq_broker.bootstrap_servers, topic, ("a", "1"), ("b", "9"), ("c", "4"), ("a", "7"), ("d", "4"), ("e", "0"))
    with queue.consumer() as consumer:
        assert take(consumer, 2) == ["b9", "a7"]
    force_compaction(queue.cluster, topic)
    send(lvq_broker.bootstrap_servers, topic, ("f", "5"), ("c", "0"))
    with queue.consumer() as consumer:
        assert take(consumer, 4) == ["f5", "d4", "e0", "c0"]
        assert consumer.stats.out_of_order == 0
        assert consumer.acquire(0.5) is None
