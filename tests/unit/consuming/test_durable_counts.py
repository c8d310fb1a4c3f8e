"""Delivery counts that survive a crash: they are committed before the hand-out."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import TransportError
from tests.unit.consuming.world import (
    Clock,
    World,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    nothing_comes,
    settled_up,
    take,
    values_of,
)
from tests.waiting import eventually

NOT_NOW = TransportError("not now", code="NOT_COORDINATOR", retriable=True)


def crash(world: World) -> None:
    """Crash the process of the newest member: nobody hears from it again."""
    world.expel(world.members[-1])


def count_for_nobody(world: World, consumer: Consumer[str]) -> None:
    """Count the first message for a caller that does not wait for it."""
    assert consumer.acquire(0) is None
    eventually(lambda: world.committed_map().counts == {0: 1})


def test_the_count_is_stored_when_the_message_is_handed_out(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, durable_counts=True, commit_interval=60) as consumer:
        delivery = take(consumer)
        assert (delivery.value, delivery.delivery_count, delivery.redelivered) == ("a", 1, False)
        assert world.committed_map().counts == {0: 1}


def test_a_message_whose_holder_died_says_how_often_it_was_handed_out(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    for number in range(1, 4):
        with consuming(world, durable_counts=True, commit_interval=60) as consumer:
            delivery = take(consumer)
            assert (delivery.value, delivery.delivery_count, delivery.redelivered) == ("a", number, number > 1)
            crash(world)


def test_a_message_that_kills_its_handlers_ends_among_the_dead_letters(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("poison", "p"), ("b", "b"))
    options = {"durable_counts": True, "max_deliveries": 2, "dead_letters": "dead", "commit_interval": 60}
    for _ in range(2):
        with consuming(world, **options) as consumer:
            assert take(consumer).value == "p"
            crash(world)
    with consuming(world, **options) as consumer:
        assert drain(consumer, 1) == ["b"]
    (dead,) = world.records("dead")
    assert dict(dead.headers)["lvq-dlq-count"] == b"2"
    assert world.committed_offsets() == {0: 2}


def test_without_durable_counts_a_crash_forgets_the_count_and_not_that_it_was_delivered(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        take(consumer).release()
        take(consumer)
        eventually(lambda: world.committed_map().delivered == 1)
        crash(world)
    with consuming(world) as consumer:
        first, second = take(consumer), take(consumer)
        assert (first.delivery_count, first.redelivered) == (1, True)
        assert (second.delivery_count, second.redelivered) == (1, False)


def test_many_that_are_taken_together_are_counted_by_one_commit(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(200)))
    with consuming(world, durable_counts=True, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        Clock(consumer)  # no lease expires, which would cost a commit
        before = consumer.stats.commits
        deliveries = consumer.acquire_many(200, 10)
        assert values_of(deliveries) == [str(number) for number in range(200)]
        assert consumer.stats.commits - before == 1
        for delivery in deliveries:
            delivery.ack()
    assert world.committed_offsets() == {0: 200}


def test_several_who_wait_share_a_commit(world: World) -> None:
    with consuming(world, durable_counts=True, commit_interval=60) as consumer, ExitStack() as threads:
        outcomes = [threads.enter_context(in_thread(lambda: take(consumer).value)) for _ in range(20)]
        eventually(lambda: consumer._shared._waiters.wanted == 20)
        before = consumer.stats.commits
        with world._state.changed:  # so that they come at once, however slow this thread is
            world.send(*((f"k{number}", str(number)) for number in range(20)))
        threads.close()
        assert sorted(str(value) for (value,) in outcomes) == sorted(str(number) for number in range(20))
        assert consumer.stats.commits - before < 20


def test_nothing_is_handed_out_while_counts_cannot_be_stored_and_nobody_waits_too_long_for_it(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        world.disconnect()
        assert consumer.acquire(0.05) is None
        assert consumer.acquire(0.05) is None
        world.reconnect()
        delivery = take(consumer)
        assert (delivery.value, delivery.delivery_count) == ("a", 1), "it was handed out once"


def test_a_message_counted_for_one_who_left_goes_to_the_next(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        Clock(consumer)  # no lease expires, which would cost a commit
        count_for_nobody(world, consumer)
        sent = consumer.stats.commits
        assert take(consumer).delivery_count == 1
        assert consumer.stats.commits == sent


def test_a_message_that_nobody_came_for_was_not_delivered(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True, max_deliveries=1) as consumer:
        has_read_all(world, consumer)
        count_for_nobody(world, consumer)
    assert world.committed_map().counts == {}
    with consuming(world, durable_counts=True, max_deliveries=1) as consumer:
        assert take(consumer).delivery_count == 1


def test_a_count_for_nobody_is_taken_back_when_its_commit_is_not_answered_before_the_partition_goes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else has changed since the last answer, so the commit must repeat the state known to be stored."""
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._LAST_CHANCE", 0.0)
    world.send(("a", "a"))
    with consuming(world, durable_counts=True) as consumer:
        take(consumer).release()
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        Clock(consumer)  # no lease expires, which would cause another commit
        world.lose_answers("commit")
        assert consumer.acquire(0) is None
        eventually(lambda: world.committed_map().counts == {0: 2})
    assert world.committed_map().counts == {0: 1}


