"""Logs that were cut and have grown again: offsets look as before, and only leader epochs tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import DataLoss, TransportError
from lvq_kafka.kafka import KafkaLog

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
