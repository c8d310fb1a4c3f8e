"""Cancellation at every await of the asyncio surface.

Each awaitable of the public API is driven to each of the points where it is suspended, and cancelled there: while what
it waits for is still to come, and when that has come but its task has not run yet. Then nothing is lost or out of
order, what it was called on goes on, and no task, waiter or thread is left. The awaitables are discovered, so a new one
fails here until it is in the table.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import pytest

import lvq_kafka
from lvq_kafka import (
    TEXT,
    AttachedView,
    Consumer,
    Entry,
    LastValueQueue,
    Limits,
    Message,
    Producer,
    View,
    Watch,
    attach,
)
from lvq_kafka.errors import Closed, QueueMismatch
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

When = Literal["before", "after"]
"""Whether a task is cancelled before or after what it waits for has come."""

SIX = list("012345")


class Suspended:
    """Drives an awaitable, and has its task cancelled at one of its suspensions.

    Args:
        at: the number of the suspension, from 0.
        feed: called at the first suspension; brings what is waited for.
    """

    def __init__(self, awaitable: Awaitable[Any], at: int, when: When, feed: Callable[[], object]) -> None:
        self._steps = awaitable.__await__()
        self._at = at
        self._when = when
        self._feed = feed
        self.cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        number, raised = 0, None
        while True:
            try:
                waits = self._steps.send(None) if raised is None else self._steps.throw(raised)
            except StopIteration as end:
                return end.value
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            if number == self._at:
                self.cancelled = True
                if self._when == "before" or waits is None:
                    loop.call_soon(task.cancel)
                else:  # before the task's own callback, which wakes it
                    waits.add_done_callback(lambda _, cancel=task.cancel: cancel())
            if number == 0 and not (self._at == 0 and self._when == "before"):
                loop.call_soon(self._feed)
            number, raised = number + 1, None
            try:
                yield waits
            except BaseException as error:  # noqa: BLE001  # it is for the awaitable
                raised = error


class Scene:
    """A standard queue, a queue of last values, and all that is open on them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack
        self.cluster = MemoryCluster()
        self.queue = LastValueQueue.declare("q", key_header="k", value=TEXT, conflate=False, cluster=self.cluster)
        self.values = LastValueQueue.declare("v", key_header="k", value=TEXT, cluster=self.cluster)
        self.fed = False
        self.place: Path | None = None

    def feed(self) -> None:
        """Store six messages in each queue, once."""
        if not self.fed:
            self.fed = True
            for number in SIX:
                self.cluster.write("q", None, number.encode())
                self.cluster.write("v", number.encode(), number.encode(), [("k", number.encode())])

    async def consumer(self, **options: Any) -> Consumer[str]:
        options = {"commit_interval": 0.01, "revoke_grace": 0.0, **options}
        consumer = await self.stack.enter_async_context(await self.queue.consumer_async(**options))
        await asyncio.to_thread(eventually, lambda: has_read_all(consumer))  # nothing else wakes what waits
        return consumer

    async def view(self) -> View[str]:
        return await self.stack.enter_async_context(indexed(self.values.view()))

    async def store(self) -> Path:
        """Return the directory of a store, of a view that is open."""
        if self.place is None:
            self.place = Path(self.stack.enter_context(TemporaryDirectory())) / "store"
            await self.stack.enter_async_context(indexed(self.values.view(store=self.place, metadata_interval=0.02)))
        return self.place

    async def attached(self) -> AttachedView[str]:
        return await self.stack.enter_async_context(attach(await self.store(), value=TEXT))

    def producer(self, **options: Any) -> Producer[str]:
        return self.stack.enter_context(self.values.producer(**options))


def indexed(view: View[str]) -> View[str]:
    view.index("value", by=lambda entry: entry.value)
    return view


Attempt = Callable[[], Awaitable[Any]]
Check = Callable[[list[Any]], Awaitable[None]]


class Case(NamedTuple):
    """An awaitable, and a check of the list of its results, which is empty if it was cancelled."""

    attempt: Attempt
    check: Check