@pytest.mark.parametrize("paused", [False, True])
def test_the_time_to_settle_does_not_run_while_nobody_has_the_message(world: World, paused: bool) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True, lock_timeout=1.0, max_deliveries=1) as consumer:
        has_read_all(world, consumer)
        clock = Clock(consumer)
        count_for_nobody(world, consumer)
        if paused:
            consumer.pause()
        clock.go_on(4.0)
        consumer.resume()
        delivery = consumer.acquire(0)
        assert delivery is not None
        assert (delivery.delivery_count, consumer.stats.timed_out) == (1, 0)
        clock.go_on(0.9)
        assert delivery.state is MessageState.ACQUIRED


def test_a_key_whose_values_are_replaced_while_they_are_counted_comes_all_the_same(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world, durable_counts=True, prefetch=2) as consumer:
        has_read_all(world, consumer)
        count_for_nobody(world, consumer)
        for value in ("a2", "a3"):
            world.send(("a", value))
            has_read_all(world, consumer)
            if value == "a2":
                assert consumer.acquire(0) is None, "a1 is passed over, once"
                eventually(lambda: world.committed_map().counts == {1: 1})
        delivery = next(iter(consumer))
        assert (delivery.value, delivery.state) == ("a2", MessageState.STALE)


@pytest.mark.parametrize("end", ["break", "close"])
def test_a_prefetched_message_is_not_counted_when_its_turn_never_comes(world: World, end: str) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, durable_counts=True, prefetch=3) as consumer:
        has_read_all(world, consumer)
        for delivery in consumer:
            assert world.committed_map().counts == {0: 1, 1: 1, 2: 1}, "else a crash would forget who was next"
            if end == "break":
                delivery.release()
                break
            consumer.close()
        eventually(lambda: world.committed_map().counts == {0: 1})


def test_a_message_on_its_way_to_a_holder_does_not_hold_up_a_rebalance() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, durable_counts=True, revoke_grace=30.0, max_deliveries=1) as one:
        has_read_all(world, one)
        assert one.acquire_many(2, 0) == []
        eventually(lambda: [world.committed_map(partition).counts for partition in (0, 1)] == [{0: 1}, {0: 1}])
        with consuming(world, durable_counts=True, max_deliveries=1) as two:
            eventually(lambda: len(two.stats.partitions) == 1)
            assert one._shared.core.hand_out.counting == 1
            assert {take(two).value, take(one).value} == {"a", "b"}, "nobody had the one that moved"


