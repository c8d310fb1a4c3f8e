"""The part of the contract that switches the broker off: on one of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lvq_kafka.kafka import KafkaLog
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
def log(private_broker: ProvidedBroker) -> Iterator[KafkaLog]:
    log = KafkaLog(private_broker.bootstrap_servers)
    yield log
    log.close()


@pytest.fixture
def topic() -> str:
    return "prices"


class TestOutages(OutagesContract):
    pass
