"""The reader behind views and browsers when the cluster stumbles at an awkward moment; on the in-memory log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event as Flag
from threading import Thread

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.core.keys import home_partition
from lvq_kafka.entries import Event
from lvq_kafka.errors import BrokerUnavailable, DataLoss, StateError, TopicNotFound
from lvq_kafka.ports import LogReader, TopicDescription
from lvq_kafka.testing import MemoryLog
from tests.waiting import eventually


class OneTopic(MemoryLog):
    """A log with the topic ``prices``, of one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topic("prices", partitions=1, config={"cleanup.policy": "compact"})

    @property
    def queue(self) -> LastValueQueue[str]:
        return LastValueQueue("prices", key_header="ticker", log=self, value=TEXT)


def unavailable() -> BrokerUnavailable:
    return BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)


@pytest.fixture
def log() -> OneTopic:
    return OneTopic()


def test_an_outage_while_partitions_are_added_is_no_failure(log: OneTopic) -> None:
    with log.queue.view(metadata_interval=0.02) as view:
        log.fail_next("start_offsets", unavailable(), times=3)
        log.add_partitions("prices", 3)
        log.write("prices", b"a", b"1", partition=2)
        eventually(lambda: view.get("a") == "1")
        assert view.state == "caught-up"


def test_an_outage_while_a_reader_starts_over_is_no_failure(log: OneTopic) -> None:
    log.write("prices", b"a", b"old")
    with log.queue.view(metadata_interval=0.02) as view:
        # After the new topic is found, each step of beginning to read it fails once.
        log.delete_topic("prices")
        for operation in ("start_offsets", "end_offsets"):
            log.fail_next(operation, unavailable(), times=2)
        log.create_topic("prices", partitions=1, config={})
        log.write("prices", b"a", b"new")
        eventually(lambda: view.get("a") == "new" and view.state == "caught-up")


def test_what_the_observer_saw_of_a_topic_that_is_no_more_is_not_taken_for_news(log: OneTopic) -> None:
    """Its answer comes late, when the reading thread has started over already."""
    asked, answer_now = Flag(), Flag()
    original = log.describe_topic

    def describe(topic: str, *, timeout: float = 10.0) -> TopicDescription:
        found = original(topic, timeout=timeout)
        if original_id == found.id and not asked.is_set() and armed.is_set():
            asked.set()
            answer_now.wait(10)
        return found

    armed = Flag()
    original_id = original("prices").id
    log.describe_topic = describe  # type: ignore[method-assign]
    log.write("prices", b"a", b"old")
    with log.queue.view(metadata_interval=0.02) as view:
        armed.set()
        assert asked.wait(10)
        log.delete_topic("prices")
        log.create_topic("prices", partitions=1, config={})
        log.write("prices", b"a", b"new")
        log.fail_next("poll", TopicNotFound("it is gone", topic="prices"))
        eventually(lambda: view.get("a") == "new" and view.state == "caught-up")
        once = view.counters.added
        answer_now.set()
        view.barrier()
        eventually(lambda: view.silence < 0.02)  # it has looked again
        assert view.snapshot().topic_id == original("prices").id != original_id
        assert view.counters.added == once, "nothing was read twice"


def test_listeners_of_a_reader_that_starts_over_are_told_only_of_keys_that_are_really_gone(log: OneTopic) -> None:
    for key in (b"a", b"b", b"c"):
        log.write("prices", key, b"1")
    with log.queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        log.delete_records("prices", 0, 1)
        log.fail_next("poll", DataLoss("the position is gone"))
        events: list[Event[str]] = []

        def told() -> bool:
            events.extend(watch.drain())
            return Deleted("a") in events

        eventually(told)
        assert [event for event in events if isinstance(event, Deleted)] == [Deleted("a")]
        assert dict(view) == {"b": "1", "c": "1"}


def test_a_browser_of_updates_only_misses_nothing_of_a_topic_that_was_created_anew(log: OneTopic) -> None:
    log.write("prices", b"old", b"1")
    original = log.describe_topic
    blind = Flag()

    def describe(topic: str, *, timeout: float = 10.0) -> TopicDescription:
        if blind.is_set():
            raise unavailable()
        return original(topic, timeout=timeout)

    log.describe_topic = describe  # type: ignore[method-assign]
    with log.queue.browser(dump=False, metadata_interval=0.02) as browser:
        assert browser.drain() == [EndOfDump({0: 1})]
        blind.set()
        log.delete_topic("prices")
        log.create_topic("prices", partitions=1, config={})
        log.write("prices", b"new", b"1")  # before the browser can know
        blind.clear()
        event = browser.take(10)
        assert isinstance(event, Entry)
        assert event.key == "new"


def test_growth_that_changes_a_value_wakes_an_asynchronous_listener() -> None:
    """R14: a key that lies in two partitions gets another home, so the other value becomes the current one."""
    log = MemoryLog()
    log.create_topic("prices", partitions=2, config={})
    key = next(key for n in range(99) if (home_partition(key := b"%d" % n, 2), home_partition(key, 3)) == (0, 1))
    log.write("prices", key, b"in 0", partition=0)
    log.write("prices", key, b"in 1", partition=1)

    async def next_event() -> Event[str]:
        async for event in watch:
            return event
        raise AssertionError("the watch has ended")

    queue = LastValueQueue("prices", log=log, value=TEXT)
    with queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        assert view[key] == "in 0"
        Thread(target=log.add_partitions, args=("prices", 3)).start()
        event = asyncio.run(asyncio.wait_for(next_event(), 10))
        assert isinstance(event, Entry)
        assert event.value == "in 1"


def test_a_view_that_was_not_started_says_so(log: OneTopic) -> None:
    view = log.queue.view()
    assert repr(view) == "<View of prices: catching-up>"
    assert (view.lag, view.progress) == (0, (0, 0))
    for use in (lambda: view["a"], lambda: len(view), view.snapshot, view.barrier, view.watch):
        with pytest.raises(StateError, match="was not started"):
            use()
    view.close()
    assert view.state == "closed"


def test_a_view_is_closed_at_once_though_it_looks_at_its_topic_once_an_hour(log: OneTopic) -> None:
    view = log.queue.view(metadata_interval=3600).start()
    view.wait_caught_up(10)
    closing = Thread(target=view.close)
    closing.start()
    closing.join(2)
    assert not closing.is_alive()


def test_a_transaction_that_has_moved_on_is_not_called_blocked(log: OneTopic) -> None:
    """Between two looks at the topic the last stable offset that is known may be an old one."""
    with log.queue.view(metadata_interval=3600) as view:
        first, second = log.writer(transactional_id="1"), log.writer(transactional_id="2")
        for number, writer in enumerate((first, second)):
            writer.begin_transaction()
            writer.append("prices", b"k%d" % number, b"1")
        with pytest.raises(TimeoutError, match="since offset 0"):
            view.barrier(0.8)
        first.commit_transaction()
        with pytest.raises(TimeoutError, match="since offset 1"):
            view.barrier(0.8)
        assert [shortfall.stable for shortfall in view.blocked_by] == [1]
        second.commit_transaction()
        view.barrier()
        assert len(view) == 2


def test_records_that_go_while_a_reader_is_opened_make_it_begin_later(log: OneTopic) -> None:
    for key in (b"a", b"b"):
        log.write("prices", key, b"1")
    original = log.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        log.reader = original  # type: ignore[method-assign]
        log.delete_records("prices", 0, 1)
        return original(topic, positions)

    log.reader = reader  # type: ignore[method-assign]
    with log.queue.view() as view:
        assert dict(view) == {"b": "1"}
