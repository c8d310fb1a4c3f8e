"""R34: watches that resume where an earlier one had got to, or are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Snapshot, TopicSpec, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, TopicRecreated
from lvq_kafka.testing import MemoryCluster
from tests.following import keep_up

DAY = 86_400.0


def declared(cluster: MemoryCluster, **config: str) -> LastValueQueue[str]:
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact", **config})
    return LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT)


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return declared(memory_cluster)


def write(cluster: MemoryCluster, *changes: tuple[str, str | None]) -> None:
    for key, value in changes:
        cluster.write("prices", key.encode(), None if value is None else value.encode())


def shown(events: Iterable[Any]) -> list[str]:
    forms: dict[type, Callable[[Any], str]] = {
        Deleted: lambda e: f"-{e.key}{' left' if e.left else ''}",
        EndOfDump: lambda _: "|",
    }
    return [forms.get(type(event), lambda e: f"{e.key}={e.value}")(event) for event in events]


def dump(queue: LastValueQueue[str], **selection: Any) -> EndOfDump:
    """Watch a queue to the end of its dump, and return that."""
    with queue.view(**selection) as view:
        (*_, end) = view.watch(dump=True).drain()
        assert isinstance(end, EndOfDump)
        return end


def test_it_begins_with_what_has_changed_deletes_included(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    write(memory_cluster, ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
    end = dump(queue)
    write(memory_cluster, ("b", "2"), ("a", None), ("e", "1"), ("b", "3"), ("f", "1"), ("f", None))
    with queue.view() as view:
        watches = [view.watch(since=since) for since in (end, end.offsets, {0: 4})]
        for watch in watches:
            assert shown(watch.drain()) == ["-a", "e=1", "b=3", "-f", "|"]
        write(memory_cluster, ("c", "2"))
        view.barrier()
        for watch in watches:
            assert shown(watch.drain()) == ["c=2"]
        assert shown(view.watch(since=view.snapshot()).drain()) == ["|"]


def test_a_resumed_watch_says_up_to_where_so_the_next_one_can_resume(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    end = dump(queue)
    for number in range(3):
        write(memory_cluster, ("a", str(number)))
        with queue.view() as view:
            events = view.watch(since=end).drain()
            assert shown(events) == [f"a={number}", "|"]
            end = events[-1]  # type: ignore[assignment]
            assert end.offsets == {0: number + 1}
            assert end.topic_id == memory_cluster.topics.describe("prices").id


def test_a_key_that_changes_before_its_turn_comes_once_with_its_newest_value(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    write(memory_cluster, ("a", "1"), ("b", "1"))
    with queue.view() as view:
        watch = view.watch(since={0: 0})
        write(memory_cluster, ("b", None), ("a", "2"), ("c", "1"))
        view.barrier()
        assert shown(watch.drain()) == ["a=2", "-b", "|", "c=1"]


def test_a_view_that_has_not_read_so_far_yet_is_waited_for(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    write(memory_cluster, ("a", "1"), ("b", "1"))
    view = queue.view()
    view.start()
    try:
        assert shown(view.watch(since={0: 1}).drain()) == ["b=1", "|"]
    finally:
        view.close()


def test_asyncio_batches_and_previous_values(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    write(memory_cluster, ("a", "1"), ("b", "1"))
    with queue.view() as view:

        async def listen() -> list[Any]:
            events = []
            async with await view.watch_async(since={0: 1}, previous=True) as watch:
                async for event in watch:
                    events.append(event)
                    if isinstance(event, EndOfDump):
                        write(memory_cluster, ("a", "2"), ("b", "2"))
                    if len(events) == 4:
                        break
            return events

        b, end, *updates = asyncio.run(asyncio.wait_for(listen(), 10))
        assert shown([b, end, *updates]) == ["b=1", "|", "a=2", "b=2"]
        assert b.previous is None, "it is unknown what it was before"
        assert [event.previous.value for event in updates] == ["1", "1"]
        batches = view.watch(since={0: 2}, every=3600)
        assert len(batches.drain()) == 3
        write(memory_cluster, ("a", "3"))
        view.barrier()
        assert batches.drain() == []


class TestSelections:
    def test_keys_are_selected(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        write(memory_cluster, ("a.1", "1"), ("b.1", "1"), ("a.2", None))
        with queue.view(prefix="a.") as view:
            assert shown(view.watch(since={0: 0}).drain()) == ["a.1=1", "-a.2", "|"]
            assert shown(view.watch(since={0: 0}, keys=["a.2"]).drain()) == ["-a.2", "|"]

    @pytest.mark.parametrize("by", ["view", "watch"])
    def test_keys_that_may_have_been_selected_leave(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str], by: str
    ) -> None:
        write(memory_cluster, ("a", "in"), ("b", "in"), ("c", "out"), ("d", "in"))
        end = dump(queue)
        write(memory_cluster, ("a", "out"), ("b", None))
        selection: dict[str, Any] = {"where": lambda entry: entry.value == "in"}
        with queue.view(**selection if by == "view" else {}) as view:
            watch = view.watch(since=end, **selection if by == "watch" else {})
            assert shown(watch.drain()) == ["-a left", "-b", "|"]
            write(memory_cluster, ("d", "out"), ("c", "out"))
            view.barrier()
            assert shown(watch.drain()) == ["-d left"], "the earlier watch had returned it"

    def test_partitions_and_their_number(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare(
            "q", key_header="k", value=TEXT, cluster=memory_cluster, spec=TopicSpec(partitions=2)
        )
        keys = [str(number) for number in range(10)]
        homes = {key: home_partition(key.encode(), 2) for key in keys}
        with queue.producer() as producer:
            for key in keys:
                producer.put(key, "1")
        with queue.view() as view:
            since = {0: 0, 1: sum(homes.values())}
            changed = [event.key for event in view.watch(since=since).drain() if isinstance(event, Entry)]
            assert sorted(changed) == sorted(key for key in keys if homes[key] == 0)
        with queue.view(partitions=[1]) as view:
            assert shown(view.watch(since=since).drain()) == ["|"]

    def test_partitions_that_are_new_are_new_altogether(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        write(memory_cluster, ("a", "1"))
        end = dump(queue)
        memory_cluster.topics.add_partitions("prices", 3)
        memory_cluster.write("prices", b"z", b"1", partition=2)
        with queue.view() as view:
            assert shown(view.watch(since=end).drain()) == ["z=1", "|"]


class TestRefusals:
    def view(self, queue: LastValueQueue[str], since: Any) -> None:
        with queue.view() as view:
            view.watch(since=since)
            assert len(view._shared.notifier) == 0

    @pytest.mark.parametrize("since", [{}, {0: -1}, {"0": 1}, {0: True}, {0: 1.5}, 7, [0]])
    def test_a_start_without_offsets_is_refused(self, queue: LastValueQueue[str], since: Any) -> None:
        with pytest.raises(ConfigError, match="offsets by partition") as refused:
            self.view(queue, since)
        assert refused.value.options == ("since",)

    def test_a_dump_as_well(self, queue: LastValueQueue[str]) -> None:
        with queue.view() as view, pytest.raises(ConfigError, match="only those that have changed"):
            view.watch(since={0: 0}, dump=True)

    @pytest.mark.parametrize("since", [{0: 3}, {1: 0}])
    def test_offsets_beyond_the_end(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str], since: dict[int, int]
    ) -> None:
        write(memory_cluster, ("a", "1"), ("b", "1"))
        with pytest.raises(ConfigError, match="since= names offset"):
            self.view(queue, since)

    def test_offsets_before_the_beginning(self, memory_cluster: MemoryCluster) -> None:
        queue = declared(memory_cluster)
        memory_cluster.topics.alter_config("prices", {"cleanup.policy": "compact,delete"})
        write(memory_cluster, ("a", "1"), ("b", "1"))
        memory_cluster.logs.delete_before("prices", {0: 1})
        with pytest.raises(DataLoss, match="begins at offset 1"):
            self.view(queue, {0: 0})

    def test_offsets_of_an_earlier_topic(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        end = dump(queue)
        memory_cluster.topics.delete("prices")
        with pytest.raises(TopicRecreated):
            self.view(declared(memory_cluster), end)

    def test_messages_that_expire(self, memory_cluster: MemoryCluster) -> None:
        queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=memory_cluster, ttl=Ttl(default=60.0))
        with pytest.raises(ConfigError, match="expire") as refused:
            self.view(queue, {0: 0})
        assert refused.value.options == ("since", "ttl")

    def test_a_log_that_cannot_be_read_in_time(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
        write(memory_cluster, ("a", "1"))
        with queue.view(catch_up_timeout=0.2) as view:
            reader = memory_cluster.reader
            memory_cluster.reader = lambda topic, positions, **_: reader(topic, {})  # type: ignore[method-assign, assignment]
            with pytest.raises(CatchUpTimeout, match="since these offsets"):
                view.watch(since={0: 0})
            assert len(view._shared.notifier) == 0


class TestLostDeletes:
    """R18: a hole in what is old may have been a delete."""

    OLD = -2 * DAY

    def compacted(self, cluster: MemoryCluster, *changes: tuple[str, str | None, float]) -> None:
        """Write records of these ages, in seconds; then compact, and drop deletes."""
        now = cluster.now()
        for key, value, age in changes:
            data = None if value is None else value.encode()
            cluster.write("prices", key.encode(), data, timestamp=round((now + age) * 1000))
        cluster.compact("prices", drop_tombstones=True)

    def resumed(self, queue: LastValueQueue[str], since: Any) -> list[str]:
        with queue.view() as view:
            return shown(view.watch(since=since).drain())

    def test_it_is_refused(self, memory_cluster: MemoryCluster) -> None:
        queue = declared(memory_cluster)
        self.compacted(memory_cluster, ("a", "1", self.OLD), ("a", None, self.OLD), ("b", "1", 0.0))
        with pytest.raises(DataLoss, match="1 records are missing"):
            self.resumed(queue, {0: 1})
        assert self.resumed(queue, {0: 2}) == ["b=1", "|"]

    def test_it_is_none_of_these_if_nothing_is_missing_however_old(self, memory_cluster: MemoryCluster) -> None:
        queue = declared(memory_cluster)
        self.compacted(memory_cluster, ("a", "1", self.OLD), ("b", "1", self.OLD), ("c", "1", self.OLD))
        assert self.resumed(queue, {0: 1}) == ["b=1", "c=1", "|"]

    def test_it_is_none_if_the_point_is_younger_than_the_topic_keeps_deletes(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declared(memory_cluster)
        self.compacted(memory_cluster, ("a", "1", self.OLD), ("c", "1", 0.0), ("c", "2", 0.0), ("b", "1", 0.0))
        now = memory_cluster.now()
        assert self.resumed(queue, EndOfDump({0: 1}, as_of=now)) == ["c=2", "b=1", "|"]
        with pytest.raises(DataLoss):
            self.resumed(queue, EndOfDump({0: 1}, as_of=now - DAY))
        with queue.view() as view:
            young = view.snapshot()
        assert isinstance(young, Snapshot)
        assert self.resumed(queue, young) == ["|"]

    @pytest.mark.parametrize("stamp", ["LogAppendTime", "CreateTime"])
    def test_times_of_appends_say_as_much_and_those_of_producers_do_not(
        self, memory_cluster: MemoryCluster, stamp: str
    ) -> None:
        queue = declared(memory_cluster)
        self.compacted(memory_cluster, ("a", "1", 0.0), ("c", "1", 0.0), ("c", "2", 0.0), ("b", "1", 0.0))
        memory_cluster.topics.alter_config("prices", {"message.timestamp.type": stamp})
        if stamp == "LogAppendTime":
            assert self.resumed(queue, {0: 1}) == ["c=2", "b=1", "|"]
        else:
            with pytest.raises(DataLoss):
                self.resumed(queue, {0: 1})


def test_a_watch_resumes_from_each_cut_with_exactly_what_a_watch_from_the_beginning_would_say(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    history = [("a", "1"), ("b", "1"), ("a", None), ("c", "1"), ("b", "2"), ("a", "2"), ("c", None), ("d", None)]
    write(memory_cluster, *history)
    with queue.view() as view:
        for cut in range(len(history) + 1):
            state = _state(history[:cut])
            events = view.watch(since={0: cut}).drain()
            keep_up(state, events)
            assert state == _state(history) == dict(view)


def _state(history: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    state: dict[str, str] = {}
    for key, value in history:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state
