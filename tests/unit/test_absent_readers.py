"""R18 for readers that stay open: after an absence longer than the log keeps deletes, one starts over or refuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from lvq_kafka import TEXT, Browser, Deleted, Entry, LastValueQueue, View
from lvq_kafka.errors import BrokerUnavailable, DataLoss, ReaderFailed, Unauthorized
from lvq_kafka.reading.entries import Event
from lvq_kafka.testing import MemoryCluster
from tests.unit.polling import before_polls
from tests.waiting import eventually

DAY = 86_400.0


class Prices(MemoryCluster):
    """A cluster with the topic ``prices`` of one partition, which keeps deletes for a day."""

    def __init__(self) -> None:
        super().__init__()
        self.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        self.readers = 0
        before_polls(self, self._polled)

    def _polled(self, reader: int, poll: int) -> None:
        self.readers = reader

    @property
    def queue(self) -> LastValueQueue[str]:
        return LastValueQueue("prices", key_header="ticker", cluster=self, value=TEXT)

    def put(self, **values: str | None) -> None:
        for key, value in values.items():
            self.write("prices", key.encode(), None if value is None else value.encode())

    def forget_deletes(self) -> None:
        self.compact("prices", drop_tombstones=True)


class Hours:
    """A reader's clock, with hours that tests add."""

    def __init__(self, reader: View[str] | Browser[str]) -> None:
        self._shared = reader._follower.shared
        self._passed = 0.0
        uptime = self._shared.clock
        self._shared.clock = lambda: uptime() + self._passed

    def pass_by(self, seconds: float) -> None:
        self._passed += seconds


@pytest.fixture
def cluster() -> Prices:
    return Prices()


