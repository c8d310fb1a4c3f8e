"""The engine on Spark's Kafka connector: its promises beyond the same rows (`test_parity.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import ConfigError, KeyMismatch
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.reading.entries import Entry
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import local_session, pin, snapshot, task_errors
from lvq_spark.connector import connector_engine
from lvq_spark.connector.java_properties import java_properties
from lvq_spark.session import connector_check
from lvq_spark.session.connector_jars import CONNECTOR, connector_jars
from lvq_spark.snapshots import Engine, choose_engine
from tests.raw_records import UNREADABLE_NAME, RawRecord, produce_raw
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


ENGINES: tuple[Engine, ...] = ("python", "connector")
POLICIES = get_args(KeyMismatchPolicy)


def append(cluster: KafkaCluster, topic: str, *pairs: tuple[str, str | None]) -> None:
    writer = cluster.writer()
    for receipt in [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


# -- the promise: never fewer rows without an error ----------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_key_that_was_compacted_out_of_the_cut_fails_the_job_and_comes_when_at_least_it_is_asked_for(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    partitions: int,
) -> None:
    """Every record of a partition may be gone; the connector then reports nothing at all for it."""
    from pyspark.errors import PythonException

    queue = make_queue(partitions)
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))  # type: ignore[arg-type]
    spec = pin(queue)
    frame = snapshot(spark, queue, spec=spec, engine="connector")
    assert set(collect(frame)) == {b"a", b"b"}
    append(queue.cluster, lvq_topic, ("a", "2"))  # type: ignore[arg-type]
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    with pytest.raises(PythonException, match=r"DataLoss: .* among them b'a'"):
        frame.collect()
    rows = collect(snapshot(spark, queue, spec=spec, engine="connector", consistency="atleast"))
    assert {key: rows[key].value for key in (b"a", b"b")} == {b"a": b"2", b"b": b"1"}


def test_keys_that_are_new_behind_the_cut_are_no_reason_to_fail_as_long_as_the_log_has_no_holes(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n % 7}", str(n)) for n in range(20)])  # type: ignore[arg-type]
    frame = snapshot(spark, queue, engine="connector")
    append(queue.cluster, lvq_topic, *[(f"new {n}", "1") for n in range(10)])  # type: ignore[arg-type]
    assert set(collect(frame)) == {b"k%d" % n for n in range(7)}


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("engine", ["python", "connector"])
def test_keys_that_are_new_behind_a_cut_of_transactions_are_no_reason_to_fail_before_anything_is_compacted(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_cluster: KafkaCluster,
    lvq_topic: str,
    engine: Engine,
    policy: str,
) -> None:
    """Markers and aborted records leave the same holes as compaction."""
    from pyspark.errors import PythonException

    queue = make_queue(config={"cleanup.policy": policy})
    writer = queue.cluster.writer(transactional_id=lvq_topic)

    def transaction(*pairs: tuple[str, str], ends: Callable[[float], None] = writer.commit_transaction) -> None:
        writer.begin_transaction()
        for key, value in pairs:
            writer.append(lvq_topic, key.encode(), value.encode())
        writer.flush(20)
        ends(20)
        eventually(
            lambda: lvq_cluster.logs.end_offsets(lvq_topic, stable=True) == lvq_cluster.logs.end_offsets(lvq_topic)
        )

    transaction(("a", "1"), ("b", "1"))
    transaction(("a", "2"))
    transaction(("a", "never"), ends=writer.abort_transaction)
    frame = snapshot(spark, queue, engine=engine)
    transaction(("new", "1"), ("b", "2"))
    writer.close()
    assert {key: row.value for key, row in collect(frame).items()} == {b"a": b"2", b"b": b"1"}
    if policy == "compact":
        force_compaction(lvq_cluster, lvq_topic)
        with pytest.raises(PythonException, match=r"DataLoss: .* among them b'b'"):
            frame.collect()


def test_records_that_were_deleted_from_the_log_fail_the_job(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))  # type: ignore[arg-type]
    frame = snapshot(spark, queue, engine="connector")
    admin = AdminClient({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(lvq_topic, 0, 1)]).values():
        future.result(20)
    with pytest.raises(Exception, match="failOnDataLoss"):
        frame.collect()


def test_a_topic_that_was_created_again_fails_the_job(
    spark: SparkSession, make_queue: MakeQueue, lvq_topic: str
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))  # type: ignore[arg-type]
    frame = snapshot(spark, queue, engine="connector")
    queue.cluster.topics.delete(lvq_topic, timeout=60)
    make_queue()
    append(queue.cluster, lvq_topic, ("a", "another"))  # type: ignore[arg-type]
    with pytest.raises(PythonException, match="TopicRecreated"):
        frame.collect()


# -- the cut -----------------------------------------------------------------------------------------------------------


def test_every_action_reads_the_same_cut_also_when_partitions_are_added(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(10)])  # type: ignore[arg-type]
    frame = snapshot(spark, queue, engine="connector")
    before = collect(frame)
    append(queue.cluster, lvq_topic, ("k1", "2"), ("k2", None), ("k99", "1"))  # type: ignore[arg-type]
    queue.cluster.topics.add_partitions(lvq_topic, 4)
    assert frame.filter("key = X'6B31'").count() == 1
    assert frame.count() == len(before) == 10
    assert frame.alias("a").join(frame.alias("b"), "key").count() == 10
    assert collect(frame) == before


def test_records_without_a_key_have_a_row_each(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    queue = make_queue(2, config={"cleanup.policy": "delete"})
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for number in range(6):
        producer.produce(lvq_topic, b"%d" % number, partition=number % 2)
    producer.produce(lvq_topic, b"keyed", b"a")
    assert producer.flush(20) == 0
    rows = {
        engine: sorted(tuple(row) for row in snapshot(spark, queue, engine=engine).drop("key").collect())
        for engine in ("python", "connector")
    }
    assert len(rows["python"]) == 7
    assert rows["connector"] == rows["python"]


def test_messages_done_by_a_group_have_no_row_and_show_nothing_older(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    make_queue(2)
    queue = LastValueQueue.declare(lvq_topic, key_header="ticker", cluster=lvq_cluster)
    with queue.producer() as producer:
        for number in range(30):
            producer.put(f"k{number % 10}", b"%d" % number)
    with queue.consumer() as consumer:
        done = set()
        for delivery in consumer:
            with delivery:
                done.add(delivery.key.encode())
            if len(done) == 4:
                break
    spec = pin(queue, group=queue.definition.group)
    left = {b"k%d" % number for number in range(10)} - done
    for engine in ("python", "connector"):
        assert {bytes(row.key) for row in snapshot(spark, queue, spec=spec, engine=engine).collect()} == left


def test_messages_below_the_start_of_the_log_are_gone_for_a_group_as_for_its_consumers_and_browsers(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    """They can no longer be delivered; the group's lower offset is still a valid place to continue from (R19)."""
    make_queue(config={"cleanup.policy": "compact,delete"})
    queue = LastValueQueue.declare(lvq_topic, key_header="ticker", cluster=lvq_cluster, on_mismatch="warn")
    with queue.producer() as producer:
        for number in range(5):
            producer.put(f"k{number}", b"%d" % number).result(20)
    lvq_cluster.logs.delete_before(lvq_topic, {0: 2})
    spec = pin(queue, group=queue.definition.group)
    assert lvq_cluster.groups.committed(queue.definition.group, lvq_topic)[0].offset == 0
    assert (spec.start, spec.end) == ({0: 2}, {0: 5})
    with queue.browser(follow=False) as browser:
        left = {event.key.encode() for event in browser if isinstance(event, Entry)}
    assert left == {b"k2", b"k3", b"k4"}
    for engine in ("python", "connector"):
        assert {bytes(row.key) for row in snapshot(spark, queue, spec=spec, engine=engine).collect()} == left
    with queue.consumer() as consumer:
        handed_out = [consumer.acquire(20) for _ in left]
        assert {one.key.encode() for one in handed_out if one is not None} == left
        assert consumer.acquire(0) is None
    queue.drop()


