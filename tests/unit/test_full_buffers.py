"""Tasks that send while the local buffer is full: the event loop goes on (G14)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, Limits, Message
from lvq_kafka.errors import Closed, OutcomeUnknown, TransportError
from lvq_kafka.producing.producer import Producer
from lvq_kafka.testing import MemoryCluster, memory_writer

ROOM = 3

Queue = LastValueQueue[str]


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_writer, "BUFFER_LIMIT", ROOM)


@pytest.fixture(params=[None, Limits(messages=100, policy="block")], ids=["without limits", "with limits"])
def queue(memory_cluster: MemoryCluster, request: pytest.FixtureRequest) -> Queue:
    return LastValueQueue.declare("q", key_header="k", value=TEXT, limits=request.param, cluster=memory_cluster)


@pytest.fixture
def unlimited(memory_cluster: MemoryCluster) -> Queue:
    return LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=memory_cluster)


async def full_producer(queue: Queue, cluster: MemoryCluster, **options: Any) -> Producer[str]:
    """Open a producer, and fill its local buffer in an outage."""
    producer = await queue.producer_async(**options)
    cluster.disconnect()
    for number in range(ROOM):
        await producer.put_async(f"{number}", "1")
    return producer


async def turns(number: int = 20) -> None:
    """Let other tasks run, so that those that send have found the buffer full."""
    for _ in range(number):
        await asyncio.sleep(0.001)


def test_g14_tasks_that_wait_for_room_send_in_order_and_the_event_loop_goes_on(
    queue: Queue, memory_cluster: MemoryCluster
) -> None:
    async def main() -> None:
        async with await full_producer(queue, memory_cluster) as producer:
            sends = [asyncio.create_task(producer.put_async("b", f"{number}")) for number in range(10)]
            sends.append(asyncio.create_task(producer.send_async(Message("10", headers={"k": "b"}))))
            sends.append(asyncio.create_task(producer.delete_async("b")))
            await turns()
            assert not any(send.done() for send in sends)
            memory_cluster.reconnect()
            for receipt in await asyncio.gather(*sends):
                await receipt

    asyncio.run(main())
    written = [record.value for record in memory_cluster.records("q") if record.key == b"b"]
    assert written == [*(b"%d" % number for number in range(11)), None]


def test_g14_a_task_that_is_cancelled_while_it_waits_for_room_sends_nothing(
    queue: Queue, memory_cluster: MemoryCluster
) -> None:
    async def main() -> None:
        async with await full_producer(queue, memory_cluster) as producer:
            cancelled, other = (asyncio.create_task(producer.put_async(key, "1")) for key in ("b", "c"))
            await turns()
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            memory_cluster.reconnect()
            await (await other)

    asyncio.run(main())
    assert [record.key for record in memory_cluster.records("q")] == [b"0", b"1", b"2", b"c"]


def test_g14_the_wait_of_a_task_for_room_can_be_limited(unlimited: Queue, memory_cluster: MemoryCluster) -> None:
    async def main() -> None:
        async with await full_producer(unlimited, memory_cluster, max_block=0.05) as producer:
            with pytest.raises(TransportError, match="The local buffer is full") as caught:
                await producer.put_async("b", "1")
            assert caught.value.code == "_QUEUE_FULL"
            memory_cluster.reconnect()
            await (await producer.put_async("b", "2"))

    asyncio.run(main())
    assert memory_cluster.records("q")[-1].value == b"2"


def test_g14_a_task_that_waits_for_room_hears_that_its_producer_is_closed(
    unlimited: Queue, memory_cluster: MemoryCluster
) -> None:
    async def main() -> None:
        producer = await full_producer(unlimited, memory_cluster)
        send = asyncio.create_task(producer.put_async("b", "1"))
        await turns()
        with pytest.raises(OutcomeUnknown):
            await producer.aclose(0)
        with pytest.raises(Closed):
            await send

    asyncio.run(main())
