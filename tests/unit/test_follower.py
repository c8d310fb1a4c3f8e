"""The reader behind views and browsers when the cluster fails at an awkward moment; on the in-memory cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread, Timer
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.cluster import LogReader, TopicDescription
from lvq_kafka.core.log import absence
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import BrokerUnavailable, DataLoss, StateError
from lvq_kafka.reading.entries import Event
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.reader_thread import ReaderThread
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_reader import MemoryReader
from tests.unit.polling import before_polls
from tests.waiting import eventually


class OneTopic(MemoryCluster):
    """A cluster with the topic ``prices`` of one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})

    @property
    def queue(self) -> LastValueQueue[str]:
        return LastValueQueue("prices", key_header="ticker", cluster=self, value=TEXT)


def unavailable() -> BrokerUnavailable:
    return BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)


def count_readers(cluster: MemoryCluster) -> list[Mapping[int, int]]:
    """Return a list that collects the start of each reader opened from then on."""
    original, begun = cluster.reader, []

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        begun.append(dict(positions))
        return original(topic, positions)

    cluster.reader = reader  # type: ignore[method-assign]
    return begun


def create_anew(cluster: MemoryCluster, **values: str) -> None:
    cluster.topics.delete("prices")
    cluster.topics.create("prices", partitions=1, config={})
    for key, value in values.items():
        cluster.write("prices", key.encode(), value.encode())


def before_ends(cluster: MemoryCluster, act: Callable[[], object], *, stable: bool) -> None:
    """Run ``act`` once, when a reader asks for the (stable) end of the log, before the answer."""
    original = cluster.logs.end_offsets
    waiting = [act]

    def end_offsets(topic: str, **how: Any) -> dict[int, int]:
        if how.get("stable", False) == stable and waiting:
            waiting.pop()()
        return original(topic, **how)

    cluster.logs.end_offsets = end_offsets  # type: ignore[method-assign]


@pytest.fixture
def cluster() -> OneTopic:
    return OneTopic()


def test_g5_a_partition_of_which_nothing_comes_is_read_over_another_connection_and_the_state_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client goes on fetching from a leader that answers, even if that one is cut off from the others."""
    monkeypatch.setattr(absence, "STALLED", 0.1)
    cluster = MemoryCluster()
    cluster.topics.create("prices", partitions=2, config={"cleanup.policy": "compact"})
    original, readers, go_on = cluster.reader, list[MemoryReader](), Flag()

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        assert not readers or go_on.wait(10)
        found = original(topic, positions)
        assert isinstance(found, MemoryReader)
        readers.append(found)
        return found

    def stalled_though_the_other_partition_is_busy() -> bool:
        cluster.write("prices", b"b", b"1", partition=1)
        return view.state == "disconnected"

    cluster.reader = reader  # type: ignore[method-assign]
    queue = LastValueQueue("prices", key_header="ticker", cluster=cluster, value=TEXT)
    with queue.view(metadata_interval=0.02) as view:
        readers[0].unassign([0])
        cluster.write("prices", b"a", b"0", partition=0)
        cluster.write("prices", b"a", b"1", partition=0)
        eventually(stalled_though_the_other_partition_is_busy)
        assert "partition 0" in str(view.status.trouble)
        assert view.get("a") is None
        go_on.set()
        eventually(lambda: view.get("a") == "1" and view.state == "caught-up")
        assert len(readers) == 2


def test_g5_a_reader_that_is_busy_between_two_polls_does_not_take_that_for_silence_of_a_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit to a slow disk may take longer than a broker is given."""
    cluster = MemoryCluster(fetch_limit=1)
    cluster.topics.create("prices", partitions=2, config={"cleanup.policy": "compact"})
    begun, observed, late = count_readers(cluster), Flag(), [0.0]
    apply, note = ReaderThread.apply, FollowerState.observed

    def slowly(self: ReaderThread, fetch: Fetch) -> None:
        apply(self, fetch)
        observed.clear()
        late[0] += 2 * absence.STALLED
        assert observed.wait(20), "the topic is not observed meanwhile"

    def noting(self: FollowerState, *news: Any) -> None:
        note(self, *news)
        observed.set()

    monkeypatch.setattr(ReaderThread, "apply", slowly)
    monkeypatch.setattr(FollowerState, "observed", noting)
    queue = LastValueQueue("prices", key_header="ticker", cluster=cluster, value=TEXT)
    with queue.view(metadata_interval=0.02, catch_up_timeout=None) as view:
        view._shared.clock = lambda: uptime() + late[0]
        for number in range(2):
            for partition in range(2):
                cluster.write("prices", b"%d" % partition, b"%d" % number, partition=partition)
        eventually(lambda: dict(view.items()) == {"0": "1", "1": "1"})
    assert len(begun) == 1
    assert "stalled" not in caplog.text


def test_an_outage_while_partitions_are_added_is_no_failure(cluster: OneTopic) -> None:
    with cluster.queue.view(metadata_interval=0.02) as view:
        cluster.fail_next("logs.start_offsets", unavailable(), times=3)
        cluster.topics.add_partitions("prices", 3)
        cluster.write("prices", b"a", b"1", partition=2)
        eventually(lambda: view.get("a") == "1")
        assert view.state == "caught-up"


