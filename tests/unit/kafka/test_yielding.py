"""A consumer that cannot reach the coordinator of its transactions, with the client's own group members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.errors import OutcomeUnknown, TransportError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.producing.producer import Producer
from tests.rules import rules
from tests.unit.consuming.world import in_thread
from tests.unit.kafka.mock_queue import GROUP, SOCIAL, TOPIC, MockQueue, NewQueue, whatever_its_mood
from tests.waiting import eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.core.consumer.yielding.PATIENCE", 0.5)
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._LOOK", 0.2)


def on_two_brokers(new_queue: NewQueue) -> MockQueue:
    """Return a queue on broker 1; broker 2 only coordinates transactions."""
    queue = new_queue(2, brokers=2)
    queue.mock.create_topic("out", 1)
    for topic, partition in ((TOPIC, 0), (TOPIC, 1), ("out", 0)):
        queue.mock.elect(topic, partition, 1)
    queue.mock.move_group(GROUP, 1)
    queue.mock.move_transactions("feed", 2)
    return queue


@contextmanager
def producing(queue: MockQueue) -> Iterator[Producer[Any]]:
    cluster = KafkaCluster(queue.mock.bootstrap_servers)
    with Producer(cluster, rules(topic="out", key_header=None), value=TEXT, transactional_id="feed") as producer:
        yield producer
    cluster.close()


@contextmanager
def trying(consumer: Consumer[Any], producer: Producer[Any]) -> Iterator[None]:
    """Run a worker that continues after any error. The mock has no offsets in transactions, so these only produce."""
    over, worked = Event(), Event()

    def turn_after_turn() -> None:
        while not over.wait(0.05):
            with suppress(TransportError, OutcomeUnknown):
                with consumer.transaction(producer, timeout=1.0):
                    producer.put("k", "v")
                worked.set()

    with in_thread(turn_after_turn) as outcome:
        try:
            assert worked.wait(20)
            yield
        finally:
            over.set()
    assert outcome == [None]


@pytest.mark.protocol
@both_protocols
@whatever_its_mood
def test_its_partitions_go_to_others_while_the_coordinator_of_its_transactions_is_away(
    new_queue: NewQueue, protocol: str
) -> None:
    queue = on_two_brokers(new_queue)
    first, second = (queue.open(protocol, SOCIAL[protocol], commit_interval=0.05) for _ in range(2))
    with producing(queue) as producer:
        eventually(lambda: len(first.stats.partitions) == len(second.stats.partitions) == 1, 20)
        with trying(first, producer):
            queue.mock.down(2)
            eventually(lambda: len(second.stats.partitions) == 2, 20)
            eventually(lambda: "it leaves its partitions to others" in first.stats.trouble, 20)
            queue.send(*"abcdef")
            assert len(queue.consume_rest(second)) == 6
            queue.mock.up(2)
            eventually(lambda: len(first.stats.partitions) == len(second.stats.partitions) == 1, 30)
            eventually(lambda: not first.stats.trouble)  # the next observation of the group clears it
