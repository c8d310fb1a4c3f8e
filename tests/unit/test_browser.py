"""Races of a browser, on the in-memory log: what its dump must hold, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from lvq_kafka import TEXT, Browser, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.errors import Closed, ReaderFailed
from lvq_kafka.ports import Commit, LogReader
from lvq_kafka.testing import MemoryLog
from tests.unit.managing import consume, put
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_log: MemoryLog) -> LastValueQueue[str]:
    return LastValueQueue.declare("prices", key_header="ticker", log=memory_log, value=TEXT)


def values(events: list[Any]) -> dict[str, str]:
    return {event.key: event.value for event in events if isinstance(event, Entry)}


def test_g1_a_transaction_whose_markers_are_late_is_in_the_dump(
    memory_log: MemoryLog, queue: LastValueQueue[str]
) -> None:
    """A commit is acknowledged before its markers are in all partitions: for a moment it looks like an open one."""
    writer = memory_log.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"a", b"1")

    def late(reader: int, poll: int) -> None:
        if poll == 3:
            writer.commit_transaction()

    before_polls(memory_log, late)
    with queue.browser(follow=False) as browser:
        *entries, end = browser
    assert values(entries) == {"a": "1"}
    assert end == EndOfDump({0: 2})


def test_g1_a_value_compacted_away_beside_an_open_transaction_is_not_missing() -> None:
    log = MemoryLog(fetch_limit=1)
    log.create_topic("prices", partitions=2, config={})
    writer = log.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("prices", b"held", b"1").result().partition
    other = 1 - held
    for key in (b"a", b"b", b"c"):
        log.write("prices", key, b"old", partition=other)
    original = log.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        found = original(topic, positions)
        log.write("prices", b"a", b"new", partition=other)  # beyond the end that the browser has just asked for ...
        log.write("prices", b"z", b"z", partition=other)
        log.compact("prices")  # ... and the value below it is gone
        return found

    log.reader = reader  # type: ignore[method-assign]
    opened = Event()
    before_polls(log, lambda reader, poll: poll == 3 and opened.wait(0.3))  # all that the first end allows is read
    with LastValueQueue("prices", key_header=None, log=log, value=TEXT).browser(follow=False) as browser:
        opened.set()
        *entries, end = browser
    assert values(entries)["a"] == "new"
    assert isinstance(end, EndOfDump)
    assert [block.partition for block in end.blocked] == [held]


@pytest.mark.parametrize("options", [{"dump": False}, {"replay_period": 10.0}])
def test_r15_what_a_transaction_still_hides_at_the_open_comes_as_an_update(options: dict[str, Any]) -> None:
    now = 1_000_000.0
    log = MemoryLog(clock=lambda: now)
    queue = LastValueQueue.declare("prices", key_header=None, log=log, value=TEXT)
    writer = log.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"hidden", b"1")
    log.write("prices", b"old", b"1", timestamp=0)
    with queue.browser(**options) as browser:
        assert isinstance(browser.take(30), EndOfDump)
        writer.commit_transaction()
        log.write("prices", b"last", b"1")
        told: list[Any] = []
        eventually(lambda: told.append(browser.take(30)) or "last" in values(told))
    assert "hidden" in values(told)


def test_g5_a_browser_that_cannot_learn_what_was_consumed_says_so(
    memory_log: MemoryLog, queue: LastValueQueue[str]
) -> None:
    with queue.browser(refresh=0.01) as browser:
        assert isinstance(browser.take(30), EndOfDump)
        memory_log.fail_next("committed", Closed("The log is closed."))
        with pytest.raises(ReaderFailed, match="The log is closed"):
            browser.take(30)


def test_a_browser_that_is_opened_twice_is_one(memory_log: MemoryLog, queue: LastValueQueue[str]) -> None:
    memory_log.write("prices", b"a", b"1", [("ticker", b"a")])
    browser: Browser[str] = queue.browser().open()
    with browser:
        assert isinstance(browser.take(30), Entry)
        assert isinstance(browser.open().take(30), EndOfDump)


def test_g2_a_look_that_another_one_has_overtaken_shows_nothing_again_that_was_consumed(
    memory_log: MemoryLog, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queue, "a=1", "b=1")
    ask, asked, go_on, slow = MemoryLog.committed, Event(), Event(), list[Thread]()

    def slowly(log: MemoryLog, *args: Any, **options: Any) -> dict[int, Commit]:
        found = ask(log, *args, **options)
        if current_thread() in slow and not asked.is_set():
            asked.set()
            assert go_on.wait(10)
        return found

    with queue.browser(refresh=1000) as browser:
        assert isinstance(browser.take(10), Entry)
        slow.append(Thread(target=browser.refresh))
        monkeypatch.setattr(MemoryLog, "committed", slowly)
        slow[0].start()
        assert asked.wait(10)
        consume(queue, "a", "b")
        browser.refresh()
        go_on.set()
        slow[0].join(10)
        assert browser.take(10) == EndOfDump({0: 2}), "b was consumed before the last look, and before its turn"
        assert browser.take(10) == Deleted("a", consumed=True)
