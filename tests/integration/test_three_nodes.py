"""Three nodes with three replicas, at least two in sync: promises when nodes fail, and when too many do."""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lvq_kafka import TEXT, Consumer, LastValueQueue, TopicSpec, View
from lvq_kafka.cluster import Receipt
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log import absence
from lvq_kafka.core.queue.topic_settings import topic_settings
from lvq_kafka.errors import DataLoss, DeliveryFailed, LockLost, OutcomeUnknown, TransportError
from lvq_kafka.kafka import ClientConfig
from tests.integration.commit_history import CommitHistory, around, stored_commits, why_taken_back
from tests.integration.guarantees.cluster import Raw, fold, read_raw
from tests.three_nodes import NODES, ThreeNodes, three_nodes
from tests.waiting import eventually

logger = logging.getLogger(__name__)

TIMEOUTS = {"delivery.timeout.ms": 4000, "session.timeout.ms": 6000, "transaction.timeout.ms": 6000}
OUTAGE = 10.0  # seconds, longer than each timeout
SOON = 60.0  # seconds until everything has recovered, on a busy machine
GROWTH = 150 << 20  # bytes that an outage may add to the processes in it


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreeNodes]:
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture
def nodes(cluster: ThreeNodes) -> Iterator[ThreeNodes]:
    """Yield the nodes, which the next test gets all, even if this one fails."""
    yield cluster
    cluster.bring_back()


Queue = LastValueQueue[str]
Declare = Callable[..., Queue]


@pytest.fixture
def declare(nodes: ThreeNodes) -> Iterator[Declare]:
    config = ClientConfig(nodes.bootstrap_servers, dict(TIMEOUTS))
    with ExitStack() as queues:

        def declare(name: str, topic: str | None = None) -> Queue:
            spec = TopicSpec(partitions=2)
            queue = LastValueQueue.declare(name, key_header="k", topic=topic, spec=spec, value=TEXT, config=config)
            queues.callback(queue.close)
            return queue

        yield declare


# -- work during outages ----------------------------------------------------------------------


class Putting:
    """Puts ascending numbers to a few keys, through any outage."""

    def __init__(self, queue: Queue) -> None:
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
        """Return whether any message has failed."""
        return any(receipt.done() and receipt.exception(0) is not None for _, _, receipt in self.receipts[:])

    def goes_on(self) -> bool:
        """Return whether the latest decided message is stored."""
        last = next((receipt for _, _, receipt in reversed(self.receipts) if receipt.done()), None)
        return last is not None and last.exception(0) is None

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


class Seen(NamedTuple):
    """An event in the history of a key."""

    at: float
    """Seconds since the epoch."""
    what: str
    position: Position
    number: int

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.number} {self.what} at {self.position.partition}@{self.position.offset}"


class Finding(NamedTuple):
    """A violation."""

    text: str
    key: str
    seen: Seen


