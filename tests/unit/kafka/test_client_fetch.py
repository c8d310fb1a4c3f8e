"""The conversion of the client's messages to columns and positions."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import KafkaError, Message

from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.messages import HeaderReader
from lvq_kafka.kafka.messages import to_fetch as to_fetch_without_headers
from lvq_kafka.kafka.reader import MessagePump, Portion

to_fetch = partial(to_fetch_without_headers, read_headers=HeaderReader())


def record(
    partition: int,
    offset: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: list[tuple[str, bytes | None]] | None = None,
) -> Message:
    return Message(
        topic="t",
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=headers,
        timestamp=(2, 1_000 + offset),
    )


def event(partition: int, offset: int, code: int) -> Message:
    return Message(topic="t", partition=partition, offset=offset, error=KafkaError(code))


class Ready:
    """A consumer that returns as many messages as it is asked for, and records these counts."""

    def __init__(
        self, headers: list[tuple[str, bytes | None]] | None, *, between: Callable[[], None] = lambda: None
    ) -> None:
        self.headers = headers
        self.between = between
        self.asked: list[int] = []

    def consume(self, count: int, timeout: float) -> list[Message]:
        self.asked.append(count)
        self.between()
        return [record(0, offset, headers=self.headers) for offset in range(count)]


class Clock:
    """A stand-in for the module ``time``."""

    def __init__(self) -> None:
        self.waited = self.worked = 0.0

    def wait(self, seconds: float) -> None:
        self.waited += seconds

    def work(self, seconds: float) -> None:
        self.worked += seconds

    def monotonic(self) -> float:
        return self.waited + self.worked

    def thread_time(self) -> float:
        return self.worked


@pytest.mark.parametrize(
    ("headers", "counts"), [(None, [500, 500]), ([("a", b"1")], [500, 200]), ([("a", b"")] * 4, [500, 100])]
)
def test_no_more_is_taken_at_once_than_leaves_the_garbage_collector_asleep(
    headers: list[tuple[str, bytes | None]] | None, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.kafka.reader.time", Clock())  # no other thread wants the processor
    consumer = Ready(headers)
    pump = MessagePump(consumer, "t", Health("nowhere:9092"))  # type: ignore[arg-type]
    pump.poll(0)
    pump.poll(0)
    assert consumer.asked == counts


def test_the_most_is_taken_while_there_is_no_garbage_collector_to_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.kafka.reader.time", Clock())
    consumer = Ready([("a", b"1")])
    pump = MessagePump(consumer, "t", Health("nowhere:9092"), late=True)  # type: ignore[arg-type]
    gc.disable()
    try:
        pump.poll(0)
        pump.poll(0)
    finally:
        gc.enable()
    pump.poll(0)
    assert consumer.asked == [8000, 8000, 200]


def test_a_thread_that_is_kept_waiting_takes_more_at_each_of_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, clock = [0.0, 0.005, 0.005, 0.0, 0.0, 0.0], Clock()
    monkeypatch.setattr("lvq_kafka.kafka.reader.time", clock)
    consumer = Ready(None, between=lambda: clock.wait(waits.pop(0)))
    pump = MessagePump(consumer, "t", Health("nowhere:9092"))  # type: ignore[arg-type]
    while waits:
        pump.poll(0)
    assert consumer.asked == [500, 500, 1000, 2000, 1000, 500]


def test_the_time_that_the_work_itself_takes_is_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("lvq_kafka.kafka.reader.time", clock)
    consumer = Ready(None, between=lambda: clock.work(0.005))
    pump = MessagePump(consumer, "t", Health("nowhere:9092"))  # type: ignore[arg-type]
    for _ in range(3):
        pump.poll(0)
    assert consumer.asked == [500, 500, 500]


def test_messages_at_hand_are_taken_without_a_wait_and_only_the_first_is_waited_for() -> None:
    """``consume()`` waits out its timeout unless it gets everything that it was asked for."""
    waits: list[tuple[str, float]] = []

    class Idle:
        def consume(self, count: int, timeout: float) -> list[Message]:
            waits.append(("consume", timeout))
            return []

        def poll(self, timeout: float) -> Message | None:
            waits.append(("poll", timeout))
            return first

    pump = MessagePump(Idle(), "t", Health("nowhere:9092"))  # type: ignore[arg-type]
    first = None
    assert not len(pump.poll(0.7).batch)
    first = record(0, 5)
    assert pump.poll(0.7).batch.offsets == [5]
    assert waits == [("consume", 0), ("poll", 0.7), ("consume", 0), ("poll", 0.7), ("consume", 0)]


def test_portions_grow_to_an_end_and_only_while_there_is_that_much_to_take() -> None:
    portion = Portion()
    for _ in range(10):
        portion.consumed(portion.size, waited=1.0)
    assert portion.size == 8000
    portion.suit(RecordBatch.of([Record(0, 1, 0, b"k", b"v", (("a", b"1"),))]))
    assert portion.size == 16 * 200
    portion.consumed(0, waited=0.0)
    portion.consumed(100, waited=1.0)
    assert portion.size == 8 * 200


def test_nothing_makes_an_empty_fetch() -> None:
    fetch, errors = to_fetch([])
    assert len(fetch.batch) == 0
    assert fetch.positions == {}
    assert errors == []
    assert to_fetch([], 0) == (fetch, [])


def test_records_keep_their_order_and_their_parts() -> None:
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None)]
    fetch, errors = to_fetch(
        [record(1, 5, headers=headers), record(0, 9, value=None), record(1, 6, key=None, value=b"")]
    )
    assert list(fetch.batch) == [
        Record(1, 5, 1_005, b"k", b"v", (("a", b"1"), ("a", None))),
        Record(0, 9, 1_009, b"k", None),
        Record(1, 6, 1_006, None, b""),
    ]
    assert fetch.positions == {1: 7, 0: 10}
    assert errors == []


def test_an_end_of_partition_is_a_position_and_no_record() -> None:
    fetch, errors = to_fetch(
        [record(0, 3), event(0, 8, KafkaError._PARTITION_EOF), event(1, 0, KafkaError._PARTITION_EOF)]
    )
    assert fetch.batch.offsets == [3]
    assert fetch.positions == {0: 8, 1: 0}
    assert errors == []


def test_an_end_that_records_have_passed_does_not_take_the_position_back() -> None:
    fetch, _ = to_fetch([event(0, 3, KafkaError._PARTITION_EOF), record(0, 3), record(0, 4)])
    assert fetch.positions == {0: 5}


def test_errors_are_returned_and_records_around_them_kept() -> None:
    broken = event(0, 4, KafkaError._AUTO_OFFSET_RESET)
    fetch, errors = to_fetch([record(1, 1), broken, record(1, 2)])
    assert errors == [broken]
    assert fetch.batch.offsets == [1, 2]
    assert fetch.positions == {1: 3}


@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_events_are_told_from_records_whatever_the_keys_of_these(key: bytes | None) -> None:
    """Events are recognized by a missing key, but a record's key may be missing, too."""
    broken = event(0, 6, KafkaError._AUTO_OFFSET_RESET)
    fetch, errors = to_fetch([record(0, 4, key=key), broken, record(0, 5), event(0, 9, KafkaError._PARTITION_EOF)])
    assert (fetch.batch.keys, fetch.batch.offsets, fetch.positions) == ([key, b"k"], [4, 5], {0: 9})
    assert errors == [broken]


