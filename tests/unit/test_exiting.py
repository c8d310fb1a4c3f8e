"""The end of a process with everything that may still be open then, in each of its states."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.runtime import exiting
from tests.unit.ending import Programs, programs
from tests.unit.kafka.mock_cluster import PRODUCE, MockCluster

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork")

_LATENCY = 150  # ms, so that nothing is decided when a program ends

OPEN = """
import os, signal, sys, threading
from lvq_kafka import LastValueQueue, Message
queue = LastValueQueue("t", key_header=None, bootstrap_servers=sys.argv[1])

def send(producer, number=20):
    for key in range(number):
        producer.put(key, b"v")

"""


@pytest.fixture(scope="module")
def ran() -> Iterator[Programs]:
    with programs() as started:
        yield started


@pytest.fixture
def slow() -> Iterator[MockCluster]:
    """Yield a cluster that answers late, with a topic ``t`` of one partition."""
    mock = MockCluster()
    mock.create_topic("t", 1)
    mock.set_latency(_LATENCY)
    yield mock
    mock.close()


def stored(mock: MockCluster) -> int:
    mock.set_latency(0)
    cluster = KafkaCluster(ClientConfig(mock.bootstrap_servers))
    try:
        return cluster.logs.end_offsets("t")[0]
    finally:
        cluster.close()


@dataclass(frozen=True)
class Case:
    """A program, and the number of messages stored when it has ended."""

    name: str
    program: str
    stored: int = 20
    code: int = 0
    errors: str = ""
    """A regular expression for all of stderr."""


# The line is missing if the program ends before the thread that writes it has begun.
DROPPED = r"(closing the producer of t, which was dropped .*program\.py:\d+\. Use a with block, or close it\n)?"

CASES = [
    Case("idle", "producer = queue.producer()", stored=0),
    Case("undecided messages", "producer = queue.producer(); send(producer)"),
    Case("closed", "producer = queue.producer(); send(producer); producer.close()"),
    Case(
        "an exception that nobody catches",
        "producer = queue.producer(); send(producer); raise ZeroDivisionError('mine')",
        code=1,
        errors=r"Traceback[^\0]*ZeroDivisionError: mine\n",
    ),
    Case("sys.exit", "producer = queue.producer(); send(producer); sys.exit(7)", code=7),
    Case(
        "a handler of SIGTERM that exits",
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        producer = queue.producer()
        send(producer)
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()
        """,
        code=143,
    ),
    Case(
        "such a handler, within a with block",
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with queue.producer() as producer:
            send(producer)
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()
        """,
        code=143,
    ),
    Case(
        "a thread that sends when the main thread has ended",
        """
        producer = queue.producer()

        def work():
            threading.main_thread().join()
            send(producer)

        threading.Thread(target=work).start()
        """,
    ),
    Case(
        "a daemon thread",
        """
        def work():
            producer = queue.producer()
            send(producer)
            sent.set()
            threading.Event().wait()

        sent = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        sent.wait()
        """,
    ),
    Case("dropped", "send(queue.producer())", errors=DROPPED),
    Case(
        "a standard queue",
        """
        standard = LastValueQueue("t", key_header=None, conflate=False, cluster=queue.cluster)
        producer = standard.producer()
        for _ in range(20):
            producer.send(Message(b"v"))
        """,
    ),
    Case(
        "asyncio",
        """
        import asyncio

        async def main():
            global producer
            producer = await queue.producer_async()
            send(producer)

        asyncio.run(main())
        """,
    ),
    Case(
        "asyncio, closing that is cancelled",
        """
        import asyncio

        async def main():
            global producer
            producer = await queue.producer_async()
            send(producer)
            closing = asyncio.ensure_future(producer.aclose())
            await asyncio.sleep(0)
            closing.cancel()

        asyncio.run(main())
        """,
    ),
    Case(
        "several producers",
        """
        producers = [queue.producer() for _ in range(4)]
        for producer in producers:
            send(producer, 5)
        """,
    ),
    Case(
        "a function at exit that still sends",
        """
        import atexit
        producer = queue.producer()
        atexit.register(send, producer)
        """,
    ),
    Case(
        "a fork that has nothing to do with it",
        """
        producer = queue.producer()
        send(producer)
        if not os.fork():
            sys.exit(0)
        os.wait()
        """,
    ),
    Case(
        "a fork with a producer of its own",
        """
        producer = queue.producer()
        send(producer, 5)
        if not os.fork():
            own = LastValueQueue("t", key_header=None, bootstrap_servers=sys.argv[1]).producer()
            send(own, 15)
            sys.exit(0)
        os.wait()
        """,
    ),
    *(
        Case(
            f"a child of multiprocessing by {method}",
            f"""
            import multiprocessing

            def work(servers):
                global producer
                producer = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
                send(producer)

            if __name__ == "__main__":
                child = multiprocessing.get_context({method!r}).Process(target=work, args=(sys.argv[1],))
                child.start()
                child.join()
                sys.exit(child.exitcode)
            """,
        )
        for method in ("fork", "spawn")
    ),
    Case(
        "a child of multiprocessing whose threads go on",
        """
        import multiprocessing
        from concurrent.futures import ThreadPoolExecutor

        def go_on(producer):
            over.wait()
            send(producer)

        def work(servers):
            global producer, over
            over = threading.Event()
            threading._register_atexit(over.set)  # when the main thread has nothing left to do
            producer = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
            ThreadPoolExecutor(1).submit(go_on, producer)

        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
        """,
    ),
    Case(
        "a child of multiprocessing whose threads open the first one at the end",
        """
        import multiprocessing
        from concurrent.futures import ThreadPoolExecutor

        def go_on(servers):
            global producer
            over.wait()
            producer = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
            send(producer)

        def work(servers):
            global over
            over = threading.Event()
            threading._register_atexit(over.set)  # when the main thread has nothing left to do
            ThreadPoolExecutor(1).submit(go_on, servers)

        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
        """,
    ),
    Case(
        "a child of multiprocessing whose threads open theirs at the same time",
        """
        import multiprocessing
        from concurrent.futures import ThreadPoolExecutor

        def work(servers):
            both, parent_process = threading.Barrier(2), multiprocessing.process.parent_process
            multiprocessing.process.parent_process = lambda: (both.wait(10), parent_process())[1]

            def send_some(_):
                producer = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
                send(producer, 10)
                return producer

            with ThreadPoolExecutor(2) as pool:
                global producers
                producers = list(pool.map(send_some, range(2)))
            over = threading.Event()
            threading._register_atexit(over.set)  # when the main thread has nothing left to do
            threading.Thread(target=over.wait).start()

        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join(20)
        child.kill()  # without effect on one that has ended
        child.join()
        sys.exit(child.exitcode)
        """,
    ),
    Case(
        "a child of multiprocessing that fails",
        """
        import multiprocessing

        def work(servers):
            global producer
            producer = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
            send(producer)
            sys.exit(7)

        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        sys.exit(child.exitcode)
        """,
        code=7,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_g14_messages_that_a_producer_has_accepted_are_stored_when_its_process_exits(
    ran: Programs, slow: MockCluster, tmp_path: Path, case: Case
) -> None:
    ended = ran.run(tmp_path, OPEN, case.program, slow.bootstrap_servers)
    assert ended.code == case.code, ended.errors
    assert re.fullmatch(case.errors, ended.errors), ended.errors
    assert stored(slow) == case.stored


# -------------------------------------------------------------------- the rest is reported


SHORTLY = """
import lvq_kafka.runtime.exiting, lvq_kafka.producing.producer
lvq_kafka.runtime.exiting._TOGETHER = lvq_kafka.producing.producer._EXIT_FLUSH = 0.1
"""


def lost(number: int) -> str:
    messages = "1 message" if number == 1 else f"{number} messages"
    return (
        rf"lvq_kafka: {messages} for 't' may be lost: not acknowledged when the program ended\. Close the producer, or "
        r"use a with block: one that was opened at .*program\.py:\d+\.\n"
    )


GONE = [
    Case("idle", "producer = queue.producer()"),
    Case("undecided messages", "producer = queue.producer(); send(producer, 17)", errors=lost(17)),
    Case("one message", "producer = queue.producer(); send(producer, 1)", errors=lost(1)),
    Case(
        "closed, and that was reported",
        """
        from contextlib import suppress
        producer = queue.producer()
        send(producer)
        with suppress(Exception):
            producer.close(0.05)
        """,
    ),
    Case(
        "an exception that nobody catches",
        "producer = queue.producer(); send(producer); raise ZeroDivisionError('mine')",
        code=1,
        errors=rf"Traceback[^\0]*ZeroDivisionError: mine\n{lost(20)}",
    ),
    Case(
        "a handler of SIGTERM that exits, within a with block",
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        with queue.producer() as producer:
            send(producer)
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()
        """,
        code=143,
        errors=r"lvq_kafka: .*\. 19 more messages for 't' were not stored\.\n",
    ),
    Case("dropped", "send(queue.producer())", errors=DROPPED + lost(20)),
    Case(
        "several producers",
        """
        producers = [queue.producer() for _ in range(3)]
        for number, producer in enumerate(producers, 1):
            send(producer, number)
        """,
        errors=lost(1) + lost(2) + lost(3),
    ),
    Case(
        "asyncio, with a task that is cancelled",
        """
        import asyncio

        async def main():
            async with queue.producer() as producer:
                send(producer)
                asyncio.current_task().cancel()
                await asyncio.sleep(60)

        try:
            asyncio.run(main())
        except asyncio.CancelledError:
            pass
        """,
        errors=r"lvq_kafka: .*\. 19 more messages for 't' were not stored\.\n",
    ),
    Case(
        "a fork that has nothing to do with it",
        """
        producer = queue.producer()
        send(producer)
        if not os.fork():
            sys.exit(0)
        os.wait()
        """,
        errors=lost(20),
    ),
    Case(
        "a child of multiprocessing, with a producer of its own",
        """
        import multiprocessing

        def work(servers):
            global own
            own = LastValueQueue("t", key_header=None, bootstrap_servers=servers).producer()
            send(own, 3)

        producer = queue.producer()
        send(producer, 5)
        child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
        """,
        errors=lost(3) + lost(5),
    ),
    Case(
        "no stderr",
        "producer = queue.producer(); send(producer); sys.stderr = None",
    ),
]


