"""Publishing DataFrames into queues on a real broker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from pyspark.sql.functions import col

from lvq_kafka import Groups, LastValueQueue, Message, Ttl
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.errors import ConfigError, MessageTooLarge, MissingKey, TopicNotFound
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer
from lvq_spark import snapshot
from lvq_spark.writing.publishing import Published, publish
from lvq_spark.writing.sizes import SizeLimits, oversize, suspect
from tests.rules import rules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Frame = Callable[..., "DataFrame"]


@pytest.fixture
def frame(spark: SparkSession) -> Frame:
    """Return a function that creates a DataFrame, of text keys and values unless a schema says otherwise."""
    return lambda *rows, schema="key string, value string": spark.createDataFrame(list(rows), schema)


def held(queue: LastValueQueue[bytes]) -> dict[str, bytes]:
    with queue.view() as view:
        return dict(view)


def written(queue: LastValueQueue[bytes]) -> int:
    """Return how many records the topic has had."""
    return sum(queue.cluster.logs.end_offsets(queue.topic).values())


def test_g15_a_frame_becomes_the_values_of_its_keys_where_every_other_writer_puts_them(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=3, key_header="ticker")
    with queue.producer() as producer:
        producer.put("k1", b"old")
        producer.put("gone", b"old")
        producer.put("other", b"old")
    rows: list[tuple[str, str | None]] = [(f"k{n}", f"new {n}") for n in range(50)]

    done = publish(frame(*rows, ("gone", None), ("", "of the empty key"), ("empty", "")), queue)

    assert (done.written, done.deleted, done.vanished) == (52, 1, 0)
    assert done.ends == queue.cluster.logs.end_offsets(queue.topic)
    expected = {key: str(value).encode() for key, value in rows}
    with queue.view() as view:
        assert dict(view) == expected | {"": b"of the empty key", "empty": b"", "other": b"old"}
        for key in expected:
            entry = view.entry(key)
            assert entry.headers == (("ticker", key.encode()),)
            assert entry.position.partition == home_partition(key.encode(), 3)
        assert not view.split_keys


@pytest.mark.parametrize(
    ("kind", "keys", "on_the_wire"),
    [
        ("bigint", [1, -2], ["1", "-2"]),
        ("boolean", [True, False], ["true", "false"]),
        ("binary", [b"\xff", b"a"], ["\udcff", "a"]),
    ],
)
def test_r2_keys_have_the_bytes_that_the_producer_gives_them(
    frame: Frame, make_queue: MakeQueue, kind: str, keys: list[Any], on_the_wire: list[str]
) -> None:
    queue = make_queue()
    publish(frame(*[(key, b"1") for key in keys], schema=f"name {kind}, data binary"), queue, key="name", value="data")
    assert set(held(queue)) == set(on_the_wire)


def test_a_snapshot_published_again_is_the_same_queue_headers_included(
    spark: SparkSession, make_queue: MakeQueue
) -> None:
    queue = make_queue(partitions=2, key_header="ticker")
    with queue.producer() as producer:
        producer.send(Message(b"1", headers=[("ticker", "a"), ("from", b"x"), ("from", None)]))
        producer.put("b", b"2")
        producer.send(Message(b"an ordinary message", headers={"from": "y"}))
    with queue.view() as view:
        before = {key: (view.entry(key).value, view.entry(key).headers) for key in view}
    rows = snapshot(spark, queue)
    assert publish(rows, queue, headers="headers").written == 3
    with queue.view() as view:
        assert {key: (view.entry(key).value, view.entry(key).headers) for key in view} == before
    assert written(queue) == 6
    strict = LastValueQueue(queue.topic, key_header="ticker", keyless="refuse", cluster=queue.cluster)
    with pytest.raises(MissingKey, match="1 row has no key"):
        publish(rows, strict, headers="headers")
    assert written(queue) == 6, "never consumed"


def test_keys_that_the_frame_lacks_are_deleted_when_asked_for_and_messages_without_a_key_stay(
    frame: Frame, make_queue: MakeQueue
) -> None:
    """Records that another program wrote before the topic was compacted may have no key at all."""
    queue = make_queue(partitions=2, key_header="ticker", config={"cleanup.policy": "delete"})
    with queue.producer() as producer:
        for key in ("stays", "goes", "goes too", "was gone"):
            producer.put(key, b"old")
        producer.delete("was gone")
        producer.send(Message(b"an ordinary message"))
    foreign = confluent_kafka.Producer({"bootstrap.servers": queue.cluster.config.bootstrap_servers})  # type: ignore[attr-defined]
    foreign.produce(queue.topic, b"without any key", partition=0)
    assert foreign.flush(20) == 0
    before = written(queue)

    done = publish(frame(("stays", "new"), ("comes", "new")), queue, vanished="delete")

    assert (done.written, done.deleted, done.vanished) == (2, 0, 2)
    assert written(queue) == before + 4
    now = held(queue)
    assert {key: now[key] for key in now if not key.startswith("lvq-unkeyed")} == {"stays": b"new", "comes": b"new"}
    assert b"an ordinary message" in now.values()


def test_an_empty_frame_deletes_nothing(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("a", b"1")
    with pytest.raises(ConfigError, match="would delete everything in"):
        publish(frame(), queue, vanished="delete")
    assert publish(frame(), queue) == Published()
    assert held(queue) == {"a": b"1"}


def test_random_frames_one_after_the_other_leave_what_a_dict_would_hold(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=3, key_header="k")
    choose = random.Random(11)
    model: dict[str, bytes] = {}
    for turn in range(3):
        keys = choose.sample([f"key {n}" for n in range(40)], 25)
        rows = [(key, None if choose.random() < 0.3 else f"{key} in {turn}") for key in keys]
        given = {key: value.encode() for key, value in rows if value is not None}
        if vanish := turn == 1:
            model.clear()
        model = {key: value for key, value in model.items() if key not in dict(rows)} | given
        publish(frame(*rows), queue, vanished="delete" if vanish else "keep")
        assert held(queue) == model


def test_several_rows_of_a_key_are_an_error_that_names_one_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    with pytest.raises(ConfigError, match=r"1 key has several rows, among them b'a' with 3\. .*newest=\.\.\."):
        publish(frame(("a", "1"), ("b", "1"), ("a", "2"), ("a", "1")), queue)
    assert written(queue) == 0


def test_of_several_rows_the_newest_is_written_and_two_newest_are_an_error(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue()
    schema = "key string, value string, at bigint"
    rows = [
        ("a", "old", 1),
        ("a", "new", 3),
        ("a", "older", None),
        ("b", "only", None),
        ("c", "was", 1),
        ("c", None, 2),
    ]
    done = publish(frame(*rows, schema=schema), queue, newest="at")
    assert (done.written, done.deleted) == (2, 1)
    assert held(queue) == {"a": b"new", "b": b"only"}
    with pytest.raises(ConfigError, match="several rows that are the newest by at, among them b'a' with 2"):
        publish(frame(*rows, ("a", "as new", 3), schema=schema), queue, newest="at")
    assert written(queue) == 3


def test_a_row_without_a_key_is_an_error_and_nothing_is_written(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue()
    with pytest.raises(MissingKey, match="2 rows have no key"):
        publish(frame(("a", "1"), (None, "2"), (None, "3")), queue)
    assert written(queue) == 0


def test_r16_a_key_header_that_disagrees_with_the_key_is_an_error_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue = make_queue(key_header="ticker")
    schema = "key string, value string, headers array<struct<key: string, value: string>>"
    rows = [("a", "1", [("ticker", "a"), ("x", "y")]), ("b", "1", [("ticker", "c")]), ("d", "1", None)]
    with pytest.raises(ConfigError, match=r"1 row has a header 'ticker' that disagrees .* among them the one of b'b'"):
        publish(frame(*rows, schema=schema), queue, headers="headers")
    assert written(queue) == 0
    publish(frame(rows[0], rows[2], schema=schema), queue, headers="headers")
    with queue.view() as view:
        assert view.entry("a").headers == (("ticker", b"a"), ("x", b"y"))
        assert view.entry("d").headers == (("ticker", b"d"),)


@pytest.mark.parametrize("nameless", [(None, "y"), None])
def test_a_header_without_a_name_is_an_error_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue, nameless: tuple[str | None, str] | None
) -> None:
    queue = make_queue()
    schema = "key string, value string, headers array<struct<key: string, value: string>>"
    rows = [("a", "1", [("x", None)]), ("b", "1", [("x", "y"), nameless]), ("c", None, None)]
    with pytest.raises(ConfigError, match=r"1 row has a header without a name, among them the one of b'b'") as error:
        publish(frame(*rows, schema=schema), queue, headers="headers")
    assert error.value.options == ("headers",)
    assert written(queue) == 0


def test_r22_a_reserved_header_is_an_error_and_nothing_is_written(frame: Frame, make_queue: MakeQueue) -> None:
    queue = make_queue()
    schema = "key string, value string, headers array<struct<key: string, value: string>>"
    rows = [("a", "1", [("x", "y")]), ("b", "1", [("x", "y"), ("lvq-ttl", "5")]), ("c", "1", None)]
    with pytest.raises(ConfigError, match="'lvq-ttl' is reserved") as error:
        publish(frame(*rows, schema=schema), queue, headers="headers")
    assert error.value.options == ("lvq-ttl",)
    assert written(queue) == 0


def with_ttl(queue: LastValueQueue[bytes], ttl: Ttl) -> LastValueQueue[bytes]:
    return LastValueQueue(queue.topic, key_header=None, ttl=ttl, cluster=queue.cluster)


def test_r10_a_column_says_after_how_many_seconds_a_value_expires(
    spark: SparkSession, frame: Frame, make_queue: MakeQueue
) -> None:
    queue = with_ttl(make_queue(), Ttl(default=3600.0))
    schema = "key string, value string, life double, headers array<struct<key: string, value: string>>"
    rows = [
        ("a", "1", 900.0, [("x", "y")]),
        ("b", "1", None, None),
        ("c", "1", 0.0015, None),
        ("d", None, 900.0, None),
        ("e", "1", None, [("lvq-ttl", "500000")]),
    ]
    publish(frame(*rows, schema=schema), queue, headers="headers", ttl="life")
    with queue.view() as view:
        assert {key: entry.headers for key in view if (entry := view.entry(key))} == {
            "a": (("x", b"y"), ("lvq-ttl", b"900000")),
            "b": (),
            "e": (("lvq-ttl", b"500000"),),
        }
    copied = snapshot(spark, queue, columns=["key", "value", "headers"])
    assert publish(copied, queue, headers="headers").written == 3, "a snapshot can be published as it is"
    lives = frame(("a", "2", Decimal(700)), schema="key string, value string, life decimal(5, 1)")
    publish(lives, queue, ttl="life")
    with queue.view() as view:
        assert view.entry("a").headers == (("lvq-ttl", b"700000"),)


LIFE = "key string, value string, life double, headers array<struct<key: string, value: string>>"


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        (("b", "1", 0.0, None), ("ttl",), "ttl=0.0 is not a number of seconds from 0.001"),
        (("b", "1", -1.0, None), ("ttl",), "It is the one of b'b'"),
        (("b", "1", float("nan"), None), ("ttl",), "ttl=nan is not"),
        (("b", "1", 1e12, None), ("ttl",), "is not a number of seconds"),
        (("b", "1", 5.0, [("lvq-ttl", "5")]), ("ttl", "lvq-ttl"), "the row of b'b' and ttl are both given"),
        (("b", "1", None, [("lvq-ttl", "soon")]), ("lvq-ttl",), "the row of b'b' is not a number of milliseconds"),
        (("b", "1", None, [("lvq-ttl", "0")]), ("lvq-ttl",), "is not a number of milliseconds from 1 to 3,155,760,000"),
        (("b", "1", None, [("lvq-ttl", "3155760000001")]), ("lvq-ttl",), "is not a number of milliseconds from 1"),
        (("b", "1", None, [("lvq-ttl", None)]), ("lvq-ttl",), "is not a number of milliseconds"),
    ],
)
def test_r22_a_ttl_that_is_none_is_an_error_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue, row: tuple[Any, ...], options: tuple[str, ...], said: str
) -> None:
    queue = with_ttl(make_queue(), Ttl())
    with pytest.raises(ConfigError, match=said) as error:
        publish(frame(("a", "1", 5.0, None), row, schema=LIFE), queue, headers="headers", ttl="life")
    assert error.value.options == options
    assert written(queue) == 0


def test_r22_a_ttl_is_refused_where_the_queue_has_none_and_a_column_that_is_none(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    rows = frame(("a", "1", 5.0, None), schema=LIFE)
    with pytest.raises(ConfigError, match="'lvq-ttl' is reserved") as error:
        publish(rows, queue, ttl="life")
    assert error.value.options == ("ttl", "lvq-ttl")
    for column in ("value", "lifetime"):
        with pytest.raises(ConfigError) as error:
            publish(rows, with_ttl(queue, Ttl()), ttl=column)
        assert error.value.options == ("ttl",)


def scheduling(queue: LastValueQueue[bytes]) -> LastValueQueue[bytes]:
    return LastValueQueue(queue.topic, key_header=None, max_delay=3600.0, ttl=Ttl(), cluster=queue.cluster)


def test_r11_a_column_says_from_when_on_a_value_counts(
    spark: SparkSession, frame: Frame, make_queue: MakeQueue
) -> None:
    queue, now = scheduling(make_queue()), round(time.time())
    schema = "key string, value string, due double, life double, headers array<struct<key: string, value: string>>"
    rows = [
        ("a", "1", None, None, None),
        ("a later", "1", now + 1800.5, 90.0, [("x", "y")]),
        ("past", "1", 0.0, None, None),
        ("gone", None, None, None, None),
        ("own", "1", None, None, [("lvq-not-before", f"{now + 1800}000")]),
    ]
    assert publish(frame(*rows, schema=schema), queue, headers="headers", ttl="life", not_before="due").written == 4
    times = frame(
        ("t", "1", datetime.fromtimestamp(now + 1800.25, UTC)), schema="key string, value string, due timestamp"
    )
    publish(times, queue, not_before="due")
    every = snapshot(spark, LastValueQueue(queue.topic, key_header=None, cluster=queue.cluster)).collect()
    assert {row.key.decode(): [(name, bytes(said)) for name, said in row.headers or ()] for row in every} == {
        "a": [],
        "a later": [("x", b"y"), ("lvq-not-before", b"%d500" % (now + 1800)), ("lvq-ttl", b"90000")],
        "past": [("lvq-not-before", b"0")],
        "own": [("lvq-not-before", b"%d000" % (now + 1800))],
        "t": [("lvq-not-before", b"%d250" % (now + 1800))],
    }
    assert {bytes(row.key) for row in snapshot(spark, queue).collect()} == {b"a", b"past"}


DUE = "key string, value string, due double, headers array<struct<key: string, value: string>>"


@pytest.mark.parametrize(
    ("row", "options", "said"),
    [
        (("b", "1", -1.0, None), ("not_before",), "The row of b'b' has a not_before that is not a time"),
        (("b", "1", float("nan"), None), ("not_before",), "that is not a time"),
        (("b", "1", 1e13, None), ("not_before",), "that is not a time"),
        (
            ("b", "1", 4e9, None),
            ("not_before",),
            "The row of b'b' is scheduled further ahead than the queue's max_delay",
        ),
        (("b", "1", None, [("lvq-not-before", "4000000000000")]), ("not_before",), "scheduled further ahead"),
        (("b", "1", 5.0, [("lvq-not-before", "5")]), ("not_before", "lvq-not-before"), "has both not_before and"),
        (("b", "1", None, [("lvq-not-before", "soon")]), ("not_before",), "is not a number of milliseconds"),
        (("b", "1", None, [("lvq-not-before", None)]), ("not_before",), "is not a number of milliseconds"),
        (("b", "1", None, [("lvq-not-before", "9" * 16)]), ("not_before",), "is not a number of milliseconds"),
        (("b", None, 5.0, None), ("not_before",), "The row of b'b' would schedule a delete"),
    ],
)
def test_r22_a_time_that_is_none_is_an_error_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue, row: tuple[Any, ...], options: tuple[str, ...], said: str
) -> None:
    queue = scheduling(make_queue())
    with pytest.raises(ConfigError, match=said) as error:
        publish(frame(("a", "1", 5.0, None), row, schema=DUE), queue, headers="headers", not_before="due")
    assert error.value.options == options
    assert written(queue) == 0


def test_r22_a_schedule_is_refused_where_the_queue_has_none_and_a_column_that_is_none(
    frame: Frame, make_queue: MakeQueue
) -> None:
    queue = make_queue()
    rows = frame(("a", "1", 5.0, [("lvq-not-before", "5")]), schema=DUE)
    for options, named in (({"not_before": "due"}, ["not_before"]), ({"headers": "headers"}, [])):
        with pytest.raises(ConfigError, match="'lvq-not-before' is reserved") as error:
            publish(rows, queue, **options)
        assert error.value.options == (*named, "lvq-not-before")
    for column in ("value", "lifetime"):
        with pytest.raises(ConfigError) as error:
            publish(rows, scheduling(queue), not_before=column)
        assert error.value.options == ("not_before",)


TEXTS = "key string, value string, headers array<struct<key: string, value: string>>"


def test_r22_headers_of_other_systems_are_written_as_the_queues_own(
    spark: SparkSession, frame: Frame, make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    made = make_queue(partitions=3)
    queue = LastValueQueue(
        made.topic, key_header=None, max_delay=3600.0, groups=Groups(placement="group"), cluster=made.cluster
    )
    due = round(time.time() + 1800) * 1000
    rows = [
        ("time", "1", [("x", "y"), ("_AMQ_SCHED_DELIVERY", f"{due}")]),
        ("delay", "1", [("x-opt-delivery-delay", "1800000")]),
        ("group", "1", [("JMSXGroupID", "g")]),
        ("gone", None, [("_AMQ_GROUP_ID", "g")]),
        ("plain", "1", None),
    ]
    assert publish(frame(*rows, schema=TEXTS), queue, headers="headers").written == 4
    records = {row.key.decode(): row for row in snapshot(spark, made).collect()}
    said = {key: {name: value and bytes(value) for name, value in row.headers or ()} for key, row in records.items()}
    assert said["time"] == {"x": b"y", "lvq-not-before": b"%d" % due}
    assert said["delay"].keys() == {"lvq-not-before"}
    assert abs(int(said["delay"]["lvq-not-before"] or 0) - due) < 120_000
    assert said["group"] == {"lvq-group": b"g"}
    assert records["group"].partition == home_partition(b"g", 3)
    with caplog.at_level("WARNING", "lvq_spark"):
        publish(frame(*rows, schema=TEXTS), made, headers="headers")
    assert [line.split(" in ")[0] for line in caplog.messages] == [
        "the header JMSXGroupID",
        "the header _AMQ_SCHED_DELIVERY",
    ]


@pytest.mark.parametrize(
    ("value", "headers", "options", "said"),
    [
        ("1", [("x-opt-delivery-time", "soon")], ("x-opt-delivery-time",), "x-opt-delivery-time is b'soon', not a num"),
        ("1", [("x-opt-delivery-delay", "3600001")], ("x-opt-delivery-delay", "max_delay"), "is 3,600.001 s ahead"),
        (None, [("x-opt-delivery-delay", "5")], ("x-opt-delivery-delay",), "would schedule a delete"),
        (
            "1",
            [("lvq-not-before", "5"), ("_AMQ_SCHED_DELIVERY", "6")],
            ("lvq-not-before", "_AMQ_SCHED_DELIVERY"),
            "The row of b'b': The message has the headers lvq-not-before and _AMQ_SCHED_DELIVERY, and they disagree",
        ),
    ],
)
def test_r22_headers_of_other_systems_that_make_no_sense_are_an_error_and_nothing_is_written(
    frame: Frame,
    make_queue: MakeQueue,
    value: str | None,
    headers: list[tuple[str, str]],
    options: tuple[str, ...],
    said: str,
) -> None:
    queue = scheduling(make_queue())
    with pytest.raises(ConfigError, match=said) as error:
        publish(frame(("a", "1", None), ("b", value, headers), schema=TEXTS), queue, headers="headers")
    assert error.value.options == options
    assert written(queue) == 0


HEADED = "key string, value binary, headers array<struct<key: string, value: string>>"


def test_a_row_that_is_too_large_is_an_error_that_names_it_and_nothing_is_written(
    frame: Frame, make_queue: MakeQueue
) -> None:
    """Before there was a check, 924 of 2,000 keys were written when the client refused one."""
    queue = make_queue(config={"max.message.bytes": "2000000"})
    rows = [*((f"k{n}", b"v") for n in range(200)), ("large", bytes(1_100_000)), ("larger", bytes(3_000_000))]
    schema = "key string, value binary"
    with pytest.raises(MessageTooLarge) as error:
        publish(frame(*rows, schema=schema), queue)
    assert str(error.value).startswith(
        "2 rows are too large, among them the one of b'larger': it has 3000042 bytes, and the client accepts 1048588 "
        "(message.max.bytes)."
    )
    assert error.value.key == b"larger"
    with pytest.raises(MessageTooLarge, match=r"1 row is too large, the one of b'large': it has 1100041 bytes"):
        publish(frame(*rows[:-1], schema=schema), queue)
    queue.cluster.topics.alter_config(queue.topic, {"max.message.bytes": "1000000"})
    with pytest.raises(
        MessageTooLarge,
        match=r"b'large': it has 1048565 bytes, and the topic \S+ accepts 1000000 \(max\.message\.bytes\)",
    ):
        publish(frame(("large", bytes(1_048_488)), schema=schema), queue)
    assert written(queue) == 0


def test_a_row_is_too_large_when_client_or_broker_would_refuse_it_and_only_then(
    frame: Frame, make_queue: MakeQueue, lvq_cluster: KafkaCluster
) -> None:
    queue = make_queue(key_header="ticker", config={"max.message.bytes": "20000"})
    small = ClientConfig(lvq_cluster.config.bootstrap_servers, {"message.max.bytes": 10_000})
    shapes: list[tuple[str, list[tuple[str, str | None]] | None]] = [
        ("k", None),
        ("k" * 70, [("a", None), ("b" * 65, "c" * 9000)]),
        ("k", [("ticker", "k")]),
        ("k", [("ticker", None)]),
        ("k", [(UNKEYED_HEADER, "1")]),
    ]
    limits = [SizeLimits(10_000, None, "t"), SizeLimits(1_048_588, 20_000, "t")]
    for cluster, limit in zip((KafkaCluster(small), lvq_cluster), limits):
        rows, refused = [], []
        with Producer(cluster, rules(topic=queue.topic, key_header="ticker")) as producer:
            for key, headers in shapes:
                about = (limit.topic or limit.client) - len(key) - sum(len(n + (v or "")) for n, v in headers or ())
                for size in range(about - 110, about - 30):
                    rows.append((key, bytes(size), headers))
                    refused.append(refuses(producer, *rows[-1]))
        found = frame(*rows, schema=HEADED).withColumn("key", col("key").cast("binary"))
        judged = found.select(oversize(limit, "ticker").isNotNull(), suspect(limit, "ticker")).collect()
        assert [row[0] for row in judged] == refused
        assert all(row[1] for row in judged if row[0])
        assert 0 < sum(refused) < len(refused)
        if cluster is not lvq_cluster:
            cluster.close()


def refuses(producer: Producer, key: str, value: bytes, headers: list[tuple[str, str | None]] | None) -> bool:
    try:
        producer.put(key, value, headers).result(20)
    except MessageTooLarge:
        return True
    return False


def test_batches_are_no_larger_than_the_topic_takes_and_what_is_compressed_may_be(
    frame: Frame, make_queue: MakeQueue, lvq_cluster: KafkaCluster
) -> None:
    """A client makes batches of up to 1 MB, and a broker refuses all rows of one that is too large.

    The compressed size of a row is not known beforehand.
    """
    queue = make_queue(config={"max.message.bytes": "20000"})
    rows = [(f"k{n}", bytes(1000)) for n in range(400)]
    assert publish(frame(*rows, schema="key string, value binary").coalesce(1), queue).written == 400
    cluster = KafkaCluster(ClientConfig(lvq_cluster.config.bootstrap_servers, {"compression.type": "zstd"}))  # type: ignore[attr-defined]
    packing = LastValueQueue(queue.topic, key_header=None, cluster=cluster)
    rows = [("a", bytes(500_000)), ("b", bytes(500_000))]
    assert publish(frame(*rows, schema="key string, value binary"), packing).written == 2
    cluster.close()


def test_wrong_columns_and_options_are_named(frame: Frame, make_queue: MakeQueue, lvq_cluster: KafkaCluster) -> None:
    queue = make_queue()
    with pytest.raises(ConfigError, match=r"value='vlaue' names no column .* Did you mean value\?"):
        publish(frame(), queue, value="vlaue")
    with pytest.raises(ConfigError, match=r"The column price is double\. Make it text or bytes first, with to_json"):
        publish(frame(schema="key string, price double"), queue, value="price")
    with pytest.raises(ConfigError, match=r"The column key is double\. Use text, bytes"):
        publish(frame(schema="key double, value string"), queue)
    with pytest.raises(ConfigError, match="vanished must be one of keep, delete, not 'drop'"):
        publish(frame(), queue, vanished="drop")  # type: ignore[arg-type]
    with pytest.raises(TopicNotFound):
        publish(frame(("a", "1")), LastValueQueue("no-such-topic", key_header=None, cluster=lvq_cluster))


def test_the_frame_that_was_checked_is_the_one_that_is_written_and_it_is_evaluated_once(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    def counted(batches: Iterable[Any]) -> Iterator[Any]:
        import os
        import uuid

        for batch in batches:
            (tmp_path / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
            yield batch

    queue, views = make_queue(), spark.catalog.listTables()
    rows = spark.range(0, 20, 1, 2).selectExpr("cast(id as string) as key", "uuid() as value")
    rows = rows.mapInArrow(counted, "key string, value string")
    assert publish(rows, queue, vanished="delete").written == 20
    assert len(list(tmp_path.iterdir())) == 2, "one batch in each of two tasks"
    assert spark.catalog.listTables() == views
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty(), "what was kept for it is let go"  # type: ignore[attr-defined]


def test_a_write_that_is_tried_again_counts_once_and_leaves_the_same_values(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lvq_spark.scan.serialization import Step, map_in_arrow
    from lvq_spark.writing import publishing

    tried = tmp_path / "tried"

    def failing_once(rows: DataFrame, step: Step, schema: str) -> DataFrame:
        def write_and_fail(batches: Iterable[Any]) -> Iterator[Any]:
            counts = list(step(batches))
            if not tried.exists():
                tried.touch()
                raise OSError("this attempt fails after it has written")
            yield from counts

        return map_in_arrow(rows, write_and_fail, schema)

    queue = make_queue()
    monkeypatch.setattr(publishing, "map_in_arrow", failing_once)
    rows = spark.createDataFrame([(f"k{n}", f"{n}") for n in range(10)], "key string, value string").coalesce(1)
    assert publish(rows, queue).written == 10
    assert tried.exists()
    assert written(queue) == 20, "at least once"
    assert held(queue) == {f"k{n}": str(n).encode() for n in range(10)}


def test_no_secret_is_in_a_plan(frame: Frame, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    from lvq_spark.scan.serialization import map_in_arrow
    from lvq_spark.writing import publishing

    queue = make_queue()
    cluster = KafkaCluster(ClientConfig(queue.cluster.config.bootstrap_servers, {"sasl.password": "hunter2"}))  # type: ignore[attr-defined]
    plans: list[str] = []

    def seen(rows: DataFrame, step: Any, schema: str) -> DataFrame:
        assert "hunter2" not in repr(step)
        mapped = map_in_arrow(rows, step, schema)
        plans.append(mapped._jdf.queryExecution().toString())
        return mapped

    monkeypatch.setattr(publishing, "map_in_arrow", seen)
    publish(frame(("a", "1")), LastValueQueue(queue.topic, key_header=None, cluster=cluster))
    cluster.close()
    assert len(plans) == 1
    assert "hunter2" not in plans[0]
