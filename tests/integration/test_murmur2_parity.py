"""G15, one home: our murmur2 and the producer's partitions equal the Java client's for each key.

The Java client itself computes the expected values. Its classes are in the embedded broker's jars; py4j, which is part
of Spark, calls them.
"""

from __future__ import annotations

import os
import random

import pytest
from py4j.java_gateway import JavaGateway

from lvq_kafka.core.log.keys import home_partition, murmur2
from lvq_kafka.embedded import ensure_jars, find_java
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.producing.producer import Message, Producer
from tests.rules import rules

PARTITION_COUNTS = (1, 2, 7, 64, 1000)
TOPIC_PARTITIONS = 7


def some_keys() -> list[bytes]:
    """Return the empty key, random bytes of all lengths up to 40, and text in many scripts; new ones in each run."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    chance = random.Random(seed)
    keys = [chance.randbytes(length) for length in range(41) for _ in range(20)]
    keys += [bytes([byte]) * length for byte in (0, 0x7F, 0x80, 0xFF) for length in range(1, 9)]
    texts = ["IBM", "Zoë", "ключ", "キー", "مفتاح", "🔑", "e\u0301", "key with spaces", "1", "true", "\0", "a" * 1000]
    keys += [text.encode() for text in texts]
    keys += [f"device-{number}".encode() for number in range(300)]
    return list(dict.fromkeys([b"", *keys]))


@pytest.fixture(scope="module")
def vectors() -> dict[bytes, list[int]]:
    """Return each key's hash by the Java client, and its partition for each partition count."""
    gateway = JavaGateway.launch_gateway(
        classpath=os.pathsep.join(map(str, ensure_jars())), java_path=str(find_java().executable), die_on_exit=True
    )
    try:
        kafka = gateway.jvm.org.apache.kafka
        hash_of = kafka.common.utils.Utils.murmur2
        choice = kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey
        return {
            key: [hash_of(key) & 0xFFFFFFFF, *(choice(key, partitions) for partitions in PARTITION_COUNTS)]
            for key in some_keys()
        }
    finally:
        gateway.shutdown()


def test_g15_murmur2_is_the_java_clients(vectors: dict[bytes, list[int]]) -> None:
    assert {key: murmur2(key) for key in vectors} == {key: hashed for key, (hashed, *_) in vectors.items()}


@pytest.mark.parametrize("at", range(len(PARTITION_COUNTS)))
def test_g15_a_keys_home_is_where_the_java_producer_puts_it(vectors: dict[bytes, list[int]], at: int) -> None:
    ours = {key: home_partition(key, PARTITION_COUNTS[at]) for key in vectors}
    assert ours == {key: answers[1 + at] for key, answers in vectors.items()}


def test_g15_the_producer_puts_every_key_where_the_java_producer_does(
    vectors: dict[bytes, list[int]], kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=TOPIC_PARTITIONS, config={"cleanup.policy": "compact"})
    with Producer(kafka_cluster, rules(topic=topic_name, key_header="key")) as producer:
        put = {key: producer.put(key, b"v") for key in vectors}
        sent = {key: producer.send(Message(b"v", headers={"key": key})) for key in vectors}
        deleted = {key: producer.delete(key) for key in vectors}
    at = 1 + PARTITION_COUNTS.index(TOPIC_PARTITIONS)
    java = {key: answers[at] for key, answers in vectors.items()}
    for receipts in (put, sent, deleted):
        assert {key: receipt.result(0).partition for key, receipt in receipts.items()} == java


def test_g15_a_transactional_producer_does_too(
    vectors: dict[bytes, list[int]], kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=TOPIC_PARTITIONS, config={"cleanup.policy": "compact"})
    with (
        Producer(kafka_cluster, rules(topic=topic_name, key_header="key"), transactional_id=topic_name) as producer,
        producer.transaction(),
    ):
        receipts = {key: producer.put(key, b"v") for key in vectors}
    at = 1 + PARTITION_COUNTS.index(TOPIC_PARTITIONS)
    java = {key: answers[at] for key, answers in vectors.items()}
    assert {key: receipt.result(0).partition for key, receipt in receipts.items()} == java
