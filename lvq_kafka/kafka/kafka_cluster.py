"""The Kafka adapter: a cluster as the library's drivers see it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lvq_kafka.cluster import Cluster, GroupListener, GroupMember, LogReader, LogWriter
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.kafka_brokers import KafkaBrokers
from lvq_kafka.kafka.kafka_groups import KafkaGroups
from lvq_kafka.kafka.kafka_logs import KafkaLogs
from lvq_kafka.kafka.kafka_topics import KafkaTopics
from lvq_kafka.kafka.reader import KafkaReader
from lvq_kafka.kafka.topic_metadata import TopicMetadata
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.runtime.overriding import override

__all__ = ["KafkaCluster"]


class KafkaCluster(Bound, Cluster):
    """A Kafka cluster. Thread-safe.

    All instances with the same configuration in a process share one connection for queries. Readers, members and
    writers have connections of their own, and so does each change (`lvq_kafka.kafka.admin_requests`).

    ``brokers`` are its brokers, which `lvq_kafka.cluster.Cluster` only counts.

    Raises:
        ConfigError: the client rejects its properties. Whether a broker answers shows only in the first call.
        AuthenticationFailed: the property ``oauth_cb`` provides no token.
    """

    def __init__(self, config: ClientConfig | str) -> None:
        self.config = ClientConfig(config) if isinstance(config, str) else config
        self._requests = AdminRequests(self.config)
        metadata = TopicMetadata(self._requests)
        logs = KafkaLogs(self.config, self._requests, metadata)
        self.brokers = KafkaBrokers(self._requests)
        self.topics = KafkaTopics(self._requests, self.brokers, metadata, logs)
        self.logs: KafkaLogs = logs
        self.groups: KafkaGroups = KafkaGroups(self.config, self._requests, self.brokers, metadata, logs)

    def __repr__(self) -> str:
        return f"KafkaCluster({self.config.bootstrap_servers!r})"

    @override
    def now(self) -> float:
        return time.time()

    @override
    def broker_count(self, *, timeout: float = 10.0) -> int:
        return len(self.brokers.ids(timeout))

    @override
    def reader(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
        decided: bool = True,
    ) -> LogReader:
        self._requests.check_open()
        return KafkaReader(self.config, topic, positions, headers=headers, late=late, decided=decided)

    @override
    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> GroupMember:
        self._requests.check_open()
        from lvq_kafka.kafka.member import KafkaMember

        return KafkaMember(self.config.of_classic_member() if renews else self.config, group, topic, listener)

    @override
    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        self._requests.check_open()
        from lvq_kafka.kafka.writer import KafkaWriter

        return KafkaWriter(self.config, transactional_id=transactional_id, max_block=max_block)

    @override
    def close(self) -> None:
        self.groups.close()
        self.logs.close()
        self._requests.close()