class Witness:
    """Records what a queue's workers get and settle, and finds violations (G9, G11 to G13).

    Judges by position: a producer whose connection broke may have stored a value twice, and both copies are messages.
    """

    def __init__(self) -> None:
        self.taken: dict[str, list[int]] = defaultdict(list)
        """The values of each key, in the order of delivery."""
        self.newest = -1
        self.findings: list[Finding] = []
        self.history: dict[str, list[Seen]] = defaultdict(list)
        """The events of each key."""
        self._lock = threading.Lock()
        self._held: dict[str, Seen] = {}
        self._durable: dict[str, Seen] = {}

    def took(self, delivery: Delivery[str]) -> None:
        key, seen = delivery.key, self._seen("came", delivery)
        with self._lock:
            self.history[key].append(seen)
            if key in self._held:
                self.findings.append(Finding(f"G9, G13: {seen} while there was {self._held[key]}", key, seen))
            durable = self._durable.get(key)
            if durable is not None and seen.position.offset <= durable.position.offset:
                self.findings.append(Finding(f"G11, G12: {seen} after {durable}", key, seen))
            self._held[key] = seen
            self.taken[key].append(seen.number)
            self.newest = max(self.newest, seen.number)

    def lets_go(self, key: str) -> None:
        with self._lock:
            self._held.pop(key, None)

    def decided(self, delivery: Delivery[str], settlement: Future[None]) -> None:
        error = settlement.exception()
        with self._lock:
            seen = self._seen("was durable" if error is None else type(error).__name__, delivery)
            self.history[delivery.key].append(seen)
            before = self._durable.get(delivery.key, seen)
            if error is None and before.position.offset <= seen.position.offset:
                self._durable[delivery.key] = seen

    @staticmethod
    def _seen(what: str, delivery: Delivery[str]) -> Seen:
        return Seen(time.time(), what, delivery.position, int(delivery.value))

    def has_come_to(self, key: str, number: int) -> bool:
        """Return whether this value of a key or a newer one was delivered."""
        return number <= max(self.taken[key], default=-1)

    def judge(self, newest: Mapping[str, int]) -> None:
        """Check everything at the end but the findings, against the newest values."""
        assert {key: values[-1] for key, values in self.taken.items()} == newest, "G10"
        assert in_order(self.taken), "G12"
        assert self._durable.keys() == newest.keys(), "of each key something was durably acked"


class Taking:
    """Takes and acks one message after another, and opens a new consumer when only that helps."""

    def __init__(self, queue: Queue, witness: Witness, *, durable_counts: bool = False) -> None:
        self.queue = queue
        self.witness = witness
        self.trouble = ""
        """The consumer's own report."""
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
                self._stop.wait(0.2)

    def _step(self, consumer: Consumer[str]) -> None:
        delivery = consumer.acquire(0.2)
        if delivery is not None:
            self.witness.took(delivery)
            self._stop.wait(0.001)
            self.witness.lets_go(delivery.key)  # from the ack on, another consumer may get the next one
            with suppress(LockLost):
                delivery.ack().add_done_callback(partial(self.witness.decided, delivery))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


class Transforming(Taking):
    """Works in transactions, and puts what it takes into another queue."""

    def __init__(self, queue: Queue, output: Queue) -> None:
        self._output = output
        super().__init__(queue, Witness())

    def _run(self) -> None:
        with self._output.producer(transactional_id=self._output.name) as self._producer:
            super()._run()

    def _step(self, consumer: Consumer[str]) -> None:
        with suppress(LockLost, DeliveryFailed, TransportError):
            with consumer.transaction(self._producer, timeout=5) as transaction:
                deliveries = transaction.acquire_many(20, timeout=0.2)
                for delivery in deliveries:
                    self._producer.put(delivery.key, delivery.value)
                    delivery.ack()
            self.witness.newest = max([self.witness.newest, *(int(delivery.value) for delivery in deliveries)])