def test_an_outage_while_a_reader_starts_over_is_no_failure(cluster: OneTopic) -> None:
    cluster.write("prices", b"a", b"old")
    with cluster.queue.view(metadata_interval=0.02) as view:
        # After the new topic is found, each first step of reading it fails once.
        cluster.topics.delete("prices")
        for operation in ("logs.start_offsets", "logs.end_offsets"):
            cluster.fail_next(operation, unavailable(), times=2)
        cluster.topics.create("prices", partitions=1, config={})
        cluster.write("prices", b"a", b"new")
        eventually(lambda: view.get("a") == "new" and view.state == "caught-up")


def test_the_late_answer_of_the_observer_about_a_former_topic_is_not_taken_for_news(cluster: OneTopic) -> None:
    """Its answer comes late, when the reading thread has already started over."""
    asked, answer_now = Flag(), Flag()
    original = cluster.topics.describe

    def describe(topic: str, *, timeout: float = 10.0) -> TopicDescription:
        found = original(topic, timeout=timeout)
        if original_id == found.id and not asked.is_set() and armed.is_set():
            asked.set()
            answer_now.wait(10)
        return found

    armed = Flag()
    original_id = original("prices").id
    cluster.topics.describe = describe  # type: ignore[method-assign]
    cluster.write("prices", b"a", b"old")
    polls: list[int] = []
    before_polls(cluster, lambda reader, poll: polls.append(reader))
    with cluster.queue.view(metadata_interval=0.02) as view:
        armed.set()
        assert asked.wait(10)
        cluster.topics.delete("prices")
        cluster.topics.create("prices", partitions=1, config={})
        eventually(lambda: 2 in polls)  # the first reader's position is past the end of this log
        cluster.write("prices", b"a", b"new")
        eventually(lambda: view.get("a") == "new" and view.state == "caught-up")
        answer_now.set()
        view.barrier()
        eventually(lambda: view.silence < 0.02)  # it has looked again
        assert view.snapshot().topic_id == original("prices").id != original_id
        so_far = len(polls)
        eventually(lambda: len(polls) > so_far + 2)
        assert max(polls) == 2, "it did not start over once more"


def test_listeners_of_a_reader_that_starts_over_are_told_only_of_keys_that_are_really_gone(cluster: OneTopic) -> None:
    for key in (b"a", b"b", b"c"):
        cluster.write("prices", key, b"1")
    with cluster.queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        cluster.delete_records("prices", 0, 1)
        cluster.fail_next("poll", DataLoss("the position is gone"))
        events: list[Event[str]] = []

        def told() -> bool:
            events.extend(watch.drain())
            return Deleted("a") in events

        eventually(told)
        assert [event for event in events if isinstance(event, Deleted)] == [Deleted("a")]
        assert dict(view) == {"b": "1", "c": "1"}


def test_a_browser_of_updates_only_misses_nothing_of_a_topic_that_was_created_anew(cluster: OneTopic) -> None:
    cluster.write("prices", b"old", b"1")
    original = cluster.topics.describe
    blind = Flag()

    def describe(topic: str, *, timeout: float = 10.0) -> TopicDescription:
        if blind.is_set():
            raise unavailable()
        return original(topic, timeout=timeout)

    cluster.topics.describe = describe  # type: ignore[method-assign]
    with cluster.queue.browser(dump=False, metadata_interval=0.02) as browser:
        assert browser.drain() == [EndOfDump({0: 1})]
        blind.set()
        cluster.topics.delete("prices")
        cluster.topics.create("prices", partitions=1, config={})
        cluster.write("prices", b"new", b"1")  # before the browser can know
        blind.clear()
        event = browser.poll(10)
        assert isinstance(event, Entry)
        assert event.key == "new"


def test_growth_that_changes_a_value_wakes_an_asynchronous_listener() -> None:
    """R14: a key in two partitions gets another home, so the other value becomes the current one."""
    cluster = MemoryCluster()
    cluster.topics.create("prices", partitions=2, config={})
    key = next(key for n in range(99) if (home_partition(key := b"%d" % n, 2), home_partition(key, 3)) == (0, 1))
    cluster.write("prices", key, b"in 0", partition=0)
    cluster.write("prices", key, b"in 1", partition=1)

    async def next_event() -> Event[str]:
        async for event in watch:
            return event
        raise AssertionError("the watch has ended")

    queue = LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT)
    with queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        assert view[key] == "in 0"
        Thread(target=cluster.topics.add_partitions, args=("prices", 3)).start()
        event = asyncio.run(asyncio.wait_for(next_event(), 10))
        assert isinstance(event, Entry)
        assert event.value == "in 1"


def test_a_view_that_was_not_started_says_so(cluster: OneTopic) -> None:
    view = cluster.queue.view()
    assert repr(view) == "<View of prices: catching-up>"
    assert (view.lag, view.progress) == (0, (0, 0))
    for use in (lambda: view["a"], lambda: len(view), view.snapshot, view.barrier, view.watch):
        with pytest.raises(StateError, match="was not started"):
            use()
    view.close()
    assert view.state == "closed"


