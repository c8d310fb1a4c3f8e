"""Producers of queues with limits that reject or block (R12), on the in-memory cluster."""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue as standard_queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka import TEXT, Depth, LastValueQueue, Limits, Message, Producer, ProducerOptions, TopicSpec, Ttl
from lvq_kafka.admitting import occupancy
from lvq_kafka.admitting.gates import AdmissionGate
from lvq_kafka.cluster import Receipt
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    ConfigError,
    DeliveryFailed,
    LVQError,
    MessageTooLarge,
    QueueFull,
    QueueNotDeclared,
    ReaderFailed,
    TopicNotFound,
)
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules
from tests.waiting import eventually

Queue = LastValueQueue[str]


def declare(cluster: MemoryCluster, *, name: str = "q", **options: Any) -> Queue:
    return LastValueQueue.declare(name, key_header="k", value=TEXT, cluster=cluster, **options)


def rejecting(cluster: MemoryCluster, messages: int | None = 2, **options: Any) -> Queue:
    return declare(cluster, limits=Limits(messages=messages, policy="reject"), **options)


def blocking(cluster: MemoryCluster, messages: int = 2, resume: float = 0.8) -> Queue:
    return declare(cluster, limits=Limits(messages=messages, policy="block", resume=resume))


def consume(queue: Queue, count: int = 1) -> None:
    with queue.consumer(commit_interval=0.0) as consumer:
        for _ in range(count):
            delivery = consumer.acquire(10)
            assert delivery is not None
            delivery.ack(wait=True)


@contextmanager
def waiting_sender(send: Callable[[], Receipt]) -> Iterator[list[Receipt | LVQError]]:
    """Run a send in a thread; yield a list that its outcome is added to."""
    outcome: list[Receipt | LVQError] = []

    def run() -> None:
        try:
            outcome.append(send())
        except LVQError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield outcome
    thread.join(10)
    assert not thread.is_alive()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "lvq_kafka.limits"]


def fill(producer: Producer[str], *keys: str) -> None:
    for key in keys:
        producer.put(key, "1").result(10)


# -------------------------------------------------------------------- reject


def test_a_full_queue_refuses_new_keys_and_takes_updates_and_deletes(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster).producer() as producer:
        fill(producer, "a", "b", "b")
        with pytest.raises(QueueFull, match="holds 2 of 2 messages") as caught:
            producer.put("c", "1")
        assert isinstance(caught.value, standard_queue.Full)
        assert (caught.value.queue, caught.value.depth) == ("q", Depth(2, 8))
        producer.delete("a")
        producer.put("c", "1").result(10)
        producer.send(Message("longer", headers={"k": "b"})).result(10)
        with pytest.raises(QueueFull):
            producer.send(Message("1", headers={"k": "a"}))


def test_a_refused_message_was_not_sent(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster, 1).producer() as producer:
        fill(producer, "a")
        with pytest.raises(QueueFull):
            producer.put("c", "1")
    assert memory_cluster.logs.end_offsets("q") == {0: 1}


def test_messages_that_others_store_delete_and_consume_count_at_once(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster)
    with queue.producer() as producer, queue.producer() as other:
        fill(other, "a", "b")
        eventually(lambda: full(producer, "c"), 10)
        other.delete("a").result(10)
        fill(producer, "c")
        consume(queue)  # b
        fill(producer, "d")
        with pytest.raises(QueueFull):
            producer.put("b", "2")