class Work:
    """A producer, a view, and consumers: two on one queue, one with durable counts, one with transactions.

    The last two have their own queues on the same topic.
    """

    def __init__(self, nodes: ThreeNodes, declare: Declare, name: str, commits: CommitHistory) -> None:
        self._nodes = nodes
        self._commits = commits
        self.topic, self._output = declare(f"prices-{name}"), declare(f"output-{name}")
        counted, transformed = (declare(f"{kind}-{name}", self.topic.topic) for kind in ("counted", "transformed"))
        plain, counting = Witness(), Witness()
        self._witnesses = {self.topic.definition.group: plain, counted.definition.group: counting}
        self._takers = [
            Taking(self.topic, plain),
            Taking(self.topic, plain),
            Taking(counted, counting, durable_counts=True),
            Transforming(transformed, self._output),
        ]
        self.putting = Putting(self.topic)
        self.coordinator = partial(nodes.coordinator, counted.definition.group)
        self.transaction_coordinator = partial(nodes.transaction_coordinator, self._output.name)

    def leader(self) -> int:
        return self._nodes.leader(self.topic.topic)

    @property
    def troubles(self) -> list[str]:
        """Return the consumers' reports about themselves."""
        return [taker.trouble for taker in self._takers]

    def goes_on(self) -> None:
        """Wait until new messages reach all consumers."""
        since = len(self.putting.receipts)
        for taker in self._takers:
            eventually(lambda taker=taker: taker.witness.newest >= since, SOON)  # type: ignore[misc]

    def finish(self, view: View[str]) -> None:
        """Wait until everything is consumed and no trouble is left."""
        eventually(self.putting.goes_on, SOON)
        self.putting.stop()
        last = {key: number for key, number, receipt in self.putting.receipts if receipt.exception(0) is None}
        eventually(lambda: all(last[key] <= int(view[key]) for key in last), SOON)
        for witness in self._witnesses.values():
            eventually(lambda witness=witness: all(map(witness.has_come_to, last, last.values())), SOON)  # type: ignore[misc]
        eventually(lambda: all(taker.queue.stats().depth == 0 for taker in self._takers), SOON, every=0.5)
        eventually(lambda: view.state == "caught-up" and not any(self.troubles), SOON)

    def stop(self) -> None:
        self.putting.stop()
        for taker in self._takers:
            taker.stop()

    def judge(self, viewed: Mapping[str, int]) -> None:
        """Compare the results with the records that plain clients read."""
        raw = read_raw(self._nodes.bootstrap_servers, self.topic.topic)
        stored = values_by_key(raw)
        assert in_order(stored), "G14: older behind newer"
        there = {number for values in stored.values() for number in values}
        for _, number, receipt in self.putting.receipts:
            error = receipt.exception(0)
            assert error is not None or number in there, f"G14: {number} was stored"
            assert not isinstance(error, DeliveryFailed) or number not in there, f"{number}: {error!r}, and it is there"
        newest = {key: int(record.value or "") for key, record in fold(raw, 2).items()}
        assert viewed == newest
        for group, witness in self._witnesses.items():
            for finding in witness.findings:
                self._judge(group, finding, witness.history[finding.key], raw)
            witness.judge(newest)
        made = values_by_key(read_raw(self._nodes.bootstrap_servers, self._output.topic))
        assert made == {key: sorted(set(values)) for key, values in made.items()}, "exactly once, in order"
        assert {key: values[-1] for key, values in made.items()} == newest

    def _judge(self, group: str, finding: Finding, history: list[Seen], raw: list[Raw]) -> None:
        """Fail, unless the brokers' log shows that the group itself had lost the commit, which G11 excepts."""
        position = finding.seen.position
        acknowledged = self._commits.acknowledged(group, position.partition)
        stored = stored_commits(self._nodes.bootstrap_servers, group, position.topic, position.partition)
        why = why_taken_back(position, finding.seen.at, acknowledged, stored)
        copies = [record for record in raw if (record.key, record.value) == (finding.key, str(finding.seen.number))]
        evidence = [
            f"{group}: {finding.text}",
            f"in the log: {copies}",
            "history:",
            *(f"  {seen}" for seen in history if abs(seen.number - finding.seen.number) < 1000),
            f"acknowledged:\n{around(position.offset, acknowledged)}",
            f"stored:\n{around(position.offset, stored)}",
        ]
        assert why, "\n".join(evidence)
        logger.warning("%s: %s", why, "\n".join(evidence))


@contextmanager
def at_work(nodes: ThreeNodes, declare: Declare, name: str) -> Iterator[tuple[Work, View[str]]]:
    """Start all workers; after the block, finish and judge the work."""
    with ExitStack() as stops:
        commits = CommitHistory(stops.enter_context(pytest.MonkeyPatch.context()))
        work = Work(nodes, declare, name, commits)
        stops.callback(work.stop)
        stops.callback(nodes.bring_back)  # before that: no worker ends while brokers stand still
        with work.topic.view(metadata_interval=0.5) as view:
            work.goes_on()
            memory = resident()
            yield work, view
            work.finish(view)
            assert resident() - memory < GROWTH
            viewed = {key: int(value) for key, value in view.items()}
    work.judge(viewed)