@pytest.mark.parametrize("case", GONE, ids=lambda case: case.name)
def test_messages_that_cannot_be_stored_are_reported_once_with_their_number(
    ran: Programs, slow: MockCluster, tmp_path: Path, case: Case
) -> None:
    slow.down(1)
    ended = ran.run(tmp_path, OPEN + SHORTLY, case.program, slow.bootstrap_servers)
    assert ended.code == case.code, ended.errors
    assert re.fullmatch(case.errors, ended.errors), ended.errors


REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("seen", [False, True])
def test_a_failure_that_nobody_has_seen_is_said(ran: Programs, slow: MockCluster, tmp_path: Path, seen: bool) -> None:
    slow.fail_next(PRODUCE, REFUSED)
    program = f"""
    producer = queue.producer()
    receipt = producer.put("a", b"v")
    if {seen}:
        receipt.exception(30)
    """
    ended = ran.run(tmp_path, OPEN, program, slow.bootstrap_servers)
    assert ended.code == 0
    assert re.fullmatch(
        "" if seen else r"lvq_kafka: Cannot store the message for key 'a' in 't': .*\n", ended.errors
    ), ended.errors


def test_a_transaction_that_the_end_interrupts_is_aborted_and_said(
    ran: Programs, slow: MockCluster, tmp_path: Path
) -> None:
    program = """
    producer = queue.producer(transactional_id="feed")

    def work():
        with producer.transaction():
            send(producer, 3)
            sent.set()
            threading.Event().wait()

    sent = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    sent.wait()
    """
    slow.set_latency(0)
    ended = ran.run(tmp_path, OPEN, program, slow.bootstrap_servers)
    assert ended.code == 0
    said = (
        r"lvq_kafka: A transaction of 3 messages for 't' was aborted: the program ended within it\. Its producer: .*\n"
    )
    assert re.fullmatch(said, ended.errors), ended.errors


