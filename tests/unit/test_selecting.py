"""Selection: what a view holds, and the events of watches and browsers that select."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

import pytest

from lvq_kafka import JSON, TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Position, TopicSpec, View
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import ConfigError, DataLoss, DecodeError, PredicateFailed
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
    return LastValueQueue.declare("prices", key_header="ticker", value=JSON, cluster=memory_cluster)


def write(queue: LastValueQueue[Any], *changes: tuple[str, Any], **headers: str) -> None:
    """Put these values; None deletes the key."""
    with queue.producer() as producer:
        for key, value in changes:
            producer.delete(key) if value is None else producer.put(key, value, headers)


def shown(events: Iterable[Any]) -> list[str]:
    """Shorten events: ``key=value``, ``-key`` for a delete, ``-key left`` for a key that left, ``|`` for EndOfDump."""
    forms: dict[type, Callable[[Any], str]] = {
        Entry: lambda e: f"{e.key}={e.value}",
        Deleted: lambda e: f"-{e.key}{' left' if e.left else ''}",
        EndOfDump: lambda _: "|",
    }
    return [forms[type(event)](event) for event in events]


def dear(entry: Entry[Any]) -> bool:
    return bool(entry.value > 100)


class TestViews:
    @pytest.mark.parametrize(
        ("selection", "held"),
        [
            ({"keys": ["a.1", "nobody"]}, {"a.1": 1}),
            ({"keys": []}, {}),
            ({"prefix": "a."}, {"a.1": 1, "a.2": 200}),
            ({"prefix": ["a.", b"b"]}, {"a.1": 1, "a.2": 200, "b.1": 300}),
            ({"prefix": ""}, {"a.1": 1, "a.2": 200, "b.1": 300}),
            ({"prefix": "a.", "keys": ["a.2", "b.1"]}, {"a.2": 200}),
            ({"headers": {"side": "buy"}}, {"a.1": 1, "b.1": 300}),
            ({"headers": {"side": None}, "prefix": "a"}, {"a.1": 1, "a.2": 200}),
            ({"selector": "side = 'buy'"}, {"a.1": 1, "b.1": 300}),
            ({"selector": "side = 'buy' AND lvq_key LIKE 'a%'"}, {"a.1": 1}),
            ({"selector": "side = 'buy' OR ticker = 'a.2'", "where": dear}, {"a.2": 200, "b.1": 300}),
            ({"selector": "JMSMessageID = 'prices/0/2'"}, {"a.2": 200}),
            ({"selector": None}, None),
            ({"where": dear}, {"a.2": 200, "b.1": 300}),
            ({"where": dear, "headers": {"side": "buy"}}, {"b.1": 300}),
            ({"where": lambda entry: entry.key == "a.1", "partitions": [0]}, {"a.1": 1}),
            ({"keys": None, "prefix": None, "headers": None, "where": None, "partitions": None}, None),
        ],
    )
    def test_a_view_holds_what_it_selects(
        self, queue: LastValueQueue[Any], selection: Any, held: dict[str, int] | None
    ) -> None:
        write(queue, ("a.1", 1), ("b.1", 300), side="buy")
        write(queue, ("a.2", 200), side="sell")
        with queue.view(**selection) as view:
            assert dict(view) == ({"a.1": 1, "a.2": 200, "b.1": 300} if held is None else held)
            assert [entry.key for entry in view.entries()] == list(view)
            assert len(view.snapshot()) == len(view)
            assert view.stats.added == len(view), "others are not even counted"

    def test_a_selector_decides_by_the_newest_value(self, queue: LastValueQueue[Any]) -> None:
        write(queue, ("a", 1), ("b", 2), side="buy")
        with queue.view(selector="side = 'buy'") as view, view.watch() as watch:
            write(queue, ("a", 3), side="sell")
            write(queue, ("c", 4), side="buy")
            view.barrier(30)
            assert dict(view) == {"b": 2, "c": 4}
            assert sorted(shown(watch.drain())) == ["-a left", "c=4"]
        with queue.browser(selector="side = 'buy'") as browser:
            assert shown(browser.drain(30)) == ["b=2", "c=4", "|"]
            write(queue, ("b", 5), side="sell")
            write(queue, ("a", 6), side="sell")
            assert shown(browser.drain(30)) == ["-b left"]
            write(queue, ("a", 7), side="buy")
            write(queue, ("b", None))
            assert shown(browser.drain(30)) == ["a=7"]

    @pytest.mark.parametrize(("selector", "said"), [("side =", "at column 7"), ("", "empty"), (5, "not text")])
    def test_a_selector_that_is_none_is_refused_by_every_reader(
        self, queue: LastValueQueue[Any], selector: Any, said: str
    ) -> None:
        with queue.view() as view:
            for reader in (queue.view, queue.browser, view.watch):
                with pytest.raises(ConfigError, match=said) as caught:
                    reader(selector=selector)
                assert caught.value.options == ("selector",)

    def test_r7_a_value_that_is_not_selected_takes_its_key_away_and_none_before_it_comes_back(
        self, queue: LastValueQueue[Any]
    ) -> None:
        write(queue, ("a", 200), ("b", 200), ("c", 1))
        with queue.view(where=dear) as view:
            watch = view.watch()
            write(queue, ("a", 2), ("c", 2), ("b", None), ("d", None))
            view.barrier()
            assert dict(view) == {}
            assert sorted(shown(watch.drain())) == ["-a left", "-b"], "c and d were never held"
            write(queue, ("a", 3), ("a", None), ("c", 300))
            view.barrier()
            assert shown(watch.drain()) == ["c=300"]
            write(queue, ("c", 301), ("c", 4))
            view.barrier()
            assert shown(watch.drain()) == ["-c left"]
            write(queue, ("c", 5), ("c", 302))
            view.barrier()
            assert shown(watch.drain()) == ["c=302"]
            assert dict(view) == {"c": 302}

    def test_a_key_that_left_and_was_deleted_then_is_deleted(self, queue: LastValueQueue[Any]) -> None:
        write(queue, ("a", 200))
        with queue.view(where=dear) as view:
            watch = view.watch(dump=True)
            write(queue, ("a", 2))
            view.barrier()
            write(queue, ("a", 300))
            view.barrier()
            write(queue, ("a", None))
            view.barrier()
            assert shown(watch.drain()) == ["|"]
            write(queue, ("a", 300))
            view.barrier()
            assert shown(watch.drain()) == ["a=300"]

    def test_partitions_that_are_not_selected_are_not_read(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare(
            "q", key_header="k", value=JSON, cluster=memory_cluster, spec=TopicSpec(partitions=3)
        )
        keys = [str(number) for number in range(20)]
        write(queue, *((key, 1) for key in keys))
        here = [key for key in keys if home_partition(key.encode(), 3) == 1]
        elsewhere = next(key for key in keys if home_partition(key.encode(), 3) == 0)
        with queue.view(partitions={1}) as view, queue.browser(partitions=[1]) as browser:
            assert sorted(view) == sorted(here)
            assert view.snapshot().offsets == {1: len(here)}
            assert view.lag_by_partition == {1: 0}
            assert len(browser.drain()) == len(here) + 1
            write(queue, *((key, 2) for key in keys))
            assert view.barrier() == {1: 2 * len(here)}
            assert set(view.values()) == {2}
            assert {event.key for event in browser.drain() if isinstance(event, Entry)} == set(here)
            with pytest.raises(ConfigError, match="does not read"):
                view.wait_for(Position("q", home_partition(elsewhere.encode(), 3), 0))
            assert view.stats.added == 2 * len(here)
            assert sum(view.progress) == 2 * view.progress[0]

    def test_a_partition_that_does_not_exist_is_refused_when_the_view_is_opened(
        self, queue: LastValueQueue[Any]
    ) -> None:
        with pytest.raises(ConfigError, match=r"no partition 3: it has 1") as refused:
            queue.view(partitions=[0, 3]).open()
        assert refused.value.options == ("partitions",)

    def test_new_partitions_are_read_only_if_they_are_selected(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare("q", key_header="k", value=JSON, cluster=memory_cluster)
        write(queue, ("a", 1))
        with queue.view(partitions=[0], metadata_interval=0.02) as view:
            memory_cluster.topics.add_partitions("q", 3)
            eventually(lambda: view._shared.catch_up.replay.partitions == 3)
            memory_cluster.write("q", b"z", b"1", partition=2)
            memory_cluster.write("q", b"y", b"1", partition=0)
            view.barrier()
            assert sorted(view) == ["a", "y"]

    def test_a_view_that_selects_starts_over_like_any_other(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any]
    ) -> None:
        write(queue, ("a", 200), ("b", 2))
        with queue.view(where=dear) as view:
            watch = view.watch()
            memory_cluster.fail_next("poll", DataLoss("truncated"))
            write(queue, ("a", 1), ("b", 300))
            eventually(lambda: dict(view) == {"b": 300})
            assert sorted(shown(watch.drain())) in (["-a", "b=300"], ["-a left", "b=300"])

    def test_g7_dropped_records_are_no_holes_that_may_have_been_deletes(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any]
    ) -> None:
        """R18. A fetch after a long absence is judged by what it brought, not by what was selected of it."""
        write(queue, ("a", 1))
        with queue.view(keys=["a"]) as view:
            replay = view._shared.catch_up.replay
            clock = view._shared.clock
            view._shared.clock = lambda: clock() + 1e6
            write(queue, ("b", 1), ("c", 1), ("a", 2))
            eventually(lambda: view["a"] == 2)
            assert view._shared.catch_up.replay is replay


class TestSplitKeys:
    """R14: keys with records in several partitions, of which a view remembers as little as possible."""

    @pytest.fixture
    def queue(self, memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
        memory_cluster.topics.create("q", partitions=2, config={"cleanup.policy": "compact"})
        return LastValueQueue("q", key_header=None, value=JSON, cluster=memory_cluster)

    def test_a_selected_value_elsewhere_does_not_win_against_one_at_home_that_was_forgotten(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        home = home_partition(b"a", 2)
        memory_cluster.write("q", b"a", b"1", partition=home)
        with queue.view(where=dear) as view:
            watch = view.watch()
            memory_cluster.write("q", b"a", b"200", partition=1 - home)
            view.barrier()
            assert dict(view) == {}
            memory_cluster.write("q", b"a", b"300", partition=home)
            view.barrier()
            assert dict(view) == {"a": 300}
            memory_cluster.write("q", b"a", b"3", partition=home)
            view.barrier()
            assert dict(view) == {}
            assert shown(watch.drain()) in (["a=300", "-a left"], ["-a left"])
            assert not [record for record in caplog.records if record.levelno >= logging.WARNING]

    def test_it_is_found_while_the_view_opens(self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any]) -> None:
        for name in (b"a", b"b", b"c", b"d"):
            home = home_partition(name, 2)
            memory_cluster.write("q", name, b"200", partition=1 - home)
            memory_cluster.write("q", name, b"1" if name == b"a" else b"300", partition=home)
        memory_cluster.write("q", b"e", b"400", partition=1 - home_partition(b"e", 2))
        with queue.view(where=dear) as view:
            assert dict(view) == {"b": 300, "c": 300, "d": 300, "e": 400}
            with queue.view() as everything:
                assert dict(view) == {key: value for key, value in everything.items() if value > 100}

    def test_nothing_is_remembered_of_keys_that_are_not_selected(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any]
    ) -> None:
        with queue.view(where=dear) as view:
            for value in (b"200", b"1"):
                for number in range(100):
                    name = b"%d" % number
                    memory_cluster.write("q", name, value, partition=home_partition(name, 2))
            view.barrier()
            assert len(view) == 0
            assert not view._shared.catch_up.values._values.contested  # type: ignore[attr-defined]

    def test_new_partitions_change_homes_so_the_topic_is_read_again(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare("grown", key_header="k", value=JSON, cluster=memory_cluster)
        names = [b"%d" % number for number in range(20)]
        for name in names:
            memory_cluster.write("grown", name, b"200", partition=0)
        with queue.view(where=dear, metadata_interval=0.02) as view:
            memory_cluster.topics.add_partitions("grown", 3)
            for name in names:
                memory_cluster.write("grown", name, b"1", partition=home_partition(name, 3))
            eventually(lambda: view._shared.catch_up.values.table.partitions == 3 and dict(view) == {})

    @pytest.mark.parametrize("selection", [{}, {"where": dear}, {"headers": {"x": None}}], ids=", ".join)
    def test_r14_a_value_that_counts_since_partitions_were_added_is_reported(
        self, memory_cluster: MemoryCluster, selection: dict[str, Any]
    ) -> None:
        queue = LastValueQueue.declare(
            "grown", key_header="k", value=JSON, spec=TopicSpec(partitions=4), cluster=memory_cluster
        )
        name = next(
            name
            for name in map(str, range(100))
            if home_partition(name.encode(), 5) == 0 < home_partition(name.encode(), 4)
        )
        for value, partition in ((b"200", 0), (b"300", home_partition(name.encode(), 4))):
            memory_cluster.write("grown", name.encode(), value, [("x", b"")], partition=partition)
        with queue.view(metadata_interval=0.02, **selection) as view, view.watch(dump=True) as watch:
            assert shown(watch.drain()) == [f"{name}=300", "|"]
            memory_cluster.topics.add_partitions("grown", 5)
            assert shown([watch.poll(timeout=10)]) == [f"{name}=200"]


class TestPredicates:
    def test_r31_an_error_of_the_predicate_selects_nothing_is_counted_and_stops_nothing(
        self, queue: LastValueQueue[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        write(queue, ("a", {"price": 200}), ("b", {}), ("c", {"price": "dear"}))
        with queue.view(where=lambda entry: entry.value["price"] > 100) as view:
            assert list(view) == ["a"]
            assert view.unjudged == 2
            failure = view.selection_failure
            assert isinstance(failure, PredicateFailed)
            assert failure.position == Position("prices", 0, 1)
            assert isinstance(failure.__cause__, KeyError)
            warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
            assert len(warnings) == 1
            assert "prices/0/1" in warnings[0].getMessage()
            write(queue, ("b", {"price": 300}), ("a", {}))
            view.barrier()
            assert list(view) == ["b"]

    def test_r31_so_does_a_value_that_cannot_be_decoded(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[Any]
    ) -> None:
        memory_cluster.write("prices", b"bad", b"{")
        with queue.view(where=lambda _: True) as view:
            assert list(view) == []
            assert view.unjudged == 1
            assert isinstance(view.selection_failure, PredicateFailed)
            assert isinstance(view.selection_failure.__cause__, DecodeError)
        with queue.view(where=lambda entry: entry.value == b"{", undecodable="raw") as view:
            assert view["bad"] == b"{"
        with queue.view(where=lambda _: True, undecodable="skip") as view:
            assert (view.skipped, view.unjudged, len(view)) == (1, 0, 0)

    def test_a_watch_says_that_a_key_left_when_its_value_cannot_be_judged(self, queue: LastValueQueue[Any]) -> None:
        write(queue, ("a", 200))
        with queue.view() as view:
            watch = view.watch(dump=True, where=dear)
            assert shown(watch.drain()) == ["a=200", "|"]
            write(queue, ("a", "dear"))
            view.barrier()
            assert shown(watch.drain()) == ["-a left"]
            assert watch.unjudged == 1
            assert isinstance(watch.selection_failure, PredicateFailed)
            assert view.selection_failure is None

    @pytest.mark.parametrize("kind", ["view", "watch", "browser"])
    def test_a_predicate_is_called_without_a_lock(self, queue: LastValueQueue[Any], kind: str) -> None:
        """Another thread reads meanwhile, and the predicate even waits for it."""
        write(queue, ("a", 1))
        with queue.view() as view:

            def where(entry: Entry[Any]) -> bool:
                done = Event()
                threading.Thread(target=lambda: (len(reader()), done.set()), daemon=True).start()
                assert done.wait(10)
                return True

            if kind == "view":
                selecting = queue.view(where=where)
                reader: Callable[[], Any] = lambda: selecting.split_keys  # noqa: E731
                with selecting:
                    assert dict(selecting) == {"a": 1}
                    assert selecting.unjudged == 0
            elif kind == "watch":
                reader = lambda: view  # noqa: E731
                watch = view.watch(dump=True, where=where)
                assert shown(watch.drain()) == ["a=1", "|"]
            else:
                with queue.browser(where=where) as browser:
                    reader = lambda: browser.split_keys  # noqa: E731
                    assert shown(browser.drain()) == ["a=1", "|"]
                    assert browser.unjudged == 0


class TestWatches:
    @pytest.fixture
    def view(self, queue: LastValueQueue[Any]) -> Iterable[View[Any]]:
        write(queue, ("a.1", 1), ("a.2", 200), ("b.1", 300))
        with queue.view() as view:
            yield view

    def test_keys_alone_select_all_changes_of_these_keys(self, queue: LastValueQueue[Any], view: View[Any]) -> None:
        dumped, updates = view.watch(dump=True, prefix="a."), view.watch(keys=["a.1", "b.1"])
        write(queue, ("a.1", None), ("b.1", 2), ("c", 1), ("a.2", 3))
        view.barrier()
        assert shown(dumped.drain()) == ["a.2=3", "|"]
        assert shown(updates.drain()) == ["-a.1", "b.1=2"]
        assert not updates._subscribe(), "other keys are not even kept pending"

    def test_r24_a_key_enters_changes_and_leaves(self, queue: LastValueQueue[Any], view: View[Any]) -> None:
        watch = view.watch(dump=True, where=dear)
        assert shown(watch.drain()) == ["a.2=200", "b.1=300", "|"]
        write(queue, ("a.1", 2), ("a.2", 201), ("b.1", 3), ("c", 400))
        view.barrier()
        assert shown(watch.drain()) == ["a.2=201", "-b.1 left", "c=400"]
        write(queue, ("b.1", 4), ("c", None), ("a.1", None), ("a.2", 5))
        view.barrier()
        assert shown(watch.drain()) == ["-c", "-a.2 left"]
        write(queue, ("a.2", None), ("b.1", 500))
        view.barrier()
        assert shown(watch.drain()) == ["b.1=500"]

    def test_r24_without_a_dump_only_keys_returned_since_can_leave(
        self, queue: LastValueQueue[Any], view: View[Any]
    ) -> None:
        watch = view.watch(where=dear)
        write(queue, ("a.2", 1), ("a.1", 400))
        view.barrier()
        assert shown(watch.drain()) == ["a.1=400"]
        write(queue, ("a.1", 1))
        view.barrier()
        assert shown(watch.drain()) == ["-a.1 left"]

    def test_a_watch_selects_among_what_the_view_holds(self, queue: LastValueQueue[Any]) -> None:
        with queue.view(headers={"side": "buy"}) as view:
            watch = view.watch(where=dear)
            write(queue, ("a", 200), ("b", 1), side="buy")
            write(queue, ("c", 200), side="sell")
            view.barrier()
            assert shown(watch.drain()) == ["a=200"]
            write(queue, ("a", 300), side="sell")
            view.barrier()
            assert shown(watch.drain()) == ["-a left"]

    def test_partitions_of_a_watch_are_those_of_current_values(self, memory_cluster: MemoryCluster) -> None:
        memory_cluster.topics.create("q", partitions=2, config={"cleanup.policy": "compact"})
        queue = LastValueQueue("q", key_header=None, value=TEXT, cluster=memory_cluster)
        home = home_partition(b"a", 2)
        memory_cluster.write("q", b"a", b"1", partition=1 - home)
        memory_cluster.write("q", b"b", b"1", partition=home)
        with queue.view() as view:
            watch = view.watch(dump=True, partitions=[1 - home])
            assert shown(watch.drain()) == ["a=1", "|"]
            memory_cluster.write("q", b"a", b"2", partition=home)
            view.barrier()
            assert shown(watch.drain()) == ["-a left"]

    def test_callbacks_select_too(self, queue: LastValueQueue[Any], view: View[Any]) -> None:
        seen: list[str] = []
        view.on_change(lambda event: seen.extend(shown([event])), where=dear, prefix="a.")
        write(queue, ("a.1", 2), ("b.1", 900), ("a.2", 400), ("a.1", 500))
        eventually(lambda: seen == ["a.2=400", "a.1=500"])

    def test_async_watches_select_too(self, queue: LastValueQueue[Any], view: View[Any]) -> None:
        async def listen() -> list[str]:
            seen: list[Any] = []
            async for event in view.watch(dump=True, where=dear):
                seen.append(event)
                if isinstance(event, EndOfDump):
                    write(queue, ("b.1", 1), ("z", 999))
                if len(seen) == 5:
                    return shown(seen)
            return []

        assert asyncio.run(asyncio.wait_for(listen(), 10)) == ["a.2=200", "b.1=300", "|", "-b.1 left", "z=999"]

    def test_a_watch_that_is_closed_while_it_judges_ends(self, queue: LastValueQueue[Any], view: View[Any]) -> None:
        def where(entry: Entry[Any]) -> bool:
            watch.close()
            return False

        watch = view.watch(dump=True, where=where)
        assert watch.poll(10) is None
        assert list(watch) == []


class TestBrowsers:
    def test_browsers_select_as_watches_do(self, queue: LastValueQueue[Any]) -> None:
        write(queue, ("a.1", 1), ("a.2", 200), ("b.1", 300))
        with queue.browser(where=dear) as dears, queue.browser(prefix="a.") as prefixed:
            assert shown(dears.drain()) == ["a.2=200", "b.1=300", "|"]
            assert shown(prefixed.drain()) == ["a.1=1", "a.2=200", "|"]
            write(queue, ("b.1", 3), ("a.1", None), ("c", 400))
            assert shown(dears.drain()) == ["-b.1 left", "c=400"]
            assert shown(prefixed.drain()) == ["-a.1"]
            assert prefixed.stats.added == 2, "a browser holds selected keys only"

    def test_a_consumed_message_is_not_judged(self, queue: LastValueQueue[Any]) -> None:
        write(queue, ("a", 200), ("b", 300))
        with queue.browser(where=dear, refresh=3600.0) as browser:
            assert shown(browser.drain()) == ["a=200", "b=300", "|"]
            with queue.consumer() as consumer:
                delivery = consumer.acquire(30)
                assert delivery is not None
                delivery.ack(wait=True, timeout=30)
            assert browser.drain() == [Deleted("a", consumed=True)]
            write(queue, ("a", 1), ("b", 1))
            assert shown(browser.drain()) == ["-b left"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("selection", "named"),
        [
            ({"keys": "IBM"}, "keys"),
            ({"headers": ["side"]}, "headers"),
            ({"where": "price > 1"}, "where"),
            ({"partitions": 0}, "partitions"),
            ({"partitions": []}, "partitions"),
            ({"partitions": [True]}, "partitions"),
            ({"partitions": ["0"]}, "partitions"),
            ({"partitions": [-1]}, "partitions"),
        ],
    )
    def test_a_wrong_option_is_refused_by_its_name(
        self, queue: LastValueQueue[Any], selection: Any, named: str
    ) -> None:
        with queue.view() as view:
            for opened in (queue.view, queue.browser, view.watch, lambda **given: view.on_change(print, **given)):
                with pytest.raises(ConfigError) as refused:
                    opened(**selection)
                assert refused.value.options == (named,)

    def test_a_prefix_that_cannot_be_part_of_a_key_is_refused(self, queue: LastValueQueue[Any]) -> None:
        with pytest.raises(TypeError, match=r"1\.5"):
            queue.view(prefix=1.5)  # type: ignore[arg-type]
