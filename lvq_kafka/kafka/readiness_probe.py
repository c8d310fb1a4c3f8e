"""A probe that stays silent about failures while a cluster starts."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

__all__ = ["ReadinessProbe"]


class ReadinessProbe:
    """A silent client that asks one cluster repeatedly."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
        }
        self._client = AdminClient(settings)

    def serves(self, brokers: int, *, timeout: float = 1.0) -> bool:
        """Return whether the cluster lists this many brokers, and a leader for each partition.

        A restarted node leads its partitions only some time after it answers.
        """
        try:
            cluster = self._client.list_topics(timeout=timeout)
        except KafkaException:
            return False
        partitions = (partition for topic in cluster.topics.values() for partition in topic.partitions.values())
        return len(cluster.brokers) >= brokers and all(partition.leader >= 0 for partition in partitions)
