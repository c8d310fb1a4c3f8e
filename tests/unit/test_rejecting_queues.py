"""Queues that say themselves when consumers reject a message, and where it goes."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from lvq_kafka import TEXT, AddressSettings, LastValueQueue
from lvq_kafka.core.queue.history import NOTICE
from lvq_kafka.declared import registry_watch
from lvq_kafka.errors import ConfigError, TopicNotFound
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.waiting import eventually


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    cluster = MemoryCluster(clock=clock)
    for topic in ("dead", "others"):
        cluster.topics.create(topic, partitions=1, config={})
    return cluster


def declare(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster, **options)
    with queue.producer() as producer:
        producer.put("IBM", "1").result(5)
    return queue


def attempt(queue: LastValueQueue[str], **options: Any) -> int | None:
    """Let a new consumer fail at the message; return which delivery of it that was."""
    with queue.consumer(**options) as consumer:
        delivery = consumer.acquire(10)
        if delivery is None:
            return None
        delivery.release()
        return delivery.delivery_count


def letters(cluster: MemoryCluster, topic: str = "dead") -> list[bytes | None]:
    return [record.key for record in cluster.records(topic)]


def test_each_consumer_counts_on_and_the_last_one_rejects(cluster: MemoryCluster) -> None:
    queue = declare(cluster, max_deliveries=2, dead_letters="dead")
    assert [attempt(queue), attempt(queue)] == [1, 2]
    with queue.consumer() as consumer:
        assert consumer.acquire(0.1) is None
        eventually(lambda: letters(cluster) == [b"IBM"])
    assert queue.stats().depth == 0


def test_a_consumer_may_have_its_own(cluster: MemoryCluster) -> None:
    queue = declare(cluster, max_deliveries=1, dead_letters="dead")
    assert [attempt(queue, max_deliveries=3, durable_counts=True) for _ in range(3)] == [1, 2, 3]
    with queue.consumer(max_deliveries=3, durable_counts=True, dead_letters="others") as consumer:
        assert consumer.acquire(0.1) is None
        eventually(lambda: letters(cluster, "others") == [b"IBM"])
    assert letters(cluster) == []


def test_a_handler_that_always_fails_is_given_up_at_the_limit_of_the_queue(cluster: MemoryCluster) -> None:
    queue = declare(cluster, max_deliveries=2, dead_letters="dead")
    counts = []

    def handle(delivery: Any) -> None:
        counts.append(delivery.delivery_count)
        raise ValueError("never")

    with queue.consumer() as consumer:
        running = Thread(target=lambda: consumer.run(handle, retry_delay=0.01))
        running.start()
        eventually(lambda: letters(cluster) == [b"IBM"])
        consumer.close()
        running.join(10)
    assert counts == [1, 2]


def test_r39_open_consumers_keep_to_what_the_queue_is_altered_to(
    cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_watch, "_LOOK", 0.02)
    queue = declare(cluster)
    with queue.consumer() as consumer:
        for _ in range(3):
            delivery = consumer.acquire(10)
            assert delivery is not None
            delivery.release()
        queue.alter(max_deliveries=1, dead_letters="others")
        clock.now += NOTICE
        eventually(lambda: consumer._shared.limits.max_deliveries == 1, 20)
        first = consumer.acquire(10)
        assert first is not None
        assert first.delivery_count == 1, "those before were not counted durably"
        first.release()
        assert consumer.acquire(0.1) is None
        eventually(lambda: letters(cluster, "others") == [b"IBM"])
        with queue.producer() as producer:
            producer.put("SAP", "1").result(5)
        queue.alter(max_deliveries=None, dead_letters=None)
        clock.now += NOTICE
        eventually(lambda: consumer._shared.limits.max_deliveries is None, 20)
        for _ in range(3):
            delivery = consumer.acquire(10)
            assert delivery is not None
            delivery.release()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dead_letters": "prices"}, "the queue's own topic"),
        ({"dead_letters": "_lvq_queues"}, "dead_letters"),
        ({"dead_letters": "dead", "non_destructive": True}, "exclude each other"),
        ({"max_deliveries": 2, "non_destructive": True}, "exclude each other"),
        ({"max_deliveries": 0}, "max_deliveries"),
        ({"max_deliveries": "soon"}, "max_deliveries"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(cluster: MemoryCluster, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        declare(cluster, **options)


def test_the_topic_of_letters_has_to_exist(cluster: MemoryCluster) -> None:
    with pytest.raises(TopicNotFound, match="missing"):
        declare(cluster, dead_letters="missing")
    with declare(cluster) as queue, pytest.raises(TopicNotFound, match="missing"):
        queue.alter(dead_letters="missing")


@pytest.mark.parametrize(
    ("options", "max_deliveries", "dead_letters"),
    [
        ({"max-delivery-attempts": "5", "dead-letter-address": "dead"}, 5, "dead"),
        ({"max-delivery-attempts": -1}, None, None),
        ({"maximumDeliveryAttempts": 0, "alternateBinding": None}, None, None),
        ({"maximumDeliveryAttempts": 7, "alternateBinding": {"destination": "dead", "attributes": {}}}, 7, "dead"),
        ({"alternateBinding": '{"destination": "dead"}'}, None, "dead"),
        ({"alternateBinding": "dead"}, None, "dead"),
    ],
)
def test_other_systems_names_are_taken(
    cluster: MemoryCluster, options: dict[str, Any], max_deliveries: int | None, dead_letters: str | None
) -> None:
    queue = LastValueQueue.declare("q", options={"lvqKey": "ticker", **options}, cluster=cluster)
    assert (queue.definition.max_deliveries, queue.definition.dead_letters) == (max_deliveries, dead_letters)


@pytest.mark.parametrize("binding", [[], {"destination": 5}, {"destination": "dead", "attributes": {"a": 1}}])
def test_a_binding_that_is_none_is_refused(cluster: MemoryCluster, binding: object) -> None:
    with pytest.raises(ConfigError, match="alternateBinding"):
        LastValueQueue.declare("q", options={"lvqKey": "ticker", "alternateBinding": binding}, cluster=cluster)


def test_r37_a_setting_for_all_queues_gives_letters_to_those_that_can_have_them(cluster: MemoryCluster) -> None:
    with AddressSettings(cluster=cluster) as settings:
        settings.set("#", {"dead-letter-address": "dead", "max-delivery-attempts": 5})
    found = declare(cluster).definition
    assert (found.max_deliveries, found.dead_letters) == (5, "dead")
    browsed = LastValueQueue.declare("board", key_header="k", non_destructive=True, cluster=cluster).definition
    assert (browsed.max_deliveries, browsed.dead_letters, browsed.from_settings) == (None, None, None)
    own = LastValueQueue.declare("dead", key_header=None, on_mismatch="warn", cluster=cluster).definition
    assert (own.max_deliveries, own.dead_letters) == (5, None)
