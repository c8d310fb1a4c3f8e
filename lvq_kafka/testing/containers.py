"""Single-node Kafka in Docker for tests. Needs the extra ``testing`` (testcontainers).

The image is the official ``apache/kafka``, or the stand-in that ``docker/build-kafka-image.sh`` builds where no image
registry is reachable; ``LVQ_KAFKA_IMAGE`` overrides both. The Docker engine must run on this machine: all ports are
published on its loopback address only.

Unlike in plain testcontainers, the ports are chosen here and stay the same, so that clients reconnect after a restart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from docker.errors import APIError, DockerException, NotFound
from testcontainers.core.container import DockerContainer

from lvq_kafka.core.text.validation import limit
from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.embedded.readiness import wait_until_ready
from lvq_kafka.embedded.server_properties import HOST, PLAIN, render, server_properties
from lvq_kafka.errors import BrokerStartFailed, StateError
from lvq_kafka.testing.docker_engine import docker_unavailable_reason, kafka_image, owner_labels, prepare

__all__ = ["CONTROLLER_PORT", "KafkaContainer", "docker_unavailable_reason", "prepare_engine"]

CONTROLLER_PORT = 9093
"""The port that the controllers use among themselves, inside Docker."""

_CONFIG = "/mnt/shared/config/server.properties"  # both images start with the file at this path
_DATA = Path("/var/lib/kafka/data")
_PORT_ATTEMPTS = 3
_FREEZE_ATTEMPTS = 5
_STOP_SECONDS = 30
_PORT_TAKEN = ("port is already allocated", "address already in use", "Ports are not available")

_started: set[KafkaContainer] = set()


class KafkaContainer(DockerContainer):
    """A single-node Kafka in Docker with the API of `lvq_kafka.embedded.EmbeddedBroker`.

    ::

        with KafkaContainer() as kafka:
            queues = lvq_kafka.connect(kafka.bootstrap_servers)

    Args:
        image: the image to use instead of the one `kafka_image` chooses.
        properties: broker properties to add or replace.
        listeners: further listeners by name, as for the embedded broker; `address` returns their addresses.
        acls: refuse everything that no ACL allows, except to clients of the plain listener.
        heap: the maximum heap of the JVM, in the JVM's notation.
        startup_timeout: the limit for a start, in seconds.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, Listener] | None = None,
        acls: bool = False,
        heap: str = "512m",
        startup_timeout: float = 60.0,
    ) -> None:
        limit(startup_timeout, "startup_timeout")
        super().__init__(image or kafka_image(), labels=owner_labels())
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._acls = acls
        self._startup_timeout = startup_timeout
        self._port_of: dict[str, int] = {}
        self.with_env("KAFKA_HEAP_OPTS", f"-Xmx{heap}")
        # Small and quick to start, like the embedded broker.
        self.with_env("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

    @property
    def bootstrap_servers(self) -> str:
        """The address of the plain listener."""
        return self.address(PLAIN)

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener."""
        if listener not in self._port_of:
            raise StateError(f"The container has no listener {listener} now: {sorted(self._port_of) or 'not started'}.")
        return f"{HOST}:{self._port_of[listener]}"

    @property
    def port(self) -> int:
        """The port of the plain listener."""
        return int(self.bootstrap_servers.rpartition(":")[2])

    @property
    def running(self) -> bool:
        """True while the container runs, even if it is paused."""
        self.reload()
        return self.status in ("running", "paused")

    def start(self) -> Self:
        """Start the container, and return once the broker serves clients.

        Raises:
            BrokerStartFailed: the broker exited or was not ready in time; the error contains the end of its log.
        """
        self.launch()
        self.await_ready()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove the container with its data. Do nothing if there is none."""
        _started.discard(self)
        if self._container is not None:
            with contextlib.suppress(NotFound):
                super().stop(force, delete_volume)
            self._container = None

    def kill(self) -> None:
        """Kill the broker with SIGKILL but keep its data, for `restart`."""
        self.get_wrapped_container().kill("SIGKILL")
        self.get_wrapped_container().wait(timeout=_STOP_SECONDS)

    def restart(self) -> None:
        """Start the broker again on the same ports and data, after a clean stop if it runs.

        Raises as `start`.
        """
        self.get_wrapped_container().restart(timeout=_STOP_SECONDS)
        self.await_ready()

    def pause(self) -> None:
        """Freeze the broker: connections stay open, but nothing answers.

        Raises:
            APIError: the engine failed several times. It occasionally fails while threads are being started.
        """
        for attempt in range(1, _FREEZE_ATTEMPTS + 1):
            try:
                self.get_wrapped_container().pause()
            except APIError as error:
                if attempt == _FREEZE_ATTEMPTS or "unable to freeze" not in str(error):
                    raise
            else:
                return

    def resume(self) -> None:
        """Resume a paused broker."""
        self.get_wrapped_container().unpause()

    def logs_tail(self, lines: int = 40) -> str:
        """Return the end of the broker's output."""
        return bytes(self.get_wrapped_container().logs(tail=lines)).decode("utf-8", "replace")

    def launch(self) -> None:
        """Create and start the container; pick other ports if the chosen ones were taken."""
        prepare_engine()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            names = [PLAIN, *self._listeners]
            self._port_of = dict(zip(names, free_ports(len(names)), strict=True))
            # Same port inside and outside, so that the addresses the broker advertises work on both sides.
            bindings: dict[str, Any] = {f"{port}/tcp": (HOST, port) for port in self._port_of.values()}
            self.ports = bindings
            self.with_copy_into_container(render(self._server_properties()).encode("ascii"), _CONFIG, 0o644)
            _started.add(self)
            try:
                super().start()
            except APIError as error:
                self.stop()
                if attempt == _PORT_ATTEMPTS or not any(text in str(error) for text in _PORT_TAKEN):
                    raise BrokerStartFailed(f"Docker could not start {self.image}: {error}") from error
            else:
                return

    def _server_properties(self) -> dict[str, str]:
        everywhere = [f"{name}://0.0.0.0:{port}" for name, port in self._port_of.items()]
        return server_properties(
            data=_DATA,
            ports=self._port_of,
            controller_port=CONTROLLER_PORT,
            listeners=self._listeners,
            acls=self._acls,
            overrides={
                "listeners": ",".join([*everywhere, f"CONTROLLER://{HOST}:{CONTROLLER_PORT}"]),
                **self._properties,
            },
        )

    def await_ready(self, brokers: int = 1) -> None:
        """Wait until a client sees this many brokers.

        Otherwise remove the container and raise with its log.
        """
        if wait_until_ready(self.port, alive=lambda: self.running, timeout=self._startup_timeout, brokers=brokers):
            return
        if self.running:
            problem = f"was not ready within {self._startup_timeout:g} seconds"
        else:
            problem = f"ended while starting (exit code {self.wait()})"
        log = self.logs_tail()
        self.stop()
        error = BrokerStartFailed(f"Kafka in Docker ({self.image}) {problem}.", log=log)
        error.add_note(f"The end of its log:\n{log}")
        raise error


def prepare_engine() -> None:
    """Make sure that everything this process starts in Docker is removed with it."""
    prepare(at_exit=_stop_all)


def _stop_all() -> None:
    for container in list(_started):
        with contextlib.suppress(DockerException, OSError):
            container.stop()
