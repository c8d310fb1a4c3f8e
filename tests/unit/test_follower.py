"""The reader behind views and browsers when the cluster stumbles at an awkward moment; on the in-memory log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread, Timer
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.core.keys import home_partition
from lvq_kafka.entries import Event
from lvq_kafka.errors import BrokerUnavailable, DataLoss, StateError
from lvq_kafka.ports import LogReader, TopicDescription
from lvq_kafka.testing import MemoryLog
from tests.unit.polling import before_polls
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


def count_readers(log: MemoryLog) -> list[Mapping[int, int]]:
    """Where each reader that is opened from now on begins."""
    original, begun = log.reader, []

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        begun.append(dict(positions))
        return original(topic, positions)

    log.reader = reader  # type: ignore[method-assign]
    return begun


def create_anew(log: MemoryLog, **values: str) -> None:
    log.delete_topic("prices")
    log.create_topic("prices", partitions=1, config={})
    for key, value in values.items():
        log.write("prices", key.encode(), value.encode())


def before_ends(log: MemoryLog, act: Callable[[], object], *, stable: bool) -> None:
    """Do it once, when a reader asks for the (stable) end of the log, before it is answered."""
    original = log.end_offsets
    waiting = [act]

    def end_offsets(topic: str, **how: Any) -> dict[int, int]:
        if how.get("stable", False) == stable and waiting:
            waiting.pop()()
        return original(topic, **how)

    log.end_offsets = end_offsets  # type: ignore[method-assign]


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
    polls: list[int] = []
    before_polls(log, lambda reader, poll: polls.append(reader))
    with log.queue.view(metadata_interval=0.02) as view:
        armed.set()
        assert asked.wait(10)
        log.delete_topic("prices")
        log.create_topic("prices", partitions=1, config={})
        eventually(lambda: 2 in polls)  # the position of the first is beyond the end of this log
        log.write("prices", b"a", b"new")
        eventually(lambda: view.get("a") == "new" and view.state == "caught-up")
        answer_now.set()
        view.barrier()
        eventually(lambda: view.silence < 0.02)  # it has looked again
        assert view.snapshot().topic_id == original("prices").id != original_id
        so_far = len(polls)
        eventually(lambda: len(polls) > so_far + 2)
        assert max(polls) == 2, "it did not start over once more"


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

    queue = LastValueQueue("prices", key_header=None, log=log, value=TEXT)
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
        with pytest.raises(TimeoutError, match=r"within 0\.8 s: .* since offset 0"):
            view.barrier(0.8)
        first.commit_transaction()
        with pytest.raises(TimeoutError, match=r"within 0\.8 s: .* since offset 1"):
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


class Gates:
    """Hold the reader that is there before its next polls, each at its own gate. A gate opens a moment after `open`."""

    def __init__(self, log: MemoryLog, gates: int) -> None:
        self._shut = Flag()
        self._reached = Flag()
        self._gates = [Flag() for _ in range(gates)]
        self._ahead = list(self._gates)
        before_polls(log, self._hold)

    def _hold(self, reader: int, poll: int) -> None:
        if self._shut.is_set() and reader == 1 and self._ahead:
            self._reached.set()
            assert self._ahead.pop(0).wait(10)

    def shut(self) -> None:
        self._shut.set()
        assert self._reached.wait(10)

    def open(self) -> None:
        Timer(0.2, self._gates.pop(0).set).start()


def test_g7_a_barrier_is_not_reached_by_what_was_read_of_a_topic_that_is_created_anew_while_it_asks(
    log: OneTopic,
) -> None:
    def act() -> None:
        create_anew(log, a="new", b="new")
        gates.open()

    gates = Gates(log, 1)
    for key in (b"a", b"b"):
        log.write("prices", key, b"old")
    with log.queue.view(metadata_interval=3600) as view:
        gates.shut()
        before_ends(log, act, stable=False)
        assert view.barrier(10) == {0: 2}
        assert dict(view) == {"a": "new", "b": "new"}


def test_g7_a_barrier_that_takes_a_while_is_not_reached_by_what_was_read_of_a_topic_that_is_no_more(
    log: OneTopic,
) -> None:
    def act() -> None:
        create_anew(log, a="new", b="new")
        gates.open()

    gates = Gates(log, 2)
    log.write("prices", b"a", b"old")
    with log.queue.view(metadata_interval=3600) as view:
        gates.shut()
        log.write("prices", b"b", b"old")
        before_ends(log, gates.open, stable=False)
        before_ends(log, act, stable=True)
        view.barrier(10)
        assert dict(view) == {"a": "new", "b": "new"}


def test_g7_a_barrier_covers_partitions_that_were_added_while_it_asked(log: OneTopic) -> None:
    def grow() -> None:
        log.add_partitions("prices", 2)
        log.write("prices", b"a", b"1", partition=1)

    with log.queue.view(metadata_interval=3600) as view:
        before_ends(log, grow, stable=False)
        assert view.barrier(10) == {0: 0, 1: 1}
        assert dict(view) == {"a": "1"}


def test_s085_a_browser_whose_topic_is_created_anew_while_it_opens_waits_for_nobodys_transaction(
    log: OneTopic,
) -> None:
    for key in (b"a", b"b", b"c"):
        log.write("prices", key, b"old")
    writer = log.writer(transactional_id="1")

    def create_with_open_transaction(reader: int, poll: int) -> None:
        if (reader, poll) == (1, 1):
            create_anew(log, a="new")
            writer.begin_transaction()
            writer.append("prices", b"b", b"hidden")

    before_polls(log, create_with_open_transaction)
    with log.queue.browser(metadata_interval=0.02) as browser:
        entry, end = browser.drain(5)
        assert isinstance(entry, Entry)
        assert isinstance(end, EndOfDump)
        assert (entry.key, entry.value) == ("a", "new")
        assert [shortfall.stable for shortfall in end.blocked] == [1]
        writer.commit_transaction()
        update = browser.take(10)
        assert isinstance(update, Entry)
        assert update.value == "hidden"


def test_a_reader_begins_within_the_log_though_that_was_cut_off_before_the_place_it_was_to_begin_at(
    log: OneTopic,
) -> None:
    """A replica that was not in sync became the leader: the end is before what was the end."""
    log.write("prices", b"a", b"1")
    original = log.end_offsets

    def end_offsets(topic: str, **how: Any) -> dict[int, int]:
        log.end_offsets = original  # type: ignore[method-assign]
        return {0: 5}

    log.end_offsets = end_offsets  # type: ignore[method-assign]
    begun = count_readers(log)
    with log.queue.browser(dump=False) as browser:
        assert browser.drain() == [EndOfDump({0: 1})]
        log.write("prices", b"a", b"2")
        event = browser.take(10)
        assert isinstance(event, Entry)
        assert event.value == "2"
    assert begun == [{0: 1}]


def test_a_reader_that_is_closed_while_its_threads_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Thread] = []

    class ClosingFirst(Thread):
        def start(self) -> None:
            view.close()
            started.append(self)
            super().start()

    monkeypatch.setattr("lvq_kafka.reading.follower.Thread", ClosingFirst)
    view = OneTopic().queue.view()
    view.start()
    assert len(started) == 2
    eventually(lambda: not any(thread.is_alive() for thread in started))
    assert view.state == "closed"
