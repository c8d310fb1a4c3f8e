"""Catch-up, and the contents of commits."""

from __future__ import annotations

import threading

import pytest

from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import (
    OutcomeUnknown,
    ReaderFailed,
    TransportError,
    Unauthorized,
)
from lvq_kafka.testing.memory_member import MemoryMember
from tests.unit.consuming.world import (
    TOPIC,
    Clock,
    World,
    consuming,
    drain,
    has_read,
    make_world,
    nothing_comes,
    settled_up,
    take,
)
from tests.waiting import eventually


def test_g12_nothing_is_handed_out_before_the_partition_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is the one at the moment of the assignment, which the new owner must ask for."""
    world = make_world(fetch_limit=1)
    world.send(("a", "old"), *((f"k{number}", "x") for number in range(30)), ("a", "new"))
    go_on, read = threading.Event(), 0
    poll = MemoryMember.poll

    def halfway(self: MemoryMember, timeout: float) -> Fetch:
        nonlocal read
        if read == 10 and not go_on.wait(min(timeout, 0.01)):
            return Fetch(RecordBatch(), {})
        fetch = poll(self, timeout)
        read += len(fetch.batch)
        return fetch

    monkeypatch.setattr(MemoryMember, "poll", halfway)
    with consuming(world) as consumer:
        eventually(lambda: read == 10)
        has_read(consumer, {0: 10})
        assert nothing_comes(consumer)
        go_on.set()
        values = [delivery.value for delivery in (take(consumer) for _ in range(31))]
    assert "old" not in values
    assert values[-1] == "new"


def test_g12_an_open_transaction_does_not_hold_up_the_queue(world: World) -> None:
    world.send(("a", "a1"))
    writer = world.writer(transactional_id="t")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"a2").result(5)
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a1"]
        writer.commit_transaction()
        assert drain(consumer, 1) == ["a2"]


def test_g11_acks_in_any_order_are_durable_above_the_lowest_message_that_is_not_done(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        first, second, third = take(consumer), take(consumer), take(consumer)
        third.ack(wait=True, timeout=10)
        assert world.committed_map(0).runs == (2, 1)
        second.ack(wait=True, timeout=10)
        assert world.committed_map(0).runs == (1, 2)
        assert world.committed_offsets() == {0: 0}
        first.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 3}


def test_g10_an_unacked_message_comes_again_to_the_next_consumer(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        take(consumer)
        take(consumer).ack()
    assert world.committed_offsets() == {0: 0}
    with consuming(world) as consumer:
        again, first = take(consumer), take(consumer)
        assert [(again.value, again.redelivered), (first.value, first.redelivered)] == [("a", True), ("c", False)]
        assert consumer.acquire(0.05) is None


def test_g11_an_ack_that_is_waited_for_is_committed_when_it_returns(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 1}


def test_waiting_for_an_ack_that_cannot_be_committed_times_out_and_the_ack_stands(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        world.disconnect()
        with pytest.raises(OutcomeUnknown, match="offset 0"):
            delivery.ack(wait=True, timeout=0.05)
        assert delivery.state is MessageState.ACKED
        world.reconnect()
        eventually(lambda: world.committed_offsets() == {0: 1})


def test_acks_are_gathered_into_few_commits(world: World) -> None:
    world.send(*((f"k{number}", "x") for number in range(500)))
    with consuming(world, commit_interval=60) as consumer:
        Clock(consumer)  # no lease expires, however slow this is
        drain(consumer, 500)
        assert consumer.stats.commits <= 2
    assert world.committed_offsets() == {0: 500}


def test_deletes_and_superseded_records_are_committed_without_any_ack(world: World) -> None:
    with consuming(world) as consumer:
        world.send(("a", "a1"), ("a", None))
        settled_up(world, consumer)
        assert consumer.stats.delivered in (0, 1)


def test_a_commit_that_fails_is_made_good_by_the_next_one(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        world.fail_next("commit", TransportError("busy", code="REBALANCE_IN_PROGRESS", retriable=True), times=2)
        take(consumer).ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 1}
        assert consumer.stats.trouble == ""


def test_a_commit_that_is_not_allowed_stops_the_consumer(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        world.fail_next("commit", Unauthorized("no", code="GROUP_AUTHORIZATION_FAILED"), times=2)
        with pytest.raises(ReaderFailed, match="before this was committed") as caught:
            delivery.ack(wait=True, timeout=10)
        assert isinstance(caught.value.__cause__, Unauthorized)
