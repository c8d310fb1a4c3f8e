"""Objects that were opened before a fork: in the child, they say that they cannot be used there."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Condition, Event, Thread

import pytest

from lvq_kafka import TEXT, LastValueQueue, Limits
from lvq_kafka.cluster import Commit
from lvq_kafka.errors import BoundToProcess, LockLost, ReaderFailed
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.writer import KafkaWriter
from lvq_kafka.runtime import exiting
from lvq_kafka.runtime.mappings import copy_mappings
from lvq_kafka.testing import MemoryCluster
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork")


def in_child(act: Callable[[], object]) -> str:
    """Run ``act`` in a forked child, and return its result or error as text."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about such forks
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs on any lock; then there is no output
        try:
            answer = repr(act())
        except BaseException as error:  # noqa: BLE001  # the parent judges it
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
    """Hold the lock in another thread, as a library thread may at the moment of a fork."""
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
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    queue = LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster, value=TEXT)
    with queue.producer() as producer:
        producer.put("a", "1")
    return queue


def test_g5_a_view_does_not_serve_stale_values_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.view() as view:
        with held(Condition(view._follower.shared.lock)):
            assert in_child(lambda: view["a"]).startswith(f"{ReaderFailed.__name__}: ")
            assert "belongs to the process that opened it" in in_child(lambda: view["a"])
            assert in_child(lambda: view.state) == "'failed'"
            assert in_child(view.close) == "None"
        assert view["a"] == "1"


def test_a_watch_ends_with_an_error_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.browser() as browser:
        assert len(browser.drain()) == 2
        assert in_child(browser.poll).startswith(f"{ReaderFailed.__name__}: ")


def test_a_consumer_hands_nothing_out_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        with held(consumer._shared._changed):
            assert in_child(consumer.acquire).startswith(f"{BoundToProcess.__name__}: The consumer of prices belongs")
            assert in_child(delivery.ack).startswith(f"{LockLost.__name__}: ")
            assert in_child(consumer.close) == "None"
        delivery.ack(wait=True, timeout=30)


def paging_queue(cluster: MemoryCluster, keys: str) -> LastValueQueue[str]:
    """Return a queue with a long value for each of these keys. One of them has room in memory."""
    limits = Limits(messages=1, policy="disk")
    queue = LastValueQueue.declare("long", key_header="k", cluster=cluster, value=TEXT, limits=limits)
    with queue.producer() as producer:
        for key in keys:
            producer.put(key, key * 1000)
    return queue


def test_a_child_does_not_touch_the_pages_of_a_consumer(memory_cluster: MemoryCluster) -> None:
    with paging_queue(memory_cluster, "abc").consumer() as consumer:
        eventually(lambda: consumer.stats.paged == 2)
        pages = consumer._shared.pages
        assert pages is not None
        with pages.lock:
            assert in_child(lambda: (pages._segments, pages.write(b"x"), pages.trim())) == "([], None, None)"
        taken = [consumer.acquire(30) for _ in range(3)]
        assert [delivery and delivery.value for delivery in taken] == [key * 1000 for key in "abc"]


def test_a_child_writes_no_pages_of_what_was_set_aside(memory_cluster: MemoryCluster) -> None:
    with paging_queue(memory_cluster, "abcdef").consumer(prefetch=3) as consumer:
        eventually(lambda: consumer.stats.paged == 5)
        deliveries = iter(consumer)
        next(deliveries)  # two are set aside
        pages = consumer._shared.pages
        assert pages is not None
        (file,) = [segment.file for segment in pages._segments]
        end = file.seek(0, os.SEEK_END)
        assert in_child(lambda: consumer.stats.paged) == "0"
        assert file.tell() == end, "the child has moved the parent's place in the file"
        assert [next(deliveries).value for _ in range(5)] == [key * 1000 for key in "bcdef"]


def test_a_settlement_does_not_wait_for_ever_in_a_child(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster
) -> None:
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        memory_cluster.disconnect()
        settlement = delivery.ack()
        assert not settlement.done()
        assert in_child(settlement.result).startswith(f"{ReaderFailed.__name__}: ")
        memory_cluster.reconnect()
        settlement.result(30)


def test_a_settlement_in_a_transaction_does_not_wait_for_ever_in_a_child(queue: LastValueQueue[str]) -> None:
    with queue.consumer() as consumer, queue.producer(transactional_id="t") as producer:
        with consumer.transaction(producer) as tx:
            delivery = tx.acquire(30)
            assert delivery is not None
            settlement = delivery.ack()
            assert in_child(settlement.result).startswith(f"{BoundToProcess.__name__}: The settlement belongs")
        settlement.result(30)


