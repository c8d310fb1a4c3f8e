"""The numbers that tasks log, and the executors' log level, which is the driver's."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import pin, register, snapshot
from lvq_spark.scan.scanning import Scan
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MakeQueue = Callable[..., LastValueQueue[bytes]]


def met(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, policy: str = "record", **options: Any
) -> dict[str, str]:
    """Return the numbers that a scan of the first partition logs."""
    spec = pin(LastValueQueue("t", key_header="ticker", key_mismatch=policy, cluster=cluster))  # type: ignore[arg-type]
    caplog.clear()
    with caplog.at_level(logging.INFO, "lvq_spark"):
        list(Scan(spec, ClientConfig("nowhere:1"), **options).rows_of(cluster, 0))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("lvq_spark.tasks", "INFO")
    context: dict[str, str] = record.__dict__["context"]
    assert (context.pop("topic"), context.pop("partition")) == ("t", "0")
    counts = " ".join(f"{name}={count}" for name, count in context.items())
    assert record.getMessage() == f"t/0, offsets 0 to {spec.end[0]}: {counts}"
    return context


def test_a_scan_counts_what_it_met(memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "delete"})
    for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", None), (None, b"1"), (None, b"2"), (b"c", b"")):
        memory_cluster.write("t", key, value)
    memory_cluster.write("t", b"d", b"1", [("ticker", b"a")])
    counts = {"records": "8", "rows": "5", "replaced": "2", "deletes": "1", "keyless": "2"}
    assert met(memory_cluster, caplog) == counts
    assert met(memory_cluster, caplog, deletes=True) == {**counts, "rows": "6"}
    assert met(memory_cluster, caplog, keyless="drop") == {**counts, "rows": "3"}
    by_header = {**counts, "rows": "4", "replaced": "3", "mismatched": "1"}
    assert met(memory_cluster, caplog, "header") == by_header, "d's record is one of a"
    assert met(memory_cluster, caplog, conflate=False) == {"records": "8", "rows": "7", "deletes": "1"}


def test_a_scan_that_is_not_read_to_its_end_logs_nothing(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    for n in range(3):
        memory_cluster.write("t", b"%d" % n, b"1")
    scan = Scan(pin(LastValueQueue("t", key_header=None, cluster=memory_cluster)), ClientConfig("nowhere:1"), rows=1)
    with caplog.at_level(logging.INFO, "lvq_spark"):
        rows = scan.rows_of(memory_cluster, 0)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        assert caplog.records == []
        assert len(list(replace(scan, rows=2).rows_of(memory_cluster, 0))) == 2
        assert len(caplog.records) == 1


# -- on executors ------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker_logs(spark: SparkSession, lvq_topic: str) -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Yield a function that returns the context of each line that tasks have logged about the test's topic."""

    def logged() -> list[dict[str, str]]:
        logs = spark.tvf.python_worker_logs()
        rows = logs.where(logs.logger == "lvq_spark.tasks").where(logs.context["topic"] == lvq_topic).collect()
        return [{k: v for k, v in row.context.items() if not k.endswith("_name")} for row in rows]

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    yield logged
    spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")


@pytest.fixture
def strays(make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str) -> LastValueQueue[bytes]:
    """Return a queue with, in partition 0 of two: ten records of a key at home, one delete, and two of one stray."""
    queue = make_queue(2)
    keys = [b"k%d" % n for n in range(20)]
    home, other = [key for key in keys if home_partition(key, 2) == 0][:2]
    stray = next(key for key in keys if home_partition(key, 2) == 1)
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    records = [(home, b"1")] * 10 + [(other, None)] + [(stray, b"1")] * 2
    for key, value in records:
        producer.produce(lvq_topic, value, key, 0)
    producer.produce(lvq_topic, b"1", stray, 1)
    assert producer.flush(20) == 0
    return queue


def test_the_tasks_of_a_snapshot_log_what_they_met_as_loud_as_the_driver_does(
    spark: SparkSession,
    strays: LastValueQueue[bytes],
    worker_logs: Callable[[], list[dict[str, str]]],
    caplog: pytest.LogCaptureFixture,
    lvq_topic: str,
) -> None:
    assert snapshot(spark, strays).count() == 2
    with caplog.at_level(logging.INFO, "lvq_spark"):
        frame = snapshot(spark, strays, columns=["key"])
    assert frame.count() == 2
    eventually(lambda: len(worker_logs()) >= 2)
    lines = sorted(worker_logs(), key=lambda line: line["partition"])
    here = {"records": "13", "rows": "3", "replaced": "10", "deletes": "1", "keyless": "0", "strays": "1"}
    there = {"records": "1", "rows": "1", "replaced": "0", "deletes": "0", "keyless": "0", "strays": "0"}
    assert lines == [
        {"topic": lvq_topic, "partition": "0", **here},
        {"topic": lvq_topic, "partition": "1", **there},
    ]


