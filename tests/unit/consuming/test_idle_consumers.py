"""A process that was stopped or starved: it hands nothing out until the group is known to still count on it.

The same holds for a process that was cut off; see ``tests/unit/kafka/test_cut_off_member.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import TransportError
from tests.unit.consuming.world import (
    World,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    settled_up,
    take,
)
from tests.waiting import eventually

NOT_NOW = TransportError("not now", code="NOT_COORDINATOR", retriable=True)


def stand_still(consumer: Consumer[str], seconds: float = 60.0) -> None:
    """Advance the clock as if this process had not run for this long, as from SIGSTOP to SIGCONT."""
    shared = consumer._shared
    with shared._changed:
        clock = shared.clock
        shared.clock = lambda: clock() + seconds


def may_hand_out(consumer: Consumer[str]) -> bool:
    """Return whether messages wait and the group has recently confirmed that it counts on the consumer."""
    return bool(consumer.stats.available) and not consumer.stats.suspended


def test_it_goes_on_when_the_group_takes_its_commit(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        held = take(consumer)
        before = consumer.stats.commits
        stand_still(consumer)
        eventually(lambda: "stood still for 6" in caplog.text)
        assert take(consumer).value == "b"
        assert consumer.stats.commits > before
        held.ack(wait=True, timeout=10)


def test_nothing_is_handed_out_before(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        settled_below_commits(world, consumer)
        world.fail_next("commit", NOT_NOW, times=1000)
        stand_still(consumer)
        eventually(lambda: consumer.stats.suspended)
        assert consumer.acquire(0.4) is None
        world._state._failures.clear()
        assert drain(consumer, 1) == ["a"]


def settled_below_commits(world: World, consumer: Consumer[str]) -> None:
    has_read_all(world, consumer)
    core = consumer._shared.core
    eventually(lambda: not core._unanswered and not any(part.due for part in core.commits._partitions.values()))


def test_a_caller_that_acquires_while_the_thread_stands_still_gets_nothing(world: World) -> None:
    """The holders' side decides by itself: the thread may not have noticed yet that something is wrong."""
    world.send(("a", "a"))
    with consuming(world) as consumer:
        eventually(lambda: may_hand_out(consumer))
        with consumer._shared._changed:
            stand_still(consumer)
            assert consumer.acquire(0) is None
        assert take(consumer).value == "a"


def test_one_who_waits_is_woken_when_it_is_proven(world: World) -> None:
    with consuming(world) as consumer, in_thread(lambda: take(consumer).value) as outcome:
        eventually(lambda: consumer._shared._waiters.wanted == 1)
        world.fail_next("commit", NOT_NOW)
        stand_still(consumer)
        world.send(("a", "a"))
    assert outcome == ["a"]


def test_a_message_counted_for_a_caller_that_has_left_waits_for_the_proof_and_has_it_made() -> None:
    world = make_world()
    world.send(("a", "a"))
    with consuming(world, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        assert consumer.acquire(0) is None
        eventually(lambda: consumer.stats.available == 0)
        settled_below_commits(world, consumer)
        stand_still(consumer)
        assert take(consumer).value == "a"


def test_one_that_was_put_out_meanwhile_loses_its_locks_and_begins_anew() -> None:
    world = make_world()
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.expel(world.members[0])
        stand_still(consumer)
        eventually(lambda: held.state is MessageState.LOST)
        assert drain(consumer, 1) == ["a1"]
        assert not consumer.stats.suspended


def test_a_zombie_is_not_believed_before_it_knows_and_the_newer_value_is_not_stepped_back_behind() -> None:
    """Another consumer has taken over and consumed a newer value: the zombie must not deliver the older one."""
    world = make_world()
    world.send(("a", "a1"))
    with consuming(world) as zombie:
        eventually(lambda: may_hand_out(zombie))
        with stopped(world.members[0]):
            stand_still(zombie)
            world.expel(world.members[0])
            world.send(("a", "a2"))
            with consuming(world) as second:
                theirs = take(second)
                assert theirs.value == "a2"
                theirs.ack(wait=True, timeout=10)
            assert zombie.acquire(0.2) is None
        world.send(("b", "b"))
        assert drain(zombie, 1) == ["b"]


def test_a_message_that_a_zombie_has_prefetched_does_not_come_out_of_it_either() -> None:
    world = make_world()
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world, prefetch=2) as zombie:
        has_read_all(world, zombie)
        stream = iter(zombie)
        assert next(stream).value == "a1"
        assert zombie.stats.in_work == 2
        with stopped(world.members[0]):
            stand_still(zombie)
            world.expel(world.members[0])
            world.send(("b", "b2"))
            with consuming(world) as second:
                theirs = [take(second) for _ in range(2)]
                assert {delivery.value for delivery in theirs} == {"a1", "b2"}
                for delivery in theirs:
                    delivery.ack(wait=True, timeout=10)
            with in_thread(lambda: next(stream).value) as outcome:
                eventually(lambda: outcome or zombie._shared._waiters.wanted)
                assert outcome == []
                world.members[0].poll.go_on()
                world.send(("c", "c"))
        assert outcome == ["c"]


