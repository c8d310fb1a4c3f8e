"""G14, durable: acknowledged messages are in the log once, in the order of their key, through any broker failure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from lvq_kafka.cluster import Receipt
from lvq_kafka.errors import LVQError
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.guarantees.cluster import Raw, read_raw
from tests.integration.guarantees.conftest import QueueOf
from tests.waiting import eventually

WRITERS = 4
KEYS = 5


def write(queue: LastValueQueue[str], outages: ProvidedBroker | None = None) -> dict[str, list[Receipt]]:
    """Put ascending numbers through one producer from several threads, each with its own keys.

    With ``outages``, kill the broker twice meanwhile.
    """
    receipts: dict[str, list[Receipt]] = {f"w{w}k{k}": [] for w in range(WRITERS) for k in range(KEYS)}
    stop = Event()

    def put_on(writer: int) -> None:
        number = 0
        while not stop.is_set():
            for key in range(KEYS):
                mine = receipts[f"w{writer}k{key}"]
                mine.append(producer.put(f"w{writer}k{key}", str(number)))
                if number >= 500:
                    mine[number - 500].result(60)  # a bounded lead
            number += 1

    def acknowledged() -> int:
        return min(sum(receipt.done() for receipt in mine[:]) for mine in receipts.values())

    def await_more() -> None:
        before = acknowledged()
        eventually(lambda: acknowledged() > before + 200, 60)

    def await_unacknowledged(before: int) -> None:
        eventually(lambda: min(map(len, receipts.values())) > before + 50, 30)

    with queue.producer() as producer, ThreadPoolExecutor(WRITERS) as threads:
        writing = [threads.submit(put_on, writer) for writer in range(WRITERS)]
        try:
            for _ in range(2 if outages is not None else 1):
                await_more()
                if outages is not None:
                    outages.kill()
                    await_unacknowledged(acknowledged())
                    outages.restart()
            await_more()
        finally:
            stop.set()
        for done in writing:
            done.result(60)
        producer.flush(60)
    return receipts


def check(records: list[Raw], receipts: dict[str, list[Receipt]]) -> None:
    """Check that the log has every message exactly once, in the order of its key, at the receipt's position."""
    by_key: dict[str, list[Raw]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    assert by_key.keys() == receipts.keys()
    for key, mine in receipts.items():
        assert all(receipt.done() for receipt in mine)
        positions = [receipt.result(0) for receipt in mine]
        assert [record.value for record in by_key[key]] == [str(number) for number in range(len(mine))]
        assert [(record.partition, record.offset) for record in by_key[key]] == [
            (position.partition, position.offset) for position in positions
        ]


def test_g14_every_acknowledged_message_is_in_the_log_once_and_in_order(queue_of: QueueOf, servers: str) -> None:
    queue = queue_of(3)
    receipts = write(queue)
    check(read_raw(servers, queue.topic), receipts)


def test_g14_no_message_is_lost_doubled_or_moved_when_the_broker_is_killed_under_its_writers(
    private_broker: ProvidedBroker,
) -> None:
    servers = private_broker.bootstrap_servers
    with LastValueQueue.declare(
        "prices", key_header="ticker", value=TEXT, spec=TopicSpec(partitions=3), bootstrap_servers=servers
    ) as queue:
        receipts = write(queue, private_broker)
        check(read_raw(servers, queue.topic), receipts)
        with queue.view() as view:
            assert dict(view) == {key: str(len(mine) - 1) for key, mine in receipts.items()}


def test_g14_a_transaction_during_which_the_broker_dies_is_stored_whole_or_not_at_all(
    private_broker: ProvidedBroker, private_queue: LastValueQueue[str]
) -> None:
    queue, keys = private_queue, [f"k{number}" for number in range(100)]
    expected = "1"

    def put_all(value: str, *, abort: bool) -> None:
        with producer.transaction(90):
            for key in keys[:50]:
                producer.put(key, value)
            producer.flush(30)
            private_broker.kill()
            for key in keys[50:]:
                producer.put(key, value)
            private_broker.restart()
            if abort:
                raise ZeroDivisionError

    with queue.producer(transactional_id="mine") as producer:
        with producer.transaction(30):
            for key in keys:
                producer.put(key, expected)
        with pytest.raises(ZeroDivisionError):
            put_all("aborted", abort=True)
        with queue.view() as view:
            assert dict(view) == dict.fromkeys(keys, expected)
        try:
            put_all("2", abort=False)
            expected = "2"
        except LVQError:
            pass  # it could not be committed, and reports that
        with queue.view() as view:
            assert dict(view) == dict.fromkeys(keys, expected)
