"""Kafka adapter for `lvq_kafka.cluster`, built on confluent-kafka.

Nothing else in the library imports that client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lvq_kafka.kafka.client import ClientConfig

if TYPE_CHECKING:
    from lvq_kafka.kafka.kafka_cluster import KafkaCluster

__all__ = ["ClientConfig", "KafkaCluster"]

if not TYPE_CHECKING:  # otherwise a type checker would accept any attribute name

    def __getattr__(name: str) -> object:
        """Import the client only for a real cluster: in-memory clusters do without it."""
        if name != "KafkaCluster":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from lvq_kafka.kafka.kafka_cluster import KafkaCluster

        return KafkaCluster
