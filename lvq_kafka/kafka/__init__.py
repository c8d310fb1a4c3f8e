"""Kafka adapter for `lvq_kafka.cluster`, built on confluent-kafka.

Nothing else in the library imports that client.
"""

from __future__ import annotations

from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.kafka_cluster import KafkaCluster

__all__ = ["ClientConfig", "KafkaCluster"]
