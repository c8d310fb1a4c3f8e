"""The format ``lvq`` as a stream: no change is lost or undone, whatever the limits, restarts and partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from lvq_kafka import LastValueQueue
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.errors import ConfigError, DataLoss, TopicRecreated
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import task_errors
from lvq_spark.source.registering import register
from lvq_spark.source.source_options import SourceOptions
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lvq_spark.source.streaming import LvqStreamReader

MakeQueue = Callable[..., LastValueQueue[bytes]]
Uncommitted = Callable[[LastValueQueue[bytes]], AbstractContextManager[None]]
Batch = dict[str, str | None]


def append(log: Any, topic: str, *pairs: tuple[str, str | None]) -> None:
    writer = log.writer()
    for receipt in [writer.append(topic, k.encode(), None if v is None else v.encode()) for k, v in pairs]:
        receipt.result(20)
    writer.close()


def append_as_of(broker: ProvidedBroker, topic: str, at: float, *pairs: tuple[str, str]) -> None:
    """Append with a producer's timestamp."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in pairs:
        producer.produce(topic, value, key, timestamp=round(at * 1000))
    assert producer.flush(20) == 0


# -- the reader, as Spark's driver uses it -----------------------------------------------------------------------------


@pytest.fixture
def open_reader(lvq_broker: ProvidedBroker, lvq_topic: str) -> Iterator[Callable[..., LvqStreamReader]]:
    """Yield a function that opens a reader of the test's topic, as a query does when it starts or restarts."""
    from lvq_spark.source.streaming import LvqStreamReader

    opened = []

    def open_reader(**options: str) -> LvqStreamReader:
        subject = {} if "assign" in options else {"subscribe": lvq_topic}
        given = {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, **subject, **options}
        opened.append(LvqStreamReader(SourceOptions.parse(given), ("key", "value")))
        return opened[-1]

    yield open_reader
    for reader in opened:
        reader.stop()


def offsets(offset: dict[str, Any], topic: str) -> dict[int, int]:
    return {int(partition): number for partition, number in offset[topic].items()}


def rows(reader: LvqStreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[bytes, bytes | None]:
    """Return the rows of a batch's tasks, by key; fail if a key has two rows."""
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


def test_the_start_of_a_stream_is_the_same_however_often_it_is_asked_for(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))
    reader = open_reader(startingOffsets="latest")
    first = reader.initialOffset()
    append(queue.cluster, lvq_topic, ("a", "2"), ("b", "2"))
    assert reader.initialOffset() == first
    assert sum(offsets(first, lvq_topic).values()) == 2
    assert offsets(open_reader().initialOffset(), lvq_topic) == {0: 0, 1: 0}


def test_a_batch_has_the_newest_record_of_each_key_among_its_offsets_and_deletes(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    reader = open_reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, everything())
    append(queue.cluster, lvq_topic, ("a", "3"))
    assert rows(reader, start, end) == {b"a": b"2", b"b": None}
    assert rows(open_reader(**{"lvq.tombstones": "drop"}), start, end) == {b"a": b"2"}
    assert rows(reader, end, end) == {}
    assert reader.latestOffset(end, everything()) != end
    assert reader.getDefaultReadLimit() == everything()


