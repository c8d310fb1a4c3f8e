"""Partitions of a consumer whose transactions cannot begin: others get them, until one begins."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import BrokerUnavailable, LockLost, OutcomeUnknown, TransportError
from lvq_kafka.producing.producer import Producer
from tests.unit.consuming.world import World, consuming, drain, in_thread, make_world, nothing_comes, take
from tests.waiting import eventually

PATIENCE = 0.2


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.core.consumer.yielding.PATIENCE", PATIENCE)
    for pause in ("_LOOK", "_LOOK_AGAIN"):
        monkeypatch.setattr(f"lvq_kafka.consuming.group_monitor.{pause}", 0.02)


@pytest.fixture
def halves() -> World:
    """Return a world with a queue on two partitions."""
    return make_world(partitions=2)


@contextmanager
def beginning_nothing(producer: Producer[Any]) -> Iterator[None]:
    """Keep this producer's transactions from beginning, and nobody else's."""
    writer: Any = producer.writer
    begin = writer.begin_transaction

    def fail(timeout: float | None = None) -> None:
        raise BrokerUnavailable("its coordinator is away", code="_TIMED_OUT", retriable=True)

    writer.begin_transaction = fail
    try:
        yield
    finally:
        writer.begin_transaction = begin


def work(consumer: Consumer[Any], producer: Producer[Any], **options: Any) -> None:
    """Run one turn of a worker."""
    with consumer.transaction(producer, **options) as tx:
        for delivery in tx.acquire_many(10, 0.02):
            producer.put(delivery.key, f"{delivery.value}!")
            delivery.ack()


@contextmanager
def working(consumer: Consumer[Any], producer: Producer[Any]) -> Iterator[None]:
    """Run a worker in a thread; it continues after any error."""
    over = Event()

    def turn_after_turn() -> None:
        while not over.wait(0.01):
            with suppress(TransportError, LockLost, OutcomeUnknown):
                work(consumer, producer)

    with in_thread(turn_after_turn) as outcome:
        try:
            yield
        finally:
            over.set()
    assert outcome == [None]


def fill(world: World, name: str) -> None:
    """Send one message to each partition."""
    for partition in (0, 1):
        world.send((f"{name}{partition}", f"{name}{partition}"), partition=partition)


def share(*consumers: Consumer[Any]) -> None:
    """Wait until all have the same number of partitions."""
    eventually(lambda: all(len(one.stats.partitions) == 2 / len(consumers) for one in consumers))


def is_away(consumer: Consumer[Any]) -> bool:
    return "it leaves its partitions to others" in consumer.stats.trouble


def tried_long(world: World, consumer: Consumer[Any], producer: Producer[Any], seconds: float = 4 * PATIENCE) -> None:
    """Try for longer than a consumer takes to leave."""
    shared = consumer._shared
    until = shared.clock() + seconds
    while shared.clock() < until:
        with suppress(TransportError, LockLost, OutcomeUnknown):
            work(consumer, producer, timeout=0.01)


def test_its_partitions_go_to_others_and_it_joins_again_when_a_transaction_begins(
    halves: World, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "lvq_kafka.consumer"),
        consuming(halves) as first,
        consuming(halves) as second,
        halves.producer(transactional_id="one") as one,
        halves.producer(transactional_id="two") as two,
        working(second, two),
    ):
        share(first, second)
        with beginning_nothing(one), working(first, one):
            fill(halves, "a")
            eventually(lambda: sorted(halves.texts("out")) == ["a0!", "a1!"])
            assert is_away(first)
            assert "its coordinator is away" in first.stats.trouble
            assert "keep trying" in first.stats.trouble
            share(second)
        with working(first, one):
            share(first, second)
            fill(halves, "b")
            eventually(lambda: len(halves.texts("out")) == 4)
            assert not first.stats.trouble
    assert sorted(halves.texts("out")) == ["a0!", "a1!", "b0!", "b1!"]
    assert sum("leaves the group" in message for message in caplog.messages) == 1


def test_a_first_attempt_that_never_ends_is_enough_to_leave(halves: World) -> None:
    with consuming(halves) as first, consuming(halves) as second, halves.producer() as producer:
        share(first, second)
        went_on = Event()
        writer: Any = producer.writer
        writer.begin_transaction = lambda timeout=None: went_on.wait(20)
        with in_thread(first.transaction(producer).__enter__):
            share(second)
            assert is_away(first)
            went_on.set()
        share(first, second)


def test_an_acquire_outside_of_transactions_brings_it_back(halves: World) -> None:
    with consuming(halves) as first, halves.producer() as producer, beginning_nothing(producer):
        with consuming(halves) as second:
            share(first, second)
            tried_long(halves, first, producer)
            share(second)
        fill(halves, "a")
        assert not first.stats.partitions
        with take(first), take(first):
            share(first)


def test_it_stays_while_it_is_alone_and_leaves_when_another_one_comes(halves: World) -> None:
    with consuming(halves) as first, halves.producer() as producer:
        share(first)
        with beginning_nothing(producer), working(first, producer):
            eventually(lambda: first._shared.is_of_no_use)
            tried_long(halves, first, producer)
            assert len(first.stats.partitions) == 2
            assert "its coordinator is away" in first.stats.trouble
            with consuming(halves) as second:
                share(second)
                assert is_away(first)
        work(first, producer)
        share(first)


def test_it_stays_while_somebody_consumes_outside_of_transactions(halves: World) -> None:
    with consuming(halves) as first, consuming(halves) as second, halves.producer() as producer:
        share(first, second)
        with beginning_nothing(producer), in_thread(lambda: list(first)):  # waits, and would get any message
            tried_long(halves, first, producer)
            assert len(first.stats.partitions) == 1
            first.close()


def test_held_messages_are_lost_and_earlier_acks_are_stored(halves: World) -> None:
    with consuming(halves, commit_interval=60) as first, consuming(halves) as second, halves.producer() as producer:
        share(first, second)
        (mine,) = first.stats.partitions
        halves.send(("a", "a"), ("b", "b"), ("c", "c"), partition=mine)
        acked, held, too = take(first), take(first), take(first)
        settlement = acked.ack()
        with beginning_nothing(producer), working(first, producer):
            eventually(lambda: held.state is MessageState.LOST)
            assert is_away(first)
            with pytest.raises(LockLost):
                too.ack()
            settlement.result(10)
            assert drain(second, 2) == ["b", "c"]


def test_while_an_outcome_is_not_known_it_stays_and_then_it_leaves(halves: World) -> None:
    """The next owner could not begin before the outcome is decided. Here both happen at the same time."""
    with consuming(halves) as first, consuming(halves) as second, halves.producer() as producer:
        share(first, second)
        (mine,) = first.stats.partitions
        halves.send(("a", "a"), partition=mine)
        halves.fail_next("commit_transaction", BrokerUnavailable("no answer", code="_TIMED_OUT", retriable=True))
        with pytest.raises(OutcomeUnknown):
            eventually(lambda: work(first, producer))
        with beginning_nothing(producer):
            tried_long(halves, first, producer)
            assert list(first.stats.partitions) == [mine]
            with working(first, producer):
                producer.writer.commit_transaction()
                share(second)
                assert is_away(first)
            assert nothing_comes(second)
        work(first, producer)
        assert halves.texts("out") == ["a!"]


def test_in_an_outage_of_everything_it_stays_and_goes_on_as_the_same_member(
    halves: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.core.consumer.yielding.PATIENCE", 1.0)  # more than a busy machine keeps a thread for
    with consuming(halves) as first, consuming(halves) as second, halves.producer() as producer:
        share(first, second)
        with beginning_nothing(producer):
            halves.disconnect()
            tried_long(halves, first, producer, seconds=2.0)
            assert first.stats.partitions
            assert first._shared.core.obstacles.of("reading")
            halves.reconnect()
            eventually(lambda: not first._shared.core.obstacles.of("reading"))
        fill(halves, "a")
        eventually(lambda: work(first, producer) or halves.texts("out"))
        assert len(halves.members) == 2


def test_it_can_be_closed_while_it_is_away(halves: World) -> None:
    with consuming(halves) as second, halves.producer() as producer:
        with consuming(halves) as first, beginning_nothing(producer):
            share(first, second)
            tried_long(halves, first, producer)
            share(second)
        assert not first._thread._thread.is_alive()
