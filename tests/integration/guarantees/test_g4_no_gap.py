"""G4, no gap: the dump and the updates are one stream, with an explicit end of the dump."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from lvq_kafka import EndOfDump, Entry, LastValueQueue
from lvq_kafka.reading.entries import Event
from tests.integration.guarantees.conftest import QueueOf
from tests.integration.guarantees.writing import put, ticking
from tests.waiting import eventually

COUNT = 8000


def unique(number: int) -> str:
    """Return a unique key for each message."""
    return f"k{number}"


def check_stream(events: Iterable[Event[str]]) -> None:
    """Check that every key comes once: before the end of the dump if below its offsets, otherwise after it."""
    events = list(events)
    (middle,) = [at for at, event in enumerate(events) if isinstance(event, EndOfDump)]
    end = events[middle]
    assert isinstance(end, EndOfDump)
    dump = [event for event in events[:middle] if isinstance(event, Entry)]
    updates = [event for event in events[middle + 1 :] if isinstance(event, Entry)]
    assert len(dump) + len(updates) + 1 == len(events)
    assert sorted(int(entry.value) for entry in [*dump, *updates]) == list(range(COUNT))
    assert [entry for entry in dump if entry.position.offset >= end.offsets[entry.position.partition]] == []
    assert [entry for entry in updates if entry.position.offset < end.offsets[entry.position.partition]] == []


@pytest.mark.parametrize("partitions", [1, 3])
def test_g4_browsers_opened_under_load_are_given_every_key_exactly_once(queue_of: QueueOf, partitions: int) -> None:
    queue = queue_of(partitions)
    with ticking(queue, unique, limit=COUNT) as ticker:
        browsers = []
        try:
            for opening in range(4):
                ticker.await_count(opening * 1000)
                browsers.append(queue.browser().open())
            ticker.await_count(COUNT)
            ticker.stop()
            for browser in browsers:
                check_stream(browser.drain())
        finally:
            for browser in browsers:
                browser.close()


def test_g4_watches_of_a_view_are_too(queue_of: QueueOf) -> None:
    queue = queue_of(3)
    with ticking(queue, unique, limit=COUNT) as ticker, queue.view() as view:
        watches = []
        for opening in range(20):
            ticker.await_count(opening * 300)
            watch = view.watch(dump=True)
            watches.append((watch, next(watch)))  # the event with which it begins
        ticker.await_count(COUNT)
        ticker.stop()
        view.barrier()
        for watch, first in watches:
            check_stream([first, *watch.drain()])


def test_g4_an_asynchronous_reader_has_the_same_stream(queue: LastValueQueue[str]) -> None:
    async def follow() -> list[Event[str]]:
        events: list[Event[str]] = []
        with queue.browser() as browser:
            async for event in browser:
                events.append(event)
                if len(events) == COUNT + 1:
                    break
        return events

    with ticking(queue, unique, limit=COUNT) as ticker:
        ticker.await_count(500)
        check_stream(asyncio.run(asyncio.wait_for(follow(), 60)))


def test_g4_with_updates_only_all_comes_that_was_sent_after_the_open_and_nothing_before(
    queue: LastValueQueue[str],
) -> None:
    put(queue, before="1")
    with queue.browser(dump=False) as browser:
        put(queue, a="1", b="1", before="2")
        end, *updates = browser.drain()
    assert isinstance(end, EndOfDump)
    assert [(event.key, event.value) for event in updates if isinstance(event, Entry)] == [
        ("a", "1"),
        ("b", "1"),
        ("before", "2"),
    ]


@pytest.mark.parametrize("dump", [True, False], ids=["with a dump", "updates only"])
def test_g4_r14_records_in_added_partitions_are_in_the_stream(queue: LastValueQueue[str], dump: bool) -> None:
    keys = [f"k{number}" for number in range(30)]
    with queue.browser(dump=dump, metadata_interval=0.2) as browser:
        queue.cluster.topics.add_partitions(queue.topic, 4)
        put(queue, **dict.fromkeys(keys, "1"))  # before the browser can know the partitions
        seen: dict[str, str] = {}

        def all_there() -> bool:
            event = browser.poll(0.1)
            if isinstance(event, Entry):
                assert event.key not in seen
                seen[event.key] = event.value
            return seen == dict.fromkeys(keys, "1")

        eventually(all_there, 30)
