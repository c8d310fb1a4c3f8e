"""Stores of queues with scheduled messages: each refresh brings what has become due, written or not (R11)."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import DataLoss, QueueMismatch
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import SnapshotSpec, snapshot
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.store import read_version, refresh
from lvq_spark.store.manifest import decode, encode
from tests.spark.conftest import PARTITIONS_BY_WAY
from tests.spark.test_store_refresh import DAY, values
from tests.spark.test_store_versions import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]
CLOCK = {**DAY, "message.timestamp.type": "CreateTime", "cleanup.policy": "compact,delete", "retention.ms": "-1"}
LONGEST = 60.0


class Clock:
    """The time that a cluster gives, which stands still until a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: KafkaCluster) -> None:
        self.now = round(time.time()) + 100.0  # after everything that a version is dated by
        monkeypatch.setattr(type(cluster), "now", lambda _: self.now)


class Writer:
    """A producer of records at the time of a clock."""

    def __init__(self, cluster: KafkaCluster, topic: str, clock: Clock) -> None:
        self._topic, self._clock = topic, clock
        self._producer = Producer({"bootstrap.servers": cluster.config.bootstrap_servers})

    def write(
        self, key: str, value: str | None, *, ahead: float | None = None, ttl: float | None = None, partition: int = 0
    ) -> None:
        now, headers = self._clock.now, list[tuple[str, str | bytes | None]]()
        if ahead is not None:
            headers.append((NOT_BEFORE_HEADER, b"%d" % round((now + ahead) * 1000)))
        if ttl is not None:
            headers.append((TTL_HEADER, b"%d" % round(ttl * 1000)))
        self._producer.produce(self._topic, value, key, partition, headers=headers, timestamp=round(now * 1000))

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


def scheduling(queue: LastValueQueue[bytes], ttl: Ttl | None = None) -> LastValueQueue[bytes]:
    return LastValueQueue(queue.topic, key_header=None, ttl=ttl, max_delay=LONGEST, cluster=queue.cluster)


def test_reading_goes_on_where_something_has_become_due_as_far_as_the_log_has_it() -> None:
    waiting = {0: NotDue(4, 1000), 1: NotDue(7, 2000)}
    version = replace(VERSION, times=TimeRule(max_delay=LONGEST), as_of=VERSION.pinned, scheduled=waiting)
    assert (version.start, version.end) == ({0: 0, 1: 3}, {0: 10, 1: 12})

    def cut(as_of: float, start: int = 0) -> SnapshotSpec:
        times = TimeRule(max_delay=LONGEST)
        return SnapshotSpec("prices", "abc", {0: start, 1: 3}, {0: 20, 1: 20}, times=times, as_of=as_of)

    assert version.beyond(cut(0.999)).start == {0: 10, 1: 12}
    assert version.beyond(cut(1)).start == {0: 4, 1: 12}
    assert version.beyond(cut(2)).start == {0: 4, 1: 7}
    assert version.beyond(cut(1, start=6)).start == {0: 6, 1: 12}, "what the log has lost is in no snapshot"
    assert version.beyond(cut(1, start=15)).start == {0: 10, 1: 12}, "records between the cuts are missed"
    assert version.still_scheduled(cut(1), {}) == {1: NotDue(7, 2000)}
    assert version.still_scheduled(cut(1), {0: NotDue(15, 9000)}) == {0: NotDue(15, 9000), 1: NotDue(7, 2000)}
    assert version.still_scheduled(cut(1), {1: NotDue(13, 1800)}) == {1: NotDue(7, 1800)}
    plain = replace(cut(1), times=ALWAYS)
    assert (VERSION.beyond(plain).start, VERSION.still_scheduled(plain, None)) == (VERSION.end, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, lvq_cluster: KafkaCluster) -> Clock:
    return Clock(monkeypatch, lvq_cluster)


