"""Consumers that nobody closes: an abandoned one gives up its partitions, and one still referenced is named."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Any

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import TopicRecreated
from tests.unit.consuming.world import GROUP, TOPIC, World, consuming, take
from tests.waiting import eventually


def opened(world: World, **options: Any) -> Consumer[str]:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None)
    return Consumer(world, definition, TEXT, **{"commit_interval": 0.01, "revoke_grace": 0.0, **options})


def left_behind() -> AbstractContextManager[object]:
    return pytest.warns(ResourceWarning, match=r"unclosed consumer of q: one that was opened at .*test_unclosed\.py:")


def test_one_that_is_left_behind_leaves_the_group_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"), ("b", "b"))
    consumer = opened(world)
    take(consumer).ack()
    thread = consumer._thread._thread
    with left_behind():
        del consumer
    eventually(lambda: world.groups.member_count(GROUP) == 0)
    eventually(lambda: not thread.is_alive())
    assert "which was dropped without being closed: one that was opened at" in caplog.text
    with consuming(world) as another:
        assert take(another).value == "b", "what was acked is committed"


def test_a_message_that_was_rejected_becomes_a_dead_letter_all_the_same(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("a", "a"))
    consumer = opened(world, dead_letters="dead")
    delivery = take(consumer)
    world.disconnect()
    delivery.reject("no")
    del delivery
    with left_behind():
        del consumer
    world.reconnect()
    eventually(lambda: world.texts("dead") == ["a"])
    eventually(lambda: world.groups.member_count(GROUP) == 0)


def test_it_is_not_left_behind_while_it_is_iterated_over(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    values = []
    for delivery in opened(world):
        gc.collect()
        with delivery:
            values.append(delivery.value)
        if len(values) == 2:
            break
    assert values == ["a", "b"]
    with left_behind():
        del delivery
        gc.collect()
    eventually(lambda: world.groups.member_count(GROUP) == 0)


def test_nor_while_what_was_acquired_from_it_is_there(world: World) -> None:
    world.send(("a", "a"))
    delivery = take(opened(world))
    gc.collect()
    delivery.ack(wait=True, timeout=10)
    with left_behind():
        del delivery
    eventually(lambda: world.groups.member_count(GROUP) == 0)


def test_nor_while_a_task_iterates_over_it(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))

    async def consume() -> list[str]:
        values: list[str] = []
        async for delivery in opened(world):
            gc.collect()
            with delivery:
                values.append(delivery.value)
            if len(values) == 2:
                break
        return values

    with left_behind():
        assert asyncio.run(consume()) == ["a", "b"]
        gc.collect()
    eventually(lambda: world.groups.member_count(GROUP) == 0)


def test_nor_while_it_runs_a_handler(world: World) -> None:
    world.send(("a", "a"))
    handled, run = Event(), opened(world).run
    consumer = run.__self__
    worker = Thread(target=run, args=(lambda _: handled.set(),))
    worker.start()
    assert handled.wait(10)
    consumer.close()
    worker.join(10)


def test_it_is_closed_during_an_outage_too(world: World) -> None:
    world.send(("a", "a"))
    consumer = opened(world)
    take(consumer)
    world.disconnect()
    thread = consumer._thread._thread
    with left_behind():
        del consumer
    eventually(lambda: not thread.is_alive(), 20)
    world.reconnect()


def test_one_that_was_closed_or_has_failed_is_left_without_a_word(world: World) -> None:
    closed = opened(world)
    closed.close()
    del closed
    failed = opened(world)
    world.topics.delete(TOPIC)
    world.topics.create(TOPIC, partitions=1, config={})
    failed._thread._monitor.hasten()
    with pytest.raises(TopicRecreated):
        failed.acquire(10)
    failed._thread._thread.join(10)
    del failed
    gc.collect()


def test_it_can_be_left_behind_below_any_lock(world: World) -> None:
    """Python collects garbage anywhere, so abandoning a consumer must not wait for anything."""
    consumer = opened(world)
    lock = consumer._shared._changed
    dropped: list[Consumer[str]] = [consumer]
    del consumer
    with lock, left_behind():
        dropper = Thread(target=dropped.clear)
        dropper.start()
        dropper.join(10)
        assert not dropper.is_alive()
    eventually(lambda: world.groups.member_count(GROUP) == 0)


def test_a_second_consumer_of_one_partition_is_told_so_and_which_one_here_has_it(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.idle_warnings._PARTITIONLESS", 0.0)
    with consuming(world) as first:
        eventually(lambda: first._shared.core.partitions == [0])
        with consuming(world) as second:
            second._thread._monitor.hasten()
            eventually(lambda: "1 partition: 1 stands by" in second.stats.trouble, 20)
            assert "In this process there is one that was opened at " in second.stats.trouble
            assert "close any that are not in use" in second.stats.trouble
            assert first.stats.trouble == ""
    assert caplog.text.count("has no partition") == 1