def test_knowing_the_only_partition_changes_nothing_but_the_speed() -> None:
    messages = [record(3, 1), record(3, 2), event(3, 7, KafkaError._PARTITION_EOF)]
    assert to_fetch(messages, 3) == to_fetch(messages)


def test_late_columns_are_the_same_in_whatever_way_records_are_picked() -> None:
    messages = [record(3, 1, headers=[("a", b"1")]), record(3, 2, value=None), record(3, 4, key=None)]
    early, late = (
        to_fetch([*messages, event(3, 7, KafkaError._PARTITION_EOF)], 3, late=late) for late in (False, True)
    )
    assert late[0].positions == early[0].positions == {3: 7}
    batch, expected = late[0].batch, list(early[0].batch)
    assert (len(batch), list(batch)) == (3, expected)
    assert (batch.ends, batch.deletes) == (early[0].batch.ends, early[0].batch.deletes) == ((1, 4), True)
    assert not batch.rows(0, 1).deletes
    assert batch.size == early[0].batch.size == 2
    assert list(batch.rows(1, 3)) == expected[1:]
    assert list(batch.pick([2, 0])) == [expected[2], expected[0]]
    assert list(batch.gather([batch.entries()[1], *batch.pick([0]).entries()])) == [expected[1], expected[0]]
    assert list(batch.rows(0, 0)) == []
    bare = to_fetch_without_headers(messages, 3, late=True)[0].batch
    assert bare.gather(bare.entries()).headers == [None] * 3
    with pytest.raises(AttributeError, match="nothing"):
        _ = batch.nothing  # type: ignore[attr-defined]


def test_late_columns_are_made_when_they_are_first_looked_at() -> None:
    """The headers of a record that a newer one replaces must not be read."""
    batch = to_fetch([record(0, 1)], 0, late=True)[0].batch
    assert not {"offsets", "timestamps", "values", "headers"} & _made(batch)
    assert (batch.ends, batch.deletes, batch.size) == ((1, 1), False, 1)
    assert not {"offsets", "timestamps", "values", "headers"} & _made(batch), "nor by a look at all of them together"
    assert batch.values is batch.values
    assert {"offsets", "timestamps", "values", "headers"} & _made(batch) == {"values"}


def _made(batch: RecordBatch) -> set[str]:
    made = set()
    for name in RecordBatch.__slots__:  # type: ignore[attr-defined]
        try:
            object.__getattribute__(batch, name)
        except AttributeError:
            continue
        made.add(name)
    return made
