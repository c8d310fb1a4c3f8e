"""Topics and offsets of a real broker: usable at once, queried without delay, and safe from many threads."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lvq_kafka.errors import BrokerUnavailable, ConfigError, TopicNotFound
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.waiting import eventually

COMPACT = {"cleanup.policy": "compact"}


def test_a_created_topic_can_be_used_at_once(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=12, config=COMPACT)
    assert kafka_cluster.logs.end_offsets(topic_name, timeout=1) == dict.fromkeys(range(12), 0)
    assert kafka_cluster.logs.start_offsets(topic_name, timeout=1) == dict.fromkeys(range(12), 0)
    writer = kafka_cluster.writer()
    assert writer.append(topic_name, b"k", b"v").result(10).topic == topic_name
    writer.close()


def test_of_many_who_create_a_topic_at_once_one_has_created_it(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    start = threading.Barrier(4)

    def create() -> bool:
        start.wait(10)
        return kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)

    with ThreadPoolExecutor(4) as pool:
        outcomes = [future.result(30) for future in [pool.submit(create) for _ in range(4)]]
    assert sorted(outcomes) == [False, False, False, True]


def test_a_deleted_topic_is_gone_and_its_name_free_at_once(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    for partitions in (1, 3):
        assert kafka_cluster.topics.create(topic_name, partitions=partitions, config=COMPACT)
        assert kafka_cluster.topics.describe(topic_name).partitions == partitions
        kafka_cluster.topics.delete(topic_name)
        with pytest.raises(TopicNotFound):
            kafka_cluster.topics.describe(topic_name)


def test_refusals_by_the_cluster_are_reported_in_its_words(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    with pytest.raises(ConfigError, match=r"cleanup\.policy"):
        kafka_cluster.topics.create(topic_name, partitions=1, config={"cleanup.policy": "sometimes"})
    with pytest.raises(ConfigError, match="replication factor"):
        kafka_cluster.topics.create(topic_name, partitions=1, replication_factor=9, config=COMPACT)
    with pytest.raises(ConfigError, match="invalid"):
        kafka_cluster.topics.create("a/b", partitions=1, config=COMPACT)
    with pytest.raises(ConfigError):
        kafka_cluster.topics.describe("")
    with pytest.raises(ConfigError, match=r"log\.cleaner\.backoff\.ms"):
        kafka_cluster.brokers.alter_config({"log.cleaner.backoff.ms": "soon"})


def test_offsets_are_told_without_waiting_for_a_reader_that_waits(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    """On the reader's connection, the request would wait for the reader's fetch (ktables: half a second)."""
    kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
    reader = kafka_cluster.reader(topic_name, {0: 0})
    stop = threading.Event()

    def wait_for_data() -> None:
        while not stop.is_set():
            reader.poll(0.1)

    waiting = threading.Thread(target=wait_for_data)
    waiting.start()
    times = []
    for _ in range(20):
        started = time.perf_counter()
        kafka_cluster.logs.end_offsets(topic_name)
        times.append(time.perf_counter() - started)
    stop.set()
    waiting.join(10)
    reader.close()
    assert statistics.median(times) < 0.05


def test_added_partitions_have_offsets_at_once(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
    assert kafka_cluster.logs.end_offsets(topic_name) == {0: 0}
    kafka_cluster.topics.add_partitions(topic_name, 3)
    assert kafka_cluster.logs.end_offsets(topic_name, timeout=1) == {0: 0, 1: 0, 2: 0}


def test_a_topic_that_is_created_anew_with_fewer_partitions_after_they_were_counted_has_ends(
    kafka_cluster: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=3, config=COMPACT)
    metadata = kafka_cluster.logs._metadata
    counted = metadata.describe(topic_name, time.monotonic() + 10)
    kafka_cluster.topics.delete(topic_name)
    kafka_cluster.topics.create(topic_name, partitions=1, config=COMPACT)
    describe, stale = metadata.describe, [counted]
    monkeypatch.setattr(metadata, "describe", lambda *how: stale.pop() if stale else describe(*how))
    assert kafka_cluster.logs.end_offsets(topic_name) == {0: 0}
    assert not stale


def test_many_threads_may_ask_at_once(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    kafka_cluster.topics.create(topic_name, partitions=2, config=COMPACT)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: kafka_cluster.logs.end_offsets(topic_name), range(100)))
    assert answers == [{0: 0, 1: 0}] * 100


def test_a_cluster_that_falls_silent_after_its_topic_was_described_is_not_taken_for_one_with_empty_logs(
    private_broker: ProvidedBroker,
) -> None:
    """librdkafka 2.16.0 then answers as if all was well, and a barrier would reach such an end at once."""
    cluster = KafkaCluster(private_broker.bootstrap_servers)
    cluster.topics.create("prices", partitions=2, config=COMPACT)

    def nobody_answers() -> bool:
        try:
            assert cluster.logs.end_offsets("prices", partitions=2, timeout=0.3) == {0: 0, 1: 0}
        except BrokerUnavailable:
            return True
        return False

    private_broker.pause()
    try:
        eventually(nobody_answers)
    finally:
        private_broker.resume()
    eventually(lambda: not nobody_answers())
    cluster.close()
