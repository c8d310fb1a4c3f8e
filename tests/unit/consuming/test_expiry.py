"""Consumers of a queue with a TTL, on a cluster with a clock of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.unit.consuming.world import (
    NOON,
    TOPIC,
    Day,
    World,
    consuming,
    has_read_all,
    make_world,
    nothing_comes,
    settled_up,
    take,
    values_of,
)
from tests.waiting import eventually


@pytest.fixture
def world(day: Day) -> World:
    return make_world(clock=day)


@pytest.fixture
def queue() -> QueueDefinition:
    return QueueDefinition(name="q", topic=TOPIC, key_header=None, ttl=Ttl(default=10))


@pytest.fixture
def consumer(world: World, queue: QueueDefinition) -> Iterator[Consumer[str]]:
    with consuming(world, definition=queue) as consumer:
        yield consumer


def test_r10_an_expired_message_is_not_handed_out_and_the_commit_says_it_is_done(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    has_read_all(world, consumer)
    assert take(consumer).expires == NOON + 10
    day.now += 11
    assert nothing_comes(consumer)
    eventually(lambda: consumer.stats.available == 0)
    assert consumer.stats.expired == 1


def test_r10_an_idle_consumer_drops_what_expires_and_commits_that(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    has_read_all(world, consumer)
    day.now += 11
    settled_up(world, consumer)
    assert (consumer.stats.available, consumer.stats.expired) == (0, 2)


def test_r10_a_holder_may_settle_what_has_expired_and_nobody_gets_it_after_a_release(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    one, other = take(consumer), take(consumer)
    day.now += 11
    assert (one.state, other.state) == (MessageState.ACQUIRED, MessageState.ACQUIRED)
    one.ack(wait=True, timeout=10)
    other.release()
    assert nothing_comes(consumer)
    settled_up(world, consumer)
    assert (consumer.stats.acked, consumer.stats.released, consumer.stats.expired) == (1, 1, 1)


def test_r10_a_prefetched_message_is_skipped_when_it_expires_before_its_turn(
    world: World, day: Day, queue: QueueDefinition
) -> None:
    world.send(("a", "a1"), ("b", "b1"), ("c", "c1"))
    world.write(TOPIC, b"d", b"d1", headers=[(TTL_HEADER, b"60000")])
    with consuming(world, definition=queue, prefetch=4) as consumer:
        has_read_all(world, consumer)
        deliveries = iter(consumer)
        first = next(deliveries)
        day.now += 11
        second = next(deliveries)
        assert values_of([first, second]) == ["a1", "d1"]
        assert second.expires == NOON + 60
        eventually(lambda: consumer.stats.expired == 2)
        assert consumer.stats.delivered == 2


def test_r10_a_counted_message_is_not_handed_out_when_it_expires_before_anyone_comes(
    world: World, day: Day, queue: QueueDefinition
) -> None:
    with consuming(world, definition=queue, durable_counts=True) as consumer:
        world.send(("a", "a1"))
        has_read_all(world, consumer)
        assert consumer.acquire(0.0) is None  # it is counted first
        eventually(lambda: consumer.stats.in_work == 1)
        day.now += 11
        assert nothing_comes(consumer)
        settled_up(world, consumer)
        assert (consumer.stats.delivered, consumer.stats.expired) == (0, 1)
        assert world.committed_map().counts == {}


def test_r10_messages_of_a_transaction_stay_in_it(world: World, day: Day, queue: QueueDefinition) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with world.producer() as producer, consuming(world, definition=queue) as consumer:
        with consumer.transaction(producer) as tx:
            one, _ = tx.acquire_many(2, timeout=10)
            one.ack()
            day.now += 11
            eventually(lambda: consumer.stats.in_work == 2)
            producer.put("out", "1")
        assert world.texts("out") == ["1"]
        assert nothing_comes(consumer)
        settled_up(world, consumer)
        assert (consumer.stats.acked, consumer.stats.expired) == (1, 1)


def test_r8_r10_a_restarted_consumer_derives_again_what_has_expired(
    world: World, day: Day, queue: QueueDefinition
) -> None:
    world.send(("a", "a1"), ("b", "b1"), ("a", "a2"))
    with consuming(world, definition=queue) as consumer:
        assert take(consumer).value == "b1"  # held when the consumer ends
    day.now += 11
    world.send(("c", "c1"))
    with consuming(world, definition=queue) as consumer:
        assert take(consumer).value == "c1"
        assert nothing_comes(consumer)


def test_r10_a_waiting_caller_gets_what_is_sent_after_others_have_expired(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"))
    has_read_all(world, consumer)
    day.now += 11
    taken: list[str] = []
    waits = threading.Thread(target=lambda: taken.append(take(consumer).value))
    waits.start()
    world.send(("a", "a2"))
    waits.join(10)
    assert taken == ["a2"]


@pytest.mark.parametrize("said", [b"soon", b"0"])
def test_r10_a_ttl_that_is_0_or_cannot_be_read_counts_as_none_and_is_logged_once(
    world: World, consumer: Consumer[str], caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    caplog.set_level(logging.WARNING)
    world.send(("a", "a1"))
    for key in (b"b", b"c"):
        world.write(TOPIC, key, b"v", headers=[(TTL_HEADER, said)])
    eventually(lambda: consumer.stats.malformed == 2)
    eventually(lambda: "lvq-ttl" in caplog.text)
    has_read_all(world, consumer)
    assert caplog.text.count("lvq-ttl") == 1
    assert f"the message at prices/0/1 is {said!r}, not a positive number of milliseconds" in caplog.text
    assert [take(consumer).value for _ in range(3)] == ["a1", "v", "v"]


def test_r10_a_slow_clock_is_logged_once_and_goes_by_the_log(
    world: World, day: Day, consumer: Consumer[str], caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a1"))
    has_read_all(world, consumer)
    world.write(TOPIC, b"b", b"b1", timestamp=int((NOON + 60) * 1000))
    eventually(lambda: consumer.stats.clock_behind == 60.0)
    assert take(consumer).value == "b1"
    assert consumer.stats.expired == 1
    eventually(lambda: "60 s ahead of the clock" in caplog.text)
    day.now += 60
    world.send(("c", "c1"))
    eventually(lambda: consumer.stats.clock_behind == 0.0)
    assert caplog.text.count("ahead of the clock") == 1


def test_without_a_ttl_nothing_expires(world: World, day: Day) -> None:
    world.write(TOPIC, b"a", b"a1", headers=[(TTL_HEADER, b"1")])
    with consuming(world) as consumer:
        day.now += 11
        delivery = take(consumer)
        assert (delivery.value, delivery.expires) == ("a1", None)
