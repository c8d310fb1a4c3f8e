"""Promises to group members in both protocols: the classic, cooperative one, and the new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import LockLost
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer
from tests.rules import rules
from tests.waiting import eventually

KEYS = [f"k{number}" for number in range(40)]


class Group:
    """A queue of four partitions with a message for each key, and members that use one protocol."""

    def __init__(self, cluster: KafkaCluster, topic: str, protocol: str) -> None:
        self.cluster = cluster
        self.protocol = protocol
        self.definition = QueueDefinition(name=topic, topic=topic, key_header=None)
        cluster.topics.create(topic, partitions=4, config={"cleanup.policy": "compact"})
        declare_group(cluster, self.definition.group, topic)
        with Producer(cluster, rules(topic=topic, key_header=None), value=TEXT) as producer:
            for key in KEYS:
                producer.put(key, key)

    @contextmanager
    def member(self, **properties: Any) -> Iterator[tuple[Consumer[str], KafkaCluster]]:
        """Run a member, and yield it with its cluster."""
        if self.protocol == "classic":
            properties.setdefault("session.timeout.ms", 6000)
        else:
            properties["group.protocol"] = "consumer"
        with (
            closing(KafkaCluster(ClientConfig(self.cluster.config.bootstrap_servers, properties))) as cluster,
            Consumer(cluster, self.definition, TEXT, revoke_grace=0.0) as consumer,
        ):
            yield consumer, cluster

    def all_done(self) -> bool:
        committed = self.cluster.groups.committed(self.definition.group, self.definition.topic)
        ends = self.cluster.logs.end_offsets(self.definition.topic)
        return {partition: commit.offset for partition, commit in committed.items()} == ends


@pytest.fixture(params=["classic", "consumer"])
def group(request: pytest.FixtureRequest, kafka_cluster: KafkaCluster, topic_name: str) -> Group:
    return Group(kafka_cluster, topic_name, request.param)


def take(consumer: Consumer[str]) -> Delivery[str]:
    delivery = consumer.acquire(60)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery


@pytest.mark.timeout(300)
def test_members_come_and_go_and_partitions_that_stay_keep_their_messages(group: Group) -> None:
    with group.member() as (one, _):
        held = [take(one) for _ in KEYS]
        with group.member() as (two, _):
            eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 2, 60)
            kept = [delivery for delivery in held if delivery.position.partition in one.stats.partitions]
            moved = [delivery for delivery in held if delivery not in kept]
            assert kept
            assert {delivery.state for delivery in kept} == {MessageState.ACQUIRED}
            assert {delivery.state for delivery in moved} == {MessageState.LOST}
            assert {take(two).key for _ in moved} == {delivery.key for delivery in moved}
        eventually(lambda: len(one.stats.partitions) == 4, 60)
        assert {delivery.state for delivery in kept} == {MessageState.ACQUIRED}
        for delivery in kept:
            delivery.ack()
        for _ in moved:
            take(one).ack(wait=True, timeout=60)
        eventually(group.all_done, 30)


@pytest.mark.timeout(300)
def test_work_that_takes_longer_than_the_poll_interval_does_not_cost_the_membership(group: Group) -> None:
    with group.member(**{"max.poll.interval.ms": 6000}) as (consumer, _):
        held = [take(consumer) for _ in KEYS]
        assert consumer.acquire(8) is None
        assert {delivery.state for delivery in held} == {MessageState.ACQUIRED}
        held[0].ack(wait=True, timeout=60)


@pytest.mark.timeout(300)
def test_a_message_acked_while_its_consumer_closes_is_durable_or_comes_again(group: Group) -> None:
    durable: set[str] = set()
    for _ in range(4):
        with group.member() as (consumer, _):
            settlements = {}
            for _ in range(5):
                delivery = take(consumer)
                assert delivery.key not in durable, "a durable ack was forgotten"
                settlements[delivery.key] = delivery.ack()
                settlements[delivery.key].future()
        for key, settlement in settlements.items():
            try:
                settlement.result(0)
            except LockLost:
                continue
            durable.add(key)
    assert durable


@pytest.mark.timeout(300)
def test_transactions_are_not_held_up_by_the_polling_of_their_consumer(group: Group, topic_name: str) -> None:
    # The client admits one thread at a time. Before the poller gave way, most of these transactions timed out.
    with group.member(**{"transaction.timeout.ms": 15_000}) as (consumer, cluster):
        done = 0
        with Producer(
            cluster, rules(topic=topic_name, key_header=None), value=TEXT, transactional_id=topic_name
        ) as producer:
            for _ in range(8):
                with consumer.transaction(producer, timeout=60) as transaction:
                    for delivery in transaction.acquire_many(5, timeout=60):
                        delivery.ack()
                        done += 1
        assert done >= 8
