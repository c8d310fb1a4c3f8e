"""Readers of a queue whose messages may be scheduled: views, snapshots, watches and browsers (R11)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Producer, TopicSpec, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import ConfigError
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.watch import Watch
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.timed_readers import shown
from tests.waiting import eventually

LONGEST = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    return MemoryCluster(clock=clock)


def declare(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    given = {"max_delay": LONGEST} | options
    return LastValueQueue.declare("prices", key_header="ticker", cluster=cluster, value=TEXT, **given)


@pytest.fixture
def queue(cluster: MemoryCluster) -> LastValueQueue[str]:
    return declare(cluster)


@pytest.fixture
def producer(queue: LastValueQueue[str]) -> Iterator[Producer[str]]:
    with queue.producer() as producer:
        yield producer


def events(source: Browser[str] | Watch[str]) -> list[str]:
    """Return all events that are ready, as text."""
    return [
        "end"
        if isinstance(event, EndOfDump)
        else f"{event.key}={event.value}"
        if isinstance(event, Entry)
        else f"{event.key} {'left' if event.left else 'expired' if event.expired else 'deleted'}"
        for event in source.drain()
    ]


def test_s115_the_value_before_counts_until_the_scheduled_one_is_due_to_the_millisecond(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    producer.put("SAP", "3", not_before=clock.now + 50)
    with queue.view() as view:
        assert shown(view) == {"IBM": "1"}
        assert view.stats.scheduled == 2
        clock.now += 4.999
        assert shown(view) == {"IBM": "1"}
        clock.now += 0.001
        assert shown(view) == {"IBM": "2"}
        assert view.stats.scheduled == 1
        clock.now += 45
        assert shown(view) == {"IBM": "2", "SAP": "3"}
        assert view.stats.scheduled == 0
    with queue.view() as later:
        assert shown(later) == {"IBM": "2", "SAP": "3"}


def test_s114_of_five_values_of_one_key_each_counts_in_turn(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    for number in range(5):
        producer.put("IBM", f"{number + 1}", not_before=clock.now + number / 8)
    with queue.view() as view, view.watch() as watch:
        assert (shown(view), view.stats.scheduled) == ({"IBM": "1"}, 4)
        for number in range(1, 5):
            clock.now += 0.125
            assert watch.poll(10) == view.entry("IBM")
            assert shown(view) == {"IBM": f"{number + 1}"}
        stats = view.stats
        assert (stats.added, stats.replaced, stats.scheduled) == (5, 4, 0)
    with queue.view() as later:
        assert shown(later) == {"IBM": "5"}
        assert (later.stats.added, later.stats.replaced, later.stats.scheduled) == (5, 4, 0)


def test_s116_a_newer_value_or_delete_drops_what_is_scheduled_before_it(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", not_before=clock.now + 2)
    producer.put("SAP", "1", not_before=clock.now + 2)
    producer.put("MSFT", "1", not_before=clock.now + 3)
    producer.put("MSFT", "2", not_before=clock.now + 2)
    with queue.view() as view, view.watch() as watch:
        assert view.stats.scheduled == 4
        producer.put("IBM", "2")
        producer.delete("SAP")
        view.barrier()
        assert (shown(view), view.stats.scheduled) == ({"IBM": "2"}, 2)
        assert events(watch) == ["IBM=2", "SAP deleted"]
        clock.now += 2
        assert shown(view) == {"IBM": "2", "MSFT": "2"}
        clock.now += 10
        assert shown(view) == {"IBM": "2", "MSFT": "2"}
        assert events(watch) == ["MSFT=2"]
        assert view.stats.scheduled == 0


def test_a_key_that_is_looked_up_is_right_however_much_is_due_at_once(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count, at = 10_000, b"%d" % round(1000 * (clock.now + 5))
    for number in range(count):
        cluster.write("prices", b"%d" % number, b"1", [("lvq-not-before", at)])
    cluster.write("prices", b"7", b"2", [("lvq-not-before", at)])
    with queue.view() as view:
        monkeypatch.setattr("lvq_kafka.reading.follower_state.FollowerState.pass_time_in_steps", lambda self: None)
        assert len(view) == 0
        clock.now += 5
        assert view["7"] == "2"
        assert view["0"] == "1"
        assert view.stats.scheduled > 0, "the rest may wait"
        assert view[f"{count - 1}"] == "1"
        assert (len(view), view.stats.scheduled) == (count, 0)


def test_a_watch_has_all_that_is_due_at_once_in_its_dump_and_before_it_runs_dry(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count, at = 3000, b"%d" % round(1000 * (clock.now + 5))
    for number in range(count):
        cluster.write("prices", b"%d" % number, b"1", [("lvq-not-before", at)])
    with queue.view() as view, view.watch(keys=["0"]) as first, view.watch(keys=[f"{count - 1}"]) as last:
        monkeypatch.setattr("lvq_kafka.reading.follower_state.FollowerState.pass_time_in_steps", lambda self: None)
        clock.now += 5
        assert events(first) == ["0=1"], "whichever is due in the first step"
        assert events(last) == [f"{count - 1}=1"]
    with queue.view() as view:
        for number in range(count):
            cluster.write("prices", b"%d" % number, b"2", [("lvq-not-before", b"%d" % round(1000 * (clock.now + 5)))])
        view.barrier()
        clock.now += 5
        with view.watch(dump=True) as dumping:
            seen = events(dumping)
            assert seen.index("end") == count
            assert set(seen) == {"end", *(f"{number}=2" for number in range(count))}


def test_on_a_quiet_topic_the_reader_wakes_for_what_is_due(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", not_before=clock.now + 5)
    with queue.view(metadata_interval=600) as view, view.watch(every=0.01) as watch:
        seen: list[object] = []
        view.on_change(seen.append)
        clock.now += 5
        eventually(lambda: len(seen) == 1)
        event = watch.poll(10)
        assert isinstance(event, Entry)
        assert (event.value, event.timestamp) == ("1", 1_000_000.0)


def test_a_clock_that_is_set_back_takes_nothing_back(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    with queue.view() as view:
        clock.now += 5
        assert shown(view) == {"IBM": "2"}
        clock.now -= 5
        assert shown(view) == {"IBM": "2"}


def test_with_a_slow_clock_the_time_is_that_of_the_log(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], caplog: pytest.LogCaptureFixture
) -> None:
    at = round(1000 * clock.now)
    cluster.write("prices", b"IBM", b"1", [("lvq-not-before", b"%d" % (at + 30_000))], timestamp=at)
    cluster.write("prices", b"MSFT", b"2", [("lvq-not-before", b"%d" % (at + 32_000))], timestamp=at)
    cluster.write("prices", b"SAP", b"3", timestamp=at + 31_000)
    with queue.view() as view, caplog.at_level(logging.WARNING):
        assert shown(view) == {"IBM": "1", "SAP": "3"}
        assert view.status.clock_behind == 31
        eventually(lambda: any("31 s ahead of this machine's clock" in message for message in caplog.messages))


def test_a_time_that_cannot_be_read_counts_as_none_and_one_too_far_ahead_as_the_longest_delay(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write("prices", b"IBM", b"1", [("lvq-not-before", b"soon")])
    cluster.write("prices", b"SAP", b"2", [("lvq-not-before", b"-1")])
    cluster.write("prices", b"MSFT", b"3", [("lvq-not-before", b"9" * 15)])
    with queue.view() as view, caplog.at_level(logging.WARNING):
        assert shown(view) == {"IBM": "1", "SAP": "2"}
        assert (view.stats.malformed, view.stats.scheduled) == (2, 1)
        clock.now += LONGEST
        assert shown(view) == {"IBM": "1", "MSFT": "3", "SAP": "2"}
        eventually(lambda: any("b'soon'" in message for message in caplog.messages))
    assert len([message for message in caplog.messages if "lvq-not-before" in message]) == 1


def test_without_the_option_the_header_is_an_ordinary_one(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster, max_delay=None)
    cluster.write("prices", b"IBM", b"1", [("lvq-not-before", b"9" * 13)])
    with queue.view() as view:
        assert shown(view) == {"IBM": "1"}
        assert view.status.clock_behind == 0


def test_r10_a_ttl_runs_from_the_append_also_while_the_message_is_scheduled(
    clock: Clock, cluster: MemoryCluster
) -> None:
    queue = declare(cluster, ttl=Ttl())
    with queue.producer() as producer, queue.view() as view, view.watch() as watch:
        producer.put("IBM", "1")
        producer.put("IBM", "2", not_before=clock.now + 5, ttl=8)
        producer.put("SAP", "1")
        producer.put("SAP", "2", not_before=clock.now + 5, ttl=3)
        view.barrier()
        assert shown(view) == {"IBM": "1", "SAP": "1"}
        assert events(watch) == ["IBM=1", "SAP=1"]
        clock.now += 4
        assert shown(view) == {"IBM": "1", "SAP": "1"}
        clock.now += 1
        assert shown(view) == {"IBM": "2"}, "SAP is due after its time: its key is gone (R8)"
        assert events(watch) == ["IBM=2", "SAP expired"]
        clock.now += 3.001
        assert shown(view) == {}
        assert events(watch) == ["IBM expired"]


def test_r14_a_scheduled_value_in_another_partition_contends_when_it_is_due(
    clock: Clock, cluster: MemoryCluster
) -> None:
    queue = declare(cluster, spec=TopicSpec(partitions=2))
    home, due = home_partition(b"IBM", 2), b"%d" % round(1000 * (clock.now + 5))
    cluster.write("prices", b"IBM", b"away", partition=1 - home)
    cluster.write("prices", b"IBM", b"home", [("lvq-not-before", due)], partition=home)
    cluster.write("prices", b"SAP", b"home", partition=home_partition(b"SAP", 2))
    cluster.write("prices", b"SAP", b"away", [("lvq-not-before", due)], partition=1 - home_partition(b"SAP", 2))
    with queue.view() as view:
        assert shown(view) == {"IBM": "away", "SAP": "home"}
        clock.now += 5
        assert shown(view) == {"IBM": "home", "SAP": "home"}
        cluster.write("prices", b"IBM", b"away", partition=1 - home)
        view.barrier()
        assert shown(view) == {"IBM": "home", "SAP": "home"}


def test_r14_a_delete_is_remembered_for_longer_by_the_longest_delay(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster, max_delay=1000.0, spec=TopicSpec(partitions=2, delete_retention=60.0))
    home, due = home_partition(b"IBM", 2), b"%d" % round(1000 * (clock.now + 900))
    cluster.write("prices", b"IBM", b"away", [("lvq-not-before", due)], partition=1 - home)
    cluster.write("prices", b"IBM", None, partition=home)
    with queue.view() as view:
        clock.now += 500
        for number in range(1100):  # more than are kept before the old ones are looked for
            cluster.write("prices", b"%d" % number, None)
        view.barrier()
        clock.now += 400
        assert shown(view) == {}
        assert view.stats.scheduled == 0


def test_partitions_that_are_added_do_not_lose_what_is_scheduled(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster)
    with queue.producer() as producer:
        for key in ("IBM", "MSFT", "SAP"):
            producer.put(key, "1")
            producer.put(key, "2", not_before=clock.now + 5)
    with queue.view(metadata_interval=0.02) as view:
        cluster.topics.add_partitions("prices", 3)
        eventually(lambda: len(view.snapshot().offsets) == 3)
        assert shown(view) == dict.fromkeys(("IBM", "MSFT", "SAP"), "1")
        clock.now += 5
        assert shown(view) == dict.fromkeys(("IBM", "MSFT", "SAP"), "2")


def test_reading_from_the_start_again_doubles_nothing_and_reports_what_was_due_meanwhile(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    producer.put("SAP", "3", not_before=clock.now + 50)
    with queue.view() as view, view.watch() as watch:
        begun = view._shared.catch_up.replay
        view._shared.rewind({0: 0})
        eventually(lambda: view._shared.catch_up.replay is not begun and view.state == "caught-up")
        assert view._shared.catch_up.values is not begun.values
        assert (shown(view), view.stats.scheduled) == ({"IBM": "1"}, 2)
        assert events(watch) == []
        clock.now += 5
        assert events(watch) == ["IBM=2"]
        assert view.stats.scheduled == 1


def test_a_watch_with_a_dump_takes_it_as_of_its_end(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    producer.put("SAP", "3", not_before=clock.now + 8)
    with queue.view() as view, view.watch(dump=True, previous=True) as watch:
        clock.now += 5
        first, end = watch.poll(10), watch.poll(10)
        assert isinstance(first, Entry)
        assert (first.value, first.previous) == ("2", None)
        assert isinstance(end, EndOfDump)
        assert (end.as_of, end.offsets) == (clock.now, {0: 3})
        producer.put("IBM", "4", not_before=clock.now + 1)
        view.barrier()
        assert events(watch) == []
        clock.now += 3
        given = {event.key: event for event in watch.drain() if isinstance(event, Entry)}
        assert {key: event.value for key, event in given.items()} == {"IBM": "4", "SAP": "3"}
        assert given["IBM"].previous is not None
        assert (given["IBM"].previous.value, given["SAP"].previous) == ("2", None)


def test_a_snapshot_stays_as_of_its_time(clock: Clock, queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    with queue.view() as view:
        clock.now += 4
        snapshot = view.snapshot()
        assert (snapshot.as_of, snapshot.offsets) == (clock.now, {0: 2})
        clock.now += 10
        assert shown(view) == {"IBM": "2"}
        assert dict(snapshot) == {"IBM": "1"}


# ---------------------------------------------------------------- selection


def test_s115_a_scheduled_value_that_is_not_selected_takes_effect_when_it_is_due(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", headers={"side": "buy"})
    producer.put("IBM", "2", headers={"side": "sell"}, not_before=clock.now + 5)
    producer.put("SAP", "1", headers={"side": "sell"})
    producer.put("SAP", "2", headers={"side": "buy"}, not_before=clock.now + 5)
    with (
        queue.view(headers={"side": "buy"}) as view,
        view.watch() as watch,
        queue.view(prefix="S", where=lambda entry: entry.value != "1") as other,
        queue.browser(headers={"side": "buy"}) as browser,
    ):
        assert (shown(view), shown(other)) == ({"IBM": "1"}, {})
        assert events(browser) == ["IBM=1", "end"]
        clock.now += 5
        assert (shown(view), shown(other)) == ({"SAP": "2"}, {"SAP": "2"})
        assert sorted(events(watch)) == ["IBM left", "SAP=2"]
        assert sorted(events(browser)) == ["IBM left", "SAP=2"]


def test_a_stray_that_becomes_due_has_the_topic_read_again(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster, spec=TopicSpec(partitions=2))
    home, due = home_partition(b"IBM", 2), b"%d" % round(1000 * (clock.now + 5))
    cluster.write("prices", b"IBM", b"1", [("side", b"sell")], partition=home)
    cluster.write("prices", b"IBM", b"2", [("side", b"buy"), ("lvq-not-before", due)], partition=1 - home)
    with queue.view(headers={"side": "buy"}) as view:
        assert (shown(view), view.stats.scheduled) == ({}, 1)
        begun = view._shared.catch_up.replay
        clock.now += 5
        eventually(lambda: view._shared.catch_up.replay is not begun and view.state == "caught-up")
        assert shown(view) == {}, "the home partition decides, and its value is not selected"
        cluster.write("prices", b"IBM", None, partition=home)
        view.barrier()
        assert shown(view) == {}


def test_a_scheduled_value_that_cannot_be_decoded_hides_the_one_before_when_it_is_due(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    cluster.write("prices", b"IBM", b"1")
    due = b"%d" % round(1000 * (clock.now + 5))
    cluster.write("prices", b"IBM", b"\xff", [("lvq-not-before", due)])
    with queue.view(undecodable="skip") as view:
        assert shown(view) == {"IBM": "1"}
        clock.now += 5
        assert shown(view) == {}


# ---------------------------------------------------------------- browsers


def test_s115_s117_an_open_browser_is_told_of_what_becomes_due(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    producer.put("SAP", "3", not_before=clock.now + 20)
    with queue.browser() as browser:
        assert events(browser) == ["IBM=1", "end"]
        clock.now += 5
        assert events(browser) == ["IBM=2"]
        clock.now += 15
        event = browser.poll(10)
        assert isinstance(event, Entry)
        assert event.value == "3"
        assert events(browser) == []


@pytest.mark.parametrize("options", [{"dump": False}, {"replay_period": 0}, {"replay_period": 2}])
def test_r15_a_message_that_becomes_due_while_a_browser_is_open_is_an_update_however_old(
    clock: Clock, cluster: MemoryCluster, options: dict[str, Any]
) -> None:
    queue = declare(cluster)
    with queue.producer() as producer:
        producer.put("IBM", "old")
        producer.put("MSFT", "old")
        producer.put("IBM", "2", not_before=clock.now + 20)
        producer.put("SAP", "due already", not_before=clock.now + 5)
        clock.now += 10
        producer.put("new", "1")
        clock.now += 1
        with queue.browser(**options) as browser:
            assert events(browser) == (["new=1", "end"] if options.get("replay_period") else ["end"])
            producer.put("MSFT", "update")
            assert events(browser) == ["MSFT=update"]
            clock.now += 9
            assert events(browser) == ["IBM=2"]


def test_r15_a_browser_counts_the_time_of_its_opening(
    clock: Clock, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = declare(cluster)
    with queue.producer() as producer:
        producer.put("IBM", "1", not_before=clock.now + 20)
        producer.put("SAP", "1", not_before=clock.now + 21)
    clock.now += 10
    with closing(queue.browser(replay_period=2).start()) as browser:
        eventually(lambda: browser.state == "caught-up")
        monkeypatch.setattr("lvq_kafka.reading.follower_state.FollowerState.pass_time_in_steps", lambda self: None)
        clock.now += 10
        browser.open()
        assert events(browser) == ["end"]
        clock.now += 1
        assert events(browser) == ["SAP=1"]


def test_a_browser_hides_what_was_consumed_and_shows_what_becomes_due(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("SAP", "1")
    producer.put("IBM", "1", not_before=clock.now + 5)
    with queue.browser(refresh=60) as browser:
        assert events(browser) == ["SAP=1", "end"]
        with queue.consumer() as consumer:
            delivery = consumer.acquire(10)
            assert delivery is not None
            assert delivery.key == "SAP"
            delivery.ack(wait=True)
        assert browser.drain() == [Deleted("SAP", consumed=True)]
        clock.now += 5
        assert events(browser) == ["IBM=1"]
    with queue.browser(refresh=60) as later:
        assert events(later) == ["IBM=1", "end"]


# ---------------------------------------------------------------- resuming


def test_a_resumed_watch_reports_what_was_due_since_and_nothing_else(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 2)
    producer.put("MSFT", "3", not_before=clock.now + 5)
    producer.put("SAP", "4", not_before=clock.now + 50)
    producer.put("NEW", "5")
    with queue.view() as view:
        clock.now += 3
        point = view.snapshot()
        assert dict(point) == {"IBM": "2", "NEW": "5"}
    clock.now += 1
    producer.put("NEW", "6", not_before=clock.now + 2)
    producer.put("IBM", "7", not_before=clock.now + 2.5)
    clock.now += 2
    with queue.view() as view, view.watch(since=point) as watch:
        assert events(watch) == ["MSFT=3", "NEW=6", "end"]
        clock.now += 0.5
        assert events(watch) == ["IBM=7"]
        clock.now += 60
        assert events(watch) == ["SAP=4"]
    with queue.view() as view, view.watch(since=EndOfDump(point.offsets, (), point.as_of, point.topic_id)) as watch:
        assert events(watch) == ["MSFT=3", "SAP=4", "NEW=6", "IBM=7", "end"]


def test_a_watch_cannot_resume_from_offsets_alone_or_from_the_future(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", not_before=clock.now + 5)
    with queue.view() as view:
        end = EndOfDump({0: 1}, (), clock.now)
        with pytest.raises(ConfigError, match="offsets alone do not say"):
            view.watch(since={0: 1})
        with pytest.raises(ConfigError, match="clocks"):
            view.watch(since=EndOfDump({0: 1}, (), clock.now + 3601))
        for wrong in (float("nan"), float("inf"), 1e308, -1.0, "noon", None):
            with pytest.raises(ConfigError, match="has no time in seconds since the epoch"):
                view.watch(since=EndOfDump({0: 1}, (), wrong))  # type: ignore[arg-type]
        with view.watch(since=end) as watch:
            assert events(watch) == ["end"]


def test_a_watch_that_is_refused_leaves_the_time_of_its_view_alone(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 50)
    with queue.view() as view:
        with pytest.raises(ConfigError):
            view.watch(since=EndOfDump({0: 99}, (), clock.now + 60))
        assert shown(view) == {"IBM": "1"}
        assert view.snapshot().as_of == clock.now


def test_a_watch_resumes_where_a_reader_with_a_faster_clock_was(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    """The time does not go back for it: a value that counted still does."""
    producer.put("IBM", "1")
    producer.put("IBM", "2", not_before=clock.now + 5)
    with queue.view() as view:
        assert shown(view) == {"IBM": "1"}
        with view.watch(since=EndOfDump({0: 2}, (), clock.now + 6)) as watch:
            assert events(watch) == ["end"]
            assert shown(view) == {"IBM": "2"}


def test_a_resumed_watch_refuses_where_ttls_hide_what_happened(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster, ttl=Ttl())
    with queue.view() as view, pytest.raises(ConfigError, match="expire"):
        view.watch(since=view.snapshot())