# -------------------------------------------------------------------- in the shell


LVQ = """
import os, signal, sys, threading
from lvq_kafka.runtime import exiting
from lvq_kafka.cli import main
reading, writing = os.pipe()
os.dup2(reading, 0)
for key in range(20):
    os.write(writing, b'{"key": "%d", "value": "v"}\\n' % key)

def end():
    while not any(len(thing._writer._client) for thing in exiting._open.things):
        threading.Event().wait(0.001)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end, daemon=True).start()
sys.argv[:] = ["lvq", "-b", sys.argv[1], "put", "t", "--bare", "--from-jsonl", "-"]
"""


def test_lvq_sends_what_it_has_taken_before_a_signal_ends_it(ran: Programs, slow: MockCluster, tmp_path: Path) -> None:
    ended = ran.run(tmp_path, LVQ, "main()", slow.bootstrap_servers)
    assert ended.code == 143, ended.errors
    said = re.fullmatch(r"lvq: warning: stopped after (\d+) messages? for t; the rest was not sent\n", ended.errors)
    assert said is not None, ended.errors
    assert stored(slow) == int(said[1]) > 0


def test_lvq_says_what_it_could_not_send(ran: Programs, slow: MockCluster, tmp_path: Path) -> None:
    program = "import lvq_kafka.producing.producer; lvq_kafka.producing.producer._EXIT_FLUSH = 0.0; main()"
    ended = ran.run(tmp_path, LVQ, program, slow.bootstrap_servers)
    assert ended.code == 143, ended.errors
    assert "lvq: warning: stopped after " in ended.errors
    assert re.search(r"lvq_kafka: .*'t'", ended.errors), ended.errors


