"""Deliveries: their properties, and the fate of their messages."""

from __future__ import annotations

import pytest

from lvq_kafka.codecs import JSON
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import (
    AlreadySettled,
    LockLost,
)
from tests.unit.consuming.world import (
    TOPIC,
    World,
    consuming,
    drain,
    has_read_all,
    make_world,
    nothing_comes,
    settled_up,
    take,
)


def test_a_delivery_says_all_about_its_message() -> None:
    world = make_world(clock=lambda: 1000.5)
    world.write(TOPIC, b"IBM", b'{"bid": 1}', [("ticker", b"IBM"), ("source", b"a"), ("source", b"b")])
    with consuming(world, JSON) as consumer, take(consumer) as delivery:
        assert (delivery.key, delivery.value, delivery.raw) == ("IBM", {"bid": 1}, b'{"bid": 1}')
        assert str(delivery.position) == "prices/0/0"
        assert delivery.timestamp == 1000.5
        assert (delivery.header("source"), delivery.header("none")) == ("b", None)
        assert delivery.headers == (("ticker", b"IBM"), ("source", b"a"), ("source", b"b"))
        assert (delivery.delivery_count, delivery.redelivered, delivery.state) == (1, False, MessageState.ACQUIRED)
        assert "IBM" in repr(delivery)


def test_a_clean_exit_acks_and_the_message_is_gone_for_the_next_consumer(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["a1", "b1"]
    assert world.committed_offsets() == {0: 2}
    with consuming(world) as consumer:
        assert nothing_comes(consumer)


def test_an_exception_releases_and_the_message_comes_again_marked_as_redelivered(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with pytest.raises(ZeroDivisionError), take(consumer):
            raise ZeroDivisionError
        with take(consumer) as delivery:
            assert (delivery.value, delivery.redelivered, delivery.delivery_count) == ("a1", True, 2)
        assert consumer.stats.redelivered == 1


def test_iteration_yields_messages_until_the_consumer_is_closed(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    seen = []
    with consuming(world) as consumer:
        for delivery in consumer:
            with delivery:
                seen.append(delivery.value)
            if len(seen) == 2:
                consumer.close()
    assert seen == ["a1", "b1"]


def test_a_slow_consumer_gets_the_newest_value_of_each_key_only(world: World) -> None:
    world.send(("slow", "s"))
    with consuming(world) as consumer:
        slow = take(consumer)
        world.send(*(("a", f"a{number}") for number in range(100)), ("b", "b"))
        has_read_all(world, consumer)
        assert consumer.stats.available == 2
        slow.ack()
        assert drain(consumer, 2) == ["a99", "b"]


def test_r6_a_newer_value_waits_until_the_held_one_is_acked(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"))
        has_read_all(world, consumer)
        assert consumer.stats.available == 1
        assert nothing_comes(consumer)
        assert first.state is MessageState.STALE
        first.ack()
        assert drain(consumer, 1) == ["m2"]


def test_r7_a_superseded_value_does_not_come_back_after_a_release_when_the_newer_one_was_deleted(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"), ("a", None))
        has_read_all(world, consumer)
        assert consumer.stats.available == 0
        first.release()
        assert nothing_comes(consumer)


def test_r6_a_message_held_at_close_is_superseded_for_the_next_consumer(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"))
    with pytest.raises(LockLost):
        first.ack()
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["m2"]


def test_a_second_settlement_is_an_error(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        delivery.ack()
        for settle in (delivery.ack, delivery.release, delivery.reject):
            with pytest.raises(AlreadySettled):
                settle()


def test_a_delivery_that_was_settled_inside_the_block_is_left_alone(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with take(consumer) as delivery:
            delivery.reject("broken")
        assert nothing_comes(consumer)
        assert (consumer.stats.rejected, consumer.stats.acked) == (1, 0)


def test_a_rejected_message_is_removed_and_the_reason_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        take(consumer).reject("no such ticker")
        settled_up(world, consumer)
    assert "prices/0/0 was rejected and removed: no such ticker" in caplog.text


def test_messages_without_a_key_header_get_unique_keys_and_are_never_replaced(world: World) -> None:
    world.send(*((f"unique-{number}", str(number)) for number in range(3)))
    with consuming(world) as consumer:
        assert drain(consumer, 3) == ["0", "1", "2"]


def test_r4_in_place_order_is_the_queue_definitions_choice(world: World) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="in-place")
    world.send(("1", "1"), ("2", "2"), ("3", "3"), ("2", "2b"), ("1", "1b"))
    with consuming(world, definition=definition) as consumer:
        assert drain(consumer, 3) == ["1b", "2b", "3"]
