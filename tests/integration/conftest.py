"""Fixtures of the tests on a real broker: ``broker`` is shared, a test that stops one asks for ``private_broker``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker

pytest.register_assert_rewrite("tests.integration.bad_input")


@pytest.fixture
def broker(lvq_broker: ProvidedBroker) -> ProvidedBroker:
    """The session's broker."""
    return lvq_broker


@pytest.fixture
def kafka_cluster(lvq_cluster: KafkaCluster) -> KafkaCluster:
    """The session's broker as a `Cluster`."""
    return lvq_cluster


@pytest.fixture
def topic_name(lvq_topic: str) -> str:
    """A fresh topic name, deleted afterwards."""
    return lvq_topic


@pytest.fixture
def private_broker() -> Iterator[ProvidedBroker]:
    """A broker of the test's own, to kill, restart, pause and resume."""
    with provide_broker("docker" if os.environ.get("LVQ_TEST_BROKER") == "docker" else "embedded") as broker:
        yield broker


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Needs a Docker engine and an image of Kafka; skips with the reason, which CI does not allow."""
    from lvq_kafka.testing.containers import docker_unavailable_reason

    reason = docker_unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