@pytest.mark.parametrize(("way", "partitions"), PARTITIONS_BY_WAY, indirect=["way"])
def test_g8_each_version_has_the_rows_of_a_snapshot_at_its_offsets_and_its_time(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    clock: Clock,
    tmp_path: Path,
    way: str,
    partitions: int,
) -> None:
    """Messages are scheduled, deleted, expire and lie in several partitions; once the start of the log is deleted."""
    queue = scheduling(make_queue(partitions, config=CLOCK), Ttl())
    writer, path, choose = Writer(lvq_cluster, lvq_topic, clock), str(tmp_path), random.Random(f"{way} {partitions}")
    again, kinds, ends = 0, [], dict[int, int]()
    for turn in range(6):
        for n in range(0 if turn in (2, 5) else 30):
            key = f"key {choose.randrange(25)}"
            home = home_partition(key.encode(), partitions)
            writer.write(
                key,
                None if choose.random() < 0.2 else f"{turn} {n}",
                ahead=choose.choice([None, None, choose.randrange(1, 90)]),
                ttl=choose.choice([None, None, choose.randrange(5, 90)]),
                partition=home if choose.random() < 0.7 else choose.randrange(partitions),
            )
            clock.now += 0.25
        writer.flush()
        if turn == 3:
            lvq_cluster.logs.delete_before(lvq_topic, {0: 4})
        version = refresh(spark, queue, path)
        kinds.append(version.kind)
        assert version.as_of is not None
        expected = collect(snapshot(spark, queue, end=version.end, as_of=version.as_of))
        assert collect(read_version(spark, path, as_of=version.as_of)) == expected, (way, turn)
        again += any(version.read_from[p] < end for p, end in ends.items())
        ends = dict(version.end)
        clock.now += choose.randrange(5, 30)
    assert kinds == ["full", *["delta"] * 5]
    assert again > 1, "some of the log is read again"


def test_a_message_that_becomes_due_makes_a_version_and_time_alone_makes_none(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    clock: Clock,
    tmp_path: Path,
) -> None:
    queue, path, writer = scheduling(make_queue(config=CLOCK)), str(tmp_path), Writer(lvq_cluster, lvq_topic, clock)
    writer.write("a", "1")
    writer.write("a", "2", ahead=30)
    writer.write("b", "1", ahead=20)
    writer.write("c", "1")
    writer.flush()
    first = refresh(spark, queue, path)
    assert first.scheduled == {0: NotDue(1, round((clock.now + 20) * 1000))}
    clock.now += 19
    assert refresh(spark, queue, path) == first, "nothing has become due"
    writer.write("d", "1")
    writer.flush()
    second = refresh(spark, queue, path)
    assert (second.read_from, second.upserts) == ({0: 4}, 1), "nothing is read again before its time"
    assert second.scheduled == first.scheduled
    clock.now += 1
    third = refresh(spark, queue, path)
    assert (third.number, third.kind, third.end, third.read_from) == (3, "delta", {0: 5}, {0: 1})
    assert (third.upserts, third.rows) == (1, 4), "one has become due, and the others are known"
    assert values(collect(read_version(spark, path))) == {"a": "1", "b": "1", "c": "1", "d": "1"}
    clock.now += 10
    fourth = refresh(spark, queue, path)
    assert (fourth.number, fourth.scheduled) == (4, {})
    assert values(collect(read_version(spark, path))) == {"a": "2", "b": "1", "c": "1", "d": "1"}
    clock.now += 1000
    assert refresh(spark, queue, path) == fourth
    clock.now -= 2000
    writer.write("e", "1")
    writer.flush()
    assert refresh(spark, queue, path).as_of == fourth.as_of, "time is not set back"
    assert "e" in values(collect(read_version(spark, path)))


def test_a_version_says_how_far_ahead_and_none_is_built_on_another_delay(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str, clock: Clock, tmp_path: Path
) -> None:
    plain, path = make_queue(config=CLOCK), str(tmp_path)
    writer = Writer(lvq_cluster, lvq_topic, clock)
    writer.write("a", "1", ahead=5)
    writer.flush()
    first = refresh(spark, plain, path)
    assert (first.times.max_delay, first.as_of, first.scheduled) == (None, None, None)
    for name in (b"max_delay", b"as_of", b"scheduled"):
        assert name not in encode(first)
    with pytest.raises(QueueMismatch, match=r"max_delay None, not 60\.0"):
        refresh(spark, scheduling(plain), path, on_stale="fail")
    second = refresh(spark, scheduling(plain), path)
    assert (second.kind, second.times.max_delay, second.rows) == ("full", LONGEST, 0)
    assert decode(encode(second), "here") == second
    assert json.loads(encode(second))["scheduled"] == {"0": [0, round((clock.now + 5) * 1000)]}
    with pytest.raises(DataLoss, match="damaged"):
        decode(encode(second).replace(b'"scheduled": {', b'"scheduled": {"x": [1],'), "here")
