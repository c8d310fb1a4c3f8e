"""What was open before a fork says in the child that it is of no use there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event, Thread

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.errors import LockLost, ReaderFailed, StateError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.writer import KafkaWriter
from lvq_kafka.testing import MemoryLog
from tests.unit.kafka.mock_cluster import MockCluster

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork")


def in_child(act: Callable[[], object]) -> str:
    """Do it in a forked child, and return what it returned or raised, as text."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of what this test is about
        child = os.fork()
    if child == 0:
        try:
            answer = repr(act())
        except BaseException as error:  # noqa: BLE001  # all of it is for the parent to judge
            answer = f"{type(error).__name__}: {error}"
        os.write(tell, answer.encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@contextmanager
def held(lock: Condition) -> Iterator[None]:
    """Another thread has the lock, as one of the library's may have it at the moment of a fork."""
    taken, done = Event(), Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait(30)

    thread = Thread(target=hold)
    thread.start()
    assert taken.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def queue(memory_log: MemoryLog) -> LastValueQueue[str]:
    queue = LastValueQueue.declare("prices", key_header="ticker", log=memory_log, value=TEXT)
    with queue.producer() as producer:
        producer.put("a", "1")
    return queue


def test_g5_a_view_does_not_serve_stale_values_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.view() as view:
        with held(view._follower.changed):
            assert in_child(lambda: view["a"]).startswith(f"{ReaderFailed.__name__}: ")
            assert "belongs to the process that opened it" in in_child(lambda: view["a"])
            assert in_child(lambda: view.state) == "'failed'"
            assert in_child(view.close) == "None"
        assert view["a"] == "1"


def test_a_watch_ends_with_an_error_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.browser() as browser:
        assert len(browser.drain()) == 2
        assert in_child(browser.take).startswith(f"{ReaderFailed.__name__}: ")


def test_a_consumer_hands_nothing_out_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        with held(consumer._holdings._changed):
            assert in_child(consumer.acquire).startswith(f"{StateError.__name__}: The consumer of prices belongs")
            assert in_child(delivery.ack).startswith(f"{LockLost.__name__}: ")
            assert in_child(consumer.close) == "None"
        delivery.ack(wait=True, timeout=30)


def test_a_settlement_does_not_wait_for_ever_in_a_child(queue: LastValueQueue[str], memory_log: MemoryLog) -> None:
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        memory_log.disconnect()
        settlement = delivery.ack()
        assert not settlement.done()
        assert in_child(settlement.result).startswith(f"{ReaderFailed.__name__}: ")
        memory_log.reconnect()
        settlement.result(30)


def test_a_settlement_in_a_transaction_does_not_wait_for_ever_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.consumer() as consumer, queue.producer(transactional_id="t") as producer:
        with consumer.transaction(producer) as tx:
            delivery = tx.acquire(30)
            assert delivery is not None
            settlement = delivery.ack()
            assert in_child(settlement.result).startswith(f"{StateError.__name__}: The settlement belongs")
        settlement.result(30)


def test_a_producer_takes_nothing_in_a_child() -> None:
    cluster = MockCluster()
    cluster.create_topic("t", 1)
    writer = KafkaWriter(ClientConfig(cluster.bootstrap_servers))
    sent = writer.append("t", b"k", b"1")
    assert in_child(lambda: writer.append("t", b"k", b"2")).startswith(f"{StateError.__name__}: This writer belongs")
    assert in_child(lambda: (writer.flush(), writer.close())) == "(0, 0)"
    assert sent.result(10).offset == 0
    assert writer.append("t", b"k", b"3").result(10).offset == 1
    cluster.set_latency(300)
    late = writer.append("t", b"k", b"4")
    assert "The outcome of a send was lost" in in_child(late.result)
    assert late.result(10).offset == 2
    writer.close()
    cluster.close()