def test_r8_values_that_have_expired_when_a_batch_is_planned_are_deleted_by_it_also_after_a_restart(
    make_queue: MakeQueue,
    open_reader: Callable[..., LvqStreamReader],
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that expires between two batches brings no row."""
    make_queue(config={"message.timestamp.type": "CreateTime"})
    now = round(time.time())
    monkeypatch.setattr("lvq_spark.source.streaming._now", lambda: now * 1000)
    append_as_of(lvq_broker, lvq_topic, now - 20, ("late", "1"), ("renewed", "1"))
    append_as_of(lvq_broker, lvq_topic, now, ("soon", "1"), ("renewed", "2"))
    reader = open_reader(**{"lvq.defaultTtl": "10"})
    start = reader.initialOffset()
    assert "as of" not in start
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert first["as of"] == now * 1000
    expected = {b"late": None, b"soon": b"1", b"renewed": b"2"}
    assert rows(reader, start, first) == expected
    now += 60
    again = open_reader(**{"lvq.defaultTtl": "10"})
    assert rows(again, start, first) == expected, "Spark plans a batch again by its offsets"
    assert again.latestOffset(first, again.getDefaultReadLimit()) == first, "that something expires makes no batch"
    append_as_of(lvq_broker, lvq_topic, now, ("new", "1"))
    second = again.latestOffset(first, again.getDefaultReadLimit())
    assert rows(again, first, second) == {b"new": b"1"}
    now -= 100
    assert again.latestOffset(first, again.getDefaultReadLimit())["as of"] == first["as of"], "time is not set back"
    plain = open_reader()
    assert "as of" not in plain.latestOffset(plain.initialOffset(), plain.getDefaultReadLimit())
    dropping = open_reader(**{"lvq.defaultTtl": "10", "lvq.tombstones": "drop"})
    assert rows(dropping, start, first).keys() == {b"soon", b"renewed"}
    every = open_reader(**{"lvq.defaultTtl": "10", "lvq.dedupe": "none"})
    (task,) = every.partitions(start, first)
    assert [len(batch) for batch in every.read(task)] == [4], "records as the log has them"


def test_r11_a_stream_of_scheduled_messages_is_refused_unless_it_has_every_record(
    open_reader: Callable[..., LvqStreamReader], lvq_cluster: KafkaCluster, lvq_topic: str
) -> None:
    from lvq_spark.source.streaming import LvqStreamReader

    queue = LastValueQueue.declare(lvq_topic, key_header=None, max_delay=60.0, cluster=lvq_cluster)
    with pytest.raises(ConfigError, match="may be scheduled") as error:
        open_reader(**{"lvq.maxDelay": "60"})
    assert error.value.options == ("lvq.maxDelay",)
    assert "lvq_spark.refresh" in error.value.hint
    writer = lvq_cluster.writer()
    header = (NOT_BEFORE_HEADER, b"%d" % ((time.time_ns() // 1_000_000_000 + 50) * 1000))
    for headers in ([], [header]):
        writer.append(lvq_topic, b"a", b"1", headers).result(20)
    writer.close()
    every = open_reader(**{"lvq.maxDelay": "60", "lvq.dedupe": "none"})
    start = every.initialOffset()
    (task,) = every.partitions(start, every.latestOffset(start, everything()))
    assert [len(batch) for batch in every.read(task)] == [2], "records as the log has them"
    options = {"kafka.bootstrap.servers": lvq_cluster.config.bootstrap_servers, "queue": queue.name}
    declared = LvqStreamReader(SourceOptions.parse(options), ("key",))
    with pytest.raises(ConfigError, match=rf"Messages of {queue.name} may be scheduled") as error:
        declared.initialOffset()
    assert error.value.options == ("queue",)
    declared.stop()
    queue.drop()


def test_keys_are_at_home_where_the_partitioner_that_is_named_puts_them(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    """Most producers in Python, Go and .NET use librdkafka's default; the error suggests it."""
    make_queue(3)
    producer = Producer({"bootstrap.servers": lvq_broker.bootstrap_servers})
    names = [b"k%d" % n for n in range(40)]
    for name in names:
        producer.produce(lvq_topic, b"1", name)
    assert producer.flush(20) == 0
    reader = open_reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, everything())
    with pytest.raises(ConfigError, match=r"set lvq\.partitioner to consistent_random"):
        rows(reader, start, end)
    named = open_reader(**{"lvq.partitioner": "consistent_random", "lvq.keys": "k1,k2,k3"})
    assert rows(named, start, end).keys() == {b"k1", b"k2", b"k3"}
    assert rows(open_reader(**{"lvq.partitioner": "consistent_random"}), start, end).keys() == set(names)


