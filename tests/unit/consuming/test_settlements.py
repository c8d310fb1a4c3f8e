"""The outcome of an ack: waited for, awaited or called back, before and after its partition or consumer is gone."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from types import SimpleNamespace

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost, OutcomeUnknown, ReaderFailed, StateError, TransportError, Unauthorized
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
)
from tests.waiting import eventually


def test_a_settlement_nobody_asks_for_becomes_durable_all_the_same(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        settlement = take(consumer).ack()
        settled_up(world, consumer)
        eventually(settlement.done)


def test_the_result_is_there_when_the_group_holds_the_ack(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        settlement = take(consumer).ack()
        settlement.result(10)
        assert world.committed_offsets() == {0: 1}
        assert settlement.done()


def test_an_ack_that_somebody_waits_for_does_not_wait_for_the_commit_interval(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        Clock(consumer)  # no lease expires, which would cause a commit too
        take(consumer).ack()
        assert world.committed_offsets() == {0: 0}, "nobody has asked"
        take(consumer).ack().future().result(10)
        assert world.committed_offsets() == {0: 2}


def test_a_settlement_asked_often_waits_once(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        settlement = acked_in_an_outage(world, consumer)
        assert repr(settlement) == "<Settlement of offset 0 of partition 0, not asked for>"
        assert not any(settlement.done() for _ in range(100))
        assert repr(settlement) == "<Settlement of offset 0 of partition 0, waited for>"
        assert sum(len(part._waiters) for part in consumer._shared.core.commits._partitions.values()) == 1
        world.reconnect()
        settlement.result(10)
        assert repr(settlement) == "<Settlement of offset 0 of partition 0, decided>"


def acked_in_an_outage(world: World, consumer: Consumer[str]) -> Settlement:
    delivery = take(consumer)
    world.disconnect()
    return delivery.ack()


def test_a_settlement_can_be_awaited_by_many_tasks(world: World) -> None:
    world.send(("a", "a"))

    async def work() -> None:
        delivery = await consumer.acquire_async(10)
        assert delivery is not None
        settlement = delivery.ack()

        async def wait() -> None:
            await settlement

        await asyncio.gather(*(wait() for _ in range(10)))

    with consuming(world, commit_interval=60) as consumer:
        asyncio.run(work())
        assert world.committed_offsets() == {0: 1}


def test_an_await_that_is_cancelled_leaves_the_ack_and_the_consumer_alone(world: World) -> None:
    world.send(("a", "a"))

    async def work() -> None:
        delivery = await consumer.acquire_async(10)
        assert delivery is not None
        world.disconnect()
        settlement = delivery.ack()

        async def wait() -> None:
            await settlement

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.05)
        assert not settlement.future().cancel()
        world.reconnect()
        await asyncio.wait_for(wait(), 10)

    with consuming(world) as consumer:
        asyncio.run(work())
        world.send(("b", "b"))
        assert drain(consumer, 1) == ["b"]


def test_futures_can_be_waited_for_together(world: World) -> None:
    world.send(*((f"k{number}", "x") for number in range(50)))
    with consuming(world, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        deliveries = consumer.acquire_many(50, 10)
        before = consumer.stats.commits
        with consumer._shared._changed:  # so that none is committed before all are requested
            futures = [delivery.ack().future() for delivery in deliveries]
        done, late = wait_for_all(futures, 10)
        assert (len(done), len(late)) == (50, 0)
        assert consumer.stats.commits - before == 1


def test_a_callback_comes_without_the_lock_and_may_use_the_consumer(world: World) -> None:
    world.send(("a", "a1"))
    called = threading.Event()
    seen: list[object] = []

    def call_back(future: Future[None]) -> None:
        def look() -> None:
            seen.append(consumer.stats.acked)

        other = threading.Thread(target=look)  # would wait forever if this thread held the lock
        other.start()
        other.join(5)
        seen.append(consumer.acquire(0))
        seen.append(future.result(0))
        called.set()

    with consuming(world) as consumer:
        take(consumer).ack().add_done_callback(call_back)
        assert called.wait(10)
        assert seen == [1, None, None]


@pytest.mark.parametrize("wait", ["ack", "result", "reject", "acquire", "transaction"])
def test_a_callback_that_would_wait_for_its_own_thread_is_told_so(world: World, wait: str) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("a", "a"), ("b", "b"))
    with world.producer() as producer, consuming(world, dead_letters="dead") as consumer:
        first, second = consumer.acquire_many(2, 10)
        outcome: Future[object] = Future()

        def call_back(_: object) -> None:
            try:
                if wait == "acquire":
                    outcome.set_result(consumer.acquire())
                elif wait == "transaction":
                    with consumer.transaction(producer) as transaction:
                        outcome.set_result(transaction.enlist(second).ack())
                elif wait == "reject":
                    outcome.set_result(second.reject().result())
                elif wait == "result":
                    outcome.set_result(second.ack().result())
                else:
                    outcome.set_result(second.ack(wait=True))
            except StateError as error:
                outcome.set_exception(error)

        first.ack().add_done_callback(call_back)
        with pytest.raises(StateError, match="its own thread"):
            outcome.result(10)
        if wait in ("ack", "result", "reject"):
            settled_up(world, consumer)  # the message is settled anyway


def test_a_callback_may_close_the_consumer(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        closed: list[None] = []
        take(consumer).ack().add_done_callback(lambda _: closed.append(consumer.close()))
        eventually(lambda: closed and not consumer._thread._thread.is_alive())
        assert world.committed_offsets() == {0: 1}


def test_a_callback_that_raises_is_logged_and_ends_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer, caplog.at_level(logging.ERROR, "concurrent.futures"):
        take(consumer).ack().add_done_callback(lambda _: 1 / 0)
        eventually(lambda: "ZeroDivisionError" in caplog.text)
        world.send(("b", "b"))
        assert drain(consumer, 1) == ["b"]


def test_a_callback_that_ends_its_thread_is_told_to_all_who_wait_there(world: World) -> None:
    """`sys.exit` in a callback, for example: nobody may wait for a consumer that is gone."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        first, second = take(consumer), take(consumer)
        with in_thread(consumer.acquire) as waiting:
            ends = first.ack().future()
            ends.add_done_callback(lambda _: sys.exit(3))
            told = second.ack().future()
        assert isinstance(waiting[0], ReaderFailed)
        assert isinstance(waiting[0].reason, SystemExit)
        assert told.exception(10) is None or isinstance(told.exception(), ReaderFailed)
    assert world.committed_offsets() == {0: 2}


