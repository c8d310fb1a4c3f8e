"""The consumer in asyncio: no thread per message, and no message held for a task that is gone."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import Closed, ConfigError, TransportError, Unauthorized
from tests.unit.consuming.world import TOPIC, World, consuming, drain, has_read_all, settled_up, take
from tests.waiting import eventually


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 30))


async def soon(condition: Any) -> None:
    """Wait for a condition without blocking the event loop."""
    await asyncio.to_thread(eventually, condition)


def test_async_for_yields_messages_until_the_consumer_is_closed(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))

    async def main() -> list[str]:
        seen = []
        async for delivery in consumer:
            with delivery:
                seen.append(delivery.value)
            if len(seen) == 2:
                await asyncio.to_thread(consumer.close)
        return seen

    with consuming(world) as consumer:
        assert run(main()) == ["a1", "b1"]


def test_acquire_async_waits_for_what_comes(world: World) -> None:
    async def main() -> str:
        task = asyncio.create_task(consumer.acquire_async())
        await soon(lambda: consumer._shared._waiters.wanted == 1)
        world.send(("a", "a"))
        delivery = await task
        assert delivery is not None
        await delivery.ack()
        assert world.committed_offsets() == {0: 1}
        return str(delivery.value)

    with consuming(world, commit_interval=60) as consumer:
        assert run(main()) == "a"


def test_acquire_async_returns_none_when_none_came_in_time(world: World) -> None:
    async def main() -> None:
        assert await consumer.acquire_async(0) is None
        assert await consumer.acquire_async(0.03) is None
        assert await consumer.acquire_many_async(5, 0.03) == []
        with pytest.raises(ConfigError, match="most"):
            await consumer.acquire_many_async(0)

    with consuming(world) as consumer:
        run(main())
        assert consumer._shared._waiters.wanted == 0


def test_a_close_elsewhere_ends_what_waits(world: World) -> None:
    async def main() -> None:
        one = asyncio.create_task(consumer.acquire_async())

        async def iterate() -> int:
            return len([delivery async for delivery in consumer])

        two = asyncio.create_task(iterate())
        await soon(lambda: consumer._shared._waiters.wanted == 2)
        await asyncio.to_thread(consumer.close)
        with pytest.raises(Closed):
            await one
        assert await two == 0

    with consuming(world) as consumer:
        run(main())


def test_a_failure_comes_out_of_what_waits(world: World) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(consumer.acquire_async())
        await soon(lambda: consumer._shared._waiters.wanted == 1)
        world.fail_next("poll", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
        with pytest.raises(Unauthorized):
            await waiting

    with consuming(world) as consumer:
        run(main())


@pytest.mark.parametrize("durable_counts", [False, True])
def test_a_cancelled_wait_leaves_nothing_held_and_nobody_in_the_line(world: World, durable_counts: bool) -> None:
    async def main() -> None:
        for number in range(100):
            waiting = [asyncio.create_task(consumer.acquire_async()) for _ in range(3)]
            await asyncio.sleep(0)
            world.send((f"k{number}", str(number)))
            await asyncio.sleep(0.0005 * (number % 5))
            for task in waiting:
                task.cancel()
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                if not isinstance(outcome, BaseException):
                    assert outcome is not None
                    seen.append(outcome.value)
                    outcome.ack()

    seen: list[str] = []
    with consuming(world, durable_counts=durable_counts) as consumer:
        run(main())
        assert consumer._shared._waiters.wanted == 0
        left = 100 - len(seen)
        seen += [take(consumer).value for _ in range(left)]
        assert Counter(seen) == Counter(str(number) for number in range(100))
        assert consumer.acquire(0) is None


def test_a_wake_up_of_a_task_that_is_cancelled_goes_to_the_next(world: World) -> None:
    async def main() -> None:
        first = asyncio.create_task(consumer.acquire_async())
        await soon(lambda: consumer._shared._waiters.wanted == 1)
        second = asyncio.create_task(consumer.acquire_async())
        await soon(lambda: consumer._shared._waiters.wanted == 2)
        with consumer._shared._changed:  # the first is woken, then cancelled before it has looked
            consumer._shared._waiters.wake_next()
            first.cancel()
        world.send(("a", "a"))
        delivery = await second
        assert delivery is not None
        assert delivery.value == "a"
        with pytest.raises(asyncio.CancelledError):
            await first

    with consuming(world) as consumer:
        run(main())


def test_many_tasks_share_a_consumer_without_a_thread_of_their_own(world: World) -> None:
    keys = [f"k{number}" for number in range(50)]
    in_work: Counter[str] = Counter()
    done: Counter[str] = Counter()

    async def work() -> None:
        async for delivery in consumer:
            with delivery:
                in_work[delivery.key] += 1
                assert in_work[delivery.key] == 1, "two values of a key at a time"
                await asyncio.sleep(0)
                in_work[delivery.key] -= 1
                done[delivery.value] += 1

    async def main() -> None:
        before = threading.active_count()
        tasks = [asyncio.create_task(work()) for _ in range(200)]
        await asyncio.sleep(0)
        assert threading.active_count() == before
        for turn in range(10):
            world.send(*((key, f"{key}.{turn}") for key in keys))
            await asyncio.sleep(0.001)
        while not {f"{key}.9" for key in keys} <= done.keys():
            await asyncio.sleep(0.005)
        assert threading.active_count() == before
        await asyncio.to_thread(consumer.close)
        await asyncio.gather(*tasks)

    with consuming(world, max_in_work=100) as consumer:
        run(main())
    assert set(done.values()) == {1}


def test_a_message_does_not_wake_every_task_that_waits(world: World) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(consumer.acquire_async()) for _ in range(300)]
        await soon(lambda: consumer._shared._waiters.wanted == 300)
        looks = 0
        take_once = consumer._shared.acquire

        def count(*arguments: Any, **options: Any) -> Any:
            nonlocal looks
            looks += 1
            return take_once(*arguments, **options)

        consumer._shared.acquire = count  # type: ignore[method-assign]
        for number in range(10):
            world.send((f"k{number}", "x"))
            await soon(lambda number=number: sum(task.done() for task in tasks) == number + 1)
        assert looks < 100
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with consuming(world) as consumer:
        run(main())


def test_an_event_loop_that_was_closed_under_a_waiting_task_hurts_nobody(world: World) -> None:
    loop = asyncio.new_event_loop()
    with consuming(world) as consumer:
        waiting = loop.create_task(consumer.acquire_async())
        loop.run_until_complete(asyncio.sleep(0))
        assert consumer._shared._waiters.wanted == 1
        loop.close()
        world.send(("a", "a"))
        assert drain(consumer, 1) == ["a"]
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # the point of this test


def test_a_loop_that_breaks_gives_back_at_once_and_in_place_what_it_took_ahead(world: World) -> None:
    world.send(*((key, key) for key in "abcdef"))
    seen = []

    async def main() -> None:
        while len(seen) < 6:
            async for delivery in consumer:
                seen.append(delivery.value)
                delivery.ack()
                break
            assert consumer.stats.in_work == 0

    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        run(main())
        assert seen == list("abcdef")


def test_a_loop_whose_task_is_cancelled_gives_back_at_once_what_it_took_ahead(world: World) -> None:
    world.send(*((key, key) for key in "abc"))

    async def work() -> None:
        async for delivery in consumer:
            with delivery:
                await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        assert consumer.stats.in_work == 3
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert consumer.stats.in_work == 0

    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        run(main())
        assert drain(consumer, 3) == ["a", "b", "c"]


def test_a_message_given_back_by_a_loop_goes_to_a_caller_that_waits_for_it(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))

    async def main() -> None:
        async for delivery in consumer:
            delivery.ack()
            waiting = asyncio.create_task(consumer.acquire_async())
            await soon(lambda: consumer._shared._waiters.wanted == 1)
            break
        other = await waiting
        assert other is not None
        assert other.value == "b"

    with consuming(world, prefetch=2) as consumer:
        has_read_all(world, consumer)
        run(main())


def test_a_dropped_iteration_takes_no_lock(world: World) -> None:
    """Python drops it wherever it collects garbage: under the lock, and in the middle of a change, too."""
    world.send(("a", "a"), ("b", "b"))

    async def main() -> None:
        steps = aiter(consumer)
        (await anext(steps)).ack()
        with consumer._shared as core:
            before = core.ledger.assignment.available, core.ledger.in_work
            del steps
            assert (core.ledger.assignment.available, core.ledger.in_work) == before
        assert consumer.stats.available == 1

    with consuming(world, prefetch=2) as consumer:
        has_read_all(world, consumer)
        run(main())


@pytest.mark.parametrize("prefetch", [1, 3])
def test_an_iteration_goes_on_after_a_step_that_was_cancelled(world: World, prefetch: int) -> None:
    async def main() -> list[str]:
        steps = aiter(consumer)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(steps), 0.01)
        world.send(("a", "a"), ("b", "b"))
        return [(await anext(steps)).value, (await anext(steps)).value]

    with consuming(world, prefetch=prefetch) as consumer:
        assert run(main()) == ["a", "b"]


def test_an_iteration_that_is_closed_gives_back_what_it_took_ahead_and_ends(world: World) -> None:
    world.send(*((key, key) for key in "abc"))

    async def main() -> None:
        async with aclosing(aiter(consumer)) as steps:
            (await anext(steps)).ack()
            assert consumer.stats.in_work == 2
        assert consumer.stats.in_work == 0
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
        await steps.aclose()

    with consuming(world, prefetch=3) as consumer:
        has_read_all(world, consumer)
        run(main())
        assert drain(consumer, 2) == ["b", "c"]


def test_closing_an_iteration_ends_the_step_that_waits(world: World) -> None:
    async def main() -> None:
        steps = aiter(consumer)
        waiting = asyncio.create_task(anext(steps))
        await soon(lambda: consumer._shared._waiters.wanted == 1)
        await steps.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert consumer._shared._waiters.wanted == 0

    with consuming(world) as consumer:
        run(main())


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_tasks_that_share_an_iteration_get_each_message_once(world: World, prefetch: int) -> None:
    async def main() -> list[str]:
        steps = aiter(consumer)
        tasks = [asyncio.create_task(anext(steps)) for _ in range(4)]
        await soon(lambda: consumer._shared._waiters.present)
        world.send(*((key, key) for key in "abcd"))
        return [delivery.value for delivery in await asyncio.gather(*tasks)]

    with consuming(world, prefetch=prefetch) as consumer:
        assert sorted(run(main())) == ["a", "b", "c", "d"]


def test_a_task_that_waits_gets_what_another_has_set_aside_and_left(world: World) -> None:
    async def main() -> None:
        steps = aiter(consumer)
        waiting = asyncio.create_task(anext(steps))
        await soon(lambda: consumer._shared._waiters.present)
        world.send(*((key, key) for key in "abc"))
        eventually(lambda: consumer._shared.core.ledger.assignment.available == 3)  # with the event loop held up
        first = await anext(steps)
        second = await asyncio.wait_for(waiting, 20)
        assert [first.value, second.value] == ["a", "b"]
        await steps.aclose()

    with consuming(world, prefetch=3) as consumer:
        run(main())


def test_async_with_closes_without_holding_up_the_event_loop(world: World) -> None:
    world.send(("a", "a"))
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None)

    async def main() -> None:
        async with Consumer(world, definition, TEXT, commit_interval=60) as consumer:
            delivery = await consumer.acquire_async()
            assert delivery is not None
            delivery.ack()
        with pytest.raises(Closed):
            await consumer.acquire_async()

    run(main())
    assert world.committed_offsets() == {0: 1}


def test_with_durable_counts_too_nothing_waits_in_a_thread(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(20)))

    async def main() -> list[str]:
        before = threading.active_count()
        world.fail_next("commit", TransportError("not yet", code="NOT_COORDINATOR", retriable=True), times=3)
        deliveries = await consumer.acquire_many_async(20)
        assert threading.active_count() == before
        for delivery in deliveries:
            delivery.ack()
        return [delivery.value for delivery in deliveries]

    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        assert run(main()) == [str(number) for number in range(20)]
        settled_up(world, consumer)


@pytest.mark.parametrize("by", ["async for", "acquire_async"])
def test_other_tasks_have_their_turn_while_messages_are_at_hand(
    world: World, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(*((f"k{number}", "v") for number in range(300)))
    clock = itertools.count()  # each reading is a second later

    async def one_by_one(consumer: Consumer[str]) -> AsyncIterator[Delivery[str]]:
        while (delivery := await consumer.acquire_async()) is not None:
            yield delivery

    async def main() -> list[int]:
        turns, got = [0], 0

        async def other() -> None:
            while True:
                turns.append(got)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(other())
            async for delivery in consumer if by == "async for" else one_by_one(consumer):
                delivery.ack()
                got += 1
                if got == 300:
                    break
            beside.cancel()
        turns.append(got)
        return [after - before for before, after in itertools.pairwise(turns)]

    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.available == 300)
        monkeypatch.setattr("lvq_kafka.runtime.aio.time", SimpleNamespace(monotonic=lambda: next(clock)))
        monkeypatch.setattr("lvq_kafka.runtime.aio._SHARE", 10.0)
        assert max(run(main())) <= 12
