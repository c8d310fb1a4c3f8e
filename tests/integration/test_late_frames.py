"""Requests that arrive late, over a connection that the client has lost: a real broker and a cable that holds them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lvq_kafka import TEXT, Consumer, Delivery, LastValueQueue
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.cable import END_TXN, OFFSET_COMMIT, TXN_OFFSET_COMMIT, Cable, Trap
from tests.contract.harness import read_all, settled
from tests.integration.commit_history import CommitHistory, stored_commits, why_taken_back
from tests.waiting import eventually

Queue = LastValueQueue[str]


@pytest.fixture
def cable(broker: ProvidedBroker) -> Iterator[Cable]:
    with Cable(broker.bootstrap_servers) as cable:
        yield cable


@pytest.fixture
def queue(broker: ProvidedBroker, topic_name: str) -> Iterator[Queue]:
    """Declare a queue with four messages."""
    servers = broker.bootstrap_servers
    with LastValueQueue.declare(topic_name, key_header="k", value=TEXT, bootstrap_servers=servers) as queue:
        with queue.producer() as producer:
            for key in "abcd":
                producer.put(key, key)
        yield queue


def stored(queue: Queue) -> CommitMap:
    commit = queue.cluster.groups.committed(queue.definition.group, queue.topic, decided=False)[0]
    return CommitMap.decode(commit.offset, commit.metadata)


def commit_behind(consumer: Consumer[str], cable: Cable) -> tuple[list[Delivery[str]], Trap]:
    """Ack the last of four messages, then the first and the second: the cable keeps a commit of the first alone."""
    taken = [consumer.acquire(60) for _ in range(4)]
    deliveries = [one for one in taken if one is not None]
    assert len(deliveries) == 4
    deliveries[3].ack(wait=True, timeout=30)
    kept = cable.keep_next(OFFSET_COMMIT)
    first = deliveries[0].ack()
    first.add_done_callback(lambda _: None)  # asks for a commit
    assert kept.sprung.wait(30)
    first.result(30)
    deliveries[1].ack(wait=True, timeout=30)
    return deliveries, kept


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g11_a_commit_that_arrives_late_is_noticed_and_written_over(
    cable: Cable, queue: Queue, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"bootstrap.servers": cable.bootstrap_servers, "group.protocol": protocol}
    with (
        LastValueQueue.open(queue.name, value=TEXT, config=config) as behind,
        behind.consumer(commit_interval=60) as consumer,
    ):
        deliveries, kept = commit_behind(consumer, cable)
        durable = stored(queue)
        assert durable.base == 2
        kept.release()
        eventually(lambda: "another commit overwrote" in caplog.text, 90)  # the broker has applied it
        eventually(lambda: stored(queue).covers(durable), 20)
        deliveries[2].ack(wait=True, timeout=30)
    assert stored(queue).base == 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g11_messages_that_a_late_commit_takes_back_are_not_redelivered_if_the_partition_is_lost_and_regained(
    cable: Cable, queue: Queue, protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = CommitHistory(monkeypatch)
    config = {"bootstrap.servers": cable.bootstrap_servers, "group.protocol": protocol}
    with (
        LastValueQueue.open(queue.name, value=TEXT, config=config) as behind,
        behind.consumer(commit_interval=60) as consumer,
    ):
        deliveries, kept = commit_behind(consumer, cable)
        durable = stored(queue)
        assert durable.base == 2
        cable.cut()
        kept.release()
        eventually(lambda: stored(queue).base == 1, 10)
        servers, group = queue.cluster.config.bootstrap_servers, queue.definition.group
        kept_by_brokers = stored_commits(servers, group, queue.topic, 0)
        why = why_taken_back(deliveries[1].position, time.time(), commits.acknowledged(group, 0), kept_by_brokers)
        assert why == "a commit that was sent before it was stored after it"
        eventually(lambda: not queue.cluster.groups.member_count(queue.definition.group), 60)
        cable.mend()
        eventually(lambda: "has lost partitions" in caplog.text, 60)
        again = consumer.acquire(90)
        assert again is not None
        assert again.key == "c", "only what was not durable comes again"
        assert consumer.acquire(0.5) is None
        eventually(lambda: stored(queue).covers(durable), 30)
        again.ack(wait=True, timeout=30)
    assert stored(queue).base == 4


def test_the_commit_of_one_transaction_that_arrives_in_the_next_does_not_commit_that(
    cable: Cable, queue: Queue, topic_name: str
) -> None:
    servers = {"bootstrap.servers": cable.bootstrap_servers}
    out = f"{topic_name}.out"
    with (
        LastValueQueue.declare(out, key_header="k", value=TEXT, config=servers) as output,
        queue.consumer() as consumer,
        output.producer(transactional_id=out) as producer,
    ):
        kept = cable.keep_next(END_TXN)
        with consumer.transaction(producer, timeout=30) as transaction:
            for delivery in transaction.acquire_many(2, timeout=60):
                producer.put(delivery.key, "first")
                delivery.ack()
        assert kept.sprung.is_set()
        with suppress(ZeroDivisionError), consumer.transaction(producer, timeout=30) as transaction:
            (delivery,) = transaction.acquire_many(1, timeout=30)
            producer.put(delivery.key, "never").result(30)
            delivery.ack()
            kept.release()
            raise ZeroDivisionError
        while stored(queue).base < 4:
            with consumer.transaction(producer, timeout=30) as transaction:
                for delivery in transaction.acquire_many(4, timeout=10):
                    producer.put(delivery.key, "then")
                    delivery.ack()
        settled(queue.cluster, out)
        records = read_all(queue.cluster, out)
        assert sorted(record.key or b"" for record in records) == [b"a", b"b", b"c", b"d"]
        assert {record.value for record in records} <= {b"first", b"then"}


def test_offsets_of_one_transaction_that_arrive_in_the_next_do_not_replace_its_own(
    cable: Cable, queue: Queue, topic_name: str
) -> None:
    servers = {"bootstrap.servers": cable.bootstrap_servers}
    out = f"{topic_name}.out"
    with (
        LastValueQueue.declare(out, key_header="k", value=TEXT, config=servers) as output,
        queue.consumer() as consumer,
        output.producer(transactional_id=out) as producer,
    ):
        kept = cable.keep_next(TXN_OFFSET_COMMIT)
        commit = producer.writer.commit_transaction

        def commit_after_it_has_arrived(timeout: float | None = None) -> None:
            kept.release()
            commit(timeout)

        for delivery in (consumer.acquire(60), consumer.acquire(60)):
            assert delivery is not None
            with consumer.transaction(producer, timeout=30) as transaction:
                producer.put(delivery.key, "once")
                transaction.enlist(delivery).ack()
            assert kept.sprung.is_set()
            producer.writer.commit_transaction = commit_after_it_has_arrived  # type: ignore[method-assign]
        eventually(lambda: stored(queue).base == 2, 30)  # markers may come after the answer
