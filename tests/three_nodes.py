"""Kafka as in production: three nodes, each broker and controller, and topics with three replicas.

`EmbeddedBroker` is one node. This is a cluster of three; each can be killed, paused, restarted and cut off separately.
Two of three are a quorum. With fewer, nothing can be written and no leader is elected.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.embedded.data_directory import META, new_id
from lvq_kafka.embedded.jars import ensure_jars
from lvq_kafka.embedded.java import find_java
from lvq_kafka.embedded.jvm import Jvm
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.embedded.server_properties import HOST
from lvq_kafka.kafka.readiness_probe import ReadinessProbe
from tests.cable import Cable
from tests.waiting import eventually

__all__ = ["NODES", "ThreeNodes", "three_nodes"]

NODES = (1, 2, 3)
_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Drop a paused node within seconds, so that tests need not wait half a minute.
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}
_START = 120.0  # seconds; three JVMs are slow to start on two busy cores


class ThreeNodes:
    """The running cluster. Nodes go by their numbers, 1 to 3."""

    def __init__(self, brokers: Mapping[int, EmbeddedBroker], cables: Mapping[tuple[int, int], Cable]) -> None:
        self._brokers = brokers
        self._cables = cables  # from a node to the controller of another one
        self._down: dict[int, Callable[[EmbeddedBroker], None]] = {}  # and how to bring each back
        self.bootstrap_servers = ",".join(broker.bootstrap_servers for broker in brokers.values())
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    @property
    def up(self) -> list[int]:
        """Return the running nodes."""
        return [node for node in self._brokers if node not in self._down]

    def kill(self, *nodes: int) -> None:
        """Kill nodes with SIGKILL. They keep their data."""
        for node in nodes:
            self._brokers[node].kill()
            self._down[node] = EmbeddedBroker.restart

    def pause(self, *nodes: int) -> None:
        """Freeze nodes with SIGSTOP. Their connections stay open."""
        for node in nodes:
            self._brokers[node].pause()
            self._down[node] = EmbeddedBroker.resume

    def cut_off(self, node: int) -> None:
        """Cut a node off from the controllers of the others. It still serves clients, and learns of no election."""
        for cable in self._between(node):
            cable.cut()

    def reconnect(self, node: int) -> None:
        """Mend what `cut_off` has cut, and wait until every replica is in sync."""
        for cable in self._between(node):
            cable.mend()
        eventually(self._is_whole, _START, every=0.1)

    def _between(self, node: int) -> Iterator[Cable]:
        return (cable for ends, cable in self._cables.items() if node in ends)

    def restart(self, node: int) -> None:
        """Stop a node in an orderly way, as an upgrade does, and bring it back."""
        self._brokers[node].restart()

    def bring_back(self, *nodes: int) -> None:
        """Bring these nodes back, or all that are down, and wait until every replica is in sync."""
        back = {node: self._down.pop(node) for node in nodes or list(self._down)}
        with ThreadPoolExecutor(len(NODES)) as pool:  # if two are down, neither serves before the other is up
            for done in [pool.submit(how, self._brokers[node]) for node, how in back.items()]:
                done.result()
        if not self._down:
            eventually(self._is_whole, _START, every=0.1)

    def data_of(self, node: int) -> Path:
        """Return the folder of a node's logs."""
        return self._brokers[node].data_dir / "data"

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition."""

        def find() -> int:
            try:
                cluster = self._admin.list_topics(topic, timeout=5)
            except KafkaException:
                return 0
            found = cluster.topics[topic].partitions.get(partition)
            return max(found.leader, 0) if found is not None else 0

        return eventually(find, _START, every=0.1)

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group."""
        return self.leader("__consumer_offsets", _java_hash(group) % self._partitions("__consumer_offsets"))

    def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the coordinator of a transactional id."""
        topic = "__transaction_state"
        return self.leader(topic, _java_hash(transactional_id) % self._partitions(topic))

    def _partitions(self, topic: str) -> int:
        return eventually(lambda: len(self._admin.list_topics(topic, timeout=5).topics[topic].partitions), _START)

    def _is_whole(self) -> bool:
        try:
            cluster = self._admin.list_topics(timeout=5)
        except KafkaException:
            return False
        partitions = [found for topic in cluster.topics.values() for found in topic.partitions.values()]
        return len(cluster.brokers) == len(NODES) and all(
            found.leader >= 0 and len(found.isrs) == len(found.replicas) for found in partitions
        )


@contextmanager
def three_nodes(properties: Mapping[str, str] | None = None) -> Iterator[ThreeNodes]:
    """Start three nodes, and kill them at the end.

    Args:
        properties: more broker properties, the same for all nodes.
    """
    ports = dict(zip(NODES, zip(*[iter(free_ports(2 * len(NODES)))] * 2, strict=True), strict=True))
    with tempfile.TemporaryDirectory(prefix="lvq-kafka-three-") as home, ExitStack() as running:
        controllers = {node: f"{HOST}:{controller}" for node, (_, controller) in ports.items()}
        cables = {ends: running.enter_context(Cable(controllers[ends[1]])) for ends in permutations(NODES, 2)}
        voters = {
            node: controllers
            | {there: cable.bootstrap_servers for (here, there), cable in cables.items() if here == node}
            for node in NODES
        }
        brokers = {
            node: EmbeddedBroker(
                data_dir=Path(home) / str(node),
                port=port,
                heap="256m",
                startup_timeout=_START,
                properties={
                    **_REPLICATED,
                    "node.id": str(node),
                    "controller.quorum.voters": ",".join(f"{other}@{at}" for other, at in voters[node].items()),
                    "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
                    **(properties or {}),
                },
            )
            for node, (port, controller) in ports.items()
        }
        _make_one_cluster(Path(home))
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(running.enter_context, brokers.values()))
        cluster = ThreeNodes(brokers, cables)
        probe = ReadinessProbe(cluster.bootstrap_servers)
        eventually(lambda: probe.serves(len(NODES)), _START)
        yield cluster
        cluster.kill(*NODES)  # in an orderly stop, the last two would wait half a minute for a quorum


def _make_one_cluster(home: Path) -> None:
    """Format the nodes' storage as one cluster. `EmbeddedBroker` alone would make each node a cluster of its own."""
    storage = Jvm(find_java(), ensure_jars(None), "256m").storage
    cluster = new_id()
    for node in NODES:
        data = home / str(node) / "data"
        if not storage.copy_to(data):
            with EmbeddedBroker():  # the first broker creates the template that later ones copy
                pass
            assert storage.copy_to(data)
        meta = data / META
        own = {"cluster.id": cluster, "node.id": str(node)}
        lines = [line.partition("=")[::2] for line in meta.read_text().splitlines()]
        meta.write_text("".join(f"{name}={own.get(name, value)}\n" for name, value in lines))


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode without its sign bit, from which Kafka derives a partition."""
    value = 0
    for unit in text.encode("utf-16-be")[1::2]:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
