"""Tasks that send on librdkafka's mock cluster while the client takes no more: the event loop goes on (G14)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from lvq_kafka.cluster import Receipt
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster, writer
from lvq_kafka.producing.producer import Producer
from lvq_kafka.runtime.aio import at_once
from tests.rules import rules
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually


@contextmanager
def producing(mock: MockCluster, limit: float) -> Iterator[Producer[bytes]]:
    """Open a producer with a small buffer that gives up on a message after ``limit`` seconds."""
    properties = {
        "queue.buffering.max.messages": 100,
        "queue.buffering.max.kbytes": 1,
        "delivery.timeout.ms": round(1000 * limit),
    }
    cluster = KafkaCluster(ClientConfig(mock.bootstrap_servers, properties))
    with closing(cluster), Producer(cluster, rules(topic="t", key_header="k")) as producer:
        yield producer


def fill(producer: Producer[bytes], value: bytes) -> list[Receipt]:
    """Send until there is no room."""
    sent: list[Receipt] = []
    with suppress(TransportError), at_once():
        while True:
            sent.append(producer.put("a", value))
    return sent


async def in_the_end(producer: Producer[bytes]) -> None:
    """Store a message, so that the client knows the leader of its partition."""
    await asyncio.to_thread(eventually, lambda: producer.put("a", b"0").exception(10) is None)


@pytest.mark.parametrize("size", [1, 100], ids=["messages", "bytes"])
def test_g14_a_task_that_waits_for_room_keeps_no_others_waiting(mock: MockCluster, size: int) -> None:
    value, appends = b"v" * size, 0

    async def main() -> None:
        nonlocal appends
        with producing(mock, 120) as producer:
            await in_the_end(producer)
            mock.down()
            sent = fill(producer, value)
            append = producer.writer.append

            def counted(*record: Any) -> Any:
                nonlocal appends
                appends += 1
                return append(*record)

            producer._append = counted
            waits = [asyncio.create_task(producer.put_async("a", value)) for _ in range(5)]
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not any(send.done() for send in waits)
            assert appends == 0  # they look whether there is room
            mock.up()
            for receipt in sent + await asyncio.gather(*waits):
                await receipt

    asyncio.run(main())


def test_g14_tasks_run_on_while_the_writer_takes_none_before_it_gives_up_older_messages(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_HOLD", 20.0)

    async def main() -> None:
        with producing(mock, 0.5) as producer:
            await in_the_end(producer)
            mock.down()
            old = await producer.put_async("a", b"1")
            while producer.writer.has_room:
                await asyncio.sleep(0.01)
            send = asyncio.create_task(producer.put_async("b", b"2"))
            await asyncio.sleep(0.05)
            assert not old.done()
            assert not send.done()
            mock.up()
            for receipt in (old, await send):
                await asyncio.to_thread(receipt.exception, 60)

    asyncio.run(main())
