"""Readers of a queue whose messages expire: views, snapshots, watches and browsers (R8, R10)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Producer, Ttl
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.timed_readers import shown
from tests.waiting import eventually


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    return MemoryCluster(clock=clock)


def declare(cluster: MemoryCluster, ttl: Ttl | None = None, **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare("prices", key_header="ticker", ttl=ttl, cluster=cluster, value=TEXT, **options)


@pytest.fixture
def queue(cluster: MemoryCluster) -> LastValueQueue[str]:
    return declare(cluster, Ttl(default=10.0, maximum=60.0))


@pytest.fixture
def producer(queue: LastValueQueue[str]) -> Iterator[Producer[str]]:
    with queue.producer() as producer:
        yield producer


def test_r10_a_value_is_gone_when_its_time_is_over_and_not_before(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    producer.put("MSFT", "2", ttl=30)
    producer.put("SAP", "3", ttl=999)
    with queue.view() as view:
        assert shown(view) == {"IBM": "1", "MSFT": "2", "SAP": "3"}
        clock.now += 10
        assert shown(view) == {"IBM": "1", "MSFT": "2", "SAP": "3"}
        clock.now += 0.001
        assert shown(view) == {"MSFT": "2", "SAP": "3"}
        clock.now += 20
        assert shown(view) == {"SAP": "3"}
        clock.now += 30
        assert shown(view) == {}
        assert view.stats.expired == 3
    with queue.view() as later:
        assert shown(later) == {}


def test_r10_nothing_but_a_look_up_is_needed(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.put("IBM", "1")
    with queue.view() as view:
        monkeypatch.setattr("lvq_kafka.reading.follower_state.FollowerState.pass_time_in_steps", lambda self: None)
        clock.now += 11
        assert "IBM" not in view
        assert view.get("IBM") is None


def test_a_clock_that_is_set_back_revives_nothing(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    with queue.view() as view:
        clock.now += 11
        assert shown(view) == {}
        clock.now -= 11
        assert shown(view) == {}


def test_s096_r8_a_last_value_with_a_ttl_takes_its_key_along(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "hello", ttl=60)
    producer.put("IBM", "how", ttl=60)
    with queue.view() as view:
        producer.put("IBM", "tombstone", ttl=0.5)
        view.barrier()
        assert shown(view) == {"IBM": "tombstone"}
        clock.now += 1.5
        assert shown(view) == {}


def test_s097_an_expired_value_has_no_effect_on_the_next(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", ttl=0.2)
    with queue.view() as view:
        clock.now += 0.3
        assert shown(view) == {}
        producer.put("IBM", "2", ttl=10)
        view.barrier()
        assert shown(view) == {"IBM": "2"}


def test_a_newer_value_has_its_own_time(clock: Clock, queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("IBM", "1", ttl=5)
    with queue.view() as view:
        for value in "2345":
            clock.now += 4
            producer.put("IBM", value, ttl=5)
            view.barrier()
            assert shown(view) == {"IBM": value}


def test_r8_a_value_that_has_expired_at_home_hides_those_elsewhere(clock: Clock, cluster: MemoryCluster) -> None:
    from lvq_kafka import TopicSpec
    from lvq_kafka.core.log.keys import home_partition

    queue = declare(cluster, Ttl(), spec=TopicSpec(partitions=2))
    home = home_partition(b"IBM", 2)
    cluster.write("prices", b"IBM", b"old", partition=1 - home)
    cluster.write("prices", b"IBM", b"new", [("lvq-ttl", b"1000")], partition=home)
    with queue.view() as view:
        assert shown(view) == {"IBM": "new"}
        clock.now += 2
        assert shown(view) == {}
        cluster.write("prices", b"IBM", b"newer", partition=1 - home)
        view.barrier()
        assert shown(view) == {}
        cluster.write("prices", b"IBM", b"newest", partition=home)
        view.barrier()
        assert shown(view) == {"IBM": "newest"}


def test_a_snapshot_says_its_time_and_stays_as_it_is(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    with queue.view() as view:
        clock.now += 3.25
        snapshot = view.snapshot()
        assert snapshot.as_of == clock.now
        clock.now += 60
        assert dict(snapshot) == {"IBM": "1"}
        assert (len(snapshot), "IBM" in snapshot) == (1, True)
        assert dict(view.snapshot()) == {}


def test_a_ttl_that_is_0_or_cannot_be_read_counts_as_none(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write("prices", b"IBM", b"1", [("lvq-ttl", b"soon")])
    cluster.write("prices", b"SAP", b"2", [("lvq-ttl", b"-1")])
    cluster.write("prices", b"BMW", b"3", [("lvq-ttl", b"0")])
    with queue.view() as view, queue.browser() as browser, caplog.at_level(logging.WARNING):
        assert shown(view) == {"IBM": "1", "SAP": "2", "BMW": "3"}
        assert {event.key for event in browser.drain() if isinstance(event, Entry)} == {"IBM", "SAP", "BMW"}
        assert view.stats.malformed == 3
        clock.now += 9
        assert len(shown(view)) == 3
        clock.now += 2
        assert shown(view) == {}
    for warning in (message for message in caplog.messages if "lvq-ttl" in message):
        assert "b'soon', not a positive number of milliseconds" in warning


def test_without_the_option_the_header_is_an_ordinary_one(clock: Clock, cluster: MemoryCluster) -> None:
    queue = declare(cluster)
    cluster.write("prices", b"IBM", b"1", [("lvq-ttl", b"1")])
    with queue.view() as view:
        clock.now += 1000
        assert shown(view) == {"IBM": "1"}
        assert view.entry("IBM").header("lvq-ttl") == "1"
    never = LastValueQueue("prices", key_header="ticker", ttl=Ttl(never=True), cluster=cluster, value=TEXT)
    with never.view() as view:
        assert shown(view) == {"IBM": "1"}


def test_a_slow_clock_is_shown_and_the_time_is_that_of_the_log(
    clock: Clock, cluster: MemoryCluster, queue: LastValueQueue[str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write("prices", b"IBM", b"1", timestamp=round(1000 * (clock.now + 20)))
    cluster.write("prices", b"SAP", b"2", timestamp=round(1000 * (clock.now + 31)))
    with queue.view() as view, caplog.at_level(logging.WARNING):
        assert shown(view) == {"SAP": "2"}
        assert view.status.clock_behind == 31
        eventually(lambda: any("31 s ahead of this machine's clock" in message for message in caplog.messages))
        clock.now += 30
        assert shown(view) == {"SAP": "2"}
        assert view.status.clock_behind == 1


def test_a_watch_says_what_has_expired(clock: Clock, queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("IBM", "1")
    producer.put("SAP", "2", ttl=20)
    with queue.view() as view, view.watch(dump=True) as watch:
        assert [event.key for event in watch.drain() if isinstance(event, Entry)] == ["IBM", "SAP"]
        clock.now += 11
        assert watch.poll(10) == Deleted("IBM", expired=True)
        producer.delete("SAP")
        assert watch.poll(10) == Deleted("SAP")
        clock.now += 20
        producer.put("IBM", "3")
        assert isinstance(event := watch.poll(10), Entry)
        assert event.value == "3"
        assert watch.drain() == []


def test_g3_a_value_that_expires_before_its_turn_is_not_returned(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    with queue.view() as view, view.watch() as watch:
        producer.put("IBM", "1")
        view.barrier()
        clock.now += 11
        assert watch.drain() == [Deleted("IBM", expired=True)]


def test_on_a_quiet_topic_the_reader_wakes_for_what_expires(queue: LastValueQueue[str], clock: Clock) -> None:
    with queue.producer() as producer:
        producer.put("IBM", "1")
    with queue.view() as view, view.watch() as watch:
        events: list[object] = []
        view.on_change(events.append)
        clock.now += 11
        eventually(lambda: events == [Deleted("IBM", expired=True)])
        assert watch.poll(10) == Deleted("IBM", expired=True)


def test_s095_s106_a_browser_reports_expiry_once(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1", ttl=5)
    producer.put("SAP", "2", ttl=20)
    clock.now += 6
    with queue.browser() as browser:
        dump = browser.drain()
        assert [event.key for event in dump if isinstance(event, Entry)] == ["SAP"]
        (end,) = [event for event in dump if isinstance(event, EndOfDump)]
        assert end.as_of == clock.now
        clock.now += 20
        assert browser.poll(10) == Deleted("SAP", expired=True)
        assert browser.drain() == []


def test_a_browser_reports_a_consumed_value_as_consumed_and_not_as_expired(
    clock: Clock, queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    producer.put("IBM", "1")
    with queue.browser(refresh=60) as browser:
        assert len(browser.drain()) == 2
        with queue.consumer() as consumer:
            delivery = consumer.acquire(10)
            assert delivery is not None
            delivery.ack(wait=True)
        assert browser.drain() == [Deleted("IBM", consumed=True)]
        clock.now += 20
        assert browser.drain() == []
