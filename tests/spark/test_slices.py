"""Slices: several tasks read one partition, each for a part of its keys, and together give the rows of one task."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, DataLoss, KeyMismatch
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import SnapshotSpec, pin, refresh, register, snapshot
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.scan.arrays import binary
from lvq_spark.scan.arrow_columns import COLUMNS
from lvq_spark.scan.home_partition import Partitioner, home_partitions
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.shares import Slice, slices_of, tasks_of
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.source.streaming import LvqStreamReader
from lvq_spark.store import read_version
from tests.effort import examples
from tests.spark.test_options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]

NOWHERE = ClientConfig("nowhere:1")
BEGUN = 1_800_000_000.0
KEYS = [b"key %d" % number for number in range(2000)]


# -- which keys are in a slice -----------------------------------------------------------------------------------------


def test_each_key_is_in_one_slice() -> None:
    slices = [part for part in slices_of(7) if part is not None]
    rows = [part.rows(KEYS, range(len(KEYS))) for part in slices]
    assert sorted(row for some in rows for row in some) == list(range(len(KEYS)))
    assert [str(part) for part in slices[::6]] == ["slice 1 of 7", "slice 7 of 7"]


def test_a_record_without_a_key_is_in_the_slice_of_its_offset() -> None:
    keys: list[bytes | None] = [None] * 300
    shares = [Slice(number, 3).rows(keys, range(700, 1000)) for number in range(3)]
    assert sorted(row for rows in shares for row in rows) == list(range(300))
    assert all(len(rows) > 60 for rows in shares)
    assert Slice(0, 3).rows([b"a", None, b"b"], [1, 700, 3]) == [
        row for row in range(3) if row in Slice(0, 3).rows([b"a", b"700", b"b"], [1, 2, 3])
    ]


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_slice_of_a_key_is_the_same_in_every_process(seed: str) -> None:
    """Python's own hash of bytes has a salt in each process."""
    program = "from lvq_spark.scan.shares import Slice; print(Slice(1, 3).rows([b'%d' % n for n in range(40)], []))"
    run = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[0, 2, 7, 8, 9, 10, 12, 14, 17, 18, 26, 28, 32, 33]"


@pytest.mark.parametrize("partitioner", ["murmur2_random", "consistent_random", "fnv1a_random"])
@pytest.mark.parametrize("partitions", [2, 3, 4, 12])
def test_the_keys_of_one_partition_are_in_all_slices_whatever_chose_the_partition(
    partitioner: Partitioner, partitions: int
) -> None:
    homes = home_partitions(binary(KEYS), partitions, partitioner).tolist()
    for home in range(partitions):
        keys = [key for key, partition in zip(KEYS, homes) if partition == home]
        for of in (2, 3, 4, 12):
            sizes = [len(Slice(number, of).rows(keys, [])) for number in range(of)]
            assert max(sizes) < 1.9 * len(keys) / of


def test_there_is_a_task_for_each_slice_of_each_partition_and_none_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lvq_spark.scan.shares.SMALL", 1)
    spec = SnapshotSpec("t", "", {0: 0, 1: 5, 2: 0}, {0: 9, 1: 5, 2: 2})
    assert [task[0].partition for task in tasks_of(spec)] == [0, 2]
    assert [task[0] for task in tasks_of(spec, 3)] == [
        *[(0, Slice(number, 3)) for number in range(3)],
        *[(2, Slice(number, 2)) for number in range(2)],
    ], "a record has one key"


# -- the same rows -----------------------------------------------------------------------------------------------------


