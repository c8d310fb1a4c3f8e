"""Deletes of keys that a frame lacks: only those at the cut, whatever others write meanwhile (R25)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.errors import MessageTooLarge, TopicRecreated
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_spark import pin, publish
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.writing.deleting import Delete
from lvq_spark.writing.publishing import _published
from lvq_spark.writing.tail import Tail

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Uncommitted = Callable[[LastValueQueue[bytes]], AbstractContextManager[None]]


def put(queue: LastValueQueue[bytes], *keys: str, value: bytes = b"1") -> None:
    with queue.producer() as producer:
        for key in keys:
            producer.put(key, value)


def held(queue: LastValueQueue[bytes]) -> dict[str, bytes]:
    with queue.view() as view:
        return dict(view)


def one_row(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("stays", "new")], "key string, value string")


def keys(*names: str) -> pa.RecordBatch:
    import pyarrow as pa

    found = pa.array([name.encode() for name in names], pa.binary())
    return pa.record_batch({"key": found, "group": pa.nulls(len(names), pa.binary())})


def deleted(queue: LastValueQueue[bytes], cut: SnapshotSpec, *names: str) -> dict[str, Any]:
    """Return the report of a task that has these keys to delete."""
    step = Delete(cut, QueueRules.of(queue.definition), queue.cluster.config)  # type: ignore[attr-defined]
    rows = [row for batch in step([keys(*names)]) for row in batch.to_pylist()]
    counts = {name: sum(row[name] or 0 for row in rows) for name in ("vanished", "spared")}
    return {**counts, "overwritten": [row["overwritten"] for row in rows if row["overwritten"] is not None]}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Return a function that has something done after the cut is pinned, before anything is written."""
    from lvq_spark.writing import publishing

    def meanwhile(do: Callable[[], None]) -> None:
        def pin_and(*arguments: Any, **options: Any) -> SnapshotSpec:
            cut = pin(*arguments, **options)
            do()
            return cut

        monkeypatch.setattr(publishing, "pin", pin_and)

    return meanwhile


