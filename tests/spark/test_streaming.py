"""The format ``lvq`` as a stream: no change is lost and none undone, whatever the limits, restarts and partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, DataLoss, TopicRecreated
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark.source.options import SourceOptions
from lvq_spark.source.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lvq_spark.source.streaming import LvqStreamReader

pytestmark = pytest.mark.timeout(300)  # the first test starts the JVM, which takes its time on a busy machine

MakeQueue = Callable[..., LastValueQueue[bytes]]
Uncommitted = Callable[[LastValueQueue[bytes]], AbstractContextManager[None]]
Batch = dict[str, str | None]


def append(log: Any, topic: str, *pairs: tuple[str, str | None]) -> None:
    writer = log.writer()
    for receipt in [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


# -- the reader, as Spark's driver uses it -----------------------------------------------------------------------------


@pytest.fixture
def open_reader(lvq_broker: ProvidedBroker, lvq_topic: str) -> Iterator[Callable[..., LvqStreamReader]]:
    """Opens a reader of the test's topic, as a query that starts, or starts again, has one."""
    from lvq_spark.source.streaming import LvqStreamReader

    opened = []

    def open_reader(**options: str) -> LvqStreamReader:
        given = {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "subscribe": lvq_topic, **options}
        opened.append(LvqStreamReader(SourceOptions.parse(given), ("key", "value")))
        return opened[-1]

    yield open_reader
    for reader in opened:
        reader.stop()


def offsets(offset: dict[str, Any], topic: str) -> dict[int, int]:
    return {int(partition): number for partition, number in offset[topic].items()}