def test_a_prefetched_message_comes_when_it_is_proven_and_was_delivered_once(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, prefetch=2, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        stream = iter(consumer)
        next(stream).ack()
        before = consumer.stats.commits
        stand_still(consumer)
        second = next(stream)
        assert (second.value, second.delivery_count, second.redelivered) == ("b", 1, False)
        assert consumer.stats.commits > before


@contextmanager
def stopped(member: Any) -> Iterator[None]:
    """Stop the thread that polls this member for the duration of the block."""
    poll, standing, go_on = member.poll, Event(), Event()

    def stand(timeout: float) -> Any:
        standing.set()
        assert go_on.wait(30)
        return poll(timeout)

    stand.go_on = go_on.set  # type: ignore[attr-defined]
    member.poll = stand
    assert standing.wait(10)
    try:
        yield
    finally:
        member.poll = poll
        go_on.set()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the machine's clock has to count it")
def test_the_time_in_which_a_machine_sleeps_counts(world: World) -> None:
    """Linux has a separate clock for that."""
    with consuming(world) as consumer:
        clock = consumer._shared.clock
        assert isinstance(clock, partial)
        assert (clock.func, clock.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))


def test_it_looks_whether_the_topic_is_the_same_afterwards(world: World) -> None:
    from lvq_kafka.errors import TopicRecreated

    with consuming(world) as consumer:
        settled_up(world, consumer)
        consumer._thread._monitor._topic_id = "another"
        stand_still(consumer)
        with pytest.raises(TopicRecreated, match="lvq repair q"):
            take(consumer)


def test_a_consumer_without_partitions_has_nothing_to_prove(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with consuming(world) as one, consuming(world) as two:
        eventually(lambda: len(one.stats.partitions) + len(two.stats.partitions) == 1)
        idle = one if not one.stats.partitions else two
        with caplog.at_level(logging.WARNING):
            stand_still(idle)
            eventually(lambda: idle._shared.clock() - idle._shared.core._turned_at < 5)
        assert "stood still" not in caplog.text


def test_acks_made_in_doubt_count_when_it_is_proven(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        held = take(consumer)
        world.fail_next("commit", NOT_NOW)
        stand_still(consumer)
        held.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 1}


def test_a_transaction_on_its_way_is_waited_for_before_it_is_proven(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        commit = producer.writer.commit_transaction

        def meanwhile(timeout: float | None = None) -> None:
            stand_still(consumer)
            eventually(lambda: consumer.stats.suspended)
            assert consumer.acquire(0.1) is None
            assert consumer.stats.suspended
            commit(timeout)

        producer.writer.commit_transaction = meanwhile  # type: ignore[method-assign]
        with consumer.transaction(producer) as tx:
            tx.acquire_many(1, 10)[0].ack()
        assert drain(consumer, 1) == ["b"]
    assert world.committed_offsets() == {0: 2}


def test_a_commit_that_is_refused_for_one_partition_proves_it_by_the_others() -> None:
    world = make_world(partitions=2)
    with consuming(world) as consumer:
        (member,) = eventually(lambda: world.members)
        commit_async = member.commit_async

        def refuse_one(commits: Any, answered: Any) -> None:
            commit_async(commits, lambda outcome: answered({p: NOT_NOW if p == 0 else None for p in outcome}))

        member.commit_async = refuse_one  # type: ignore[method-assign]
        world.send(("a", "a"), partition=0)
        world.send(("b", "b"), partition=1)
        stand_still(consumer)
        assert {take(consumer).value for _ in range(2)} == {"a", "b"}
