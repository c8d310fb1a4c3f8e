"""Behavior of a real broker and client that `lvq_kafka.kafka.reader` relies on."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from lvq_kafka.cluster import LogReader
from lvq_kafka.errors import BrokerUnavailable, DataLoss, TopicNotFound
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from tests.contract.harness import follow
from tests.waiting import eventually

COMPACT = {"cleanup.policy": "compact"}


def put(cluster: KafkaCluster, topic: str, *keys: str, partition: int | None = None) -> None:
    """Append a record for each key, to a given partition or by the partitioner. Our own writer never chooses one."""
    producer = Producer({"bootstrap.servers": cluster.config.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    for key in keys:
        producer.produce(topic, b"v", key=key, **({} if partition is None else {"partition": partition}))
    assert producer.flush(20) == 0


def abort(cluster: KafkaCluster, topic: str, key: bytes = b"never") -> None:
    writer = cluster.writer(transactional_id=topic)
    writer.begin_transaction()
    writer.append(topic, key, b"v").result(20)
    writer.abort_transaction(20)
    writer.close()


class TestPositions:
    def test_a_log_that_ends_in_markers_is_read_to_its_true_end(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a")
        for _ in range(3):
            abort(kafka_cluster, topic_name)
        ends = eventually(lambda: stable_end(kafka_cluster, topic_name))
        assert ends == {0: 7}
        reader = kafka_cluster.reader(topic_name, {0: 0})
        assert [record.offset for record in follow(reader, ends)] == [0]
        reader.close()

    def test_a_log_that_begins_with_what_was_aborted_is_read_to_its_true_end(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        abort(kafka_cluster, topic_name)
        reader = kafka_cluster.reader(topic_name, {0: 0})
        assert follow(reader, {0: 2}) == []
        reader.close()

    def test_an_idle_partition_reports_the_end_of_an_open_transaction(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a", "b")
        writer = kafka_cluster.writer(transactional_id=topic_name)
        writer.begin_transaction()
        writer.append(topic_name, b"c", b"v").result(20)
        reader = kafka_cluster.reader(topic_name, {0: 0})
        assert len(follow(reader, {0: 2})) == 2
        eventually(lambda: reader.poll(0.1).positions)  # the client reports that it is at the last stable offset
        assert kafka_cluster.logs.end_offsets(topic_name) == {0: 3}
        assert kafka_cluster.logs.end_offsets(topic_name, stable=True) == {0: 2}
        writer.abort_transaction(20)
        assert follow(reader, {0: 4}) == []
        writer.begin_transaction()
        writer.append(topic_name, b"c", b"v").result(20)
        writer.commit_transaction(20)
        assert [record.offset for record in follow(reader, {0: 6})] == [4]
        writer.close()
        reader.close()

    def test_a_partition_that_was_added_is_read_while_the_others_go_on(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=2, config=COMPACT)
        put(kafka_cluster, topic_name, "a", partition=0)
        reader = kafka_cluster.reader(topic_name, {0: 0, 1: 0})
        follow(reader, {0: 1, 1: 0})
        kafka_cluster.topics.add_partitions(topic_name, 4)
        reader.assign({2: 0, 3: 0})
        put(kafka_cluster, topic_name, "b", partition=0)
        put(kafka_cluster, topic_name, "c", partition=3)
        records = follow(reader, {0: 2, 2: 0, 3: 1})
        assert sorted((record.partition, record.offset) for record in records) == [(0, 1), (3, 0)]
        reader.close()

    def test_holes_at_the_tail_of_a_compacted_log_are_crossed(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, *["a"] * 20, "b")
        force_compaction(kafka_cluster, topic_name)
        abort(kafka_cluster, topic_name)
        ends = eventually(lambda: stable_end(kafka_cluster, topic_name))
        reader = kafka_cluster.reader(topic_name, {0: 3})
        assert [record.key for record in follow(reader, ends) if record.value is not None] == [b"a", b"b"]
        reader.close()


def stable_end(cluster: KafkaCluster, topic: str) -> dict[int, int] | None:
    """Return the end offsets, or None while a transaction's markers are not written yet."""
    ends = cluster.logs.end_offsets(topic)
    return ends if ends == cluster.logs.end_offsets(topic, stable=True) else None


class TestLosses:
    def test_data_loss_stays_until_the_partition_is_assigned_anew(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=2, config=COMPACT)
        put(kafka_cluster, topic_name, "a", partition=0)
        put(kafka_cluster, topic_name, "b", partition=1)
        reader = kafka_cluster.reader(topic_name, {0: 0, 1: 99})
        with pytest.raises(DataLoss, match=f"'{topic_name}', partition 1"):
            eventually(lambda: reader.poll(0.1) is None)
        with pytest.raises(DataLoss):
            reader.poll(0)
        reader.assign({1: 0})
        assert b"b" in [record.key for record in follow(reader, {1: 1})]
        reader.close()

    def test_a_deleted_topic_is_gone_for_its_reader_even_if_it_comes_back(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        """A reader that continued in the new topic at its old position would miss the records before it."""
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a", "b")
        reader = kafka_cluster.reader(topic_name, {0: 0})
        follow(reader, {0: 2})
        kafka_cluster.topics.delete(topic_name)
        with pytest.raises(TopicNotFound, match=topic_name):
            eventually(lambda: reader.poll(0.1) is None, 20)
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a", "b", "c", "d")
        with pytest.raises(TopicNotFound):
            reader.poll(1)
        reader.close()

    def test_a_topic_that_is_replaced_by_a_shorter_one_is_data_loss(
        self, kafka_cluster: KafkaCluster, topic_name: str
    ) -> None:
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a", "b", "c")
        reader = kafka_cluster.reader(topic_name, {0: 0})
        follow(reader, {0: 3})
        before = kafka_cluster.topics.describe(topic_name).id
        kafka_cluster.topics.delete(topic_name)
        kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
        put(kafka_cluster, topic_name, "a")
        assert kafka_cluster.topics.describe(topic_name).id != before
        with pytest.raises((DataLoss, TopicNotFound)):
            eventually(lambda: reader.poll(0.1) is None, 20)
        reader.close()


class TestOutages:
    def test_a_reader_says_that_its_broker_is_gone_and_goes_on_when_it_is_back(
        self, private_broker: ProvidedBroker
    ) -> None:
        cluster = KafkaCluster(private_broker.bootstrap_servers)
        cluster.topics.create("prices", partitions=1, config=COMPACT)
        put(cluster, "prices", "a")
        reader = cluster.reader("prices", {0: 0})
        follow(reader, {0: 1})
        private_broker.kill()
        with pytest.raises(BrokerUnavailable) as caught:
            eventually(lambda: reader.poll(0.1) is None, 20)
        assert caught.value.retriable
        with pytest.raises(BrokerUnavailable):
            cluster.logs.end_offsets("prices", timeout=0.5)
        private_broker.restart()
        assert eventually(lambda: ends_or_none(cluster), 30) == {0: 1}
        put(cluster, "prices", "b")
        eventually(lambda: keys(reader) == [b"b"], 30)
        reader.close()
        cluster.close()


def ends_or_none(cluster: KafkaCluster) -> dict[int, int] | None:
    try:
        return cluster.logs.end_offsets("prices", timeout=5)
    except BrokerUnavailable:
        return None


def keys(reader: LogReader) -> list[bytes | None]:
    """Return the keys of one poll. If an outage is reported again, return nothing."""
    try:
        return reader.poll(0.1).batch.keys
    except BrokerUnavailable:
        return []
