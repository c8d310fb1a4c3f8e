"""Blocking calls in asyncio: separate threads, immediate cancellation, and nothing left open without an owner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from threading import Event
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, Entry, LastValueQueue
from lvq_kafka.errors import CatchUpTimeout, Closed, ConfigError, QueueNotDeclared
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.testing import MemoryCluster
from tests.unit.polling import before_polls
from tests.waiting import eventually


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it in a loop whose default executor is useless: all its threads are busy until the end."""

    async def with_a_full_executor() -> Any:
        executor = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(executor)
        free = Event()
        executor.submit(free.wait, 30)
        try:
            return await asyncio.wait_for(main, 20)
        finally:
            free.set()

    return asyncio.run(with_a_full_executor())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lvq-async"]


class TestInThread:
    def test_it_gives_what_the_call_returns_or_raises(self) -> None:
        async def main() -> None:
            assert await in_thread(lambda: 1) == 1
            with pytest.raises(ConfigError, match="wrong"):
                await in_thread(fail)

        def fail() -> None:
            raise ConfigError("wrong")

        run(main())

    def test_the_call_sees_the_context_of_the_task(self) -> None:
        request = ContextVar[str]("request")

        async def main() -> str:
            request.set("17")
            return await in_thread(request.get)

        assert run(main()) == "17"

    def test_a_cancelled_task_goes_on_at_once_and_a_later_result_of_the_call_is_undone(self) -> None:
        begun, go_on, aborted = Event(), Event(), Event()
        undone: list[str] = []

        def call() -> str:
            begun.set()
            go_on.wait(10)
            return "opened"

        async def main() -> None:
            task = asyncio.create_task(in_thread(call, abort=aborted.set, undo=undone.append))
            await in_thread(lambda: begun.wait(10))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert aborted.is_set()
            assert not go_on.is_set()

        run(main())
        assert undone == []
        go_on.set()
        eventually(lambda: undone == ["opened"])

    @pytest.mark.parametrize("told", [False, True], ids=["before the loop knows", "before the task does"])
    def test_a_result_returned_before_the_task_is_cancelled_is_undone_too(self, told: bool) -> None:
        undone: list[str] = []
        aborted = Event()

        async def main() -> None:
            task = asyncio.create_task(in_thread(lambda: "opened", abort=aborted.set, undo=undone.append))
            await asyncio.sleep(0)  # let the thread start
            eventually(lambda: not threads())  # it ends while the loop is blocked
            if told:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        run(main())
        eventually(lambda: undone == ["opened"])
        assert not aborted.is_set()

    def test_a_result_that_comes_when_the_loop_is_gone_is_undone(self) -> None:
        go_on = Event()
        undone: list[str] = []

        def call() -> str:
            go_on.wait(10)
            return "opened"

        loop = asyncio.new_event_loop()
        task = loop.create_task(in_thread(call, undo=undone.append))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        go_on.set()
        eventually(lambda: undone == ["opened"])
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # nothing ends it, on purpose


def test_a_queue_is_used_from_its_declaration_to_its_end_without_the_executor_of_the_loop() -> None:
    cluster = MemoryCluster()

    async def main() -> None:
        with pytest.raises(QueueNotDeclared):
            await LastValueQueue.open_async("prices", cluster=cluster)
        async with await LastValueQueue.declare_async(
            "prices", key_header="ticker", cluster=cluster, value=TEXT
        ) as queue:
            assert queue.declaration is not None
        async with await LastValueQueue.open_async("prices", cluster=cluster, value=TEXT) as queue:
            async with queue.producer() as producer, queue.view() as view:
                position = await producer.put("IBM", "1")
                await view.wait_for_async(position)
                await view.wait_for_async(str(position), 5)
                producer.put("MSFT", "2")
                await producer.flush_async(5)
                assert await view.barrier_async(5) == {0: 2}
                await view.wait_caught_up_async()
                assert dict(await view.snapshot_async()) == {"IBM": "1", "MSFT": "2"}
            async with await queue.consumer_async(max_in_work=1) as consumer:
                async for delivery in consumer:
                    await delivery.ack()
                    break
            with pytest.raises(Closed):
                await consumer.acquire_async()
            async with queue.browser(refresh=60) as browser:
                told = await anext(browser)
                assert isinstance(told, Entry)
                assert (told.key, await anext(browser)) == ("MSFT", EndOfDump({0: 2}))
                async with await queue.consumer_async() as consumer:
                    delivery = await anext(aiter(consumer))
                    await delivery.ack()
                await browser.refresh_async()
                assert await anext(browser) == Deleted("MSFT", consumed=True)
            async with await queue.producer_async(transactional_id="t") as producer:
                with producer.transaction():
                    producer.put("FB", "3")
            await producer.aclose()

    run(main())


