"""Fixtures for tests on a real broker. ``broker`` is shared; a test that stops one uses ``private_broker``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker

pytest.register_assert_rewrite("tests.integration.bad_input")


@pytest.fixture
def broker(lvq_broker: ProvidedBroker) -> ProvidedBroker:
    """Return the session's broker."""
    return lvq_broker


@pytest.fixture
def kafka_cluster(lvq_cluster: KafkaCluster) -> KafkaCluster:
    """Return the session's broker as a `Cluster`."""
    return lvq_cluster


@pytest.fixture
def topic_name(lvq_topic: str) -> str:
    """Return a new topic name. The topic is deleted afterwards."""
    return lvq_topic


@pytest.fixture
def private_broker() -> Iterator[ProvidedBroker]:
    """Start a private broker, to kill, restart, pause and resume."""
    with provide_broker("docker" if os.environ.get("LVQ_TEST_BROKER") == "docker" else "embedded") as broker:
        yield broker


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip the test without a Docker engine and a Kafka image. In CI, skips are failures."""
    from lvq_kafka.testing.containers import docker_unavailable_reason

    reason = docker_unavailable_reason()
    if reason is not None:
        pytest.skip(reason)
