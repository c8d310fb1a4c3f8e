"""A snapshot of some columns: it has the cells of the full one, and skips the work for other columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import SCHEMA, pin, snapshot
from lvq_spark.scan.scanning import Scan
from lvq_spark.schema import SNAPSHOT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MakeQueue = Callable[..., LastValueQueue[bytes]]

SLICES = pytest.mark.parametrize("slices", [1, 3])
HEADER = "ticker"
CHOICES = [
    *((name,) for name in SNAPSHOT_COLUMNS),
    ("offset", "key"),
    ("headers", "topic"),
    ("timestamp", "value", "partition"),
    SNAPSHOT_COLUMNS[::-1],
]


@pytest.fixture
def write(lvq_broker: ProvidedBroker, lvq_topic: str) -> Callable[..., None]:
    """Return a function that writes records anywhere: (key, value, partition), with or without headers."""

    def write(*records: tuple[str | None, str | None, int], headers: Sequence[tuple[str, bytes | None]] = ()) -> None:
        producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
        for key, value, partition in records:
            text, name = (None if cell is None else cell.encode() for cell in (value, key))
            producer.produce(lvq_topic, text, name, partition, headers=list(headers))
        assert producer.flush(20) == 0

    return write


def shown(rows: Sequence[Any], columns: Sequence[str]) -> list[str]:
    return sorted(repr(tuple(row[name] for name in columns)) for row in rows)


# -- the same rows -----------------------------------------------------------------------------------------------------


@SLICES
@pytest.mark.parametrize("partitions", [1, 3])
def test_any_columns_are_those_of_the_full_snapshot(
    spark: SparkSession, make_queue: MakeQueue, write: Callable[..., None], slices: int, partitions: int
) -> None:
    """Including keys in several partitions, deletes, empty values and records without a key (R14)."""
    queue = make_queue(partitions, config={"cleanup.policy": "delete"})
    for turn in range(4):
        places = [(f"k{n % 11}", n % partitions if n % 4 else (n + turn) % partitions) for n in range(30)]
        write(*[(key, f"{turn} {n}", place) for n, (key, place) in enumerate(places)], headers=[("turn", b"%d" % turn)])
        write(("k1", None, turn % partitions), ("k2", "", turn % partitions), (None, "no key", turn % partitions))
    spec = pin(queue)
    full = snapshot(spark, queue, spec=spec, slices=slices)
    rows = full.collect()
    assert len(rows) > 10
    for columns in CHOICES:
        narrow = snapshot(spark, queue, spec=spec, slices=slices, columns=columns)
        assert narrow.schema == full.select(*columns).schema
        assert shown(narrow.collect(), columns) == shown(rows, columns), columns


@SLICES
def test_where_headers_name_the_keys_they_do_so_without_being_asked_for(
    spark: SparkSession, make_queue: MakeQueue, write: Callable[..., None], lvq_cluster: KafkaCluster, slices: int
) -> None:
    topic = make_queue(2).definition.topic
    queue = LastValueQueue(topic, key_header=HEADER, key_mismatch="header", cluster=lvq_cluster)
    write(("a", "1", 0), ("b", "1", 1), headers=[(HEADER, b"x")])
    write(("c", "1", 0), headers=[(HEADER, None)])
    rows = snapshot(spark, queue, slices=slices, columns=["key", "offset"]).collect()
    assert {bytes(row.key) for row in rows} == {b"x", b"c"}
    assert snapshot(spark, queue, slices=slices, columns=["topic"]).count() == 2


@SLICES
def test_messages_done_by_a_group_stay_hidden(
    spark: SparkSession, make_queue: MakeQueue, write: Callable[..., None], lvq_cluster: KafkaCluster, slices: int
) -> None:
    topic = make_queue(2, config={"min.compaction.lag.ms": "60000"}).definition.topic
    queue = LastValueQueue.declare(topic, key_header=None, cluster=lvq_cluster)
    write(*[(f"k{n}", str(n), n % 2) for n in range(8)])
    with queue.consumer() as consumer:
        for delivery in consumer:
            with delivery:
                done = delivery.key.encode()
            break
    spec = pin(queue, group=queue.definition.group)
    for columns in (["key"], ["key", "value"]):
        rows = snapshot(spark, queue, spec=spec, slices=slices, columns=columns).collect()
        assert {bytes(row.key) for row in rows} == {b"k%d" % n for n in range(8)} - {done}


@SLICES
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_key_that_was_compacted_out_of_the_cut_still_fails_the_job(
    spark: SparkSession,
    make_queue: MakeQueue,
    write: Callable[..., None],
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    slices: int,
    partitions: int,
) -> None:
    from pyspark.errors import PythonException

    queue = make_queue(partitions)
    write(("a", "1", 0), ("b", "1", partitions - 1))
    spec = pin(queue)
    write(("a", "2", 0))
    force_compaction(lvq_broker.bootstrap_servers, lvq_topic)
    # A compaction writes keys of its own, and each slice names its first.
    with pytest.raises(PythonException, match=r"DataLoss: .* among them b'(a|\\xfflvq-filler)"):
        snapshot(spark, queue, spec=spec, slices=slices, columns=["topic"]).collect()
    least = snapshot(spark, queue, spec=spec, slices=slices, columns=["key"], consistency="atleast")
    assert {b"a", b"b"} <= {bytes(row.key) for row in least.collect()}


@SLICES
def test_an_empty_queue_has_the_columns_too(spark: SparkSession, make_queue: MakeQueue, slices: int) -> None:
    frame = snapshot(spark, make_queue(2), slices=slices, columns=["offset", "headers"])
    assert frame.schema == spark.createDataFrame([], SCHEMA).select("offset", "headers").schema
    assert frame.collect() == []


# -- less work ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """Return the scans that snapshots send to the executors."""
    from lvq_spark import snapshots
    from lvq_spark.scan import serialization

    found: list[Scan] = []
    send = serialization.map_in_arrow

    def remember(rows: Any, step: Any, schema: str) -> Any:
        found.append(step.scan)
        return send(rows, step, schema)

    monkeypatch.setattr(snapshots, "map_in_arrow", remember)
    return found


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_reader_is_not_asked_for_headers_and_no_value_is_copied(
    spark: SparkSession,
    make_queue: MakeQueue,
    write: Callable[..., None],
    scans: list[Scan],
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
) -> None:
    queue = make_queue(partitions)
    write(*[(f"k{n}", "1", n % partitions) for n in range(4)], headers=[(HEADER, b"x")])
    asked, reader = [], queue.cluster.reader

    def remember(*arguments: Any, headers: bool = True, **options: Any) -> Any:
        asked.append(headers)
        return reader(*arguments, headers=headers, **options)

    monkeypatch.setattr(queue.cluster, "reader", remember)
    for columns in (["key", "offset"], ["key", "headers"], SNAPSHOT_COLUMNS):
        snapshot(spark, queue, columns=columns)
        names = [batch.schema.names for batch in scans[-1].rows_of(queue.cluster, 0)]
        assert names
        assert all(("value" in some) == ("value" in columns) for some in names)
    assert asked == [False, True, True]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["key", "ofset"], r"no column ofset\. Did you mean offset\? The columns are key, value, topic"),
        (["VALUE"], r"no column VALUE\. Did you mean value\?"),
        (["deleted"], r"no column deleted\. The columns are"),
        (["key", "key"], "columns names a column twice"),
        ([], "columns names no column"),
        ("key", r"columns='key' is not a list\. Give a list: \['key'\]"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_asked(columns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        snapshot(None, None, columns=columns)  # type: ignore[arg-type]
    assert error.value.options == ("columns",)