Play = Callable[[Scene], Awaitable[Case]]


async def nothing(results: list[Any]) -> None:
    """Check nothing more than what is checked after each case."""


def has_read_all(consumer: Consumer[str]) -> bool:
    stats = consumer.stats
    return bool(stats.partitions) and not stats.catching_up


def remains(consumer: Consumer[str]) -> int:
    """Return how many callers wait for messages."""
    return len(consumer._shared._waiters.present)


async def all_six(consumer: Consumer[str], got: list[Any], step: Callable[[], Awaitable[Any]]) -> None:
    """Check that the rest comes step by step, and that all six came once and in order."""
    values = []
    for delivery in got:
        values += [each.value for each in (delivery if isinstance(delivery, list) else [delivery])]
        for each in delivery if isinstance(delivery, list) else [delivery]:
            each.ack()
    while len(values) < 6:
        delivery = await asyncio.wait_for(step(), 10)
        for each in delivery if isinstance(delivery, list) else [delivery]:
            values.append(each.value)
            each.ack()
    assert values == SIX
    assert consumer.stats.in_work == 0
    assert remains(consumer) == 0


def acquiring(name: str, *arguments: Any, of_session: bool = False, **options: Any) -> Play:
    async def play(scene: Scene) -> Case:
        consumer = await scene.consumer(**options)
        of: Any = scene.stack.enter_context(consumer.session()) if of_session else consumer
        return Case(
            lambda: getattr(of, name)(*arguments), lambda got: all_six(consumer, got, lambda: of.acquire_async(10))
        )

    return play


def iterating(prefetch: int, *, of_session: bool = False, again: bool = False) -> Play:
    """Iterate; after the cancelled step with the same iteration, or with another one."""

    async def play(scene: Scene) -> Case:
        consumer = await scene.consumer(prefetch=prefetch)
        of: Any = scene.stack.enter_context(consumer.session()) if of_session else consumer
        steps = [aiter(of)]

        async def step() -> Any:
            if again:
                steps[:] = [aiter(of)]
            return await anext(steps[0])

        return Case(lambda: anext(steps[0]), lambda got: all_six(consumer, got, step))

    return play


async def play_aclose_of_deliveries(scene: Scene) -> Case:
    scene.feed()
    consumer = await scene.consumer(prefetch=3)
    steps = aiter(consumer)
    first = await anext(steps)
    return Case(steps.aclose, lambda got: all_six(consumer, [first], lambda: consumer.acquire_async(10)))


