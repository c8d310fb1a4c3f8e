"""Prefetch: what it fixes, what it withholds from others, and who has none.

More of iterating ahead is in `test_acquiring`; counts are in `test_durable_counts`, expiry in `test_expiry`.
"""

from __future__ import annotations

import threading

from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.unit.consuming.world import World, consuming, has_read_all, nothing_comes, take, values_of
from tests.waiting import eventually


def seen_where_the_first_comes_back(world: World, **options: int) -> list[str]:
    """Return what an iteration sees of four messages, the first of which is released after its first step."""
    world.send(*((key, key) for key in "abcd"))
    with consuming(world, **options) as consumer:
        has_read_all(world, consumer)
        released = take(consumer)
        stream = iter(consumer)
        seen = [next(stream)]
        released.release()
        seen += [next(stream), next(stream), next(stream)]
        return values_of(seen)


def test_messages_set_aside_keep_their_order_though_one_with_an_earlier_place_comes_back(world: World) -> None:
    assert seen_where_the_first_comes_back(world, prefetch=2) == ["b", "c", "a", "d"]


def test_with_a_prefetch_of_1_a_message_with_an_earlier_place_is_next(world: World) -> None:
    assert seen_where_the_first_comes_back(world) == ["b", "a", "c", "d"]


def test_messages_set_aside_are_withheld_from_other_callers_until_the_iteration_ends(world: World) -> None:
    world.send(*((key, key) for key in "abc"))
    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        for delivery in consumer:
            assert delivery.value == "a"
            assert nothing_comes(consumer)
            assert (consumer.stats.in_work, consumer.stats.available) == (3, 0)
            break
        assert values_of([take(consumer), take(consumer)]) == ["b", "c"]


def test_max_in_work_counts_what_is_set_aside(world: World) -> None:
    world.send(*((key, key) for key in "abc"))
    with consuming(world, prefetch=10, max_in_work=2) as consumer:
        has_read_all(world, consumer)
        stream = iter(consumer)
        assert next(stream).value == "a"
        assert (consumer.stats.in_work, consumer.stats.available) == (2, 1)


def test_acquire_many_hands_all_over_at_once_so_none_is_skipped(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        first, second = consumer.acquire_many(2)
        world.send(("b", "b2"))
        has_read_all(world, consumer)
        assert (first.state, second.state) == (MessageState.ACQUIRED, MessageState.STALE)
        second.ack()
        assert take(consumer).value == "b2"


def test_workers_prefetch_nothing(world: World) -> None:
    """One of two workers is busy with the first message; the other gets the rest."""
    world.send(*((key, key) for key in "abcd"))
    seen: list[str] = []
    others_are_done = threading.Event()
    with consuming(world, prefetch=10) as consumer:
        has_read_all(world, consumer)

        def handle(delivery: Delivery[str]) -> None:
            seen.append(delivery.value)
            if delivery.value == "a":
                others_are_done.wait(30)

        runner = threading.Thread(target=consumer.run, args=(handle,), kwargs={"workers": 2})
        runner.start()
        eventually(lambda: sorted(seen) == ["a", "b", "c", "d"])
        others_are_done.set()
        eventually(lambda: consumer.stats.acked == 4)
    runner.join(30)
    assert not runner.is_alive()


def test_an_iteration_that_the_garbage_collector_ends_changes_nothing_under_the_lock(world: World) -> None:
    """It may run in the middle of any change, on the thread that makes it."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, prefetch=2) as consumer:
        has_read_all(world, consumer)
        stream = iter(consumer)
        next(stream).ack()
        with consumer._shared as core:
            before = core.ledger.assignment.available, core.ledger.in_work
            del stream
            assert (core.ledger.assignment.available, core.ledger.in_work) == before
        assert consumer.stats.available == 1
        assert take(consumer).value == "b"
