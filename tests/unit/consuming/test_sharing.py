"""Several consumers, and several threads of one consumer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost, TransportError
from tests.unit.consuming.world import (
    World,
    consuming,
    drain,
    has_read_all,
    make_world,
    nothing_comes,
    settled_up,
    take,
)
from tests.waiting import eventually


def test_two_consumers_share_a_queue_and_the_one_that_stays_takes_over() -> None:
    world = make_world(partitions=4)
    keys = [f"k{number}" for number in range(40)]
    world.send(*((key, key) for key in keys))
    with consuming(world) as one, consuming(world) as two:
        eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 2)
        held = take(two)
        two.close()
        with pytest.raises(LockLost):
            held.ack()
        eventually(lambda: len(one.stats.partitions) == 4)
        seen = Counter(drain(one, 40))
    assert seen == Counter(keys)


def test_a_partition_that_moves_ends_the_locks_and_the_block_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world) as one:
        first, second = take(one), take(one)
        with consuming(world) as two:
            moved, kept = eventually(
                lambda: (
                    (first, second)
                    if first.state is MessageState.LOST
                    else (second, first)
                    if second.state is MessageState.LOST
                    else ()
                )
            )
            with pytest.raises(LockLost):
                moved.ack()
            with pytest.raises(LockLost):
                moved.release()
            with moved:
                pass
            assert "may be handled again" in caplog.text
            assert one.stats.lost == 1
            kept.ack()
            assert take(two).value == moved.value


def test_a_holder_that_finishes_within_the_grace_keeps_its_ack_through_a_rebalance() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, revoke_grace=30.0) as one:
        deliveries = [take(one), take(one)]
        with consuming(world) as two:
            eventually(lambda: any(not part.open for part in one._shared.core.ledger._partitions.values()))
            assert one.acquire(0) is None
            for delivery in deliveries:
                delivery.ack(wait=True, timeout=10)
            eventually(lambda: len(two.stats.partitions) == 1)
            assert nothing_comes(two)
    assert world.committed_offsets() == {0: 1, 1: 1}


def test_a_consumer_that_was_expelled_loses_its_locks_and_goes_on(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.expel(world.members[0])
        eventually(lambda: held.state is MessageState.LOST)
        with pytest.raises(LockLost):
            held.ack()
        assert drain(consumer, 1) == ["a"]


def test_a_consumer_commits_nothing_for_partitions_that_it_has_lost(world: World) -> None:
    """A group without members accepts a commit from anybody, even from a removed member."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack()
        held = take(consumer)
        (member,) = world.members
        commit = member.commit
        sent: list[Any] = []

        def watched(commits: Any) -> None:
            sent.append(commits)
            commit(commits)

        member.commit = watched  # type: ignore[method-assign]
        world.expel(member)
        eventually(lambda: held.state is MessageState.LOST)
        assert sent == []


def test_a_consumer_that_is_expelled_while_it_is_assigned_begins_again(world: World) -> None:
    world.send(("a", "a1"))
    ask = world.logs.start_offsets

    def expel_and_ask(topic: str, **options: Any) -> dict[int, int]:
        world.logs.start_offsets = ask  # type: ignore[method-assign]
        world.expel(world.members[0])
        return ask(topic, **options)

    world.logs.start_offsets = expel_and_ask  # type: ignore[method-assign]
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a1"]


def test_an_ack_that_is_waited_for_says_when_the_partition_was_lost_before_it_was_durable(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        take(consumer)
        second = take(consumer)
        result: list[BaseException] = []

        def ack() -> None:
            try:
                second.ack(wait=True, timeout=10)
            except LockLost as error:
                result.append(error)

        world.fail_next("commit", TransportError("not now", code="NOT_COORDINATOR", retriable=True), times=1000)
        waiter = threading.Thread(target=ack)
        waiter.start()
        eventually(lambda: second.state is MessageState.ACKED)
        world.expel(world.members[0])
        waiter.join(10)
        world._state._failures.clear()
        assert result


def test_several_threads_work_on_one_consumer_one_value_of_a_key_at_a_time(world: World) -> None:
    keys = [f"k{number}" for number in range(20)]
    in_work: Counter[str] = Counter()
    clashes: list[str] = []
    done: Counter[str] = Counter()
    lock = threading.Lock()
    with consuming(world) as consumer:

        def work() -> None:
            for delivery in consumer:
                with delivery:
                    with lock:
                        in_work[delivery.key] += 1
                        if in_work[delivery.key] > 1:
                            clashes.append(delivery.key)
                    done[delivery.value] += 1
                    with lock:
                        in_work[delivery.key] -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            world.send(*((key, f"{key}.{turn}") for key in keys))
        settled_up(world, consumer)
        stats = consumer.stats
        consumer.close()
        for thread in threads:
            thread.join(10)
    assert not clashes
    assert {f"{key}.19" for key in keys} <= set(done), "the last value of a key was not delivered"
    assert set(done.values()) == {1}
    assert (stats.acked, stats.in_work, stats.available) == (stats.delivered, 0, 0)


def test_acquire_waits_while_as_many_as_allowed_are_in_work(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, max_in_work=2) as consumer:
        first = take(consumer)
        take(consumer)
        assert nothing_comes(consumer)
        first.ack()
        assert take(consumer).value == "c"


def test_reading_goes_on_while_a_message_is_worked_on(world: World) -> None:
    world.send(("a", "a0"))
    with consuming(world) as consumer, take(consumer):
        for number in range(1, 50):
            world.send(("a", f"a{number}"), ("b", f"b{number}"))
        has_read_all(world, consumer)
        assert consumer.stats.available == 2


def test_a_revocation_does_not_last_for_as_long_as_holders_of_other_partitions_go_on_acking() -> None:
    world = make_world(partitions=2)
    for partition in (0, 1):
        world.send(*((f"{partition}-{number}", "x") for number in range(100)), partition=partition)
    with consuming(world, revoke_grace=0.02, commit_interval=60) as one:
        held = [take(one) for _ in range(200)]
        (member,) = world.members
        commit, sent = member.commit, 0

        def commit_and_ack(commits: Mapping[int, Commit]) -> None:
            """Commit, then ack the next message of a partition that stays, and request its future."""
            nonlocal sent
            sent += 1
            commit(commits)
            kept = [delivery for delivery in held if not delivery.settled and delivery.position.partition in staying]
            if kept:
                kept[0].ack().future()

        staying = {0, 1}
        member.commit = commit_and_ack  # type: ignore[method-assign]
        held[0].ack().future()
        with consuming(world) as two:
            eventually(lambda: len(two.stats.partitions) == 1)
            assert sent < 50
