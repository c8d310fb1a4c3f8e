"""Races of a browser, on the in-memory cluster: the contents of its dump, and its later reports."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread, current_thread
from typing import Any

import pytest

from lvq_kafka import TEXT, Browser, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.cluster import Commit, LogReader
from lvq_kafka.errors import BrokerUnavailable, Closed, QueueNotDeclared, ReaderFailed, TopicRecreated
from lvq_kafka.reading.consumed_filter import ConsumedFilter
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import consume, put
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster, value=TEXT)


def values(events: list[Any]) -> dict[str, str]:
    return {event.key: event.value for event in events if isinstance(event, Entry)}


def test_g1_a_transaction_whose_markers_are_late_is_in_the_dump(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    """A commit is acknowledged before all partitions have its markers, so the transaction briefly looks open."""
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"a", b"1")

    def late(reader: int, poll: int) -> None:
        if poll == 3:
            writer.commit_transaction()

    before_polls(memory_cluster, late)
    with queue.browser(follow=False) as browser:
        *entries, end = browser
    assert values(entries) == {"a": "1"}
    assert end == EndOfDump({0: 2})


def test_g1_a_value_compacted_away_beside_an_open_transaction_is_not_missing() -> None:
    cluster = MemoryCluster(fetch_limit=1)
    cluster.topics.create("prices", partitions=2, config={})
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("prices", b"held", b"1").result().partition
    other = 1 - held
    for key in (b"a", b"b", b"c"):
        cluster.write("prices", key, b"old", partition=other)
    original = cluster.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        found = original(topic, positions)
        cluster.write("prices", b"a", b"new", partition=other)  # past the end that the browser has just asked for ...
        cluster.write("prices", b"z", b"z", partition=other)
        cluster.compact("prices")  # ... and the value below it is gone
        return found

    cluster.reader = reader  # type: ignore[method-assign]
    opened = Event()
    before_polls(cluster, lambda reader, poll: poll == 3 and opened.wait(0.3))  # all up to the first end is read
    with LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT).browser(follow=False) as browser:
        opened.set()
        *entries, end = browser
    assert values(entries)["a"] == "new"
    assert isinstance(end, EndOfDump)
    assert [block.partition for block in end.blocked] == [held]


@pytest.mark.parametrize("options", [{"dump": False}, {"replay_period": 10.0}])
def test_r15_a_record_that_a_transaction_still_hides_at_the_open_comes_as_an_update(options: dict[str, Any]) -> None:
    now = 1_000_000.0
    cluster = MemoryCluster(clock=lambda: now)
    queue = LastValueQueue.declare("prices", key_header=None, cluster=cluster, value=TEXT)
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"hidden", b"1")
    cluster.write("prices", b"old", b"1", timestamp=0)
    with queue.browser(**options) as browser:
        assert isinstance(browser.poll(30), EndOfDump)
        writer.commit_transaction()
        cluster.write("prices", b"last", b"1")
        told: list[Any] = []
        eventually(lambda: told.append(browser.poll(30)) or "last" in values(told))
    assert "hidden" in values(told)


class CountedLock:
    """A reader's lock that counts the records checked while it is held."""

    def __init__(self, lock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._done = 0
        self._lock = lock
        done = ConsumedFilter.done

        def counted(consumed: ConsumedFilter, record: Any) -> bool:
            self._done += 1
            return done(consumed, record)

        monkeypatch.setattr(ConsumedFilter, "done", counted)

    def __enter__(self) -> None:
        self._lock.__enter__()
        self._done = 0

    def __exit__(self, *error: object) -> None:
        self.most = max(self.most, self._done)
        self._lock.__exit__(*error)


def test_a_browser_looks_for_consumed_messages_in_all_that_it_gave_and_holds_nobody_up(
    queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.reading.browser._SOME", 10)
    put(queue, *(f"{number}=v" for number in range(100)))
    with queue.browser(refresh=3600) as browser:
        assert len(browser.drain()) == 101
        consume(queue, *(str(number) for number in range(0, 100, 7)))
        shared = browser._follower.shared
        lock = CountedLock(shared.lock, monkeypatch)
        shared.lock = lock  # type: ignore[assignment]
        browser.refresh()
        assert 0 < lock.most <= 10
        told = browser.drain()
    assert told == [Deleted(str(number), consumed=True) for number in range(0, 100, 7)]


def test_g5_a_browser_that_cannot_learn_what_was_consumed_says_so(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    with queue.browser(refresh=0.01) as browser:
        assert isinstance(browser.poll(30), EndOfDump)
        memory_cluster.fail_next("groups.committed", Closed("The cluster is closed."))
        with pytest.raises(ReaderFailed, match="The cluster is closed"):
            browser.poll(30)


def test_a_browser_that_is_opened_twice_is_one(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    memory_cluster.write("prices", b"a", b"1", [("ticker", b"a")])
    browser: Browser[str] = queue.browser().open()
    with browser:
        assert isinstance(browser.poll(30), Entry)
        assert isinstance(browser.open().poll(30), EndOfDump)


def test_g2_a_look_that_another_one_has_overtaken_shows_nothing_again_that_was_consumed(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(queue, "a=1", "b=1")
    ask, asked, go_on, slow = memory_cluster.groups.committed, Event(), Event(), list[Thread]()

    def slowly(*args: Any, **options: Any) -> dict[int, Commit]:
        found = ask(*args, **options)
        if current_thread() in slow and not asked.is_set():
            asked.set()
            assert go_on.wait(10)
        return found

    with queue.browser(refresh=1000) as browser:
        assert isinstance(browser.poll(10), Entry)
        slow.append(Thread(target=browser.refresh))
        monkeypatch.setattr(memory_cluster.groups, "committed", slowly)
        slow[0].start()
        assert asked.wait(10)
        consume(queue, "a", "b")
        browser.refresh()
        go_on.set()
        slow[0].join(10)
        assert browser.poll(10) == EndOfDump({0: 2}), "b was consumed before the last look, and before its turn"
        assert browser.poll(10) == Deleted("a", consumed=True)


class TestTakenBack:
    """Messages that a reset takes back: they are in the queue again (G3)."""

    def test_g3_a_message_shown_as_consumed_comes_again_after_a_reset_and_one_still_there_does_not(
        self, queue: LastValueQueue[str]
    ) -> None:
        put(queue, "a=1", "b=1", "c=1")
        with queue.browser(refresh=0.01) as browser:
            assert values(browser.drain()) == {"a": "1", "b": "1", "c": "1"}
            consume(queue, "a", "b")
            assert browser.drain() == [Deleted("a", consumed=True), Deleted("b", consumed=True)]
            queue.reset("earliest")
            again = [browser.poll(30), browser.poll(30)]
            assert values(again) == {"a": "1", "b": "1"}
            assert browser.drain() == []

    def test_g3_it_reads_again_what_it_had_no_need_to_read(self, queue: LastValueQueue[str]) -> None:
        put(queue, "a=old", "b=1", "a=1", "c=1", "c")
        consume(queue, "a", "b")
        put(queue, "d=1")
        with queue.browser(refresh=1000) as browser:
            assert values(browser.drain()) == {"d": "1"}
            queue.reset("earliest")
            assert values(browser.drain()) == {"b": "1", "a": "1"}
            assert browser.state == "caught-up"
            put(queue, "e=1")
            assert values(browser.drain()) == {"e": "1"}

    def test_an_open_transaction_does_not_hide_it(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        put(queue, "a=1", "b=1")
        queue.purge()
        with queue.browser(refresh=0.01, metadata_interval=0.05) as browser:
            assert isinstance(browser.poll(30), EndOfDump)
            writer = memory_cluster.writer(transactional_id="x")
            writer.begin_transaction()
            writer.append("prices", b"hidden", b"1").result()
            queue.reset("earliest")
            assert values([browser.poll(30), browser.poll(30)]) == {"a": "1", "b": "1"}
            assert browser.state == "blocked"
            writer.commit_transaction()
            assert values([browser.poll(30)]) == {"hidden": "1"}

    def test_values_that_were_not_wanted_before_are_not_wanted_after_a_reset(self, queue: LastValueQueue[str]) -> None:
        put(queue, "a=1", "b=1", "c=1")
        queue.purge()
        with queue.browser(dump=False) as updates, queue.browser(keys=["b"]) as chosen:
            queue.reset("earliest")
            assert values(updates.drain()) == {}
            assert values(chosen.drain()) == {"b": "1"}

    def test_messages_that_come_back_while_a_browser_opens_are_in_its_dump(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        put(queue, "a=1", "b=1")
        queue.purge()
        before_polls(memory_cluster, lambda reader, poll: (reader, poll) == (1, 1) and queue.reset("earliest"))
        with queue.browser(follow=False) as browser:
            *entries, end = browser
        assert values(entries) == {"a": "1", "b": "1"}
        assert end == EndOfDump({0: 2})


class TestUnknownConsumption:
    """Unknown consumption: a new browser and a running one report the same about the group (R17, G5)."""

    def test_r17_it_fails_when_the_group_is_gone(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        put(queue, "a=1")
        queue.purge()
        with queue.browser(refresh=0.01) as browser:
            assert isinstance(browser.poll(30), EndOfDump)
            memory_cluster.groups.delete(queue.definition.group)
            with pytest.raises(ReaderFailed, match="lvq repair prices") as caught:
                browser.poll(30)
            assert isinstance(caught.value.reason, QueueNotDeclared)
            assert browser.state == "failed"
            assert browser.failure is caught.value.reason

    def test_r17_a_caller_that_asks_for_a_look_learns_it_at_once(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser(refresh=1000) as browser:
            memory_cluster.groups.delete(queue.definition.group)
            with pytest.raises(ReaderFailed) as caught:
                browser.drain()
            assert isinstance(caught.value.reason, QueueNotDeclared)
            assert browser.state == "failed"

    def test_r17_it_fails_when_the_commits_are_of_an_earlier_topic(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        stored = memory_cluster.groups.committed(queue.definition.group, "prices")
        with queue.browser(refresh=1000) as browser:
            memory_cluster.topics.delete("prices")
            memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
            memory_cluster.groups.commit(queue.definition.group, "prices", stored)
            with pytest.raises(ReaderFailed) as caught:
                browser.refresh()
            assert isinstance(caught.value.reason, TopicRecreated)

    def test_g5_of_a_topic_that_was_deleted_it_says_that_and_not_that_the_queue_is_not_declared(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser(refresh=0.01, metadata_interval=0.05) as browser:
            assert isinstance(browser.poll(30), EndOfDump)
            memory_cluster.groups.delete(queue.definition.group)  # as a broker does with the topic
            memory_cluster.topics.delete("prices")
            with pytest.raises(ReaderFailed, match="deleted while it was being read"):
                browser.poll(30)

    def test_a_cluster_that_does_not_answer_for_a_moment_is_no_failure(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser(refresh=0.01) as browser:
            assert isinstance(browser.poll(30), EndOfDump)
            down = BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)
            memory_cluster.fail_next("groups.committed", down, times=3)
            looked = browser.as_of
            eventually(lambda: browser.as_of > looked)
            put(queue, "a=1")
            assert values([browser.poll(30)]) == {"a": "1"}
