"""TTL in Spark: what has expired at the time of a cut is not shown, and no older value of its key is (R8, R10)."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_spark import SnapshotSpec, pin, register
from lvq_spark.scan.scanning import Scan
from lvq_spark.source.planning import plan
from lvq_spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MILLENNIA = b"9" * 15
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [],
    [("other", b"5")],
    *([(TTL_HEADER, said)] for said in (b"0", b"000", b"1", b"1000", b"60000", b"007", MILLENNIA)),
    *([(TTL_HEADER, said)] for said in (None, b"", b"-1", b"1.5", b"1\n", b"\xff", b"9" * 16, "\u0663".encode())),
    [(TTL_HEADER, b"5"), ("other", None), (TTL_HEADER, b"9")],
    [(TTL_HEADER, b"5"), (TTL_HEADER, b"x")],
    [(TTL_HEADER, b"x"), (TTL_HEADER, b"5")],
]
TTLS = [
    Ttl(),
    Ttl(default=2.0),
    Ttl(minimum=1.5, maximum=30.0),
    Ttl(minimum=0.5, default=5.0, maximum=5.0),
    Ttl(maximum=10.0),
]


def queue_on(cluster: MemoryCluster, ttl: Ttl | None = None) -> LastValueQueue[bytes]:
    return LastValueQueue("t", key_header=None, ttl=ttl, cluster=cluster)


@pytest.fixture
def now() -> list[float]:
    return [1_000_000.0]


@pytest.fixture
def cluster(now: list[float]) -> MemoryCluster:
    cluster = MemoryCluster(clock=lambda: now[0])
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    return cluster


def rows(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> list[dict[str, Any]]:
    scan = Scan(spec, ClientConfig("nowhere:1"), patience=10.0, **options)
    return [row for batch in scan.rows_of(cluster, 0) for row in batch.to_pylist()]


def keys(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> list[bytes]:
    return [row["key"] for row in rows(cluster, spec, **options)]


def test_r10_a_value_expires_after_the_last_millisecond_of_its_ttl(cluster: MemoryCluster, now: list[float]) -> None:
    cluster.write("t", b"a", b"1")
    cluster.write("t", b"b", b"1", [(TTL_HEADER, b"500")])
    queue = queue_on(cluster, Ttl(default=2.0))
    now[0] += 0.5
    assert pin(queue).as_of == 1_000_000.5
    assert keys(cluster, pin(queue)) == [b"a", b"b"]
    assert keys(cluster, pin(queue, end={0: 2}, as_of=1_000_000.501)) == [b"a"]
    now[0] += 1.501
    assert keys(cluster, pin(queue)) == []
    assert keys(cluster, pin(queue, end={0: 2}, as_of=1_000_000.0)) == [b"a", b"b"], "a cut has a time of its own"


def test_r8_an_expired_value_hides_older_ones_of_its_key(cluster: MemoryCluster, now: list[float]) -> None:
    cluster.write("t", b"a", b"long")
    cluster.write("t", b"a", b"short", [(TTL_HEADER, b"10")])
    now[0] += 1
    spec = pin(queue_on(cluster, Ttl()))
    assert rows(cluster, spec) == []
    (row,) = rows(cluster, spec, deletes=True)
    assert (row["key"], row["value"], row["deleted"], row["offset"]) == (b"a", None, True, 1)
    (row,) = rows(cluster, spec, deletes=True, columns=("offset",))
    assert row == {"offset": 1}


def test_an_expired_message_without_a_key_has_no_row(cluster: MemoryCluster, now: list[float]) -> None:
    cluster.topics.create("free", partitions=1, config={"cleanup.policy": "delete"})
    for headers in ([], [(TTL_HEADER, b"10")]):
        cluster.write("free", None, b"1", headers)
    now[0] += 1
    spec = pin(LastValueQueue("free", key_header=None, ttl=Ttl(), cluster=cluster))
    assert [row["offset"] for row in rows(cluster, spec, deletes=True, columns=("offset", "value"))] == [0]


def test_r22_a_queue_without_a_ttl_takes_the_header_for_an_ordinary_one(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1", [(TTL_HEADER, b"10")])
    now[0] += 1
    for ttl in (None, Ttl(never=True)):
        spec = pin(queue_on(cluster, ttl), end={0: 1}, as_of=now[0])
        assert (spec.times.ttl, spec.as_of) == (None, None)
        (row,) = rows(cluster, spec)
        assert (row["value"], row["headers"], row["expires"]) == (
            b"1",
            [{"key": TTL_HEADER, "value": b"10"}],
            None,
        )


def test_headers_are_read_only_where_they_matter(cluster: MemoryCluster) -> None:
    def headers_read(spec: SnapshotSpec, *columns: str) -> bool:
        return Scan(spec, ClientConfig("nowhere:1"), columns)._how["headers"]

    plain, with_ttl = pin(queue_on(cluster)), pin(queue_on(cluster, Ttl()))
    assert not headers_read(plain, "key", "expires")
    assert headers_read(with_ttl, "key")
    assert not headers_read(replace(with_ttl, as_of=None), "key")
    assert headers_read(replace(with_ttl, as_of=None), "key", "expires")


def test_a_malformed_ttl_counts_as_none_and_is_counted_and_logged_once(
    cluster: MemoryCluster, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for n, said in enumerate([b"soon", b"0", b"soon"]):
        cluster.write("t", b"bad %d" % n, b"1", [(TTL_HEADER, said)])
    cluster.write("t", b"good", b"1", [(TTL_HEADER, b"10")])
    now[0] += 1
    with caplog.at_level(logging.INFO, "lvq_spark"):
        assert len(keys(cluster, pin(queue_on(cluster, Ttl())))) == 3
    line, warning = caplog.records
    context: dict[str, str] = line.__dict__["context"]
    assert {"rows": "3", "expired": "1", "malformed_ttls": "3"}.items() <= context.items()
    assert (warning.levelname, warning.getMessage()) == (
        "WARNING",
        "t/0: the header lvq-ttl of 3 records is not a positive number of milliseconds, and counts as none.",
    )


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_spilled_values_expire_too(cluster: MemoryCluster, now: list[float], memory: int) -> None:
    choose = random.Random(7)
    for n in range(300):
        cluster.write("t", b"%d" % choose.randrange(100), b"%d" % n, choose.choice(HEADERS) or [])
    now[0] += 3
    for ttl in TTLS:
        spec, expiry_times = pin(queue_on(cluster, ttl)), ExpiryTimes(ttl)
        every = rows(cluster, replace(spec, as_of=None))
        left = [
            row["offset"]
            for row in every
            if expiry_times.expiry(1_000_000_000, [(one["key"], one["value"]) for one in row["headers"] or ()])
            >= 1_000_003_000
        ]
        assert 0 < len(left) < len(every)
        for columns in (("offset",), ("offset", "value", "headers")):
            found = rows(cluster, spec, columns=columns, memory=memory)
            assert [row["offset"] for row in found] == left


# -- the options of the format -----------------------------------------------------------------------------------------


def parsed(**options: str) -> SourceOptions:
    return SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **options})


def lvq(**options: str) -> dict[str, str]:
    return {f"lvq.{name}": value for name, value in options.items()}


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({}, None),
        (lvq(ttl="false"), None),
        (lvq(ttl="true"), Ttl()),
        (lvq(defaultTtl="30"), Ttl(default=30.0)),
        (lvq(ttl="true", minTtl="0.5", maxTtl="60"), Ttl(minimum=0.5, maximum=60.0)),
    ],
)
def test_options_say_how_long_the_messages_of_a_topic_live(options: dict[str, str], ttl: Ttl | None) -> None:
    assert parsed(**options).ttl == ttl


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (lvq(ttl="false", maxTtl="5"), ("lvq.ttl=false", "lvq.maxTtl")),
        (lvq(minTtl="9", maxTtl="5"), ("lvq.minTtl", "lvq.maxTtl")),
        (lvq(defaultTtl="soon"), ("lvq.defaultTtl",)),
        (lvq(defaultTtl="0"), ("lvq.defaultTtl",)),
        (lvq(asOf="yesterday"), ("lvq.asOf",)),
        (lvq(asOf="1767225600000"), ("lvq.asOf",)),
        (lvq(asOf="5", dedupe="none"), ("lvq.dedupe=none", "lvq.asOf")),
    ],
)
def test_a_malformed_or_clashing_option_is_an_error_that_names_it(
    options: dict[str, str], named: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(**options)
    assert error.value.options == named


def test_a_declared_queue_says_it_itself() -> None:
    with pytest.raises(ConfigError, match=r"queue and lvq\.maxTtl are both given") as error:
        SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "queue": "q", "lvq.maxTtl": "5"})
    assert error.value.options == ("queue", "lvq.maxTtl")


def test_the_time_of_a_cut_is_the_option_or_that_of_its_end_or_now(cluster: MemoryCluster, now: list[float]) -> None:
    for _ in range(3):
        cluster.write("t", b"a", b"1")
        now[0] += 10

    def cut(**options: str) -> tuple[int, float | None]:
        spec = plan(parsed(**{"lvq.defaultTtl": "30", **options}), cluster)
        return spec.end[0], spec.as_of

    assert cut() == (3, 1_000_030.0)
    assert cut(**lvq(asOf="1000005.5")) == (3, 1_000_005.5)
    past = {"endingTimestamp": "1000015000", "lvq.asOfPolicy": "warn"}
    with pytest.warns(UserWarning, match="superseded"):
        assert cut(**past) == (2, 1_000_015.0)
    with pytest.warns(UserWarning, match="superseded"):
        assert cut(**past, **lvq(asOf="1000025")) == (2, 1_000_025.0)
    assert cut(**lvq(dedupe="none")) == (3, None)
    assert plan(parsed(**lvq(asOf="5")), cluster).as_of is None, "nothing expires here"


# -- the same in Spark's own expressions -------------------------------------------------------------------------------


def test_the_expression_of_spark_agrees_with_the_terms(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

    from lvq_spark.rules.expiry import LAST, expiry

    stamps = [-1, 0, 1_764_107_467_123]
    cells = [(stamp, place) for stamp in stamps for place in range(len(HEADERS))]
    frame = spark.createDataFrame(
        [(stamp, place, HEADERS[place]) for stamp, place in cells],
        "ms bigint, place int, headers array<struct<key: string, value: binary>>",
    ).withColumn("timestamp", F.timestamp_millis("ms"))
    changing = [TimeRule(ttl, earlier=(EarlierTerms(until=1, ttl=before),)) for ttl in TTLS for before in (None, *TTLS)]
    for times in (*map(TimeRule, TTLS), *changing, TimeRule(earlier=(EarlierTerms(until=1, ttl=TTLS[0]),))):
        found, judge = expiry(times), times.expiry_times()
        assert judge is not None
        shown = frame.select("ms", "place", F.unix_millis(found).alias("at"))
        got = {(row.ms, row.place): row.at for row in shown.collect()}
        for stamp, place in cells:
            at = judge.expiry(stamp, HEADERS[place])
            assert got[stamp, place] == (None if at > LAST else at), (times, stamp, HEADERS[place])
    assert NEVER > LAST


def test_the_format_goes_by_the_definition_of_a_declared_queue(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    queue = LastValueQueue.declare(lvq_topic, key_header="id", ttl=Ttl(default=600.0), cluster=lvq_cluster)
    with queue.producer() as producer:
        producer.put("usual", b"1")
        producer.put("long", b"1", ttl=86_400.0)
        last = producer.put("usual", b"2").result(20)
    register(spark)
    servers = lvq_cluster.config.bootstrap_servers

    def load(**options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": servers, "queue": queue.name, **options}
        return spark.read.format("lvq").options(**given).load()

    def shown(**options: str) -> dict[str, str | None]:
        rows = load(**options).selectExpr("string(key)", "string(value)").collect()
        return {row.key: row.value for row in rows}

    assert shown() == {"usual": "2", "long": "1"}
    in_an_hour = {"lvq.asOf": str(time.time() + 3600)}
    assert shown(**in_an_hour) == {"long": "1"}
    assert shown(**in_an_hour, **{"lvq.tombstones": "keep"}) == {"usual": None, "long": "1"}
    assert shown(**{"lvq.expired": "keep"}) == {"usual": "2", "long": "1"}
    frame = load(**{"lvq.extraColumns": "expires"}).where(f"offset = {last.offset}")
    (row,) = frame.selectExpr("unix_millis(expires) - unix_millis(timestamp) AS life").collect()
    assert row.life == 600_000
    queue.drop()
