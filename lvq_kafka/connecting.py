"""From what a caller names to the log it means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.validation import instance, mapping
from lvq_kafka.errors import ConfigError

if TYPE_CHECKING:
    from lvq_kafka.kafka import ClientConfig

__all__ = ["connect", "connect_within"]


def connect(
    bootstrap_servers: str | None = None,
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> Cluster:
    """The log to work on: the one given, or the cluster that servers and configuration name.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        config: librdkafka properties, or a `ClientConfig`. With neither servers nor configuration the environment
            decides (`ClientConfig.from_env`).
        log: any implementation of `lvq_kafka.cluster.Cluster`; excludes the others.

    Raises:
        ConfigError: options contradict each other, or nothing names a cluster.
    """
    if cluster is not None:
        if bootstrap_servers is not None or config is not None:
            raise ConfigError(
                "cluster and bootstrap_servers (or config) are both given.", options=["cluster", "bootstrap_servers"]
            )
        instance("cluster", cluster, Cluster, "Pass what `connect` returns, or leave it out.")
        return cluster
    # Only here does the library reach for the client, so that everything else runs on any log.
    from lvq_kafka.kafka import ClientConfig, KafkaCluster

    if isinstance(config, ClientConfig):
        if bootstrap_servers is not None:
            config = ClientConfig(bootstrap_servers, config.properties | {"bootstrap.servers": bootstrap_servers})
        return KafkaCluster(config)
    properties = dict(mapping("config", config, 'For example config={"security.protocol": "SSL"}.'))
    servers = bootstrap_servers or properties.pop("bootstrap.servers", None)
    if servers is None:
        if properties:
            raise ConfigError(
                "The configuration names no bootstrap servers.", options=["bootstrap.servers"], hint="Give them."
            )
        return KafkaCluster(ClientConfig.from_env())
    return KafkaCluster(ClientConfig(servers, properties))


def connect_within(
    opened: ExitStack,
    bootstrap_servers: str | None = None,
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> Cluster:
    """As `connect`; a log that is opened here is closed with ``opened``. One that was given stays its giver's."""
    chosen = connect(bootstrap_servers, config=config, cluster=cluster)
    if cluster is None:
        opened.callback(chosen.close)
    return chosen
