"""The contract of `lvq_kafka.cluster.Cluster` on a real broker. The same tests run on the in-memory cluster."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lvq_kafka.cluster import GroupMember
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from tests.contract.appending import AppendingContract
from tests.contract.cleaning import CleaningContract
from tests.contract.groups import GroupsContract
from tests.contract.harness import Faults
from tests.contract.reading import ReadingContract
from tests.contract.topics import TopicsContract
from tests.contract.transactions import TransactionsContract


class KafkaFaults:
    """`Faults` on a real cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        # The cleaner decides a delete's retention when it first sees the delete. With 0, the next call can remove it.
        self._cluster.topics.alter_config(topic, {"delete.retention.ms": "0"})
        force_compaction(self._cluster, topic, drop_tombstones=drop_tombstones)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.config.bootstrap_servers})
        for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            future.result(10)

    def expel(self, member: GroupMember) -> None:
        """Leave the group in the member's name."""
        assert isinstance(member, KafkaMember)
        client = member._client
        words = [word.encode() for word in (client.group, client.get().memberid() or "")]
        names = b"".join(struct.pack(">h", len(word)) + word for word in words)
        leave_group, version = 13, 1
        request = struct.pack(">hhih", leave_group, version, 0, -1) + names
        host, port = self._cluster.config.bootstrap_servers.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            size, _, _, error = struct.unpack(">iiih", connection.recv(14, socket.MSG_WAITALL))
        assert (size, error) == (10, 0)


@pytest.fixture(scope="module")
def cluster(lvq_broker: ProvidedBroker) -> Iterator[KafkaCluster]:
    # A group gets added partitions when its client asks for metadata. Do not wait long for that here.
    cluster = KafkaCluster(ClientConfig(lvq_broker.bootstrap_servers, {"topic.metadata.refresh.interval.ms": 500}))
    yield cluster
    cluster.close()


@pytest.fixture
def another_cluster(lvq_broker: ProvidedBroker) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(lvq_broker.bootstrap_servers)
    yield cluster
    cluster.close()


@pytest.fixture
def faults(cluster: KafkaCluster) -> Faults:
    return KafkaFaults(cluster)


@pytest.fixture
def topic(topic_name: str) -> str:
    return topic_name


@pytest.fixture
def group(cluster: KafkaCluster, topic_name: str) -> Iterator[str]:
    group = f"lvq.{topic_name}"
    yield group
    with suppress(TransportError):  # a failed test may leave members, which go with the process
        cluster.groups.delete(group)


class TestAppending(AppendingContract):
    pass


class TestCleaning(CleaningContract):
    pass


class TestGroups(GroupsContract):
    pass


class TestReading(ReadingContract):
    pass


class TestTopics(TopicsContract):
    pass


class TestTransactions(TransactionsContract):
    pass
