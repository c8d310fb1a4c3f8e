"""asyncio programs on a real broker: requests that time out, and the event loop during a long dump."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import enumerate as all_threads
from typing import Any

import pytest

from lvq_kafka import TEXT, EndOfDump, LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from tests.waiting import eventually


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> LastValueQueue[str]:
    kafka_cluster.topics.create(topic_name, partitions=1, config={"cleanup.policy": "compact"})
    return LastValueQueue(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 60))


def test_openings_that_are_cancelled_behind_an_open_transaction_hold_up_nobody(queue: LastValueQueue[str]) -> None:
    """As in requests with a timeout while a producer is stuck, with more requests than the executor has threads."""
    with queue.producer(transactional_id=queue.name) as hanging:

        async def request() -> None:
            async with asyncio.timeout(0.5), queue.view(catch_up_timeout=60):
                pytest.fail("it was opened")

        async def main() -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
            requests = [asyncio.create_task(request()) for _ in range(8)]
            await asyncio.sleep(0)
            await asyncio.to_thread(lambda: None)
            assert not any(request.done() for request in requests)
            outcomes = await asyncio.gather(*requests, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {TimeoutError}

        with hanging.transaction():
            hanging.put("a", "1").result(20)
            run(main())
            left = ("lvq-async", f"lvq-read-{queue.topic}", f"lvq-observe-{queue.topic}")
            eventually(lambda: not [thread.name for thread in all_threads() if thread.name in left], 30)


def test_requests_that_are_left_half_way_leave_nothing_behind(queue: LastValueQueue[str]) -> None:
    with queue.producer() as producer:
        for number in range(1000):
            producer.put(number, "v")

    async def first(view: Any) -> None:
        async for _ in view.watch(dump=True):
            break

    async def waits(view: Any, waiting: asyncio.Queue[None]) -> None:
        async for event in view.watch(dump=True):
            if isinstance(event, EndOfDump):
                waiting.put_nowait(None)

    async def main() -> None:
        async with queue.view() as view, queue.producer() as producer:
            notifier, waiting = view._follower.shared.notifier, asyncio.Queue[None]()
            for _ in range(50):
                await first(view)
            requests = [asyncio.create_task(waits(view, waiting)) for _ in range(50)]
            for _ in range(50):
                await waiting.get()
            while requests:
                requests.pop().cancel()
            gc.collect()
            await producer.put("another", "v")
            await view.barrier_async()
            assert len(notifier) == 0

    run(main())
