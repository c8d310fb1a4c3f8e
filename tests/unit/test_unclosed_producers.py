"""Producers that nobody closes: what they took is stored all the same, nobody waits for that, and they say so."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import DeliveryFailed, DeliveryUnknown
from lvq_kafka.producing import unclosed_producers
from lvq_kafka.producing.producer import Producer
from lvq_kafka.producing.unclosed_producers import UnclosedProducer
from lvq_kafka.runtime import exiting
from lvq_kafka.testing import MemoryCluster
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return LastValueQueue.declare("q", key_header="k", cluster=memory_cluster, value=TEXT)


@pytest.fixture
def slow() -> Iterator[MockCluster]:
    """Yield a cluster that answers late, with a topic ``q`` of one partition."""
    mock = MockCluster()
    mock.create_topic("q", 1)
    mock.set_latency(100)
    yield mock
    mock.close()


def left_behind() -> AbstractContextManager[object]:
    return pytest.warns(
        ResourceWarning, match=r"unclosed producer of q: one .*opened at .*test_unclosed_producers\.py:"
    )


def still_open() -> list[UnclosedProducer]:
    """Return those of this file."""
    things = list(exiting._open.things)
    return [thing for thing in things if isinstance(thing, UnclosedProducer) and __file__ in thing._place]


def all_ended() -> bool:
    return not still_open()


def deliveries() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lvq-kafka-deliveries"]


def test_a_receipt_outlives_its_producer(slow: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    with LastValueQueue("q", key_header=None, value=TEXT, bootstrap_servers=slow.bootstrap_servers) as queue:
        with left_behind():
            receipt = queue.producer().put("a", "1")
        assert receipt.result(30) == Position("q", 0, 0)
    eventually(all_ended)
    assert "closing the producer of q, which was dropped without being closed: one that was opened at" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_dropped_producer_gives_back_its_threads_and_descriptors(slow: MockCluster) -> None:
    with LastValueQueue("q", key_header=None, value=TEXT, bootstrap_servers=slow.bootstrap_servers) as queue:
        with queue.producer() as producer:  # connects what all share
            producer.put("a", "1")
        held = len(os.listdir("/proc/self/fd"))
        with left_behind():
            for _ in range(8):
                queue.producer().put("a", "1")
        eventually(all_ended)
        eventually(lambda: not deliveries())
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= held)


def test_one_in_an_outage_is_stored_when_that_is_over(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster
) -> None:
    memory_cluster.disconnect()
    with left_behind():
        receipt = queue.producer().put("a", "1")
    assert not receipt.done()
    memory_cluster.reconnect()
    assert receipt.result(10).offset == 0
    eventually(all_ended)


def test_messages_that_it_could_not_store_are_logged(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = queue.producer()
    for error in (DeliveryFailed("no room", code="X"), DeliveryUnknown("no answer", code="Y")):
        memory_cluster.fail_next("append", error)
        producer.put("a", "1")
    with left_behind():
        del producer
    said = "the producer of q, closed in the background: no room 1 more message for 'q' may have been stored."
    eventually(lambda: said in caplog.text)
    eventually(all_ended)


def test_an_open_transaction_is_aborted_and_logged_with_its_number(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = queue.producer(transactional_id="feed")
    producer.writer.begin_transaction()
    producer.put("a", "1")
    producer.put("b", "1")
    with left_behind():
        del producer
    eventually(all_ended)
    assert "A transaction of 2 messages for 'q' was aborted." in caplog.text
    assert memory_cluster.records("q") == []
    with queue.producer(transactional_id="feed") as another, another.transaction():
        another.put("a", "2")


def test_it_can_be_dropped_below_any_lock(queue: LastValueQueue[str], memory_cluster: MemoryCluster) -> None:
    """Python collects garbage anywhere, also where the list of threads is locked."""
    dropped: list[Producer[str]] = [queue.producer()]
    with memory_cluster._state.changed, threading._active_limbo_lock, left_behind():  # type: ignore[attr-defined]
        dropped.clear()
    eventually(all_ended)


def test_one_that_no_thread_can_close_is_left_to_the_exit(
    queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(*_: Any) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(unclosed_producers, "start_new_thread", no_more)
    with left_behind():
        queue.producer().put("a", "1")
    (thing,) = still_open()
    assert thing.finish(1.0) == []
    exiting.ended(thing)


def test_one_that_was_closed_is_dropped_without_a_word(queue: LastValueQueue[str]) -> None:
    producer = queue.producer()
    producer.put("a", "1")
    producer.close()
    del producer
    gc.collect()
    assert all_ended()


def test_it_is_not_dropped_while_a_transaction_of_it_is_open(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster
) -> None:
    with left_behind(), queue.producer(transactional_id="feed").transaction() as producer:
        producer.put("a", "1")
        producer = None  # type: ignore[assignment]
        gc.collect()
    assert [record.value for record in memory_cluster.records("q")] == [b"1"]
    eventually(all_ended)


def test_closing_that_is_cancelled_logs_what_it_could_not_store(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        producer = await queue.producer_async()
        memory_cluster.disconnect()
        producer.put("a", "1")
        closing = asyncio.ensure_future(producer.aclose(0.05))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        while not all_ended():
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 30))
    eventually(lambda: "the producer of q, closed in the background: 1 message for 'q' not acknowledged" in caplog.text)


def test_a_thread_that_drops_the_last_reference_does_not_wait(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster
) -> None:
    dropped: list[Producer[str]] = [queue.producer()]
    memory_cluster.disconnect()
    dropped[0].put("a", "1")
    with left_behind():
        dropper = Thread(target=dropped.clear)
        dropper.start()
        dropper.join(30)
        assert not dropper.is_alive()
    assert not all_ended()
    memory_cluster.reconnect()
    eventually(all_ended)
