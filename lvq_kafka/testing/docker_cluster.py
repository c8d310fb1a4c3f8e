"""A Kafka cluster in Docker for tests. Needs the extra ``testing`` (testcontainers)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from docker.errors import NotFound
from testcontainers.core.network import Network

from lvq_kafka.core.text.validation import at_least_one, limit
from lvq_kafka.embedded.server_properties import HOST, PLAIN
from lvq_kafka.testing.containers import CONTROLLER_PORT, KafkaContainer, prepare_engine
from lvq_kafka.testing.docker_engine import owner_labels

__all__ = ["DockerCluster"]

_INNER_PORT = 19092  # the port that the brokers of a cluster use among themselves


class DockerCluster:
    """Several Kafka nodes on their own Docker network.

    Every topic has three replicas, two of them in sync.

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
        at_least_one(size=size)
        limit(startup_timeout, "startup_timeout")
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
        """Start all nodes, and return once each serves clients and knows all the others.

        Raises as `KafkaContainer`.
        """
        prepare_engine()
        self._network.create()
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.await_ready(brokers=len(self.nodes))
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
    """A node that reaches the others by their names on the cluster's network."""

    def __init__(self, number: int, size: int, network: Network, image: str | None, **options: Any) -> None:
        super().__init__(image, **options)
        self._number = number
        self._size = size
        self.with_network(network).with_network_aliases(_node_name(number))

    def _server_properties(self) -> dict[str, str]:
        single = super()._server_properties()
        replicas = str(min(3, self._size))
        in_sync = str(min(2, self._size))
        voters = [f"{n}@{_node_name(n)}:{CONTROLLER_PORT}" for n in range(1, self._size + 1)]
        return {
            **single,
            "node.id": str(self._number),
            "controller.quorum.voters": ",".join(voters),
            "listeners": (
                f"{PLAIN}://0.0.0.0:{self.port},INNER://0.0.0.0:{_INNER_PORT},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}"
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
