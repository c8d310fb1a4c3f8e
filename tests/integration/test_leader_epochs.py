"""Logs that were cut and have grown again: offsets look as before, and only leader epochs tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import DataLoss, TopicNotFound, TransportError
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.kafka.epochs import LogEnd
from lvq_kafka.testing.compaction import force_compaction

COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """One whose disk can be damaged."""
    with EmbeddedBroker() as broker:
        yield broker


def put(log: KafkaLog, topic: str, *keys: str) -> None:
    """One batch for each, in the first partition."""
    producer = Producer({"bootstrap.servers": log.config.bootstrap_servers, "log_level": 0})
    for key in keys:
        producer.produce(topic, b"v" * 50, key=key, partition=0)
        assert producer.flush(20) == 0


def cut(broker: EmbeddedBroker, topic: str) -> None:
    """Take the newer half of a log from a broker, which does not run."""
    [segment] = Path(broker.data_dir).glob(f"**/{topic}-0/*.log")
    os.truncate(segment, segment.stat().st_size // 2)


def test_a_log_that_only_grows_or_is_compacted_was_not_cut(kafka_log: KafkaLog, topic_name: str) -> None:
    kafka_log.create_topic(topic_name, partitions=1, config=COMPACT)
    empty = kafka_log.stable_ends(topic_name)
    put(kafka_log, topic_name, "a", "b", "a")
    ends = kafka_log.stable_ends(topic_name)
    assert (empty[0].offset, ends[0].offset) == (0, 3)
    kafka_log.check_uncut(topic_name, empty)
    kafka_log.check_uncut(topic_name, ends)
    writer = kafka_log.writer(transactional_id=topic_name)
    writer.begin_transaction()
    writer.append(topic_name, b"a", b"v").result(20)
    kafka_log.check_uncut(topic_name, kafka_log.stable_ends(topic_name))
    writer.abort_transaction(20)
    writer.close()
    kafka_log.check_uncut(topic_name, kafka_log.stable_ends(topic_name))
    force_compaction(kafka_log, topic_name)
    for then in (empty, ends, {0: LogEnd(3, -1)}, {}):
        kafka_log.check_uncut(topic_name, then)


def test_a_log_that_begins_behind_where_it_ended_lacks_something(kafka_log: KafkaLog, topic_name: str) -> None:
    kafka_log.create_topic(topic_name, partitions=1, config={"cleanup.policy": "compact,delete"})
    put(kafka_log, topic_name, "a", "b")
    ends = kafka_log.stable_ends(topic_name)
    put(kafka_log, topic_name, "c", "d")
    kafka_log.delete_before(topic_name, {0: 2})
    kafka_log.check_uncut(topic_name, ends)
    kafka_log.delete_before(topic_name, {0: 3})
    with pytest.raises(DataLoss, match=topic_name):
        kafka_log.check_uncut(topic_name, ends)


def test_a_topic_that_is_not_there_is_told(kafka_log: KafkaLog, topic_name: str) -> None:
    with pytest.raises(TopicNotFound):
        kafka_log.check_uncut(topic_name, {0: LogEnd(0, 0)}, timeout=20)


def test_a_log_that_lost_records_shows_it_however_far_it_has_grown_since(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaLog(own_broker.bootstrap_servers)) as log:
        log.create_topic("prices", partitions=2, config=COMPACT)
        put(log, "prices", *map(str, range(40)))
        first = log.stable_ends("prices")
        own_broker.kill()
        own_broker.restart()
        put(log, "prices", *map(str, range(40)))
        second = log.stable_ends("prices", timeout=30)
        assert second[0].leader_epoch > first[0].leader_epoch
        log.check_uncut("prices", first)  # another epoch is nothing bad
        log.check_uncut("prices", second)
        own_broker.kill()
        cut(own_broker, "prices")
        own_broker.restart()
        shorter = log.stable_ends("prices", timeout=30)
        assert 0 < shorter[0].offset < second[0].offset
        put(log, "prices", *map(str, range(80)))
        assert log.end_offsets("prices")[0] > second[0].offset
        with pytest.raises(DataLoss, match=r"partition 0.*truncation"):
            log.check_uncut("prices", second)
        log.check_uncut("prices", shorter)
        log.check_uncut("prices", {1: second[1]})


def test_who_gets_no_answer_says_so(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaLog(own_broker.bootstrap_servers)) as log:
        log.create_topic("prices", partitions=1, config=COMPACT)
        ends = log.stable_ends("prices")
        own_broker.pause()
        with pytest.raises(TransportError) as caught:
            log.check_uncut("prices", ends, timeout=1)
        assert caught.value.retriable
        own_broker.resume()
        log.check_uncut("prices", ends, timeout=30)