# -------------------------------------------------------------------- in memory, consumers among them


IN_MEMORY = """
import atexit, sys, threading
from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.runtime import exiting
from lvq_kafka.testing import MemoryCluster
cluster = MemoryCluster()
cluster.topics.create("dead", partitions=1, config={})
queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster)
with queue.producer() as filling:
    for key in "abc":
        filling.put(key, key)

def show():
    if not cluster._state.connected:
        return
    committed = cluster.groups.committed("lvq.q", "q")
    print(committed[0].offset if committed else 0, cluster.groups.member_count("lvq.q"), end=" ")
    print(*(record.value.decode() for topic in ("q", "dead") for record in cluster.records(topic)))

def reconnect_at_exit():
    def wait():
        while exiting._open.things:
            threading.Event().wait(0.001)
        cluster.reconnect()
    threading.Thread(target=wait, daemon=True).start()

def in_daemon(work):
    threading.Thread(target=work, daemon=True).start()

atexit.unregister(exiting._finish)
atexit.register(show)  # after the library
atexit.register(exiting._finish)
"""


@dataclass(frozen=True)
class InMemory:
    """A program, and what it leaves: the committed offset, the members of the group, and the values."""

    name: str
    program: str
    output: str
    errors: str = ""


MEMORY = [
    InMemory(
        "a producer, in an outage that ends",
        """
        producer = queue.producer()
        cluster.disconnect()
        producer.put("d", "d")
        reconnect_at_exit()
        """,
        "0 0 a b c d",
    ),
    InMemory(
        "a producer, in an outage that goes on",
        """
        exiting._TOGETHER = 0.05
        producer = queue.producer()
        cluster.disconnect()
        producer.put("d", "d")
        """,
        "",
        r"lvq_kafka: 1 message for 'q' may be lost: .*\n",
    ),
    InMemory(
        "a transaction, in an outage that goes on",
        """
        exiting._TOGETHER = 0.05
        producer = queue.producer(transactional_id="feed")

        def work():
            with producer.transaction():
                cluster.disconnect()
                producer.put("d", "d")
                sent.set()
                threading.Event().wait()

        sent = threading.Event()
        in_daemon(work)
        sent.wait()
        """,
        "",
        r"lvq_kafka: A transaction of 1 message for 'q' may not be committed: the program ended within it\. .*\n",
    ),
    InMemory("a consumer, idle", "consumer = queue.consumer()", "0 0 a b c"),
    InMemory(
        "a consumer, with an ack that is not committed yet",
        "consumer = queue.consumer(commit_interval=60); consumer.acquire(30).ack()",
        "1 0 a b c",
    ),
    InMemory(
        "a consumer, with a held message", "consumer = queue.consumer(); held = consumer.acquire(30)", "0 0 a b c"
    ),
    InMemory(
        "a consumer, closed", "consumer = queue.consumer(); consumer.acquire(30).ack(); consumer.close()", "1 0 a b c"
    ),
    InMemory(
        "a consumer, with a dead letter that is not stored yet",
        """
        consumer = queue.consumer(dead_letters="dead")
        delivery = consumer.acquire(30)
        cluster.disconnect()
        delivery.reject("no")
        reconnect_at_exit()
        """,
        "1 0 a b c a",
        r"[^\0]*was rejected and moved to dead: no\n[^\0]*",
    ),
    InMemory(
        "a consumer, with daemon threads that wait for messages, and one at work",
        """
        consumer = queue.consumer()

        def wait():
            for _ in range(3):
                delivery = consumer.acquire()
                if delivery.value == "c":
                    held.set()
                    threading.Event().wait()
                delivery.ack()

        held = threading.Event()
        for _ in range(3):
            in_daemon(wait)
        held.wait()
        """,
        "2 0 a b c",
    ),
    InMemory(
        "a consumer that calls a handler, in a daemon thread",
        """
        consumer = queue.consumer(commit_interval=60)
        done = threading.Event()
        in_daemon(lambda: consumer.run(lambda delivery: delivery.value == "c" and done.set()))
        done.wait()
        while consumer.stats.acked < 3:
            threading.Event().wait(0.001)
        """,
        "3 0 a b c",
    ),
    InMemory(
        "a consumer, within a transaction",
        """
        consumer, producer = queue.consumer(), queue.producer(transactional_id="feed")

        def work():
            with consumer.transaction(producer) as transaction:
                delivery = transaction.acquire(30)
                producer.put("d", "d")
                delivery.ack()
                settled.set()
                threading.Event().wait()

        settled = threading.Event()
        in_daemon(work)
        settled.wait()
        """,
        "0 0 a b c",
        r"lvq_kafka: A transaction of 1 message for 'q' was aborted: .*\n",
    ),
    InMemory(
        "a consumer, in an outage that goes on",
        """
        exiting._TOGETHER = 0.05
        consumer = queue.consumer(commit_interval=60)
        consumer.acquire(30).ack()
        cluster.disconnect()
        """,
        "",
        r"[^\0]*(delivered again)[^\0]*",
    ),
    InMemory(
        "asyncio",
        """
        import asyncio

        async def main():
            global consumer
            consumer = await queue.consumer_async(commit_interval=60)
            async for delivery in consumer:
                delivery.ack()
                break

        asyncio.run(main())
        """,
        "1 0 a b c",
    ),
    InMemory(
        "a view and a watch", "view = queue.view().open(); watch = view.watch(); browser = queue.browser()", "0 0 a b c"
    ),
]


