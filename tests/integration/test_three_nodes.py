"""Three nodes, three replicas, two of them in sync at least: what is promised when nodes go, and when too many do."""

from __future__ import annotations

import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lvq_kafka import TEXT, Consumer, LastValueQueue, TopicSpec
from lvq_kafka.core.policy import topic_settings
from lvq_kafka.errors import DataLoss, DeliveryFailed, LockLost, OutcomeUnknown, TransportError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.ports import Receipt
from tests.integration.guarantees.cluster import Raw, fold, read_raw
from tests.three_nodes import NODES, ThreeNodes, three_nodes
from tests.waiting import eventually

TIMEOUTS = {"delivery.timeout.ms": 4000, "session.timeout.ms": 6000, "transaction.timeout.ms": 6000}
OUTAGE = 10.0  # seconds, longer than each of them
SOON = 60.0  # seconds until all has recovered, on a machine that is busy with other things
GROWTH = 150 << 20  # bytes that an outage may cost the processes in it


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreeNodes]:
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture
def declare(nodes: ThreeNodes) -> Iterator[Callable[..., LastValueQueue[str]]]:
    config = ClientConfig(nodes.bootstrap_servers, dict(TIMEOUTS))
    with ExitStack() as queues:

        def declare(name: str, topic: str | None = None) -> LastValueQueue[str]:
            queue = LastValueQueue.declare(name, key_header="k", topic=topic, value=TEXT, config=config)
            queues.callback(queue.close)
            return queue

        yield declare


# -- what goes on in the outage ---------------------------------------------------------------------


