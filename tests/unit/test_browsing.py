"""A browser's events, option by option, on the in-memory cluster. Its races are in ``test_browser.py``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest

from lvq_kafka import JSON, TEXT, Browser, Deleted, EndOfDump, Entry, LastValueQueue, Position
from lvq_kafka.errors import (
    CatchUpTimeout,
    ConfigError,
    DecodeError,
    QueueNotDeclared,
    ReaderFailed,
    TopicNotFound,
    TopicRecreated,
)
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)


def write(queue: LastValueQueue[str], *changes: tuple[str, str | None], **headers: str) -> None:
    """Put these values; None deletes the key."""
    with queue.producer() as producer:
        for key, value in changes:
            producer.delete(key, headers) if value is None else producer.put(key, value, headers)


def shown(events: Iterable[Any]) -> list[Any]:
    """Shorten events: ``key=value``, ``-key`` for a delete, ``-key left`` for a key that left, ``|`` for EndOfDump."""
    forms: dict[type, Callable[[Any], str]] = {
        Entry: lambda e: f"{e.key}={e.value}",
        Deleted: lambda e: f"-{e.key}{' left' if e.left else ''}",
        EndOfDump: lambda _: "|",
    }
    return [forms[type(event)](event) for event in events]


def take(browser: Browser[str], count: int) -> list[Any]:
    return shown(event for _ in range(count) if (event := browser.poll(30)) is not None)


class TestDumpAndFollow:
    def test_the_newest_of_each_key_in_queue_order_then_the_end_then_updates(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"), ("2", "d"), ("1", None))
        with queue.browser() as browser:
            assert take(browser, 3) == ["3=c", "2=d", "|"]
            write(queue, ("4", "e"), ("3", None), ("4", "f"))
            assert shown(browser.drain()) == ["-3", "4=f"]

    def test_an_empty_queue_has_an_end_of_dump_too(self, queue: LastValueQueue[str]) -> None:
        with queue.browser() as browser:
            assert browser.poll(30) == EndOfDump({0: 0})
            assert browser.poll(0) is None
            assert browser.state == "caught-up"
            assert browser.lag == 0

    def test_an_entry_tells_where_it_lies_and_what_came_with_it(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("IBM", "1"), exchange="NYSE")
        with queue.browser(follow=False) as browser:
            entry, end = browser
        assert isinstance(entry, Entry)
        assert entry.position == Position("prices", 0, 0)
        assert (entry.header("exchange"), entry.header("ticker")) == ("NYSE", "IBM")
        assert end == EndOfDump({0: 1})

    def test_r4_in_place_order_outlasts_acks_for_browsers_and_the_next_consumer(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = LastValueQueue.declare("slots", key_header="k", order="in-place", value=TEXT, cluster=memory_cluster)
        with queue.producer() as producer:
            for key, value in (*((key, "v1") for key in "1234"), ("2", "v2"), ("1", "v2")):
                producer.put(key, value)
        with queue.consumer() as consumer:
            delivery = consumer.acquire(timeout=10)
            assert delivery is not None
            assert delivery.key == "1"
            delivery.ack(wait=True, timeout=10)
        with queue.browser(follow=False) as browser:
            assert [event.key for event in browser if isinstance(event, Entry)] == ["2", "3", "4"]
        assert queue.stats().depth == 3
        assert queue.purge(keys=["3"]).after[0].base == 1, "the place of 2"
        with queue.consumer() as consumer:
            deliveries = [consumer.acquire(timeout=10) for _ in range(2)]
            assert [delivery.key for delivery in deliveries if delivery is not None] == ["2", "4"]

    def test_in_place_order_keeps_the_slot_of_a_key(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare("slots", key_header="k", order="in-place", value=TEXT, cluster=memory_cluster)
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"), ("1", "d"))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["1=d", "2=b", "3=c", "|"]

    def test_without_follow_it_ends_with_the_dump(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("a", "1"))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["a=1", "|"]
            write(queue, ("b", "2"))
            assert list(browser) == []
            assert browser.poll(0) is None

    def test_g3_a_slow_listener_gets_each_key_once_with_its_newest_value(self, queue: LastValueQueue[str]) -> None:
        with queue.browser() as browser:
            assert take(browser, 1) == ["|"]
            write(queue, *[(str(number % 3), str(number)) for number in range(300)])
            assert sorted(shown(browser.drain())) == ["0=297", "1=298", "2=299"]

    def test_g2_a_key_that_changes_before_its_turn_in_the_dump_is_given_once_with_its_newest_value(
        self, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "old"), ("2", "old"), ("3", "old"))
        with queue.browser() as browser:
            assert take(browser, 1) == ["1=old"]
            write(queue, ("2", "new"), ("3", None))
            assert shown(browser.drain()) == ["2=new", "|"]

    def test_updates_only_have_an_end_of_an_empty_dump(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("a", "1"))
        with queue.browser(dump=False) as browser:
            assert take(browser, 1) == ["|"]
            write(queue, ("a", "2"), ("b", "1"))
            assert shown(browser.drain()) == ["a=2", "b=1"]

    def test_two_browsers_are_independent_and_change_nothing(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("a", "1"), ("b", "2"))
        before = memory_cluster.records("prices"), memory_cluster.groups.committed("lvq.prices", "prices")
        with queue.browser(follow=False) as one, queue.browser(follow=False) as other:
            assert shown(one) == shown(other) == ["a=1", "b=2", "|"]
        assert (memory_cluster.records("prices"), memory_cluster.groups.committed("lvq.prices", "prices")) == before

    def test_a_drain_waits_for_what_was_acknowledged_before(self, queue: LastValueQueue[str]) -> None:
        with queue.browser() as browser:
            for number in range(20):
                write(queue, ("a", str(number)))
                assert shown(browser.drain())[-1] == f"a={number}"


class TestReplayPeriod:
    """R15: a replay period filters the dump by arrival time, counted from the open; updates always come."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock(1_000_000.0)  # which this machine's clock is far from

    @pytest.fixture
    def aged(self, clock: Clock) -> LastValueQueue[str]:
        """Return a queue: ``old`` came an hour ago, ``again`` then and just now, ``new`` just now."""
        queue = LastValueQueue.declare("prices", key_header="k", value=TEXT, cluster=MemoryCluster(clock=clock))
        now, clock.now = clock.now, clock.now - 3600
        write(queue, ("old", "1"), ("again", "1"))
        clock.now = now
        write(queue, ("again", "2"), ("new", "1"))
        return queue

    @pytest.mark.parametrize(
        ("period", "dump"),
        [
            (60, ["again=2", "new=1", "|"]),
            (60.5, ["again=2", "new=1", "|"]),
            (7200, ["old=1", "again=2", "new=1", "|"]),
            (0, ["|"]),
            (None, ["old=1", "again=2", "new=1", "|"]),
        ],
    )
    def test_only_what_arrived_in_it_is_in_the_dump(
        self, aged: LastValueQueue[str], period: float | None, dump: list[str]
    ) -> None:
        with aged.browser(replay_period=period, follow=False) as browser:
            assert shown(browser) == dump

    def test_updates_come_whatever_their_time_is(self, aged: LastValueQueue[str], clock: Clock) -> None:
        with aged.browser(replay_period=60) as browser:
            assert take(browser, 3) == ["again=2", "new=1", "|"]
            clock.now -= 7200  # a producer's clock may be wrong
            write(aged, ("old", "2"), ("new", None))
            assert shown(browser.drain()) == ["old=2", "-new"]

    @pytest.mark.parametrize("period", [-1, float("nan"), float("inf"), "60", True, [60], Decimal("sNaN")])
    def test_a_bad_one_is_refused_by_name_and_value(self, queue: LastValueQueue[str], period: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            queue.browser(replay_period=period)
        assert caught.value.options == ("replay_period",)
        assert repr(period) in str(caught.value)

    @pytest.mark.parametrize("refresh", [-1, "often"])
    def test_a_bad_refresh_is_refused_too(self, queue: LastValueQueue[str], refresh: Any) -> None:
        with pytest.raises(ConfigError, match="refresh"):
            queue.browser(refresh=refresh)


class TestFilters:
    def test_by_keys_in_any_form(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("true", "c"), ("4", "d"))
        with queue.browser(keys=[1, b"2", True, "none"]) as browser:
            assert take(browser, 4) == ["1=a", "2=b", "true=c", "|"]
            write(queue, ("1", None), ("4", None), ("2", "e"))
            assert shown(browser.drain()) == ["-1", "2=e"]

    def test_no_key_at_all_shows_nothing(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))
        with queue.browser(keys=[], follow=False) as browser:
            assert shown(browser) == ["|"]

    def test_by_the_last_header_of_a_name(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), exchange="NYSE")
        write(queue, ("2", "b"), exchange="XETRA")
        write(queue, ("3", "c"))
        memory_cluster.write("prices", b"4", b"d", [("exchange", b"XETRA"), ("exchange", b"NYSE")])
        with queue.browser(headers={"exchange": "NYSE"}, follow=False) as browser:
            assert shown(browser) == ["1=a", "4=d", "|"]
        with queue.browser(headers={"exchange": None}, follow=False) as browser:
            assert shown(browser) == ["1=a", "2=b", "4=d", "|"]
        with queue.browser(headers={"exchange": "NYSE", "ticker": "1"}, follow=False) as browser:
            assert shown(browser) == ["1=a", "|"]

    def test_by_a_header_that_is_a_float(self, queue: LastValueQueue[str]) -> None:
        with queue.producer() as producer:
            producer.put("1", "a", {"limit": 1.5})
            producer.put("2", "b", {"limit": 2})
        with queue.browser(headers={"limit": 1.5}, follow=False) as browser:
            assert shown(browser) == ["1=a", "|"]

    def test_a_delete_is_told_to_who_was_shown_the_value(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), exchange="NYSE")
        write(queue, ("2", "b"), exchange="XETRA")
        with queue.browser(headers={"exchange": "NYSE"}) as browser:
            assert take(browser, 2) == ["1=a", "|"]
            write(queue, ("1", None), ("2", None), ("3", None))
            assert shown(browser.drain()) == ["-1"]

    def test_a_key_leaves_once_with_a_value_that_does_not_match_and_comes_back_with_one_that_does(
        self, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"), ("2", "a"), exchange="NYSE")
        with queue.browser(headers={"exchange": "NYSE"}) as browser:
            assert take(browser, 3) == ["1=a", "2=a", "|"]
            write(queue, ("1", "b"), ("3", "b"), exchange="XETRA")
            assert shown(browser.drain()) == ["-1 left"]
            write(queue, ("1", "c"), exchange="XETRA")
            write(queue, ("1", None))
            assert shown(browser.drain()) == [], "it had left before"
            write(queue, ("1", "d"), exchange="NYSE")
            assert shown(browser.drain()) == ["1=d"]
            write(queue, ("1", None), ("2", None))
            assert shown(browser.drain()) == ["-1", "-2"]
            write(queue, ("1", "e"), exchange="XETRA")
            write(queue, ("1", None))
            assert shown(browser.drain()) == []

    def test_a_key_that_leaves_before_its_turn_in_the_dump_is_left_out_of_it(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "a"), ("3", "a"), exchange="NYSE")
        with queue.browser(headers={"exchange": "NYSE"}) as browser:
            assert take(browser, 1) == ["1=a"]
            write(queue, ("1", "b"), ("2", "b"))
            assert shown(browser.drain()) == ["3=a", "|", "-1 left"]

    def test_a_message_that_has_left_and_is_consumed_then_is_not_reported_again(
        self, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"), ("2", "a"), exchange="NYSE")
        with queue.browser(headers={"exchange": "NYSE"}, refresh=3600.0) as browser:
            assert take(browser, 3) == ["1=a", "2=a", "|"]
            write(queue, ("1", "b"), exchange="XETRA")
            assert shown(browser.drain()) == ["-1 left"]
            with queue.consumer() as consumer:
                for _ in range(2):
                    delivery = consumer.acquire(30)
                    assert delivery is not None
                    delivery.ack(wait=True, timeout=30)
            assert browser.drain() == [Deleted("2", consumed=True)]
            write(queue, ("1", None), ("2", None))
            assert browser.drain() == []

    def test_a_key_that_cannot_be_one_is_refused(self, queue: LastValueQueue[str]) -> None:
        with pytest.raises(TypeError, match=r"1\.5"):
            queue.browser(keys=[1.5])  # type: ignore[list-item]


class TestConsumed:
    def consume(self, queue: LastValueQueue[str], count: int) -> None:
        with queue.consumer() as consumer:
            for _ in range(count):
                delivery = consumer.acquire(30)
                assert delivery is not None
                delivery.ack(wait=True, timeout=30)

    def test_consumed_messages_are_hidden_unless_asked_for(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"))
        self.consume(queue, 2)
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["3=c", "|"]
        with queue.browser(follow=False, hide_consumed=False) as browser:
            assert shown(browser) == ["1=a", "2=b", "3=c", "|"]

    def test_another_queue_on_the_topic_hides_nothing(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        other = LastValueQueue.declare("other", topic="prices", key_header="ticker", value=TEXT, cluster=memory_cluster)
        write(queue, ("1", "a"))
        self.consume(queue, 1)
        with other.browser(follow=False) as browser:
            assert shown(browser) == ["1=a", "|"]

    def test_a_message_consumed_before_its_turn_is_hidden_by_the_next_look(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"))
        with queue.browser(refresh=0.01) as browser:
            assert take(browser, 1) == ["1=a"]
            self.consume(queue, 2)
            assert shown(browser.drain()) == ["3=c", "|", "-1"]

    def test_g2_a_message_consumed_above_a_held_one_is_hidden_too(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"))
        with queue.consumer() as consumer:
            held, done = consumer.acquire_many(2, 5)
            done.ack(wait=True, timeout=30)
            with queue.browser(follow=False) as browser:
                assert shown(browser) == ["1=a", "3=c", "|"]
            held.release()

    def test_a_value_that_is_consumed_after_it_was_given_is_told_as_deleted(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"), ("2", "b"))
        with queue.browser(refresh=0.01) as browser:
            assert take(browser, 3) == ["1=a", "2=b", "|"]
            self.consume(queue, 1)
            removed = browser.poll(10)
            assert removed == Deleted("1", consumed=True)
            write(queue, ("1", "a2"))
            assert take(browser, 1) == ["1=a2"]

    def test_there_is_a_look_at_every_interval(
        self, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        intervals = []

        class Noting(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                intervals.append(timeout)
                return super().wait(0.01)

        monkeypatch.setattr("lvq_kafka.reading.browser.Flag", Noting)
        write(queue, ("1", "a"))
        with queue.browser(refresh=0.25) as browser:
            assert take(browser, 2) == ["1=a", "|"]
            eventually(lambda: len(intervals) > 3)
            self.consume(queue, 1)
            assert browser.poll(30) == Deleted("1", consumed=True)
        assert set(intervals) == {0.25}

    def test_a_look_can_be_asked_for(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))
        with queue.browser(refresh=1000) as browser:
            assert take(browser, 2) == ["1=a", "|"]
            looked = browser.as_of
            self.consume(queue, 1)
            assert browser.poll(0.05) is None
            browser.refresh()
            assert browser.as_of > looked
            assert browser.poll(30) == Deleted("1", consumed=True)

    def test_messages_below_all_that_are_left_to_do_are_not_even_read(self, queue: LastValueQueue[str]) -> None:
        write(queue, *((str(number), "x") for number in range(10)))
        self.consume(queue, 9)
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["9=x", "|"]
            assert browser.stats.added == 1

    def test_r17_where_it_is_not_known_what_was_consumed_it_says_so(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("a", "1"))
        memory_cluster.groups.delete(queue.definition.group)
        with pytest.raises(QueueNotDeclared, match="lvq repair prices") as caught, queue.browser():
            pass
        assert caught.value.__notes__ == ["A browser with hide_consumed=False does not look up what was consumed."]
        with queue.browser(hide_consumed=False, follow=False) as browser:
            assert len(list(browser)) == 2
        queue.repair(start="earliest")
        with queue.browser(follow=False) as browser:
            assert len(list(browser)) == 2

    def test_r17_messages_consumed_from_an_earlier_topic_hide_nothing_of_this_one(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("a", "1"), ("b", "1"))
        queue.purge()
        commits = memory_cluster.groups.committed(queue.definition.group, "prices")
        memory_cluster.topics.delete("prices")
        memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        memory_cluster.groups.commit(queue.definition.group, "prices", commits)
        write(queue, ("c", "1"))
        with pytest.raises(TopicRecreated), queue.browser():
            pass

    def test_r17_messages_written_where_the_log_was_cut_are_not_hidden(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"), ("2", "b"), ("3", "c"))
        self.consume(queue, 3)
        memory_cluster.elect("prices", 0, end=1)
        write(queue, ("4", "d"), ("5", "e"), ("6", "f"))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["4=d", "5=e", "6=f", "|"]

    def test_a_log_that_has_another_leader_is_looked_at_once(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[object] = []
        overwritten = memory_cluster.logs.overwritten

        def watched(topic: str, ends: Any, *, timeout: float) -> dict[int, int]:
            looks.append(ends)
            return overwritten(topic, ends, timeout=timeout)

        monkeypatch.setattr(memory_cluster.logs, "overwritten", watched)
        write(queue, ("1", "a"))
        self.consume(queue, 1)
        memory_cluster.elect("prices", 0)
        with queue.browser(refresh=1000) as browser:
            assert shown(browser.drain()) == ["|"]
            for _ in range(3):
                browser.refresh()
            assert len(looks) == 1
            memory_cluster.elect("prices", 0)
            browser.refresh()
        assert len(looks) == 2

    def test_a_bare_topic_has_nothing_to_hide(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))
        self.consume(queue, 1)
        with LastValueQueue("prices", key_header=None, value=TEXT, cluster=memory_cluster).browser(
            follow=False
        ) as browser:
            assert shown(browser) == ["1=a", "|"]


class TestTransactions:
    def test_records_hidden_by_an_open_one_are_named_at_the_end_of_the_dump_and_follow(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"))
        writer = memory_cluster.writer(transactional_id="x")
        writer.begin_transaction()
        writer.append("prices", b"2", b"b")
        write(queue, ("3", "c"))
        with queue.browser(metadata_interval=0.05) as browser:
            assert take(browser, 1) == ["1=a"]
            end = browser.poll(30)
            assert isinstance(end, EndOfDump)
            assert [(block.partition, block.position, block.target) for block in end.blocked] == [(0, 1, 3)]
            writer.commit_transaction()
            assert shown(browser.drain()) == ["2=b", "3=c"]

    def test_aborted_records_are_never_shown(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))
        writer = memory_cluster.writer(transactional_id="x")
        writer.begin_transaction()
        writer.append("prices", b"1", b"never")
        writer.abort_transaction()
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["1=a", "|"]


class TestIterating:
    def test_async_for_gives_the_same_events_and_ends_with_the_browser(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))

        async def follow() -> list[Any]:
            told: list[Any] = []
            loop = asyncio.get_running_loop()
            with queue.browser() as browser:
                async for event in browser:
                    told.append(event)
                    if isinstance(event, EndOfDump):
                        loop.call_later(0.01, lambda: write(queue, ("2", "b")))
                    if len(told) == 3:
                        loop.call_later(0.01, browser.close)
            return told

        assert shown(asyncio.run(follow())) == ["1=a", "|", "2=b"]

    def test_async_for_without_follow_ends_with_the_dump(self, queue: LastValueQueue[str]) -> None:
        write(queue, ("1", "a"))

        async def dump() -> list[Any]:
            with queue.browser(follow=False) as browser:
                return [event async for event in browser]

        assert shown(asyncio.run(dump())) == ["1=a", "|"]

    def test_a_close_ends_an_iteration_that_waits(self, queue: LastValueQueue[str]) -> None:
        browser = queue.browser().open()
        told: list[Any] = []
        thread = threading.Thread(target=lambda: told.extend(browser))
        thread.start()
        write(queue, ("1", "a"))
        browser.drain()
        browser.close()
        thread.join(5)
        assert not thread.is_alive()
        assert browser.state == "closed"
        assert browser.poll(0) is None
        assert list(browser) == []
        browser.close()

    def test_an_unreadable_value_is_raised_once_and_the_next_call_goes_on(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare("numbers", key_header="k", value=JSON, cluster=memory_cluster)
        for value in (b"1", b"{", b"3"):
            memory_cluster.write("numbers", value, value)
        with queue.browser(follow=False) as browser:
            events = iter(browser)
            assert shown([next(events)]) == ["1=1"]
            with pytest.raises(DecodeError):
                next(events)
            assert shown(events) == ["3=3", "|"]

    def test_an_unreadable_value_can_be_skipped_its_key_has_none_until_its_next_good_one(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = LastValueQueue.declare("numbers", key_header="k", value=JSON, cluster=memory_cluster)
        for key, value in ((b"a", b"1"), (b"b", b"{")):
            memory_cluster.write("numbers", key, value)
        with queue.browser(undecodable="skip") as browser:
            assert shown(browser.drain()) == ["a=1", "|"]
            memory_cluster.write("numbers", b"b", b"2")
            assert shown(browser.drain()) == ["b=2"]
            memory_cluster.write("numbers", b"a", b"{")
            assert shown(browser.drain()) == ["-a"]
            assert browser.skipped == 2

    def test_async_for_opens_a_browser_without_holding_up_the_loop(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"))
        go_on = threading.Event()
        before_polls(memory_cluster, lambda reader, poll: go_on.wait(10))

        async def dump() -> list[Any]:
            asyncio.get_running_loop().call_later(0.05, go_on.set)  # would never run if the loop were blocked
            browser = queue.browser(follow=False, catch_up_timeout=5)
            events = [event async for event in browser]
            browser.close()
            return events

        assert shown(asyncio.run(dump())) == ["1=a", "|"]


class TestTrouble:
    def test_a_missing_topic_is_refused(self, memory_cluster: MemoryCluster) -> None:
        with pytest.raises(TopicNotFound), LastValueQueue("nowhere", key_header=None, cluster=memory_cluster).browser():
            pass

    def test_an_open_that_takes_too_long_says_what_is_missing(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "a"))
        late = threading.Event()
        before_polls(memory_cluster, lambda reader, poll: late.wait(5))
        browser = queue.browser(catch_up_timeout=0.1)
        threading.Timer(0.5, late.set).start()
        with pytest.raises(CatchUpTimeout, match="partition 0 is at offset 0 of 1") as caught:
            browser.open()
        assert isinstance(caught.value, TimeoutError)
        assert browser.state == "closed"

    def test_a_topic_that_is_deleted_ends_it_with_an_error(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser(metadata_interval=0.05, hide_consumed=False) as browser:
            assert take(browser, 1) == ["|"]
            memory_cluster.topics.delete("prices")
            with pytest.raises(ReaderFailed, match="deleted") as caught:
                browser.poll(10)
            assert isinstance(caught.value.reason, TopicRecreated)

    def test_a_drain_sees_that_the_topic_was_created_anew(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(queue, ("1", "old"), ("2", "old"))
        with queue.browser(metadata_interval=3600, hide_consumed=False) as browser:
            assert shown(browser.drain()) == ["1=old", "2=old", "|"]
            memory_cluster.topics.delete("prices")
            memory_cluster.topics.create("prices", partitions=1, config={})
            write(queue, ("1", "new"))  # the old topic was longer
            assert sorted(shown(browser.drain())) == ["-2", "1=new"]

    def test_a_lost_cluster_shows_and_what_came_meanwhile_follows(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        with queue.browser(metadata_interval=0.05) as browser:
            assert take(browser, 1) == ["|"]
            memory_cluster.disconnect()
            eventually(lambda: browser.state == "disconnected")
            assert browser.poll(0) is None
            memory_cluster.reconnect()
            write(queue, ("1", "a"))
            assert take(browser, 1) == ["1=a"]
            eventually(lambda: browser.state == "caught-up")
