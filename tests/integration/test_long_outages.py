"""Outages longer than the delivery timeout: no message is stored after one that was sent later (G14)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from lvq_kafka.cluster import Receipt
from lvq_kafka.errors import DeliveryFailed, DeliveryUnknown, LVQError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.test_producer import COMPACT, read
from tests.late_cables import HoldingCable, SlowCable
from tests.rules import rules
from tests.waiting import eventually


class Numbers:
    """Sends ascending numbers for a few keys, and compares their outcomes with a plain reader's records."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer
        self.sent: list[Receipt] = []

    def send(self, count: int = 1) -> list[Receipt]:
        receipts = [self._producer.put(n % 5, b"%d" % n) for n in range(len(self.sent), len(self.sent) + count)]
        self.sent += receipts
        return receipts

    def send_until_stored(self) -> None:
        """Send one message after another until one is acknowledged."""
        eventually(lambda: self.send()[0].exception(20) is None, 60)

    def judge(self, cluster: KafkaCluster) -> set[int]:
        """Return the numbers in the log, after all outcomes are known."""
        failures = {number: receipt.exception(20) for number, receipt in enumerate(self.sent)}
        stored = [int(record.value or b"") for record in read(cluster, self._producer.topic)]
        assert stored == sorted(set(stored)), "in the order in which they were sent, and none twice"
        assert {number for number, failure in failures.items() if failure is None} <= set(stored)
        assert not {number for number, failure in failures.items() if isinstance(failure, DeliveryFailed)} & set(stored)
        return set(stored)

    def failed(self, kind: type[Exception]) -> list[int]:
        """Return the numbers whose receipts failed with this error."""
        return [n for n, receipt in enumerate(self.sent) if receipt.done() and isinstance(receipt.exception(0), kind)]


@contextmanager
def numbers(cluster: KafkaCluster, servers: str, topic: str, limit: float = 1.0) -> Iterator[Numbers]:
    cluster.topics.create(topic, partitions=1, config=COMPACT)
    through = KafkaCluster(ClientConfig(servers, {"delivery.timeout.ms": int(limit * 1000)}))
    producer = Producer(through, rules(topic=topic, key_header="n"))
    sent = Numbers(producer)
    sent.send_until_stored()  # a new broker takes a while to give a producer its id
    yield sent
    with suppress(LVQError):  # what failed is seen by its receipts
        producer.close(10)
    through.close()


def steadily(sent: Numbers, seconds: float) -> None:
    """Send about 200 messages a second for this long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sent.send()
        time.sleep(0.005)


def outlast(sent: Numbers) -> None:
    """Send during an outage until the first messages have expired, and a little longer."""
    first, *rest = sent.send(200)
    failure = first.exception(20)
    assert isinstance(failure, DeliveryUnknown)
    assert (failure.code, failure.retriable) == ("_TIMED_OUT", True)
    while not all(receipt.done() for receipt in rest):
        sent.send()
    sent.send(20)


def test_g14_nothing_lands_behind_what_was_sent_after_a_broken_line(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    """On a slow connection, messages expire while requests that others depend on are in flight."""
    servers = kafka_cluster.config.bootstrap_servers
    with (
        SlowCable(servers) as cable,
        numbers(kafka_cluster, cable.bootstrap_servers, topic_name, limit=2.0) as sent,
    ):
        steadily(sent, 1.0)
        cable.cut()
        steadily(sent, 3.5)
        cable.latency = 0.4
        cable.mend()  # frames in flight arrive, then what the client sends now
        steadily(sent, 2.0)
        cable.latency = 0.0
        sent.send_until_stored()
        assert sent.failed(DeliveryUnknown)
        sent.judge(kafka_cluster)


def test_g14_nothing_lands_behind_what_was_sent_after_a_broker_stood_still_or_was_killed(
    private_broker: ProvidedBroker,
) -> None:
    cluster = KafkaCluster(private_broker.bootstrap_servers)
    with numbers(cluster, private_broker.bootstrap_servers, "prices") as sent:
        private_broker.pause()
        outlast(sent)
        private_broker.resume()
        sent.send_until_stored()
        sent.judge(cluster)
        private_broker.kill()
        outlast(sent)
        private_broker.restart()
        sent.send_until_stored()
        sent.judge(cluster)
    cluster.close()


def test_g14_requests_that_the_network_has_kept_are_refused_once_newer_ones_are_stored(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    servers = kafka_cluster.config.bootstrap_servers
    with HoldingCable(servers) as cable, numbers(kafka_cluster, cable.bootstrap_servers, topic_name) as sent:
        cable.hold()
        outlast(sent)
        given_up = set(sent.failed(DeliveryUnknown))
        cable.reset()
        sent.send_until_stored()
        cable.release()
        sent.send_until_stored()
        assert not sent.judge(kafka_cluster) & given_up


@pytest.mark.parametrize("arrival", ["before", "after"])
def test_g14_messages_that_wait_in_the_client_to_be_sent_again_may_have_been_stored(
    kafka_cluster: KafkaCluster, topic_name: str, arrival: str
) -> None:
    servers = kafka_cluster.config.bootstrap_servers
    with HoldingCable(servers) as cable, numbers(kafka_cluster, cable.bootstrap_servers, topic_name) as sent:
        first, end = len(sent.sent), kafka_cluster.logs.end_offsets(topic_name)[0]
        cable.hold()
        on_the_line = sent.send(5)
        eventually(lambda: cable.held)
        cable.refuse()
        cable.reset()
        assert [type(receipt.exception(20)) for receipt in on_the_line] == [DeliveryUnknown] * 5
        if arrival == "before":
            cable.release()
            eventually(lambda: kafka_cluster.logs.end_offsets(topic_name)[0] > end)
        cable.accept()
        sent.send_until_stored()
        if arrival == "after":
            cable.release()
        sent.send_until_stored()
        assert (first in sent.judge(kafka_cluster)) == (arrival == "before")
