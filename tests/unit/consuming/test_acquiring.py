"""Acquiring in threads: one or many messages, prefetch, order, and times when nothing is handed out."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import islice

import pytest

from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import Closed, ConfigError
from tests.unit.consuming.world import (
    TOPIC,
    Clock,
    World,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    nothing_comes,
    take,
    values_of,
)
from tests.waiting import eventually


def test_acquire_many_takes_what_is_there_and_no_more_than_asked(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(5)))
    with consuming(world) as consumer:
        assert values_of(consumer.acquire_many(3, 10)) == ["0", "1", "2"]
        assert values_of(consumer.acquire_many(10, 10)) == ["3", "4"]
        assert consumer.acquire_many(10, 0.02) == []


def test_acquire_many_returns_with_the_first_that_comes(world: World) -> None:
    with consuming(world) as consumer, in_thread(lambda: values_of(consumer.acquire_many(10))) as outcome:
        eventually(lambda: consumer._shared._waiters.wanted == 10)
        world.send(("a", "a"))
    assert outcome == [["a"]]


def test_acquire_many_stays_within_max_in_work(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(5)))
    with consuming(world, max_in_work=3) as consumer:
        held = consumer.acquire_many(10, 10)
        assert values_of(held) == ["0", "1", "2"]
        assert consumer.acquire_many(10, 0.02) == []
        held[1].ack()
        held[2].release()
        assert values_of(consumer.acquire_many(10, 10)) == ["2", "3"]


@pytest.mark.parametrize("most", [0, -1])
def test_a_number_that_is_none_is_refused(world: World, most: int) -> None:
    with consuming(world) as consumer, pytest.raises(ConfigError, match="most"):
        consumer.acquire_many(most)


def test_acquire_with_no_time_looks_once(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        assert consumer.acquire(0) is not None
        assert (consumer.acquire(0), consumer.acquire(-1)) == (None, None)


def test_an_infinite_time_is_as_long_as_it_takes(world: World) -> None:
    with consuming(world) as consumer:
        with in_thread(lambda: take(consumer, math.inf).ack().result(math.inf)) as outcome:
            eventually(lambda: consumer._shared._waiters.wanted == 1)
            world.send(("a", "a"))
        assert outcome == [None]


def test_waiting_threads_get_one_message_each(world: World) -> None:
    with consuming(world) as consumer, ExitStack() as threads:
        outcomes = [threads.enter_context(in_thread(lambda: take(consumer).value)) for _ in range(8)]
        eventually(lambda: consumer._shared._waiters.wanted == 8)
        world.send(*((f"k{number}", str(number)) for number in range(8)))
        threads.close()
        assert sorted(str(value) for (value,) in outcomes) == [str(number) for number in range(8)]


def test_a_message_wakes_the_one_who_has_waited_for_longest(world: World) -> None:
    world.send(("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        Clock(consumer)
        take(consumer).ack(wait=True, timeout=10)  # no later commit, which would wake waiters too
        with in_thread(lambda: take(consumer).value) as first:
            eventually(lambda: consumer._shared._waiters.wanted == 1)
            with in_thread(lambda: consumer.acquire(0.5)) as second:
                eventually(lambda: consumer._shared._waiters.wanted == 2)
                world.send(("a", "a"))
        assert (first, second) == (["a"], [None])


def test_one_who_gives_up_does_not_swallow_what_woke_them(world: World) -> None:
    """One caller comes and goes while another waits; no message stays unclaimed meanwhile."""
    with consuming(world) as consumer:
        for number in range(100):
            with in_thread(lambda: take(consumer)) as outcome, in_thread(lambda: consumer.acquire(0)) as other:
                world.send((f"k{number}", str(number)), (f"l{number}", str(number)))
            assert outcome[0] is not None
            if other == [None]:
                take(consumer).ack()
        assert nothing_comes(consumer)


# ---------------------------------------------------------------- iterating ahead


def test_prefetch_hands_messages_over_in_order(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(7)))
    with consuming(world, prefetch=3) as consumer:
        values = []
        for delivery in consumer:
            with delivery:
                values.append(delivery.value)
            if len(values) == 7:
                break
        assert values == [str(number) for number in range(7)]
        assert consumer.stats.acked == 7


def test_a_prefetched_message_that_was_replaced_is_passed_over_and_the_newer_value_comes(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"), ("c", "c1"), ("d", "d1"))
    with consuming(world, prefetch=4) as consumer:
        has_read_all(world, consumer)
        stream = iter(consumer)
        first = next(stream)
        world.send(("b", "b2"), ("c", None))
        has_read_all(world, consumer)
        first.ack()
        second = next(stream)
        assert (second.value, second.state) == ("d1", MessageState.ACQUIRED)
        second.ack()
        third = next(stream)
        assert (first.value, third.value) == ("a1", "b2")


def test_a_key_that_never_rests_comes_all_the_same(world: World) -> None:
    """The first message of a batch is always handed over, so each batch yields at least one."""
    world.send(("a", "a1"))
    with consuming(world, prefetch=10) as consumer:
        stream = iter(consumer)
        seen = []
        for number in range(2, 6):
            delivery = next(stream)
            world.send(("a", f"a{number}"))
            has_read_all(world, consumer)
            assert delivery.state is MessageState.STALE
            delivery.ack()
            seen.append(delivery.value)
        assert seen == ["a1", "a2", "a3", "a4"]


def test_a_prefetched_message_that_was_lost_is_passed_over() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), ("b", "b"), ("c", "c"), partition=0)
    world.send(("d", "d"), ("e", "e"), ("f", "f"), partition=1)
    with consuming(world, prefetch=6) as one:
        has_read_all(world, one)
        stream = iter(one)
        seen = [next(stream)]
        with consuming(world) as two:
            eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 1)
            (kept,) = one.stats.partitions
            mine = ["a", "b", "c"] if kept == 0 else ["d", "e", "f"]
            rest = [value for value in mine if value != seen[0].value]
            assert values_of(list(islice(stream, len(rest)))) == rest


def test_a_loop_that_ends_early_gives_back_what_it_took_ahead(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        for delivery in consumer:
            delivery.ack()
            break
        assert (consumer.stats.in_work, consumer.stats.available) == (0, 2)
        assert drain(consumer, 2) == ["b", "c"]


def test_a_loop_that_raises_gives_back_what_it_took_ahead(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)

        def work() -> None:
            for delivery in consumer:
                with delivery:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()
        assert (consumer.stats.in_work, consumer.stats.available) == (0, 3)


def test_a_loop_that_ends_when_the_consumer_was_closed_says_nothing_of_what_it_had_ahead(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        seen = []
        for delivery in consumer:
            delivery.ack()
            seen.append(delivery.value)
            consumer.close()
    assert seen == ["a"]
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["b", "c"]


def test_a_prefetched_message_that_was_given_back_was_not_delivered(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(*((f"k{number}", str(number)) for number in range(5)))
    with consuming(world, prefetch=5, max_deliveries=2, dead_letters="dead") as consumer:
        has_read_all(world, consumer)
        for _ in range(2):
            for delivery in consumer:
                delivery.release()
                break
        assert (consumer.stats.delivered, consumer.stats.released) == (2, 2)
        rest = [take(consumer) for _ in range(4)]
        assert values_of(rest) == ["1", "2", "3", "4"]
        assert {(delivery.delivery_count, delivery.redelivered) for delivery in rest} == {(1, False)}
        eventually(lambda: world.texts("dead") == ["0"])


def test_the_time_to_settle_what_was_taken_ahead_begins_when_its_turn_comes(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, prefetch=2, lock_timeout=1.0) as consumer:
        has_read_all(world, consumer)
        clock = Clock(consumer)
        stream = iter(consumer)
        next(stream).ack()
        clock.go_on(0.9)
        second = next(stream)
        clock.go_on(0.9)
        assert (second.value, second.state) == ("b", MessageState.ACQUIRED)


def test_a_prefetched_message_that_waits_for_too_long_goes_to_others_and_was_not_delivered(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, prefetch=2, lock_timeout=1.0, max_deliveries=1) as consumer:
        has_read_all(world, consumer)
        clock = Clock(consumer)
        stream = iter(consumer)
        first = next(stream)
        clock.go_on(0.9)
        first.extend()
        clock.go_on(0.2)
        assert (consumer.stats.available, consumer.stats.timed_out) == (1, 0)
        delivery = take(consumer)
        assert (delivery.value, delivery.delivery_count) == ("b", 1)


# ---------------------------------------------------------------- pause


def test_a_paused_consumer_hands_nothing_out_and_goes_on_replacing(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        held = take(consumer)
        consumer.pause()
        assert consumer.paused
        world.send(("a", "a2"), ("b", "b1"), ("b", "b2"))
        has_read_all(world, consumer)
        assert nothing_comes(consumer)
        assert held.state is MessageState.STALE
        held.ack(wait=True, timeout=10)
        assert nothing_comes(consumer)
        consumer.resume()
        assert not consumer.paused
        assert drain(consumer, 2) == ["a2", "b2"]


def test_resume_wakes_those_who_wait(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, ExitStack() as threads:
        consumer.pause()
        outcomes = [threads.enter_context(in_thread(lambda: take(consumer).value)) for _ in range(2)]
        eventually(lambda: consumer._shared._waiters.wanted == 2)
        consumer.resume()
        threads.close()
        assert sorted(outcomes) == [["a"], ["b"]]


def test_a_paused_consumer_can_be_closed(world: World) -> None:
    with consuming(world) as consumer:
        consumer.pause()
        with in_thread(consumer.acquire) as outcome:
            eventually(lambda: consumer._shared._waiters.wanted == 1)
            consumer.close()
        assert isinstance(outcome[0], Closed)


def test_g13_stats_tell_where_a_consumer_reads_and_count_what_waits_for_an_older_value(world: World) -> None:
    world.send(("a", "1"), ("b", "1"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.send(("a", "2"), ("c", "1"))
        eventually(lambda: sum(consumer.stats.positions.values()) == sum(world.logs.end_offsets(TOPIC).values()))
        assert consumer.stats.positions.keys() == set(consumer.stats.partitions)
        assert [take(consumer).value for _ in range(2)] == ["1", "1"]
        assert (consumer.stats.available, consumer.acquire(0)) == (1, None)
        held.ack()
        assert take(consumer).value == "2"
    assert consumer.stats.positions == {}


def test_a_caller_that_nobody_wakes_tries_once_more_when_its_time_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that wakes callers may be waiting for a broker that does not answer."""
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        waiters = consumer._shared._waiters
        monkeypatch.setattr(waiters, "wake_next", lambda: None)
        with in_thread(lambda: values_of(consumer.acquire_many(1, 2.0))) as outcome:
            eventually(lambda: waiters.present)
            world.send(("a", "a"))
        assert outcome == [["a"]]
