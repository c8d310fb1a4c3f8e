"""Groups of messages in Spark: the column of groups, and queues whose messages are placed by group (R14, R36)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import Groups, LastValueQueue
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import group_of, pin, publish, read_version, refresh, register, snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACED = Groups(placement="group")
PARTITIONS = 3
Make = Callable[..., LastValueQueue[bytes]]


@pytest.fixture
def make(lvq_cluster: KafkaCluster, lvq_topic: str) -> Make:
    """Return a function that creates the test's topic and returns a queue with groups on it."""

    def make(groups: Groups | None = PLACED, partitions: int = PARTITIONS) -> LastValueQueue[bytes]:
        settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        lvq_cluster.topics.create(lvq_topic, partitions=partitions, config=settings)
        return LastValueQueue(lvq_topic, key_header="ticker", groups=groups, cluster=lvq_cluster)

    return make


def place(group: str) -> int:
    return home_partition(group.encode(), PARTITIONS)


def groups_of(rows: DataFrame) -> dict[bytes, bytes | None]:
    return {bytes(row.key): None if row.group is None else bytes(row.group) for row in rows.collect()}


@pytest.mark.parametrize("slices", [1, 3])
@pytest.mark.parametrize("default", [None, "rest"])
def test_r36_a_row_has_its_group(
    spark: SparkSession, make: Make, tmp_path: Path, slices: int, default: str | None
) -> None:
    groups = Groups(header="g") if default is None else Groups(header="g", mode="shared", default=default)
    queue = make(groups)
    with queue.producer() as producer:
        producer.put("a", b"1", group="one")
        producer.put("b", b"1", group=b"\xff\x00")
        producer.put("none", b"1")
        producer.put("null", b"1", {"g": None})
        producer.writer.append(queue.topic, b"empty", b"1", [("g", b"")])
        producer.writer.append(queue.topic, b"last", b"1", [("g", b"first"), ("g", b"last")])
        producer.writer.append(queue.topic, b"emptied", b"1", [("g", b"first"), ("g", b"")])
    rest = None if default is None else default.encode()
    expected: dict[bytes, bytes | None] = {b"a": b"one", b"b": b"\xff\x00", b"last": b"last"}
    expected |= dict.fromkeys([b"none", b"null", b"empty", b"emptied"], rest)
    assert groups_of(snapshot(spark, queue, columns=["key", "group"], slices=slices)) == expected
    everything = snapshot(spark, queue, slices=slices).withColumn("group", group_of(queue))
    assert groups_of(everything) == expected
    refresh(spark, queue, str(tmp_path / "store"), slices=slices)
    stored = read_version(spark, str(tmp_path / "store")).withColumn("group", group_of(queue))
    assert groups_of(stored) == expected


@pytest.mark.parametrize("slices", [1, 3])
def test_r36_a_queue_without_groups_has_none(spark: SparkSession, make: Make, slices: int) -> None:
    queue = make(None)
    with queue.producer() as producer:
        producer.put("a", b"1", {"JMSXGroupID": "g"})
    assert groups_of(snapshot(spark, queue, columns=["key", "group"], slices=slices)) == {b"a": None}


