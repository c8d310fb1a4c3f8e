"""The common part of views and browsers, on the in-memory cluster: their life cycle and their status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from lvq_kafka import JSON, TEXT, Browser, Deleted, EndOfDump, Entry, LastValueQueue, View
from lvq_kafka.errors import CatchUpTimeout, ConfigError, StateError, TopicNotFound
from lvq_kafka.reading.queue_reader import QueueReader
from lvq_kafka.testing import MemoryCluster
from tests.unit.polling import before_polls
from tests.waiting import eventually

OpenReader = Callable[..., QueueReader[Any]]

pytestmark = pytest.mark.parametrize("kind", ["view", "browser"])


@pytest.fixture
def reader_of(memory_cluster: MemoryCluster, kind: str) -> OpenReader:
    """Return a function that makes a view or browser of the queue ``prices``."""
    queue = LastValueQueue.declare("prices", key_header=None, cluster=memory_cluster, value=TEXT)
    return lambda **options: getattr(queue, kind)(**options)


def test_all_readers_describe_themselves_alike(reader_of: OpenReader, memory_cluster: MemoryCluster, kind: str) -> None:
    for key in (b"a", b"b", b"a"):
        memory_cluster.write("prices", key, b"1")
    reader = reader_of()
    assert repr(reader) == f"<{kind.capitalize()} of prices: catching-up>"
    with reader:
        assert (reader.state, reader.failure, reader.silence < 5) == ("caught-up", None, True)
        assert (reader.lag, reader.lag_by_partition, reader.progress) == (0, {0: 0}, (3, 3))
        assert (reader.blocked_by, reader.split_keys, reader.skipped) == ([], [], 0)
        assert (reader.stats.added, reader.stats.mismatched) == (3, 0)
        status = reader.status
        assert (status.state, status.failure, status.trouble) == ("caught-up", None, None)
        assert (status.lag, status.lag_by_partition, status.progress, status.blocked_by) == (0, {0: 0}, (3, 3), [])
    assert repr(reader) == f"<{kind.capitalize()} of prices: closed>"


def test_they_have_nothing_but_their_purpose_apart(kind: str) -> None:
    def public(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    mapping = {"get", "items", "keys", "values", "entry", "entries", "scan"}
    assert public(View) - public(Browser) == mapping | {
        *("wait_caught_up", "barrier", "wait_for", "page", "snapshot", "watch", "on_change"),
        *("wait_caught_up_async", "barrier_async", "wait_for_async", "watch_async"),
        *("page_async", "scan_async", "snapshot_async"),
        *("index", "find", "top", "find_async", "top_async", "unindexed"),
        *("topic", "value_codec", "undecoded", "complete", "cut", "look_up", "to_arrow", "sql"),
    }
    assert public(Browser) - public(View) == {"as_of", "drain", "refresh", "refresh_async", "poll"}


def test_progress_can_be_seen_while_it_is_opened(reader_of: OpenReader, memory_cluster: MemoryCluster) -> None:
    for number in range(3):
        memory_cluster.write("prices", b"%d" % number, b"1")
    go_on = Event()
    before_polls(memory_cluster, lambda reader, poll: go_on.wait(10))
    reader = reader_of()
    assert reader.start() is reader
    assert (reader.progress, reader.state) == ((0, 3), "catching-up")
    go_on.set()
    assert reader.open().open() is reader
    assert (reader.progress, reader.state) == ((3, 3), "caught-up")
    reader.close()


def test_one_that_was_not_opened_says_so(reader_of: OpenReader) -> None:
    with pytest.raises(StateError, match="was not started"):
        reader_of().split_keys  # noqa: B018


def test_an_opening_that_fails_leaves_nothing_open(reader_of: OpenReader, memory_cluster: MemoryCluster) -> None:
    memory_cluster.write("prices", b"a", b"1")
    before_polls(memory_cluster, lambda reader, poll: Event().wait(0.2))
    reader = reader_of(catch_up_timeout=0.05)
    with pytest.raises(CatchUpTimeout):
        reader.open()
    assert reader.state == "closed"


@pytest.mark.parametrize("policy", ["raise", "skip", "raw", "ignore"])
def test_a_value_that_cannot_be_read_is_raised_skipped_or_given_raw(
    memory_cluster: MemoryCluster, kind: str, policy: Any
) -> None:
    queue = LastValueQueue.declare("numbers", key_header=None, cluster=memory_cluster, value=JSON)
    for key, value in ((b"a", b"1"), (b"bad", b"{")):
        memory_cluster.write("numbers", key, value)
    if policy == "ignore":
        with pytest.raises(ConfigError, match="undecodable='ignore' is not a policy"):
            getattr(queue, kind)(undecodable=policy)
        return
    with getattr(queue, kind)(undecodable=policy) as reader:
        assert reader.stats.added == 2 - (policy == "skip")
        assert reader.skipped == (policy == "skip")
        assert reader.state == "caught-up"


class TestAsync:
    def test_async_with_opens_and_closes_without_holding_up_the_loop(
        self, reader_of: OpenReader, memory_cluster: MemoryCluster
    ) -> None:
        memory_cluster.write("prices", b"a", b"1")
        go_on = Event()
        before_polls(memory_cluster, lambda reader, poll: go_on.wait(10))

        async def use() -> str:
            asyncio.get_running_loop().call_later(0.05, go_on.set)  # would never run if the loop were blocked
            async with reader_of(catch_up_timeout=5) as reader:
                assert reader.state == "caught-up"
            return str(reader.state)

        assert asyncio.run(use()) == "closed"

    def test_an_error_of_the_opening_comes_out_of_async_with(
        self, reader_of: OpenReader, memory_cluster: MemoryCluster
    ) -> None:
        memory_cluster.topics.delete("prices")

        async def use() -> None:
            async with reader_of():
                pytest.fail("it was opened")

        with pytest.raises(TopicNotFound):
            asyncio.run(use())

    def test_an_opening_that_is_cancelled_is_undone(self, reader_of: OpenReader, memory_cluster: MemoryCluster) -> None:
        memory_cluster.write("prices", b"a", b"1")
        begun = Event()

        def hold(reader: int, poll: int) -> None:
            begun.set()
            Event().wait(0.2)

        before_polls(memory_cluster, hold)
        reader = reader_of(catch_up_timeout=None)

        async def use() -> None:
            async with reader:
                pytest.fail("it was opened")

        async def cancel() -> None:
            task = asyncio.ensure_future(use())
            await asyncio.to_thread(begun.wait, 10)
            task.cancel()
            await task

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancel())
        eventually(lambda: reader.state == "closed")


def test_a_view_and_a_browser_say_the_same_of_an_outage_on_a_quiet_topic_and_of_its_end(
    reader_of: OpenReader, memory_cluster: MemoryCluster
) -> None:
    """No record comes that could show the recovery, so the look at the topic has to."""
    with reader_of(metadata_interval=0.02) as reader:
        memory_cluster.disconnect()
        eventually(lambda: reader.state == "disconnected")
        memory_cluster.reconnect()
        eventually(lambda: reader.state == "caught-up" and reader.silence < 1)


def test_r19_records_removed_from_the_log_after_a_reader_read_them_are_missed_only_by_later_readers(
    reader_of: OpenReader, memory_cluster: MemoryCluster
) -> None:
    """The two differ exactly by the rows below the start of the log."""
    for key in (b"a", b"b", b"c"):
        memory_cluster.write("prices", key, b"1")
    early, late = reader_of(), reader_of()
    with early:
        memory_cluster.delete_records("prices", 0, 2)
        with late:
            start = memory_cluster.logs.start_offsets("prices")[0]
            assert rows(early) == [("a", 0), ("b", 1), ("c", 2)]
            assert rows(late) == [row for row in [("a", 0), ("b", 1), ("c", 2)] if row[1] >= start]


def rows(reader: QueueReader[Any]) -> list[tuple[str, int]]:
    """Return a reader's keys, and the offsets of their values."""
    if isinstance(reader, View):
        return [(entry.key, entry.position.offset) for entry in reader.snapshot().entries()]
    assert isinstance(reader, Browser)
    events = reader.drain()
    assert isinstance(events[-1], EndOfDump)
    assert not any(isinstance(event, Deleted) for event in events)
    return [(event.key, event.position.offset) for event in events if isinstance(event, Entry)]
