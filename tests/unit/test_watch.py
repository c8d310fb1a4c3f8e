"""Streams of changes: a listener's events while its reader starts over, is late, or is closed."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator
from contextlib import aclosing
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, View
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_kafka.reading.entries import Event as Told
from lvq_kafka.testing import MemoryCluster
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return declared(memory_cluster)


def declared(cluster: MemoryCluster) -> LastValueQueue[str]:
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    return LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT)


def test_g2_a_watch_that_starts_over_shows_nothing_that_is_older_or_missing_meanwhile() -> None:
    cluster = MemoryCluster(fetch_limit=1)
    queue = declared(cluster)
    half_way, go_on = Event(), Event()

    def hold(reader: int, poll: int) -> None:
        if reader == 2 and poll == 2:
            half_way.set()
            go_on.wait(10)

    for key, value in [(b"a", b"old"), (b"b", b"1"), (b"a", b"new")]:
        cluster.write("prices", key, value)
    before_polls(cluster, hold)
    with queue.view() as view:
        watch, dumping = view.watch(), view.watch(dump=True)
        cluster.fail_next("poll", DataLoss("truncated"))
        assert half_way.wait(10)
        try:
            assert view.state == "stale"
            assert dict(view) == {"a": "new", "b": "1"}
            assert watch.drain() == dumping.drain() == []
        finally:
            go_on.set()
        eventually(lambda: view.state == "caught-up")
        assert dict(view) == {"a": "new", "b": "1"}
        assert "old" not in [event.value for event in watch.drain() if isinstance(event, Entry)]
        dump = dumping.drain()
        assert [(event.key, event.value) for event in dump if isinstance(event, Entry)] == [("b", "1"), ("a", "new")]
        assert isinstance(dump[2], EndOfDump)


def test_an_async_listener_learns_of_keys_that_a_new_topic_does_not_have(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    memory_cluster.write("prices", b"gone", b"1")
    ask, asleep = memory_cluster.logs.end_offsets, Event()

    def ask_slowly(topic: str, **options: Any) -> dict[int, int]:
        asleep.wait(0.1)  # never set: time for a listener that was woken too early to sleep again
        return ask(topic, **options)

    with queue.view(metadata_interval=0.05) as view:

        async def listen() -> object:
            waiting = asyncio.ensure_future(anext(view.watch()))
            await asyncio.sleep(0)  # now it waits
            memory_cluster.logs.end_offsets = ask_slowly  # type: ignore[method-assign]
            with memory_cluster._state.changed:  # so that nobody sees it half done
                memory_cluster.topics.delete("prices")
                declared(memory_cluster)
                memory_cluster.write("prices", b"b", b"2")
            return await asyncio.wait_for(waiting, 10)

        assert asyncio.run(listen()) == Deleted("gone")


def test_a_callback_that_raises_an_error_of_this_library_is_called_again(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    first, second = Event(), Event()

    def callback(event: object) -> None:
        (second if first.is_set() else first).set()
        raise ConfigError("of its own")

    with queue.view() as view:
        view.on_change(callback)
        memory_cluster.write("prices", b"a", b"1")
        assert first.wait(5)
        memory_cluster.write("prices", b"a", b"2")
        assert second.wait(5)


def test_a_closed_watch_gives_nothing_more(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    for number in range(10):
        memory_cluster.write("prices", b"%d" % number, b"v")
    with queue.view() as view:
        watch = view.watch(dump=True)
        assert isinstance(next(watch), Entry)
        watch.close()
        assert list(watch) == []


class TestLeftBehind:
    """Listeners that stop without notice: they cost nothing more, and no keys are kept for them."""

    @pytest.fixture
    def view(self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> Iterator[View[str]]:
        for number in range(10):
            memory_cluster.write("prices", b"%d" % number, b"v")
        with queue.view() as view:
            yield view

    def listening(self, view: View[str]) -> int:
        gc.collect()
        return len(view._follower.shared.notifier)

    @pytest.mark.parametrize("dump", [True, False])
    def test_a_loop_that_is_left_by_break(self, memory_cluster: MemoryCluster, view: View[str], dump: bool) -> None:
        for number in range(3):
            watch = view.watch(dump=dump)
            memory_cluster.write("prices", b"new", b"%d" % number)
            for _ in watch:
                break
            assert self.listening(view) == 1
            del watch
        assert self.listening(view) == 0

    def test_a_loop_in_asyncio_that_is_left_by_break(self, view: View[str]) -> None:
        async def request() -> None:
            async for _ in view.watch(dump=True):
                break

        async def storm() -> None:
            for _ in range(20):
                await request()

        asyncio.run(storm())
        eventually(lambda: self.listening(view) == 0)  # the thread that started the last one has let go of it

    def test_a_request_that_is_cancelled_while_it_waits(self, view: View[str]) -> None:
        async def request(end_of_dump: asyncio.Event) -> None:
            async for event in view.watch(dump=True):
                if isinstance(event, EndOfDump):
                    end_of_dump.set()

        async def storm() -> None:
            waiting = [asyncio.Event() for _ in range(20)]
            requests = [asyncio.create_task(request(at_the_end)) for at_the_end in waiting]
            for at_the_end in waiting:
                await at_the_end.wait()
            assert self.listening(view) == 20
            for task in requests:
                task.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

        asyncio.run(storm())
        eventually(lambda: self.listening(view) == 0)

    def test_a_task_that_is_dropped_while_it_waits(self, view: View[str]) -> None:
        waiting: list[int] = []

        async def request() -> None:
            watch = view.watch()
            waiting.append(len(view._follower.shared.notifier))
            await anext(watch)

        async def storm() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # otherwise each is logged
            for _ in range(20):
                asyncio.create_task(request())  # noqa: RUF006  # only the loop holds it
            while len(waiting) < 20:
                await asyncio.sleep(0.01)
            assert self.listening(view) == 0

        asyncio.run(storm())

    def test_a_generator_that_is_dropped(self, view: View[str]) -> None:
        def keys() -> Iterator[str]:
            for event in view.watch(dump=True):
                if isinstance(event, Entry):
                    yield event.key

        for _ in range(20):
            assert next(keys()) == "0"
        assert self.listening(view) == 0

    def test_an_update_that_comes_meanwhile_reaches_those_who_still_listen(
        self, memory_cluster: MemoryCluster, view: View[str]
    ) -> None:
        left, stays = view.watch(), view.watch()
        del left
        memory_cluster.write("prices", b"new", b"1")
        event = stays.poll(10)
        assert isinstance(event, Entry)
        assert (event.key, self.listening(view)) == ("new", 1)

    def test_a_watch_that_is_closed_frees_its_keys_while_somebody_still_has_it(self, view: View[str]) -> None:
        watch = view.watch(dump=True)
        next(watch)
        assert watch._subscribe()
        watch.close()
        assert not watch._subscribe()
        assert self.listening(view) == 0
        assert watch.poll() is None

    def test_a_watch_that_is_closed_before_it_has_begun_never_begins(self, view: View[str]) -> None:
        watch = view.watch(dump=True)
        watch.close()
        assert list(watch) == []
        assert self.listening(view) == 0

    def test_a_watch_ends_with_the_block_it_is_opened_for(self, view: View[str]) -> None:
        async def ways() -> None:
            async with view.watch(dump=True) as watch:
                assert isinstance(await anext(watch), Entry)
            assert [event async for event in watch] == []
            async with aclosing(view.watch(dump=True)) as closing:
                assert isinstance(await anext(closing), Entry)
            assert [event async for event in closing] == []
            assert self.listening(view) == 0

        asyncio.run(ways())


class TestSharing:
    """An event loop that a stream of events shares with other tasks."""

    def test_other_tasks_have_their_turn_while_events_are_at_hand(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(300):
            memory_cluster.write("prices", b"%d" % number, b"v")
        clock = itertools.count()  # each reading is a second later
        monkeypatch.setattr("lvq_kafka.runtime.aio.time", SimpleNamespace(monotonic=lambda: next(clock)))
        monkeypatch.setattr("lvq_kafka.runtime.aio._SHARE", 10.0)

        async def dump(view: View[str]) -> list[int]:
            turns, given = [0], 0

            async def other() -> None:
                while True:
                    turns.append(given)
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as tasks:
                beside = tasks.create_task(other())
                async for event in view.watch(dump=True):
                    if isinstance(event, EndOfDump):
                        break
                    given += 1
                beside.cancel()
            turns.append(given)
            return [after - before for before, after in itertools.pairwise(turns)]

        with queue.view() as view:
            assert max(asyncio.run(dump(view))) <= 12

    def test_the_loop_has_its_turn_while_the_keys_of_a_dump_are_put_in_order(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        memory_cluster.write("prices", b"a", b"1")

        async def dump(view: View[str]) -> Told[str]:
            go_on = Event()
            table = view._follower.shared.catch_up.values.table
            keys = table.keys

            def slow_keys(order: Any) -> Any:
                assert go_on.wait(10)
                return keys(order)

            table.keys = slow_keys  # type: ignore[assignment,method-assign]
            first = asyncio.ensure_future(anext(view.watch(dump=True)))
            asyncio.get_running_loop().call_later(0.05, go_on.set)  # would never run if the loop were blocked
            return await first

        with queue.view() as view:
            assert isinstance(asyncio.run(dump(view)), Entry)


def test_g5_a_dump_does_not_end_before_the_view_is_caught_up(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    for number in range(10):
        memory_cluster.write("prices", b"%d" % number, b"v")
    go_on = Event()
    before_polls(memory_cluster, lambda reader, poll: go_on.wait(10))
    view = queue.view().start()
    try:
        watch = view.watch(dump=True)
        assert watch.drain() == []
        go_on.set()
        events = [next(watch) for _ in range(11)]
        assert [event.key for event in events[:-1] if isinstance(event, Entry)] == [str(number) for number in range(10)]
        assert events[-1] == EndOfDump({0: 10})
    finally:
        go_on.set()
        view.close()


def test_g4_a_key_given_in_a_dump_that_cannot_end_yet_is_reported_gone_when_it_is_deleted_meanwhile(
    memory_cluster: MemoryCluster,
) -> None:
    memory_cluster.topics.create("prices", partitions=2, config={"cleanup.policy": "compact"})
    queue = LastValueQueue("prices", key_header=None, cluster=memory_cluster, value=TEXT)
    for key in ("a", "b", "c"):
        memory_cluster.write("prices", key.encode(), b"1", partition=0)
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    hidden = next(key for key in map(str, range(100)) if home_partition(key.encode(), 2) == 1)
    writer.append("prices", hidden.encode(), b"1")
    view = queue.view().start()
    eventually(lambda: view.state == "blocked")
    watch = view.watch(dump=True)
    assert [watch.poll(10) for _ in range(3)] == list(view.entries())
    memory_cluster.write("prices", b"a", None, partition=0)
    memory_cluster.write("prices", b"d", b"1", partition=0)
    memory_cluster.write("prices", b"d", None, partition=0)
    assert watch.poll(10) == Deleted("a")
    writer.commit_transaction()
    writer.close()
    found = watch.poll(10)
    assert isinstance(found, Entry)
    assert found.key == hidden
    assert isinstance(watch.poll(10), EndOfDump)
    view.close()
