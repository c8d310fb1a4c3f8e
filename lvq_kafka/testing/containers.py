"""Kafka in Docker for tests: one node or a cluster. Needs the extra ``testing``, which brings testcontainers.

The image is the official ``apache/kafka``, or the stand-in that ``docker/build-kafka-image.sh`` builds where no image
registry can be reached; ``LVQ_KAFKA_IMAGE`` names another one. The Docker engine has to be on this machine: everything
is published on its loopback address only.

Unlike testcontainers' habit the ports are chosen here and stay the same, so that clients come back after a restart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from docker.errors import APIError, DockerException, NotFound
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from lvq_kafka.embedded.listeners import Listener
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.embedded.properties import HOST, PLAIN, render, server_properties
from lvq_kafka.embedded.readiness import wait_until_ready
from lvq_kafka.errors import BrokerStartFailed, StateError
from lvq_kafka.testing.docker_engine import docker_unavailable_reason, kafka_image, owner_labels, prepare

__all__ = ["KafkaCluster", "KafkaContainer", "docker_unavailable_reason"]

_CONTROLLER_PORT = 9093
_INNER_PORT = 19092  # where the brokers of a cluster talk to each other
_CONFIG = "/mnt/shared/config/server.properties"  # both images start with the file that lies here
_DATA = Path("/var/lib/kafka/data")
_PORT_ATTEMPTS = 3
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
        self._launch()
        self._wait_until_ready()
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
        self._wait_until_ready()

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers."""
        self.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let a paused broker go on."""
        self.get_wrapped_container().unpause()

    def logs_tail(self, lines: int = 40) -> str:
        """Return the end of what the broker wrote."""
        return bytes(self.get_wrapped_container().logs(tail=lines)).decode("utf-8", "replace")

    def _launch(self) -> None:
        """Create and start the container, on other ports if somebody was quicker to use the chosen ones."""
        prepare(at_exit=_stop_all)
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
            controller_port=_CONTROLLER_PORT,
            listeners=self._listeners,
            acls=self._acls,
            overrides={
                "listeners": ",".join([*everywhere, f"CONTROLLER://{HOST}:{_CONTROLLER_PORT}"]),
                **self._properties,
            },
        )

    def _wait_until_ready(self, brokers: int = 1) -> None:
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


class KafkaCluster:
    """Several Kafka nodes on a Docker network of their own; every topic has three replicas, two of them in sync.

    Args:
        size: the number of nodes, each a broker and a controller.
        image, properties, heap, startup_timeout: as for `KafkaContainer`.

    ``nodes`` are the containers, in the order of their node ids, which start at 1.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        image: str | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "384m",
        startup_timeout: float = 120.0,
    ) -> None:
        self._network = Network(
            docker_network_kw={
                "labels": owner_labels(),
                "options": {"com.docker.network.bridge.host_binding_ipv4": HOST},
            }
        )
        self.nodes = [
            _ClusterNode(
                number,
                size,
                self._network,
                image,
                properties=properties,
                heap=heap,
                startup_timeout=startup_timeout,
            )
            for number in range(1, size + 1)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def start(self) -> Self:
        """Start all nodes, and return when each serves clients and knows all the others. Raises as `KafkaContainer`."""
        prepare(at_exit=_stop_all)
        self._network.create()
        try:
            for node in self.nodes:
                node._launch()
            for node in self.nodes:
                node._wait_until_ready(brokers=len(self.nodes))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Remove the nodes with their data, and the network."""
        for node in self.nodes:
            node.stop()
        with contextlib.suppress(NotFound):
            self._network.remove()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class _ClusterNode(KafkaContainer):
    """A node that talks to the others by the names they have on the cluster's network."""

    def __init__(self, number: int, size: int, network: Network, image: str | None, **options: Any) -> None:
        super().__init__(image, **options)
        self._number = number
        self._size = size
        self.with_network(network).with_network_aliases(_node_name(number))

    def _server_properties(self) -> dict[str, str]:
        single = super()._server_properties()
        replicas = str(min(3, self._size))
        in_sync = str(min(2, self._size))
        voters = [f"{n}@{_node_name(n)}:{_CONTROLLER_PORT}" for n in range(1, self._size + 1)]
        return {
            **single,
            "node.id": str(self._number),
            "controller.quorum.voters": ",".join(voters),
            "listeners": (
                f"{PLAIN}://0.0.0.0:{self.port},INNER://0.0.0.0:{_INNER_PORT},CONTROLLER://0.0.0.0:{_CONTROLLER_PORT}"
            ),
            "advertised.listeners": f"{PLAIN}://{self.bootstrap_servers},INNER://{_node_name(self._number)}:{_INNER_PORT}",
            "listener.security.protocol.map": f"{PLAIN}:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            **self._properties,
        }


def _node_name(number: int) -> str:
    return f"kafka-{number}"


def _stop_all() -> None:
    for container in list(_started):
        with contextlib.suppress(DockerException, OSError):
            container.stop()
