"""Settlements decided by something else: a transaction, or the write of a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import BrokerUnavailable, DeliveryFailed, LockLost, OutcomeUnknown
from lvq_kafka.producing.producer import Producer
from tests.unit.consuming.world import World, consuming, drain, has_read_all, take
from tests.waiting import eventually

DEAD = "dead"


class Trouble(Exception):
    """An error inside a block."""


def every_way_to_ask(settlement: Settlement) -> list[object]:
    """Return the outcomes of a callback, of waiting and of awaiting; errors as values."""
    called: list[object] = []
    settlement.add_done_callback(lambda future: called.append(future.exception(0)))

    async def wait() -> None:
        await settlement

    asked: list[object] = [*called]
    ways: list[Callable[[], object]] = [lambda: settlement.result(10), lambda: asyncio.run(wait())]
    for ask in ways:
        try:
            asked.append(ask())
        except Exception as error:  # noqa: BLE001  # the test checks it
            asked.append(error)
    return asked


@contextmanager
def aborting(tx: Transaction[Any]) -> Iterator[Transaction[Any]]:
    """Abort the transaction at the end of the block."""
    with suppress(Trouble), tx:
        yield tx
        raise Trouble


# ---------------------------------------------------------------- transactions


@pytest.mark.parametrize("settle", [lambda one: one.ack(), lambda one: one.reject("bad")], ids=["ack", "reject"])
def test_the_settlement_of_a_transaction_that_aborts_says_so(world: World, settle: Callable[[Any], Settlement]) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer.transaction(producer)) as tx:
            settlement = settle(tx.acquire_many(1, 10)[0])
        assert settlement.done()
        for error in every_way_to_ask(settlement):
            assert isinstance(error, LockLost)
            assert "was aborted" in str(error)
            assert "comes again" in str(error)
            assert isinstance(error.__cause__, Trouble)
        again = take(consumer)
        again.ack(wait=True, timeout=10)
        assert isinstance(settlement.future().exception(0), LockLost), "it stays what it was"


def test_a_caller_that_waits_inside_learns_that_the_transaction_has_aborted(world: World) -> None:
    world.send(("a", "a"))
    told: list[BaseException | None] = []
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer.transaction(producer)) as tx:
            settlement = tx.acquire_many(1, 10)[0].ack()
            settlement.add_done_callback(lambda future: told.append(future.exception(0)))
            with pytest.raises(OutcomeUnknown, match="may become durable later"):
                settlement.result(0.01)
        assert [type(error) for error in told] == [LockLost]


def test_it_says_so_too_where_a_newer_value_has_come_meanwhile(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer.transaction(producer)) as tx:
            delivery = tx.acquire_many(1, 10)[0]
            settlement = delivery.ack()
            world.send(("a", "a2"))
            has_read_all(world, consumer)
        assert delivery.state is MessageState.SUPERSEDED
        assert isinstance(settlement.future().exception(10), LockLost)
        assert drain(consumer, 1) == ["a2"]


def test_a_transaction_can_be_used_again_and_its_settlements_are_told_apart(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        tx = consumer.transaction(producer)
        with aborting(tx):
            first = tx.acquire_many(1, 10)[0].ack()
        with tx:
            second = tx.acquire_many(1, 10)[0].ack()
        assert isinstance(first.future().exception(0), LockLost)
        second.result(0)


def committing_while(producer: Producer[Any], meanwhile: Callable[[], object]) -> None:
    """Run ``meanwhile`` when the offsets are part of a transaction and before it commits."""
    commit = producer.writer.commit_transaction

    def commit_transaction(timeout: float | None = None) -> None:
        meanwhile()
        commit(timeout)

    producer.writer.commit_transaction = commit_transaction  # type: ignore[method-assign]


@pytest.mark.parametrize("asked", [True, False], ids=["asked before", "asked after"])
def test_an_ack_that_a_transaction_committed_is_durable_though_its_partition_went_away_meanwhile(
    world: World, asked: bool
) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:

        def lose() -> None:
            world.expel(world.members[0])
            eventually(lambda: consumer.stats.lost == 1)

        committing_while(producer, lose)
        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            producer.put("o", "x")
            settlement = delivery.ack()
            if asked:
                assert not settlement.done()
        assert (world.texts("out"), world.committed_offsets()) == (["x"], {0: 1})
        settlement.result(10)


def test_an_ack_that_a_transaction_committed_is_durable_though_the_consumer_was_closed_meanwhile(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        committing_while(producer, consumer.close)
        with consumer.transaction(producer) as tx:
            settlement = tx.acquire_many(1, 10)[0].ack()
        assert world.committed_offsets() == {0: 1}
        settlement.result(10)


# ---------------------------------------------------------------- the assignment of a transaction


def sending_offsets_after(producer: Producer[Any], before: Callable[[], object]) -> None:
    """Run ``before`` once, after a transaction has claimed its offsets and before they are part of it."""
    send_offsets = producer.writer.send_offsets

    def late(*args: Any, **options: Any) -> None:
        producer.writer.send_offsets = send_offsets  # type: ignore[method-assign]
        before()
        send_offsets(*args, **options)

    producer.writer.send_offsets = late  # type: ignore[method-assign]


def test_i13_a_claim_from_before_the_partition_was_lost_and_regained_is_not_committed(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:

        def lose_and_join_again() -> None:
            world.expel(world.members[0])
            eventually(lambda: consumer.stats.lost == 1)
            eventually(lambda: "committing for partition 0" in consumer.stats.trouble)

        def work() -> None:
            with consumer.transaction(producer) as tx:
                for delivery in tx.acquire_many(1, 10):
                    producer.put("o", f"{delivery.value}!")
                    delivery.ack()

        sending_offsets_after(producer, lose_and_join_again)
        with pytest.raises(LockLost, match="aborted"):
            work()
        assert (world.texts("out"), world.committed_offsets()) == ([], {0: 0})
        work()
        assert (world.texts("out"), world.committed_offsets()) == (["a!"], {0: 1})


# ---------------------------------------------------------------- dead letters


@pytest.fixture
def dead(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("lvq_kafka.consuming.dead_letters._AGAIN", 0.02)
    world.topics.create(DEAD, partitions=1, config={})
    return world


FAILURES = [
    DeliveryFailed("refused", key=b"a", code="INVALID_RECORD"),
    BrokerUnavailable("away", code="_TRANSPORT", retriable=True),
]


@pytest.mark.parametrize("failure", FAILURES, ids=["receipt", "call"])
def test_a_rejection_whose_dead_letter_is_not_stored_says_so(dead: World, failure: Exception) -> None:
    dead.send(("a", "a"))
    with consuming(dead, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        dead.fail_next("append", failure)
        settlement = delivery.reject("bad")
        for error in every_way_to_ask(settlement):
            assert isinstance(error, DeliveryFailed)
            assert "The dead letter of prices/0/0 could not be stored" in str(error)
            assert "comes again" in str(error)
            assert (error.key, error.__cause__) == (b"a", failure)
        take(consumer).reject("bad").result(10)
        assert isinstance(settlement.future().exception(0), DeliveryFailed), "it stays what it was"
    assert dead.texts(DEAD) == ["a"]


def test_a_caller_that_waits_already_learns_that_the_dead_letter_was_not_stored(dead: World) -> None:
    dead.send(("a", "a"))
    with consuming(dead, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        dead.disconnect()
        settlement = delivery.reject("bad")
        assert not settlement.done()
        dead.fail_next("append", FAILURES[0])
        dead.reconnect()
        assert isinstance(settlement.future().exception(10), DeliveryFailed)


def test_a_rejection_that_somebody_waits_for_makes_no_commit_urgent_before_its_dead_letter_is_stored(
    dead: World,
) -> None:
    dead.send(("a", "a"))
    with consuming(dead, dead_letters=DEAD, commit_interval=60) as consumer:
        delivery = take(consumer)
        dead.disconnect()
        settlement = delivery.reject("bad")
        assert not settlement.done()
        assert not consumer._shared.core.commits.urgent
        dead.reconnect()
        settlement.result(10)
        assert dead.committed_offsets() == {0: 1}


def test_an_outage_of_the_dead_letters_is_no_delivery(dead: World) -> None:
    dead.send(("a", "a"))
    dead.fail_next("append", FAILURES[1], times=3)
    with consuming(dead, max_deliveries=1, dead_letters=DEAD) as consumer:
        take(consumer).release()
        eventually(lambda: consumer.acquire(0.01) is None and dead.texts(DEAD))
        assert (consumer.stats.delivered, consumer.stats.redelivered) == (1, 0)
    headers = dict(dead.records(DEAD)[0].headers)
    assert headers["lvq-dlq-count"] == b"1"
    assert headers["lvq-dlq-reason"] == b"delivered 1 times and never acknowledged"


def test_with_durable_counts_an_outage_of_the_dead_letters_is_no_delivery_either(dead: World) -> None:
    dead.send(("a", "a"), ("b", "b"))
    dead.fail_next("append", FAILURES[1], times=3)
    with consuming(dead, max_deliveries=1, dead_letters=DEAD, durable_counts=True) as consumer:
        held = take(consumer)
        take(consumer).release()
        eventually(lambda: consumer.acquire(0.01) is None and not dead._state._failures.get("append"))
        eventually(lambda: dead.texts(DEAD) or consumer.acquire(0.01))
        held.ack(wait=True, timeout=10)
    assert dict(dead.records(DEAD)[0].headers)["lvq-dlq-count"] == b"1"
