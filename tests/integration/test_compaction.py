"""`lvq_kafka.testing.compaction`: forced compaction on a real broker."""

from __future__ import annotations

import pytest

from lvq_kafka.core.log.keys import key_text
from lvq_kafka.errors import TopicNotFound
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.contract.harness import follow

COMPACT = {"cleanup.policy": "compact"}


def put(cluster: KafkaCluster, topic: str, *pairs: tuple[str, bytes | None]) -> None:
    writer = cluster.writer()
    for key, value in pairs:
        writer.append(topic, key.encode(), value)
    assert writer.close(20) == 0


def records(cluster: KafkaCluster, topic: str) -> list[tuple[str, int, bytes | None]]:
    """Return key, offset and value of all records in the log, except those that force compaction."""
    reader = cluster.reader(topic, cluster.logs.start_offsets(topic))
    found = follow(reader, cluster.logs.end_offsets(topic), 20)
    reader.close()
    mine = [record for record in found if not (record.key or b"").startswith(b"\xff")]
    return [(key_text(record.key or b""), record.offset, record.value) for record in mine]


def test_each_key_keeps_its_newest_record_where_it_lay(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
    put(kafka_cluster, topic_name, ("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", None), ("b", b""))
    force_compaction(kafka_cluster, topic_name)
    assert records(kafka_cluster, topic_name) == [("a", 2, b"2"), ("c", 3, None), ("b", 4, b"")]


def test_deletes_go_only_when_they_are_asked_to(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=3, config={**COMPACT, "delete.retention.ms": "0"})
    put(kafka_cluster, topic_name, *[(f"k{n}", b"1") for n in range(9)], *[(f"k{n}", None) for n in range(0, 9, 2)])
    force_compaction(kafka_cluster, topic_name)
    assert len(records(kafka_cluster, topic_name)) == 9
    force_compaction(kafka_cluster, topic_name, drop_tombstones=True)
    assert {key for key, _, _ in records(kafka_cluster, topic_name)} == {"k1", "k3", "k5", "k7"}


def test_it_works_from_bootstrap_servers_and_on_an_empty_topic(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
    force_compaction(kafka_cluster.config.bootstrap_servers, topic_name)
    assert records(kafka_cluster, topic_name) == []


def test_a_topic_that_is_not_compacted_ends_in_a_timeout_that_says_what_is_left(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config={"cleanup.policy": "delete"})
    put(kafka_cluster, topic_name, ("a", b"1"), ("a", b"2"))
    with pytest.raises(TimeoutError, match=rf"'{topic_name}' within 5 s; .*\[\(0, 0\)\]"):
        force_compaction(kafka_cluster, topic_name, timeout=5)


def test_a_missing_topic_is_reported(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    with pytest.raises(TopicNotFound, match=topic_name):
        force_compaction(kafka_cluster, topic_name)