def test_the_key_of_a_stream_can_be_a_header(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    writer = make_queue().cluster.writer()
    for key in (b"x", b"y"):
        writer.append(lvq_topic, key, key, [("ticker", b"same")]).result(20)
    writer.close()
    reader = open_reader(**{"lvq.key": "header:ticker"})
    start = reader.initialOffset()
    assert rows(reader, start, reader.latestOffset(start, everything())) == {b"same": b"y"}


def test_some_partitions_can_be_streamed(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(20)])
    reader = open_reader(assign=json.dumps({lvq_topic: [1]}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, everything())
    assert (offsets(start, lvq_topic).keys(), offsets(end, lvq_topic).keys()) == ({1}, {1})
    assert rows(reader, start, end).keys() == {b"k%d" % n for n in range(20) if home(f"k{n}", 2) == 1}


def test_an_offset_does_not_change_while_nothing_happens(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    """Spark compares its text, and makes a batch whenever it differs."""
    queue = make_queue(12)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(12)])
    reader = open_reader()
    end = reader.latestOffset(reader.initialOffset(), everything())
    said = json.dumps(end)
    assert json.dumps(open_reader().latestOffset(json.loads(said), everything())) == said


def test_a_limit_is_kept_and_shared_out_among_partitions(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    """In proportion to each backlog, so no partition waits until others have been read."""
    queue = make_queue(3)
    append(queue.cluster, lvq_topic, *[(f"k{n}", str(n)) for n in range(40)])
    reader = open_reader(maxOffsetsPerTrigger="7")
    assert reader.getDefaultReadLimit() == at_most(7)
    start, seen, batches = reader.initialOffset(), {}, 0
    while (end := reader.latestOffset(start, at_most(7))) != start:
        step = sum(offsets(end, lvq_topic).values()) - sum(offsets(start, lvq_topic).values())
        assert 0 < step <= 7
        if not batches:
            assert all(offset > 0 for offset in offsets(end, lvq_topic).values()), "each has its share"
        seen.update(rows(reader, start, end))
        start, batches = end, batches + 1
    assert (len(seen), batches) == (40, 6)


def test_partitions_that_are_added_are_read_from_their_beginning(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    reader = open_reader(**{"lvq.strays": "pass"})
    end = reader.latestOffset(reader.initialOffset(), everything())
    queue.cluster.topics.add_partitions(lvq_topic, 4)
    append(queue.cluster, lvq_topic, *[(f"k{n}", "1") for n in range(20)])
    later = reader.latestOffset(end, everything())
    assert offsets(later, lvq_topic).keys() == {0, 1, 2, 3}
    assert len(rows(reader, end, later)) == 20


def test_records_after_the_start_of_a_query_with_available_now_are_not_its_own(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    reader = open_reader()
    reader.prepareForTriggerAvailableNow()
    append(queue.cluster, lvq_topic, ("a", "2"))
    queue.cluster.topics.add_partitions(lvq_topic, 2)
    end = reader.latestOffset(reader.initialOffset(), everything())
    assert offsets(end, lvq_topic) == {0: 1, 1: 0}
    assert reader.latestOffset(end, everything()) == end


def test_uncommitted_records_are_not_read(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str, uncommitted: Uncommitted
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    with uncommitted(queue):
        reader = open_reader()
        end = reader.latestOffset(reader.initialOffset(), everything())
        assert offsets(end, lvq_topic) == {0: 1}


def test_g5_a_stream_behind_an_open_transaction_is_behind_and_says_so_once(
    make_queue: MakeQueue,
    open_reader: Callable[..., LvqStreamReader],
    lvq_topic: str,
    uncommitted: Uncommitted,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("lvq_spark.source.stream_offsets.LASTS", 0.0)
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    reader = open_reader()
    start = reader.initialOffset()
    assert reader.reportLatestOffset() == {lvq_topic: {"0": 1}}
    with uncommitted(queue):
        end = reader.latestOffset(start, everything())
        assert reader.latestOffset(end, everything()) == end, "there is nothing to read"
        assert offsets(end, lvq_topic) == {0: 1}
        assert reader.reportLatestOffset() == {lvq_topic: {"0": 2}}
        [told] = [message for message in caplog.messages if "ends early" in message]
        assert "partition 0 is at offset 1 of 2: a transaction open since offset 1 hides" in told
        assert "kafka-transactions.sh finds it" in told
        caplog.clear()
        once = open_reader()
        once.prepareForTriggerAvailableNow()
        assert once.latestOffset(end, everything()) == end
        assert caplog.messages == [told], "it does not come back to see"


def test_g5_transactions_that_end_in_time_are_not_told_of_and_a_new_one_is() -> None:
    from lvq_kafka.core.facts import Shortfall
    from lvq_spark.source.stream_offsets import LASTS, Hidden

    hidden = Hidden()
    for second in range(60):  # one after another, with never a gap
        assert hidden.newly_hidden({0: second, 1: 7}, {0: second + 3, 1: 7}, second * LASTS / 2) == []
    looks = [hidden.newly_hidden({0: 99, 1: 7}, {0: 103 + n, 1: 7}, 1000.0 + n) for n in range(20)]
    assert [look for look in looks if look] == [[Shortfall(0, 99, 108, 99)]], "once"
    assert hidden.newly_hidden({0: 130, 1: 7}, {0: 130, 1: 9}, 2000.0) == []
    assert hidden.newly_hidden({0: 130, 1: 7}, {0: 130, 1: 9}, 2010.0) == [Shortfall(1, 7, 9, 7)]


def test_compaction_of_a_batch_to_be_read_is_no_loss(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))
    reader = open_reader()
    start = reader.initialOffset()
    middle = reader.latestOffset(start, everything())
    append(queue.cluster, lvq_topic, ("a", "2"))
    force_compaction(queue.cluster, lvq_topic)  # type: ignore[arg-type]
    queue.cluster.topics.alter_config(lvq_topic, {"delete.retention.ms": "86400000"})
    assert rows(reader, start, middle) == {b"b": b"1"}
    end = reader.latestOffset(middle, everything())
    assert rows(reader, middle, end)[b"a"] == b"2"


def test_offsets_that_are_gone_are_an_error_unless_they_may_be(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(config={"cleanup.policy": "compact,delete"})
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"), ("c", "1"))
    start = open_reader().initialOffset()
    queue.cluster.logs.delete_before(lvq_topic, {0: 2})
    with pytest.raises(DataLoss, match=r"is at offset 0 of partition 0 of .*, which holds 2 to 3"):
        open_reader().latestOffset(start, everything())
    reader = open_reader(failOnDataLoss="false")
    assert rows(reader, start, reader.latestOffset(start, everything())) == {b"c": b"1"}


def test_r18_a_checkpoint_of_an_earlier_topic_is_refused(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"))
    start = open_reader().initialOffset()
    queue.cluster.topics.delete(lvq_topic)
    queue.cluster.topics.create(lvq_topic, partitions=1, config={})
    with pytest.raises(TopicRecreated, match="deleted and re-created since the stream's checkpoint"):
        open_reader().latestOffset(start, everything())


def test_a_checkpoint_of_the_connectors_is_refused_with_what_goes_on_from_it(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    make_queue()
    said = rf'belongs to another source: {{"{lvq_topic}": {{"0": 2}}}}.* checkpoint of its own\. .*startingOffsets'
    with pytest.raises(ConfigError, match=said):
        open_reader().latestOffset({lvq_topic: {"0": 2}}, everything())


def later(offset: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the same offset, as if it had been noted ``seconds`` earlier."""
    return {**offset, "caught up": offset["caught up"] - round(seconds * 1000)}


@pytest.mark.parametrize("dedupe", ["partition", "none"])
def test_r18_a_delete_that_goes_before_its_batch_is_read_is_not_missed(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str, dedupe: str
) -> None:
    """The batch is planned in time, but read too late."""
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue()
    append(queue.cluster, lvq_topic, ("a", "1"), ("b", "1"))
    reader = open_reader(**{"lvq.dedupe": dedupe})
    start = reader.latestOffset(reader.initialOffset(), everything())
    append(queue.cluster, lvq_topic, ("a", None), ("b", "2"))
    end = reader.latestOffset(start, everything())
    [planned] = reader.partitions(start, end)
    force_compaction(queue.cluster, lvq_topic, drop_tombstones=True)  # type: ignore[arg-type]
    [batch] = reader.read(planned)
    assert batch.to_pylist() == [{"key": b"b", "value": b"2"}], "nothing is left of the delete"
    queue.cluster.topics.alter_config(lvq_topic, {"delete.retention.ms": "0"})
    with pytest.raises(DataLoss, match=r"has not kept up with partition 0 of .*keeps deletes for 0 s"):
        rows(reader, start, end)
    passing = open_reader(failOnDataLoss="false", **{"lvq.dedupe": dedupe})
    assert rows(passing, start, end) == {b"b": b"2"}


def test_r18_a_stream_that_was_away_for_longer_than_deletes_are_kept_is_refused_where_one_may_be_gone(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    from lvq_kafka.testing.compaction import force_compaction

    queue = make_queue(config={"delete.retention.ms": "3600000", "message.timestamp.type": "CreateTime"})
    append_as_of(lvq_broker, lvq_topic, time.time() - 7300, ("a", "1"))
    reader = open_reader()
    start = later(reader.latestOffset(reader.initialOffset(), everything()), 7200)
    append_as_of(lvq_broker, lvq_topic, time.time() - 7200, ("b", "0"), ("b", "1"), ("b", "2"))
    end = reader.latestOffset(start, everything())
    assert rows(reader, start, end) == {b"b": b"2"}, "there is no hole that a delete could have left"
    force_compaction(queue.cluster, lvq_topic)  # type: ignore[arg-type]
    with pytest.raises(DataLoss, match=r"has not kept up with partition 0 of .* for 72\d\d s.* deletes for 3600 s"):
        rows(reader, start, end)
    assert rows(reader, later(start, -7000), end) == {b"b": b"2"}, "it had read all there was 200 s ago"
    young = {**start, lvq_topic: {"0": queue.cluster.logs.end_offsets(lvq_topic)[0]}}
    append(queue.cluster, lvq_topic, ("c", "1"), ("d", "1"), ("d", "2"))
    force_compaction(queue.cluster, lvq_topic)  # type: ignore[arg-type]
    newer = reader.latestOffset(young, everything())
    found = rows(reader, young, newer)
    assert (found[b"c"], found[b"d"]) == (b"1", b"2"), "what has come is younger than any delete that is gone"


def test_a_topic_that_is_not_compacted_keeps_its_deletes_however_long_a_stream_was_away(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str, uncommitted: Uncommitted
) -> None:
    queue = make_queue(config={"cleanup.policy": "delete", "delete.retention.ms": "0"})
    with uncommitted(queue):
        pass
    append(queue.cluster, lvq_topic, ("a", "1"))
    reader = open_reader()
    start = later(reader.initialOffset(), 7200)
    assert rows(reader, start, reader.latestOffset(start, everything())) == {b"a": b"1"}


def test_an_idle_stream_notes_now_and_then_that_it_has_read_all_there_was(
    make_queue: MakeQueue,
    open_reader: Callable[..., LvqStreamReader],
    uncommitted: Uncommitted,
    lvq_broker: ProvidedBroker,
    lvq_topic: str,
) -> None:
    """Otherwise records after a long pause, with old event times, look as if they had been there all the time."""
    queue = make_queue(config={"delete.retention.ms": "3600000", "message.timestamp.type": "CreateTime"})
    append_as_of(lvq_broker, lvq_topic, 1e9, ("a", "1"))
    reader = open_reader()
    end = reader.latestOffset(reader.initialOffset(), everything())
    for idle in (later(end, 50), later(end, 1700)):
        assert reader.latestOffset(idle, everything()) == idle, "it is known well enough"
    long_idle = later(end, 7200)
    noted = reader.latestOffset(long_idle, everything())
    assert noted[lvq_topic] == end[lvq_topic]
    assert noted["caught up"] >= end["caught up"]
    assert rows(reader, long_idle, noted) == {}
    assert reader.latestOffset(noted, everything()) == noted
    append_as_of(lvq_broker, lvq_topic, 1e9, ("b", "1"))
    with uncommitted(queue):  # an aborted record and a marker: two holes
        pass
    eventually(lambda: queue.cluster.logs.end_offsets(lvq_topic, stable=True) == {0: 4})
    newer = reader.latestOffset(noted, everything())
    assert rows(reader, noted, newer) == {b"b": b"1"}
    with pytest.raises(DataLoss):
        rows(reader, long_idle, newer)


def test_a_stream_is_not_kept_busy_with_batches_of_nothing_where_deletes_are_not_kept_at_all(
    make_queue: MakeQueue, open_reader: Callable[..., LvqStreamReader], lvq_topic: str
) -> None:
    queue = make_queue(config={"delete.retention.ms": "0"})
    append(queue.cluster, lvq_topic, ("a", "1"))
    reader = open_reader()
    end = later(reader.latestOffset(reader.initialOffset(), everything()), 50)
    assert reader.latestOffset(end, everything()) == end


@pytest.mark.parametrize("option", [{"endingOffsets": "latest"}, {"lvq.group": "g"}, {"lvq.consistency": "atleast"}])
def test_an_option_that_makes_no_sense_in_a_stream_is_refused(
    open_reader: Callable[..., LvqStreamReader], option: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as error:
        open_reader(**option)
    assert error.value.options == tuple(option)


# -- in Spark ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(spark: SparkSession, lvq_broker: ProvidedBroker, lvq_topic: str, tmp_path: Path) -> Callable[..., list[Batch]]:
    """Return a function that runs the test's query from its checkpoint to the end, and returns its batches."""
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
        [source] = query.recentProgress[-1].sources
        assert json.loads(source.latestOffset) == {lvq_topic: json.loads(source.endOffset)[lvq_topic]}, "all was read"
        return batches

    return run


def test_a_query_that_is_run_again_and_again_has_every_key_right_and_nothing_twice(
    make_queue: MakeQueue, run: Callable[..., list[Batch]], lvq_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue(2)
    append(queue.cluster, lvq_topic, *[(f"k{n % 6}", str(n)) for n in range(12)])
    options = {"maxOffsetsPerTrigger": "8", "lvq.strays": "pass"}
    first = run(**options)
    assert len(first) == 2
    table: Batch = {}
    for batch in first:
        table.update(batch)
    assert table == {f"k{n % 6}": str(n) for n in range(6, 12)}
    append(queue.cluster, lvq_topic, ("k0", "new"), ("k1", None), ("k0", "newest"))
    queue.cluster.topics.add_partitions(lvq_topic, 3)
    writer = queue.cluster.writer()
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


def test_a_query_that_was_idle_for_long_notes_it_in_its_checkpoint_and_goes_on(
    make_queue: MakeQueue, run: Callable[..., list[Batch]], lvq_broker: ProvidedBroker, lvq_topic: str, tmp_path: Path
) -> None:
    make_queue(config={"delete.retention.ms": "3600000", "message.timestamp.type": "CreateTime"})
    append_as_of(lvq_broker, lvq_topic, 1e9, ("a", "1"))
    assert run() == [{"a": "1"}]
    [written] = [path for path in (tmp_path / "checkpoint" / "offsets").iterdir() if path.name == "0"]
    *head, last = written.read_text().split("\n")
    for crc in written.parent.glob(".0.crc"):
        crc.unlink()  # Hadoop's checksum of the file that changes here
    written.write_text("\n".join([*head, json.dumps(later(json.loads(last), 3 * 86_400))]))
    assert run() == [{}]
    assert run() == []
    append_as_of(lvq_broker, lvq_topic, 1e9, ("b", "1"))
    assert run() == [{"b": "1"}]


def home(key: str, partitions: int) -> int:
    from lvq_kafka.core.log.keys import home_partition

    return home_partition(key.encode(), partitions)


def test_an_error_of_a_stream_ends_the_query_and_says_why(
    make_queue: MakeQueue, run: Callable[..., list[Batch]]
) -> None:
    from pyspark.errors import StreamingQueryException

    make_queue()
    said = r"endingOffsets cannot be set: a stream has no end"
    with pytest.raises(StreamingQueryException, match=said):
        run(endingOffsets="latest")
    with pytest.raises(ConfigError, match=said) as error, task_errors():
        run(endingOffsets="latest")
    assert isinstance(error.value.__cause__, StreamingQueryException)
