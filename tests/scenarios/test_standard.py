"""Scenarios again, on standard queues, where they differ from last value queues: nothing replaces a message (R35)."""

from __future__ import annotations

import pytest

from lvq_kafka import Message, TopicSpec, Ttl
from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import PATIENCE, Declare, Venue
from tests.waiting import eventually


def test_s001_messages_with_one_key_all_stay_in_order(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("1=a", "2=b", "3=c", "4=d", "2=e", "1=f")
    assert q.content() == ["a", "b", "c", "d", "e", "f"]
    assert q.queue.stats().depth == 6


def test_s010_messages_with_one_key_are_in_work_at_once(declare: Declare) -> None:
    """G13 is about values of a key, of which a standard queue has none."""
    q = declare(conflate=False)
    q.send("a=1", "a=2", "a=3")
    c = q.consume()
    held = [c.take() for _ in range(3)]
    assert [delivery.value for delivery in held] == ["1", "2", "3"]
    for delivery in reversed(held):
        delivery.ack()
    assert c.has_nothing()


def test_s018_messages_without_a_key_all_stay(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("-=x1", "-=x2")
    assert q.content() == ["x1", "x2"]
    c = q.consume()
    first = c.take()
    assert (first.key, first.value) == ("", "x1")
    first.ack()
    assert c.take_all() == ["x2"]


def test_s022_the_empty_text_is_a_key_like_any_other(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("=v1", "=v2", "-=v3")
    assert q.content() == ["v1", "v2", "v3"]


def test_s031_a_browser_returns_each_message_once(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=a1", "b=b1", "a=a2")
    b = q.browse()
    assert b.drain() == ["a1", "b1", "a2"]
    q.send("b=b2")
    assert b.drain() == ["b2"]
    q.send("c=c3", "c=c4")
    assert b.drain() == ["c3", "c4"]
    assert q.content() == ["a1", "b1", "a2", "b2", "c3", "c4"]


def test_s035_a_slow_browser_misses_nothing(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=a1")
    b = q.browse()
    assert b.drain() == ["a1"]
    q.send("a=a2", "a=a3", "a=a4")
    assert b.drain() == ["a2", "a3", "a4"]


def test_s042_a_browser_shows_what_is_held_and_not_what_is_consumed(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=1", "a=2", "a=3")
    c = q.consume()
    first, second = c.take(), c.take()
    second.ack(wait=True, timeout=PATIENCE)
    assert q.content() == ["1", "3"]
    first.ack(wait=True, timeout=PATIENCE)
    assert q.content() == ["3"]


def test_s049_a_message_that_is_held_does_not_hold_up_the_next_of_its_key(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1")
    c = q.consume()
    first = c.take()
    q.send("a=m2")
    second = c.take()
    assert (first.value, second.value) == ("m1", "m2")
    first.ack()
    second.ack()
    assert c.has_nothing()


def test_s050_a_message_that_is_released_comes_back_whatever_was_sent_since(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1")
    c = q.consume()
    c.take()
    q.send("a=m2")
    c.close()
    assert q.consume().take_all() == ["m1", "m2"]


def test_s056_a_message_that_is_released_comes_first(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send(*(f"{number}={number}" for number in range(1, 11)))
    c = q.consume()
    first = c.take()
    others = [c.take() for _ in range(9)]
    first.release()
    again = c.take()
    assert (again.value, again.redelivered) == ("1", True)
    for delivery in (again, *others):
        delivery.ack()
    assert c.has_nothing()


def test_s057_an_older_message_that_is_released_comes_after_a_newer_one_was_acked(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1")
    c = q.consume()
    first = c.take()
    q.send("a=m2")
    c.take().ack(wait=True, timeout=PATIENCE)
    first.release()
    assert c.take_all() == ["m1"]


def test_s076_two_browsers_of_a_queue_that_is_never_consumed_see_all_messages(declare: Declare) -> None:
    """A log that browsers read."""
    q = declare(conflate=False, non_destructive=True)
    q.send(*(f"a={number}" for number in range(5)))
    one, two = q.browse(), q.browse()
    assert one.drain() == two.drain() == list("01234")
    q.send("a=5")
    assert one.drain() == two.drain() == ["5"]
    with pytest.raises(ConfigError, match="non_destructive"):
        q.consume()


def test_s079_what_an_aborted_transaction_took_comes_again_and_what_it_sent_does_not(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1", "a=m2")
    c = q.consume()
    with c.transaction(abort=True) as tx:
        for _ in range(2):
            c.take(tx).ack()
    with q.transaction(abort=True) as send:
        send("a=m3")
    with c.transaction() as tx:
        taken = [c.take(tx) for _ in range(2)]
        assert [delivery.value for delivery in taken] == ["m1", "m2"]
        for delivery in taken:
            delivery.ack()
    assert c.has_nothing()


def test_s088_nothing_is_lost_or_comes_again_after_a_restart(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1", "a=m2", "a=m3", "-=m4")
    c = q.consume()
    held = [c.take() for _ in range(4)]
    held[1].ack()
    held[3].ack(wait=True, timeout=PATIENCE)
    assert q.queue.stats().depth == 2
    q.restart()
    assert q.queue.stats().depth == 2
    q.send("a=m5")
    assert q.consume().take_all() == ["m1", "m3", "m5"]
    q.restart()
    assert q.consume().has_nothing()


def test_s095_a_message_that_has_expired_leaves_the_others_of_its_key(declare: Declare, venue: Venue) -> None:
    """R8 is about the newest value of a key."""
    q = declare(conflate=False, ttl=Ttl())
    with q.queue.producer() as producer:
        producer.send(Message("m1", headers={"k": "a"})).result(PATIENCE)
        producer.send(Message("m2", headers={"k": "a"}, ttl=4.0)).result(PATIENCE)
    assert q.content() == ["m1", "m2"]
    venue.later(4.0)
    assert (q.content(), q.queue.stats().depth) == (["m1"], 1)
    c = q.consume()
    assert c.take_all() == ["m1"]
    assert c.consumer.stats.expired == 1


def test_s108_what_was_purged_is_gone_and_the_same_can_be_sent_again(declare: Declare) -> None:
    q = declare(conflate=False)
    q.send("a=m1", "a=m1", "b=m2")
    assert q.queue.purge(keys=["a"]).messages == 2
    assert q.content() == ["m2"]
    q.queue.purge()
    q.send("a=m1")
    assert q.consume().take_all() == ["m1"]


def test_s111_the_oldest_message_is_the_one_that_waits_longest(declare: Declare) -> None:
    q = declare(conflate=False)
    first, *_ = q.send("Z=1", "M=2", "Z=3")
    with q.queue.browser(follow=False) as browser:
        sent = next(iter(browser))
    stats = q.queue.stats()
    assert (first.offset, stats.oldest) == (0, sent.timestamp)  # type: ignore[union-attr]
    q.consume().take_and_ack(1)
    eventually(lambda: q.queue.stats().depth == 2, PATIENCE)


def test_s115_a_message_that_is_scheduled_comes_when_it_is_due_and_replaces_nothing(
    declare: Declare, venue: Venue
) -> None:
    q = declare(conflate=False, max_delay=3600.0)
    now = venue.cluster.now()
    with q.queue.producer() as producer:
        for value, not_before in (("a1", None), ("a2", now + 60.0), ("a3", None)):
            producer.send(Message(value, headers={"k": "a"}, not_before=not_before)).result(PATIENCE)
    b, c = q.browse(), q.consume()
    assert b.drain() == ["a1", "a3"]
    assert c.take_all() == ["a1", "a3"]
    eventually(lambda: q.queue.stats().depth == 0, PATIENCE)
    venue.later(60.0)
    assert b.take() == "a2"
    late = c.take()
    assert (late.key, late.value) == ("a", "a2")
    late.ack()
    assert c.has_nothing()


def test_s155_a_delete_means_nothing_and_empty_bytes_are_a_message(declare: Declare, venue: Venue) -> None:
    q = declare(conflate=False)
    q.send("a=1", "b=")
    venue.write(q.queue.topic, 0, "a", None)
    q.send("c=3")
    b = q.browse()
    assert b.drain() == ["1", "", "3"]
    assert b.browser.ignored == 1
    c = q.consume()
    assert c.take_all() == ["1", "", "3"]
    assert (c.consumer.stats.ignored, c.consumer.stats.deleted) == (1, 0)


def test_s158_messages_with_one_key_in_two_partitions_all_stay(declare: Declare, venue: Venue) -> None:
    q = declare(conflate=False, spec=TopicSpec(partitions=2))
    for partition in (0, 1, 0, 1):
        venue.write(q.queue.topic, partition, "a", f"m{partition}")
    b = q.browse()
    assert sorted(b.drain()) == ["m0", "m0", "m1", "m1"]
    assert b.browser.split_keys == []
    assert sorted(q.consume().take_all()) == ["m0", "m0", "m1", "m1"]