def test_a_partition_that_goes_while_its_counts_are_stored_takes_its_messages_along(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        world.fail_next("commit", NOT_NOW, times=3)
        with in_thread(lambda: take(consumer).value) as outcome:
            eventually(lambda: consumer.stats.in_work == 1)
            crash(world)
        assert outcome == ["a"]
        assert consumer.stats.lost <= 1


def test_the_time_to_settle_begins_when_the_message_is_handed_out(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True, lock_timeout=1.0) as consumer:
        has_read_all(world, consumer)
        clock = Clock(consumer)
        world.fail_next("commit", NOT_NOW, times=1000)
        with in_thread(lambda: take(consumer)) as outcome:
            eventually(lambda: consumer.stats.in_work == 1)
            clock.go_on(0.9)
            world._state._failures.clear()
        (delivery,) = outcome
        assert isinstance(delivery, Delivery)
        clock.go_on(0.9)
        assert delivery.state is MessageState.ACQUIRED
        delivery.ack(wait=True, timeout=10)


def test_acks_take_their_counts_out_of_the_commit(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, durable_counts=True) as consumer:
        _, second, third = consumer.acquire_many(3, 10)
        assert world.committed_map().counts == {0: 1, 1: 1, 2: 1}
        second.ack(wait=True, timeout=10)
        assert world.committed_map().counts == {0: 1, 2: 1}
        third.release()
        take(consumer)
        assert world.committed_map().counts == {0: 1, 2: 2}


def test_a_paused_consumer_keeps_what_is_counted(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        assert consumer.acquire(0) is None
        consumer.pause()
        eventually(lambda: world.committed_map().counts == {0: 1})
        assert nothing_comes(consumer)
        consumer.resume()
        assert drain(consumer, 1) == ["a"]
        settled_up(world, consumer)


@pytest.mark.parametrize("prefetch", [1, 5])
def test_iterating_with_durable_counts_brings_everything(world: World, prefetch: int) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(10)))
    with consuming(world, durable_counts=True, prefetch=prefetch, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        Clock(consumer)  # no lease expires, which would cost a commit
        before, seen = consumer.stats.commits, []
        for delivery in consumer:
            with delivery:
                seen.append(delivery.value)
            if len(seen) == 10:
                break
        assert seen == [str(number) for number in range(10)]
        assert consumer.stats.commits - before == 10 // prefetch


@pytest.mark.parametrize("value", ["a2", None])
def test_a_message_counted_for_nobody_never_comes_once_it_is_replaced_or_deleted(
    world: World, value: str | None
) -> None:
    """R9, I4: nobody holds it, so a newer value replaces it and a delete removes it."""
    world.send(("a", "a1"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        count_for_nobody(world, consumer)
        world.send(("a", value), ("b", "b"))
        has_read_all(world, consumer)
        assert [take(consumer).value for _ in range(2 if value else 1)] == ([value, "b"] if value else ["b"])
        assert consumer.stats.available == 0


def test_a_message_counted_for_nobody_does_not_come_in_asyncio_either_once_it_is_replaced(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        count_for_nobody(world, consumer)
        world.send(("a", "a2"))
        has_read_all(world, consumer)
        delivery = asyncio.run(consumer.acquire_async(10))
        assert delivery is not None
        assert delivery.value == "a2"


def test_a_key_that_is_replaced_before_each_look_comes_to_one_who_never_waits(world: World) -> None:
    world.send(("a", "0"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        seen: list[str] = []
        for number in range(1, 7):
            if (delivery := consumer.acquire(0)) is not None:
                seen.append(delivery.value)
                delivery.ack()
            eventually(lambda: not consumer._shared.core.commits.urgent)
            world.send(("a", str(number)))
            has_read_all(world, consumer)
        assert seen


@pytest.mark.parametrize("newer", ["a2", None])
def test_a_message_set_aside_long_ago_is_checked_again_before_it_is_handed_out(world: World, newer: str | None) -> None:
    """As when a group rebalances and accepts no commit: the callers it was counted for may have left."""
    world.send(("a", "a1"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        clock = Clock(consumer)
        world.fail_next("commit", NOT_NOW, times=100_000)
        assert consumer.acquire(0.05) is None, "it is set aside for somebody who leaves"
        with in_thread(lambda: consumer.acquire(10)) as outcome:
            eventually(lambda: consumer._shared._waiters.present)
            world.send(("a", newer), ("b", "b1"))
            has_read_all(world, consumer)
            clock.go_on(3.0)
            world._state._failures.clear()
        (delivery,) = outcome
        assert isinstance(delivery, Delivery)
        assert (delivery.value, delivery.state) == ("a2" if newer else "b1", MessageState.ACQUIRED)
        assert delivery.delivery_count == 1
