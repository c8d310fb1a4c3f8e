"""Section 11: rings, and limits that nothing enforces (R12)."""

from __future__ import annotations

import random

import pytest

from lvq_kafka import Limits
from lvq_kafka.errors import ConfigError
from tests.scenarios.harness import KEY, PATIENCE, Declare, Venue
from tests.waiting import eventually


@pytest.mark.parametrize(("ring", "keys", "sends"), [(25, 4, 50), (5, 7, 50), (49, 1, 50)])
def test_s120_a_ring_shows_the_newest_of_each_key_and_no_more_than_it_holds(
    declare: Declare, ring: int, keys: int, sends: int
) -> None:
    q = declare(limits=Limits(policy="ring", messages=ring))
    c = q.consume()
    dice = random.Random(ring)
    newest: dict[str, str] = {}
    for number in range(sends):
        key = f"k{number if number < keys else dice.randrange(keys)}"
        newest.pop(key, None)
        newest[key] = f"{key}={number}"
        q.send(newest[key])
    expected = [value.partition("=")[2] for value in newest.values()][-ring:]
    c.settle()
    eventually(lambda: q.content() == expected, PATIENCE)
    assert c.take_all() == expected
    assert c.consumer.stats.evicted >= keys - len(expected)


@pytest.mark.parametrize("ring", [Limits(policy="ring", messages=3), Limits(policy="ring", bytes=20)])
def test_s121_an_update_at_the_limit_costs_no_other_key_its_value(declare: Declare, ring: Limits) -> None:
    """As in Broker-J. Qpid evicts first and conflates then, so that an unrelated key is lost. A message has 4 bytes."""
    q = declare(limits=ring)
    c = q.consume()
    q.send("a=1", "b=2", "c=3")
    assert c.waiting == 3
    q.send("c=4")
    assert (c.waiting, c.consumer.stats.evicted) == (3, 0)
    assert c.take_all() == ["1", "2", "4"]


def test_s121_a_new_key_at_the_limit_costs_the_lowest_its_value(declare: Declare) -> None:
    q = declare(limits=Limits(policy="ring", messages=3))
    c = q.consume()
    q.send("a=1", "b=2", "c=3", "c=4", "d=5")
    assert (c.waiting, c.consumer.stats.evicted) == (3, 1)
    assert c.take_all() == ["2", "4", "5"]


def test_s121_what_is_in_work_is_passed_over_and_evicted_once_it_comes_back(declare: Declare) -> None:
    q = declare(limits=Limits(policy="ring", messages=2))
    c = q.consume()
    q.send("a=1", "b=2")
    held = [c.take(), c.take()]
    q.send("c=3", "d=4")
    assert (c.waiting, c.held, c.consumer.stats.evicted) == (1, 2, 1)
    held[0].release()
    held[1].ack()
    assert (c.waiting, c.held, c.consumer.stats.evicted) == (1, 0, 2)
    assert c.take_all() == ["4"]


def test_s121_what_was_evicted_does_not_come_back_with_the_next_consumer(declare: Declare) -> None:
    q = declare(limits=Limits(policy="ring", messages=2))
    c = q.consume()
    q.send("a=1")
    held = c.take()
    q.send("b=2", "c=3", "d=4", "e=5")  # all but the last are evicted
    assert c.waiting == 1
    assert c.take_all() == ["5"]
    c.close()
    assert q.consume().take_all() == ["1"], held


@pytest.mark.parametrize("limits", [{"messages": 0}, {"bytes": 0}])
def test_s125_a_limit_that_nothing_fits_is_refused_up_front(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as refusal:
        Limits(policy="ring", **limits)  # type: ignore[arg-type]
    assert next(iter(limits)) in str(refusal.value)


def test_s125_a_message_that_fits_no_ring_is_evicted_if_another_client_writes_it(
    declare: Declare, venue: Venue
) -> None:
    """A broker rejects it. Here only the producers of this library can."""
    q = declare(limits=Limits(policy="ring", bytes=100))
    c = q.consume()
    q.send("a=1", "b=2")
    venue.write(q.queue.topic, 0, "c", "x" * 100)
    assert (c.waiting, c.consumer.stats.evicted) == (2, 1)
    assert c.take_all() == ["1", "2"]


def test_s128_with_the_policy_none_everything_is_kept_and_the_breach_is_shown(declare: Declare) -> None:
    q = declare(limits=Limits(policy="none", messages=2, bytes=10))
    c = q.consume()
    q.send(*(f"{key}=1" for key in "abcde"))
    assert (c.waiting, c.consumer.stats.evicted) == (5, 0)
    stats = q.queue.stats()
    size = 5 * (2 * len("a") + len("1") + len(KEY))
    assert (stats.depth, stats.bytes) == (5, size)
    assert stats.breach == f"5 messages where 2 are allowed and {size} bytes where 10 are allowed"
    assert c.take_all() == ["1"] * 5
    eventually(lambda: q.queue.stats().breach == "", PATIENCE)
