"""Transactions with an unknown end, on a real broker: outages, and workers that die."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka import TEXT, Entry, LastValueQueue
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.errors import BrokerUnavailable, OffsetsPending, OutcomeUnknown
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.producing.producer import Producer
from tests.cable import END_TXN, Cable
from tests.contract.harness import read_all
from tests.running import ROOT

Queue = LastValueQueue[str]

IN_TIME = {"socket.timeout.ms": 1500}  # the client asks again after this time
OVERDUE = {"transaction.timeout.ms": 2500}


@pytest.fixture
def queues(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[tuple[Queue, Queue]]:
    """Declare a queue with three messages to consume, and one for the output."""
    servers = kafka_cluster.config.bootstrap_servers
    source, out = (
        LastValueQueue.declare(name, key_header="k", value=TEXT, bootstrap_servers=servers)
        for name in (topic_name, f"{topic_name}.out")
    )
    with source.producer() as producer:
        for key in "abc":
            producer.put(key, key)
    yield source, out
    for queue in (source, out):
        queue.close()


@contextmanager
def working(
    cable: Cable, source: Queue, out: Queue, **properties: Any
) -> Iterator[tuple[Consumer[str], Producer[str]]]:
    """Run a worker whose producer uses the cable."""
    config = {"bootstrap.servers": cable.bootstrap_servers, **properties}
    with (
        LastValueQueue.open(out.name, value=TEXT, config=config) as behind,
        source.consumer(revoke_grace=0.0) as consumer,
        behind.producer(transactional_id=out.name) as producer,
    ):
        yield consumer, producer


def work(consumer: Consumer[str], producer: Producer[str], most: int, timeout: float, wait: float = 30.0) -> int:
    with consumer.transaction(producer, timeout=timeout) as transaction:
        deliveries = transaction.acquire_many(most, timeout=wait)
        for delivery in deliveries:
            producer.put(delivery.key, f"{delivery.value}!")
            delivery.ack()
    return len(deliveries)


@pytest.mark.parametrize("arrived", [False, True], ids=["the commit is lost", "its answer is lost"])
@pytest.mark.parametrize("overdue", [False, True], ids=["within the timeout", "after the timeout"])
def test_a_worker_goes_on_after_an_outage_at_its_commit_and_does_everything_once(
    queues: tuple[Queue, Queue], arrived: bool, overdue: bool
) -> None:
    source, out = queues
    with (
        Cable(source.cluster.config.bootstrap_servers) as cable,  # type: ignore[attr-defined]
        working(cable, source, out, **(OVERDUE if overdue else IN_TIME)) as (consumer, producer),
    ):
        trap = cable.cut_at(END_TXN, answer=arrived)
        with pytest.raises(OutcomeUnknown):
            work(consumer, producer, 2, 1.0)
        assert trap.sprung.is_set()
        assert "not known" in consumer.stats.trouble
        with pytest.raises((BrokerUnavailable, OutcomeUnknown)):
            work(consumer, producer, 2, 3.0 if overdue else 0.5)
        cable.mend()
        assert work(consumer, producer, 1, 60.0) == 1
        while work(consumer, producer, 1, 60.0, wait=1.0):
            pass
        assert not consumer.stats.trouble
        durable = consumer._shared.core.durable
        assert {p: one.base for p, one in durable.items()} == source.cluster.logs.end_offsets(source.topic)
    assert sorted(record.value for record in read_all(source.cluster, out.topic)) == [b"a!", b"b!", b"c!"]


DIES = """
import os, sys
from lvq_kafka import TEXT, LastValueQueue
config = {"bootstrap.servers": sys.argv[1], "transaction.timeout.ms": 9000}
source, out = (LastValueQueue.open(name, value=TEXT, config=config) for name in sys.argv[2:])
consumer, producer = source.consumer(), out.producer(transactional_id=out.name)
producer.writer.commit_transaction = lambda *_: os._exit(9)
with consumer.transaction(producer) as transaction:
    for delivery in transaction.acquire_many(2, timeout=30):
        producer.put(delivery.key, "never")
        delivery.ack()
"""


def test_a_transaction_left_open_by_a_dead_worker_holds_up_only_callers_that_need_its_outcome(
    queues: tuple[Queue, Queue], caplog: pytest.LogCaptureFixture
) -> None:
    source, out = queues
    servers = source.cluster.config.bootstrap_servers  # type: ignore[attr-defined]
    command = [sys.executable, "-c", DIES, servers, source.name, out.name]
    assert subprocess.run(command, cwd=ROOT, timeout=90, check=False).returncode == 9
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(source.consumer)
        stats = source.stats()
        assert (stats.depth, stats.pending) == (3, True)
        with source.browser(follow=False) as browser:
            assert [event.key for event in browser if isinstance(event, Entry)] == ["a", "b", "c"]
        with pytest.raises(OffsetsPending, match="open transaction") as caught:
            source.cluster.groups.committed(source.definition.group, source.topic, timeout=0.5)
        assert caught.value.retriable
        assert "transactional id" in caught.value.hint
        assert not opening.done()
        assert not source.repair(dry_run=True).found
        with opening.result(60) as consumer:
            taken = [consumer.acquire(30) for _ in range(3)]
            assert sorted(one.value for one in taken if one is not None) == ["a", "b", "c"]
    assert sum("waits: An open transaction" in message for message in caplog.messages) == 1
    assert not source.stats().pending
