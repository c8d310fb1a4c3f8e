"""The brokers of a cluster and their settings."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from lvq_kafka.core.facts import Right
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.settings import changes
from lvq_kafka.kafka.threads import in_thread

__all__ = ["KafkaBrokers"]

_NO_TOPIC = "*"  # not a legal topic name, so the answer is short and no broker creates the topic
_CLUSTER = "kafka-cluster"  # the cluster's resource name in ACLs
_NO_BROKER = KafkaError(KafkaError.BROKER_NOT_AVAILABLE, "The broker that answers knows of none that lives")


class KafkaBrokers:
    """The live brokers of a cluster. Thread-safe."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests.ask

    def ids(self, timeout: float) -> list[int]:
        """Return the ids of the live brokers, at least one.

        Does not use `AdminClient.describe_cluster`: the client (2.16.0) aborts the process if the answer names no
        broker.
        """
        [cluster] = self._ask(
            lambda client, left: [in_thread(lambda: client.list_topics(_NO_TOPIC, timeout=left))],
            "describe the cluster",
            time.monotonic() + timeout,
            harmless=True,
            answered=lambda answer: bool(answer.brokers),
            unanswered=_NO_BROKER,
        )
        return list(cluster.brokers)

    def setting(self, name: str, timeout: float) -> str:
        """Return a setting of one of the brokers.

        Raises:
            TransportError: it has no such setting, as those of other makers have not.
        """
        deadline = time.monotonic() + timeout
        resource = ConfigResource(ConfigResource.Type.BROKER, str(min(self.ids(timeout))))
        [entries] = self._ask(
            lambda client, left: client.describe_configs([resource], request_timeout=left).values(),
            "read the settings of a broker",
            deadline,
            needs=[Right("DescribeConfigs", "Cluster", _CLUSTER)],
            harmless=True,
        )
        value: str | None = entries[name].value if name in entries else None
        if value is None:
            raise TransportError(f"The brokers report no setting {name}.", code="INVALID_CONFIG")
        return value

    def alter_config(self, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """Set dynamic settings on every broker.

        Raises:
            ConfigError: the cluster rejects a setting.
        """
        deadline = time.monotonic() + timeout
        resources = [
            ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=changes(config))
            for broker in self.ids(timeout)
        ]
        self._ask(
            lambda client, left: client.incremental_alter_configs(resources, request_timeout=left).values(),
            "change the settings of the brokers",
            deadline,
            needs=[Right("AlterConfigs", "Cluster", _CLUSTER)],
        )
