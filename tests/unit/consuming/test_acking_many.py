"""Acks of many deliveries at once, with one settlement to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Decision, JointSettlement
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import AlreadySettled, ConfigError, LockLost, OutcomeUnknown, StateError, TransportError
from tests.unit.consuming.world import (
    World,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    nothing_comes,
    settled_up,
    take,
    values_of,
)
from tests.waiting import eventually

NOT_NOW = TransportError("not now", code="NOT_COORDINATOR", retriable=True)


def some(world: World, consumer: Consumer[Any], keys: str = "abc") -> list[Delivery[Any]]:
    """Send these keys and return their deliveries."""
    world.send(*((key, key) for key in keys))
    has_read_all(world, consumer)
    batch = consumer.acquire_many(len(keys), 10)
    assert len(batch) == len(keys)
    return batch


def test_all_are_done_with_one_commit(world: World) -> None:
    with consuming(world, commit_interval=60) as consumer:
        batch = some(world, consumer)
        before = consumer.stats.commits
        settlement = consumer.ack_many(iter(batch))
        assert {delivery.state for delivery in batch} == {MessageState.ACKED}
        assert (consumer.stats.acked, consumer.stats.in_work) == (3, 0)
        assert repr(settlement) == "<Settlement of 3 messages, not asked for>"
        settlement.result(10)
        assert world.committed_offsets() == {0: 3}
        assert consumer.stats.commits == before + 1
        assert nothing_comes(consumer)


def test_g11_with_wait_it_returns_when_all_are_durable(world: World) -> None:
    with consuming(world, commit_interval=60) as consumer:
        batch = some(world, consumer, "abcd")
        consumer.ack_many(batch[1::2], wait=True, timeout=10)
        assert [world.committed_map().done(offset) for offset in range(4)] == [False, True, False, True]
        consumer.ack_many(batch[::2], wait=True, timeout=10)
        assert world.committed_offsets() == {0: 4}


def test_it_can_be_awaited(world: World) -> None:
    async def work() -> None:
        await consumer.ack_many(batch)

    with consuming(world, commit_interval=60) as consumer:
        batch = some(world, consumer)
        asyncio.run(work())
        assert world.committed_offsets() == {0: 3}


def test_none_at_all_are_durable_at_once(world: World) -> None:
    with consuming(world, commit_interval=60) as consumer:
        assert consumer.ack_many([], wait=True, timeout=0).done()


def test_one_that_is_not_durable_in_time_may_become_so(world: World) -> None:
    with consuming(world) as consumer:
        batch = some(world, consumer)
        world.fail_next("commit", NOT_NOW, times=1000)
        with pytest.raises(OutcomeUnknown, match=r"within 0\.05 s: the settlement of 3 messages"):
            consumer.ack_many(batch, wait=True, timeout=0.05)
        world._state._failures.clear()
        settled_up(world, consumer)


def test_all_messages_that_can_be_acked_are(world: World) -> None:
    with consuming(world) as consumer:
        batch = some(world, consumer, "abcd")
        batch[0].reject()
        batch[2].ack()
        with pytest.raises(AlreadySettled, match="offset 0 of partition 0") as caught:
            consumer.ack_many(batch)
        assert caught.value.__notes__ == [
            "This is the first of 2 messages, of 4, that could not be settled; all others were."
        ]
        assert values_of([delivery for delivery in batch if delivery.state is MessageState.ACKED]) == ["b", "c", "d"]
        settled_up(world, consumer)


def test_messages_lost_meanwhile_come_again(world: World) -> None:
    with consuming(world) as consumer:
        batch = some(world, consumer)
        world.expel(world.members[0])
        eventually(lambda: all(delivery.state is MessageState.LOST for delivery in batch))
        with pytest.raises(LockLost):
            consumer.ack_many(batch)
        assert drain(consumer, 3) == ["a", "b", "c"]


def test_they_are_in_vain_when_one_partition_is_lost_before_that_is_committed() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        world.fail_next("commit", NOT_NOW, times=1000)
        settlement = consumer.ack_many(consumer.acquire_many(2, 10))
        future = settlement.future()
        world.expel(world.members[0])
        assert isinstance(future.exception(10), LockLost)
        world._state._failures.clear()
        assert sorted(drain(consumer, 2)) == ["a", "b"]


class Outcomes:
    """A callback that records what is durable when it is called."""

    def __init__(self, count: int) -> None:
        self.items = [Item(0, offset, 0, b"k", b"v", None, offset) for offset in range(count)]
        self.futures = {item: Future[None]() for item in self.items}

    obstacle = ""

    def when_durable(self, item: Item) -> Future[None]:
        return self.futures[item]

    def check_may_wait(self) -> None:
        pass

    def decide(self, number: int, failure: Exception | None = None) -> None:
        future = self.futures[self.items[number]]
        future.set_exception(failure) if failure else future.set_result(None)


def test_one_in_vain_is_told_at_once_whatever_becomes_of_the_others() -> None:
    outcomes = Outcomes(3)
    outcomes.decide(0)
    joint = JointSettlement(outcomes, outcomes.items).future()
    outcomes.decide(1, LockLost("gone"))
    assert joint.done()
    outcomes.decide(2)
    with pytest.raises(LockLost, match="gone"):
        joint.result(0)


def test_the_last_one_decides() -> None:
    outcomes = Outcomes(3)
    joint = JointSettlement(outcomes, outcomes.items).future()
    for number in (2, 0):
        outcomes.decide(number)
        assert not joint.done()
    outcomes.decide(1)
    assert joint.result(0) is None


def test_two_in_vain_at_the_same_moment_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes = Outcomes(2)
    joint = JointSettlement(outcomes, outcomes.items).future()
    done = Decision.done

    def done_before_the_other_came(decision: Decision) -> bool:
        monkeypatch.undo()
        before = done(decision)
        outcomes.decide(1, LockLost("the other"))
        return before

    monkeypatch.setattr(Decision, "done", done_before_the_other_came)
    outcomes.decide(0, LockLost("the first"))
    with pytest.raises(LockLost, match="the first"):
        joint.result(0)
    assert not caplog.records


def test_a_caller_that_waits_for_room_goes_on(world: World) -> None:
    with consuming(world, max_in_work=2, commit_interval=60) as consumer:
        batch = some(world, consumer, "ab")
        world.send(("c", "c"), ("d", "d"))
        with in_thread(lambda: take(consumer).value) as one, in_thread(lambda: take(consumer).value) as other:
            eventually(lambda: len(consumer._shared._waiters.present) == 2)
            consumer.ack_many(batch)
        assert sorted([*one, *other]) == ["c", "d"]


def test_a_delivery_of_another_consumer_is_refused_and_none_is_acked() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world) as one, consuming(world) as two:
        eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 1)
        mine, theirs = take(one), take(two)
        with pytest.raises(StateError, match="belongs to another consumer or transaction"):
            one.ack_many([mine, theirs])
        assert (mine.state, theirs.state) == (MessageState.ACQUIRED, MessageState.ACQUIRED)


# ---------------------------------------------------------------- in a transaction


def test_in_a_transaction_they_are_done_when_it_commits(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            settlement = tx.ack_many(tx.acquire_many(2, 10))
            assert not settlement.done()
            assert world.committed_offsets() == {0: 0}
        assert settlement.done()
        settlement.result(0)
        assert world.committed_offsets() == {0: 2}


def test_in_a_transaction_that_aborts_they_come_again(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        with suppress(ZeroDivisionError), consumer.transaction(producer) as tx:
            settlement = tx.ack_many(tx.acquire_many(2, 10))
            raise ZeroDivisionError
        with pytest.raises(LockLost, match="aborted"):
            settlement.result(0)
        assert drain(consumer, 2) == ["a", "b"]


def test_in_a_transaction_what_was_settled_before_is_not_settled_anew(world: World) -> None:
    """The first message's dead letter decides it; it is not part of the transaction."""
    world.topics.create("dead", partitions=1, config={})
    with consuming(world, dead_letters="dead") as consumer, world.producer() as producer:
        batch = some(world, consumer, "ab")
        with consumer.transaction(producer) as tx:
            world.disconnect()
            batch[0].reject("no good")
            enlisted = [tx.enlist(delivery) for delivery in batch]
            with pytest.raises(AlreadySettled, match="offset 0 "):
                tx.ack_many(enlisted)
            assert [item.offset for item in tx._settler.left] == [1]
            world.reconnect()
        settled_up(world, consumer)
        assert world.texts("dead") == ["a"]