def test_nothing_is_admitted_while_what_a_reset_brings_back_is_read(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = threading.Event()
    reads.set()

    class Slowly(occupancy.ValuesToSizes):
        def __call__(self, batch: RecordBatch) -> RecordBatch:
            assert reads.wait(10)
            return super().__call__(batch)

    monkeypatch.setattr(occupancy, "ValuesToSizes", Slowly)
    queue = rejecting(memory_cluster)
    with queue.producer() as producer:
        fill(producer, "a", "b")
    consume(queue, 2)
    with queue.producer() as producer:
        reads.clear()
        queue.reset("earliest")
        producer._gate._occupancy.ask(0.0)  # type: ignore[union-attr]
        with waiting_sender(lambda: producer.put("d", "1")) as outcome:
            assert not outcome
            reads.set()
        assert isinstance(outcome[0], QueueFull)
        assert outcome[0].depth.messages == 2


def full(producer: Producer[str], key: str) -> bool:
    """Return whether a new key is refused; if not, delete it again."""
    try:
        producer.put(key, "1").result(10)
    except QueueFull:
        return True
    producer.delete(key).result(10)
    return False


def is_stored(producer: Producer[str], key: str) -> bool:
    try:
        producer.put(key, "1").result(10)
    except LVQError:
        return False
    return True


def test_consumed_messages_are_known_of_each_partition(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 6, spec=TopicSpec(partitions=3))
    with queue.producer() as before:
        fill(before, *"abcdef")
        with queue.consumer(commit_interval=0.0) as consumer:
            held = [consumer.acquire(10) for _ in "abcdef"]
            assert {delivery.position.partition for delivery in held if delivery} == {0, 1, 2}
            for delivery in held[1:]:  # so something is done above what is not
                assert delivery is not None
                delivery.ack(wait=True)
            with queue.producer() as producer:  # one that counts it as it opens
                assert producer._gate._occupancy.depth.messages == 1  # type: ignore[union-attr]
                fill(before, *"ghijk")
                assert full(before, "l")
                eventually(lambda: full(producer, "l"), 10)


def test_messages_without_a_key_always_add(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster).producer() as producer:
        producer.send(Message("1")).result(10)
        producer.send(Message("1")).result(10)
        with pytest.raises(QueueFull):
            producer.send(Message("1"))


def test_messages_of_a_standard_queue_always_add(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, conflate=False)
    with queue.producer() as producer:
        for _ in range(2):
            producer.send(Message("1", headers={"k": "a"})).result(10)
        with pytest.raises(QueueFull):
            producer.send(Message("1", headers={"k": "a"}))
        consume(queue)
        producer.send(Message("1")).result(10)
        with pytest.raises(QueueFull):
            producer.send(Message("1"))


def test_bytes_are_those_of_keys_values_and_headers(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=Limits(bytes=26, policy="reject"))
    with queue.producer() as producer:
        producer.put("a", "1234567890").result(10)  # 13: the key twice, and the name of its header
        producer.put("b", "1234567890").result(10)
        with pytest.raises(QueueFull, match="holds 26 of 26 bytes"):
            producer.put("c", "")
        producer.put("a", "12345678901234567890").result(10)  # an update passes, though it makes the queue larger
        with pytest.raises(QueueFull, match="holds 36 of 26 bytes"):
            producer.put("c", "")
        with pytest.raises(MessageTooLarge, match="27 bytes, and the queue q may hold 26"):
            producer.put("a", "1" * 24)


def test_s125_a_ring_has_no_room_for_a_message_larger_than_itself(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=Limits(bytes=20, policy="ring"))
    with queue.producer() as producer:
        producer.put("a", "1" * 17).result(10)
        with pytest.raises(MessageTooLarge, match="21 bytes"):
            producer.put("a", "1" * 18)
        producer.delete("a").result(10)


def test_s125_a_partition_of_a_ring_has_no_room_for_a_message_larger_than_its_share(
    memory_cluster: MemoryCluster,
) -> None:
    limits = Limits(bytes=20, policy="ring")
    shared = declare(memory_cluster, limits=limits, spec=TopicSpec(partitions=2))
    with shared.producer() as producer:
        producer.put("a", "1" * 7).result(10)
        with pytest.raises(MessageTooLarge, match="11 bytes, and a partition of the queue q may hold 10 in all"):
            producer.put("a", "1" * 8)


def test_expired_messages_make_room(memory_cluster: MemoryCluster) -> None:
    passed = [0.0]
    cluster = MemoryCluster(clock=lambda: time.time() + passed[0])
    queue = rejecting(cluster, 1, ttl=Ttl(default=60.0))
    with queue.producer() as producer:
        fill(producer, "a")
        with pytest.raises(QueueFull):
            producer.put("b", "1")
        passed[0] = 61.0
        fill(producer, "b")


def test_scheduled_messages_count_once_they_are_due(memory_cluster: MemoryCluster) -> None:
    passed = [0.0]
    cluster = MemoryCluster(clock=lambda: time.time() + passed[0])
    queue = rejecting(cluster, 1, max_delay=3600.0)
    with queue.producer() as producer:
        producer.put("a", "1", not_before=cluster.now() + 60.0).result(10)
        eventually(lambda: not full(producer, "b"), 10)
        passed[0] = 61.0
        assert full(producer, "b")


def test_messages_that_the_queue_does_not_select_do_not_count(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1, selector="x = 'yes'")
    with queue.producer() as producer:
        producer.put("a", "1", {"x": "no"}).result(10)
        eventually(lambda: not full(producer, "b"), 10)
        producer.put("c", "1", {"x": "yes"}).result(10)
        assert full(producer, "b")
        producer.put("c", "1", {"x": "no"}).result(10)
        eventually(lambda: not full(producer, "b"), 10)


def test_a_queue_that_is_never_consumed_has_room_after_deletes(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster, 1, non_destructive=True).producer() as producer:
        fill(producer, "a")
        assert full(producer, "b")
        producer.delete("a")
        fill(producer, "b")


def test_a_queue_that_was_reset_is_as_full_as_before(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1)
    with queue.producer() as producer:
        fill(producer, "a")
        consume(queue)
        fill(producer, "b")
        consume(queue)
        assert not full(producer, "c")
        queue.reset("earliest")
        eventually(lambda: full(producer, "c"), 10)


def test_a_topic_that_is_created_anew_is_empty(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1, non_destructive=True)
    with queue.producer() as producer:
        fill(producer, "a")
        memory_cluster.topics.delete("q")
        memory_cluster.topics.create("q", partitions=1, config={"cleanup.policy": "compact"})
        eventually(lambda: is_stored(producer, "b"), 20)
    assert memory_cluster.logs.end_offsets("q") == {0: 1}


def send_in_transaction(producer: Producer[str], keys: str) -> None:
    with producer.transaction(10):
        for key in keys:
            producer.put(key, "1")


def test_a_transaction_counts_what_it_has_sent(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster)
    with queue.producer(transactional_id="t") as producer, queue.producer() as other:
        with pytest.raises(QueueFull):
            send_in_transaction(producer, "abc")
        eventually(lambda: not full(other, "d"), 10)
        with producer.transaction(10):
            producer.put("a", "1")
            producer.put("b", "1")
            with pytest.raises(QueueFull):
                producer.put("c", "1")
            producer.delete("a")
            producer.put("c", "1")
        eventually(lambda: full(other, "d"), 10)
    assert queue.stats().depth == 2


def test_a_send_that_fails_leaves_room(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster, 1).producer() as producer:
        memory_cluster.fail_next("append", DeliveryFailed("no", code="X"))
        receipt = producer.put("a", "1")
        fill(producer, "b")
        with pytest.raises(DeliveryFailed):
            producer.flush(10)
        assert receipt.position is None


def test_a_send_that_the_client_refuses_leaves_room(memory_cluster: MemoryCluster) -> None:
    with rejecting(memory_cluster, 1).producer() as producer:
        with pytest.raises(MessageTooLarge):
            producer.put("a", "1" * 2_000_000)
        fill(producer, "b")


def test_a_failure_is_not_seen_by_the_producer_that_counts(memory_cluster: MemoryCluster) -> None:
    producer = rejecting(memory_cluster).producer()
    memory_cluster.fail_next("append", DeliveryFailed("no", code="X"))
    producer.put("a", "1")
    with pytest.raises(DeliveryFailed):
        producer.close()


def test_a_breach_is_logged_once_per_crossing(memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lvq_kafka.limits")
    with rejecting(memory_cluster).producer() as producer:
        for _ in range(2):
            fill(producer, "a", "b")
            for _ in range(3):
                with pytest.raises(QueueFull):
                    producer.put("c", "1")
            producer.delete("a").result(10)
            producer.delete("b").result(10)
    assert logged(caplog) == 2 * [
        "the queue q is full: it holds 2 of 2 messages. Its producer refuses messages",
        "the queue q has room again",
    ]


# -------------------------------------------------------------------- block


def test_s129_a_blocked_producer_goes_on_once_the_queue_has_shrunk(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = blocking(memory_cluster, 4, 0.5)
    with queue.producer() as producer:
        fill(producer, *"abcd")
        with waiting_sender(lambda: producer.put("e", "1")) as outcome:
            eventually(lambda: logged(caplog), 10)
            fill(producer, "d")  # an update does not wait
            consume(queue)
            assert queue.stats().depth == 3
            assert not outcome
            consume(queue)
    assert not isinstance(outcome[0], LVQError)
    assert queue.stats().depth == 3
    assert logged(caplog) == ["the queue q is full: it holds 4 of 4 messages. Its producer waits"]


def test_a_blocked_producer_goes_on_when_others_delete(memory_cluster: MemoryCluster) -> None:
    queue = blocking(memory_cluster)
    with queue.producer() as producer, queue.producer() as other:
        fill(producer, "a", "b")
        with waiting_sender(lambda: producer.put("c", "1")) as outcome:
            other.delete("a").result(10)
            other.delete("b").result(10)
    assert not isinstance(outcome[0], LVQError)


def test_a_blocked_producer_gives_up_in_time(memory_cluster: MemoryCluster) -> None:
    queue = blocking(memory_cluster, 1)
    for wait in (0.3, 0.0):
        with queue.producer(max_block=wait) as producer:
            fill(producer, "a")
            with pytest.raises(QueueFull, match=f"is full, and has been for {wait:g} s: it holds 1 of 1 messages"):
                producer.put("b", "1")


def test_r12_a_queue_that_resumes_at_its_limit_never_holds_more(memory_cluster: MemoryCluster) -> None:
    queue = blocking(memory_cluster, 2, resume=1.0)
    with queue.producer(max_block=0.0) as producer:
        fill(producer, "a", "b")
        for key in "cde":
            with pytest.raises(QueueFull):
                producer.put(key, "1")
        consume(queue)
        fill(producer, "c")
        assert queue.stats().breach == ""
        with pytest.raises(QueueFull):
            producer.put("d", "1")


def test_a_producer_may_wait_for_room_for_as_long_as_it_takes(memory_cluster: MemoryCluster) -> None:
    queue = blocking(memory_cluster, 1)
    with queue.producer(max_block=None) as producer:
        fill(producer, "a")
        with waiting_sender(lambda: producer.put("b", "1")) as outcome:
            consume(queue)
    assert not isinstance(outcome[0], LVQError)


def test_a_blocked_producer_waits_out_an_outage(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = blocking(memory_cluster, 1)
    with queue.producer(max_block=20.0) as producer:
        fill(producer, "a")
        with waiting_sender(lambda: producer.put("b", "1")) as outcome:
            eventually(lambda: logged(caplog), 10)
            memory_cluster.disconnect()
            eventually(lambda: producer._gate._occupancy._trouble is not None, 10)  # type: ignore[union-attr]
            memory_cluster.reconnect()
            consume(queue)
    assert not isinstance(outcome[0], LVQError)


def test_a_blocked_producer_says_what_is_wrong_if_it_does_not_pass_in_time(memory_cluster: MemoryCluster) -> None:
    with blocking(memory_cluster, 1).producer(max_block=0.5) as producer:
        fill(producer, "a")
        gone = BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)
        memory_cluster.fail_next("groups.committed", gone, times=1000)
        with pytest.raises(BrokerUnavailable, match="nobody answers") as caught:
            producer.put("b", "1")
        assert "whether the queue q has room" in caught.value.__notes__[0]


def test_a_blocked_producer_that_is_closed_says_so(memory_cluster: MemoryCluster) -> None:
    producer = blocking(memory_cluster, 1).producer()
    fill(producer, "a")
    with waiting_sender(lambda: producer.put("b", "1")) as outcome:
        eventually(lambda: threading.active_count() > 1, 10)
        producer.close()
    assert isinstance(outcome[0], Closed)
    assert "producer" in str(outcome[0])


def test_an_event_loop_runs_on_while_a_task_waits_for_room(memory_cluster: MemoryCluster) -> None:
    queue = blocking(memory_cluster, 1)

    async def main() -> None:
        async with await queue.producer_async() as producer:
            await (await producer.put_async("a", "1"))
            waits = asyncio.create_task(producer.send_async(Message("1", headers={"k": "b"})))
            await asyncio.to_thread(consume, queue)
            await (await asyncio.wait_for(waits, 20))

    asyncio.run(main())
    assert queue.stats().depth == 1


@pytest.mark.parametrize("room", ["then", "never"])
def test_a_send_that_is_cancelled_while_it_waits_for_room_sends_nothing(
    memory_cluster: MemoryCluster, room: str
) -> None:
    queue = blocking(memory_cluster, 1)

    def waiting() -> bool:
        return any(thread.name == "lvq-async" for thread in threading.enumerate())

    async def main() -> None:
        async with await queue.producer_async(max_block=None) as producer:
            await (await producer.put_async("a", "1"))
            waits = asyncio.create_task(producer.put_async("b", "1"))
            await asyncio.to_thread(eventually, lambda: producer._gate._breached.stands, 10)  # type: ignore[union-attr]
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            if room == "then":
                await asyncio.to_thread(consume, queue)
            await asyncio.to_thread(eventually, lambda: not waiting(), 10)
            occupancy = producer._gate._occupancy  # type: ignore[union-attr]
            # Nobody waits for room any more, so the group is asked once a second.
            await asyncio.to_thread(eventually, lambda: occupancy.depth.messages == (room == "never"), 10)

    asyncio.run(main())
    assert memory_cluster.logs.end_offsets("q") == {0: 1}


@pytest.mark.parametrize("conflate", [True, False])
def test_tasks_that_wait_for_room_send_in_order(memory_cluster: MemoryCluster, conflate: bool) -> None:
    """Of one key, or without a key, so that the last value is the newest."""
    limits = Limits(messages=1, policy="block")
    key_header = "k" if conflate else None
    queue: Queue = LastValueQueue.declare(
        "q", key_header=key_header, conflate=conflate, value=TEXT, limits=limits, cluster=memory_cluster
    )
    headers = {"k": "b"} if conflate else {}

    def consume_all() -> list[int]:
        found = [-1]
        with queue.consumer(commit_interval=0.0) as consumer:
            while found[-1] < 20:
                delivery = consumer.acquire(10)
                assert delivery is not None
                delivery.ack(wait=True)
                found.append(int(delivery.value))
        return found

    async def main() -> list[int]:
        async with await queue.producer_async(max_block=30.0) as producer:
            await (await producer.send_async(Message("0", headers={"k": "a"} if conflate else {})))
            sends = [producer.send_async(Message(str(number), headers=headers)) for number in range(1, 21)]
            waits = [asyncio.create_task(send) for send in sends]
            await asyncio.to_thread(eventually, lambda: producer._gate._breached.stands, 10)  # type: ignore[union-attr]
            consuming = asyncio.create_task(asyncio.to_thread(consume_all))
            for receipt in await asyncio.gather(*waits):
                await receipt
            return await consuming

    found = asyncio.run(main())
    assert found == sorted(found)
    assert conflate or found == list(range(-1, 21))


def test_a_task_that_finds_room_needs_no_thread(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 10)
    threads = set[int]()

    async def main() -> None:
        async with await queue.producer_async() as producer:
            admit = producer._gate._occupancy.admit  # type: ignore[union-attr]

            def noted(*arguments: Any) -> Any:
                threads.add(threading.get_ident())
                return admit(*arguments)

            producer._gate._occupancy.admit = noted  # type: ignore[union-attr, method-assign]
            for receipt in await asyncio.gather(*(producer.put_async(f"{number}", "1") for number in range(10))):
                await receipt

    asyncio.run(main())
    assert threads == {threading.get_ident()}


def test_a_send_that_is_cancelled_as_it_gets_room_gives_it_back(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = rejecting(memory_cluster, 1)

    async def main() -> None:
        async with await queue.producer_async() as producer:
            await (await producer.put_async("a", "1"))
            reading, go_on = threading.Event(), threading.Event()
            read_to_end = occupancy.Occupancy.read_to_end

            def slow(self: occupancy.Occupancy) -> None:
                reading.set()
                go_on.wait(10)
                read_to_end(self)

            monkeypatch.setattr(occupancy.Occupancy, "read_to_end", slow)
            waits = asyncio.create_task(producer.put_async("b", "1"))
            await asyncio.to_thread(reading.wait, 10)
            await asyncio.to_thread(consume, queue)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            go_on.set()
            eventually(lambda: producer._gate._occupancy.depth == Depth(), 10)  # type: ignore[union-attr]

    asyncio.run(main())
    assert memory_cluster.logs.end_offsets("q") == {0: 1}


def test_the_async_twins_send_at_once_where_nothing_limits(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)

    async def main() -> list[int]:
        async with queue.producer() as producer:
            receipts = [await producer.put_async("a", "1"), await producer.send_async(Message("1", headers={"k": "b"}))]
            return [(await receipt).offset for receipt in receipts]

    assert asyncio.run(main()) == [0, 1]


# -------------------------------------------------------------------- options


@pytest.mark.parametrize("method", [LastValueQueue.producer, LastValueQueue.producer_async])
def test_a_queue_takes_the_options_that_are_documented(method: object) -> None:
    assert "Unpack[ProducerOptions]" in str(inspect.signature(method))  # type: ignore[arg-type]
    _, _, attributes = inspect.cleandoc(ProducerOptions.__doc__ or "").partition("Attributes:\n")
    assert re.findall(r"^    (\w+): ", attributes, re.MULTILINE) == list(ProducerOptions.__annotations__)
    assert not ProducerOptions.__required_keys__
    assert ProducerOptions.__annotations__.keys() <= inspect.signature(Producer).parameters.keys()


@pytest.mark.parametrize(("twin", "method"), [("put_async", "put"), ("send_async", "send"), ("delete_async", "delete")])
def test_an_async_twin_takes_what_its_method_takes(twin: str, method: str) -> None:
    taken = [inspect.signature(getattr(Producer, name)).parameters for name in (twin, method)]
    assert taken[0] == taken[1]


# -------------------------------------------------------------------- what is unknown is reported


def test_a_producer_needs_to_know_what_was_consumed(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster)
    memory_cluster.groups.delete("lvq.q")
    with pytest.raises(QueueNotDeclared):
        queue.producer()


def test_a_producer_needs_the_topic(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, non_destructive=True)
    memory_cluster.topics.delete("q")
    with pytest.raises(TopicNotFound):
        queue.producer()


def test_sends_say_that_the_group_is_gone(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1)
    with queue.producer() as producer:
        fill(producer, "a")
        memory_cluster.groups.delete("lvq.q")
        with pytest.raises(QueueNotDeclared) as caught:
            producer.put("b", "1")
        assert "whether the queue q has room" in caught.value.__notes__[0]
        with pytest.raises(ReaderFailed, match="Reading q has stopped"):
            producer.put("a", "2")


def test_r12_a_group_that_is_gone_is_logged_once(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(occupancy, "_REFRESH", 0.001)
    with rejecting(memory_cluster).producer() as producer:
        memory_cluster.groups.delete("lvq.q")
        asking = "lvq-limits-q"
        eventually(lambda: asking not in {thread.name for thread in threading.enumerate()})
        assert len([text for text in caplog.messages if "has failed" in text]) == 1
        with pytest.raises(ReaderFailed, match="holds no position"):
            producer.put("a", "1")


def test_sends_say_that_the_commits_cannot_be_read(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1)
    with queue.producer() as producer:
        fill(producer, "a")
        gone = BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)
        memory_cluster.fail_next("groups.committed", gone, times=1000)
        with pytest.raises(BrokerUnavailable, match="nobody answers"):
            producer.put("b", "1")
        fill(producer, "a")  # an update needs no answer


def test_nothing_is_admitted_without_news_for_long(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rejecting(memory_cluster).producer() as producer:
        fill(producer, "a")
        monkeypatch.setattr(occupancy, "_STALE", -1.0)
        with pytest.raises(BrokerUnavailable, match="unknown how full the queue q is"):
            producer.put("b", "1")
        fill(producer, "a")
        producer.delete("a").result(10)


def test_a_queue_that_takes_long_to_count_is_asked_for_less_often(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster, 1)
    followed = occupancy.Occupancy(memory_cluster, queue.definition, Limits(messages=1, policy="reject"), consumed=True)
    followed.open()
    followed._took = 1000.0
    before = followed._as_of
    followed.ask(0.2)
    assert followed._as_of == before
    followed.ask(0.0)
    assert followed._as_of > before
    followed.close()


# -------------------------------------------------------------------- none


@pytest.mark.parametrize("limits", [None, Limits(messages=1, policy="none"), Limits(messages=1, policy="ring")])
def test_other_queues_have_no_gate(memory_cluster: MemoryCluster, limits: Limits | None) -> None:
    with declare(memory_cluster, limits=limits).producer() as producer:
        assert producer._append == producer.writer.append
        fill(producer, "a", "b", "c")


def test_a_bare_producer_knows_no_limits(memory_cluster: MemoryCluster) -> None:
    rejecting(memory_cluster, 1)
    with Producer(memory_cluster, rules(topic="q", key_header="k"), value=TEXT) as producer:
        fill(producer, "a", "b")


def test_a_bare_queue_counts_what_is_in_its_topic(memory_cluster: MemoryCluster) -> None:
    declare(memory_cluster)
    queue = LastValueQueue(
        "q", key_header="k", limits=Limits(messages=1, policy="reject"), value=TEXT, cluster=memory_cluster
    )
    with queue.producer() as producer:
        fill(producer, "a")
        with pytest.raises(QueueFull):
            producer.put("b", "1")


def test_a_producer_that_cannot_be_opened_leaves_nothing_running(memory_cluster: MemoryCluster) -> None:
    queue = rejecting(memory_cluster)
    with pytest.raises(ConfigError):
        queue.producer(transactional_id="")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("lvq-read-q", "lvq-limits-q"))]


def test_a_producer_that_was_dropped_stops_following(memory_cluster: MemoryCluster) -> None:
    producer = rejecting(memory_cluster).producer()
    with pytest.warns(ResourceWarning, match="unclosed producer of q"):
        del producer
    eventually(
        lambda: (
            not [thread for thread in threading.enumerate() if thread.name.startswith(("lvq-read-q", "lvq-limits"))]
        ),
        20,
    )


def test_a_send_that_is_cancelled_too_late_still_precedes_the_next_one_of_its_key(
    memory_cluster: MemoryCluster,
) -> None:
    queue = blocking(memory_cluster, 1, 1.0)
    appending, next_is_sent = threading.Event(), threading.Event()
    with queue.producer() as producer:
        gate = producer._gate
        assert isinstance(gate, AdmissionGate)
        append = gate._append

        def append_slowly(*arguments: Any) -> Receipt:
            if threading.current_thread().name == "lvq-async" and not appending.is_set():
                appending.set()
                next_is_sent.wait(0.5)
            return append(*arguments)

        gate._append = append_slowly
        fill(producer, "a")

        async def main() -> None:
            older = asyncio.create_task(producer.put_async("b", "older"))
            await asyncio.sleep(0)
            producer.delete("a")
            assert await asyncio.to_thread(appending.wait, 10)
            older.cancel()
            with pytest.raises(asyncio.CancelledError):
                await older
            await producer.put_async("b", "newer")
            next_is_sent.set()

        asyncio.run(main())
        producer.flush(10)
        with queue.view() as view:
            assert dict(view) == {"b": "newer"}
