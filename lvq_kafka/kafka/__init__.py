"""The Kafka adapter of `lvq_kafka.ports`, on confluent-kafka. Nothing else in the library knows that client."""

from __future__ import annotations

from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.log import KafkaLog

__all__ = ["ClientConfig", "KafkaLog"]