@pytest.mark.parametrize(
    "acking",
    [
        lambda consumer, tx, inside, before: tx.ack_many([before]),
        lambda consumer, tx, inside, before: consumer.ack_many([inside]),
    ],
    ids=["one from outside in it", "one of it outside"],
)
def test_deliveries_are_acked_where_they_belong(
    world: World, acking: Callable[[Consumer[Any], Any, Delivery[Any], Delivery[Any]], object]
) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        before = take(consumer)
        with consumer.transaction(producer) as tx:
            (inside,) = tx.acquire_many(1, 10)
            with pytest.raises(StateError, match="belongs to another consumer or transaction"):
                acking(consumer, tx, inside, before)
            inside.ack()
        before.ack()
        with pytest.raises(StateError, match="not open"):
            tx.ack_many([])
        settled_up(world, consumer)


def test_an_argument_that_is_not_a_delivery_is_refused_and_nothing_is_acked(world: World) -> None:
    with consuming(world) as consumer:
        batch = some(world, consumer)
        with pytest.raises(ConfigError, match="is not a delivery"):
            consumer.ack_many([*batch, "a"])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="one delivery, not several"):
            consumer.ack_many(batch[0])  # type: ignore[arg-type]
        assert {delivery.state for delivery in batch} == {MessageState.ACQUIRED}
