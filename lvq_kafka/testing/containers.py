"""Kafka in Docker for tests, one node. Needs the extra ``testing``, which brings testcontainers.

The image is the official ``apache/kafka``, or the stand-in that ``docker/build-kafka-image.sh`` builds where no image
registry can be reached; ``LVQ_KAFKA_IMAGE`` names another one. The Docker engine has to be on this machine: everything
is published on its loopback address only.

Unlike testcontainers' habit the ports are chosen here and stay the same, so that clients come back after a restart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from docker.errors import APIError, DockerException, NotFound
from testcontainers.core.container import DockerContainer

from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.embedded.readiness import wait_until_ready
from lvq_kafka.embedded.server_properties import HOST, PLAIN, render, server_properties
from lvq_kafka.errors import BrokerStartFailed, StateError
from lvq_kafka.testing.docker_engine import docker_unavailable_reason, kafka_image, owner_labels, prepare

__all__ = ["CONTROLLER_PORT", "KafkaContainer", "docker_unavailable_reason", "prepare_engine"]

CONTROLLER_PORT = 9093
"""Where the controllers talk to each other, inside of Docker."""

_CONFIG = "/mnt/shared/config/server.properties"  # both images start with the file that lies here
_DATA = Path("/var/lib/kafka/data")
_PORT_ATTEMPTS = 3
_FREEZE_ATTEMPTS = 5
_STOP_SECONDS = 30
_PORT_TAKEN = ("port is already allocated", "address already in use", "Ports are not available")

_started: set[KafkaContainer] = set()


class KafkaContainer(DockerContainer):
    """An Apache Kafka of one node in a container, with the interface of `lvq_kafka.embedded.EmbeddedBroker`.

    ::

        with KafkaContainer() as kafka:
            queues = lvq_kafka.connect(kafka.bootstrap_servers)

    Args:
        image: instead of what `kafka_image` chooses.
        properties: broker properties that are added or replaced.
        listeners: further listeners by name, as for the embedded broker; `address` tells where they are.
        acls: refuse everything that no ACL allows, except to clients of the plain listener.
        heap: the largest heap of the JVM, in the JVM's notation.
        startup_timeout: seconds until a start is given up.
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
        super().__init__(image or kafka_image(), labels=owner_labels())
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._acls = acls
        self._startup_timeout = startup_timeout
        self._port_of: dict[str, int] = {}
        self.with_env("KAFKA_HEAP_OPTS", f"-Xmx{heap}")
        # Quick to start and small, as the embedded broker is.
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
        """Whether the container runs (a paused one does)."""
        self.reload()
        return self.status in ("running", "paused")

    def start(self) -> Self:
        """Start it, and return when it serves clients.

        Raises:
            BrokerStartFailed: it ended, or did not serve in time; the end of its log is in the error.
        """
        self.launch()
        self.await_ready()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Remove it with its data. Nothing happens if it is not there."""
        _started.discard(self)
        if self._container is not None:
            with contextlib.suppress(NotFound):
                super().stop(force, delete_volume)
            self._container = None

    def kill(self) -> None:
        """End the broker with SIGKILL and keep its data: `restart` brings it back."""
        self.get_wrapped_container().kill("SIGKILL")
        self.get_wrapped_container().wait(timeout=_STOP_SECONDS)

    def restart(self) -> None:
        """Start it again on the same ports and data, after an orderly stop if it runs. Raises as `start`."""
        self.get_wrapped_container().restart(timeout=_STOP_SECONDS)
        self.await_ready()

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers.

        Raises:
            APIError: the engine could not, several times over. Once in a while it cannot, while threads are started.
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
        """Let a paused broker go on."""
        self.get_wrapped_container().unpause()

    def logs_tail(self, lines: int = 40) -> str:
        """Return the end of what the broker wrote."""
        return bytes(self.get_wrapped_container().logs(tail=lines)).decode("utf-8", "replace")

    def launch(self) -> None:
        """Create and start the container, on other ports if somebody was quicker to use the chosen ones."""
        prepare_engine()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            names = [PLAIN, *self._listeners]
            self._port_of = dict(zip(names, free_ports(len(names)), strict=True))
            # The same number inside and outside: what the broker tells its clients holds on both sides.
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
        """Wait until a client sees this many brokers; else remove the container and raise with its log."""
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
    """See to it that what this process starts in Docker goes when it does."""
    prepare(at_exit=_stop_all)


def _stop_all() -> None:
    for container in list(_started):
        with contextlib.suppress(DockerException, OSError):
            container.stop()
