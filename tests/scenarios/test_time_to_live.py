"""Section 8: messages that expire (R8, R10)."""

from __future__ import annotations

import pytest

from lvq_kafka import Ttl
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER
from lvq_kafka.errors import QueueError
from tests.scenarios.harness import Declare, Venue
from tests.waiting import eventually

SHORT, LONG = 4.0, 3600.0
"""Seconds. On a busy machine, reading from a broker takes a few."""


def test_s095_readers_are_not_given_what_has_expired_and_it_no_longer_counts(declare: Declare, venue: Venue) -> None:
    q = declare(non_destructive=True, ttl=Ttl(default=SHORT))
    q.send("a=1")
    assert (q.content(), q.queue.stats().depth) == (["1"], 1)
    venue.later(SHORT)
    assert (q.content(), q.queue.stats().depth) == ([], 0)


def test_s095_consumers_are_not_given_what_has_expired_and_it_no_longer_counts(declare: Declare, venue: Venue) -> None:
    q = declare(ttl=Ttl(default=SHORT))
    c = q.consume()
    q.send("a=1")
    assert c.waiting == 1
    venue.later(SHORT)
    assert c.has_nothing()
    assert c.waiting == 0
    assert (c.consumer.stats.expired, q.queue.stats().depth) == (1, 0)


def test_s096_a_last_value_with_a_ttl_is_a_delete_with_a_delay(declare: Declare, venue: Venue) -> None:
    q = declare(non_destructive=True, ttl=Ttl())
    q.send("KEY=hello", "KEY=how")
    assert (q.content(), q.queue.stats().depth) == (["how"], 1)
    q.send_for(SHORT, "KEY=tombstone")
    assert (q.content(), q.content(), q.queue.stats().depth) == (["tombstone"], ["tombstone"], 1)
    venue.later(SHORT)
    assert (q.content(), q.queue.stats().depth) == ([], 0)


def test_s096_a_held_value_does_not_come_back_when_the_one_after_it_has_expired(declare: Declare, venue: Venue) -> None:
    """As in Qpid C++ and Broker-J. Artemis brings it back (R7)."""
    q = declare(ttl=Ttl())
    c = q.consume()
    q.send("KEY=how")
    held = c.take()
    q.send_for(SHORT, "KEY=tombstone")
    assert c.waiting == 1
    venue.later(SHORT)
    held.release()
    assert c.has_nothing()
    assert (c.held, q.queue.stats().depth) == (0, 0)


def test_s097_a_value_that_has_expired_does_not_hide_the_next_one(declare: Declare, venue: Venue) -> None:
    q = declare(ttl=Ttl())
    q.send_for(0.2, "a=1")
    venue.later(0.3)
    q.queue.purge()
    q.send_for(LONG, "a=2")
    assert q.consume().take_all() == ["2"]


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (Ttl(maximum=10), {None: 60_000, 15_000: 60_000, 5_000: 55_000}),
        (Ttl(minimum=10), {None: NEVER, 15_000: 65_000, 5_000: 60_000}),
        (Ttl(minimum=10, maximum=20), {None: 70_000, 15_000: 65_000, 5_000: 60_000}),
    ],
)
def test_s100_a_ttl_is_kept_within_the_bounds_of_its_queue(ttl: Ttl, expected: dict[int | None, int]) -> None:
    assert _expiries(ttl, *expected) == expected


def test_s101_a_minimum_gives_no_ttl_to_a_message_without_one() -> None:
    """As in Broker-J. Artemis gives it the minimum (R10)."""
    assert _expiries(Ttl(minimum=10), None) == {None: NEVER}


def test_s102_never_precedes_an_own_ttl_which_precedes_the_default() -> None:
    assert ExpiryTimes.of(Ttl(never=True)) is None
    assert _expiries(Ttl(default=30, minimum=10, maximum=60), None, 15_000) == {None: 80_000, 15_000: 65_000}


def test_s103_the_lifetime_of_messages_in_a_queue_never_changes(declare: Declare, venue: Venue) -> None:
    """Broker-J applies a new maximum to queued messages, too. Here a definition is final (R10)."""
    q = declare(ttl=Ttl(maximum=LONG))
    q.send("a=A")
    with pytest.raises(QueueError, match="ttl"):
        declare(ttl=Ttl(maximum=0.001))
    venue.later(0.01)
    q.send("b=B")
    assert q.consume().take_all() == ["A", "B"]


def test_s106_one_expired_value_leaves_the_others(declare: Declare, venue: Venue) -> None:
    q = declare(ttl=Ttl())
    q.send_for(0.1, "a=1")
    q.send("b=2")
    venue.later(0.2)
    assert (q.content(), q.queue.stats().depth, set(q.view())) == (["2"], 1, {"b"})
    c = q.consume()
    assert c.take_all() == ["2"]
    eventually(lambda: q.queue.stats().partitions[0].base == 2)


def test_s106_compaction_changes_nothing(declare: Declare, venue: Venue) -> None:
    q = declare(ttl=Ttl())
    q.send("a=0", "b=2")
    q.send_for(0.1, "a=1")
    venue.later(0.2)
    venue.compact(q.queue.topic)
    assert q.content() == ["2"]
    assert q.consume().take_all() == ["2"]


def test_s095_a_message_that_is_released_after_its_time_is_dropped(declare: Declare, venue: Venue) -> None:
    """As in all of the systems."""
    q = declare(ttl=Ttl(default=SHORT))
    c = q.consume()
    q.send("a=1", "b=2")
    one, other = c.take(), c.take()
    venue.later(SHORT)
    one.release()
    other.ack(wait=True)
    assert c.has_nothing()
    assert (q.queue.stats().depth, c.consumer.stats.expired) == (0, 1)


def _expiries(ttl: Ttl, *own: int | None) -> dict[int | None, int]:
    """Return the expiry of a message that came at 50,000 ms, by its own TTL."""
    expiry_times = ExpiryTimes.of(ttl)
    assert expiry_times is not None
    return {one: expiry_times.expiry(50_000, () if one is None else ((TTL_HEADER, b"%d" % one),)) for one in own}
