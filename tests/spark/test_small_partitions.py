"""Small partitions share a task, which reads one after another with one client, and still names each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import InputPartition

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import BrokerUnavailable, DataLoss, KeyMismatch
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.reader import KafkaReader
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import SnapshotSpec, pin, register, snapshot, task_errors
from lvq_spark.scan import scanning
from lvq_spark.scan.reused_readers import ReusedReaders
from lvq_spark.scan.shares import SMALL, tasks_of
from lvq_spark.source.partition_rows import rows
from lvq_spark.source.planning import plan, ranges
from tests.spark.test_options import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]


def partitions_of(sizes: list[int], slices: int = 1) -> list[list[int]]:
    """Return the partitions of each task that reads partitions of these sizes."""
    spec = SnapshotSpec("t", "", dict.fromkeys(range(len(sizes)), 7), {p: 7 + size for p, size in enumerate(sizes)})
    return [[share.partition for share in task] for task in tasks_of(spec, slices)]


def test_partitions_share_a_task_as_long_as_they_are_small_together() -> None:
    assert partitions_of([SMALL // 2, SMALL // 2, 1, 2]) == [[0, 1], [2, 3]]
    assert len(partitions_of([3000] * 1000)) == 63


def test_a_large_partition_has_its_own_task() -> None:
    assert partitions_of([10, SMALL + 1, 10, 0, 10]) == [[0], [1], [2, 4]]
    assert partitions_of([SMALL, 1, SMALL]) == [[0], [1], [2]]
    assert partitions_of([]) == []


def test_slices_of_small_partitions_share_tasks_as_the_partitions_do() -> None:
    assert partitions_of([10, 10, 2 * SMALL], 3) == [[0, 1]] * 3 + [[2]] * 3


def test_splits_of_records_are_tasks_of_their_own(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=2, config={"cleanup.policy": "compact"})
    for number in range(10):
        memory_cluster.write("t", b"%d" % number, b"1", partition=number % 2)
    options = parse(minPartitions="4", **{"lvq.dedupe": "none"})
    assert [len(task) for _, task in ranges(options, plan(options, memory_cluster))] == [1] * 4
    whole = parse(**{"lvq.dedupe": "none"})
    [(spec, task)] = ranges(whole, plan(whole, memory_cluster))
    assert ([share.partition for share in task], spec.start) == ([0, 1], {0: 0, 1: 0})


# -- one client --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Return a cluster with a topic of five partitions, which tasks read."""
    memory_cluster.topics.create("t", partitions=5, config={"cleanup.policy": "compact"})
    for number in range(50):
        memory_cluster.write("t", b"%d" % number, b"1", partition=number % 5)
    monkeypatch.setattr(scanning, "KafkaCluster", lambda config: memory_cluster)
    monkeypatch.setattr(memory_cluster, "close", lambda: None)
    return memory_cluster


