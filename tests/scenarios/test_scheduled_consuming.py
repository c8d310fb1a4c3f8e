"""Section 10, for consumers: messages that are scheduled (R11)."""

from __future__ import annotations

from lvq_kafka.core.not_before import NOT_BEFORE_HEADER
from tests.scenarios.harness import KEY, PATIENCE, Declare, Queue, Venue
from tests.waiting import eventually

STEP = 4.0
"""Seconds. On a busy machine, reading from a broker takes a few."""

HOUR = 3600.0


def _schedule(q: Queue, delay: float, message: str) -> None:
    """Send a message that counts from so many seconds on, as any client can."""
    key, _, value = message.partition("=")
    due = b"%d" % round((q.venue.cluster.now() + delay) * 1000)
    writer = q.venue.cluster.writer()
    receipt = writer.append(
        q.queue.topic, key.encode(), value.encode(), [(KEY, key.encode()), (NOT_BEFORE_HEADER, due)]
    )
    receipt.result(PATIENCE)
    writer.close(PATIENCE)


def test_s114_a_consumer_takes_the_last_of_values_that_came_due_one_after_the_other(
    declare: Declare, venue: Venue
) -> None:
    q = declare(max_delay=HOUR)
    c = q.consume()
    for number in range(5):
        _schedule(q, STEP + number / 10, f"a=m{number + 1}")
    c.settle()
    assert (c.consumer.stats.scheduled, q.queue.stats().tally.scheduled) == (5, 5)
    venue.later(STEP + 0.4)
    assert c.take_and_ack(1) == ["m5"]
    assert c.has_nothing()
    stats = c.consumer.stats
    assert (stats.read, stats.replaced, stats.scheduled) == (5, 4, 0)
    assert c.held == 0
    eventually(lambda: q.queue.stats().depth == 0, PATIENCE)


def test_s115_a_consumer_takes_the_value_before_until_the_scheduled_one_is_due(declare: Declare, venue: Venue) -> None:
    """As in Artemis. Broker-J hands out nothing of the key meanwhile (R11)."""
    q = declare(max_delay=HOUR)
    c = q.consume()
    q.send("a=a1")
    _schedule(q, STEP, "a=a2")
    assert c.take_all() == ["a1"]
    venue.later(STEP)
    assert c.take_and_ack(1) == ["a2"]


def test_s115_compaction_leaves_the_value_before_to_a_consumer_that_comes_later(declare: Declare, venue: Venue) -> None:
    q = declare(max_delay=HOUR)
    q.send("a=a1")
    _schedule(q, STEP, "a=a2")
    q.restart()
    c = q.consume()
    assert c.take_all() == ["a1"]
    c.close()
    q.restart()
    c = q.consume()
    venue.later(STEP)
    assert c.take_and_ack(1) == ["a2"]


def test_s116_what_was_scheduled_before_a_newer_value_never_comes(declare: Declare, venue: Venue) -> None:
    """As no other system: Artemis gives it when it is due, and Broker-J may, too (R11)."""
    q = declare(max_delay=HOUR)
    c = q.consume()
    _schedule(q, 0.5, "a=a1")
    q.send("a=a2")
    assert c.take_and_ack(1) == ["a2"]
    venue.later(0.5)
    assert c.has_nothing()
    assert c.consumer.stats.scheduled == 0
    eventually(lambda: q.queue.stats().depth == 0, PATIENCE)


def test_s117_a_consumer_that_waits_is_given_the_message_when_it_is_due(declare: Declare, venue: Venue) -> None:
    q = declare(max_delay=HOUR)
    _schedule(q, STEP, "a=a1")
    c = q.consume()
    assert c.waiting == 0
    assert c.consumer.stats.scheduled == 1
    venue.later(STEP)
    eventually(lambda: c.consumer.stats.available == 1, PATIENCE)
    assert c.take_and_ack(1) == ["a1"]
