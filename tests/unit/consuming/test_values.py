"""Unreadable values, and mismatched keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka.codecs import JSON, Codec
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import (
    DecodeError,
    KeyMismatch,
)
from tests.unit.consuming.world import (
    TOPIC,
    World,
    consuming,
    drain,
    settled_up,
    take,
)
from tests.waiting import eventually


def test_an_unreadable_value_raises_when_it_is_asked_for_and_stays_in_the_queue(world: World) -> None:
    world.send(("a", "{"), ("b", "1"))
    with consuming(world, JSON) as consumer:
        with pytest.raises(DecodeError) as caught, take(consumer) as delivery:
            assert delivery.value
        assert str(caught.value.position) == "prices/0/0"
        assert take(consumer).raw == b"{"
        assert take(consumer).value == 1


def test_an_unreadable_value_can_be_skipped_and_is_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "{"), ("b", "1"))
    with consuming(world, JSON, undecodable="skip") as consumer:
        assert drain(consumer, 1) == [1]
        assert consumer.skipped == 1
        settled_up(world, consumer)
    assert "prices/0/0" in caplog.text


def test_an_unreadable_value_whose_partition_goes_meanwhile_is_left_to_who_has_it_now(world: World) -> None:
    def decode(data: bytes) -> str:
        if data == b"bad" and consumer.stats.lost == 0:
            world.expel(world.members[0])
            eventually(lambda: consumer.stats.lost == 1)
        if data == b"bad":
            raise ValueError("bad")
        return data.decode()

    world.send(("a", "bad"), ("b", "1"))
    with consuming(world, Codec(str.encode, decode), undecodable="skip") as consumer:
        assert drain(consumer, 1) == ["1"]
        assert consumer.stats.rejected == 1


@pytest.mark.parametrize(
    ("taking", "prefetch"),
    [(iter, 1), (iter, 2), (lambda consumer: consumer.acquire_many(2), 1)],
    ids=["iterated", "taken ahead", "acquired"],
)
def test_an_interrupt_while_it_is_seen_whether_a_value_can_be_read_gives_the_message_back(
    world: World, taking: Callable[[Any], Any], prefetch: int
) -> None:
    def decode(data: bytes) -> str:
        if not interrupts:
            return data.decode()
        raise interrupts.pop()

    interrupts = [KeyboardInterrupt()]
    world.send(("a", "1"), ("b", "2"))
    with consuming(world, Codec(str.encode, decode), undecodable="skip", prefetch=prefetch) as consumer:
        with pytest.raises(KeyboardInterrupt):
            list(taking(consumer))
        assert consumer.stats.in_work == 0
        assert sorted(drain(consumer, 2)) == ["1", "2"]


def test_an_unreadable_value_can_be_given_as_bytes(world: World) -> None:
    world.send(("a", "{"))
    with consuming(world, JSON, undecodable="raw") as consumer:
        assert drain(consumer, 1) == [b"{"]


def test_a_value_is_decoded_once_and_only_when_asked_for(world: World) -> None:
    calls: list[bytes] = []

    def decode(data: bytes) -> str:
        calls.append(data)
        return data.decode()

    world.send(("a", "a"), ("b", "b"))
    with consuming(world, Codec(str.encode, decode)) as consumer:
        take(consumer).ack()
        second = take(consumer)
        assert (second.value, second.value) == ("b", "b")
    assert calls == [b"b"]


@pytest.mark.parametrize(("policy", "expected"), [("record", ["1", "2"]), ("header", ["2"])])
def test_r16_a_header_that_disagrees_with_the_key_follows_the_policy(
    world: World, policy: Any, expected: list[str]
) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header="ticker", key_mismatch=policy)
    world.write(TOPIC, b"a", b"1", [("ticker", b"a")])
    world.write(TOPIC, b"b", b"2", [("ticker", b"a")])
    with consuming(world, definition=definition) as consumer:
        assert drain(consumer, len(expected)) == expected
        assert consumer.stats.mismatched == 1


def test_r16_with_the_policy_fail_the_consumer_stops_with_the_position(world: World) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header="ticker", key_mismatch="fail")
    world.write(TOPIC, b"b", b"2", [("ticker", b"a")])
    with consuming(world, definition=definition) as consumer, pytest.raises(KeyMismatch) as caught:
        take(consumer)
    assert str(caught.value.position) == "prices/0/0"
