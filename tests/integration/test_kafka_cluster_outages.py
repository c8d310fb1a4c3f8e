"""The part of the contract that stops the broker, on a private one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.contract.outages import Outage, OutagesContract


class KilledBroker:
    """`Outage` by SIGKILL."""

    def __init__(self, broker: ProvidedBroker) -> None:
        self.disconnect = broker.kill
        self.reconnect = broker.restart


@pytest.fixture
def outage(private_broker: ProvidedBroker) -> Outage:
    return KilledBroker(private_broker)


@pytest.fixture
def cluster(private_broker: ProvidedBroker) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(private_broker.bootstrap_servers)
    yield cluster
    cluster.close()


@pytest.fixture
def topic() -> str:
    return "prices"


class TestOutages(OutagesContract):
    pass
