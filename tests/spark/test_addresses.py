"""The option ``lvq.address``: a queue by its address, with the selection of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lvq_kafka import BYTES, LastValueQueue, Message, queues
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, QueueNotDeclared
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import SnapshotSpec, register
from lvq_spark.source.planning import plan
from lvq_spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CREATED = "prices; {create: always, node: {x-declare: {arguments: {'qpid.last_value_queue_key': ticker}}}}"


def planned(cluster: MemoryCluster, address: str, **options: str) -> SnapshotSpec:
    given = {"kafka.bootstrap.servers": "nowhere:1", "lvq.address": address, **options}
    return plan(SourceOptions.parse(given), cluster)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def test_r38_a_read_takes_topic_key_and_selector_from_the_queue_at_an_address(cluster: MemoryCluster) -> None:
    LastValueQueue.declare("prices", topic="stock", key_header="ticker", selector="a = 1", cluster=cluster)
    for address in ("prices", "prices; {mode: browse}", "queue://prices", "stock::prices"):
        spec = planned(cluster, address)
        assert (spec.topic, spec.key_header, spec.selector) == ("stock", "ticker", "a = 1")
    selecting = "prices/usa's; {link: {selector: 'b = 2'}}"
    subject = "\"qpid.subject\" = 'usa''s'"
    assert planned(cluster, selecting).selector == f"(a = 1) AND (({subject}) AND (b = 2))"
    assert planned(cluster, "prices/'usa'").selector == "(a = 1) AND (\"qpid.subject\" = 'usa')"
    given = planned(cluster, selecting, **{"lvq.selector": "c = 3"})
    assert given.selector == f"(a = 1) AND (({subject}) AND (c = 3))"


def test_r38_a_read_declares_no_queue_and_reads_a_missing_one_as_its_address_says(cluster: MemoryCluster) -> None:
    with pytest.raises(QueueNotDeclared):
        planned(cluster, "prices")
    with pytest.raises(LVQError, match="The topic 'prices' does not exist"):
        planned(cluster, CREATED)
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    spec = planned(cluster, CREATED)
    assert (spec.topic, spec.key_header) == ("prices", "ticker")
    assert queues(cluster=cluster) == []


def test_r38_a_queue_that_differs_from_its_address_is_read_with_a_warning_or_not_at_all(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    LastValueQueue.declare("prices", key_header="code", cluster=cluster)
    assert planned(cluster, CREATED).key_header == "code"
    assert sum("It is used as it is." in record.getMessage() for record in caplog.records) == 1
    for asserted in ("always", "receiver"):
        with pytest.raises(QueueMismatch):
            planned(cluster, CREATED.replace("create: always", f"assert: {asserted}"))
    assert planned(cluster, CREATED.replace("create: always", "assert: sender")).key_header == "code"


@pytest.mark.parametrize(
    ("address", "options", "says"),
    [
        ("prices; {creat: always}", {}, "Column 10 of the address: creat is unknown"),
        ("amqp://guest:s3cret@broker/prices", {}, "The address holds a user or a password"),
        (
            "direct:////prices?x-qpid-replay-period='60'",
            {},
            "Column 19 of the address: .*replay period",
        ),
        ("prices", {"queue": "prices"}, "queue and lvq.address are both given"),
        ("prices", {"lvq.key": "record"}, "lvq.address and lvq.key are both given"),
        ("", {}, "lvq.address is empty"),
    ],
)
def test_an_address_that_a_read_cannot_have_is_an_error(address: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        planned(MemoryCluster(), address, **options)
    assert "s3cret" not in str(caught.value)


# -- on a broker -------------------------------------------------------------------------------------------------------


def values(frame: DataFrame) -> dict[str, str]:
    return {bytes(row.key).decode(): bytes(row.value).decode() for row in frame.collect()}


def test_r38_spark_reads_the_queue_at_an_address(
    spark: SparkSession,
    lvq_cluster: KafkaCluster,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = CREATED.replace("prices", lvq_topic)
    register(spark, {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers})
    table = f"at_{lvq_topic.replace('-', '_')}"
    with LastValueQueue.at(address, value=BYTES, cluster=lvq_cluster) as queue, queue.producer() as producer:
        for key, exchange, value in (("IBM", "NYSE", b"1"), ("MSFT", "NASDAQ", b"2"), ("IBM", "NYSE", b"3")):
            producer.send(Message(value, {"ticker": key, "exchange": exchange})).result(60)
        try:
            read = spark.read.format("lvq").option("lvq.address", address)
            assert values(read.load()) == {"IBM": "3", "MSFT": "2"}
            selecting = f"{lvq_topic}; {{mode: browse, link: {{selector: \"exchange = 'NYSE'\"}}}}"
            assert values(spark.read.format("lvq").option("lvq.address", selecting).load()) == {"IBM": "3"}
            quoted = selecting.replace("'", "\\'")
            spark.sql(f"CREATE TABLE {table} USING lvq OPTIONS (`lvq.address` '{quoted}')")
            assert values(spark.table(table)) == {"IBM": "3"}
        finally:
            spark.sql(f"DROP TABLE IF EXISTS {table}")
            queue.drop()
