"""An expiry topic: what has expired is stored there before it counts as done."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lvq_kafka import LastValueQueue, queues
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.errors import DeliveryFailed, MessageTooLarge, TopicNotFound
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
)
from tests.waiting import eventually

GONE = "gone"


@pytest.fixture
def world(day: Day) -> World:
    world = make_world(clock=day)
    world.topics.create(GONE, partitions=1, config={})
    return world


def opened(world: World, **options: Any) -> Any:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None, ttl=Ttl(default=10), expiry_topic=GONE)
    return consuming(world, definition=definition, **options)


def test_r10_an_expired_message_is_stored_with_its_reason_and_then_done(world: World, day: Day) -> None:
    world.write(TOPIC, b"a", b"a1", headers=[("x", b"y"), (TTL_HEADER, b"5000")])
    world.send(("b", "b1"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        day.now += 6
        eventually(lambda: world.texts(GONE) == ["a1"])
        assert take(consumer).value == "b1"
        (letter,) = world.records(GONE)
        assert letter.key == b"a"
        assert letter.headers == (
            *(("x", b"y"), ("lvq-dlq-source", b"prices/0/0"), ("lvq-dlq-count", b"0"), ("lvq-dlq-reason", b"expired")),
        )
        eventually(lambda: world.committed_map().base == 1)
        assert (consumer.stats.expired, consumer.stats.in_work) == (1, 1)


def test_r10_a_message_that_is_released_after_its_time_is_stored_too(world: World, day: Day) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with opened(world) as consumer:
        one, other = take(consumer), take(consumer)
        day.now += 11
        one.release(delay=3600)
        other.ack()
        eventually(lambda: world.texts(GONE) == ["a1"])
        settled_up(world, consumer)
        assert dict(world.records(GONE)[0].headers)["lvq-dlq-count"] == b"1"


def test_r10_a_newer_value_does_not_wait_for_the_letter(world: World, day: Day) -> None:
    world.send(("a", "a1"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        world.fail_next("append", DeliveryFailed("no", code="_FAIL"), 2)
        day.now += 11
        eventually(lambda: consumer.stats.expired == 1)
        world.send(("a", "a2"))
        with take(consumer) as delivery:
            assert delivery.value == "a2"


def test_r10_an_expired_message_that_cannot_be_stored_stays_and_is_tried_again(
    world: World, day: Day, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        world.fail_next("append", DeliveryFailed("no such luck", code="_FAIL"), 3)
        day.now += 11
        eventually(lambda: "no such luck" in caplog.text)
        assert "cannot be written to gone; it stays until that succeeds: no such luck" in consumer.stats.trouble
        assert world.committed_map().base == 0
        assert nothing_comes(consumer)
        eventually(lambda: sorted(world.texts(GONE)) == ["a1", "b1"], 30)
        settled_up(world, consumer)
        assert consumer.stats.trouble == ""
    assert caplog.text.count("cannot be written to gone") == 1


@pytest.mark.parametrize("open_before", [True, False])
def test_r10_letters_come_in_the_order_of_the_log(world: World, day: Day, open_before: bool) -> None:
    messages = [(f"k{number}", f"v{number}") for number in range(300)]
    if not open_before:
        world.send(*messages)
        day.now += 11
    with opened(world) as consumer:
        if open_before:
            world.send(*messages)
            has_read_all(world, consumer)
            day.now += 11
        eventually(lambda: len(world.texts(GONE)) == 300)
    assert world.texts(GONE) == [value for _, value in messages]


def test_r10_letters_that_could_not_be_stored_come_in_the_order_of_the_log(world: World, day: Day) -> None:
    world.send(*((letter, letter) for letter in "abcd"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        world.fail_next("append", DeliveryFailed("no such luck", code="_TIMED_OUT", retriable=True), 6)
        day.now += 11
        eventually(lambda: len(world.texts(GONE)) == 4, 30)
    assert world.texts(GONE) == list("abcd")


def test_r10_a_message_that_the_topic_refuses_keeps_no_other_from_being_stored(
    world: World, day: Day, caplog: pytest.LogCaptureFixture
) -> None:
    world.topics.alter_config(GONE, {"max.message.bytes": "500"})
    world.send(("a", "a"), ("b", "b" * 1000), ("c", "c"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        day.now += 11
        eventually(lambda: world.texts(GONE) == ["a", "c"])
        world.send(("d", "d"))
        has_read_all(world, consumer)
        day.now += 11
        eventually(lambda: world.texts(GONE) == ["a", "c", "d"])
        assert "cannot be written to gone" in consumer.stats.trouble
        world.topics.alter_config(GONE, {"max.message.bytes": "5000"})
        eventually(lambda: world.texts(GONE) == ["a", "c", "d", "b" * 1000], 10)
        eventually(lambda: consumer.stats.trouble == "")
    assert caplog.text.count("cannot be written to gone") == 1


def test_r10_a_letter_that_is_too_large_leaves_out_what_explains_it(world: World, day: Day) -> None:
    world.send(("a", "a1"))
    with opened(world) as consumer:
        has_read_all(world, consumer)
        world.fail_next("append", MessageTooLarge("too large", code="MSG_SIZE_TOO_LARGE"))
        day.now += 11
        eventually(lambda: world.texts(GONE) == ["a1"])
        assert world.records(GONE)[0].headers == ()


def test_r10_an_expired_message_that_was_not_stored_is_stored_by_the_next_consumer(world: World, day: Day) -> None:
    world.send(("a", "a1"), ("b", "b1"), ("b", "b2"))
    day.now += 11
    with opened(world) as consumer:
        eventually(lambda: sorted(world.texts(GONE)) == ["a1", "b2"])
        settled_up(world, consumer)
    with opened(world) as consumer:
        has_read_all(world, consumer)
        assert consumer.stats.expired == 0


def test_g12_a_value_that_a_newer_consumed_one_replaced_is_not_stored(world: World, day: Day) -> None:
    world.send(("a", "a1"), ("c", "c1"), ("a", "a2"))
    with opened(world) as consumer:
        held = take(consumer)
        assert held.value == "c1"
        take(consumer).ack(wait=True, timeout=10)
    day.now += 11
    with opened(world) as consumer:
        settled_up(world, consumer)
    assert world.texts(GONE) == ["c1"]


def test_an_expiry_topic_must_exist(world: World) -> None:
    world.topics.delete(GONE)
    with pytest.raises(TopicNotFound, match="The expiry topic gone does not exist") as caught, opened(world):
        pass
    assert "lvq declare gone" in str(caught.value)


def test_an_expiry_topic_is_declared_with_the_queue(world: World, day: Day) -> None:
    options: dict[str, Any] = {"key_header": "k", "ttl": Ttl(default=5), "cluster": world}
    with pytest.raises(TopicNotFound, match="The expiry topic missing does not exist"):
        LastValueQueue.declare("other", expiry_topic="missing", **options)
    assert "other" not in [queue.name for queue in queues(cluster=world)]
    queue = LastValueQueue.declare("other", expiry_topic=GONE, **options)
    with queue.producer() as producer:
        producer.put("a", b"a1").result(5)
    day.now += 6
    stats = queue.stats()
    assert (stats.depth, stats.tally.expired) == (0, 1)
    assert queue.purge(keys=["b"]).after[0].base == 0, "what was not stored yet is not done"
    with queue.consumer(commit_interval=0.01):
        eventually(lambda: world.texts(GONE) == ["a1"])


def test_r10_letters_go_on_while_a_holder_works_and_while_paused(world: World, day: Day) -> None:
    world.send(*((f"k{number}", "v") for number in range(2500)))
    with opened(world, max_in_work=1) as consumer:
        take(consumer)
        consumer.pause()
        day.now += 11
        eventually(lambda: len(world.texts(GONE)) == 2499, 30)
        assert consumer.stats.in_work == 1


def test_r10_there_is_one_warning_for_many_letters(world: World, day: Day, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world.send(("a", "a1"))
    with opened(world) as consumer:
        assert isinstance(consumer, Consumer)
        day.now = NOON + 11
        eventually(lambda: world.texts(GONE) == ["a1"])
    assert "expired" not in caplog.text