def closing(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        scene.feed()
        consumer = await scene.queue.consumer_async(commit_interval=60)
        delivery = await consumer.acquire_async(10)
        assert delivery is not None
        delivery.ack()

        async def check(got: list[Any]) -> None:
            await asyncio.to_thread(eventually, lambda: scene.cluster.groups.member_count("lvq.q") == 0)
            with pytest.raises(Closed):
                await consumer.acquire_async(0)
            assert scene.queue.stats().depth == 5, "what was acked is committed"

        call = (lambda: consumer.__aexit__(None, None, None)) if name == "__aexit__" else consumer.aclose
        return Case(call, check)

    return play


async def play_consumer_aenter(scene: Scene) -> Case:
    consumer = await scene.consumer()
    return Case(consumer.__aenter__, lambda got: all_six(consumer, [], lambda: consumer.acquire_async(10)))


def of_session(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        scene.feed()
        consumer = await scene.consumer()
        session = consumer.session()
        call = session.__aenter__ if name == "__aenter__" else lambda: session.__aexit__(None, None, None)
        return Case(call, lambda got: all_six(consumer, [], lambda: consumer.acquire_async(10)))

    return play


def opening(call: Callable[[Scene], Callable[[], Awaitable[Any]]]) -> Play:
    """Open something, which is closed in the background if that is cancelled, and open it once more."""

    async def play(scene: Scene) -> Case:
        attempt = call(scene)

        async def check(got: list[Any]) -> None:
            again = await asyncio.wait_for(attempt(), 10)
            for each in (*got, again):
                await each.aclose()
            await asyncio.to_thread(eventually, lambda: scene.cluster.groups.member_count("lvq.q") == 0)

        return Case(attempt, check)

    return play


async def play_alter_async(scene: Scene) -> Case:
    """A cancelled alteration may be carried out all the same. Altered once more, the queue is as it was asked to be."""

    async def check(got: list[Any]) -> None:
        with suppress(QueueMismatch):  # both at once
            await asyncio.wait_for(scene.queue.alter_async(max_delay=9.0), 10)
        assert scene.queue.newest().max_delay == 9.0

    return Case(lambda: scene.queue.alter_async(max_delay=9.0), check)


def reader_opening(kind: str, name: str) -> Play:
    async def play(scene: Scene) -> Case:
        scene.feed()
        readers = [getattr(scene.values, kind)() for _ in range(2)]

        async def check(got: list[Any]) -> None:
            if not got:
                await asyncio.to_thread(eventually, lambda: readers[0].state == "closed")
            else:
                await readers[0].aclose()
            async with readers[1] as reader:
                events = reader if kind == "view" else [each.key for each in reader.drain() if isinstance(each, Entry)]
                assert list(events) == SIX

        return Case(getattr(readers[0], name), check)

    return play


def reader_closing(kind: str, name: str) -> Play:
    async def play(scene: Scene) -> Case:
        reader = getattr(scene.values, kind)()
        await reader.open_async()

        async def check(got: list[Any]) -> None:
            await asyncio.to_thread(eventually, lambda: reader.state == "closed")

        return Case((lambda: reader.__aexit__(None, None, None)) if name == "__aexit__" else reader.aclose, check)

    return play


def attached_opening(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        scene.feed()
        readers = [attach(await scene.store(), value=TEXT) for _ in range(2)]

        async def check(got: list[Any]) -> None:
            if not got:
                await asyncio.to_thread(eventually, lambda: readers[0].state == "closed")
            else:
                await readers[0].aclose()
            async with readers[1] as reader:
                await reader.barrier_async()
                assert list(reader) == SIX

        return Case(getattr(readers[0], name), check)

    return play


def attached_closing(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        reader = attach(await scene.store(), value=TEXT)
        await reader.open_async()

        async def check(got: list[Any]) -> None:
            await asyncio.to_thread(eventually, lambda: reader.state == "closed")

        return Case((lambda: reader.__aexit__(None, None, None)) if name == "__aexit__" else reader.aclose, check)

    return play


def view_waiting(name: str, *arguments: Any, attached: bool = False, **options: Any) -> Play:
    async def play(scene: Scene) -> Case:
        scene.feed()
        view: View[str] | AttachedView[str] = await (scene.attached() if attached else scene.view())

        async def check(got: list[Any]) -> None:
            outcome = await asyncio.wait_for(getattr(view, name)(*arguments, **options), 10)
            assert list(view) == SIX
            if isinstance(outcome, Watch):
                for watch in (outcome, *got):
                    watch.close()

        return Case(lambda: getattr(view, name)(*arguments, **options), check)

    return play


async def seen(steps: Any, got: list[Any]) -> None:
    """Check that an iteration over events goes on, and that its entries are all six in order."""
    keys = [event.key for event in got if isinstance(event, Entry)]
    while len(keys) < 6:
        event = await asyncio.wait_for(anext(steps), 10)
        if isinstance(event, Entry):
            keys.append(event.key)
    assert keys == SIX


def browsing(*, dump: bool) -> Play:
    async def play(scene: Scene) -> Case:
        if dump:
            scene.feed()
        browser = scene.values.browser(dump=True)
        scene.stack.push_async_callback(browser.aclose)
        return Case(lambda: anext(browser), lambda got: seen(browser, got))

    return play


async def play_refresh(scene: Scene) -> Case:
    scene.feed()
    browser = await scene.stack.enter_async_context(scene.values.browser(refresh=60))

    async def check(got: list[Any]) -> None:
        await asyncio.wait_for(browser.refresh_async(), 10)
        await seen(browser, [])

    return Case(browser.refresh_async, check)


def watching(*, dump: bool, **options: Any) -> Play:
    async def play(scene: Scene) -> Case:
        watch = (await scene.view()).watch(dump=dump, **options)
        return Case(lambda: anext(watch), lambda got: seen(watch, got))

    return play


def watch_ending(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        watch = (await scene.view()).watch()

        async def check(got: list[Any]) -> None:
            if name != "__aenter__":
                assert [event async for event in watch] == []

        calls: dict[str, Attempt] = {
            "__aenter__": watch.__aenter__,
            "__aexit__": lambda: watch.__aexit__(None, None, None),
            "aclose": watch.aclose,
        }
        return Case(calls[name], check)

    return play


def queue_ending(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        queue = await LastValueQueue.open_async("q", cluster=scene.cluster)
        calls: dict[str, Attempt] = {
            "__aenter__": queue.__aenter__,
            "__aexit__": lambda: queue.__aexit__(None, None, None),
            "aclose": queue.aclose,
        }
        return Case(calls[name], nothing)

    return play


def sending(name: str) -> Play:
    """Send to a queue that is full until it is fed; what is sent next is the newest."""

    async def play(scene: Scene) -> Case:
        limits = Limits(messages=1, policy="block", resume=1.0)
        full = LastValueQueue.declare("full", key_header="k", value=TEXT, limits=limits, cluster=scene.cluster)
        producer = scene.stack.enter_context(full.producer(max_block=20.0))
        (await producer.put_async("a", "1")).result(10)
        scene.feed = lambda: producer.delete("a")  # type: ignore[assignment,method-assign]

        def send(value: str) -> Awaitable[Any]:
            if name == "put_async":
                return producer.put_async("b", value)
            return producer.send_async(Message(value, headers={"k": "b"}))

        async def check(got: list[Any]) -> None:
            producer.delete("a")
            receipt = await asyncio.wait_for(send("newer"), 20)
            await receipt
            await asyncio.to_thread(eventually, lambda: not async_threads())
            with full.view() as view:
                assert dict(view) == {"b": "newer"}

        return Case(lambda: send("older"), check)

    return play


class FullUntilFed:
    """A writer that has no room for another record at first."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.has_room = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


async def play_delete_async(scene: Scene) -> Case:
    """Delete a key while the local buffer is full until it is fed."""
    producer = scene.stack.enter_context(scene.values.producer())
    producer.put("kept", "1")
    full: Any = FullUntilFed(producer.writer)
    producer.writer = full
    scene.feed = lambda: setattr(full, "has_room", True)  # type: ignore[method-assign]

    async def check(got: list[Any]) -> None:
        full.has_room = True
        await (await asyncio.wait_for(producer.delete_async("other"), 20))
        with scene.values.view() as view:
            assert "other" not in view
            assert view["kept"] == "1"

    return Case(lambda: producer.delete_async("other"), check)


def producer_ending(name: str) -> Play:
    async def play(scene: Scene) -> Case:
        producer = scene.values.producer()
        for key in SIX:
            producer.put(key, key)
        calls: dict[str, Attempt] = {
            "__aenter__": producer.__aenter__,
            "__aexit__": lambda: producer.__aexit__(None, None, None),
            "aclose": producer.aclose,
            "flush_async": producer.flush_async,
        }

        async def check(got: list[Any]) -> None:
            if name in ("__aenter__", "flush_async"):
                await asyncio.wait_for(producer.flush_async(), 10)
                await producer.aclose()
            async with scene.values.view() as view:
                assert list(view) == SIX

        return Case(calls[name], check)

    return play


async def play_settlement(scene: Scene) -> Case:
    scene.feed()
    consumer = await scene.consumer(commit_interval=0.05)
    delivery = await consumer.acquire_async(10)
    assert delivery is not None
    settlement = delivery.ack()

    async def wait() -> None:
        await settlement

    async def check(got: list[Any]) -> None:
        await asyncio.wait_for(wait(), 10)
        assert scene.queue.stats().depth == 5

    return Case(wait, check)


async def play_receipt(scene: Scene) -> Case:
    producer = scene.producer()
    scene.cluster.disconnect()
    receipt = producer.put("a", "1")
    scene.feed = scene.cluster.reconnect  # type: ignore[method-assign]

    async def wait() -> Any:
        return await receipt

    async def check(got: list[Any]) -> None:
        scene.cluster.reconnect()
        assert str(await asyncio.wait_for(wait(), 10)) == "v/0/0"

    return Case(wait, check)


PLAYS: dict[str, list[Play]] = {
    "AsyncDeliveries.__anext__": [iterating(1), iterating(3), iterating(3, again=True), iterating(2, of_session=True)],
    "AsyncDeliveries.aclose": [play_aclose_of_deliveries],
    "Consumer.acquire_async": [
        acquiring("acquire_async"),
        acquiring("acquire_async", 5.0),
        acquiring("acquire_async", durable_counts=True),
    ],
    "Consumer.acquire_many_async": [acquiring("acquire_many_async", 3, 5.0)],
    "Consumer.aclose": [closing("aclose")],
    "Consumer.__aenter__": [play_consumer_aenter],
    "Consumer.__aexit__": [closing("__aexit__")],
    "Session.acquire_async": [acquiring("acquire_async", 5.0, of_session=True)],
    "Session.acquire_many_async": [acquiring("acquire_many_async", 2, of_session=True)],
    "Session.__aenter__": [of_session("__aenter__")],
    "Session.__aexit__": [of_session("__aexit__")],
    "Settlement.__await__": [play_settlement],
    "Receipt.__await__": [play_receipt],
    "LastValueQueue.open_async": [opening(lambda s: lambda: LastValueQueue.open_async("q", cluster=s.cluster))],
    "LastValueQueue.at_async": [opening(lambda s: lambda: LastValueQueue.at_async("q", cluster=s.cluster))],
    "LastValueQueue.declare_async": [
        opening(lambda s: lambda: LastValueQueue.declare_async("new", key_header=None, cluster=s.cluster))
    ],
    "LastValueQueue.alter_async": [play_alter_async],
    "LastValueQueue.producer_async": [opening(lambda s: s.queue.producer_async)],
    "LastValueQueue.consumer_async": [opening(lambda s: s.queue.consumer_async)],
    "LastValueQueue.receiver_async": [opening(lambda s: s.queue.receiver_async)],
    **{f"LastValueQueue.{name}": [queue_ending(name)] for name in ("__aenter__", "__aexit__", "aclose")},
    **{f"Producer.{name}": [sending(name)] for name in ("put_async", "send_async")},
    "Producer.delete_async": [play_delete_async],
    **{f"Producer.{name}": [producer_ending(name)] for name in ("__aenter__", "__aexit__", "aclose", "flush_async")},
    "View.open_async": [reader_opening("view", "open_async")],
    "View.__aenter__": [reader_opening("view", "__aenter__")],
    "View.__aexit__": [reader_closing("view", "__aexit__")],
    "View.aclose": [reader_closing("view", "aclose")],
    "View.wait_caught_up_async": [view_waiting("wait_caught_up_async")],
    "View.barrier_async": [view_waiting("barrier_async")],
    "View.wait_for_async": [view_waiting("wait_for_async", "v/0/5")],
    "View.page_async": [view_waiting("page_async")],
    "View.scan_async": [view_waiting("scan_async")],
    "View.find_async": [view_waiting("find_async", "value", "1")],
    "View.top_async": [view_waiting("top_async", 2, by="value")],
    "View.snapshot_async": [view_waiting("snapshot_async")],
    "View.watch_async": [view_waiting("watch_async")],
    "AttachedView.open_async": [attached_opening("open_async")],
    "AttachedView.__aenter__": [attached_opening("__aenter__")],
    "AttachedView.__aexit__": [attached_closing("__aexit__")],
    "AttachedView.aclose": [attached_closing("aclose")],
    "AttachedView.wait_caught_up_async": [view_waiting("wait_caught_up_async", attached=True)],
    "AttachedView.barrier_async": [view_waiting("barrier_async", attached=True)],
    "AttachedView.wait_for_async": [view_waiting("wait_for_async", "v/0/5", attached=True)],
    "AttachedView.page_async": [view_waiting("page_async", attached=True)],
    "AttachedView.scan_async": [view_waiting("scan_async", attached=True)],
    "AttachedView.find_async": [view_waiting("find_async", "value", "1", attached=True)],
    "AttachedView.top_async": [view_waiting("top_async", 2, attached=True, by="value")],
    "AttachedView.snapshot_async": [view_waiting("snapshot_async", attached=True)],
    "AttachedView.watch_async": [view_waiting("watch_async", attached=True)],
    "Browser.open_async": [reader_opening("browser", "open_async")],
    "Browser.__aenter__": [reader_opening("browser", "__aenter__")],
    "Browser.__aexit__": [reader_closing("browser", "__aexit__")],
    "Browser.aclose": [reader_closing("browser", "aclose")],
    "Browser.refresh_async": [play_refresh],
    "Browser.__anext__": [browsing(dump=True), browsing(dump=False)],
    "Watch.__anext__": [watching(dump=False), watching(dump=True), watching(dump=False, every=0.01)],
    **{f"Watch.{name}": [watch_ending(name)] for name in ("__aenter__", "__aexit__", "aclose")},
}
"""By the awaitable as it is discovered."""

CASES = [(f"{name}-{number}", play) for name, plays in PLAYS.items() for number, play in enumerate(plays)]


def discovered() -> Iterator[str]:
    """Yield everything public that is awaited."""
    for name in lvq_kafka.__all__:
        public = getattr(lvq_kafka, name)
        assert not inspect.iscoroutinefunction(public), "a function that is not in a class"
        if inspect.isclass(public) and public.__module__.startswith("lvq_kafka"):
            for each, member in inspect.getmembers(public):
                private = each.startswith("_") and not each.endswith("__")
                if each == "__await__" or (not private and inspect.iscoroutinefunction(member)):
                    yield f"{name}.{each}"


def async_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lvq-async"]


async def play_out(play: Play, at: int, when: When) -> bool:
    """Cancel an awaitable at one of its suspensions. Return False if it had not so many."""
    before = asyncio.all_tasks()
    cancelled = False
    async with AsyncExitStack() as stack:
        scene = Scene(stack)
        case = await play(scene)
        suspended = Suspended(case.attempt(), at, when, lambda: scene.feed())
        task = asyncio.ensure_future(drive(suspended))
        done, _ = await asyncio.wait([task], timeout=20)
        assert done, "it went on after it was cancelled"
        cancelled = suspended.cancelled
        results = [] if task.cancelled() else [task.result()]
        scene.feed()
        await case.check(results)
        del case, task, suspended, results, done
    await asyncio.to_thread(eventually, lambda: not async_threads())
    assert asyncio.all_tasks() == before
    return cancelled


async def drive(suspended: Suspended) -> Any:
    return await suspended


def test_everything_that_is_awaited_is_in_the_table() -> None:
    assert {*discovered()} == {*PLAYS}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("play", [play for _, play in CASES], ids=[name for name, _ in CASES])
def test_a_cancelled_await_loses_nothing_and_leaves_nothing(play: Play, when: When) -> None:

    async def main() -> None:
        at = 0
        while await play_out(play, at, when):
            at += 1
        gc.collect()
        await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        faults: list[dict[str, Any]] = []
        runner.get_loop().set_exception_handler(lambda loop, context: faults.append(context))
        runner.run(main())
    assert not faults
