"""Consumers of a queue with the policy ``disk``: values beyond the limits are in a file (R12)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka.consuming import page_file
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError, LockLost, PageUnreadable
from tests.unit.consuming.world import (
    TOPIC,
    Day,
    World,
    consuming,
    drain,
    has_read_all,
    make_world,
    nothing_comes,
    settled_up,
    take,
)
from tests.waiting import eventually

ELSEWHERE = "elsewhere"
KEYS = "abcdef"


def text(key: str) -> str:
    return f"{key}1".ljust(1000, ".")


@pytest.fixture
def world(day: Day) -> World:
    """Return a world with six messages, of which two have room in memory, and a topic for letters."""
    world = make_world(clock=day)
    world.topics.create(ELSEWHERE, partitions=1, config={})
    world.send(*((key, text(key)) for key in KEYS))
    return world


def paged(**options: Any) -> QueueDefinition:
    limits = Limits(messages=2, policy="disk")
    return QueueDefinition(**{"name": "q", "topic": TOPIC, "key_header": None, "limits": limits, **options})


def opened(world: World, definition: QueueDefinition | None = None, **options: Any) -> Any:
    return consuming(world, definition=definition or paged(), **options)


@pytest.fixture
def consumer(world: World, tmp_path: Path) -> Iterator[Consumer[str]]:
    """Return a consumer that has read everything, and pages to ``tmp_path``."""
    with opened(world, page_directory=tmp_path) as consumer:
        has_read_all(world, consumer)
        yield consumer


def on_disk(consumer: Consumer[str]) -> int:
    """Return the bytes of the files."""
    assert consumer._shared.pages is not None
    return consumer._shared.pages.size


def test_r12_values_beyond_the_limits_are_on_disk_until_they_are_handed_out(
    world: World, consumer: Consumer[str]
) -> None:
    stats = consumer.stats
    assert (stats.available, stats.paged, stats.paged_bytes, stats.not_paged) == (6, 4, 4000, 0)
    assert on_disk(consumer) >= 4000
    assert drain(consumer, 6) == [text(key) for key in KEYS]
    assert (consumer.stats.paged, consumer.stats.paged_bytes, consumer.stats.trouble) == (0, 0, "")
    settled_up(world, consumer)
    eventually(lambda: on_disk(consumer) == 0)


def test_a_queue_without_the_policy_has_no_pages(world: World) -> None:
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        assert (consumer._shared.pages, consumer.stats.paged) == (None, 0)


def test_the_files_are_closed_with_the_consumer(world: World) -> None:
    with opened(world) as consumer:
        has_read_all(world, consumer)
        held = [take(consumer) for _ in range(4)]
        pages = consumer._shared.pages
        files = [segment.file for segment in pages._segments]
        assert files
    assert all(file.closed for file in files)
    assert [delivery.value for delivery in held] == [text(key) for key in "abcd"]
    with pytest.raises(LockLost):
        held[3].ack()


def test_prefetched_and_counted_messages_come_from_disk(world: World) -> None:
    with opened(world, prefetch=4, durable_counts=True) as consumer:
        has_read_all(world, consumer)
        taken = []
        for delivery in consumer:
            taken.append((delivery.value, delivery.delivery_count))
            delivery.ack()
            if len(taken) == 6:
                break
    assert taken == [(text(key), 1) for key in KEYS]


def test_rejected_and_exhausted_messages_go_to_the_dead_letters_as_they_were(world: World) -> None:
    with opened(world, dead_letters=ELSEWHERE, max_deliveries=1) as consumer:
        has_read_all(world, consumer)
        held = [take(consumer) for _ in range(6)]
        for delivery in held[:3]:
            delivery.reject("bad")
        for delivery in held[3:]:
            delivery.release()
        eventually(lambda: nothing_comes(consumer) and len(world.texts(ELSEWHERE)) == 6)
        settled_up(world, consumer)
    assert sorted(world.texts(ELSEWHERE)) == [text(key) for key in KEYS]


def test_expired_messages_are_written_from_disk(world: World, day: Day) -> None:
    with opened(world, paged(ttl=Ttl(default=10), expiry_topic=ELSEWHERE)) as consumer:
        has_read_all(world, consumer)
        assert consumer.stats.paged == 4
        day.now += 11
        eventually(lambda: len(world.texts(ELSEWHERE)) == 6)
        settled_up(world, consumer)
        assert consumer.stats.paged == 0
    assert sorted(world.texts(ELSEWHERE)) == [text(key) for key in KEYS]


def test_a_transaction_that_aborts_returns_its_messages(world: World, consumer: Consumer[str]) -> None:
    with world.producer() as producer:
        with suppress(ZeroDivisionError), consumer.transaction(producer) as tx:
            for delivery in tx.acquire_many(5, 10):
                delivery.ack()
            1 / 0  # noqa: B018
        assert consumer.stats.paged == 4, "what comes back goes to disk again, if there is no room"
        with consumer.transaction(producer) as tx:
            values = []
            while delivery := tx.acquire(0.05):
                values.append(delivery.value)
                delivery.ack()
    assert values == [text(key) for key in KEYS]
    settled_up(world, consumer)


def test_ranks_and_groups_are_judged_by_headers_which_stay_in_memory() -> None:
    world = make_world()
    for priority, key in enumerate("cba"):
        headers = [(PRIORITY_HEADER, b"%d" % priority), ("JMSXGroupID", b"g")]
        world.write(TOPIC, key.encode(), text(key).encode(), headers)
    definition = paged(order="priority", groups=Groups(), limits=Limits(bytes=1, policy="disk"))
    with opened(world, definition) as consumer:
        has_read_all(world, consumer)
        assert consumer.stats.paged == 3
        assert drain(consumer, 3) == [text(key) for key in "abc"]


def test_r12_the_same_in_asyncio(world: World, consumer: Consumer[str]) -> None:
    async def consume() -> list[str]:
        values = []
        async for delivery in consumer:
            values.append(delivery.value)
            await delivery.ack()
            if len(values) == 6:
                break
        return values

    assert asyncio.run(consume()) == [text(key) for key in KEYS]


# ---------------------------------------------------------------- disks that fail


class Disk:
    """A disk that can be full: its files cannot be made."""

    def __init__(self) -> None:
        self.is_full = True
        self._make = page_file.TemporaryFile

    def __call__(self, **options: Any) -> Any:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._make(**options)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(page_file, "TemporaryFile", disk)
    monkeypatch.setattr(page_file, "_PAUSE", 0.0)
    return disk


def test_on_a_full_disk_values_stay_in_memory_and_that_is_said_once(
    world: World, disk: Disk, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, "lvq_kafka.consumer"), opened(world, page_directory=str(tmp_path)) as consumer:
        has_read_all(world, consumer)
        eventually(lambda: "No space left on device" in consumer.stats.trouble)
        assert f"cannot be written to {tmp_path}" in consumer.stats.trouble
        assert "page_directory or TMPDIR" in consumer.stats.trouble
        assert (consumer.stats.paged, consumer.stats.not_paged) == (0, 4)
        world.send(("g", text("g")))
        eventually(lambda: consumer.stats.not_paged == 5)
        disk.is_full = False
        world.send(("h", text("h")))
        eventually(lambda: consumer.stats.trouble == "")
        assert (consumer.stats.paged, consumer.stats.not_paged) == (1, 5)
        assert drain(consumer, 8) == [text(key) for key in "abcdefgh"]
    said = [record.message for record in caplog.records if "stay in memory" in record.message]
    assert len(said) == 1
    assert "the consumer of q pages to disk again" in caplog.text


def damage(consumer: Consumer[str]) -> None:
    """Cut off all pages."""
    assert consumer._shared.pages is not None
    for segment in consumer._shared.pages._segments:
        segment.file.truncate(0)


def test_a_value_that_cannot_be_read_back_stops_the_consumer_and_nothing_is_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(world) as consumer:
        has_read_all(world, consumer)
        first, second = take(consumer), take(consumer)
        first.ack(wait=True, timeout=10)
        damage(consumer)
        with pytest.raises(PageUnreadable, match="a new consumer reads it from the log"):
            consumer.acquire(10)
        with pytest.raises(PageUnreadable):
            consumer.acquire(10)
        eventually(lambda: second.settled)
        with pytest.raises(LockLost):
            second.ack()
    assert "the consumer of q has failed: A value of 1000 bytes that was paged to disk" in caplog.text
    with opened(world) as consumer:
        assert drain(consumer, 5) == [text(key) for key in KEYS[1:]]


def test_a_letter_of_an_expired_message_is_not_written_without_its_value(world: World, day: Day) -> None:
    definition = paged(ttl=Ttl(default=10), expiry_topic=ELSEWHERE, limits=Limits(bytes=1, policy="disk"))
    with opened(world, definition) as consumer:
        has_read_all(world, consumer)
        damage(consumer)
        day.now += 11
        with pytest.raises(PageUnreadable):
            consumer.acquire(10)
    assert world.texts(ELSEWHERE) == []
    with opened(world, definition):
        eventually(lambda: sorted(world.texts(ELSEWHERE)) == [text(key) for key in KEYS])


# ---------------------------------------------------------------- the directory


@pytest.mark.parametrize("what", ["missing", "file"])
def test_a_page_directory_must_be_one(world: World, tmp_path: Path, what: str) -> None:
    where = tmp_path / what
    if what == "file":
        where.touch()
    with pytest.raises(ConfigError, match="is not a directory that this process may write to") as caught:
        refused(opened(world, page_directory=str(where)))
    assert caught.value.options == ("page_directory",)


def test_a_page_directory_is_for_queues_that_page(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep all values in memory") as caught:
        refused(consuming(world, page_directory=str(tmp_path)))
    assert caught.value.options == ("page_directory", "limits")


def refused(opening: AbstractContextManager[object]) -> None:
    with opening:
        pass