def resident() -> int:
    """Return the resident size of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def values_by_key(records: Iterable[Raw]) -> dict[str, list[int]]:
    values: dict[str, list[int]] = defaultdict(list)
    for record in sorted(records):
        values[record.key].append(int(record.value or ""))
    return values


def in_order(values: Mapping[str, list[int]]) -> bool:
    """Return whether the values of each key ascend, but for copies of what was there before (G14)."""
    return all(firsts == sorted(firsts) for firsts in ([*dict.fromkeys(found)] for found in values.values()))


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_g5_and_g9_to_g14_when_two_of_three_nodes_are_gone_for_longer_than_every_time_out(
    how: str, nodes: ThreeNodes, declare: Declare
) -> None:
    """If nodes are killed, the leader survives. If they are frozen, it is one of them, with requests in flight."""
    with at_work(nodes, declare, how) as (work, view):
        begun, leader = time.monotonic(), work.leader()
        leader_first = sorted(NODES, key=lambda node: node != leader)
        getattr(nodes, how)(*(leader_first[1:] if how == "kill" else leader_first[:2]))
        eventually(lambda: view.state == "disconnected", SOON)
        for number in range(len(work.troubles)):
            eventually(lambda number=number: work.troubles[number], SOON)  # type: ignore[misc]
        eventually(lambda: work.putting.failed() and time.monotonic() - begun > OUTAGE, SOON)
        nodes.bring_back()
        work.goes_on()


def test_g9_to_g14_when_leader_and_coordinators_are_killed_or_stand_still_and_all_are_restarted_in_turn(
    nodes: ThreeNodes, declare: Declare
) -> None:
    """Work continues while one of three nodes is away, whatever its roles."""
    with at_work(nodes, declare, "one") as (work, _):
        for remove, in_charge in (
            (nodes.kill, work.leader),
            (nodes.pause, work.coordinator),
            (nodes.kill, work.transaction_coordinator),
        ):
            remove(in_charge())
            work.goes_on()
            nodes.bring_back()
        for node in NODES:
            nodes.restart(node)
            nodes.bring_back()
        work.goes_on()


def test_g1_g5_and_g7_readers_do_not_go_by_a_leader_that_is_cut_off_from_the_others(
    nodes: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers readers as before, and what they miss has been acknowledged by its successor."""
    monkeypatch.setattr(absence, "STALLED", 2.0)
    config = ClientConfig(nodes.bootstrap_servers, dict(TIMEOUTS))
    with (
        LastValueQueue.declare("cut-off", key_header="k", value=TEXT, config=config) as queue,
        queue.view(metadata_interval=0.5) as view,
        queue.producer() as producer,
    ):
        producer.put("a", "1").result(SOON)
        view.barrier(SOON)
        leader, [(_, epoch)] = nodes.leader(queue.topic), queue.cluster.logs.stable_ends(queue.topic).values()
        nodes.cut_off(leader)
        try:
            eventually(lambda: epoch_of(queue) > epoch, 3 * SOON)
            eventually(lambda: producer.put("a", "2").exception(SOON) is None, SOON)
            view.barrier(SOON)
            assert view["a"] == "2"
            with queue.view(catch_up_timeout=SOON) as late:
                assert late["a"] == "2"
        finally:
            nodes.reconnect(leader)


def epoch_of(queue: LastValueQueue[str]) -> int:
    """Return the epoch of the leader of a queue's only partition, or 0 while nobody names it."""
    with suppress(TransportError):
        return queue.cluster.logs.stable_ends(queue.topic, timeout=10.0)[0].leader_epoch
    return 0


def test_r17_and_g5_an_unclean_election_that_loses_what_was_consumed_is_an_error_that_repair_mends(
    nodes: ThreeNodes,
) -> None:
    """A replica without the newest messages becomes leader after the only one that had them is gone."""
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
    """Put a value for each of these keys, and ack it durably."""
    with queue.producer() as producer, queue.consumer() as consumer:
        for key in keys:
            producer.put(key, "1")
        for _ in keys:
            consumer.acquire(SOON).ack(wait=True, timeout=SOON)