def test_a_settlement_resolves_when_the_final_commit_at_close_has_stored_it(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        settlement = take(consumer).ack()
    settlement.result(0)
    assert settlement.done()


def test_a_settlement_says_so_when_the_final_commit_at_close_has_failed(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        settlement = take(consumer).ack()
        world.fail_next("commit", TransportError("no", code="REBALANCE_IN_PROGRESS", retriable=True), times=1000)
    with pytest.raises(LockLost, match="before this was committed"):
        settlement.result(0)
    world._state._failures.clear()
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a"]


def test_a_settlement_of_a_partition_that_was_revoked_is_durable_by_the_final_commit() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, commit_interval=60) as one:
        settlements = [take(one).ack(), take(one).ack()]
        with consuming(world) as two:
            eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 1)
            for settlement in settlements:
                settlement.result(10)
            assert (nothing_comes(one), nothing_comes(two)) == (True, True)


def test_a_settlement_of_a_partition_that_was_lost_says_that_it_may_come_again(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        settlement = take(consumer).ack()
        world.expel(world.members[0])
        eventually(lambda: not consumer._shared.core.generations.is_current(0, 1))
        with pytest.raises(LockLost, match="before this was committed"):
            settlement.result(10)
        assert drain(consumer, 1) == ["a"]


def test_one_that_waits_learns_that_the_partition_was_lost(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        world.fail_next("commit", TransportError("not now", code="NOT_COORDINATOR", retriable=True), times=1000)
        future = delivery.ack().future()
        world.expel(world.members[0])
        assert isinstance(future.exception(10), LockLost)


def test_one_that_waits_learns_that_the_consumer_has_failed(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        world.fail_next("commit", Unauthorized("no", code="GROUP_AUTHORIZATION_FAILED"), times=10)
        error = delivery.ack().future().exception(10)
        assert isinstance(error, ReaderFailed)
        assert isinstance(error.__cause__, Unauthorized)


def test_a_result_that_does_not_come_in_time_is_unknown_and_may_come_later(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        settlement = acked_in_an_outage(world, consumer)
        with pytest.raises(OutcomeUnknown, match=r"offset 0 of partition 0.*may become durable later"):
            settlement.result(0.02)
        world.reconnect()
        settlement.result(10)


def test_a_rejection_is_a_settlement_too(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        delivery.reject("broken").result(10)
        assert delivery.state is MessageState.REJECTED
        assert world.committed_offsets() == {0: 1}


def test_an_ack_of_a_message_that_was_replaced_is_durable_as_soon_as_that_is(
    world: World,
) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "a2"))
        eventually(lambda: consumer._shared.core.durable[0].base == 1)
        first.ack().result(0)


def test_a_restart_brings_what_was_not_acked_and_nothing_else(world: World) -> None:
    """Acks out of order: the commit's text lists everything done above the lowest message that is not."""
    world.send(*((f"k{number}", str(number)) for number in range(10)))
    with consuming(world) as consumer:
        held = consumer.acquire_many(10, 10)
        for delivery in held:
            if delivery.position.offset in (1, 2, 5, 9):
                delivery.ack()
    assert world.committed_offsets() == {0: 0}
    assert world.committed_map().runs == (1, 2, 2, 1, 3, 1)
    with consuming(world) as consumer:
        again = consumer.acquire_many(10, 10)
        assert [delivery.position.offset for delivery in again] == [0, 3, 4, 6, 7, 8]
        assert all(delivery.redelivered for delivery in again)
        for delivery in again:
            delivery.ack()
    assert world.committed_offsets() == {0: 10}


def test_a_callback_that_holds_the_consumer_up_is_told_of_with_the_remedy(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed = [0.0]
    clocks = SimpleNamespace(monotonic=lambda: sum(elapsed), clock_gettime=time.clock_gettime)
    monkeypatch.setattr("lvq_kafka.consuming.settlement.time", clocks)
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        first, second = take(consumer), take(consumer)
        with consumer._shared._changed:  # so that it is not decided earlier
            first.ack().add_done_callback(lambda future: elapsed.append(0.9))
        eventually(lambda: len(elapsed) == 2)
        with consumer._shared._changed:
            second.ack().add_done_callback(lambda future: elapsed.append(1.5))
        eventually(lambda: "a settlement callback took 1.5 s" in caplog.text)
        assert "another thread" in caplog.text
        assert caplog.text.count("a settlement callback") == 1
