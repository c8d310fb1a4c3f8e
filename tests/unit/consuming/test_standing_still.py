"""A process that stood still (stopped, or starved) hands nothing out before the group is known to count on it still."""

from __future__ import annotations

import logging
import time

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.lifecycle import State
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
    """The I/O thread was last there so many seconds ago: as after SIGSTOP and SIGCONT."""
    with consumer._holdings._changed:
        consumer._holdings._polled = time.monotonic() - seconds


def test_it_goes_on_when_the_group_takes_its_commit(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        held = take(consumer)
        before = consumer.stats.commits
        stand_still(consumer)
        eventually(lambda: "stood still for 60." in caplog.text)
        assert take(consumer).value == "b"
        assert consumer.stats.commits > before
        held.ack(wait=True, timeout=10)


def test_nothing_is_handed_out_before(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        settled_below_commits(world, consumer)
        world.fail_next("commit", NOT_NOW, times=1000)
        stand_still(consumer)
        eventually(lambda: consumer._holdings.suspended)
        assert consumer.acquire(0.4) is None
        world._cluster._failures.clear()
        assert drain(consumer, 1) == ["a"]


def settled_below_commits(world: World, consumer: Consumer[str]) -> None:
    has_read_all(world, consumer)
    eventually(lambda: not consumer._holdings._ledger.dirty and consumer._holdings._unanswered is None)


def test_whoever_takes_while_the_thread_stands_still_gets_nothing(world: World) -> None:
    """The holders' side judges by itself: the thread may not have come to say that something is wrong."""
    world.send(("a", "a"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        with consumer._holdings._changed:
            stand_still(consumer)
            assert consumer.acquire(0) is None
        assert take(consumer).value == "a"


def test_one_who_waits_is_woken_when_it_is_proven(world: World) -> None:
    with consuming(world) as consumer, in_thread(lambda: take(consumer).value) as outcome:
        eventually(lambda: consumer._holdings._takers.wanted == 1)
        world.fail_next("commit", NOT_NOW)
        stand_still(consumer)
        eventually(lambda: consumer._holdings.suspended)
        world.send(("a", "a"))
    assert outcome == ["a"]


def test_one_that_was_put_out_meanwhile_loses_its_locks_and_begins_anew() -> None:
    world = make_world()
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.expel(world.members[0])
        stand_still(consumer)
        eventually(lambda: held.state is State.LOST)
        assert drain(consumer, 1) == ["a1"]
        assert not consumer._holdings.suspended


def test_a_zombie_is_not_believed_before_it_knows_and_the_newer_value_is_not_stepped_back_behind() -> None:
    """Another consumer has taken over and consumed a newer value: the older one must not come out of the zombie."""
    world = make_world()
    world.send(("a", "a1"))
    with consuming(world) as zombie:
        has_read_all(world, zombie)
        zombie.pause()  # in place of a process that does not run
        stand_still(zombie)
        with zombie._holdings._changed:
            world.expel(world.members[0])
            stand_still(zombie)
            zombie._holdings._paused = False
            assert zombie.acquire(0) is None
        world.send(("a", "a2"))
        seen = []
        while seen[-1:] != ["a2"]:
            with take(zombie) as delivery:
                seen.append(delivery.value)
        assert seen in (["a2"], ["a1", "a2"])


def test_it_looks_whether_the_topic_is_the_same_afterwards(world: World) -> None:
    from lvq_kafka.errors import TopicRecreated

    with consuming(world) as consumer:
        settled_up(world, consumer)
        consumer._consuming._inspection._topic_id = "another"
        stand_still(consumer)
        with pytest.raises(TopicRecreated, match="lvq repair q"):
            take(consumer)


def test_a_consumer_without_partitions_has_nothing_to_prove(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with consuming(world) as one, consuming(world) as two:
        eventually(lambda: len(one.stats.partitions) + len(two.stats.partitions) == 1)
        idle = one if not one.stats.partitions else two
        with caplog.at_level(logging.WARNING):
            stand_still(idle)
            eventually(lambda: time.monotonic() - idle._holdings._polled < 5)
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
            eventually(lambda: consumer._holdings.suspended)
            assert consumer.acquire(0.1) is None
            assert consumer._holdings.suspended
            commit(timeout)

        producer.writer.commit_transaction = meanwhile  # type: ignore[method-assign]
        with consumer.transaction(producer) as tx:
            tx.acquire_many(1, 10)[0].ack()
        assert drain(consumer, 1) == ["b"]
    assert world.committed_offsets() == {0: 2}