def absent(cluster: Prices, hours: Hours, seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Cut the reader off for this long."""
    cluster.disconnect()
    meanwhile()
    hours.pass_by(seconds)
    cluster.reconnect()


def delete_a(cluster: Prices) -> None:
    cluster.put(a=None, b="2")
    cluster.forget_deletes()
    assert b"a" not in {record.key for record in cluster.records("prices")}


def keep_deletes(cluster: Prices, seconds: float) -> None:
    """Set the retention of deletes, as another program that is not cut off."""
    cluster._state.topics["prices"].config["delete.retention.ms"] = str(round(1000 * seconds))


def test_s160_a_view_that_was_away_for_longer_than_deletes_are_kept_loses_the_keys_that_were_deleted(
    cluster: Prices,
) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        absent(cluster, Hours(view), 2 * DAY, lambda: delete_a(cluster))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"} and view.state == "caught-up")
        events = watch.drain()
        assert events[0] == Deleted("a")
        assert [event.value for event in events if isinstance(event, Entry)] == ["2"]
        assert cluster.readers == 2


def test_r18_a_browser_that_was_away_for_longer_than_deletes_are_kept_tells_of_them(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.browser(metadata_interval=0.02) as browser:
        browser.drain()
        absent(cluster, Hours(browser), 2 * DAY, lambda: delete_a(cluster))
        seen: list[Event[str]] = []
        eventually(lambda: seen.extend(browser.drain()) or len(seen) >= 2)
        assert Deleted("a") in seen
        assert [(event.key, event.value) for event in seen if isinstance(event, Entry)] == [("b", "2")]


def test_r18_the_values_of_a_view_stay_until_it_has_read_all_again_and_meanwhile_it_is_not_caught_up(
    cluster: Prices,
) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        refused = BrokerUnavailable("The leader is away.", code="LEADER_NOT_AVAILABLE", retriable=True)
        cluster.fail_next("logs.start_offsets", refused, times=100_000)
        absent(cluster, Hours(view), 2 * DAY, lambda: delete_a(cluster))
        eventually(lambda: "leader is away" in str(view._follower.shared.catch_up.trouble))
        assert (dict(view), view.state) == ({"a": "1", "b": "1"}, "disconnected")
        cluster._state._failures.clear()
        eventually(lambda: dict(view.snapshot()) == {"b": "2"})


def test_r18_a_quiet_topic_is_not_read_again_however_long_the_absence(cluster: Prices) -> None:
    cluster.put(a="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        absent(cluster, Hours(view), 30 * DAY)
        eventually(lambda: view.state == "caught-up" and view.silence < 0.1)
        cluster.put(a="2")
        view.barrier()
        assert (cluster.readers, view["a"]) == (1, "2")


def test_r18_an_absence_that_is_shorter_costs_nothing(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        absent(cluster, Hours(view), DAY / 2, lambda: (cluster.put(a=None, b="2"), cluster.compact("prices")))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"})
        assert cluster.readers == 1


def test_r18_a_log_without_holes_has_lost_no_delete_however_late_it_is_read(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        absent(cluster, Hours(view), 2 * DAY, lambda: cluster.put(a=None, b="2"))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"})
        assert cluster.readers == 1


def test_r18_a_view_that_has_just_woken_up_does_not_call_itself_caught_up(cluster: Prices) -> None:
    cluster.put(a="1")
    with cluster.queue.view(metadata_interval=3600) as view:
        assert view.state == "caught-up"
        Hours(view).pass_by(2 * DAY)
        assert view.state == "catching-up"
        view._follower._metadata.refresh_now()
        eventually(lambda: view.state == "caught-up")
        assert cluster.readers == 1, "nothing was written meanwhile"


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the machine's clock has to count it")
@pytest.mark.parametrize("kind", ["view", "browser"])
def test_r18_the_time_in_which_a_machine_sleeps_counts(cluster: Prices, kind: str) -> None:
    """Linux has a separate clock for that."""
    with getattr(cluster.queue, kind)() as reader:
        clock = reader._follower.shared.clock
        assert isinstance(clock, partial)
        assert (clock.func, clock.args) == (time.clock_gettime, (time.CLOCK_BOOTTIME,))


def test_r18_the_retention_of_deletes_is_the_current_setting_of_the_topic(
    cluster: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.reading.metadata_thread._SETTINGS", 0.0)
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        cluster.topics.alter_config("prices", {"delete.retention.ms": "60000"})
        absence = view._follower.shared.catch_up.replay.absence
        eventually(lambda: absence.trusted == 54.0)
        absent(cluster, Hours(view), 100, lambda: delete_a(cluster))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"})


def test_r18_the_retention_of_deletes_may_change_while_a_view_is_away(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue.view(metadata_interval=0.02) as view, view.watch() as watch:
        absent(cluster, Hours(view), 100, lambda: (keep_deletes(cluster, 60), delete_a(cluster)))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"} and view.state == "caught-up")
        assert watch.drain()[0] == Deleted("a")


def test_r18_records_after_an_absence_wait_for_the_settings(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    refused = BrokerUnavailable("No broker tells the settings.", code="_TIMED_OUT", retriable=True)
    with cluster.queue.view(metadata_interval=0.02) as view:
        cluster.fail_next("topics.config", refused, times=1_000_000)
        absent(cluster, Hours(view), 100, lambda: (keep_deletes(cluster, 60), delete_a(cluster)))
        eventually(lambda: "tells the settings" in str(view._follower.shared.catch_up.trouble))
        assert dict(view) == {"a": "1", "b": "1"}
        cluster._state._failures.clear()
        eventually(lambda: dict(view.snapshot()) == {"b": "2"} and view.state == "caught-up")


def test_r18_a_reader_that_may_not_read_the_settings_goes_by_the_default_of_kafka(cluster: Prices) -> None:
    cluster.put(a="1", b="1")
    cluster.fail_next("topics.config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"), times=1000)
    with cluster.queue.view(metadata_interval=0.02) as view:
        absent(cluster, Hours(view), 2 * DAY, lambda: delete_a(cluster))
        eventually(lambda: dict(view.snapshot()) == {"b": "2"})


def slow(cluster: Prices, view: View[str], reads: int) -> None:
    """Make the first reads of the topic take two days each, while a key is deleted and cleaned away."""
    hours = Hours(view)

    def hook(reader: int, poll: int) -> None:
        if reader <= reads and poll == 2:
            cluster.put(**{f"k{reader}": None, "last": str(reader)})
            cluster.forget_deletes()
            hours.pass_by(2 * DAY)

    before_polls(cluster, hook)


def test_r18_a_first_read_that_takes_longer_than_deletes_are_kept_begins_again(cluster: Prices) -> None:
    cluster._state.fetch_limit = 2
    cluster.put(k1="1", k2="1", k3="1", last="1")
    view = cluster.queue.view()
    slow(cluster, view, 1)
    with view:
        assert dict(view) == {"k2": "1", "k3": "1", "last": "1"}
        assert cluster.readers == 2


def test_r18_a_topic_that_cannot_be_read_in_time_is_refused_with_the_remedy(cluster: Prices) -> None:
    cluster._state.fetch_limit = 2
    cluster.put(k1="1", k2="1", k3="1", k4="1", last="1")
    view = cluster.queue.view()
    slow(cluster, view, 10)
    with pytest.raises(DataLoss, match=r"was read 3 times.*partition 0.*Raise delete\.retention\.ms"):
        view.open()
    assert cluster.readers == 3


def test_r18_a_view_that_cannot_be_read_in_time_any_more_fails_and_says_why(cluster: Prices) -> None:
    cluster._state.fetch_limit = 2
    cluster.put(k2="1", k3="1", k4="1", k5="1", last="1")
    with cluster.queue.view(metadata_interval=0.02) as view:
        slow(cluster, view, 10)
        absent(cluster, Hours(view), 2 * DAY, lambda: delete_a(cluster))
        eventually(lambda: view.state == "failed")
        with pytest.raises(ReaderFailed, match=r"delete\.retention\.ms"):
            len(view)
