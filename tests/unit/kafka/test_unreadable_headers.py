"""Header names that are not UTF-8: clients in other languages may write them, but the client cannot read them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.mismatch import choose_keys
from lvq_kafka.core.log.records import UNREADABLE, Headers, RecordBatch
from lvq_kafka.kafka import KafkaCluster
from tests.effort import examples
from tests.raw_records import UNREADABLE_NAME, RawRecord, produce_raw
from tests.unit.kafka.mock_cluster import MockCluster
from tests.unit.kafka.mock_queue import TOPIC, MockQueue, NewQueue, take, whatever_its_mood

BAD = ((b"t", b"k"), (UNREADABLE_NAME, b"x"))
GOOD = [("t", b"k")]


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    mock = MockCluster()
    mock.create_topic(TOPIC)
    yield mock
    mock.close()


def write(mock: MockCluster, kinds: str) -> None:
    """Write a record for each letter: its headers are readable (g), unreadable (b), or missing (-)."""
    headers = {"g": ((b"t", b"k"),), "b": BAD, "-": ()}
    records = [RawRecord(b"k", b"%d" % at, headers[kind]) for at, kind in enumerate(kinds)]
    produce_raw(mock.bootstrap_servers, TOPIC, *records)


def reader(mock: MockCluster, *, late: bool) -> LogReader:
    return KafkaCluster(mock.bootstrap_servers).reader(TOPIC, {0: 0}, late=late)


def poll(reader: LogReader, count: int) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    while sum(map(len, batches)) < count:
        batches.append(reader.poll(20).batch)
    return batches


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kinds", ["b", "gbg", "bb", "b-b", "gggb", "bggg", "-gb-bgb"])
def test_headers_that_cannot_be_read_do_not_keep_others_from_being_read(
    mock: MockCluster, kinds: str, late: bool
) -> None:
    write(mock, kinds)
    expected = [{"g": GOOD, "b": UNREADABLE, "-": None}[kind] for kind in kinds]
    with closing(reader(mock, late=late)) as one:
        batches = poll(one, len(kinds))
        assert [headers for batch in batches for headers in batch.headers] == expected
        for batch in batches:
            for _ in range(2):  # the second time, the client would return a null pointer
                again = batch.gather(batch.entries())
                assert list(again) == list(batch)
                assert all(mine is UNREADABLE for mine in again.headers if mine == UNREADABLE)
        picked = [batch.pick(range(len(batch))) for batch in batches]
        assert sum(choose_keys(batch, TOPIC, "t", "record")[1] for batch in picked) == kinds.count("b")


ANY = st.one_of(
    st.binary(max_size=8), st.sampled_from([b"", b"t", b"k", b"a\0b", b"\xff", b"\xed\xa0\x80", b"\xef\xbf\xbd"])
)
HEADER = st.tuples(ANY, st.one_of(st.none(), ANY))
SOME = st.one_of(st.lists(HEADER, max_size=4), st.builds(lambda header: [header] * 500, HEADER))
RECORDS = st.lists(st.builds(RawRecord, st.one_of(st.none(), ANY), st.one_of(st.none(), ANY), SOME), min_size=1)


def as_read(record: RawRecord) -> tuple[bytes | None, bytes | None, Headers]:
    """Return the headers to expect of a record: a name ends at its first NUL, because the client uses C strings."""
    names = [name.partition(b"\0")[0] for name, _ in record.headers]
    try:
        headers = tuple((name.decode(), value) for name, (_, value) in zip(names, record.headers))
    except UnicodeDecodeError:
        headers = UNREADABLE
    return record.key, record.value, headers


@settings(max_examples=examples(40))
@given(st.lists(RECORDS, min_size=1, max_size=3), st.booleans())
def test_records_are_read_as_they_are_whatever_their_bytes(batches: list[list[RawRecord]], late: bool) -> None:
    mock = MockCluster()
    mock.create_topic(TOPIC)
    for batch in batches:
        produce_raw(mock.bootstrap_servers, TOPIC, *batch)
    written = [record for batch in batches for record in batch]
    with closing(reader(mock, late=late)) as one:
        found = [record for batch in poll(one, len(written)) for record in batch]
    mock.close()
    assert [(record.key, record.value, record.headers) for record in found] == list(map(as_read, written))


def test_the_log_names_the_first_record_and_says_it_once(mock: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    write(mock, "gbgb")
    with closing(reader(mock, late=False)) as one, caplog.at_level(logging.WARNING, "lvq_kafka"):
        poll(one, 4)
        write(mock, "b")
        poll(one, 1)
    (said,) = caplog.messages
    assert f"{TOPIC}/0/1" in said
    assert "not UTF-8" in said


def test_a_reader_without_headers_does_not_look_at_them(mock: MockCluster, caplog: pytest.LogCaptureFixture) -> None:
    write(mock, "bg")
    with closing(KafkaCluster(mock.bootstrap_servers).reader(TOPIC, {0: 0}, headers=False)) as one:
        assert [headers for batch in poll(one, 2) for headers in batch.headers] == [None, None]
    assert not caplog.messages


@whatever_its_mood
def test_a_consumer_is_handed_the_message_and_can_be_done_with_it(new_queue: NewQueue) -> None:
    queue: MockQueue = new_queue()
    queue.send("before")
    produce_raw(queue.mock.bootstrap_servers, TOPIC, RawRecord(b"evil", b"v", BAD))
    consumer = queue.open()
    assert take(consumer).key == "before"
    delivery = take(consumer)
    assert (delivery.key, delivery.value, delivery.headers) == ("evil", "v", UNREADABLE)
    queue.send("after")
    produce_raw(queue.mock.bootstrap_servers, TOPIC, RawRecord(b"live", b"v", BAD))
    assert [take(consumer).key for _ in range(2)] == ["after", "live"]
    delivery.ack(wait=True, timeout=20)