class Putting:
    """Puts ascending numbers to a few keys, whatever becomes of them."""

    def __init__(self, queue: LastValueQueue[str]) -> None:
        self._queue = queue
        self._stop = threading.Event()
        self.receipts: list[tuple[str, int, Receipt]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._queue.producer() as producer:
            number = 0
            while not self._stop.wait(0.01):
                key = f"k{number % 20}"
                self.receipts.append((key, number, producer.put(key, str(number))))
                number += 1
            for _, _, receipt in self.receipts:
                receipt.exception(SOON)

    def failed(self) -> bool:
        """Whether something was given up."""
        return any(receipt.done() and receipt.exception(0) is not None for _, _, receipt in self.receipts[:])

    def goes_on(self) -> bool:
        """Whether what was put last is stored."""
        last = next((receipt for _, _, receipt in reversed(self.receipts) if receipt.done()), None)
        return last is not None and last.exception(0) is None

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


class Taking:
    """Takes one message after the other, acks it, and opens another consumer where only that helps."""

    def __init__(self, queue: LastValueQueue[str], *, durable_counts: bool = False) -> None:
        self.queue = queue
        self.taken: dict[str, list[int]] = defaultdict(list)
        """By key, the values it has got, in that order."""
        self.trouble = ""
        """What its consumer says of itself."""
        self.problems: list[str] = []
        self._durable_counts = durable_counts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self.queue.consumer(durable_counts=self._durable_counts) as consumer:
                    while not self._stop.is_set():
                        self._step(consumer)
                        self.trouble = consumer.stats.trouble
            except (TransportError, OutcomeUnknown) as error:
                self.trouble = str(error)
                self.problems.append(repr(error))
                self._stop.wait(0.2)

    def _step(self, consumer: Consumer[str]) -> None:
        delivery = consumer.acquire(0.2)
        if delivery is not None:
            self.taken[delivery.key].append(int(delivery.value))
            with suppress(LockLost):
                delivery.ack()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


class Transforming(Taking):
    """Does so in transactions, and puts what it takes into another queue."""

    def __init__(self, queue: LastValueQueue[str], output: LastValueQueue[str]) -> None:
        self._output = output
        self.aborted = 0
        super().__init__(queue)

    def _run(self) -> None:
        with self._output.producer(transactional_id=self._output.name) as self._producer:
            super()._run()

    def _step(self, consumer: Consumer[str]) -> None:
        try:
            with consumer.transaction(self._producer, timeout=5) as transaction:
                for delivery in transaction.acquire_many(20, timeout=0.2):
                    self._producer.put(delivery.key, delivery.value)
                    delivery.ack()
        except (LockLost, DeliveryFailed, TransportError):
            self.aborted += 1


def resident() -> int:
    """Bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def values_by_key(records: Iterable[Raw]) -> dict[str, list[int]]:
    values: dict[str, list[int]] = defaultdict(list)
    for record in sorted(records):
        values[record.key].append(int(record.value or ""))
    return values


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_g5_and_g9_to_g14_when_two_of_three_nodes_are_gone_for_longer_than_every_time_out(
    how: str, nodes: ThreeNodes, declare: Callable[..., LastValueQueue[str]]
) -> None:
    topic, output = declare(f"prices-{how}"), declare(f"output-{how}")
    with topic.view(metadata_interval=0.5) as view, ExitStack() as stops:
        putting = Putting(topic)
        stops.callback(putting.stop)
        takers = [
            Taking(topic),
            Taking(declare(f"counted-{how}", topic.topic), durable_counts=True),
            Transforming(declare(f"transformed-{how}", topic.topic), output),
        ]
        for taker in takers:
            stops.callback(taker.stop)
        eventually(lambda: all(len(taker.taken) == 20 for taker in takers[:2]), SOON)
        eventually(lambda: output.log.end_offsets(output.topic)[0] > 40, SOON)

        memory, begun = resident(), time.monotonic()
        down = [node for node in NODES if node != nodes.leader(topic.topic)]
        getattr(nodes, how)(*down)
        eventually(lambda: view.state == "disconnected", SOON)
        for taker in takers:
            eventually(lambda taker=taker: taker.trouble, SOON)
        eventually(lambda: putting.failed() and time.monotonic() - begun > OUTAGE, SOON)
        nodes.bring_back()
        eventually(putting.goes_on, SOON)
        putting.stop()

        last = {key: number for key, number, receipt in putting.receipts if receipt.exception(0) is None}
        eventually(lambda: all(last[key] <= int(view[key]) for key in last), SOON)
        for taker in takers[:2]:
            eventually(lambda taker=taker: all(last[key] <= taker.taken[key][-1] for key in last), SOON)
        eventually(lambda: all(taker.queue.stats().depth == 0 for taker in takers), SOON, every=0.5)
        eventually(lambda: view.state == "caught-up" and not any(taker.trouble for taker in takers), SOON)
        assert resident() - memory < GROWTH
        viewed = {key: int(value) for key, value in view.items()}

    raw = read_raw(nodes.bootstrap_servers, topic.topic)
    stored = values_by_key(raw)
    assert stored == {key: sorted(values) for key, values in stored.items()}, "G14: an older value behind a newer one"
    there = {number for values in stored.values() for number in values}
    for _, number, receipt in putting.receipts:
        error = receipt.exception(0)
        assert error is not None or number in there, f"G14: {number} was stored"
        assert not isinstance(error, DeliveryFailed) or number not in there, f"{number}: {error!r}, and it is there"
    newest = {key: int(record.value or "") for key, record in fold(raw).items()}
    assert viewed == newest
    for taker in takers[:2]:
        assert {key: values[-1] for key, values in taker.taken.items()} == newest
        assert taker.taken == {key: sorted(values) for key, values in taker.taken.items()}, "G12"
    made = values_by_key(read_raw(nodes.bootstrap_servers, output.topic))
    assert made == {key: sorted(set(values)) for key, values in made.items()}, "exactly once, in order"
    assert {key: values[-1] for key, values in made.items()} == newest


def test_r17_and_g5_an_unclean_election_that_loses_what_was_consumed_is_an_error_that_repair_mends(
    nodes: ThreeNodes,
) -> None:
    """A replica that missed the newest messages leads when the only one that had them is gone."""
    leader, follower = NODES[:2]
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
    settings = topic_settings(TopicSpec(config={"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}))
    topic = NewTopic("unclean", 1, replica_assignment=[[leader, follower]], config=dict(settings))
    admin.create_topics([topic])["unclean"].result(30)
    config = ClientConfig(nodes.bootstrap_servers, {"session.timeout.ms": 6000})
    with LastValueQueue.declare("unclean", key_header=None, value=TEXT, config=config, on_mismatch="warn") as queue:
        consume(queue, before := [f"a{number}" for number in range(20)])
        nodes.kill(follower)
        consume(queue, lost := [f"b{number}" for number in range(20)])
        nodes.kill(leader)
        nodes.bring_back(follower)
        eventually(lambda: nodes.leader("unclean") == follower, SOON)
        with queue.producer() as producer:
            producer.put("after", "1").result(SOON)
        with pytest.raises(DataLoss, match="partition 0"), queue.consumer() as consumer:
            consumer.acquire(SOON)
        nodes.bring_back()
        assert [damage.kind for damage in queue.repair().found] == ["offsets-lost"]
        with queue.view() as view:
            assert set(view) == {*before, "after"}
            assert not set(view) & set(lost)
        with queue.consumer() as consumer:
            assert consumer.acquire(SOON).key == "after"


def consume(queue: LastValueQueue[str], keys: list[str]) -> None:
    """Put something to these keys, and ack it durably."""
    with queue.producer() as producer, queue.consumer() as consumer:
        for key in keys:
            producer.put(key, "1")
        for _ in keys:
            consumer.acquire(SOON).ack(wait=True, timeout=SOON)
