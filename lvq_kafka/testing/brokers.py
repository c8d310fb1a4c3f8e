"""Provide a real broker for tests and the demo, from whatever this machine offers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, cast, get_args

from lvq_kafka.errors import BrokerStartFailed, ConfigError, StateError

__all__ = ["BrokerKind", "ProvidedBroker", "provide_broker"]

BrokerKind = Literal["given", "docker", "embedded"]

GIVEN = "LVQ_BOOTSTRAP_SERVERS"
CHOICE = "LVQ_TEST_BROKER"


class _Process(Protocol):
    """A broker that was started here, embedded or in a container."""

    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True)
class ProvidedBroker:
    """A running broker and its origin.

    A broker that was started here (``kind`` is not ``"given"``) can be killed, restarted, paused and resumed; it keeps
    its address and its data.
    """

    bootstrap_servers: str
    kind: BrokerKind
    _process: _Process | None = None

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self._own.kill()

    def restart(self) -> None:
        """Start the broker again, after a clean stop if it runs; return once it serves clients."""
        self._own.restart()

    def pause(self) -> None:
        """Freeze the broker: connections stay open, but nothing answers."""
        self._own.pause()

    def resume(self) -> None:
        """Resume a paused broker."""
        self._own.resume()

    @property
    def _own(self) -> _Process:
        if self._process is None:
            raise StateError(
                f"The broker at {self.bootstrap_servers} was not started here and is left alone.",
                hint=f"Unset {GIVEN}, or set {CHOICE} to embedded or docker, for tests that stop a broker.",
            )
        return self._process


@contextmanager
def provide_broker(prefer: BrokerKind | None = None) -> Iterator[ProvidedBroker]:
    """Provide a broker for the ``with`` block; remove it afterwards if it was started here.

    Use the cluster that ``LVQ_BOOTSTRAP_SERVERS`` names; otherwise Kafka in Docker, if an engine answers and an image
    is available; otherwise the embedded broker. ``prefer``, or the variable ``LVQ_TEST_BROKER``, forces one of them.

    Raises:
        ConfigError: ``LVQ_TEST_BROKER`` names no kind of broker, or it asks for given servers and none are set.
        BrokerStartFailed, EmbeddedBrokerError: the broker cannot be started; the error says why.
    """
    kind, why_not_docker = _resolve(prefer)
    if kind == "given":
        servers = os.environ.get(GIVEN)
        if not servers:
            raise ConfigError(f"{GIVEN} is not set.", options=[GIVEN], hint="For example localhost:9092.")
        yield ProvidedBroker(servers, "given")
    elif kind == "docker":
        if why_not_docker is not None:
            raise BrokerStartFailed(f"No Kafka can be started in Docker: {why_not_docker}.")
        from lvq_kafka.testing.containers import KafkaContainer

        with KafkaContainer() as container:
            yield ProvidedBroker(container.bootstrap_servers, "docker", container)
    else:
        from lvq_kafka.embedded import EmbeddedBroker

        with EmbeddedBroker() as broker:
            yield ProvidedBroker(broker.bootstrap_servers, "embedded", broker)


def _resolve(prefer: BrokerKind | None) -> tuple[BrokerKind, str | None]:
    """Return the kind to provide and, if Docker was forced, why Docker is unavailable."""
    choice = prefer or os.environ.get(CHOICE)
    if choice:
        if choice not in get_args(BrokerKind):
            raise ConfigError(
                f"{CHOICE}={choice} is not a kind of broker.",
                options=[CHOICE],
                hint=f"Choose one of {', '.join(get_args(BrokerKind))}.",
            )
        return cast("BrokerKind", choice), _docker_unavailable() if choice == "docker" else None
    if os.environ.get(GIVEN):
        return "given", None
    return ("docker", None) if _docker_unavailable() is None else ("embedded", None)


def _docker_unavailable() -> str | None:
    try:
        from lvq_kafka.testing.containers import docker_unavailable_reason
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed; the extra lvq-kafka[testing] brings it"
    return docker_unavailable_reason()
