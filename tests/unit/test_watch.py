"""Streams of changes: what a listener is told while its reader starts over, is late, or is closed."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_kafka.testing import MemoryLog
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_log: MemoryLog) -> LastValueQueue[str]:
    return declared(memory_log)


def declared(log: MemoryLog) -> LastValueQueue[str]:
    log.create_topic("prices", partitions=1, config={"cleanup.policy": "compact"})
    return LastValueQueue("prices", key_header=None, log=log, value=TEXT)


def test_g2_who_starts_over_shows_nothing_that_is_older_or_missing_meanwhile() -> None:
    log = MemoryLog(fetch_limit=1)
    queue = declared(log)
    half_way, go_on = Event(), Event()

    def hold(reader: int, poll: int) -> None:
        if reader == 2 and poll == 2:
            half_way.set()
            go_on.wait(10)

    for key, value in [(b"a", b"old"), (b"b", b"1"), (b"a", b"new")]:
        log.write("prices", key, value)
    before_polls(log, hold)
    with queue.view() as view:
        watch, dumping = view.watch(), view.watch(dump=True)
        log.fail_next("poll", DataLoss("truncated"))
        assert half_way.wait(10)
        try:
            assert view.state == "catching-up"
            assert dict(view) == {"a": "new", "b": "1"}
            assert watch.drain() == dumping.drain() == []
        finally:
            go_on.set()
        eventually(lambda: view.state == "caught-up")
        assert dict(view) == {"a": "new", "b": "1"}
        assert "old" not in [event.value for event in watch.drain() if isinstance(event, Entry)]
        dump = dumping.drain()
        assert [(event.key, event.value) for event in dump if isinstance(event, Entry)] == [("b", "1"), ("a", "new")]
        assert isinstance(dump[2], EndOfDump)


def test_an_async_listener_learns_of_keys_that_a_new_topic_does_not_have(
    memory_log: MemoryLog, queue: LastValueQueue[str]
) -> None:
    memory_log.write("prices", b"gone", b"1")
    ask, asleep = memory_log.end_offsets, Event()

    def ask_slowly(topic: str, **options: Any) -> dict[int, int]:
        asleep.wait(0.1)  # never set: long enough for a listener that was woken too early to sleep again
        return ask(topic, **options)

    with queue.view(metadata_interval=0.05) as view:

        async def listen() -> object:
            waiting = asyncio.ensure_future(anext(view.watch()))
            await asyncio.sleep(0)  # now it waits
            memory_log.end_offsets = ask_slowly  # type: ignore[method-assign]
            with memory_log._cluster.changed:  # nobody sees it half done
                memory_log.delete_topic("prices")
                declared(memory_log)
                memory_log.write("prices", b"b", b"2")
            return await asyncio.wait_for(waiting, 10)

        assert asyncio.run(listen()) == Deleted("gone")


def test_a_callback_that_raises_an_error_of_this_library_is_called_again(
    memory_log: MemoryLog, queue: LastValueQueue[str]
) -> None:
    first, second = Event(), Event()

    def callback(event: object) -> None:
        (second if first.is_set() else first).set()
        raise ConfigError("of its own")

    with queue.view() as view:
        view.on_change(callback)
        memory_log.write("prices", b"a", b"1")
        assert first.wait(5)
        memory_log.write("prices", b"a", b"2")
        assert second.wait(5)


def test_a_closed_watch_gives_nothing_more(memory_log: MemoryLog, queue: LastValueQueue[str]) -> None:
    for number in range(10):
        memory_log.write("prices", b"%d" % number, b"v")
    with queue.view() as view:
        watch = view.watch(dump=True)
        assert isinstance(next(watch), Entry)
        watch.close()
        assert list(watch) == []


def test_g5_a_dump_does_not_end_before_the_view_is_caught_up(memory_log: MemoryLog, queue: LastValueQueue[str]) -> None:
    for number in range(10):
        memory_log.write("prices", b"%d" % number, b"v")
    go_on = Event()
    before_polls(memory_log, lambda reader, poll: go_on.wait(10))
    view = queue.view().start()
    try:
        watch = view.watch(dump=True)
        assert watch.drain() == []
        go_on.set()
        events = [next(watch) for _ in range(11)]
        assert [event.key for event in events[:-1] if isinstance(event, Entry)] == [str(number) for number in range(10)]
        assert events[-1] == EndOfDump({0: 10})
    finally:
        go_on.set()
        view.close()
