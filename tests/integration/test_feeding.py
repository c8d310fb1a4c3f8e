"""Feeding a queue from a topic of a real Kafka (R29): killed at any moment, each message is fed once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

import confluent_kafka
import pytest

from lvq_kafka import FeedStats, LastValueQueue, TopicSpec
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.managing.feeding import feed_name
from tests.contract.harness import follow
from tests.waiting import eventually

PATIENCE = 120.0
SYMBOLS = ["IBM", "MSFT", "FB"]
OTHER = 7  # of so many messages, one is of another exchange


@contextmanager
def feeding(cluster: KafkaCluster, source: str, queue: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``lvq feed`` in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lvq_kafka", "feed", source, queue, *options],
        env={**os.environ, "LVQ_BOOTSTRAP_SERVERS": cluster.config.bootstrap_servers},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def send(cluster: KafkaCluster, source: str, numbers: range) -> None:
    """Send trades without our library, as the publishers of another system would: no key, no header."""
    client = confluent_kafka.Producer({"bootstrap.servers": cluster.config.bootstrap_servers})
    for number in numbers:
        exchange = "NYSE" if number % OTHER else "LSE"
        trade = {"Symbol": SYMBOLS[number % 3], "Exchange": exchange, "n": number}
        client.produce(source, json.dumps(trade).encode(), partition=number % 2)
        client.poll(0)
    assert client.flush(60) == 0


def committed(cluster: KafkaCluster, topic: str) -> list[Record]:
    reader = cluster.reader(topic, cluster.logs.start_offsets(topic))
    try:
        records = follow(reader, cluster.logs.end_offsets(topic, stable=True), 60)
    finally:
        reader.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def declared(cluster: KafkaCluster, source: str) -> LastValueQueue[bytes]:
    cluster.topics.create(source, partitions=2, config={})
    return LastValueQueue.declare(
        f"{source}-q",
        key_header="Symbol",
        non_destructive=True,
        selector="Exchange = 'NYSE'",
        # Nothing is compacted during the test, so that the log shows whatever was fed twice.
        spec=TopicSpec(config={"min.compaction.lag.ms": "3600000"}),
        cluster=cluster,
    )


def position(cluster: KafkaCluster, queue: LastValueQueue[bytes], source: str) -> int:
    """Return how many messages of the source are done, in all partitions together."""
    commits = cluster.groups.committed(feed_name(source, queue.name), source, decided=False)
    return sum(commit.offset for commit in commits.values())


def has_written(cluster: KafkaCluster, queue: LastValueQueue[bytes], source: str, goal: int, sent: int) -> bool:
    """Return whether a feed has written so far, in an open transaction or not, or is done."""
    return cluster.logs.end_offsets(queue.topic)[0] >= goal or position(cluster, queue, source) >= sent


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[bytes]]:
    queue = declared(kafka_cluster, topic_name)
    yield queue
    queue.drop(delete_topic=True)


def test_r29_a_feed_that_is_killed_again_and_again_feeds_each_message_once(
    kafka_cluster: KafkaCluster, topic_name: str, queue: LastValueQueue[bytes]
) -> None:
    """It is killed as soon as it has written something, most often in the middle of a transaction."""
    random, sent, kills = Random(), 0, 5
    for _ in range(kills):
        more = random.randrange(2_000, 20_000)
        send(kafka_cluster, topic_name, range(sent, sent + more))
        sent += more
        (before,) = kafka_cluster.logs.end_offsets(queue.topic).values()
        goal = before + random.randrange(1, 8_000)
        with feeding(kafka_cluster, topic_name, queue.name) as process:
            eventually(partial(has_written, kafka_cluster, queue, topic_name, goal, sent), PATIENCE)
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGKILL)
            process.wait(20)
    with feeding(kafka_cluster, topic_name, queue.name, "--until-end") as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert json.loads(out)["refused"] == 0
    trades = [json.loads(record.value or b"") for record in committed(kafka_cluster, queue.topic)]
    assert {trade["Exchange"] for trade in trades} == {"NYSE"}
    numbers = [trade["n"] for trade in trades]
    assert sorted(numbers) == [number for number in range(sent) if number % OTHER]
    for parity in (0, 1):
        of_partition = [number for number in numbers if number % 2 == parity]
        assert of_partition == sorted(of_partition)
    newest = {SYMBOLS[number % 3]: number for number in numbers if number % 2}
    assert set(newest) == set(SYMBOLS)


def test_a_feed_that_gets_sigterm_ends_in_order_and_says_what_it_has_done(
    kafka_cluster: KafkaCluster, topic_name: str, queue: LastValueQueue[bytes]
) -> None:
    send(kafka_cluster, topic_name, range(1, 7))
    with feeding(kafka_cluster, topic_name, queue.name) as process:
        eventually(lambda: position(kafka_cluster, queue, topic_name) == 6, PATIENCE)
        process.terminate()
        out, error = process.communicate(timeout=60)
    assert process.returncode == 143, error
    assert json.loads(out)["fed"] == 6


def test_r29_a_second_feed_takes_over_and_nothing_is_fed_twice(
    kafka_cluster: KafkaCluster, topic_name: str, queue: LastValueQueue[bytes]
) -> None:
    send(kafka_cluster, topic_name, range(1, 4))
    with queue.feed(topic_name) as old:
        assert old.run(until_end=True) == FeedStats(read=3, fed=3)
        send(kafka_cluster, topic_name, range(4, 7))
        with queue.feed(topic_name) as new:
            with pytest.raises(TransportError) as caught:
                old.run(until_end=True)
            assert caught.value.code == "_FENCED"
            assert new.run(until_end=True) == FeedStats(read=3, fed=3)
    assert len(committed(kafka_cluster, queue.topic)) == 6


def test_r29_a_message_that_only_the_broker_finds_too_large_is_left_out_and_no_other(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config={})
    config = TopicSpec(config={"max.message.bytes": "5000"})
    queue = LastValueQueue.declare(f"{topic_name}-q", key_header="Symbol", spec=config, cluster=kafka_cluster)
    client = confluent_kafka.Producer({"bootstrap.servers": kafka_cluster.config.bootstrap_servers})
    for number in range(40):  # together they are larger than the topic allows, too
        text = os.urandom(20_000).hex() if number in (3, 20) else os.urandom(200).hex()
        client.produce(topic_name, json.dumps({"Symbol": f"S{number}", "text": text}).encode())
    assert client.flush(60) == 0
    with queue.feed(topic_name) as feed:
        assert feed.run(until_end=True) == FeedStats(read=40, fed=38, refused=2)
    keys = [record.key for record in committed(kafka_cluster, queue.topic)]
    assert keys == [b"S%d" % number for number in range(40) if number not in (3, 20)]
    queue.drop(delete_topic=True)


def test_a_position_is_stored_and_read_with_the_right_topic(
    kafka_cluster: KafkaCluster, topic_name: str, queue: LastValueQueue[bytes]
) -> None:
    send(kafka_cluster, topic_name, range(1, 3))
    with queue.feed(topic_name) as feed:
        feed.run(until_end=True)
    commits = kafka_cluster.groups.committed(feed_name(topic_name, queue.name), topic_name)
    topic = kafka_cluster.topics.describe(topic_name)
    assert {p: (one.offset, one.metadata) for p, one in commits.items()} == {
        0: (1, f"{topic.id}/2"),
        1: (1, f"{topic.id}/2"),
    }


def test_a_cluster_opened_by_the_queue_is_enough_for_a_feed(
    kafka_cluster: KafkaCluster, topic_name: str, queue: LastValueQueue[bytes]
) -> None:
    send(kafka_cluster, topic_name, range(1, 3))
    config = ClientConfig(kafka_cluster.config.bootstrap_servers)
    with LastValueQueue.open(queue.name, config=config) as opened, opened.feed(topic_name) as feed:
        assert feed.run(until_end=True).fed == 2