def test_a_producer_takes_nothing_in_a_child() -> None:
    mock = MockCluster()
    mock.create_topic("t", 1)
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    sent = writer.append("t", b"k", b"1")
    assert in_child(lambda: writer.append("t", b"k", b"2")).startswith(
        f"{BoundToProcess.__name__}: This writer belongs"
    )
    assert in_child(lambda: (writer.flush(), writer.close())) == "(0, 0)"
    assert sent.result(10).offset == 0
    assert writer.append("t", b"k", b"3").result(10).offset == 1
    mock.set_latency(300)
    late = writer.append("t", b"k", b"4")
    assert "The outcome of a send was lost" in in_child(late.result)
    assert late.result(10).offset == 2
    writer.close()
    mock.close()


def test_a_child_neither_closes_nor_finishes_the_producers_of_its_parent(queue: LastValueQueue[str]) -> None:
    with queue.producer() as producer:
        dropped = [producer]
        assert producer._unclosed in exiting._open.things
        del producer

        def drop() -> object:
            dropped.clear()
            exiting._finish()
            return exiting._open.things

        assert in_child(drop) == "{}"
        assert dropped[0].put("a", "2").result(10).offset == 1


@pytest.fixture
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Yield a connection that was asked about a group, so that it keeps a consumer for it."""
    mock = MockCluster()
    mock.create_topic("t", 1)
    cluster = KafkaCluster(mock.bootstrap_servers)
    cluster.groups.commit("g", "t", {0: Commit(3)})
    assert cluster.groups.committed("g", "t") == {0: Commit(3)}
    yield cluster
    cluster.close()
    mock.close()


def test_a_queue_can_be_closed_in_a_child(kafka_cluster: KafkaCluster) -> None:
    queue = LastValueQueue("t", key_header=None, cluster=kafka_cluster)
    assert in_child(queue.close) == "None"
    assert in_child(lambda: (kafka_cluster.close(), kafka_cluster.close())) == "(None, None)"
    assert kafka_cluster.groups.committed("g", "t") == {0: Commit(3)}


QUESTIONS: dict[str, Callable[[KafkaCluster], object]] = {
    "topic": lambda cluster: cluster.topics.describe("t"),
    "ends": lambda cluster: cluster.logs.end_offsets("t"),
    "commits": lambda cluster: cluster.groups.committed("g", "t"),
    "commits of known partitions": lambda cluster: cluster.groups.committed("g", "t", partitions=1),
    "commit": lambda cluster: cluster.groups.commit("g", "t", {0: Commit(4)}),
    "assigned": lambda cluster: cluster.groups.assigned("g", "t", "m"),
    "members": lambda cluster: cluster.groups.member_count("g"),
    "reader": lambda cluster: cluster.reader("t", {0: 0}),
    "writer": lambda cluster: cluster.writer(),
    "group": lambda cluster: cluster.groups.delete("g"),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=list(QUESTIONS))
def test_any_request_over_the_parents_connection_is_refused_in_a_child(
    kafka_cluster: KafkaCluster, ask: Callable[[KafkaCluster], object]
) -> None:
    with held(Condition(kafka_cluster.groups._decided._of("g").lock)):  # type: ignore[arg-type]
        answer = in_child(lambda: ask(kafka_cluster))
    assert answer.startswith(f"{BoundToProcess.__name__}: This connection belongs to the process that opened it.")


def test_a_child_has_connections_of_its_own(kafka_cluster: KafkaCluster) -> None:
    def ask() -> object:
        with closing(KafkaCluster(kafka_cluster.config)) as cluster:
            return cluster.groups.committed("g", "t")

    assert in_child(ask).startswith("{0: Commit(offset=3,")


USED: dict[str, str] = {
    "questions": "kept = cluster.topics.describe('t')",
    "commits": "kept = cluster.groups.committed('g', 't')",
    "reader": "kept = cluster.reader('t', {0: 0}); kept.poll(1)",
    "writer": "kept = cluster.writer(); kept.append('t', b'k', b'v').result(10)",
    "view": "kept = LastValueQueue('t', key_header=None, cluster=cluster).view().open()",
}


@pytest.mark.parametrize("use", USED.values(), ids=list(USED))
def test_a_child_that_ends_in_the_ordinary_way_does_so(kafka_cluster: KafkaCluster, use: str) -> None:
    """Python frees the remaining objects then. A client without its threads would crash, or wait for them."""
    program = f"""
import os, signal, sys
from lvq_kafka import LastValueQueue
from lvq_kafka.kafka import KafkaCluster
signal.alarm(60)
cluster = KafkaCluster({kafka_cluster.config.bootstrap_servers!r})
{use}
child = os.fork()
if child:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(1, str(code).encode())
    os._exit(0)
signal.alarm(20)
del cluster, kept
sys.exit(7)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert ran.stdout == "7", ran.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is mapped")
def test_a_mapping_that_was_copied_is_seen_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "a shared one"
    path.write_bytes(b"shared" + bytes(8192))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
        assert not copy_mappings(tmp_path / "another")
        assert copy_mappings(path)
        assert shared[:6] == b"shared"
        shared[:6] = b"hidden"
        assert path.read_bytes()[:6] == b"shared"
