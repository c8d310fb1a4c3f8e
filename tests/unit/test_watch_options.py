"""Watches that return previous values, only values that differ, or events in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue, View, Watch
from lvq_kafka.errors import Closed, ConfigError, DecodeError
from lvq_kafka.reading import change_notifier
from lvq_kafka.reading import watch as watch_module
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    return LastValueQueue("prices", key_header=None, cluster=memory_cluster, value=TEXT)


class Changing:
    """A view, and writes that it has seen when they return."""

    def __init__(self, cluster: MemoryCluster, view: View[str]) -> None:
        self._cluster = cluster
        self.view = view

    def write(self, *changes: tuple[str, bytes | str | None]) -> None:
        for key, value in changes:
            data = value.encode() if isinstance(value, str) else value
            self._cluster.write("prices", key.encode(), data)
        self.view.barrier()


@pytest.fixture
def changing(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> Iterator[Changing]:
    for key in "abc":
        memory_cluster.write("prices", key.encode(), b"%s0" % key.encode())
    with queue.view() as view:
        yield Changing(memory_cluster, view)


def with_previous(events: Iterable[Any]) -> list[str]:
    """Shorten events: ``previous>value``, ``previous>-key`` for a delete; ``|`` for EndOfDump."""
    found = []
    for event in events:
        if isinstance(event, EndOfDump):
            found.append("|")
            continue
        before = "" if event.previous is None else event.previous.value
        found.append(f"{before}>{event.value if isinstance(event, Entry) else '-' + event.key}")
    return found


def values(events: Iterable[Any]) -> list[str]:
    return [event.value for event in events if isinstance(event, Entry)]


class TestPrevious:
    def test_the_previous_value_is_the_last_one_that_this_watch_returned(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, previous=True)
        assert with_previous(watch.drain()) == [">a0", ">b0", ">c0", "|"]
        changing.write(("a", "a1"), ("a", "a2"), ("b", None), ("d", "d1"))
        assert with_previous(watch.drain()) == ["a0>a2", "b0>-b", ">d1"], "a1 was never returned"
        changing.write(("a", "a3"), ("b", "b1"), ("d", None), ("d", "d2"))
        assert with_previous(watch.drain()) == ["a2>a3", ">b1", "d1>d2"]

    def test_before_the_first_it_is_the_value_that_was_there_when_the_watch_began(self, changing: Changing) -> None:
        changing.write(("a", "a1"))
        watch = changing.view.watch(previous=True)
        changing.write(("a", "a2"), ("a", "a3"), ("b", None), ("d", "d1"))
        assert with_previous(watch.drain()) == ["a1>a3", "b0>-b", ">d1"]
        changing.write(("b", "b1"), ("b", None), ("d", None), ("a", None))
        assert with_previous(watch.drain()) == [">-b", "d1>-d", "a3>-a"]
        changing.write(("b", "b2"), ("a", "a4"))
        assert with_previous(watch.drain()) == [">b2", ">a4"]

    def test_a_previous_value_was_selected_too(self, changing: Changing) -> None:
        changing.write(("a", "in 1"), ("b", "out 1"))
        watch = changing.view.watch(previous=True, where=lambda entry: entry.value.startswith("in"))
        changing.write(("a", "in 2"), ("b", "in 3"))
        assert with_previous(watch.drain()) == ["in 1>in 2", ">in 3"]
        changing.write(("a", "out 2"), ("b", None))
        assert with_previous(watch.drain()) == ["in 2>-a", "in 3>-b"]
        changing.write(("a", "in 4"))
        assert with_previous(watch.drain()) == [">in 4"], "it entered"

    def test_a_previous_value_that_cannot_be_decoded_is_none(self, changing: Changing) -> None:
        changing.write(("a", b"\xff"))
        watch = changing.view.watch(previous=True)
        changing.write(("a", "a2"))
        assert with_previous(watch.drain()) == [">a2"]
        changing.write(("a", b"\xff"))
        with pytest.raises(DecodeError):
            watch.poll(10)
        changing.write(("a", "a3"))
        assert with_previous(watch.drain()) == [">a3"]

    def test_browsers_callbacks_and_async_loops_have_it_too(
        self, queue: LastValueQueue[str], changing: Changing
    ) -> None:
        seen: list[Any] = []
        changing.view.on_change(seen.append, previous=True)

        async def listen() -> list[Any]:
            found: list[Any] = []
            async for event in changing.view.watch(dump=True, previous=True):
                found.append(event)
                if isinstance(event, EndOfDump):
                    changing.write(("a", "a1"))
                if len(found) == 5:
                    return found
            return []

        with queue.browser(previous=True, dump=False) as browser:
            assert with_previous(asyncio.run(asyncio.wait_for(listen(), 10)))[-1] == "a0>a1"
            eventually(lambda: with_previous(seen) == ["a0>a1"])
            changing.write(("a", "a2"))
            assert with_previous(browser.drain()) == ["|", ">a2"]
            changing.write(("a", "a3"))
            assert with_previous(browser.drain()) == ["a2>a3"]

    def test_it_costs_nothing_where_it_is_not_asked_for(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True)
        (entry, *_) = watch.drain()
        assert type(entry) is Entry
        assert entry.previous is None
        assert watch._known is None


class TestChanged:
    def test_r42_a_value_that_equals_the_one_returned_last_is_no_event(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        assert len(watch.drain()) == 4
        changing.write(("a", "a0"), ("b", "b1"))
        assert values(watch.drain()) == ["b1"]
        changing.write(("b", "b1"), ("c", "c0"))
        assert watch.drain() == []

    def test_r42_a_change_and_back_is_silent_only_if_the_watch_returned_the_first(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        changing.write(("a", "a1"), ("a", "a0"))
        assert watch.drain() == [], "it slept, and has a0"
        changing.write(("a", "a1"))
        assert values(watch.drain()) == ["a1"]
        changing.write(("a", "a0"))
        assert values(watch.drain()) == ["a0"]
        changing.write(("b", None), ("b", "b0"))
        assert watch.drain() == []

    def test_r42_without_a_dump_the_first_value_of_a_key_is_an_event(self, changing: Changing) -> None:
        watch = changing.view.watch(changed=True)
        changing.write(("a", "a0"))
        assert values(watch.drain()) == ["a0"]
        changing.write(("a", "a0"))
        assert watch.drain() == []

    def test_r42_a_delete_is_an_event_and_so_is_the_same_value_after_it(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        changing.write(("a", None))
        assert watch.drain() == [Deleted("a")]
        changing.write(("a", None))
        assert watch.drain() == [], "it has returned that the key is gone"
        changing.write(("d", "d1"), ("d", None))
        assert watch.drain() == [], "it never had it"
        changing.write(("a", "a0"))
        assert values(watch.drain()) == ["a0"]

    def test_r42_without_a_dump_each_delete_is_an_event(self, changing: Changing) -> None:
        """Its listener may have the value from somewhere else."""
        watch = changing.view.watch(changed=True)
        changing.write(("a", None))
        assert watch.drain() == [Deleted("a")]
        resumed = changing.view.watch(since={0: 0}, changed=True)
        assert Deleted("a") in resumed.drain()

    def test_r42_headers_do_not_count(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str], changing: Changing
    ) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        memory_cluster.write("prices", b"a", b"a0", (("venue", b"NYSE"),))
        changing.view.barrier()
        assert watch.drain() == []

    def test_r42_long_values_are_compared_too_and_only_their_digests_kept(self, changing: Changing) -> None:
        watch = changing.view.watch(changed=True)
        for value in ("x" * 15, "x" * 16, "x" * 17, "x" * 100_000, "x" * 99_999 + "y"):
            changing.write(("a", value))
            assert values(watch.drain()) == [value]
            changing.write(("a", value))
            assert watch.drain() == []
        assert watch._returned is not None
        assert max(len(kept or b"") for kept in watch._returned._returned.values()) == 16

    def test_r42_it_forgets_keys_that_are_gone(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        changing.write(("a", None), ("b", None), ("c", None))
        watch.drain()
        assert watch._returned is not None
        assert not watch._returned._returned

    def test_r42_a_value_that_left_the_selection_is_an_event_when_it_enters_again(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True, where=lambda entry: entry.value.endswith("0"))
        watch.drain()
        changing.write(("a", "a1"))
        assert watch.drain() == [Deleted("a", left=True)]
        changing.write(("a", "a0"))
        assert values(watch.drain()) == ["a0"]

    def test_r42_a_value_that_could_not_be_decoded_was_not_returned(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        for _ in range(2):
            changing.write(("a", b"\xff"))
            with pytest.raises(DecodeError):
                watch.poll(10)
        changing.write(("a", "a0"))
        assert values(watch.drain()) == ["a0"]
        changing.write(("a", b"\xff"))
        with pytest.raises(DecodeError):
            watch.poll(10)
        changing.write(("a", None))
        assert watch.drain() == [Deleted("a")]

    def test_r42_the_previous_value_is_still_the_one_returned_last(self, changing: Changing) -> None:
        watch = changing.view.watch(dump=True, changed=True, previous=True)
        watch.drain()
        changing.write(("a", "a0"))
        changing.write(("a", "a1"), ("b", None))
        assert with_previous(watch.drain()) == ["a0>a1", "b0>-b"]

    def test_r42_browsers_callbacks_and_async_loops_leave_it_out_too(
        self, queue: LastValueQueue[str], changing: Changing
    ) -> None:
        seen: list[Any] = []
        changing.view.on_change(seen.append, changed=True)

        async def listen() -> list[Any]:
            found: list[Any] = []
            async for event in changing.view.watch(dump=True, changed=True):
                found.append(event)
                if isinstance(event, EndOfDump):
                    changing.write(("a", "a0"), ("b", "b1"))
                if len(found) == 5:
                    return found
            return []

        with queue.browser(changed=True) as browser:
            assert len(browser.drain()) == 4
            assert values(asyncio.run(asyncio.wait_for(listen(), 10))) == ["a0", "b0", "c0", "b1"]
            assert values(browser.drain()) == ["b1"]
            # A callback that is behind would find "a" after "b", where its newer message stands.
            eventually(lambda: values(seen) == ["a0", "b1"])
            changing.write(("a", "a0"), ("c", "c1"))
            assert values(browser.drain()) == ["c1"]
            eventually(lambda: values(seen) == ["a0", "b1", "c1"])

    @pytest.mark.parametrize("how", ["poll", "loop", "async"])
    def test_r42_keys_without_an_event_are_passed_over_some_at_a_time(
        self, changing: Changing, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """Others get the lock, and tasks their turn, in between."""
        monkeypatch.setattr(watch_module, "_SOME", 4)
        same = [(str(number), "same") for number in range(30)]
        changing.write(*same)
        watch = changing.view.watch(dump=True, changed=True)
        watch.drain()
        changing.write(*same, ("a", "a1"))
        found: Any = None
        if how == "poll":
            found = watch.poll(0.0)
        elif how == "loop":
            found = next(watch)
        else:
            found = asyncio.run(asyncio.wait_for(anext(watch), 10))
        assert values([found]) == ["a1"]
        changing.write(*same)
        assert watch.poll(0.0) is None

    def test_r42_it_costs_nothing_where_it_is_not_asked_for(self, changing: Changing) -> None:
        assert changing.view.watch(dump=True)._returned is None


class TestEvery:
    @pytest.fixture
    def clock(self, changing: Changing) -> list[float]:
        """Return the time of the view, to be set."""
        now = [changing.view._shared.clock()]
        changing.view._shared.clock = lambda: now[0]
        return now

    def test_a_batch_has_the_newest_values_in_the_order_of_their_last_change(
        self, changing: Changing, clock: list[float]
    ) -> None:
        watch = changing.view.watch(every=10)
        changing.write(("b", "b1"))
        assert values(watch.drain()) == ["b1"], "the first one comes at once"
        changing.write(("a", "a1"), ("b", "b2"), ("a", "a2"), ("c", "c1"), ("b", "b3"))
        assert watch.drain() == []
        clock[0] += 9.9
        assert watch.drain() == []
        clock[0] += 0.1
        assert values(watch.drain()) == ["a2", "c1", "b3"]
        assert watch.drain() == []
        clock[0] += 100
        assert watch.drain() == [], "nothing has changed"
        changing.write(("d", "d1"), ("a", None))
        assert watch.drain()[1:] == [Deleted("a")]

    def test_a_key_that_changes_during_a_batch_keeps_its_turn_in_it(
        self, changing: Changing, clock: list[float]
    ) -> None:
        watch = changing.view.watch(every=10)
        changing.write(("a", "a1"), ("b", "b1"))
        first = watch.poll(0)
        changing.write(("b", "b2"), ("a", "a2"))
        assert values([first, *watch.drain()]) == ["a1", "b2"]
        clock[0] += 10
        assert values(watch.drain()) == ["a2"], "b2 was returned"

    @pytest.mark.parametrize("how", ["poll", "loop", "async"])
    def test_r33_the_rest_of_a_batch_ends_with_it_however_long_it_takes(
        self, changing: Changing, clock: list[float], how: str
    ) -> None:
        watch = changing.view.watch(every=10)
        changing.write(("a", "a1"), ("b", "b1"))
        first: Any = None
        if how == "poll":
            first = watch.poll(0)
        elif how == "loop":
            first = next(watch)
        else:
            first = asyncio.run(asyncio.wait_for(anext(watch), 10))
        changing.write(("a", "a2"), ("b", "b2"))
        clock[0] += 10
        assert values([first, *watch.drain()]) == ["a1", "b2"]
        assert values(watch.drain()) == ["a2"]

    def test_r33_nothing_is_left_of_a_batch_of_one(self, changing: Changing, clock: list[float]) -> None:
        watch = changing.view.watch(every=10)
        changing.write(("a", "a1"))
        first = watch.poll(0)
        changing.write(("a", "a2"))
        clock[0] += 10
        assert values([first, *watch.drain()]) == ["a1"]
        assert values([watch.poll(0), *watch.drain()]) == ["a2"]
        assert watch.poll(0) is None
        changing.write(("a", "a3"))
        clock[0] += 10
        assert values(watch.drain()) == ["a3"], "a batch that has nothing more is over"

    def test_r33_the_rest_of_a_dump_ends_with_it(self, changing: Changing, clock: list[float]) -> None:
        watch = changing.view.watch(dump=True, every=10)
        first = watch.poll(0)
        changing.write(("new", "n1"))
        clock[0] += 10
        rest = watch.drain()
        assert (first is not None, len(rest), type(rest[-1])) == (True, 3, EndOfDump)
        assert values(watch.drain()) == ["n1"]

    def test_r33_a_value_that_cannot_be_decoded_does_not_end_its_batch(
        self, clock: list[float], changing: Changing
    ) -> None:
        watch = changing.view.watch(every=10)
        changing.write(("bad", b"\xff"))
        changing.write(("a", "a1"))
        with pytest.raises(DecodeError):
            watch.poll(0)
        changing.write(("a", "a2"), ("b", "b1"))
        clock[0] += 10
        assert values(watch.drain()) == ["a2"]
        assert values(watch.drain()) == ["b1"]

    def test_the_dump_is_a_batch(self, changing: Changing, clock: list[float]) -> None:
        watch = changing.view.watch(dump=True, every=10)
        assert len(watch.drain()) == 4
        changing.write(("a", "a1"))
        assert watch.drain() == []
        clock[0] += 10
        assert values(watch.drain()) == ["a1"]

    def test_a_waiting_caller_is_woken_when_it_is_time_though_nothing_changes_then(self, changing: Changing) -> None:
        watch = changing.view.watch(every=0.05)
        for value in ("a1", "a2"):
            changing.write(("a", value))
            assert values([watch.poll(10)]) == [value]
        changing.write(("a", "a3"))
        assert values([next(watch)]) == ["a3"]

        async def listen(watch: Watch[str]) -> list[str]:
            found = []
            async for event in watch:
                found.append(event)
                if len(found) == 3:
                    break
                changing.write(("a", f"a{len(found)}"))
            return values(found)

        watch = changing.view.watch(every=0.05)
        changing.write(("a", "a0"))
        assert asyncio.run(asyncio.wait_for(listen(watch), 10)) == ["a0", "a1", "a2"]

    def test_a_poll_ends_before_the_batch(self, changing: Changing) -> None:
        watch = changing.view.watch(every=3600)
        changing.write(("a", "a1"))
        assert values(watch.drain()) == ["a1"]
        changing.write(("a", "a2"))
        assert watch.poll(0.01) is None
        watch.close()
        assert list(watch) == []

    def test_browsers_come_in_batches_too(self, queue: LastValueQueue[str], changing: Changing) -> None:
        with queue.browser(every=3600) as browser:
            assert len(browser.drain()) == 4
            changing.write(("a", "a1"))
            assert browser.drain() == []

    @pytest.mark.parametrize("every", [0, -1, "1", float("nan")])
    def test_a_wrong_period_is_refused(self, queue: LastValueQueue[str], changing: Changing, every: Any) -> None:
        for opened in (queue.browser, changing.view.watch):
            with pytest.raises(ConfigError) as refused:
                opened(every=every)
            assert refused.value.options == ("every",)


class TestParts:
    """Events for servers, which take many at once."""

    def test_a_part_is_what_is_ready_and_ends_with_the_dump(self, changing: Changing) -> None:
        async def read() -> None:
            watch = changing.view.watch(dump=True)
            part = await watch._part(10_000)
            assert undecoded(part) == [b"a0", b"b0", b"c0", "|"]
            assert watch.token is not None, "a client can go on from here"
            changing.write(("a", "a1"), ("b", None), ("a", "a2"))
            assert undecoded(await watch._part(10_000)) == ["-b", b"a2"]

        asyncio.run(read())

    def test_a_dump_s_end_ends_its_part_although_more_is_ready(self, changing: Changing) -> None:
        async def read() -> None:
            watch = changing.view.watch(dump=True)
            assert undecoded(await watch._part(1)) == [b"a0"]
            changing.write(("d", "d1"), ("a", "a1"))
            assert undecoded(await watch._part(10_000)) == [b"b0", b"c0", "|"]
            assert undecoded(await watch._part(10_000)) == [b"d1", b"a1"]

        asyncio.run(read())

    def test_a_part_is_about_as_large_as_asked_for_and_never_empty(self, changing: Changing) -> None:
        async def read() -> None:
            watch = changing.view.watch()
            changing.write(("a", "x" * 5000), ("b", "b1"), *((f"k{n}", "1") for n in range(20)))
            assert len(await watch._part(1)) == 1
            assert len(await watch._part(1000)) == 5
            assert len(await watch._part(1_000_000)) == 16

        asyncio.run(read())

    def test_a_part_waits_for_its_first_event_until_the_watch_is_closed(self, changing: Changing) -> None:
        async def read() -> None:
            watch = changing.view.watch()
            assert await watch._part(1000, 0.01) == []
            waiting = asyncio.ensure_future(watch._part(1000))
            await asyncio.sleep(0)
            await asyncio.to_thread(changing.write, ("a", "a1"))
            assert undecoded(await asyncio.wait_for(waiting, 10)) == [b"a1"]
            waiting = asyncio.ensure_future(watch._part(1000))
            await asyncio.sleep(0)
            watch.close()
            with pytest.raises(Closed):
                await asyncio.wait_for(waiting, 10)
            with pytest.raises(Closed):
                await watch._part(1000)

        asyncio.run(read())

    def test_the_headers_of_an_event_count_for_the_size_of_its_part(
        self, memory_cluster: MemoryCluster, changing: Changing
    ) -> None:
        async def read() -> None:
            watch = changing.view.watch()
            for number in range(5):
                memory_cluster.write("prices", b"k%d" % number, b"", headers=[("note", b"x" * 1000)])
            changing.view.barrier()
            assert [len(await watch._part(2000)) for _ in range(3)] == [2, 2, 1]

        asyncio.run(read())

    @pytest.mark.parametrize("options", [{"changed": True}, {"where": lambda entry: entry.value == "wanted"}])
    def test_a_part_passes_over_some_keys_without_an_event_and_lets_others_run(
        self, changing: Changing, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
    ) -> None:
        monkeypatch.setattr(watch_module, "_SOME", 10)
        asked: list[int] = []

        async def read() -> None:
            with changing.view.watch(dump=True, **options) as watch:
                while undecoded(await watch._part(10_000))[-1:] != ["|"]:
                    pass
                news = [(f"k{n:02}", "wanted" if n % 8 == 7 else "other") for n in range(40)]
                if "changed" in options:
                    changing.write(*((key, "other") for key, _ in news))
                    while (await watch._part(10_000, 0.0)) != []:
                        pass
                changing.write(*news)
                found: list[bytes | str] = []
                while len(found) < 5:
                    asked.append(len(part := await watch._part(10_000)))
                    found += undecoded(part)
            assert found == [b"wanted"] * 5

        asyncio.run(asyncio.wait_for(read(), 10))
        assert max(asked) <= 2, "ten keys have at most two events"

    def test_a_batch_that_waits_for_a_new_read_is_no_reason_to_look_all_the_time(self, changing: Changing) -> None:
        watch = changing.view.watch(every=0.01)
        changing.write(("a", "a1"))
        assert values(watch.drain()) == ["a1"]
        shared = changing.view._shared
        with shared.lock:
            watch._subscribe().changed([b"a"])
            assert watch._until_batch(None) is not None
            shared.catch_up.values = object()  # type: ignore[assignment]  # a new read begins
            assert watch._until_batch(None) is None
            shared.catch_up.values = shared.catch_up.replay.values

    def test_a_part_has_values_that_no_codec_reads(self, memory_cluster: MemoryCluster, changing: Changing) -> None:
        async def read() -> None:
            watch = changing.view.watch()
            changing.write(("a", b"\xff"), ("b", "b1"))
            assert undecoded(await watch._part(1000)) == [b"\xff", b"b1"]

        asyncio.run(read())


def undecoded(part: Iterable[Any]) -> list[bytes | str]:
    """Shorten undecoded events: the value, ``-key`` for a delete, ``|`` for the end of the dump."""
    short = {EndOfDump: lambda _: "|", Deleted: lambda event: f"-{event.key}"}
    return [short.get(type(event), lambda event: event.value)(event) for event in part]


class TestWaking:
    """Tasks that wait are woken by what concerns them, and once."""

    @staticmethod
    async def settled() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def test_a_task_is_woken_once_however_much_changes_before_it_runs(
        self, changing: Changing, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[int] = []

        async def wait() -> None:
            loop = asyncio.get_running_loop()
            tasks = [asyncio.ensure_future(anext(changing.view.watch())) for _ in range(5)]
            await self.settled()
            wake = loop.call_soon_threadsafe

            def counted(callback: Any, *arguments: Any) -> Any:
                calls.append(len(arguments[0]) if callback is ring else 0)
                return wake(callback, *arguments)

            monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
            for number in range(20):  # the loop stands still meanwhile
                changing.write(("a", f"a{number}"))
            assert calls == [5], "all tasks of a loop at once, and once"
            assert values(await asyncio.gather(*tasks)) == ["a19"] * 5

        ring = change_notifier._ring
        asyncio.run(wait())

    def test_a_task_that_has_a_batch_waits_for_its_time_and_is_not_woken_by_more(self, changing: Changing) -> None:
        async def wait() -> None:
            watch = changing.view.watch(every=3600)
            changing.write(("a", "a1"))
            assert values([await anext(watch)]) == ["a1"]
            task = asyncio.ensure_future(anext(watch))
            await self.settled()
            changing.write(("a", "a2"))
            await self.settled()
            [alarm] = changing.view._shared.notifier._woken
            assert alarm.patient
            changing.write(("b", "b1"))
            await self.settled()
            assert not alarm.is_set()
            watch.close()
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(task, 10)

        asyncio.run(wait())

    def test_a_task_that_waits_for_its_time_hears_that_the_view_is_closed(
        self, queue: LastValueQueue[str], memory_cluster: MemoryCluster
    ) -> None:
        async def wait() -> None:
            with queue.view() as view:
                watch = view.watch(every=3600)
                for value in (b"1", b"2"):
                    memory_cluster.write("prices", b"a", value)
                    view.barrier()
                    if value == b"1":
                        assert values([await anext(watch)]) == ["1"]
                task = asyncio.ensure_future(anext(watch))
                await self.settled()
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(task, 10)

        asyncio.run(wait())