def test_options_that_are_wrong_are_named_as_without_asyncio(memory_cluster: MemoryCluster) -> None:
    async def main() -> None:
        queue = await LastValueQueue.declare_async("prices", key_header=None, cluster=memory_cluster)
        with pytest.raises(ConfigError, match="nonsense"):
            await queue.consumer_async(nonsense=1)
        with pytest.raises(ConfigError, match=r"start must be .* not 'now'"):
            await LastValueQueue.declare_async("others", key_header=None, cluster=memory_cluster, start="now")
        async with queue.view() as view:
            with pytest.raises(ConfigError, match="is not in prices"):
                await view.wait_for_async("others/0/1")
            with pytest.raises(CatchUpTimeout, match=r"within 0\.05 s"):
                await view.wait_for_async("prices/0/7", 0.05)

    run(main())


@pytest.mark.parametrize("kind", ["view", "browser"])
def test_openings_that_are_cancelled_end_at_once_and_are_closed_in_the_background(
    memory_cluster: MemoryCluster, kind: str
) -> None:
    """Many of them, as from requests that timed out: none waits for another one's thread."""
    queue = LastValueQueue.declare("prices", key_header=None, cluster=memory_cluster)
    memory_cluster.write("prices", b"a", b"1")
    go_on = Event()
    before_polls(memory_cluster, lambda reader, poll: go_on.wait(20))
    readers = [getattr(queue, kind)(catch_up_timeout=None) for _ in range(40)]

    async def main() -> None:
        tasks = [asyncio.create_task(reader.open_async()) for reader in readers]
        await in_thread(lambda: eventually(lambda: all(reader._follower.shared.catch_up.begun for reader in readers)))
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
        assert not go_on.is_set()

    run(main())
    eventually(lambda: {reader.state for reader in readers} == {"closed"})
    go_on.set()
    eventually(lambda: not threads())


def test_a_consumer_whose_opening_is_cancelled_leaves_the_group(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("prices", key_header=None, cluster=memory_cluster)
    asking, go_on = Event(), Event()
    committed = memory_cluster.groups.committed

    def ask(*args: Any, **options: Any) -> Any:
        asking.set()
        assert go_on.wait(10)
        return committed(*args, **options)

    async def main() -> None:
        task = asyncio.create_task(queue.consumer_async())
        await in_thread(lambda: asking.wait(10))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    memory_cluster.groups.committed = ask  # type: ignore[assignment,method-assign]
    run(main())
    go_on.set()
    eventually(lambda: not threads())
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "lvq-consume-prices"])


@pytest.mark.parametrize("wait", ["wait_caught_up_async", "barrier_async", "wait_for_async"])
def test_a_task_that_stops_waiting_leaves_no_thread_that_waits(memory_cluster: MemoryCluster, wait: str) -> None:
    queue = LastValueQueue.declare("prices", key_header=None, cluster=memory_cluster)
    go_on = Event()
    before_polls(memory_cluster, lambda reader, poll: go_on.wait(20))
    memory_cluster.write("prices", b"a", b"1")
    view = queue.view().start()
    arguments = ["prices/0/0"] if wait == "wait_for_async" else []

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await getattr(view, wait)(*arguments, timeout=None)

    try:
        run(main())
        eventually(lambda: not threads())
    finally:
        go_on.set()
        view.close()
