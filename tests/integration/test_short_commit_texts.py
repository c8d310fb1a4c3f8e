"""Brokers that accept only short commit texts: a consumer halves its text until it fits, and loses nothing.

A broker checks a text's length only for a member that it recognizes. So its refusal of a long text renews the lease of
a consumer that cannot shorten its text without breaking a promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import KafkaCluster
from tests.integration.test_consumer import World, take
from tests.waiting import eventually

_LIMIT = 128  # characters
_MESSAGES = 100
_SCATTERED = frozenset(range(1, _MESSAGES, 2))  # offsets; so few runs are written as numbers, and need the most space


def short_texts(data_dir: Path | None = None) -> EmbeddedBroker:
    return EmbeddedBroker(data_dir=data_dir, properties={"offset.metadata.max.bytes": str(_LIMIT)})


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with short_texts() as broker:
        cluster = KafkaCluster(broker.bootstrap_servers)
        yield cluster
        cluster.close()


@pytest.fixture
def queue(cluster: KafkaCluster) -> World:
    """Return a queue with messages of different keys."""
    return filled(cluster, f"prices-{uuid4().hex[:8]}")


def filled(cluster: KafkaCluster, name: str) -> World:
    world = World(cluster, name, 1)
    world.send(*((f"k{number}", str(number)) for number in range(_MESSAGES)))
    return world


def stored(queue: World) -> CommitMap:
    commit = queue.cluster.groups.committed(queue.definition.group, queue.definition.topic)[0]
    return CommitMap.decode(commit.offset, commit.metadata)


def take_all(consumer: Consumer[str]) -> list[Delivery[str]]:
    return [take(consumer) for _ in range(_MESSAGES)]


def test_a_text_that_is_refused_is_halved_and_what_did_not_fit_comes_again_at_most(queue: World) -> None:
    with queue.consuming(commit_interval=60.0) as consumer:
        settlements = {
            delivery.value: delivery.ack() for delivery in take_all(consumer) if int(delivery.value) in _SCATTERED
        }
        settled = {value: settlement.future() for value, settlement in settlements.items()}  # asks for a commit of all
        eventually(lambda: any(future.done() for future in settled.values()), 30)
        assert consumer.stats.commit_text <= _LIMIT
        queue.send(("one more", "one more"))
        assert take(consumer).value == "one more", "it does not wait for room, its ack would"
        eventually(lambda: consumer.stats.omitted > 0, 30)
        assert "max_deliveries" in consumer.stats.trouble
    durable = {value for value, future in settled.items() if future.exception(0) is None}
    assert 0 < len(durable) < len(settled), "some acks have found room"
    done = stored(queue)
    assert {str(offset) for offset in range(_MESSAGES) if done.done(offset)} == durable

    with queue.consuming() as consumer:
        again: set[str] = set()
        while len(again) < _MESSAGES + 1 - len(durable):
            delivery = take(consumer)
            again.add(delivery.value)
            last = delivery.ack()
        last.result(30)
        assert consumer.acquire(0.05) is None
    assert again == {"one more", *map(str, range(_MESSAGES))} - durable
    assert queue.committed() == queue.ends()


def test_every_ack_becomes_durable_when_lower_ones_have_made_room(queue: World) -> None:
    with queue.consuming() as consumer:
        held = take_all(consumer)
        settled = [delivery.ack() for delivery in (*held[1::2], *held[::2])]
        for settlement in settled:
            settlement.result(30)
    assert queue.committed() == queue.ends()


def test_a_commit_by_a_nonmember_is_refused_for_that_and_not_for_the_length_of_its_text(queue: World) -> None:
    with queue.consuming() as consumer:
        take(consumer)
        with pytest.raises(TransportError) as caught:
            queue.cluster.groups.commit(
                queue.definition.group, queue.definition.topic, {0: Commit(0, "x" * (_LIMIT + 1))}
            )
        assert caught.value.code == "UNKNOWN_MEMBER_ID"


def test_a_queue_whose_stored_text_has_become_too_long_goes_on_and_takes_nothing_back(tmp_path: Path) -> None:
    """As after a move of its coordinator to a broker with a lower limit."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        cluster = KafkaCluster(broker.bootstrap_servers)
        with (queue := filled(cluster, "prices")).consuming() as consumer:
            for settlement in [delivery.ack() for delivery in take_all(consumer)[1::2]]:
                settlement.result(30)
        assert len(stored(queue).encode()) > _LIMIT
        cluster.close()
    with short_texts(tmp_path) as broker:
        queue.cluster = KafkaCluster(broker.bootstrap_servers)
        with queue.consuming() as consumer:
            for number in range(0, _MESSAGES, 2):
                delivery = take(consumer)
                assert delivery.value == str(number)
                last = delivery.ack()
            last.result(30)
            assert consumer.acquire(0.05) is None
        assert queue.committed() == queue.ends()
        queue.cluster.close()


def test_beside_messages_that_fail_always_all_others_are_acked(queue: World) -> None:
    with queue.consuming() as consumer:
        left = set(map(str, _SCATTERED))
        while left:
            delivery = take(consumer)
            if delivery.value in left:
                left.remove(delivery.value)
                delivery.ack()
            elif int(delivery.value) not in _SCATTERED:
                delivery.release()
        eventually(lambda: consumer.stats.omitted > 0, 30)
        eventually(lambda: "the lowest is offset 0" in consumer.stats.trouble, 30)
        assert consumer.stats.gated == 0
    with queue.consuming() as consumer:
        again = {take(consumer).value for _ in range(_MESSAGES - sum(map(stored(queue).done, range(_MESSAGES))))}
    assert again > {str(number) for number in range(_MESSAGES) if number not in _SCATTERED}


def test_a_broker_that_takes_longer_texts_is_sent_longer_ones() -> None:
    rng = Random(3)
    healthy = {str(number) for number in range(1, 26_000) if rng.random() < 0.5}
    with EmbeddedBroker(properties={"offset.metadata.max.bytes": "16384"}) as broker:
        cluster = KafkaCluster(broker.bootstrap_servers)
        world = World(cluster, "prices", 1)
        world.send(*((f"k{number}", str(number)) for number in range(26_000)))
        assert cluster.groups.commit_text_limit() == 16_383
        with world.consuming(max_in_work=26_000) as consumer:
            left = set(healthy)
            while left:
                for delivery in consumer.acquire_many(1000, 30):
                    if delivery.value in left:
                        left.remove(delivery.value)
                        last = delivery.ack()
                    else:
                        delivery.release(delay=3600.0)
            last.result(30)
            assert 4096 < consumer.stats.commit_text <= consumer.stats.text_limit == 16_383
        assert sum(map(stored(world).done, range(26_000))) == len(healthy)
        cluster.close()
