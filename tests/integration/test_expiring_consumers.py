"""Consumers of a queue with a TTL on a real broker, through compaction, restarts and transactions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lvq_kafka import TEXT, Consumer, LastValueQueue, TopicSpec, Ttl
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.contract.harness import read_all
from tests.waiting import eventually

PATIENCE = 60.0
SHORT = 5.0  # seconds; reading takes a few on a busy machine


class _Abort(Exception):
    """Raised to abort a transaction."""


@pytest.fixture
def gone(kafka_cluster: KafkaCluster, topic_name: str) -> str:
    """Return the name of an expiry topic."""
    kafka_cluster.topics.create(f"{topic_name}.gone", partitions=1, config={"cleanup.policy": "compact"})
    return f"{topic_name}.gone"


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str, gone: str) -> Iterator[LastValueQueue[str]]:
    with LastValueQueue.declare(
        topic_name,
        key_header="k",
        value=TEXT,
        ttl=Ttl(default=SHORT),
        expiry_topic=gone,
        spec=TopicSpec(config={**FORCED_COMPACTION, **DELETES_STAY}),
        cluster=kafka_cluster,
    ) as queue:
        yield queue


def put(queue: LastValueQueue[str], *pairs: str, ttl: float | None = None) -> float:
    """Send ``"a=1"`` as the value 1 of the key a. Return the time at which it was stored."""
    with queue.producer() as producer:
        for receipt in [producer.put(*pair.split("=")[:1], pair.split("=")[1], ttl=ttl) for pair in pairs]:
            receipt.result(PATIENCE)
    return time.time()


def wait_until(then: float) -> None:
    eventually(lambda: time.time() > then, PATIENCE)


def take(consumer: Consumer[str]) -> str:
    delivery = consumer.acquire(PATIENCE)
    assert delivery is not None, consumer.stats
    with delivery:
        return delivery.value


def letters(queue: LastValueQueue[str], topic: str) -> list[tuple[bytes | None, bytes | None, str]]:
    found = []
    for record in read_all(queue.cluster, topic):
        headers = dict(record.headers)
        assert "lvq-ttl" not in headers
        found.append((record.key, record.value, (headers["lvq-dlq-reason"] or b"").decode()))
    return found


def test_r10_expired_messages_are_stored_in_the_expiry_topic_across_compaction_and_a_restart(
    queue: LastValueQueue[str], gone: str
) -> None:
    put(queue, "long=1", ttl=3600)
    stored = put(queue, "a=0", "b=1", "a=1")
    with queue.consumer(commit_interval=0.05) as consumer:
        delivery = consumer.acquire(PATIENCE)
        assert delivery is not None
        assert delivery.value == "1"
        wait_until(stored + SHORT)
        expected = [(b"a", b"1", "expired"), (b"b", b"1", "expired")]
        eventually(lambda: sorted(letters(queue, gone)) == expected, PATIENCE)
        assert consumer.stats.expired == 2
    force_compaction(queue.cluster, queue.topic)
    with queue.consumer(commit_interval=0.05) as consumer:
        assert take(consumer) == "1"
        assert consumer.acquire(0.5) is None
    assert sorted(letters(queue, gone)) == expected, "the commit said that they are done"
    stats = queue.stats()
    assert (stats.depth, stats.partitions[0].base) == (0, stats.partitions[0].stable)


def test_r10_messages_of_a_transaction_that_aborts_after_their_time_expire(
    queue: LastValueQueue[str], gone: str
) -> None:
    stored = put(queue, "a=1", "b=1")
    put(queue, "long=1", ttl=3600)
    with (
        queue.producer(transactional_id=f"{queue.name}-tx") as producer,
        queue.consumer(commit_interval=0.05) as consumer,
    ):
        with suppress(_Abort), consumer.transaction(producer, timeout=PATIENCE) as tx:
            taken = tx.acquire_many(3, PATIENCE)
            assert [delivery.key for delivery in taken] == ["a", "b", "long"]
            wait_until(stored + SHORT)
            tx.ack_many(taken)
            raise _Abort
        eventually(lambda: len(letters(queue, gone)) == 2, PATIENCE)
        with consumer.transaction(producer, timeout=PATIENCE) as tx:
            delivery = tx.acquire(PATIENCE)
            assert delivery is not None
            assert delivery.key == "long"
            delivery.ack()
            producer.put("out", "1", ttl=3600)
        assert take(consumer) == "1"  # "out", which the transaction has sent to the same queue
    assert queue.stats().depth == 0
