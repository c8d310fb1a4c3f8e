"""Resolves a caller's connection arguments to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.text.validation import instance, mapping
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig

__all__ = ["connect", "connect_within"]


def connect(
    bootstrap_servers: str | None = None,
    *,
    config: ClientConfig | Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> Cluster:
    """Return the cluster passed in, or connect to the one that the arguments name.

    Args:
        bootstrap_servers: ``host:port``, several separated by commas.
        config: librdkafka properties, or a `ClientConfig`. With neither servers nor configuration, the environment
            decides (`ClientConfig.from_env`).
        cluster: any implementation of `lvq_kafka.cluster.Cluster`; excludes the other arguments.

    Raises:
        ConfigError: options contradict each other, or nothing names a cluster.
    """
    if cluster is not None:
        if bootstrap_servers is not None or config is not None:
            raise ConfigError(
                "cluster and bootstrap_servers (or config) are both given.", options=["cluster", "bootstrap_servers"]
            )
        instance("cluster", cluster, Cluster, "Pass the result of connect(), or omit it.")
        return cluster
    # The only import of the client, so that everything else runs on any cluster.
    from lvq_kafka.kafka import KafkaCluster

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
    """Like `connect`; a cluster that is opened here is closed with ``opened``.

    A cluster that was passed in stays its owner's to close.
    """
    chosen = connect(bootstrap_servers, config=config, cluster=cluster)
    if cluster is None:
        opened.callback(chosen.close)
    return chosen