@pytest.fixture
def opened(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what becomes of the cluster's readers."""
    make, diary = cluster.reader, list[str]()

    def reader(*positions: Any, **how: Any) -> Any:
        made = make(*positions, **how)
        diary.append("opened")
        close = made.close

        def closed() -> None:
            diary.append("closed")
            close()

        monkeypatch.setattr(made, "close", closed)
        return made

    monkeypatch.setattr(cluster, "reader", reader)
    return diary


@pytest.mark.parametrize("lenient", ["true", "false"])
def test_a_task_reads_its_partitions_one_after_another_with_one_client(
    cluster: MemoryCluster, opened: list[str], lenient: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse(failOnDataLoss=lenient, **{"lvq.strays": "pass"})
    [share] = ranges(options, plan(options, cluster))
    with caplog.at_level("INFO", "lvq_spark"):
        batches = list(rows(options, InputPartition(share), ("key", "partition"), deletes=False))
    assert [batch["partition"].to_pylist() for batch in batches] == [[p] * 10 for p in range(5)]
    assert opened == ["opened", "closed"]
    assert [record.__dict__["context"]["partition"] for record in caplog.records] == ["0", "1", "2", "3", "4"]


def test_a_reader_waits_less_at_the_end_of_a_partition_unless_the_user_says_so(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker holds the fetch back for so long, and only the one after has the next partition."""
    waits = []
    monkeypatch.setattr(scanning, "KafkaCluster", lambda config: waits.append(config.properties) or cluster)
    for given in ({}, {"fetch.wait.max.ms": 50, "client.id": "me"}):
        with scanning.connected(ClientConfig("nowhere:1", given)):
            pass
    assert [found["fetch.wait.max.ms"] for found in waits] == [5, 50]
    assert waits[1]["client.id"] == "me"


def test_records_written_after_the_cut_of_a_partition_do_not_come_with_the_next(cluster: MemoryCluster) -> None:
    options = parse(**{"lvq.strays": "pass"})
    [share] = ranges(options, plan(options, cluster))
    for number in range(50):
        cluster.write("t", b"later %d" % number, b"1", partition=number % 5)
    batches = rows(options, InputPartition(share), ("key", "partition"), deletes=False)
    assert Counter(p for batch in batches for p in batch["partition"].to_pylist()) == dict.fromkeys(range(5), 10)


def test_a_partition_that_cannot_be_read_is_named(cluster: MemoryCluster) -> None:
    options = parse(**{"lvq.strays": "pass"})
    [share] = ranges(options, plan(options, cluster))
    cluster.delete_records("t", 3, 4)
    with pytest.raises(DataLoss, match="partition 3"):
        list(rows(options, InputPartition(share), ("key",), deletes=False))


def test_a_reader_that_has_failed_is_not_used_again(cluster: MemoryCluster, opened: list[str]) -> None:
    with closing(ReusedReaders(cluster)) as reused:
        first = reused.reader("t", {0: 0})
        first.poll(1)
        first.close()
        second = reused.reader("t", {1: 0})
        assert opened == ["opened"]
        cluster.disconnect()
        with pytest.raises(BrokerUnavailable):
            second.poll(0.1)
        cluster.reconnect()
        second.close()
        assert opened == ["opened", "closed"]
        reused.reader("t", {1: 0}, headers=False).close()
        reused.reader("t", {1: 0}).close()
        assert opened == ["opened", "closed", "opened", "opened"], "one that reads no headers does not do for the rest"
    assert opened[4:] == ["closed", "closed"]


# -- on Kafka ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(make_queue: MakeQueue, lvq_broker: ProvidedBroker) -> LastValueQueue[bytes]:
    """Return a queue of 40 partitions with 30 records each."""
    queue = make_queue(40)
    write(queue, lvq_broker.bootstrap_servers, 0)
    return queue


def write(queue: LastValueQueue[bytes], servers: str, begin: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(begin, begin + 1200):
        producer.produce(queue.topic, b"%d" % number, b"%d" % (number % 800), number % 40)
    assert producer.flush(30) == 0


def test_one_client_gives_the_records_of_each_partition_in_its_cut_and_no_others(
    many: LastValueQueue[bytes], lvq_broker: ProvidedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more records after the cut, which the client has fetched before it goes to the next partition."""
    clients = []
    make = KafkaReader.__init__

    def counted(self: KafkaReader, *arguments: Any, **options: Any) -> None:
        clients.append(self)
        make(self, *arguments, **options)

    monkeypatch.setattr(KafkaReader, "__init__", counted)
    spec = pin(many)
    write(many, lvq_broker.bootstrap_servers, 5000)
    scan = scanning.Scan(spec, many.cluster.config, conflate=False)  # type: ignore[attr-defined]
    with scanning.connected(scan.config) as cluster:
        for partition in spec.ranges:
            found = [row for batch in scan.rows_of(cluster, partition) for row in batch.to_pylist()]
            assert [(row["partition"], row["offset"]) for row in found] == [(partition, n) for n in range(30)]
            assert [int(row["value"]) % 40 for row in found] == [partition] * 30
    assert len(clients) == 1


def test_a_snapshot_of_many_small_partitions_is_few_tasks(
    spark: SparkSession, many: LastValueQueue[bytes], lvq_broker: ProvidedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = pin(many)
    frame = snapshot(spark, many, spec=spec, columns=["key", "partition", "offset"])
    together = sorted(map(tuple, frame.collect()))
    assert len(together) == 800
    register(spark)
    source = spark.read.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    loaded = source.option("subscribe", many.topic).option("lvq.strays", "pass").load()
    assert loaded.rdd.getNumPartitions() == 1
    assert loaded.count() == 800


def test_a_task_of_several_partitions_names_the_one_that_fails(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker
) -> None:
    register(spark)
    queue = make_queue(3, config={"cleanup.policy": "delete"})
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for number in range(30):
        producer.produce(queue.topic, b"1", None if number == 28 else b"%d" % number, number % 3)
    assert producer.flush(30) == 0
    source = spark.read.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    source = source.option("subscribe", queue.topic).option("lvq.strays", "pass").option("lvq.nullKeys", "fail")
    with pytest.raises(KeyMismatch, match=f"{queue.topic}/1/9"), task_errors():
        source.load().collect()