def test_several_tasks_may_share_a_partition(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, *[(f"k{n % 7}", None if n % 9 == 0 else str(n)) for n in range(100)])  # type: ignore[arg-type]
    frame = snapshot(spark, queue, connector_options={"minPartitions": "4"})
    assert collect(frame) == collect(snapshot(spark, queue, engine="python"))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_partition_is_one_task_which_sorts_once_and_nothing_but_its_newest_rows_is_exchanged(
    spark: SparkSession, make_queue: MakeQueue, lvq_topic: str, partitions: int
) -> None:
    queue = make_queue(partitions)
    append(queue.cluster, lvq_topic, *[(f"k{n % 30}", str(n)) for n in range(100)])  # type: ignore[arg-type]
    plan = snapshot(spark, queue, engine="connector")._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Scan KafkaRelation") == plan.count("WindowGroupLimit") == partitions
    exchanges = partitions > 1
    assert plan.count("Exchange") == plan.count("Union") == exchanges
    assert plan.count("Sort ") == partitions + exchanges
    assert plan.count("Coalesce 2") == partitions * exchanges, "else Spark makes one task of all partitions"


def test_a_topic_of_very_many_partitions_is_planned_at_once(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its promises are the same: all rows, including keyless ones, and a hole in the log makes it read past the cut."""
    from pyspark.errors import PythonException

    monkeypatch.setattr(connector_engine, "APART", 2)
    queue = make_queue(3, config={"cleanup.policy": "delete"})
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    for number in range(12):
        producer.produce(lvq_topic, b"%d" % number, partition=number % 3)
    for number in range(40):
        producer.produce(lvq_topic, b"%d" % number, b"k%d" % (number % 7), partition=number % 3)
    assert producer.flush(20) == 0
    spec = pin(queue)
    frame = snapshot(spark, queue, spec=spec, engine="connector")
    assert frame._jdf.queryExecution().executedPlan().toString().count("Scan KafkaRelation") == 1
    append(queue.cluster, lvq_topic, ("new", "1"))  # type: ignore[arg-type]
    rows = [
        sorted(tuple(row) for row in one.fillna("").drop("key").collect())
        for one in (frame, snapshot(spark, queue, spec=spec, engine="python"))
    ]
    assert len(rows[0]) == 12 + 7
    assert rows[0] == rows[1]
    queue.cluster.topics.alter_config(lvq_topic, {"cleanup.policy": "compact"})
    split = snapshot(spark, queue, connector_options={"minPartitions": "9"})
    append(queue.cluster, lvq_topic, ("newer", "1"))  # type: ignore[arg-type]
    assert split.count() == 12 + 8
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    with pytest.raises(PythonException, match=r"DataLoss: .* among them b'"):
        split.collect()


def test_a_header_that_disagrees_with_the_key_fails_the_job_where_the_queue_says_so(
    spark: SparkSession, make_queue: MakeQueue, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    make_queue(key_header="ticker")
    writer = lvq_cluster.writer()
    writer.append(lvq_topic, b"a", b"1", headers=[("ticker", b"a")]).result(20)
    strict = LastValueQueue(lvq_topic, key_header="ticker", key_mismatch="fail", cluster=lvq_cluster)
    assert snapshot(spark, strict, engine="connector").count() == 1
    writer.append(lvq_topic, b"a", b"1", headers=[("ticker", b"a"), ("ticker", b"b")]).result(20)
    writer.close()
    with pytest.raises(KeyMismatch, match=rf"^The key of the record at {lvq_topic}/0/1 .* disagree\.$"), task_errors():
        snapshot(spark, strict, engine="connector").collect()


def test_both_engines_take_the_record_key_where_headers_cannot_be_read(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    make_queue(key_header="ticker")
    bad = RawRecord(b"a", b"1", [(b"ticker", b"b"), (UNREADABLE_NAME, b"x")])
    produce_raw(lvq_broker.bootstrap_servers, lvq_topic, bad)
    for engine in ENGINES:
        queues = [LastValueQueue(lvq_topic, key_header="ticker", key_mismatch=p, cluster=lvq_cluster) for p in POLICIES]
        record, header, fail = (snapshot(spark, queue, engine=engine) for queue in queues)
        assert [bytes(row["key"]) for rows in (record, header) for row in rows.collect()] == [b"a", b"a"]
        with pytest.raises(KeyMismatch, match=f"{lvq_topic}/0/0.* cannot be read"), task_errors():
            fail.collect()


# -- which engine ------------------------------------------------------------------------------------------------------


def test_auto_takes_the_cheaper_engine_as_long_as_keys_fit_and_says_why(
    spark: SparkSession, make_queue: MakeQueue, caplog: pytest.LogCaptureFixture, lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))  # type: ignore[arg-type]
    spec = pin(queue)
    with caplog.at_level(logging.INFO, "lvq_spark"):
        assert snapshot(spark, queue, spec=spec).count() == 1
    assert f"{lvq_topic} is read with engine='python': it costs less" in caplog.text
    assert choose_engine(spark, replace(spec, end={0: 10**9})) == (
        "connector",
        "partition 0 has 1,000,000,000 offsets, and Spark can spill keys to disk",
    )
    assert choose_engine(spark, spec, connector_options={"minPartitions": "2"}).engine == "connector"
    assert choose_engine(spark, spec, "connector") == ("connector", "it was asked for")


def test_without_the_connector_auto_still_reads_and_who_asks_for_it_is_told_how_to_get_it(
    spark: SparkSession, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = pin(make_queue())
    assert connector_check.has_connector(spark)
    monkeypatch.setattr("lvq_spark.session.connector_check.has_connector", lambda spark: False)
    monkeypatch.setattr("lvq_spark.snapshots.has_connector", lambda spark: False)
    choice = choose_engine(spark, replace(spec, end={0: 10**9}))
    assert choice.engine == "python"
    assert "the connector is not in this session" in choice.reason
    wanted = rf"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:{spark.version}, or .*connector=True"
    with pytest.raises(ConfigError, match=wanted):
        connector_engine.read_with_connector(spark, spec, ClientConfig("localhost:9092"))


def test_a_session_without_the_connector_is_told_from_one_with_it() -> None:
    from pyspark.errors import AnalysisException

    class Session:
        """A stand-in that answers like a session without the connector."""

        version = "4.0.1"

        def __getattr__(self, name: str) -> Session:
            return self

        def __call__(self, *_: object) -> Session:
            return self

        def load(self) -> None:
            raise AnalysisException(errorClass="KAFKA_DATA_SOURCE_NOT_ENABLED", messageParameters={"message": "kafka"})

    with pytest.raises(ConfigError, match=r"_2\.13:4\.0\.1,"):
        connector_check.require_connector(Session())  # type: ignore[arg-type]


def test_options_of_the_connector_and_the_python_engine_exclude_each_other(
    spark: SparkSession, make_queue: MakeQueue
) -> None:
    with pytest.raises(ConfigError, match="engine='python' does not use") as error:
        snapshot(spark, make_queue(), engine="python", connector_options={"minPartitions": "2"})
    assert error.value.options == ("engine", "connector_options")


@pytest.mark.parametrize("name", ["startingOffsets", "subscribe", "failOnDataLoss", "kafka.isolation.level"])
def test_an_option_that_the_cut_decides_cannot_be_set(spark: SparkSession, make_queue: MakeQueue, name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} cannot be set"):
        snapshot(spark, make_queue(), connector_options={name: "x"})


def test_a_jvm_that_runs_without_the_connector_cannot_get_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local_session(connector=True) is spark
    monkeypatch.setattr("lvq_spark.session.local_session.has_connector", lambda spark: False)
    with pytest.raises(ConfigError, match=r"without the Kafka connector.*in a new process"):
        local_session(connector=True)


def test_no_secret_is_in_a_plan(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    make_queue(2)
    secrets = {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.key.password": "tr0ub",
    }
    cluster = KafkaCluster(ClientConfig(lvq_broker.bootstrap_servers, secrets))
    frame = snapshot(spark, LastValueQueue(lvq_topic, key_header=None, cluster=cluster), engine="connector")
    plans = frame._jdf.queryExecution().toString() + repr(frame) + str(frame.rdd.toDebugString())
    assert "KafkaRelation" in plans or frame.isEmpty()
    assert "hunter2" not in plans
    assert "tr0ub" not in plans
    cluster.close()


# -- client properties under their Java names --------------------------------------------------------------------------


def java(properties: Mapping[str, str | bool | int], **own: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in own.items()}
    return java_properties(ClientConfig("localhost:9092", properties), given)


def test_passwords_become_a_login_module() -> None:
    assert java(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": 'a "b\\c',
        }
    ) == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="a \\"b\\\\c";',
    }
    plain = java({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    assert plain["sasl.jaas.config"].startswith("org.apache.kafka.common.security.plain.PlainLoginModule required ")


def test_a_keytab_becomes_a_login_module() -> None:
    found = java(
        {
            "security.protocol": "SASL_SSL",
            "sasl.kerberos.keytab": "/etc/me.keytab",
            "sasl.kerberos.principal": "me@REALM",
        }
    )
    assert found["sasl.mechanism"] == "GSSAPI"
    assert found["sasl.kerberos.service.name"] == "kafka"
    assert 'keyTab="/etc/me.keytab" principal="me@REALM";' in found["sasl.jaas.config"]


def test_certificates_go_as_pem(tmp_path: Path) -> None:
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nx\n-----END ENCRYPTED PRIVATE KEY-----\n")
    chain.write_text("-----BEGIN CERTIFICATE-----\ny\n-----END CERTIFICATE-----\n")
    files = {"ssl.key.location": str(key), "ssl.certificate.location": str(chain)}
    found = java({"security.protocol": "ssl", "ssl.ca.location": "/ca.pem", "ssl.key.password": "p", **files})
    assert found == {
        "security.protocol": "ssl",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.key.password": "p",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": chain.read_text(),
    }
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(ConfigError, match=r"ssl\.key\.location cannot be passed.*PKCS#8"):
        java(files)
    key.unlink()
    with pytest.raises(ConfigError, match="Cannot read"):
        java(files)


def test_a_key_store_and_the_name_of_the_server() -> None:
    found = java({"ssl.keystore.location": "/me.p12", "ssl.endpoint.identification.algorithm": "none"})
    assert found == {
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_tuning_is_renamed_where_java_has_it_and_left_out_where_not() -> None:
    assert java(
        {"fetch.wait.max.ms": 100, "client.id": "me", "queued.min.messages": 1, "socket.keepalive.enable": True}
    ) == {
        "fetch.max.wait.ms": "100",
        "client.id": "me",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.ssl.certificate.verification", False),
        ("ssl.crl.location", "/crl"),
        ("ssl.providers", "legacy"),
        ("sasl.oauthbearer.config", "x"),
    ],
)
def test_a_security_setting_that_java_does_not_have_is_an_error(name: str, value: str | bool) -> None:
    with pytest.raises(ConfigError, match=rf"{name} cannot be passed.*connector_options") as error:
        java({name: value})
    assert error.value.options == (name,)


def test_a_way_to_authenticate_that_only_java_has_takes_the_place_of_the_queue_s() -> None:
    queue = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
    with pytest.raises(ConfigError, match="cannot be passed"):
        java(queue)
    assert java(queue, sasl_mechanism="AWS_MSK_IAM", sasl_jaas_config="x required;") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "x required;",
    }


# -- its jars ----------------------------------------------------------------------------------------------------------


def test_the_jars_are_those_of_the_lock() -> None:
    lock = CONNECTOR.read_lock()
    assert {root[:3] for root in CONNECTOR.roots} == {jar[:3] for jar in lock}
    assert [path.name for path in connector_jars()] == [jar.file for jar in lock]
