"""A member that is cut off from a real broker for longer than its session, while another one works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import LockLost
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from tests.cable import Cable
from tests.waiting import eventually

PROTOCOLS: Mapping[str, Mapping[str, str | int]] = {
    "classic": {"session.timeout.ms": 6000},
    "consumer": {"group.protocol": "consumer"},  # the broker sets its session timeout
}


@contextmanager
def consuming(servers: str, protocol: str, topic: str) -> Iterator[Consumer[str]]:
    cluster = KafkaCluster(ClientConfig(servers, dict(PROTOCOLS[protocol])))
    definition = QueueDefinition(name=topic, topic=topic, key_header=None)
    try:
        with Consumer(cluster, definition, TEXT, revoke_grace=0.0) as consumer:
            yield consumer
    finally:
        cluster.close()


def take(consumer: Consumer[str]) -> Delivery[str]:
    delivery = consumer.acquire(120)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery


def put(cluster: KafkaCluster, topic: str, key: str, value: str) -> None:
    writer = cluster.writer()
    writer.append(topic, key.encode(), value.encode()).result(30)
    writer.close(30)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_g12_it_hands_out_nothing_older_than_what_was_consumed_meanwhile_and_goes_on_when_it_is_back(
    kafka_cluster: KafkaCluster, topic_name: str, protocol: str
) -> None:
    servers = kafka_cluster.config.bootstrap_servers
    kafka_cluster.topics.create(topic_name, partitions=1, config={"cleanup.policy": "compact"})
    declare_group(kafka_cluster, f"lvq.{topic_name}", topic_name)
    put(kafka_cluster, topic_name, "held", "held")
    with Cable(servers) as cable, consuming(cable.bootstrap_servers, protocol, topic_name) as first:
        held = take(first)
        put(kafka_cluster, topic_name, "a", "a1")
        eventually(lambda: first.stats.available == 1)
        cable.cut()
        try:
            put(kafka_cluster, topic_name, "a", "a2")
            with consuming(servers, protocol, topic_name) as second:
                theirs = [take(second), take(second)]
                assert {one.value for one in theirs} == {"held", "a2"}
                for one in theirs:
                    one.ack(wait=True, timeout=60)
                assert first.acquire(1) is None
        finally:
            cable.mend()
        put(kafka_cluster, topic_name, "b", "b")
        delivery = take(first)
        assert delivery.value == "b"
        delivery.ack(wait=True, timeout=60)
        with pytest.raises(LockLost):
            held.ack()
    commit = kafka_cluster.groups.committed(f"lvq.{topic_name}", topic_name)[0]
    assert commit.offset == 4
