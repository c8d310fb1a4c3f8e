"""Sessions of a consumer: threads, workers, asyncio tasks, and those that are opened (R36)."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka.consuming import idle_warnings
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.consumer_session import Session
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.message_groups import GroupMode, Groups
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import Closed, LockLost
from tests.unit.consuming.world import (
    TOPIC,
    Clock,
    World,
    consuming,
    has_read_all,
    in_thread,
    make_world,
    settled_up,
    take,
    values_of,
)
from tests.waiting import eventually

GROUPED = QueueDefinition(name="q", topic=TOPIC, key_header=None, groups=Groups())


def send(world: World, *messages: str, partition: int = 0) -> None:
    """Send messages such as ``"a:one"``: the key, which is the value, too, and the group."""
    for message in messages:
        key, _, group = message.partition(":")
        world.write(
            TOPIC, key.encode(), key.encode(), [("lvq-group", group.encode())] if group else [], partition=partition
        )


@contextmanager
def grouped(world: World, mode: GroupMode = "sticky", **options: Any) -> Iterator[Consumer[Any]]:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None, groups=Groups(mode=mode))
    with consuming(world, definition=definition, **options) as consumer:
        has_read_all(world, consumer)
        yield consumer


def get(session: Session[Any]) -> Delivery[Any]:
    delivery = session.acquire(10)
    assert delivery is not None
    return delivery


def wanted(consumer: Consumer[Any]) -> int:
    return consumer._shared._waiters.wanted


def test_each_thread_is_a_session_until_it_ends(world: World) -> None:
    send(world, "a:one", "b:one", "c:two")
    with grouped(world) as consumer:
        go_on = threading.Event()

        def work() -> str:
            with take(consumer) as delivery:
                value: str = delivery.value
            assert go_on.wait(10)
            return value

        with in_thread(work) as outcome:
            eventually(lambda: consumer.stats.acked == 1)
            with take(consumer) as delivery:
                assert delivery.value == "c"
            assert consumer.acquire(0.05) is None
            assert (consumer.stats.sessions, consumer.stats.pinned, consumer.stats.groups) == (2, 2, 1)
            go_on.set()
        assert outcome == ["a"]
        with take(consumer) as delivery:
            assert delivery.value == "b"
        eventually(lambda: consumer.stats.sessions == 1)


def test_a_message_held_by_a_thread_that_ended_keeps_its_group(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world) as consumer:
        with in_thread(lambda: take(consumer)) as outcome:
            pass
        (held,) = outcome
        assert isinstance(held, Delivery)
        eventually(lambda: consumer.stats.sessions == 0)
        assert consumer.acquire(0.05) is None
        held.ack()
        assert take(consumer).value == "b"


def test_workers_are_sessions_and_no_group_is_in_two_of_them(world: World) -> None:
    names = [f"g{number}" for number in range(6)]
    send(world, *(f"{name}-{turn}:{name}" for turn in range(10) for name in names))
    at_work: dict[str, int] = defaultdict(int)
    seen: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()
    clashes: list[str] = []

    with grouped(world, "shared") as consumer:

        def handle(delivery: Delivery[str]) -> None:
            name, _, turn = delivery.value.partition("-")
            with lock:
                at_work[name] += 1
                clashes.extend([name] if at_work[name] > 1 else [])
                seen[name].append(int(turn))
            with lock:
                at_work[name] -= 1

        with in_thread(lambda: consumer.run(handle, workers=4)):
            settled_up(world, consumer)
            consumer.close()
    assert not clashes
    assert seen == {key: list(range(10)) for key in names}


def test_only_a_caller_who_can_be_served_is_woken(world: World) -> None:
    with grouped(world) as consumer:
        one, two = consumer.session(), consumer.session()
        send(world, "a:one", "b:two")
        get(one).ack()
        get(two).ack()
        woken: list[str] = []

        def wait(name: str, session: Session[Any]) -> str:
            delivery = get(session)
            woken.append(name)
            value: str = delivery.value
            return value

        with in_thread(lambda: wait("one", one)) as first:
            eventually(lambda: wanted(consumer) == 1)
            with in_thread(lambda: wait("two", two)) as second:
                eventually(lambda: wanted(consumer) == 2)
                send(world, "c:two")
                eventually(lambda: woken == ["two"])
                assert wanted(consumer) == 1
                send(world, "d:one")
        assert (first, second) == (["d"], ["c"])


def test_a_waiter_is_woken_when_a_group_is_free_again(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world, "shared") as consumer, consumer.session() as other:
        held = take(consumer)
        with in_thread(lambda: get(other).value) as outcome:
            eventually(lambda: wanted(consumer) == 1)
            held.ack()
        assert outcome == ["b"]


def test_a_waiter_is_woken_when_the_session_of_its_group_ends(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world) as consumer:
        session = consumer.session()
        get(session).ack()
        with in_thread(lambda: take(consumer).value) as outcome:
            eventually(lambda: wanted(consumer) == 1)
            session.close()
        assert outcome == ["b"]
        assert session.closed


@pytest.mark.parametrize("grouping", [True, False])
def test_a_closed_session_gets_nothing_and_its_callers_stop(world: World, grouping: bool) -> None:
    with grouped(world) if grouping else consuming(world) as consumer:
        session = consumer.session()
        with in_thread(lambda: session.acquire()) as waiting, in_thread(lambda: list(session)) as iterating:
            eventually(lambda: wanted(consumer) == 2)
            session.close()
            session.close()
        (failure,) = waiting
        assert isinstance(failure, Closed)
        assert iterating == [[]]
        with pytest.raises(Closed, match="session"):
            session.acquire_many(2, 0)
        send(world, "a:one")
        assert take(consumer).value == "a"


def test_without_groups_sessions_make_no_difference(world: World) -> None:
    send(world, "a:one", "b:one")
    with consuming(world) as consumer, consumer.session() as one, consumer.session() as two:
        assert [get(one).value, get(two).value] == ["a", "b"]
        assert (consumer.stats.sessions, consumer.stats.groups, consumer.stats.pinned) == (0, 0, 0)


def test_a_session_that_is_dropped_ends(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world) as consumer:
        session = consumer.session()
        for delivery in session:
            delivery.ack()
            break
        assert consumer.acquire(0.05) is None
        del session, delivery
        gc.collect()
        assert take(consumer).value == "b"


def test_an_iteration_keeps_its_session(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world) as consumer:
        iteration = iter(consumer.session())
        next(iteration).ack()
        gc.collect()
        assert consumer.acquire(0.1) is None
        assert next(iteration).value == "b"


def test_a_prefetched_message_that_was_not_yielded_pins_nothing(world: World) -> None:
    send(world, "a:one", "b:two", "c:three")
    with grouped(world, prefetch=3) as consumer:
        session = consumer.session()
        for delivery in session:
            delivery.ack()
            break
        gc.collect()
        assert consumer.stats.pinned == 1
        assert values_of(consumer.acquire_many(3, 10)) == ["b", "c"]


def test_asyncio_tasks_are_one_session_unless_they_open_their_own(world: World) -> None:
    send(world, "a:one", "b:one", "c:one")

    async def main() -> list[str]:
        first = await consumer.acquire_async(10)
        assert first is not None
        async with consumer.session() as session:
            assert await session.acquire_async(0.05) is None
        second = await asyncio.create_task(consumer.acquire_async(10))
        assert second is not None
        async for third in consumer:
            return [first.value, second.value, third.value]
        return []

    with grouped(world) as consumer:
        assert asyncio.run(main()) == ["a", "b", "c"]
        assert consumer.stats.sessions == 1


def test_an_async_session_iterates_until_it_is_closed(world: World) -> None:
    send(world, "a:one", "b:one")

    async def main() -> list[str]:
        seen = []
        async with consumer.session() as session:
            async for delivery in session:
                seen.append(delivery.value)
                await delivery.ack()
                if len(seen) == 2:
                    session.close()
        return seen

    with grouped(world) as consumer:
        assert asyncio.run(main()) == ["a", "b"]
        eventually(lambda: consumer.stats.sessions == 0)


@pytest.mark.parametrize("mode", ["sticky", "shared"])
def test_a_group_waits_for_a_message_that_was_released_with_a_delay(world: World, mode: GroupMode) -> None:
    send(world, "a:one", "b:one", "c:two")
    with grouped(world, mode) as consumer:
        clock = Clock(consumer)
        take(consumer).release(delay=5)
        assert take(consumer).value == "c"
        assert consumer.acquire(0.05) is None
        clock.go_on(6)
        assert [take(consumer).value, take(consumer).value] == ["a", "b"]


def test_a_group_waits_for_the_value_of_a_key_in_work(world: World) -> None:
    send(world, "a:one", "b:two")
    with grouped(world) as consumer:
        held = take(consumer)
        send(world, "a:one", "c:one")
        has_read_all(world, consumer)
        assert take(consumer).value == "b"
        assert consumer.acquire(0.05) is None
        held.ack()
        assert [take(consumer).value, take(consumer).value] == ["a", "c"]


def test_a_message_delivered_often_enough_lets_its_group_go_on(world: World) -> None:
    send(world, "a:one", "b:one")
    with grouped(world, max_deliveries=1) as consumer, consumer.session() as other:
        take(consumer).release()
        assert take(consumer).value == "b"
        assert other.acquire(0.05) is None
        assert consumer.stats.rejected == 1


def test_a_lock_that_times_out_leaves_a_sticky_group_where_it_is(world: World) -> None:
    send(world, "a:one")
    with grouped(world, lock_timeout=5.0) as consumer, consumer.session() as other:
        clock = Clock(consumer)
        take(consumer)
        clock.go_on(6)
        eventually(lambda: consumer.stats.timed_out == 1)
        assert other.acquire(0.05) is None
        assert take(consumer).value == "a"


def test_counted_messages_are_for_the_session_that_they_were_counted_for(world: World) -> None:
    send(world, "a:one", "b:two")
    with grouped(world, durable_counts=True) as consumer, consumer.session() as other:
        with in_thread(lambda: get(other)) as outcome:
            eventually(lambda: wanted(consumer) == 0 and consumer.stats.delivered == 1)
        (delivery,) = outcome
        assert isinstance(delivery, Delivery)
        assert delivery.value == "a"
        assert take(consumer).value == "b"
        assert world.committed_map().counts == {0: 1, 1: 1}


@pytest.mark.parametrize("messages", [["a:one", "b:one"], ["a:one", "b:one", "c:two", "d:three"]])
def test_messages_are_counted_with_as_many_looks_however_many_sessions_wait(
    world: World, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """One session holds a message of its group, whose next message is for nobody else."""
    send(world, *messages)
    with grouped(world, durable_counts=True, commit_interval=60) as consumer, consumer.session() as holder:
        held = get(holder)
        with consumer._shared as core:
            groups, ledger, now = core.ledger.groups, core.ledger, consumer._shared.clock()
            assert groups is not None
            line = {groups.open(): 1 for _ in range(1000)}
            looked: list[object] = []
            reserve = ledger.reserve
            monkeypatch.setattr(ledger, "reserve", lambda session: (looked.append(session), reserve(session))[1])
            assert core.hand_out.acquire(1, now, groups.open(), wanted=lambda: line) == ([], [])
            counted = [session for session in line if core.hand_out._reservations.number_for(session)]  # type: ignore[union-attr]
            assert counted == list(line)[: len(messages) - 2], "those who came first get what is free"
        assert len(looked) <= len(messages)
        held.ack()


def test_a_message_counted_for_a_session_that_never_comes_goes_to_another(world: World) -> None:
    send(world, "a:one")
    with grouped(world, durable_counts=True, commit_interval=60) as consumer, consumer.session() as other:
        clock = Clock(consumer)
        assert other.acquire(0) is None
        eventually(lambda: world.committed_map().counts == {0: 1})
        clock.go_on(1)
        delivery = take(consumer)
        assert (delivery.value, delivery.delivery_count, delivery.redelivered) == ("a", 1, False)


def test_a_caller_that_waits_is_woken_for_a_message_that_another_session_has_left(world: World) -> None:
    send(world, "a:one")
    with grouped(world, durable_counts=True, commit_interval=60) as consumer, consumer.session() as other:
        clock = Clock(consumer)
        assert other.acquire(0) is None
        with in_thread(lambda: get(consumer)) as outcome:
            eventually(lambda: wanted(consumer) == 1 and world.committed_map().counts == {0: 1})
            clock.go_on(1)
        (delivery,) = outcome
        assert isinstance(delivery, Delivery)
        assert delivery.value == "a"


def test_a_message_counted_for_a_session_that_ends_is_given_back(world: World) -> None:
    send(world, "a:one")
    with grouped(world, durable_counts=True, commit_interval=60) as consumer:
        with consumer.session() as other:
            assert other.acquire(0) is None
            eventually(lambda: world.committed_map().counts == {0: 1})
        assert consumer.stats.in_work == 0
        delivery = take(consumer)
        assert (delivery.value, delivery.delivery_count, delivery.redelivered) == ("a", 1, False)


def test_a_transaction_of_a_session_takes_its_messages(world: World) -> None:
    send(world, "a:one", "b:one", "c:two")
    with world.producer() as producer, grouped(world) as consumer, consumer.session() as session:
        with session.transaction(producer) as tx:
            (first,) = tx.acquire_many(1, 10)
            producer.put(first.key, first.value)
            first.ack()
            assert take(consumer).value == "c"
            assert consumer.acquire(0.05) is None
        assert consumer.acquire(0.05) is None
        assert get(session).value == "b"
        assert world.texts("out") == ["a"]


def test_a_partition_that_goes_takes_its_messages_out_of_their_groups() -> None:
    world = make_world(partitions=2)
    send(world, "a:one", partition=0)
    send(world, "b:two", partition=1)
    with grouped(world) as first:
        session = first.session()
        held = [get(session), get(session)]
        kept, moved = held
        with consuming(world, definition=GROUPED) as second:
            eventually(lambda: len(first.stats.partitions) == len(second.stats.partitions) == 1)
            assert take(second).value in {"a", "b"}
            if kept.state is MessageState.LOST:
                kept, moved = moved, kept
            with pytest.raises(LockLost):
                moved.ack()
            kept.ack()
            session.close()
            send(world, f"c:{'one' if kept.value == 'a' else 'two'}", partition=kept.position.partition)
            assert take(first).value == "c"


def test_callers_kept_waiting_by_groups_of_others_are_no_secret(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(idle_warnings, "_UNSETTLED", 0.2)
    monkeypatch.setattr(idle_warnings, "_TURN", 0.01)
    send(world, "a:one", "b:one")
    with grouped(world) as consumer:
        session = consumer.session()
        get(session).ack()
        with in_thread(lambda: take(consumer).value) as outcome:
            eventually(lambda: "message groups of other sessions" in consumer.stats.trouble)
            session.close()
        assert outcome == ["b"]
        eventually(lambda: consumer.stats.trouble == "")
    assert caplog.text.count("message groups of other sessions") == 1
