"""Message handling by a callback, in several threads."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.workers import Workers
from lvq_kafka.errors import ConfigError, StateError, Unauthorized
from tests.unit.consuming.world import Clock, World, consuming, drain, in_thread, make_world, settled_up, take
from tests.waiting import eventually


def stopping_after(consumer: Consumer[Any], count: int, handle: Callable[[Delivery[Any]], object]) -> Any:
    """Return a handler that closes the consumer after this many calls."""
    calls = Counter[str]()
    lock = threading.Lock()

    def handler(delivery: Delivery[Any]) -> object:
        with lock:
            calls["all"] += 1
            last = calls["all"] == count
        try:
            return handle(delivery)
        finally:
            if last:
                threading.Thread(target=consumer.close).start()

    return handler


def workers_of(consumer: Consumer[Any], handler: Callable[[Delivery[Any]], object], workers: int = 1) -> Workers[Any]:
    def source(stop: threading.Event) -> Iterator[Delivery[Any]]:
        return consumer._acquiring.iterate(consumer._settler, 1, stop)

    return Workers("q", source, handler, workers=workers, retry_delay=1.0, attempts=None)


def test_run_hands_over_every_message_and_acks_it(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(20)))
    seen: list[str] = []
    with consuming(world) as consumer, in_thread(lambda: consumer.run(lambda d: seen.append(d.value))) as outcome:
        settled_up(world, consumer)
        consumer.close()
    assert outcome == [None]
    assert seen == [str(number) for number in range(20)]


def test_run_in_several_threads_keeps_the_values_of_a_key_apart(world: World) -> None:
    keys = [f"k{number}" for number in range(10)]
    in_work: Counter[str] = Counter()
    clashes: list[str] = []
    last: dict[str, int] = {}
    threads: set[str] = set()
    lock = threading.Lock()

    def handle(delivery: Delivery[Any]) -> None:
        with lock:
            in_work[delivery.key] += 1
            if in_work[delivery.key] > 1 or int(delivery.value) <= last.get(delivery.key, -1):
                clashes.append(delivery.key)
            first = threading.current_thread().name not in threads
            threads.add(threading.current_thread().name)
        if first:
            together.wait(10)  # four work at the same time
        never.wait(0.002)
        with lock:
            in_work[delivery.key] -= 1
            last[delivery.key] = int(delivery.value)

    together, never = threading.Barrier(4), threading.Event()
    with consuming(world) as consumer, in_thread(lambda: consumer.run(handle, workers=4)) as outcome:
        for turn in range(30):
            world.send(*((key, str(turn)) for key in keys))
            never.wait(0.002)
        settled_up(world, consumer)
        consumer.close()
    assert outcome == [None]
    assert not clashes
    assert last == dict.fromkeys(keys, 29)
    assert len(threads) == 4


def test_a_handler_that_raises_has_its_message_again_after_a_while(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"), ("b", "b"))
    seen: list[tuple[str, int]] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append((delivery.value, delivery.delivery_count))
        if delivery.value == "a" and delivery.delivery_count < 3:
            raise ValueError("not yet")

    with consuming(world) as consumer:
        clock = Clock(consumer)
        with in_thread(lambda: consumer.run(stopping_after(consumer, 4, handle), retry_delay=1.0)):
            eventually(lambda: seen == [("a", 1), ("b", 1)])
            clock.go_on(1.0)
            eventually(lambda: consumer.stats.released == 2)
            assert seen == [("a", 1), ("b", 1), ("a", 2)]
            clock.go_on(1.0)
    assert seen == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    assert caplog.text.count("could not be handled") == 2
    assert "not yet" in caplog.text


def test_a_newer_value_does_not_wait_for_the_retry_of_an_older_one(world: World) -> None:
    world.send(("a", "a1"))
    seen: list[str] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append(delivery.value)
        if delivery.value == "a1":
            world.send(("a", "a2"))
            raise ValueError("bad")

    with consuming(world) as consumer:
        consumer.run(stopping_after(consumer, 2, handle), retry_delay=3600.0)
    assert seen == ["a1", "a2"]


def test_a_handler_may_settle_by_itself(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    seen: list[tuple[str, int]] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append((delivery.value, delivery.delivery_count))
        if delivery.value == "a":
            delivery.reject("bad")
        elif delivery.value == "b" and delivery.delivery_count == 1:
            delivery.release(delay=1.0)
        else:
            delivery.ack(wait=True, timeout=10)

    with consuming(world) as consumer:
        clock = Clock(consumer)
        with in_thread(lambda: consumer.run(stopping_after(consumer, 4, handle))):
            eventually(lambda: len(seen) == 3)
            clock.go_on(1.0)
        stats = consumer.stats
    assert seen == [("a", 1), ("b", 1), ("c", 1), ("b", 2)]
    assert (stats.rejected, stats.released, stats.acked) == (1, 1, 2)


def test_a_handler_that_settles_and_then_raises_is_logged_and_no_more(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"), ("b", "b"))

    def handle(delivery: Delivery[Any]) -> None:
        delivery.ack()
        if delivery.value == "a":
            raise ValueError("afterwards")

    with consuming(world) as consumer:
        consumer.run(stopping_after(consumer, 2, handle))
    assert "afterwards" in caplog.text
    assert world.committed_offsets() == {0: 2}


def test_the_last_of_max_deliveries_that_fails_is_rejected_with_its_error(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    world.topics.create("dead", partitions=1, config={})

    def handle(delivery: Delivery[Any]) -> None:
        if delivery.value == "a":
            raise ValueError("no such ticker")

    with (
        consuming(world, max_deliveries=2, dead_letters="dead") as consumer,
        in_thread(lambda: consumer.run(handle, retry_delay=0.01)),
    ):
        settled_up(world, consumer)
        consumer.close()
    (dead,) = world.records("dead")
    assert dict(dead.headers) == {
        "lvq-dlq-source": b"prices/0/0",
        "lvq-dlq-count": b"2",
        "lvq-dlq-reason": b"ValueError: no such ticker",
    }
    assert world.committed_offsets() == {0: 2}


def test_a_handler_whose_lock_was_lost_goes_on_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world()
    world.send(("a", "a"), ("b", "b"))
    seen: list[str] = []

    def handle(delivery: Delivery[Any]) -> None:
        seen.append(delivery.value)
        if len(seen) == 1:
            world.expel(world.members[0])
            eventually(lambda: delivery.settled)

    with consuming(world) as consumer:
        consumer.run(stopping_after(consumer, 3, handle))
    assert seen == ["a", "a", "b"]
    assert "may be handled again" in caplog.text


def test_a_consumer_that_fails_ends_the_run_with_its_error(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        with in_thread(lambda: consumer.run(lambda delivery: None, workers=3)) as outcome:
            settled_up(world, consumer)
            world.fail_next("poll", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
        assert isinstance(outcome[0], Unauthorized)


def test_run_on_a_closed_consumer_returns_at_once(world: World) -> None:
    with consuming(world) as consumer:
        consumer.close()
        consumer.run(lambda delivery: None)


def test_an_exit_in_a_handler_ends_the_run_and_releases_its_message(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))

    def handle(delivery: Delivery[Any]) -> None:
        raise SystemExit(3)

    with consuming(world) as consumer:
        with pytest.raises(SystemExit) as caught:
            consumer.run(handle)
        assert caught.value.code == 3
        assert drain(consumer, 2) == ["a", "b"]


@pytest.fixture
def exits_on_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("exits_on_sigterm")
@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_lets_the_handlers_finish_and_no_more_is_taken(
    world: World, number: signal.Signals, raised: type[BaseException]
) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    started, may_end = threading.Barrier(3), threading.Event()
    seen: list[str] = []

    def handle(delivery: Delivery[Any]) -> None:
        started.wait(10)
        assert may_end.wait(10)
        seen.append(delivery.value)

    def interrupt() -> None:
        started.wait(10)
        os.kill(os.getpid(), number)
        eventually(team._threads.stop.is_set)
        may_end.set()

    with consuming(world) as consumer:
        team = workers_of(consumer, handle, workers=2)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(raised):
            team.run()
        interrupter.join()
        assert sorted(seen) == ["a", "b"]
        assert take(consumer).value == "c"
        assert consumer.stats.acked == 2


def test_another_thread_can_let_the_handlers_finish_and_end_the_run(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    started, may_end = threading.Barrier(3), threading.Event()

    def handle(delivery: Delivery[Any]) -> None:
        started.wait(10)
        assert may_end.wait(10)

    with consuming(world) as consumer:
        with in_thread(lambda: consumer.run(handle, workers=2)) as ended:
            started.wait(10)
            consumer.pause()
            may_end.set()
            eventually(lambda: consumer.stats.in_work == 0)
            consumer.close()
        assert ended == [None]
        assert (consumer.stats.acked, consumer.stats.lost, consumer.stats.delivered) == (2, 0, 2)
    assert world.committed_offsets() == {0: 2}


def test_a_message_that_arrives_as_the_workers_stop_was_not_delivered(world: World) -> None:
    with consuming(world) as consumer:
        team = workers_of(consumer, lambda delivery: None)
        with in_thread(team.run):
            eventually(lambda: consumer._shared._waiters.wanted == 1)
            team._threads.stop.set()
            world.send(("a", "a"))
        assert consumer.stats.delivered == 0
        assert take(consumer).delivery_count == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("workers", 0), ("workers", "2"), ("retry_delay", -1.0), ("retry_delay", float("nan")), ("retry_delay", "1")],
)
def test_an_option_out_of_range_is_named(world: World, option: str, value: float) -> None:
    with consuming(world) as consumer, pytest.raises(ConfigError, match=option):
        consumer.run(lambda delivery: None, **{option: value})


@pytest.mark.parametrize("hidden", [False, True], ids=["async def", "a lambda around it"])
def test_a_handler_that_is_a_coroutine_is_refused_and_nothing_is_acked(world: World, hidden: bool) -> None:
    """It would return at once, and the message would be acked without being handled."""

    async def handle(delivery: Delivery[Any]) -> None:
        raise AssertionError("nobody awaits it")

    world.send(("a", "1"))
    with consuming(world) as consumer, consuming(world) as other:
        closing = threading.Timer(5, consumer.close)  # otherwise it would run forever
        closing.start()
        with pytest.raises(StateError if hidden else ConfigError, match="async for"):
            consumer.run((lambda delivery: handle(delivery)) if hidden else handle)
        closing.cancel()
        assert consumer.stats.acked == 0
        consumer.close()
        assert take(other).value == "1"


async def yields_in_asyncio(delivery: Delivery[Any]) -> Any:
    yield delivery


def yields(delivery: Delivery[Any]) -> Any:
    yield delivery


@pytest.mark.parametrize("hidden", [False, True], ids=["as it is", "a lambda around it"])
@pytest.mark.parametrize("handle", [yields, yields_in_asyncio])
def test_a_handler_that_is_a_generator_is_refused_and_nothing_is_acked(world: World, handle: Any, hidden: bool) -> None:
    """It would return at once, and the message would be acked without being handled."""
    world.send(("a", "1"))
    with consuming(world) as consumer:
        closing = threading.Timer(5, consumer.close)
        closing.start()
        with pytest.raises(StateError if hidden else ConfigError, match="do not yield"):
            consumer.run((lambda delivery: handle(delivery)) if hidden else handle)
        closing.cancel()
        assert consumer.stats.acked == 0


def test_a_handler_may_return_its_settlement(world: World) -> None:
    """A settlement can be awaited, too, but is not a coroutine."""
    world.send(("a", "1"))
    with consuming(world) as consumer:
        consumer.run(stopping_after(consumer, 1, lambda delivery: delivery.ack()))
        assert consumer.stats.acked == 1
