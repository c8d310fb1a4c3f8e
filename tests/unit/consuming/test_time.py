"""Effects of time: locks of slow holders, and delays of returned messages."""

from __future__ import annotations

import logging
import math
from datetime import timedelta

import pytest

from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, ConfigError, LockLost
from tests.unit.consuming.world import Clock, World, consuming, drain, has_read_all, nothing_comes, take
from tests.waiting import eventually


def test_a_lock_that_times_out_makes_the_message_available_again(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=0.05) as consumer:
        first = take(consumer)
        eventually(lambda: first.state is MessageState.LOST)
        Clock(consumer)  # the next holder gets all the time it needs
        second = take(consumer)
        assert (second.value, second.redelivered, second.delivery_count) == ("a", True, 2)
        assert first.state is MessageState.LOST
        for settle in (first.ack, first.release, first.reject, first.extend):
            with pytest.raises(LockLost, match="its lock timed out"):
                settle()
        second.ack(wait=True, timeout=10)
        assert (consumer.stats.timed_out, consumer.stats.acked) == (1, 1)


def test_a_block_whose_lock_timed_out_goes_on_with_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=0.02) as consumer:
        with take(consumer) as delivery:
            eventually(lambda: delivery.state is MessageState.LOST)
        assert "may be handled again" in caplog.text
        with take(consumer) as delivery:
            assert delivery.value == "a"


def test_a_holder_that_extends_keeps_its_lock(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=1.0) as consumer:
        clock = Clock(consumer)
        delivery = take(consumer)
        delivery.extend(60)
        clock.go_on(2.0)
        assert nothing_comes(consumer)
        delivery.ack()
        assert consumer.stats.timed_out == 0


def test_a_holder_can_extend_by_the_usual_time_again_and_again(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=1.0) as consumer:
        clock = Clock(consumer)
        delivery = take(consumer)
        for _ in range(4):
            clock.go_on(0.9)
            delivery.extend()
        delivery.ack()
        assert consumer.stats.timed_out == 0


def test_without_a_lock_timeout_extending_is_asked_for_nothing_and_still_tells_what_is_lost(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        delivery.extend()
        delivery.ack()
        with pytest.raises(AlreadySettled):
            delivery.extend()


def test_a_lock_can_be_limited_by_its_holder_alone(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        delivery.extend(0.02)
        assert take(consumer).redelivered
        assert delivery.state is MessageState.LOST


def test_a_newer_value_comes_when_the_lock_on_the_older_one_is_over(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world, lock_timeout=1.0) as consumer:
        clock = Clock(consumer)
        take(consumer)
        world.send(("a", "a2"))
        has_read_all(world, consumer)
        assert nothing_comes(consumer)
        clock.go_on(1.0)
        assert drain(consumer, 1) == ["a2"]
        assert consumer.stats.timed_out == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "60", True, pytest.param(-(10**400), id="less")])
def test_an_extension_that_is_none_is_refused(world: World, seconds: float) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, take(consumer) as delivery, pytest.raises(ConfigError, match="seconds"):
        delivery.extend(seconds)


@pytest.mark.parametrize("seconds", [math.inf, 3600, pytest.param(10**400, id="more than a float can hold")])
def test_an_extension_may_be_as_long_as_one_likes(world: World, seconds: float) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, take(consumer) as delivery:
        delivery.extend(seconds)
        assert delivery.state is MessageState.ACQUIRED


# ---------------------------------------------------------------- delays


def test_a_message_released_with_a_delay_comes_when_it_is_over(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        clock = Clock(consumer)
        take(consumer).release(delay=1.0)
        assert take(consumer).value == "b"
        clock.go_on(0.9)
        assert nothing_comes(consumer)
        clock.go_on(0.1)
        again = take(consumer)
        assert (again.value, again.redelivered, again.delivery_count) == ("a", True, 2)


def test_a_newer_value_does_not_wait_for_the_delay_of_the_older_one(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        take(consumer).release(delay=3600)
        assert nothing_comes(consumer)
        world.send(("a", "a2"))
        assert drain(consumer, 1) == ["a2"]


def test_a_delete_ends_the_delay_for_good(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        clock = Clock(consumer)
        take(consumer).release(delay=1.0)
        world.send(("a", None))
        has_read_all(world, consumer)
        clock.go_on(2.0)
        assert nothing_comes(consumer)
        eventually(lambda: world.committed_offsets() == {0: 2})


def test_a_delayed_message_is_pending_and_comes_at_once_to_the_next_consumer(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        take(consumer).release(delay=3600)
    with consuming(world) as consumer:
        delivery = take(consumer)
        assert (delivery.value, delivery.redelivered) == ("a1", True)


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), math.inf, "1", None, True, timedelta(1), pytest.param(10**400, id="more")]
)
def test_a_delay_that_is_none_is_refused_and_the_message_stays_held(world: World, delay: float) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        with pytest.raises(ConfigError, match="delay"):
            delivery.release(delay=delay)
        assert delivery.state is MessageState.ACQUIRED


@pytest.mark.parametrize("lock_timeout", [0, -1, float("nan"), "10"])
def test_a_lock_timeout_that_is_none_is_refused(world: World, lock_timeout: float) -> None:
    with pytest.raises(ConfigError, match="lock_timeout"), consuming(world, lock_timeout=lock_timeout):
        pass


def test_a_paused_consumer_frees_what_times_out_and_hands_it_out_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=0.02) as consumer, caplog.at_level(logging.WARNING):
        held = take(consumer)
        consumer.pause()
        eventually(lambda: held.state is MessageState.LOST)
        assert nothing_comes(consumer)
        consumer.resume()
        assert take(consumer).redelivered