def rows(reader: LvqStreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[bytes, bytes | None]:
    """What the tasks of a batch give, by key; fails when a key has two rows."""
    found = [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    by_key = {row["key"]: row["value"] for row in found}
    assert len(by_key) == len(found)
    return by_key


def everything() -> Any:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    return ReadAllAvailable()


def at_most(number: int) -> Any:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(number)


def test_where_a_stream_starts_is_the_same_however_often_it_is_asked(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.log, lvq_topic, ("a", "1"), ("b", "1"))
    reader = open_reader(startingOffsets="latest")
    first = reader.initialOffset()
    append(queue.log, lvq_topic, ("a", "2"), ("b", "2"))
    assert reader.initialOffset() == first
    assert sum(offsets(first, lvq_topic).values()) == 2
    assert offsets(open_reader().initialOffset(), lvq_topic) == {0: 0, 1: 0}


def test_a_batch_has_the_newest_record_of_each_key_among_its_offsets_and_deletes(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    reader = open_reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, everything())
    append(queue.log, lvq_topic, ("a", "3"))
    assert rows(reader, start, end) == {b"a": b"2", b"b": None}
    assert rows(open_reader(**{"lvq.tombstones": "drop"}), start, end) == {b"a": b"2"}
    assert rows(reader, end, end) == {}
    assert reader.latestOffset(end, everything()) != end
    assert reader.getDefaultReadLimit() == everything()


def test_an_offset_does_not_change_while_nothing_happens(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    """Spark compares its text, and makes a batch of every other one."""
    queue = make_queue(12)
    append(queue.log, lvq_topic, *[(f"k{n}", "1") for n in range(12)])
    reader = open_reader()
    end = reader.latestOffset(reader.initialOffset(), everything())
    said = json.dumps(end)
    assert json.dumps(open_reader().latestOffset(json.loads(said), everything())) == said


def test_a_limit_is_kept_and_shared_out_among_partitions(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(3)
    append(queue.log, lvq_topic, *[(f"k{n}", str(n)) for n in range(40)])
    reader = open_reader(maxOffsetsPerTrigger="7")
    assert reader.getDefaultReadLimit() == at_most(7)
    start, seen, batches = reader.initialOffset(), {}, 0
    while (end := reader.latestOffset(start, at_most(7))) != start:
        step = sum(offsets(end, lvq_topic).values()) - sum(offsets(start, lvq_topic).values())
        assert 0 < step <= 7
        seen.update(rows(reader, start, end))
        start, batches = end, batches + 1
    assert (len(seen), batches) == (40, 6)


def test_partitions_that_are_added_are_read_from_their_beginning(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"))
    reader = open_reader(**{"lvq.strays": "pass"})
    end = reader.latestOffset(reader.initialOffset(), everything())
    queue.log.add_partitions(lvq_topic, 4)
    append(queue.log, lvq_topic, *[(f"k{n}", "1") for n in range(20)])
    later = reader.latestOffset(end, everything())
    assert offsets(later, lvq_topic).keys() == {0, 1, 2, 3}
    assert len(rows(reader, end, later)) == 20


def test_what_comes_after_a_query_with_available_now_was_started_is_not_its_own(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"))
    reader = open_reader()
    reader.prepareForTriggerAvailableNow()
    append(queue.log, lvq_topic, ("a", "2"))
    queue.log.add_partitions(lvq_topic, 2)
    end = reader.latestOffset(reader.initialOffset(), everything())
    assert offsets(end, lvq_topic) == {0: 1, 1: 0}
    assert reader.latestOffset(end, everything()) == end


def test_what_is_not_committed_is_not_read(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str, uncommitted: Uncommitted
) -> None:
    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"))
    with uncommitted(queue):
        reader = open_reader()
        end = reader.latestOffset(reader.initialOffset(), everything())
        assert offsets(end, lvq_topic) == {0: 1}


def test_compaction_of_a_batch_to_be_read_is_no_loss(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"), ("b", "1"))
    reader = open_reader()
    start = reader.initialOffset()
    middle = reader.latestOffset(start, everything())
    append(queue.log, lvq_topic, ("a", "2"))
    force_compaction(queue.log, lvq_topic)  # type: ignore[arg-type]
    queue.log.alter_topic_config(lvq_topic, {"delete.retention.ms": "86400000"})
    assert rows(reader, start, middle) == {b"b": b"1"}
    end = reader.latestOffset(middle, everything())
    assert rows(reader, middle, end)[b"a"] == b"2"


def test_offsets_that_are_gone_are_an_error_unless_they_may_be(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue.log, lvq_topic, ("a", "1"), ("b", "1"), ("c", "1"))
    start = open_reader().initialOffset()
    queue.log.delete_before(lvq_topic, {0: 2})
    with pytest.raises(DataLoss, match=r"stands at offset 0 of partition 0 of .*, which holds 2 to 3"):
        open_reader().latestOffset(start, everything())
    reader = open_reader(failOnDataLoss="false")
    assert rows(reader, start, reader.latestOffset(start, everything())) == {b"c": b"1"}


def test_r18_a_checkpoint_of_an_earlier_topic_is_refused(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.log, lvq_topic, ("a", "1"))
    start = open_reader().initialOffset()
    queue.log.delete_topic(lvq_topic)
    queue.log.create_topic(lvq_topic, partitions=1, config={})
    with pytest.raises(TopicRecreated, match="deleted and created again since the stream's checkpoint"):
        open_reader().latestOffset(start, everything())


def test_r18_a_checkpoint_that_may_have_missed_deletes_is_refused(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(config={"delete.retention.ms": "3600000", "message.timestamp.type": "CreateTime"})
    append(queue.log, lvq_topic, ("a", "1"))
    reader = open_reader()
    end = reader.latestOffset(reader.initialOffset(), everything())
    old = {**end, "caught up": end["caught up"] - 7_200_000}
    assert reader.latestOffset(old, everything()) == old, "nothing has come since"
    append(queue.log, lvq_topic, ("a", "2"))
    assert reader.latestOffset(old, everything()) != old, "what has come is younger than any delete that is gone"
    queue.log.alter_topic_config(lvq_topic, {"delete.retention.ms": "0"})
    with pytest.raises(DataLoss, match=r"has not kept up .* for 72\d\d s.*in partition 0"):
        reader.latestOffset(old, everything())
    assert open_reader(failOnDataLoss="false").latestOffset(old, everything()) != old


@pytest.mark.parametrize("option", [{"endingOffsets": "latest"}, {"lvq.group": "g"}, {"lvq.consistency": "atleast"}])
def test_what_makes_no_sense_in_a_stream_is_refused(
    open_reader: Callable[..., LvqStreamReader], option: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as error:
        open_reader(**option)
    assert error.value.options == tuple(option)


# -- in Spark ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(spark: SparkSession, lvq_broker: ProvidedBroker, lvq_topic: str, tmp_path: Path) -> Callable[..., list[Batch]]:
    """Runs the test's query from its checkpoint until it has read what is there, and returns its batches."""
    register(spark)

    def run(**options: str) -> list[Batch]:
        batches: list[Batch] = []

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.collect()
            batch = {bytes(row.key).decode(): row.value and bytes(row.value).decode() for row in rows}
            assert len(batch) == len(rows)
            batches.append(batch)

        reader = spark.readStream.format("lvq").option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
        query = (
            reader.option("subscribe", lvq_topic)
            .option("kafka.sasl.password", "hunter2")
            .options(**options)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        query.explain(extended=True)
        print(query.recentProgress)
        return batches

    return run


def test_a_query_that_is_run_again_and_again_has_every_key_right_and_nothing_twice(
    make_queue: MakeQueue, run: Callable[..., list[Batch]], lvq_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue(2)
    append(queue.log, lvq_topic, *[(f"k{n % 6}", str(n)) for n in range(12)])
    options = {"maxOffsetsPerTrigger": "8", "lvq.strays": "pass"}
    first = run(**options)
    assert len(first) == 2
    table: Batch = {}
    for batch in first:
        table.update(batch)
    assert table == {f"k{n % 6}": str(n) for n in range(6, 12)}
    append(queue.log, lvq_topic, ("k0", "new"), ("k1", None), ("k0", "newest"))
    queue.log.add_partitions(lvq_topic, 3)
    writer = queue.log.writer()
    at = writer.append(lvq_topic, next(f"x{n}" for n in range(99) if home(f"x{n}", 3) == 2).encode(), b"1").result(20)
    writer.close()
    assert at.partition == 2
    [second] = run(**options)
    added = second.keys() - {"k0", "k1"}
    assert len(added) == 1
    assert second == {"k0": "newest", "k1": None, added.pop(): "1"}
    assert run(**options) == []
    out, err = capfd.readouterr()
    assert "Physical Plan" in out
    assert "hunter2" not in out + err


def home(key: str, partitions: int) -> int:
    from lvq_kafka.core.keys import home_partition

    return home_partition(key.encode(), partitions)


def test_an_error_of_a_stream_ends_the_query_and_says_why(
    make_queue: MakeQueue, run: Callable[..., list[Batch]]
) -> None:
    from pyspark.errors import StreamingQueryException

    make_queue()
    with pytest.raises(StreamingQueryException, match=r"endingOffsets cannot be set: a stream has no end"):
        run(endingOffsets="latest")