def test_tasks_count_what_has_expired_and_malformed_ttls(
    spark: SparkSession,
    make_queue: MakeQueue,
    worker_logs: Callable[[], list[dict[str, str]]],
    caplog: pytest.LogCaptureFixture,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
) -> None:
    make_queue(config={"message.timestamp.type": "CreateTime"})
    producer = Producer({"bootstrap.servers": lvq_cluster.config.bootstrap_servers})
    for key, ttl in ((b"a", b"1"), (b"b", b"soon"), (b"c", b"0"), (b"d", b"60000"), (b"d", b"60001")):
        producer.produce(lvq_topic, b"1", key, timestamp=1_700_000_000_000, headers=[("lvq-ttl", ttl)])
    assert producer.flush(20) == 0
    queue = LastValueQueue(lvq_topic, key_header=None, ttl=Ttl(), cluster=lvq_cluster)
    with caplog.at_level(logging.INFO, "lvq_spark"):
        frame = snapshot(spark, queue, columns=["key"], end={0: 5}, as_of=1_700_000_060.001)
    assert sorted(bytes(row.key) for row in frame.collect()) == [b"b", b"c", b"d"]
    eventually(worker_logs)
    (counts,) = worker_logs()
    assert (counts["records"], counts["expired"], counts["malformed_ttls"]) == ("5", "1", "2")
    logs = spark.tvf.python_worker_logs().where("level = 'WARNING'").collect()
    assert any(row.msg.startswith(f"{lvq_topic}/0: the header lvq-ttl of 2 records is not") for row in logs)


def test_tasks_count_what_is_scheduled_and_malformed_times(
    spark: SparkSession,
    make_queue: MakeQueue,
    worker_logs: Callable[[], list[dict[str, str]]],
    caplog: pytest.LogCaptureFixture,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
) -> None:
    """The last record is scheduled, which is not a gap in the log."""
    make_queue(config={"message.timestamp.type": "CreateTime"})
    producer = Producer({"bootstrap.servers": lvq_cluster.config.bootstrap_servers})
    for key, time in ((b"a", b"0"), (b"b", b"soon"), (b"c", b""), (b"d", b"1700000050000"), (b"a", b"1700000060000")):
        producer.produce(lvq_topic, b"1", key, timestamp=1_700_000_000_000, headers=[("lvq-not-before", time)])
    producer.produce(lvq_topic, b"1", b"after the cut")
    assert producer.flush(20) == 0
    queue = LastValueQueue(lvq_topic, key_header=None, max_delay=60.0, cluster=lvq_cluster)
    with caplog.at_level(logging.INFO, "lvq_spark"):
        frame = snapshot(spark, queue, columns=["key"], end={0: 5}, as_of=1_700_000_049.999)
    assert sorted(bytes(row.key) for row in frame.collect()) == [b"a", b"b", b"c"]
    eventually(worker_logs)
    (counts,) = worker_logs()
    assert (counts["records"], counts["rows"], counts["replaced"]) == ("5", "3", "0")
    assert (counts["scheduled"], counts["malformed_times"]) == ("2", "2")
    logs = spark.tvf.python_worker_logs().where("level = 'WARNING'").collect()
    assert any(row.msg.startswith(f"{lvq_topic}/0: the header lvq-not-before of 2 records is not") for row in logs)


def test_the_tasks_of_the_format_log_it_too_and_say_aloud_what_the_log_has_lost(
    spark: SparkSession,
    make_queue: MakeQueue,
    worker_logs: Callable[[], list[dict[str, str]]],
    caplog: pytest.LogCaptureFixture,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    with queue.producer() as producer:
        for n in range(6):
            producer.put(f"k{n % 3}", b"1")
    with caplog.at_level(logging.INFO, "lvq_spark"):
        register(spark)
    options = {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "subscribe": lvq_topic}
    frame = spark.read.format("lvq").options(**options, failOnDataLoss="false").load()
    assert frame.count() == 3
    queue.cluster.logs.delete_before(lvq_topic, {0: 4})
    assert frame.count() == 2
    eventually(lambda: len(worker_logs()) >= 2)
    assert sorted((line["records"], line["rows"]) for line in worker_logs()) == [("2", "2"), ("6", "3")]
    logs = spark.tvf.python_worker_logs().where("level = 'WARNING'").collect()
    assert f"{lvq_topic}/0: the log has lost offsets 0 to 4." in [row.msg for row in logs]


def test_a_process_without_logging_shows_what_the_driver_would_and_one_with_it_no_less_than_it_did() -> None:
    """Without a logging setup, it goes to standard error, which Spark keeps for each executor."""
    script = (
        "import logging; from lvq_spark.scan.task_metrics import listen, logger; logger.info('zero');"
        "listen(logging.WARNING); logger.info('one'); listen(logging.INFO); listen(logging.INFO); logger.info('two');"
        "listen(logging.WARNING); logger.info('three'); logging.getLogger('lvq_spark').setLevel(logging.INFO);"
        "listen(logging.WARNING); logger.info('four')"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert run.stderr.split() == ["two", "four"]
