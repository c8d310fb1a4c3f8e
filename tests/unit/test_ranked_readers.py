"""Readers of queues with an order by rank: dumps, snapshots and views (R20)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Message, TopicSpec
from lvq_kafka.core.latest import sorted_keys
from lvq_kafka.testing import MemoryCluster


def declare(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    given = {"key_header": "ticker", "cluster": cluster, "value": TEXT} | options
    return LastValueQueue.declare("prices", **given)


def put(queue: LastValueQueue[str], *messages: tuple[str, Any]) -> None:
    """Put the values "1", "2", ... of keys with these ranks; None for no rank."""
    option = "sort" if queue.definition.order == "sorted" else "priority"
    with queue.producer() as producer:
        for number, (key, rank) in enumerate(messages, 1):
            if queue.definition.conflate:
                producer.put(key, str(number), **{option: rank})
            else:
                producer.send(Message(str(number), {"ticker": key}, **{option: rank}))


def shown(events: Any) -> list[str]:
    forms = {Entry: lambda e: f"{e.key}={e.value}", Deleted: lambda e: f"-{e.key}", EndOfDump: lambda _: "|"}
    return [forms[type(event)](event) for event in events]


RANKED = [("a", 0), ("b", None), ("c", 9), ("d", 4), ("e", 9), ("f", 5), ("g", 3)]


class TestPriorities:
    def test_r20_a_dump_is_by_priority_then_arrival_and_updates_are_by_arrival(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, *RANKED)
        with queue.browser() as browser:
            assert shown(browser.drain()) == ["c=3", "e=5", "f=6", "b=2", "d=4", "g=7", "a=1", "|"]
            put(queue, ("h", 1), ("i", 9))
            assert shown(browser.drain()) == ["h=1", "i=2"]

    def test_r20_the_rank_is_that_of_the_newest_value(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, ("a", 9), ("b", 5), ("a", 1))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["b=2", "a=3", "|"]

    def test_r20_fewer_levels_join_neighbours(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority", priorities=2)
        put(queue, *RANKED)
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["c=3", "e=5", "f=6", "a=1", "b=2", "d=4", "g=7", "|"]

    def test_one_that_changes_in_the_dump_keeps_its_turn(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, ("a", 0), ("b", 1), ("c", 9))
        with queue.browser() as browser:
            assert shown([browser.poll(30)]) == ["c=3"]
            put(queue, ("a", 9))
            assert shown(browser.drain()) == ["b=2", "a=1", "|"]

    def test_a_snapshot_is_by_rank_and_a_view_by_arrival(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, *RANKED)
        by_rank = ["c", "e", "f", "b", "d", "g", "a"]
        with queue.view() as view:
            assert list(view) == [entry.key for entry in view.entries()] == ["a", "b", "c", "d", "e", "f", "g"]
            snapshot = view.snapshot()
            assert list(snapshot) == by_rank
            assert [entry.key for entry in snapshot.entries()] == by_rank
            assert [entry.key for entry in snapshot.iter_entries()] == by_rank
            assert dict(snapshot) == dict(view)
            with view.watch(dump=True, prefix=["a", "c"]) as watch:
                assert shown(watch.drain()) == ["c=3", "a=1", "|"]
            with queue.browser(prefix=["a", "c"], follow=False) as browser:
                assert shown(browser) == ["c=3", "a=1", "|"]

    def test_in_asyncio(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, ("a", 0), ("b", 9))

        async def dump() -> list[str]:
            async with queue.browser(follow=False) as browser, queue.view() as view:
                assert list(await view.snapshot_async()) == ["b", "a"]
                return shown([event async for event in browser])

        assert asyncio.run(dump()) == ["b=2", "a=1", "|"]

    def test_ranks_go_across_partitions(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority", spec=TopicSpec(partitions=3))
        put(queue, *[(str(number), number % 10) for number in range(60)])
        with queue.browser(follow=False) as browser:
            dump = [event.key for event in browser if isinstance(event, Entry)]
        assert [int(key) % 10 for key in dump] == sorted((number % 10 for number in range(60)), reverse=True)

    def test_consumed_messages_are_left_out(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, ("a", 0), ("b", 5), ("c", 9))
        queue.purge(keys=["b"])
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["c=3", "a=1", "|"]

    def test_a_standard_queue_is_dumped_by_rank(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority", conflate=False)
        put(queue, ("a", 0), ("a", 9), ("a", None), ("a", 9))
        with queue.browser() as browser:
            assert shown(browser.drain()) == ["a=2", "a=4", "a=3", "a=1", "|"]
            put(queue, ("a", 0), ("a", 9))
            assert shown(browser.drain()) == ["a=1", "a=2"]

    def test_a_replay_period_and_a_selector_leave_the_order(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        put(queue, *RANKED)
        with queue.browser(follow=False, replay_period=3600, selector="lvq_key <> 'e'") as browser:
            assert shown(browser) == ["c=3", "f=6", "b=2", "d=4", "g=7", "a=1", "|"]


class TestPrioritiesThatCannotBeRead:
    def test_they_count_as_none_and_are_counted_and_logged_once(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "lvq_kafka.reader")
        queue = declare(memory_cluster, order="priority")
        with closing(memory_cluster.writer()) as writer:
            for key, priority in ((b"a", b"3"), (b"b", b"ten"), (b"c", b"9"), (b"d", b"10"), (b"e", None)):
                writer.append("prices", key, b"1", [("ticker", key), ("lvq-priority", priority)])
        with queue.view() as view, queue.browser(follow=False) as browser:
            assert view.unranked == 0
            assert shown(browser) == ["c=1", "b=1", "d=1", "e=1", "a=1", "|"]
            assert browser.unranked == 2
            for _ in range(2):
                assert list(view.snapshot()) == ["c", "b", "d", "e", "a"]
            assert view.unranked == 2
        (line, other) = [record.message for record in caplog.records]
        assert line == other
        assert line.startswith("a header lvq-priority in prices is b'ten', not a digit from 0 to 9")

    def test_of_several_headers_the_last_one_counts(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="priority")
        with closing(memory_cluster.writer()) as writer:
            writer.append("prices", b"a", b"1", [("lvq-priority", b"9"), ("ticker", b"a"), ("lvq-priority", b"0")])
            writer.append("prices", b"b", b"1", [("lvq-priority", b"0"), ("ticker", b"b"), ("lvq-priority", b"1")])
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["b=1", "a=1", "|"]


class TestSorted:
    def test_r20_by_text_those_without_it_first_and_equal_ones_by_arrival(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="sorted")
        put(queue, ("a", "m"), ("b", None), ("c", "é"), ("d", ""), ("e", "m"), ("f", "M"), ("g", "10"), ("h", "9"))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["b=2", "d=4", "g=7", "h=8", "f=6", "a=1", "e=5", "c=3", "|"]

    def test_r20_by_an_ordinary_header_of_any_bytes(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="sorted", sort_header="price")
        with closing(memory_cluster.writer()) as writer:
            for key, price in ((b"a", b"\xff"), (b"b", b"\x00"), (b"c", None), (b"d", b"")):
                writer.append("prices", key, b"1", [("ticker", key), ("price", price)])
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["c=1", "d=1", "b=1", "a=1", "|"]
            assert browser.unranked == 0

    def test_r20_by_the_key(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, order="sorted", sort_header="ticker")
        put(queue, ("b", None), ("a", None), ("c", None), ("a", None))
        with queue.browser(follow=False) as browser:
            assert shown(browser) == ["a=4", "b=1", "c=3", "|"]

    @pytest.mark.parametrize("spread", [1, 2, 20, 100])
    def test_r20_long_dumps_are_sorted_in_parts(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, spread: int
    ) -> None:
        monkeypatch.setattr(sorted_keys, "_PART", 7)
        monkeypatch.setattr(sorted_keys, "_SAMPLE", 20)
        queue = declare(memory_cluster, order="sorted")
        ranks = [str(number * 37 % spread) for number in range(100)]
        put(queue, *((str(number), rank) for number, rank in enumerate(ranks)))
        with queue.browser(follow=False) as browser:
            dump = [int(event.key) for event in browser if isinstance(event, Entry)]
        assert dump == sorted(range(100), key=ranks.__getitem__)
