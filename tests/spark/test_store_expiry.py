"""Versions of a store whose values expire: read at any time, they have the rows of a snapshot at that time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, DataLoss, QueueMismatch
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import snapshot
from lvq_spark.store import Version, read_version, refresh
from lvq_spark.store.manifest import decode, encode
from tests.spark.conftest import PARTITIONS_BY_WAY
from tests.spark.test_store_refresh import DAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]
CLOCK = {**DAY, "message.timestamp.type": "CreateTime"}


class Writer:
    """A producer of random records, which are up to half a minute old and live as long."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int, seed: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._choose = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": cluster.config.bootstrap_servers})

    def write(self, count: int) -> None:
        for n in range(count):
            choose = self._choose
            key = b"key %d" % choose.randrange(40)
            home = home_partition(key, self._partitions)
            partition = home if choose.random() < 0.8 else choose.randrange(self._partitions)
            headers = choose.choice(
                [[], [("h", b"1")], *([(TTL_HEADER, b"%d" % (ms * 500))] for ms in range(0, 60, 3))]
            )
            value = None if choose.random() < 0.15 else b"%d" % n
            stamp = int(time.time() * 1000) - choose.randrange(30_000)
            self._producer.produce(self._topic, value, key, partition, headers=headers, timestamp=stamp)
        assert self._producer.flush(30) == 0


def as_of(version: Version, seconds: float) -> datetime:
    at = version.pinned + timedelta(seconds=seconds)
    return at.replace(microsecond=at.microsecond // 1000 * 1000 + 1000 if at.microsecond < 999_000 else 999_000)


@pytest.mark.parametrize(("way", "partitions"), PARTITIONS_BY_WAY, indirect=["way"])
def test_g8_a_version_read_at_any_time_has_the_rows_of_a_snapshot_at_that_time(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    tmp_path: Path,
    way: str,
    partitions: int,
) -> None:
    make_queue(partitions, config=CLOCK)
    queue = LastValueQueue(lvq_topic, key_header=None, ttl=Ttl(default=20.0), cluster=lvq_cluster)
    writer, path, choose = Writer(lvq_cluster, lvq_topic, partitions, seed=partitions), str(tmp_path), random.Random(1)
    sizes = []
    for turn in range(3):
        writer.write(60)
        version = refresh(spark, queue, path)
        assert (version.number, version.kind) == (turn + 1, "delta" if turn else "full")
        for seconds in (0, choose.randrange(1, 9)):
            at = as_of(version, seconds)
            rows = collect(read_version(spark, path, as_of=at))
            assert rows == collect(snapshot(spark, queue, end=version.end, as_of=at)), (way, turn, seconds)
            sizes.append(len(rows))
    assert sum(sizes[::2]) > sum(sizes[1::2]) > 0
    assert read_version(spark, path, version.number, as_of=version.pinned + timedelta(seconds=60)).isEmpty()
    assert refresh(spark, queue, path) == version, "that something expires makes no version"


def test_a_version_says_how_long_its_values_live_and_none_is_built_on_another_ttl(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str, tmp_path: Path
) -> None:
    plain, path = make_queue(config=CLOCK), str(tmp_path)
    with plain.producer() as producer:
        producer.put("a", b"1")
    first = refresh(spark, plain, path)
    assert first.times.ttl is None
    assert b"ttl" not in encode(first)
    queue = LastValueQueue(lvq_topic, key_header=None, ttl=Ttl(minimum=1.0, default=3600.0), cluster=lvq_cluster)
    with pytest.raises(QueueMismatch, match="ttl None, not Ttl"):
        refresh(spark, queue, path, on_stale="fail")
    second = refresh(spark, queue, path)
    assert (second.kind, second.times.ttl) == ("full", queue.definition.ttl)
    assert "ttl None, not" in second.reasons[0]
    assert decode(encode(second), "here") == second
    damaged = encode(second).replace(b'"minimum_ms": 1000', b'"minimum_ms": null')
    with pytest.raises(DataLoss, match="damaged"):
        decode(damaged, "here")
    before = second.pinned - timedelta(milliseconds=1)
    with pytest.raises(ConfigError, match="Version 2 was pinned at") as error:
        read_version(spark, path, 2, as_of=before)
    assert error.value.options == ("version", "as_of")
    assert read_version(spark, path, 2, as_of=second.pinned).count() == 1