def test_r36_the_format_has_groups_of_queues_and_of_topics(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    register(spark)
    with (
        LastValueQueue.declare(lvq_topic, key_header="ticker", groups=Groups(header="g"), cluster=lvq_cluster) as queue,
        queue.producer() as producer,
    ):
        producer.put("a", b"1", group="one")
        producer.put("b", b"1")

    def read(**options: str) -> dict[bytes, bytes | None]:
        servers = {"kafka.bootstrap.servers": lvq_cluster.config.bootstrap_servers, "lvq.extraColumns": "group"}
        return groups_of(spark.read.format("lvq").options(**servers, **options).load())

    expected = {b"a": b"one", b"b": None}
    assert read(queue=lvq_topic) == expected
    assert read(subscribe=lvq_topic, **{"lvq.groupHeader": "g"}) == expected
    assert read(subscribe=lvq_topic) == {b"a": None, b"b": None}


def test_r36_a_stream_has_groups(spark: SparkSession, make: Make, lvq_cluster: KafkaCluster, tmp_path: Path) -> None:
    register(spark)
    queue = make(Groups(header="g"), partitions=1)
    with queue.producer() as producer:
        producer.put("a", b"1", group="one")
        producer.put("none", b"1")
    servers = lvq_cluster.config.bootstrap_servers
    options = {"subscribe": queue.topic, "lvq.key": "header:ticker", "lvq.groupHeader": "g"}
    options |= {"lvq.extraColumns": "group", "kafka.bootstrap.servers": servers}
    stream = spark.readStream.format("lvq").options(**options).load()
    query = stream.writeStream.format("memory").queryName("grouped").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination(120)
    assert groups_of(spark.table("grouped")) == {b"a": b"one", b"none": None}


def test_r14_the_format_says_that_it_does_not_compare_the_records_of_a_key(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    from lvq_kafka import TopicSpec

    register(spark)
    spec = TopicSpec(partitions=PARTITIONS)
    with LastValueQueue.declare(lvq_topic, key_header="k", groups=PLACED, spec=spec, cluster=lvq_cluster) as queue:
        with queue.producer() as producer:
            for group in ("one", "two", "three", "four"):
                producer.put("a", b"1", group=group)

        def read(**options: str) -> DataFrame:
            servers = {"kafka.bootstrap.servers": lvq_cluster.config.bootstrap_servers, "queue": lvq_topic}
            return spark.read.format("lvq").options(**servers, **options).load()

        with pytest.raises(Exception, match=r"placed by group, so a key may have records in any partition, and this"):
            read().collect()
        with pytest.raises(Exception, match=r"placed by group.*Leave lvq.partitioner out"):
            read(**{"lvq.keys": "a", "lvq.partitioner": "murmur2_random"}).collect()
        assert len(read(**{"lvq.strays": "pass"}).collect()) == len({place(g) for g in ("one", "two", "three", "four")})
        assert len(read(**{"lvq.dedupe": "none"}).collect()) == 4


def test_r36_a_frame_is_published_with_its_groups_where_they_belong(spark: SparkSession, make: Make) -> None:
    queue = make()
    rows = [(f"k{n}", "new", group) for n in range(6) for group in [("one", "two", None)[n % 3]]]
    done = publish(spark.createDataFrame(rows, "key string, value string, g string"), queue, group="g")
    assert done.written == 6
    with queue.view() as view:
        found = {
            key: (entry.header("lvq-group"), entry.position.partition) for key in view if (entry := view.entry(key))
        }
    assert found == {key: (group, place(key if group is None else group)) for key, _, group in rows}
    gone = [(key, None, group) for key, _, group in rows[:3]]
    done = publish(spark.createDataFrame(gone, "key string, value string, g string"), queue, group="g")
    assert (done.written, done.deleted) == (0, 3)
    with queue.view() as view:
        assert set(view) == {"k3", "k4", "k5"}
        assert view.split_keys == []


def test_r36_vanished_keys_are_deleted_where_their_values_are(spark: SparkSession, make: Make) -> None:
    queue = make()
    with queue.producer() as producer:
        for number in range(30):
            producer.put(f"k{number}", b"1", group=f"g{number % 5}" if number % 6 else None)
    with queue.view() as view:
        places = {key: view.entry(key).position.partition for key in view}
    frame = spark.createDataFrame([("stays", "1")], "key string, value string")
    done = publish(frame, queue, vanished="delete")
    assert (done.written, done.vanished, done.spared) == (1, 30, 0)
    with queue.view() as view:
        assert set(view) == {"stays"}
        assert view.split_keys == []
    assert set(done.ends) >= set(places.values())


@pytest.mark.parametrize(
    ("groups", "row", "options", "said"),
    [
        (None, ("k", "1", "g"), {"group": "g"}, r"'lvq-group' is reserved.*groups=Groups"),
        (PLACED, ("k", "1", " "), {"group": "g"}, r"The row of b'k' has a blank group"),
        (PLACED, ("k", "1", ""), {"group": "g"}, r"The row of b'k' has a blank group"),
        (PLACED, ("k", None, "g"), {}, r"The row of b'k' is a delete that does not say the group"),
        (PLACED, ("k", "1", "g"), {"group": "key2"}, r"group='key2' names no column"),
    ],
)
def test_r36_groups_that_cannot_be_published_are_refused_before_anything_is_written(
    spark: SparkSession, make: Make, groups: Groups | None, row: tuple[Any, ...], options: dict[str, str], said: str
) -> None:
    queue = make(groups)
    with pytest.raises(ConfigError, match=said):
        publish(spark.createDataFrame([row], "key string, value string, g string"), queue, **options)  # type: ignore[arg-type]
    assert sum(queue.cluster.logs.end_offsets(queue.topic).values()) == 0


def test_r36_a_group_and_its_header_are_one_too_many(spark: SparkSession, make: Make) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    queue = make()
    frame = spark.createDataFrame([("k", "1", "g")], "key string, value string, g string")
    frame = frame.withColumn("h", F.expr("array(struct('lvq-group' AS key, 'g' AS value))"))
    with pytest.raises(ConfigError, match="has both a group and the header that names it"):
        publish(frame, queue, group="g", headers="h")
    assert publish(frame, queue, headers="h").written == 1
    with queue.view() as view:
        assert view.entry("k").position.partition == place("g")


def test_r14_stores_and_snapshots_of_a_queue_placed_by_group_equal_its_view(
    spark: SparkSession, make: Make, tmp_path: Path
) -> None:
    """Keys change their groups between refreshes, and are deleted in any of their partitions."""
    queue, choose, store = make(), random.Random(36), str(tmp_path / "store")
    with queue.producer() as producer, queue.view() as view:
        for number in range(4):
            for _ in range(60):
                key, group = f"k{choose.randrange(12)}", f"g{choose.randrange(9)}"
                # One at a time: append times decide, in milliseconds.
                receipt = producer.delete(key, group=group) if choose.random() < 0.2 else None
                (receipt or producer.put(key, b"%d" % number, group=group)).result(20)
            view.barrier()
            cut, expected = pin(queue), {key: view.entry(key).position for key in view}
            version = refresh(spark, queue, store, end=cut.end)
            assert version.placement == "group"
            for rows in (
                read_version(spark, store),
                snapshot(spark, queue, spec=cut),
                snapshot(spark, queue, spec=cut, slices=3),
            ):
                found = {bytes(row.key).decode(): (row.partition, row.offset) for row in rows.collect()}
                assert found == {key: (place.partition, place.offset) for key, place in expected.items()}
        assert view.split_keys
    plain = LastValueQueue(queue.topic, key_header="ticker", cluster=queue.cluster)
    assert "placement 'group', not 'key'" in str(refresh(spark, plain, store).reasons)
