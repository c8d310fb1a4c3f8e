"""Parts of a `KafkaCluster`, on a stand-in for its `AdminRequests`."""

from __future__ import annotations

from typing import Any

from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.kafka_brokers import KafkaBrokers
from lvq_kafka.kafka.kafka_logs import KafkaLogs
from lvq_kafka.kafka.kafka_topics import KafkaTopics
from lvq_kafka.kafka.topic_metadata import TopicMetadata

__all__ = ["logs_of", "topics_of"]


def logs_of(requests: Any) -> KafkaLogs:
    return KafkaLogs(ClientConfig("127.0.0.1:1"), requests, TopicMetadata(requests))


def topics_of(requests: Any) -> KafkaTopics:
    return KafkaTopics(requests, KafkaBrokers(requests), TopicMetadata(requests), logs_of(requests))
