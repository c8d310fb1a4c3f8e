"""Closing a consumer: in bounded time, from anywhere, any number of times."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import Closed, LockLost
from tests.unit.consuming.world import (
    GROUP,
    World,
    answered_late,
    consuming,
    drain,
    has_read_all,
    in_thread,
    take,
)
from tests.waiting import eventually


def test_close_commits_what_is_done_leaves_the_group_and_ends_the_locks(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack()
        held = take(consumer)
        consumer.close()
        assert (world.committed_offsets(), world.groups.member_count(GROUP)) == ({0: 1}, 0)
        assert held.state is MessageState.LOST
        with pytest.raises(LockLost):
            held.ack()
        assert consumer.stats.lost == 1


def test_close_does_not_wait_for_holders(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, revoke_grace=60.0) as consumer:
        take(consumer)
        before = time.monotonic()
        consumer.close()
        assert time.monotonic() - before < 10


def test_close_returns_in_time_when_the_cluster_does_not_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"))
    answers = threading.Event()
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack()
        (member,) = world.members
        commit = member.commit

        def stalled(commits: Any) -> None:
            assert answers.wait(30)
            commit(commits)

        member.commit = stalled  # type: ignore[method-assign]
        before = time.monotonic()
        consumer.close(0.2)
        assert time.monotonic() - before < 10
        assert "did not close within" in caplog.text
        answers.set()
        consumer.close()
    assert world.committed_offsets() == {0: 1}


def test_close_in_an_outage_loses_acks_and_no_message(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack()
        world.disconnect()
        consumer.close(5)
        world.reconnect()
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a"]


def test_a_prefetched_message_no_longer_comes_while_close_waits_for_an_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._LAST_CHANCE", 20.0)
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, prefetch=3, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        stream = iter(consumer)
        (member,) = world.members
        with answered_late(member) as late:
            settled = next(stream).ack().future()
            eventually(lambda: late)
            with in_thread(lambda: consumer.close(20)):
                eventually(lambda: consumer.stats.in_work == 0)
                assert next(stream, None) is None
                assert not settled.done()
                late[0]()
            settled.result(0)
    assert world.committed_offsets() == {0: 1}


def test_several_threads_may_close(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        take(consumer).ack()
        with in_thread(consumer.close) as one, in_thread(consumer.close) as two:
            consumer.close()
        assert (one, two) == ([None], [None])
    assert world.committed_offsets() == {0: 1}


def test_close_and_acquire_at_the_same_time_lose_nothing(world: World) -> None:
    """A message taken at the last moment is either settled or delivered again."""
    world.send(*((f"k{number}", str(number)) for number in range(200)))
    seen: list[str] = []
    for _ in range(8):
        with consuming(world) as consumer:
            acked: list[str] = []

            def work(consumer: Any = consumer, acked: list[str] = acked) -> None:
                while True:
                    try:
                        delivery = consumer.acquire(1)
                        if delivery is None:
                            return
                        delivery.ack(wait=True, timeout=10)
                    except (Closed, LockLost):
                        return
                    acked.append(delivery.value)

            with in_thread(work), in_thread(work):
                eventually(lambda acked=acked: len(acked) >= 5)  # type: ignore[misc]
                consumer.close()
            seen += acked
    assert len(seen) == len(set(seen)), "a durable ack was forgotten"
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        rest = [delivery.value for delivery in consumer.acquire_many(200, 10)]
    assert set(seen) | set(rest) == {str(number) for number in range(200)}
    assert not set(seen) & set(rest)


def test_a_consumer_that_has_failed_can_be_closed(world: World) -> None:
    with consuming(world) as consumer:
        world.fail_next("poll", ZeroDivisionError("oops"))
        eventually(lambda: consumer._shared.failed)
        eventually(lambda: world.groups.member_count(GROUP) == 0)
        consumer.close()


def test_a_closed_consumer_says_so_to_who_asks(world: World) -> None:
    with consuming(world) as consumer:
        pass
    assert repr(consumer) == "<Consumer of q>"
    with pytest.raises(Closed, match="The consumer of q is closed"):
        consumer.acquire()
    assert consumer.stats.partitions == ()
