"""Consumers of a ranked queue (R20)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from random import Random

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from tests.unit.consuming.world import TOPIC, World, consuming, drain, has_read_all, make_world, settled_up, take
from tests.waiting import eventually

PRIORITY = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="priority")
SORTED = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="sorted")
SCHEDULING = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="priority", max_delay=86_400.0)
STANDARD = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="priority", conflate=False)


def send(world: World, *records: tuple[str, str, str | None], header: str = PRIORITY_HEADER) -> None:
    """Write messages: key, value, and rank."""
    for key, value, rank in records:
        headers = [] if rank is None else [(header, rank.encode())]
        world.write(TOPIC, key.encode(), value.encode(), headers)


@pytest.mark.parametrize("options", [{}, {"durable_counts": True}])
def test_the_highest_priority_comes_first_and_one_without_counts_as_4(options: dict[str, bool]) -> None:
    world = make_world()
    send(world, ("a", "low", "1"), ("b", "none", None), ("c", "high", "9"), ("d", "usual", "4"), ("e", "five", "5"))
    with consuming(world, definition=PRIORITY, **options) as consumer:
        has_read_all(world, consumer)
        assert drain(consumer, 5) == ["high", "five", "none", "usual", "low"]
        assert consumer.stats.out_of_order == 0


def test_a_newer_value_brings_its_own_rank() -> None:
    world = make_world()
    send(world, ("a", "a1", "9"), ("b", "b1", "4"), ("a", "a2", "0"))
    with consuming(world, definition=PRIORITY) as consumer:
        has_read_all(world, consumer)
        assert drain(consumer, 2) == ["b1", "a2"]


def test_a_sorted_queue_goes_by_text_without_one_first() -> None:
    world = make_world()
    send(world, ("a", "b", "b"), ("b", "none", None), ("c", "a", "a"), ("d", "B", "B"), header=SORT_HEADER)
    with consuming(world, definition=SORTED) as consumer:
        has_read_all(world, consumer)
        assert drain(consumer, 4) == ["none", "B", "a", "b"]


def test_a_standard_queue_goes_by_rank() -> None:
    world = make_world()
    send(world, ("a", "a1", "4"), ("a", "a2", "5"), ("a", "a3", "5"))
    with consuming(world, definition=STANDARD) as consumer:
        has_read_all(world, consumer)
        assert drain(consumer, 3) == ["a2", "a3", "a1"]


def test_many_are_taken_in_order_and_what_is_set_aside_stays_in_its_order() -> None:
    world = make_world()
    send(world, *((f"k{number}", str(number), str(number)) for number in range(6)))
    with consuming(world, definition=PRIORITY, prefetch=2) as consumer:
        has_read_all(world, consumer)
        assert [delivery.value for delivery in consumer.acquire_many(2, 10)] == ["5", "4"]
        messages = iter(consumer)
        assert next(messages).value == "3"
        send(world, ("urgent", "urgent", "9"))
        has_read_all(world, consumer)
        assert [next(messages).value for _ in range(3)] == ["2", "urgent", "1"], "2 was set aside before"


def test_a_returned_message_has_its_rank() -> None:
    world = make_world()
    send(world, ("a", "a", "9"), ("b", "b", "5"))
    with consuming(world, definition=PRIORITY) as consumer:
        has_read_all(world, consumer)
        take(consumer).release()
        assert drain(consumer, 2) == ["a", "b"]


def test_a_priority_that_cannot_be_read_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world()
    send(world, ("a", "a", "urgent"), ("b", "b", "10"), ("c", "c", "5"))
    with caplog.at_level(logging.WARNING), consuming(world, definition=PRIORITY) as consumer:
        has_read_all(world, consumer)
        assert drain(consumer, 3) == ["c", "a", "b"]
        assert consumer.stats.malformed == 2
        eventually(lambda: _said(caplog.records, PRIORITY_HEADER) == 1)


def test_beyond_the_window_it_is_said_that_others_go_first(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world(metadata_limit=1000)
    with consuming(world, definition=PRIORITY, max_in_work=4000) as consumer:
        ledger = consumer._shared.core.ledger
        ledger.capacity.limit = 1000
        send(world, ("first", "first", None))
        take(consumer).ack()
        window = ledger.window
        assert window is not None
        send(world, *((f"k{number}", "4", "4") for number in range(window + 100)))
        send(world, *((f"u{number}", "9", "9") for number in range(200)))
        has_read_all(world, consumer)
        ahead = ledger.capacity.rank_room(counted=False).ahead
        taken = consumer.acquire_many(ahead + 10, 10)
        assert [delivery.value for delivery in taken] == ["9"] * ahead + ["4"] * 10
        consumer.ack_many(taken)
        stats = consumer.stats
        assert stats.out_of_order == 10
        assert stats.gated > 100
        assert f"exact only among the first {window:,} offsets" in stats.trouble
        assert "messages are beyond (0 are in work, or were returned; the lowest is offset " in stats.trouble
        assert "offset.metadata.max.bytes" in stats.trouble
        eventually(lambda: _said(caplog.records, "better rank") == 1)
        left = drain(consumer, window + 300 - len(taken))
        assert left.count("9") == 200 - ahead
        eventually(lambda: consumer.stats.trouble == "")
        settled_up(world, consumer)


def fill_with_scheduled(world: World, consumer: Consumer[str]) -> int:
    """Fill the commit text with messages that are not due for a day; return their number."""
    consumer._shared.core.ledger.capacity.limit = 200
    later, rng, scheduled = ("lvq-not-before", b"%d" % int((time.time() + 80_000) * 1000)), Random(7), 0
    for at in range(2000):
        rank = (PRIORITY_HEADER, b"%d" % (at % 10))
        is_later = at == 0 or rng.random() < 0.5
        world.write(TOPIC, b"k%d" % at, b"v", [rank, later] if is_later else [rank])
        scheduled += is_later
    has_read_all(world, consumer)
    assert drain(consumer, 2000 - scheduled) == ["v"] * (2000 - scheduled)
    return scheduled


def test_g16_scheduled_messages_that_fill_the_commit_text_hold_nothing_up_by_rank(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = make_world(metadata_limit=200)
    with consuming(world, definition=SCHEDULING) as consumer:
        scheduled = fill_with_scheduled(world, consumer)
        send(world, ("low", "low", "1"), ("high", "high", "9"))
        has_read_all(world, consumer)
        assert drain(consumer, 2) == ["high", "low"]
        eventually(lambda: consumer.stats.omitted > 0)
        assert (consumer.stats.available, consumer.stats.gated) == (0, 0)
        assert "runs of acked messages are not stored and come again after a crash" in consumer.stats.trouble
        assert f"{scheduled:,} are scheduled and not due" in consumer.stats.trouble
        assert "schedule fewer of them" in consumer.stats.trouble
        eventually(lambda: _said(caplog.records, "the commit text of partition 0 is full") == 1)


def test_g16_a_transaction_by_rank_that_waits_for_room_says_so(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world(metadata_limit=200)
    world.topics.create("out", partitions=1, config={})
    with consuming(world, definition=SCHEDULING) as consumer, world.producer("out", transactional_id="t") as producer:
        fill_with_scheduled(world, consumer)
        send(world, ("high", "high", "9"))
        has_read_all(world, consumer)
        with consumer.transaction(producer) as tx:
            assert tx.acquire_many(1, 0.1) == []
        assert "1 messages wait, because a transaction could not commit them" in consumer.stats.trouble
        assert "the lowest is offset 0, scheduled" in consumer.stats.trouble
        eventually(lambda: _said(caplog.records, "because a transaction could not commit them") == 1)


def test_transactions_take_by_rank() -> None:
    world = make_world()
    send(world, ("a", "a", "1"), ("b", "b", "8"))
    with consuming(world, definition=PRIORITY) as consumer:
        has_read_all(world, consumer)
        world.topics.create("out", partitions=1, config={})
        with world.producer("out", transactional_id="t") as producer, consumer.transaction(producer) as tx:
            (first,) = tx.acquire_many(1, 10)
            assert first.value == "b"
            first.ack()
        assert drain(consumer, 1) == ["a"]


def _said(records: Sequence[logging.LogRecord], what: str) -> int:
    return sum(what in record.getMessage() for record in records)