def test_r25_keys_that_others_have_written_since_the_cut_are_spared_and_counted(
    spark: SparkSession, make_queue: MakeQueue, meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    """Without a check, 136 of 200 keys were deleted after others had given them new values."""
    queue = make_queue(partitions=3, key_header="ticker")
    names = [f"k{n}" for n in range(200)]
    put(queue, *names, "stays")
    meanwhile(lambda: put(queue, *names[:136], "another", value=b"of others"))

    done = publish(one_row(spark), queue, vanished="delete")

    assert (done.written, done.vanished, done.spared, done.overwritten) == (1, 64, 136, 0)
    assert held(queue) == dict.fromkeys([*names[:136], "another"], b"of others") | {"stays": b"new"}
    assert done.ends == {p: end for p, end in queue.cluster.logs.end_offsets(queue.topic).items() if p in done.ends}


def test_r25_a_value_counts_wherever_it_lies_and_in_whatever_transaction_and_a_delete_does_not(
    make_queue: MakeQueue, uncommitted: Uncommitted
) -> None:
    queue = make_queue(partitions=2, key_header="ticker")
    put(queue, "a", "b", "away", "gone", "late")
    cut = pin(queue)
    with queue.producer() as producer:
        producer.delete("gone")
    stray(queue, "away", 1 - home_partition(b"away", 2))
    with uncommitted(queue):  # it holds the key a
        queue.cluster.topics.add_partitions(queue.topic, 5)
        stray(queue, "late", 4)
        report = deleted(queue, cut, "a", "b", "away", "gone", "late")
    assert report == {"vanished": 2, "spared": 3, "overwritten": []}
    assert deleted(queue, cut, "a", "b", "away", "gone", "late") == report, "tried again"
    assert held(queue).keys() == {"a", "away", "late"}


def stray(queue: LastValueQueue[bytes], key: str, partition: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": queue.cluster.config.bootstrap_servers})  # type: ignore[attr-defined]
    producer.produce(queue.topic, b"astray", key.encode(), partition)
    assert producer.flush(20) == 0


def test_r25_records_that_arrive_between_look_and_delete_are_named(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log has no compare-and-set, so a race that cannot be prevented must be reported."""
    queue = make_queue(key_header="ticker")
    put(queue, "a", "b", "c")
    cut, look, looks = pin(queue), Tail.new_values, []

    def look_and_be_late(tail: Tail) -> Any:
        seen = list(look(tail))
        if not looks:
            put(queue, "a", "c", value=b"of others")
        looks.append(seen)
        return seen

    monkeypatch.setattr(Tail, "new_values", look_and_be_late)
    assert deleted(queue, cut, "a", "b") == {"vanished": 2, "spared": 0, "overwritten": [b"a"]}
    assert held(queue) == {"c": b"of others"}
    assert len(looks) == 2
    assert sorted(key for key, _, _ in looks[1]) == [b"a", b"c"], "deletes are no values"
    told = Row("partition", "end", "vanished", "spared", "overwritten")(None, None, None, None, b"a")
    assert _published("prices", [], [told]).overwritten == 1
    assert "1 keys of prices were deleted just as others wrote them" in caplog.text
    assert "b'a'" in caplog.text


def test_r25_a_look_goes_before_each_thousand_deletes(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue(partitions=2)
    names = [f"k{n}" for n in range(2500)]
    put(queue, *names)
    cut, look, looks = pin(queue), Tail.new_values, []

    def look_and_write(tail: Tail) -> Any:
        put(queue, names[1000 * len(looks) + 100] if len(looks) < 3 else "other")
        looks.append(sum(queue.cluster.logs.end_offsets(queue.topic).values()))
        return look(tail)

    monkeypatch.setattr(Tail, "new_values", look_and_write)
    assert deleted(queue, cut, *names) == {"vanished": 2497, "spared": 3, "overwritten": []}
    assert [after - before for before, after in pairwise(looks)] == [1000, 1000, 500]
    assert held(queue).keys() == {"k100", "k1100", "k2100", "other"}


def test_r18_nothing_is_deleted_of_a_topic_that_was_created_again(make_queue: MakeQueue) -> None:
    queue = make_queue()
    put(queue, "a")
    cut = pin(queue)
    queue.cluster.topics.delete(queue.topic)
    make_queue()
    put(queue, "a")
    with pytest.raises(TopicRecreated):
        deleted(queue, cut, "a")
    assert held(queue) == {"a": b"1"}


def test_nothing_is_written_before_all_that_has_vanished_is_known_to_be_deletable(
    spark: SparkSession,
    make_queue: MakeQueue,
    lvq_cluster: KafkaCluster,
    meanwhile: Callable[[Callable[[], None]], None],
) -> None:
    queue = make_queue(key_header="ticker", config={"max.message.bytes": "20000"})
    put(queue, "stays", "goes", "k" * 6000)
    cluster = KafkaCluster(ClientConfig(lvq_cluster.config.bootstrap_servers, {"message.max.bytes": 10_000}))
    small = LastValueQueue(queue.topic, key_header="ticker", cluster=cluster)
    with pytest.raises(MessageTooLarge, match=r"1 delete is too large, the one of b'kkk.*: it has 120\d\d bytes, and"):
        publish(one_row(spark), small, vanished="delete")
    cluster.close()
    meanwhile(lambda: queue.cluster.logs.delete_before(queue.topic, {0: 2}))
    queue.cluster.topics.alter_config(queue.topic, {"cleanup.policy": "compact,delete"})
    with pytest.raises(Exception, match="DataLoss"):
        publish(one_row(spark), queue, vanished="delete")
    assert sum(queue.cluster.logs.end_offsets(queue.topic).values()) == 3
