"""The broker's configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lvq_kafka.embedded.listeners import Listener

__all__ = ["CONTROLLER", "HOST", "PLAIN", "render", "server_properties"]

HOST = "127.0.0.1"
PLAIN = "PLAINTEXT"
CONTROLLER = "CONTROLLER"

# There is only one node, it runs on a developer's machine, and nobody wants to wait for it.
_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "auto.create.topics.enable": "false",
    # One node cannot hold three replicas; few partitions make the internal topics quick to create and to load.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # After a kill the node is admitted again once its old session has expired: seconds earlier than by default.
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    # Groups: no waiting for more members, and a dead member is noticed within seconds.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "10000",
    # No writes while idle: these records only show that a quorum of several nodes is alive.
    "metadata.max.idle.interval.ms": "0",
    # Compaction soon after it becomes possible, with little memory.
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "33554432",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # Threads for one developer, not for a data center.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
}


def server_properties(
    *,
    data: Path,
    ports: Mapping[str, int],
    controller_port: int,
    listeners: Mapping[str, Listener],
    acls: bool,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return all properties.

    ``ports`` names a port for ``PLAINTEXT`` and each of ``listeners``; ``overrides`` win.
    """
    protocols = {PLAIN: "PLAINTEXT", CONTROLLER: "PLAINTEXT"}
    protocols.update({name: listener.protocol for name, listener in listeners.items()})
    addresses = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
    result = {
        **_DEFAULTS,
        # A fixed quorum, so that the same data can be started on other ports as well.
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAIN,
        "listeners": ",".join([*addresses, f"{CONTROLLER}://{HOST}:{controller_port}"]),
        "advertised.listeners": ",".join(addresses),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(data),
    }
    for name, listener in listeners.items():
        result |= {f"listener.name.{name.lower()}.{key}": value for key, value in listener.properties.items()}
    if acls:
        # Clients of the plain listener are administrators; all others need ACLs.
        result |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    return result | dict(overrides)


def render(properties: Mapping[str, str]) -> str:
    """Return ``properties`` in Java's file format."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if text.startswith(" "):
        text = "\\" + text
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