@pytest.mark.parametrize("case", MEMORY, ids=lambda case: case.name)
def test_an_end_finishes_what_is_open(ran: Programs, tmp_path: Path, case: InMemory) -> None:
    ended = ran.run(tmp_path, IN_MEMORY, case.program)
    assert ended.code == 0, ended.errors
    assert ended.output.startswith(case.output)
    assert re.fullmatch(case.errors, ended.errors), ended.errors


# -------------------------------------------------------------------- the time that all have together


class Open:
    """Something open that records what it is asked."""

    def __init__(self, asked: list[tuple[str, float]], name: str, error: BaseException | None = None) -> None:
        self.asked, self.name, self.error = asked, name, error

    def refuse_more(self) -> None:
        self.asked.append((f"{self.name} takes no more", 0.0))

    def finish(self, timeout: float) -> list[str]:
        self.asked.append((self.name, timeout))
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return [f"{self.name} is left"]


def test_all_finish_within_one_deadline_and_ctrl_c_ends_the_wait_but_not_the_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float]] = []
    monkeypatch.setattr(exiting._open, "things", {})
    for thing in (Open(asked, "a"), Open(asked, "b", KeyboardInterrupt()), Open(asked, "c")):
        exiting.finish_at_exit(thing)
    exiting._finish()
    assert [name for name, _ in asked] == [*(f"{name} takes no more" for name in "abc"), "a", "b", "b", "c"]
    first, second, *others = [timeout for name, timeout in asked if len(name) == 1]
    assert 5.0 >= first >= second > 0.0
    assert others == [0.0, 0.0]
    assert capsys.readouterr().err == "".join(f"lvq_kafka: {name} is left\n" for name in "abc")
    exiting._finish()
    assert capsys.readouterr().err == "", "what has finished says nothing again"


def test_a_thread_that_is_just_being_started_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    unstarted = threading.Thread(target=int, daemon=False)
    seen = [[unstarted], []]
    finished: list[bool] = []
    monkeypatch.setattr(threading, "enumerate", lambda: seen.pop(0) if seen else [])
    monkeypatch.setattr(exiting, "_finish", lambda: finished.append(not seen))
    exiting._await_threads()
    assert finished == [True]


def test_one_that_fails_does_not_keep_the_others_from_finishing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float]] = []
    monkeypatch.setattr(exiting._open, "things", {})
    for thing in (Open(asked, "a", ZeroDivisionError("mine")), Open(asked, "b")):
        exiting.finish_at_exit(thing)
    exiting._finish()
    said = capsys.readouterr().err.splitlines()
    assert "did not finish: ZeroDivisionError('mine')" in said[0]
    assert said[1:] == ["lvq_kafka: b is left"]
