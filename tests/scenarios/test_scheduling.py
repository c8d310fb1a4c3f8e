"""Section 10: messages that are scheduled (R11)."""

from __future__ import annotations

from tests.scenarios.harness import PATIENCE, Declare, Venue
from tests.waiting import eventually

STEP = 600.0
"""Seconds. The clock of the venue is set; nobody waits for them."""


def test_s114_of_values_scheduled_in_turn_each_replaces_the_one_before(declare: Declare, venue: Venue) -> None:
    q = declare(non_destructive=True, max_delay=3600.0)
    q.send("a=1")
    for number in range(1, 5):
        q.send_in(STEP + number, f"a={number + 1}")
    view = q.view()
    assert (view["a"], view.stats.scheduled) == ("1", 4)
    venue.later(STEP + 4)
    eventually(lambda: view.stats.scheduled == 0)
    assert view["a"] == "5"
    assert (view.stats.added, view.stats.replaced) == (5, 4)
    assert q.content() == ["5"]


def test_s115_the_value_before_stays_until_the_scheduled_one_is_due(declare: Declare, venue: Venue) -> None:
    """As in Artemis. Broker-J shows no value of the key meanwhile (R11)."""
    q = declare(non_destructive=True, max_delay=3600.0)
    q.send("a=a1")
    q.send_in(STEP, "a=a2")
    b = q.browse()
    assert (b.drain(), q.content()) == (["a1"], ["a1"])
    venue.later(STEP)
    assert (b.drain(), q.content()) == (["a2"], ["a2"])


def test_s115_a_view_and_its_watch_change_when_it_is_due(declare: Declare, venue: Venue) -> None:
    q = declare(max_delay=3600.0)
    q.send("a=a1")
    view = q.view()
    with view.watch() as watch:
        q.send_in(STEP, "a=a2")
        view.barrier()
        snapshot = view.snapshot()
        venue.later(STEP)
        assert (view["a"], dict(snapshot)) == ("a2", {"a": "a1"})
        event = watch.poll(PATIENCE)
        assert event == view.entry("a")
    with view.watch(since=snapshot) as resumed:
        assert resumed.poll(PATIENCE) == view.entry("a")


def test_s116_a_newer_value_drops_what_is_scheduled_before_it(declare: Declare, venue: Venue) -> None:
    """Artemis gives the scheduled one when it is due (R11)."""
    q = declare(non_destructive=True, max_delay=3600.0)
    q.send_in(0.5, "a=a1")
    q.send("a=a2")
    b = q.browse()
    assert b.drain() == ["a2"]
    venue.later(0.5)
    assert (b.drain(), q.content()) == ([], ["a2"])


def test_s117_a_browser_that_is_there_before_is_given_the_message_when_it_is_due(
    declare: Declare, venue: Venue
) -> None:
    """Broker-J does not show it to a browser that has passed it already."""
    q = declare(non_destructive=True, max_delay=3600.0)
    b = q.browse()
    q.send_in(STEP, "a=a1")
    assert (b.drain(), q.content()) == ([], [])
    venue.later(STEP)
    assert b.take() == "a1"
    assert q.content() == ["a1"]


def test_s114_a_consumer_takes_the_last_of_values_that_came_due_one_after_the_other(
    declare: Declare, venue: Venue
) -> None:
    q = declare(max_delay=3600.0)
    c = q.consume()
    for number in range(5):
        q.send_in(STEP + number / 10, f"a=m{number + 1}")
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
    q = declare(max_delay=3600.0)
    c = q.consume()
    q.send("a=a1")
    q.send_in(STEP, "a=a2")
    assert c.take_all() == ["a1"]
    venue.later(STEP)
    assert c.take_and_ack(1) == ["a2"]


def test_s115_compaction_leaves_the_value_before_to_a_consumer_that_comes_later(declare: Declare, venue: Venue) -> None:
    q = declare(max_delay=3600.0)
    q.send("a=a1")
    q.send_in(STEP, "a=a2")
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
    q = declare(max_delay=3600.0)
    c = q.consume()
    q.send_in(0.5, "a=a1")
    q.send("a=a2")
    assert c.take_and_ack(1) == ["a2"]
    venue.later(0.5)
    assert c.has_nothing()
    assert c.consumer.stats.scheduled == 0
    eventually(lambda: q.queue.stats().depth == 0, PATIENCE)


def test_s117_a_consumer_that_waits_is_given_the_message_when_it_is_due(declare: Declare, venue: Venue) -> None:
    q = declare(max_delay=3600.0)
    q.send_in(STEP, "a=a1")
    c = q.consume()
    assert c.waiting == 0
    assert c.consumer.stats.scheduled == 1
    venue.later(STEP)
    eventually(lambda: c.consumer.stats.available == 1, PATIENCE)
    assert c.take_and_ack(1) == ["a1"]
