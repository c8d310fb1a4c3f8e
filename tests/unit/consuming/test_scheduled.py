"""Consumers of a queue whose messages may be scheduled, on a cluster with a clock of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import Ttl
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


def schedule(world: World, key: str, value: str | None, after: float, **where: Any) -> None:
    """Send a message that counts this many seconds after noon."""
    body = None if value is None else value.encode()
    world.write(TOPIC, key.encode(), body, headers=[(NOT_BEFORE_HEADER, b"%d" % round((NOON + after) * 1000))], **where)


def definition(**options: Any) -> QueueDefinition:
    return QueueDefinition(**{"name": "q", "topic": TOPIC, "key_header": None, "max_delay": 3600.0} | options)


@pytest.fixture
def consumer(world: World) -> Iterator[Consumer[str]]:
    with consuming(world, definition=definition()) as consumer:
        yield consumer


def test_r11_a_message_that_is_not_due_is_not_handed_out_and_the_value_before_it_is(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"))
    schedule(world, "a", "a2", 10)
    schedule(world, "b", "b1", 20)
    has_read_all(world, consumer)
    with take(consumer) as delivery:
        assert delivery.value == "a1"
    assert nothing_comes(consumer)
    assert (consumer.stats.scheduled, consumer.stats.available) == (2, 0)
    day.now += 10
    with take(consumer) as delivery:
        assert delivery.value == "a2"
    assert nothing_comes(consumer)
    eventually(lambda: world.committed_map().base == 2)
    day.now += 10
    with take(consumer) as delivery:
        assert delivery.value == "b1"
    settled_up(world, consumer)
    assert consumer.stats.scheduled == 0


def test_scheduled_messages_are_counted_and_deletes_are_not(world: World, day: Day, consumer: Consumer[str]) -> None:
    schedule(world, "a", "a1", 20)
    schedule(world, "a", None, 30)
    schedule(world, "b", None, 10)
    has_read_all(world, consumer)
    eventually(lambda: consumer.stats.read == 1)
    assert consumer.stats.scheduled == 1
    day.now += 15
    world.send(("b", "b1"))
    with take(consumer) as delivery:
        assert delivery.value == "b1"
    assert consumer.stats.scheduled == 1
    day.now += 20
    eventually(lambda: consumer.stats.scheduled == 0)


def test_r11_a_caller_that_waits_is_woken_when_a_message_is_due(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    schedule(world, "a", "a1", 10)
    has_read_all(world, consumer)
    taken: list[str] = []
    waiting = threading.Thread(target=lambda: taken.append(take(consumer).value))
    waiting.start()
    eventually(lambda: bool(consumer._shared._waiters.present))
    day.now += 10
    waiting.join(30)
    assert taken == ["a1"]


def test_r11_the_poll_of_an_idle_consumer_ends_when_the_next_message_is_due(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    schedule(world, "a", "a1", 0.004)
    has_read_all(world, consumer)
    shared = consumer._shared
    eventually(lambda: 0.001 < shared.until_due < 0.005)
    assert consumer._thread._pause() == shared.until_due
    day.now += 10
    take(consumer).ack()
    eventually(lambda: shared.until_due == float("inf"))


def test_r11_a_prefetched_value_is_skipped_when_another_of_its_key_is_due_before_its_turn(
    world: World, day: Day
) -> None:
    world.send(("a", "a1"), ("b", "b1"), ("c", "c1"))
    schedule(world, "b", "b2", 10)
    with consuming(world, definition=definition(), prefetch=3) as consumer:
        has_read_all(world, consumer)
        deliveries = iter(consumer)
        first = next(deliveries)
        day.now += 10
        second, third = next(deliveries), next(deliveries)
        assert values_of([first, second, third]) == ["a1", "c1", "b2"]


def test_r11_a_held_value_may_be_acked_after_the_next_one_is_due(
    world: World, day: Day, consumer: Consumer[str]
) -> None:
    world.send(("a", "a1"))
    schedule(world, "a", "a2", 10)
    has_read_all(world, consumer)
    held = take(consumer)
    day.now += 10
    eventually(lambda: held.state is MessageState.STALE)
    assert nothing_comes(consumer)
    held.ack(wait=True, timeout=10)
    assert take(consumer).value == "a2"


def test_r11_a_restarted_consumer_still_waits_for_what_is_scheduled(world: World, day: Day) -> None:
    world.send(("a", "a1"))
    schedule(world, "a", "a2", 10)
    world.send(("b", "b1"))
    with consuming(world, definition=definition()) as consumer:
        has_read_all(world, consumer)
        for _ in range(2):
            take(consumer).ack(wait=True, timeout=10)
    assert world.committed_map().base == 1
    world.compact(TOPIC)
    with consuming(world, definition=definition()) as consumer:
        has_read_all(world, consumer)
        assert (nothing_comes(consumer), consumer.stats.scheduled) == (True, 1)
        day.now += 10
        assert take(consumer).value == "a2"


def test_r11_a_transaction_commits_what_is_superseded_meanwhile(world: World, day: Day) -> None:
    world.send(("a", "a1"))
    schedule(world, "a", "a2", 10)
    with consuming(world, definition=definition()) as consumer, world.producer() as producer:
        has_read_all(world, consumer)
        with consumer.transaction(producer) as tx:
            delivery = tx.acquire(10)
            assert delivery is not None
            producer.put("out", "made of a1")
            delivery.ack()
            day.now += 10
            eventually(lambda: consumer.stats.scheduled == 0)
        assert world.texts("out") == ["made of a1"]
        assert take(consumer).value == "a2"


def test_r11_dead_letters_count_at_once(world: World, day: Day) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.write(TOPIC, b"a", b"a1", headers=[("own", b"x"), (NOT_BEFORE_HEADER, b"%d" % ((NOON + 9) * 1000))])
    with consuming(world, definition=definition(), dead_letters="dead") as consumer:
        has_read_all(world, consumer)
        day.now += 10
        take(consumer).reject("no good")
        eventually(lambda: world.texts("dead") == ["a1"])
    (letter,) = world.records("dead")
    names = [name for name, _ in letter.headers]
    assert names[0] == "own"
    assert NOT_BEFORE_HEADER not in names


def test_r10_r11_a_message_due_after_its_expiry_goes_to_the_expiry_topic_and_counts_there(
    world: World, day: Day
) -> None:
    world.topics.create("late", partitions=1, config={})
    schedule(world, "a", "a1", 10)
    queue = definition(ttl=Ttl(default=5), expiry_topic="late")
    with consuming(world, definition=queue) as consumer:
        has_read_all(world, consumer)
        day.now += 6
        assert (nothing_comes(consumer), consumer.stats.expired, world.texts("late")) == (True, 0, [])
        day.now += 4
        eventually(lambda: world.texts("late") == ["a1"])
        settled_up(world, consumer)
    assert NOT_BEFORE_HEADER not in dict(world.records("late")[0].headers)


def test_r11_an_unreadable_time_is_counted_and_logged_once(
    world: World, consumer: Consumer[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="lvq_kafka.consumer"):
        for key in (b"a", b"b"):
            world.write(TOPIC, key, b"v", headers=[(NOT_BEFORE_HEADER, b"tomorrow")])
        has_read_all(world, consumer)
        assert values_of([take(consumer), take(consumer)]) == ["v", "v"]
        eventually(lambda: consumer.stats.malformed == 2)
        eventually(lambda: "tomorrow" in caplog.text)
    assert caplog.text.count("a header lvq-not-before") == 1


def test_r11_a_slow_clock_goes_by_the_log_and_the_stats_say_so(world: World, day: Day, consumer: Consumer[str]) -> None:
    schedule(world, "a", "a1", 10)
    world.write(TOPIC, b"b", b"b1", timestamp=round((NOON + 10) * 1000))
    assert values_of([take(consumer), take(consumer)]) == ["a1", "b1"]
    assert consumer.stats.clock_behind == 10.0