def test_a_view_is_closed_at_once_though_it_looks_at_its_topic_once_an_hour(cluster: OneTopic) -> None:
    view = cluster.queue.view(metadata_interval=3600).start()
    view.wait_caught_up(10)
    closing = Thread(target=view.close)
    closing.start()
    closing.join(2)
    assert not closing.is_alive()


def test_a_transaction_that_has_moved_on_is_not_called_blocked(cluster: OneTopic) -> None:
    """Between two looks at the topic, the known last stable offset may be outdated."""
    with cluster.queue.view(metadata_interval=3600) as view:
        first, second = cluster.writer(transactional_id="1"), cluster.writer(transactional_id="2")
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


def test_records_that_go_while_a_reader_is_opened_make_it_begin_later(cluster: OneTopic) -> None:
    for key in (b"a", b"b"):
        cluster.write("prices", key, b"1")
    original = cluster.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        cluster.reader = original  # type: ignore[method-assign]
        cluster.delete_records("prices", 0, 1)
        return original(topic, positions)

    cluster.reader = reader  # type: ignore[method-assign]
    with cluster.queue.view() as view:
        assert dict(view) == {"b": "1"}


class Gates:
    """Gates that hold the first reader before its next polls, one each. A gate opens a moment after `open`."""

    def __init__(self, cluster: MemoryCluster, gates: int) -> None:
        self._shut = Flag()
        self._reached = Flag()
        self._gates = [Flag() for _ in range(gates)]
        self._ahead = list(self._gates)
        before_polls(cluster, self._hold)

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
    cluster: OneTopic,
) -> None:
    def act() -> None:
        create_anew(cluster, a="new", b="new")
        gates.open()

    gates = Gates(cluster, 1)
    for key in (b"a", b"b"):
        cluster.write("prices", key, b"old")
    with cluster.queue.view(metadata_interval=3600) as view:
        gates.shut()
        before_ends(cluster, act, stable=False)
        assert view.barrier(10) == {0: 2}
        assert dict(view) == {"a": "new", "b": "new"}


def test_g7_a_barrier_that_takes_a_while_is_not_reached_by_what_was_read_of_a_topic_that_is_no_more(
    cluster: OneTopic,
) -> None:
    def act() -> None:
        create_anew(cluster, a="new", b="new")
        gates.open()

    gates = Gates(cluster, 2)
    cluster.write("prices", b"a", b"old")
    with cluster.queue.view(metadata_interval=3600) as view:
        gates.shut()
        cluster.write("prices", b"b", b"old")
        before_ends(cluster, gates.open, stable=False)
        before_ends(cluster, act, stable=True)
        view.barrier(10)
        assert dict(view) == {"a": "new", "b": "new"}


def test_g7_a_barrier_covers_partitions_that_were_added_while_it_asked(cluster: OneTopic) -> None:
    def grow() -> None:
        cluster.topics.add_partitions("prices", 2)
        cluster.write("prices", b"a", b"1", partition=1)

    with cluster.queue.view(metadata_interval=3600) as view:
        before_ends(cluster, grow, stable=False)
        assert view.barrier(10) == {0: 0, 1: 1}
        assert dict(view) == {"a": "1"}


def test_s085_a_browser_whose_topic_is_created_anew_while_it_opens_waits_for_nobodys_transaction(
    cluster: OneTopic,
) -> None:
    for key in (b"a", b"b", b"c"):
        cluster.write("prices", key, b"old")
    writer = cluster.writer(transactional_id="1")

    def create_with_open_transaction(reader: int, poll: int) -> None:
        if (reader, poll) == (1, 1):
            create_anew(cluster, a="new")
            writer.begin_transaction()
            writer.append("prices", b"b", b"hidden")

    before_polls(cluster, create_with_open_transaction)
    with cluster.queue.browser(metadata_interval=0.02) as browser:
        entry, end = browser.drain(5)
        assert isinstance(entry, Entry)
        assert isinstance(end, EndOfDump)
        assert (entry.key, entry.value) == ("a", "new")
        assert [shortfall.stable for shortfall in end.blocked] == [1]
        writer.commit_transaction()
        update = browser.poll(10)
        assert isinstance(update, Entry)
        assert update.value == "hidden"


def test_a_reader_begins_within_the_log_though_that_was_cut_off_before_the_place_it_was_to_begin_at(
    cluster: OneTopic,
) -> None:
    """An out-of-sync replica became the leader, so the log ends earlier than before."""
    cluster.write("prices", b"a", b"1")
    original = cluster.logs.end_offsets

    def end_offsets(topic: str, **how: Any) -> dict[int, int]:
        cluster.logs.end_offsets = original  # type: ignore[method-assign]
        return {0: 5}

    cluster.logs.end_offsets = end_offsets  # type: ignore[method-assign]
    begun = count_readers(cluster)
    with cluster.queue.browser(dump=False) as browser:
        assert browser.drain() == [EndOfDump({0: 1})]
        cluster.write("prices", b"a", b"2")
        event = browser.poll(10)
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
