"""The reasons that `reject` accepts, and messages whose rejection fails on the way."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.codecs import JSON
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import Closed, ConfigError, DecodeError, DeliveryFailed
from tests.unit.consuming.world import World, consuming, make_world, settled_up, take

DEAD = "dead"


class Mute(Exception):
    """An error that cannot be turned into text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.fixture
def world() -> World:
    world = make_world()
    world.topics.create(DEAD, partitions=1, config={})
    world.send(("a", "a"))
    return world


@pytest.fixture(params=[DEAD, None], ids=["to dead letters", "removed"])
def consumer(world: World, request: pytest.FixtureRequest) -> Any:
    with consuming(world, dead_letters=request.param) as consumer:
        yield consumer


def reason_of(world: World) -> bytes | None:
    (dead,) = world.records(DEAD)
    return dict(dead.headers)["lvq-dlq-reason"]


REASONS = {
    "an error": (ValueError("no such exchange"), b"ValueError: no such exchange"),
    "an error without a text": (TimeoutError(), b"TimeoutError"),
    "an error that is no Exception": (SystemExit(3), b"SystemExit: 3"),
    "an error that has no text": (Mute(), b"Mute"),
    "an error of two lines": (ValueError("one\ntwo"), b"ValueError: one\ntwo"),
    "an error with surrogates": (ValueError("\ud800"), b"ValueError: ?"),
    "a long error": (ValueError("x" * 5000), b"ValueError: " + b"x" * 988),
    "a kind of text": (MessageState.ACKED, b"acked"),
}


@pytest.mark.parametrize(("reason", "written"), REASONS.values(), ids=list(REASONS))
def test_an_error_is_a_reason_and_so_is_text(world: World, reason: Any, written: bytes) -> None:
    with consuming(world, dead_letters=DEAD) as consumer:
        take(consumer).reject(reason).result(10)
    assert reason_of(world) == written


def test_an_error_is_a_reason_in_a_transaction_too(world: World) -> None:
    with consuming(world, dead_letters=DEAD) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as transaction:
            (delivery,) = transaction.acquire_many(1, 10)
            delivery.reject(ValueError("bad"))
        settled_up(world, consumer)
    assert reason_of(world) == b"ValueError: bad"


@pytest.mark.parametrize("reason", [None, 3, b"bytes", ["a"], ValueError, {}], ids=repr)
def test_any_other_reason_is_refused_and_the_message_stays_with_its_holder(
    consumer: Consumer[str], reason: Any
) -> None:
    delivery = take(consumer)
    with pytest.raises(ConfigError, match="neither text nor an exception") as caught:
        delivery.reject(reason)
    assert caught.value.options == ("reason",)
    assert delivery.state is MessageState.ACQUIRED
    delivery.ack(wait=True, timeout=10)


def test_any_other_reason_is_refused_in_a_transaction_too(world: World) -> None:
    with (
        consuming(world, dead_letters=DEAD) as consumer,
        world.producer() as producer,
        consumer.transaction(producer) as transaction,
    ):
        (delivery,) = transaction.acquire_many(1, 10)
        with pytest.raises(ConfigError, match="neither text nor an exception"):
            delivery.reject(3)  # type: ignore[arg-type]
        delivery.ack()
    assert world.committed_offsets() == {0: 1}


# ---------------------------------------------------------------- on the way to the dead letter topic


def posting_fails(
    monkeypatch: pytest.MonkeyPatch, consumer: Consumer[Any], failure: BaseException, *, sent: bool
) -> None:
    """Fail the next letter on its way to the client, or just after the client has taken it."""
    writer = consumer._dead_letters._letters._writer
    append = writer.append  # type: ignore[union-attr]

    def fail(*letter: Any) -> Any:
        monkeypatch.undo()
        if sent:
            append(*letter)
        raise failure

    monkeypatch.setattr(writer, "append", fail)


FAILURES = [
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates"),
    TypeError("no header"),
    MemoryError(),
    Closed("The writer is closed."),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_message_whose_dead_letter_cannot_be_handed_over_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.dead_letters._AGAIN", 0.02)
    with consuming(world, dead_letters=DEAD) as consumer:
        posting_fails(monkeypatch, consumer, failure, sent=False)
        with pytest.raises(DeliveryFailed, match="comes again") as caught:
            take(consumer).reject("bad").result(10)
        assert caught.value.__cause__ is failure
        take(consumer).reject("bad").result(10)
    assert world.texts(DEAD) == ["a"]


@pytest.mark.parametrize("sent", [False, True])
def test_a_message_whose_rejection_is_interrupted_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch, *, sent: bool
) -> None:
    """The client stores each letter that it has taken, so there are two then, with the same source."""
    with consuming(world, dead_letters=DEAD) as consumer:
        posting_fails(monkeypatch, consumer, KeyboardInterrupt(), sent=sent)
        delivery = take(consumer)
        with pytest.raises(KeyboardInterrupt):
            delivery.reject("bad")
        assert delivery.state is MessageState.RELEASED
        take(consumer).reject("bad").result(10)
    assert world.texts(DEAD) == ["a"] * (1 + sent)


@pytest.mark.parametrize("most", [1, 3])
def test_messages_that_were_delivered_too_often_come_again_when_their_rejection_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    world.send(("b", "b"), ("c", "c"))
    with consuming(world, dead_letters=DEAD, max_deliveries=1) as consumer:
        for delivery in [take(consumer) for _ in range(3)]:
            delivery.release()
        posting_fails(monkeypatch, consumer, KeyboardInterrupt(), sent=False)
        with pytest.raises(KeyboardInterrupt):
            consumer.acquire_many(most, 10)
        assert consumer.stats.in_work == 0
        assert consumer.acquire_many(3, 0.05) == []
        settled_up(world, consumer)
    assert sorted(world.texts(DEAD)) == ["a", "b", "c"]


def test_a_message_whose_rejection_in_a_transaction_is_interrupted_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consuming(world, dead_letters=DEAD) as consumer, world.producer() as producer:

        def interrupted(*_: Any) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        with consumer.transaction(producer) as transaction:
            (delivery,) = transaction.acquire_many(1, 10)
            monkeypatch.setattr("lvq_kafka.consuming.dead_letters.letter_headers", interrupted)
            with pytest.raises(KeyboardInterrupt):
                delivery.reject("bad")
        take(consumer).ack(wait=True, timeout=10)
        assert consumer.stats.in_work == 0


def test_a_value_that_cannot_be_read_says_why_as_before(world: World) -> None:
    world.send(("b", "{"))
    with consuming(world, JSON, dead_letters=DEAD) as consumer:
        for delivery in consumer.acquire_many(2, 10):
            reject_unreadable(delivery)
    reasons = [dict(dead.headers)["lvq-dlq-reason"] for dead in world.records(DEAD)]
    assert all((reason or b"").startswith(b"DecodeError: ") for reason in reasons)


def reject_unreadable(delivery: Delivery[Any]) -> None:
    try:
        delivery.value  # noqa: B018  # decodes
    except DecodeError as error:
        delivery.reject(error).result(10)