def rows(cluster: MemoryCluster, spec: SnapshotSpec, slices: int, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of the first partition from all of its slices, by offset."""
    scans = (Scan(spec, NOWHERE, slice=part, patience=10.0, **options) for part in slices_of(slices))
    found = [row for scan in scans for batch in scan.rows_of(cluster, 0) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["offset"])


headers = st.lists(
    st.sampled_from(
        [
            *((TTL_HEADER, said) for said in (b"1000", b"500000", b"x")),
            *((NOT_BEFORE_HEADER, b"%d" % ((BEGUN + ahead) * 1000)) for ahead in (-5, 5, 30)),
            *((PRIORITY_HEADER, said) for said in (b"9", b"x")),
            *(("ticker", said) for said in (b"key 1", b"key 2", None)),
        ]
    ),
    max_size=3,
)
records = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 9).map(KEYS.__getitem__)),
        st.one_of(st.none(), st.binary(max_size=8)),
        headers,
        st.integers(0, 20),
    ),
    max_size=30,
)
WAYS: list[dict[str, Any]] = [
    {},
    {"deletes": True},
    {"keyless": "drop", "deletes": True},
    {"memory": 1, "rows": 2},
    {"keys": frozenset(KEYS[:3])},
    {"changes": True, "deletes": True},
    {"columns": (*COLUMNS, "expires", "priority")},
]


@settings(max_examples=examples(60), deadline=None)
@given(
    log=records,
    slices=st.integers(2, 5),
    way=st.sampled_from(WAYS),
    queue=st.sampled_from(
        [
            {},
            {"ttl": Ttl(default=10.0)},
            {"max_delay": 60.0},
            {"ttl": Ttl(), "max_delay": 60.0},
            {"key_header": "ticker", "key_mismatch": "header"},
            {"order": "priority"},
        ]
    ),
    selector=st.sampled_from([None, "ticker = 'key 1'"]),
    compacts=st.booleans(),
)
def test_slices_give_the_rows_of_the_whole_partition(
    log: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    slices: int,
    way: dict[str, Any],
    queue: dict[str, Any],
    selector: str | None,
    compacts: bool,
) -> None:
    now = [BEGUN]
    cluster = MemoryCluster(clock=lambda: now[0], fetch_limit=7)
    policy = "compact" if compacts else "delete"
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": policy, "min.compaction.lag.ms": "3600000"})
    for key, value, pairs, age in log:
        if key is not None or not compacts:
            cluster.write("t", key, value, pairs, timestamp=round((BEGUN - age) * 1000))
    if compacts:
        cluster.compact("t")
    spec = pin(LastValueQueue("t", cluster=cluster, **{"key_header": None, **queue})).selecting(selector)
    assert rows(cluster, spec, slices, **way) == rows(cluster, spec, 1, **way)


def test_messages_that_a_group_has_done_are_left_out_of_every_slice(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("q", topic="t", key_header="k", cluster=memory_cluster)
    with queue.producer() as producer:
        for number in range(20):
            producer.put(f"key {number}", b"1")
    with queue.consumer() as consumer:
        for _ in range(7):
            consumer.acquire(5).ack()  # type: ignore[union-attr]
    spec = pin(queue, group=queue.definition.group)
    assert len(rows(memory_cluster, spec, 1)) == 13
    assert rows(memory_cluster, spec, 4) == rows(memory_cluster, spec, 1)


def test_a_policy_to_fail_fails_every_read_of_slices(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "delete"})
    memory_cluster.write("t", b"a", b"1", [("ticker", b"a")])
    memory_cluster.write("t", None, b"1", [("ticker", b"b")])
    spec = pin(LastValueQueue("t", key_header="ticker", cluster=memory_cluster))
    with pytest.raises(KeyMismatch, match="t/0/1"):
        rows(memory_cluster, spec, 2, keyless="fail")
    spec = pin(LastValueQueue("t", key_header="ticker", key_mismatch="fail", cluster=memory_cluster))
    with pytest.raises(KeyMismatch, match="t/0/1"):
        rows(memory_cluster, spec, 2)


# -- and the same errors -----------------------------------------------------------------------------------------------


def apart(of: int) -> list[bytes]:
    """Return keys in one slice each."""
    return [next(key for key in KEYS if Slice(number, of).rows([key], [])) for number in range(of)]


@pytest.fixture
def markers(memory_cluster: MemoryCluster) -> Callable[..., None]:
    """Return a function that writes a transaction, whose marker leaves a gap, to a topic."""
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    writer = memory_cluster.writer(transactional_id="x")

    def transaction(*keys: bytes) -> None:
        writer.begin_transaction()
        for key in keys:
            writer.append("t", key, b"1").result()
        writer.commit_transaction()

    return transaction


@pytest.mark.parametrize("together", [True, False])
def test_a_key_of_any_slice_proves_that_nothing_is_missing(
    memory_cluster: MemoryCluster, markers: Callable[..., None], together: bool
) -> None:
    one, other = apart(2)
    if together:
        markers(one, one, other)
    else:
        markers(one, other)
        markers(one)
    spec = pin(LastValueQueue("t", key_header=None, cluster=memory_cluster))
    markers(*KEYS[:20])
    assert {row["key"] for row in rows(memory_cluster, spec, 1)} == {one, other}
    assert rows(memory_cluster, spec, 2) == rows(memory_cluster, spec, 1)


def test_keys_that_nothing_supersedes_prove_nothing_in_any_slice(
    memory_cluster: MemoryCluster, markers: Callable[..., None]
) -> None:
    markers(*apart(2))
    spec = pin(LastValueQueue("t", key_header=None, cluster=memory_cluster))
    markers(*KEYS[:20])
    for slices in (1, 2):
        with pytest.raises(DataLoss, match="newer records after the cut"):
            rows(memory_cluster, spec, slices)


def test_a_key_that_was_compacted_out_of_the_cut_is_missed_by_its_own_slice(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    one, other = apart(2)
    for key in (one, other, other):
        memory_cluster.write("t", key, b"1")
    spec = pin(LastValueQueue("t", key_header=None, cluster=memory_cluster))
    memory_cluster.write("t", one, b"2")
    memory_cluster.compact("t")
    found, failed = Counter[bytes](), 0
    for part in slices_of(2):
        try:
            read = Scan(spec, NOWHERE, slice=part, patience=10.0).rows_of(memory_cluster, 0)
            found.update(row["key"] for batch in read for row in batch.to_pylist())
        except DataLoss:
            failed += 1
    assert (found, failed) == ({other: 1}, 1)
    assert rows(memory_cluster, spec, 2, consistency="atleast") == rows(memory_cluster, spec, 1, consistency="atleast")


# -- where it is reported ----------------------------------------------------------------------------------------------


def test_each_slice_counts_for_itself(memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    for number in range(60):
        memory_cluster.write("t", KEYS[number % 20], None if number == 59 else b"1")
    spec = pin(LastValueQueue("t", key_header=None, cluster=memory_cluster))
    found = []
    with caplog.at_level("INFO", "lvq_spark"):
        for part in slices_of(3):
            found.append(TaskMetrics())
            list(Scan(spec, NOWHERE, slice=part).rows_of(memory_cluster, 0, metrics=found[-1]))
    assert [one.records for one in found] == [60] * 3
    assert sum(one.rows for one in found) == 19
    assert sum(one.replaced or 0 for one in found) == 40
    assert sum(one.deletes for one in found) == 1
    assert caplog.records[1].getMessage().startswith("t/0, slice 2 of 3, offsets 0 to 60: records=60 ")
    assert caplog.records[1].__dict__["context"]["slice"] == "2/3"


def test_slices_are_refused_where_they_would_only_cost() -> None:
    with pytest.raises(ConfigError, match="no task holds keys") as error:
        parse(**{"lvq.slices": "2", "lvq.dedupe": "none"})
    assert error.value.options == ("lvq.slices", "lvq.dedupe")
    assert "minPartitions" in error.value.hint
    with pytest.raises(ConfigError, match=r"read the whole batch again\. maxOffsetsPerTrigger") as error:
        LvqStreamReader(parse(**{"lvq.slices": "2"}), ("key",))
    assert error.value.options == ("lvq.slices",)
    with pytest.raises(ConfigError, match="not a whole number above 0"):
        parse(**{"lvq.slices": "0"})
    with pytest.raises(ConfigError) as error:
        parse(minPartitions="8")
    assert "lvq.slices" in error.value.hint


# -- in Spark ----------------------------------------------------------------------------------------------------------


def fill(queue: LastValueQueue[bytes], servers: str, partitions: int, keys: Iterable[bytes]) -> None:
    """Write values, deletes, and keys away from home."""
    producer = Producer({"bootstrap.servers": servers})
    for number, key in enumerate(keys):
        value = None if number % 7 == 0 else b"%d" % number
        away = number % 11 == 0
        producer.produce(queue.topic, value, key, (home_partition(key, partitions) + away) % partitions)
    assert producer.flush(30) == 0


def content(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((bytes(row.key), row.value, row.partition, row.offset) for row in frame.collect())


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_snapshot_of_slices_has_the_rows_of_one_without(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, partitions: int
) -> None:
    queue = make_queue(partitions)
    fill(queue, lvq_broker.bootstrap_servers, partitions, [KEYS[number % 50] for number in range(400)])
    force_compaction(lvq_broker.bootstrap_servers, queue.topic)
    spec = pin(queue)
    whole = content(snapshot(spark, queue, spec=spec))
    assert len(whole) > 30
    assert content(snapshot(spark, queue, spec=spec, slices=3)) == whole
    frame = snapshot(spark, queue, spec=spec, slices=3, columns=["key"])
    assert sorted(bytes(row.key) for row in frame.collect()) == [row[0] for row in whole]
    with pytest.raises(ConfigError, match="slices"):
        snapshot(spark, queue, slices=0)


def test_the_format_reads_slices(spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker) -> None:
    register(spark)
    queue = make_queue(2)
    with queue.producer() as producer:
        for number in range(100):
            producer.put(f"key {number % 30}", b"%d" % number)
    source = spark.read.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    source = source.option("subscribe", queue.topic)
    sliced = source.option("lvq.slices", "3").load()
    assert content(sliced) == content(source.option("lvq.slices", "1").load())
    assert sliced.rdd.getNumPartitions() == 3, "small partitions share a task"


def test_a_store_is_read_in_slices(
    spark: SparkSession, make_queue: MakeQueue, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    """Each slice says what does not count yet; the store takes all of it together."""
    plain = make_queue(2, config={"message.timestamp.type": "CreateTime", "min.compaction.lag.ms": "3600000"})
    queue = LastValueQueue(plain.topic, key_header=None, max_delay=3600.0, cluster=plain.cluster)
    with queue.producer() as producer:
        for number in range(60):
            producer.put(f"key {number % 25}", b"%d" % number, not_before=time.time() + 600 if number > 40 else None)
    versions = [refresh(spark, queue, tmp_path / str(slices), slices=slices) for slices in (1, 3)]
    first, second = versions
    assert (first.rows, first.upserts, first.deletes) == (second.rows, second.upserts, second.deletes)
    assert first.scheduled == second.scheduled
    assert all(isinstance(found, NotDue) for found in (first.scheduled or {}).values())
    assert len(first.scheduled or {}) == 2
    assert content(read_version(spark, tmp_path / "1")) == content(read_version(spark, tmp_path / "3"))
