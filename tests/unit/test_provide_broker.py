"""The source of a test's broker, and the cost of loading the pytest plugin."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from lvq_kafka import embedded
from lvq_kafka.errors import BrokerStartFailed, ConfigError, StateError
from lvq_kafka.testing import brokers, containers
from lvq_kafka.testing.brokers import provide_broker


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables, hide Docker, and make the embedded broker quick to start."""
    monkeypatch.delenv("LVQ_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("LVQ_TEST_BROKER", raising=False)
    monkeypatch.setattr(brokers, "_docker_unavailable", lambda: "no Docker engine answers")
    process = SimpleNamespace(bootstrap_servers="127.0.0.1:1", calls=[])
    process.kill = lambda: process.calls.append("kill")
    monkeypatch.setattr(embedded, "EmbeddedBroker", lambda: nullcontext(process))


def test_servers_that_are_given_are_used_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", "kafka.example:9092")
    with provide_broker() as broker:
        assert (broker.bootstrap_servers, broker.kind) == ("kafka.example:9092", "given")
        for stop in (broker.kill, broker.restart, broker.pause, broker.resume):
            with pytest.raises(StateError, match=r"kafka\.example:9092"):
                stop()


def test_the_embedded_broker_is_used_where_docker_is_not_to_be_had() -> None:
    with provide_broker() as broker:
        assert (broker.bootstrap_servers, broker.kind) == ("127.0.0.1:1", "embedded")
        broker.kill()


def test_docker_goes_before_the_embedded_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_docker_unavailable", lambda: None)
    container = SimpleNamespace(bootstrap_servers="127.0.0.1:2")
    monkeypatch.setattr(containers, "KafkaContainer", lambda: nullcontext(container))
    with provide_broker() as broker:
        assert (broker.bootstrap_servers, broker.kind) == ("127.0.0.1:2", "docker")
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", "kafka.example:9092")
    with provide_broker() as broker:
        assert broker.kind == "given"


def test_a_forced_kind_goes_before_servers_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", "kafka.example:9092")
    monkeypatch.setenv("LVQ_TEST_BROKER", "embedded")
    with provide_broker() as broker:
        assert broker.kind == "embedded"
    with provide_broker("given") as broker:
        assert broker.kind == "given"


def test_forcing_docker_without_docker_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_TEST_BROKER", "docker")
    with pytest.raises(BrokerStartFailed, match="no Docker engine answers"), provide_broker():
        pass


def test_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_TEST_BROKER", "podman")
    with pytest.raises(ConfigError, match="LVQ_TEST_BROKER=podman"), provide_broker():
        pass


def test_given_servers_that_are_not_given_are_refused() -> None:
    with pytest.raises(ConfigError, match="LVQ_BOOTSTRAP_SERVERS"), provide_broker("given"):
        pass


def test_the_pytest_plugin_loads_nothing_heavy() -> None:
    script = (
        "import sys, lvq_kafka.testing.plugin;"
        "print([name for name in ('confluent_kafka', 'docker', 'pyspark', 'testcontainers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
