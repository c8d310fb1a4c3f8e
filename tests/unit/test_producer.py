"""The producer on the in-memory cluster: keys (R1 to R3), headers, failures that always surface, transactions."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.cluster import LogWriter
from lvq_kafka.codecs import JSON, TEXT, Codec
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    ConfigError,
    DeliveryFailed,
    EncodeError,
    MessageTooLarge,
    MissingKey,
    OutcomeUnknown,
    StateError,
    TransportError,
    UnencodableKey,
)
from lvq_kafka.producing.producer import Message, Producer
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules

TOPIC = "prices"
REFUSED = DeliveryFailed("Not stored.", key=b"IBM", code="NOT_ENOUGH_REPLICAS")


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.topics.create(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
    return cluster


def stored(cluster: MemoryCluster) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
    return [(record.key, record.value, dict(record.headers)) for record in cluster.records(TOPIC)]


def only(cluster: MemoryCluster) -> Record:
    (record,) = cluster.records(TOPIC)
    return record


# -- reserved headers --------------------------------------------------------------------------------------------------

RESERVED = ("lvq-ttl", "lvq-not-before", "lvq-priority", "lvq-sort", "lvq-group")


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("key_header", ["ticker", None])
def test_r22_a_reserved_header_is_refused_and_named(cluster: MemoryCluster, name: str, key_header: str | None) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header=key_header)) as producer:
        for headers in ({name: 5}, [("a", "1"), (name, None)]):
            for call in (
                lambda headers: producer.send(Message(b"1", headers=headers, key="IBM")),
                lambda headers: producer.put("IBM", b"1", headers),
                lambda headers: producer.delete("IBM", headers),
            ):
                with pytest.raises(ConfigError, match=f"'{name}' is reserved") as caught:
                    call(headers)  # type: ignore[no-untyped-call]
                assert caught.value.options == (name,)
    assert stored(cluster) == []


def test_r10_a_message_says_its_ttl(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker", ttl=Ttl())) as producer:
        producer.put("IBM", b"1", ttl=1.5)
        producer.put("IBM", b"1", {"a": "b"}, ttl=2)
        producer.send(Message(b"1", headers={"ticker": "IBM"}, ttl=0.25))
        producer.send(Message(b"1", headers={"ticker": "IBM", "lvq-ttl": 1}))
        producer.put("IBM", b"1", {"lvq-ttl": 3_155_760_000_000})
    said = [headers["lvq-ttl"] for _, _, headers in stored(cluster)]
    assert said == [b"1500", b"2000", b"250", b"1", b"3155760000000"]


@pytest.mark.parametrize(
    ("message", "said", "options"),
    [
        (Message(b"1", ttl=0), "ttl=0 is not a number of seconds", ("ttl",)),
        (Message(b"1", ttl="5"), "ttl='5' is not a number of seconds", ("ttl",)),  # type: ignore[arg-type]
        *(
            (
                Message(b"1", {"lvq-ttl": said}),
                f"The header lvq-ttl={int(said)} is not a number of milliseconds from 1 to 3,155,760,000,000. Leave ",
                ("lvq-ttl",),
            )
            for said in (0, "000", 3_155_760_000_001, "999999999999999")
        ),
        (Message(b"1", {"lvq-ttl": "5s"}), "lvq-ttl is b'5s', not a number of milliseconds", ("lvq-ttl",)),
        (Message(b"1", {"lvq-ttl": 5}, ttl=5), "both ttl=5 and the header lvq-ttl", ("ttl", "lvq-ttl")),
    ],
)
def test_r10_a_ttl_that_makes_no_sense_is_refused(
    cluster: MemoryCluster, message: Message[bytes], said: str, options: tuple[str, ...]
) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker", ttl=Ttl())) as producer:
        with pytest.raises(ConfigError, match=said) as caught:
            producer.send(message)
        assert caught.value.options == options
    assert stored(cluster) == []


def test_r22_a_ttl_is_refused_where_the_queue_has_none(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        for call in (lambda: producer.put("IBM", b"1", ttl=5), lambda: producer.send(Message(b"1", ttl=5))):
            with pytest.raises(ConfigError, match=r"'lvq-ttl' is reserved.*ttl=Ttl\(\)"):
                call()
    assert stored(cluster) == []


NOW = 1_800_000_000.25
"""The time of `dated`, in seconds since the epoch."""


@pytest.fixture
def dated() -> MemoryCluster:
    cluster = MemoryCluster(clock=lambda: NOW)
    cluster.topics.create(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
    return cluster


def test_r11_a_message_says_from_when_on_it_counts(dated: MemoryCluster) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    with Producer(dated, rules(topic=TOPIC, key_header="ticker", max_delay=60.0)) as producer:
        producer.put("IBM", b"1", not_before=NOW + 1.5)
        producer.put("IBM", b"1", {"a": "b"}, not_before=NOW + 60)
        producer.put("IBM", b"1", not_before=datetime.fromtimestamp(NOW + 2, zone))
        producer.send(Message(b"1", headers={"ticker": "IBM"}, not_before=int(NOW)))
        producer.send(Message(b"1", key="IBM", not_before=datetime.fromtimestamp(NOW + 3, UTC)))
        producer.send(Message(b"1", headers={"ticker": "IBM", "lvq-not-before": 1_800_000_060_250}))
    assert [headers["lvq-not-before"] for _, _, headers in stored(dated)] == [
        b"1800000001750",
        b"1800000060250",
        b"1800000002250",
        b"1800000000000",
        b"1800000003250",
        b"1800000060250",
    ]


@pytest.mark.parametrize("not_before", [0, NOW - 1e9, NOW, datetime(1970, 1, 1, tzinfo=UTC)])
def test_r11_a_time_in_the_past_is_no_error(dated: MemoryCluster, not_before: float | datetime) -> None:
    with Producer(dated, rules(topic=TOPIC, key_header="ticker", max_delay=0.001)) as producer:
        producer.put("IBM", b"1", not_before=not_before).result()
    assert len(stored(dated)) == 1


def test_r11_a_scheduled_message_may_have_a_ttl_which_comes_last(dated: MemoryCluster) -> None:
    with Producer(dated, rules(topic=TOPIC, key_header="ticker", max_delay=60.0, ttl=Ttl())) as producer:
        producer.put("IBM", b"1", {"a": "b"}, ttl=5, not_before=NOW)
        producer.send(Message(b"1", {"ticker": "IBM"}, ttl=5, not_before=NOW))
    assert [[name for name, _ in record.headers][-2:] for record in dated.records(TOPIC)] == [
        ["lvq-not-before", "lvq-ttl"]
    ] * 2


NAIVE = datetime(2027, 1, 15, 8)


@pytest.mark.parametrize(
    ("message", "said", "options"),
    [
        (Message(b"1", not_before="5"), "not_before must be a point in time, not '5'", ("not_before",)),  # type: ignore[arg-type]
        (Message(b"1", not_before=True), "not_before must be a point in time, not True", ("not_before",)),
        (Message(b"1", not_before=math.nan), "not_before must be a point in time, not nan", ("not_before",)),
        (Message(b"1", not_before=math.inf), "not_before must be a point in time, not inf", ("not_before",)),
        (Message(b"1", not_before=-1), "not_before must be a point in time, not -1", ("not_before",)),
        (Message(b"1", not_before=10**400), "not_before must be a point in time, not 10", ("not_before",)),
        (Message(b"1", not_before=NAIVE), "not_before=2027-01-15 08:00:00 has no time zone", ("not_before",)),
        (Message(b"1", not_before=NAIVE.date()), "not_before must be a point in time", ("not_before",)),  # type: ignore[arg-type]
        (
            Message(b"1", not_before=datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))),
            "not_before must be a point in time, not -62",
            ("not_before",),
        ),
        (
            Message(b"1", not_before=NOW + 60.001),
            "not_before is 60.001 s ahead, but the queue's max_delay is 60 s",
            ("not_before", "max_delay"),
        ),
        (
            Message(b"1", not_before=datetime.fromtimestamp(NOW + 3600, UTC)),
            "not_before is 3,600.000 s ahead, but the queue's max_delay is 60 s",
            ("not_before", "max_delay"),
        ),
        (
            Message(b"1", {"lvq-not-before": 1_800_000_060_251}),
            "lvq-not-before is 60.001 s ahead, but the queue's max_delay is 60 s",
            ("lvq-not-before", "max_delay"),
        ),
        *(
            (
                Message(b"1", {"lvq-not-before": text}),
                "lvq-not-before is .*, not a number of milliseconds. Pass not_before instead",
                ("lvq-not-before",),
            )
            for text in ("soon", "", None, "-5", "1.5", "1" * 16, "١")
        ),
        (
            Message(b"1", {"lvq-not-before": 5}, not_before=5),
            "both not_before=5 and the header lvq-not-before",
            ("not_before", "lvq-not-before"),
        ),
    ],
)
def test_r11_a_time_that_makes_no_sense_is_refused(
    dated: MemoryCluster, message: Message[bytes], said: str, options: tuple[str, ...]
) -> None:
    with Producer(dated, rules(topic=TOPIC, key_header="ticker", max_delay=60.0)) as producer:
        calls: list[Callable[[], object]] = [lambda: producer.send(message)]
        calls += [lambda: producer.put("IBM", message.value, message.headers, not_before=message.not_before)]
        for call in calls:
            with pytest.raises(ConfigError, match=said) as caught:
                call()
            assert caught.value.options == options
    assert stored(dated) == []


def test_r11_the_limit_of_a_delay_goes_by_the_time_of_each_call() -> None:
    times = iter([NOW, NOW + 1])
    late = MemoryCluster(clock=lambda: next(times, NOW + 2))
    late.topics.create(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
    with Producer(late, rules(topic=TOPIC, key_header="ticker", max_delay=60.0)) as producer:
        with pytest.raises(ConfigError, match=r"60\.500 s ahead"):
            producer.put("IBM", b"1", not_before=NOW + 60.5)
        producer.put("IBM", b"1", not_before=NOW + 60.5).result()


def test_r22_no_message_is_scheduled_where_the_queue_does_not_allow_it(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker", ttl=Ttl())) as producer:
        for call in (
            lambda: producer.put("IBM", b"1", not_before=5),
            lambda: producer.send(Message(b"1", not_before=datetime.now(UTC))),
        ):
            with pytest.raises(ConfigError, match=r"'lvq-not-before' is reserved.*max_delay=3600.0") as caught:
                call()
            assert caught.value.options == ("not_before", "lvq-not-before")
    assert stored(cluster) == []


def test_r11_a_delete_is_not_scheduled(dated: MemoryCluster) -> None:
    with Producer(dated, rules(topic=TOPIC, key_header="ticker", max_delay=60.0)) as producer:
        for headers in ({"lvq-not-before": 1_800_000_001_000}, [("a", "b"), ("lvq-not-before", "5")]):
            with pytest.raises(ConfigError, match="lvq-not-before would schedule a delete") as caught:
                producer.delete("IBM", headers)  # type: ignore[arg-type]
            assert caught.value.options == ("lvq-not-before",)
        producer.delete("IBM", {"a": "b"})
    assert [(key, value) for key, value, _ in stored(dated)] == [(b"IBM", None)]


def test_a_message_shows_when_it_counts() -> None:
    assert repr(Message(b"1", key="IBM", ttl=5, not_before=7.5)) == "Message(b'1', key='IBM', ttl=5, not_before=7.5)"


def test_r22_the_marks_of_copied_messages_are_not_refused(cluster: MemoryCluster) -> None:
    marks = {"lvq-unkeyed": "1", "lvq-unreadable": "1", "lvq-dlq-source": "prices/0/1", "lvq-else": "1"}
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(Message(b"1", headers=marks))
    assert only(cluster).headers == tuple((name, value.encode()) for name, value in marks.items())


@pytest.mark.parametrize("name", [*RESERVED, "lvq-unkeyed", "lvq-unreadable"])
def test_r22_no_key_header_has_a_reserved_name(cluster: MemoryCluster, name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' cannot be the key header") as caught:
        Producer(cluster, rules(topic=TOPIC, key_header=name))
    assert caught.value.options == ("key_header",)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_the_key_header_is_the_record_key(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        receipt = producer.send(Message(b"118.50", headers={"source": "feed", "ticker": "IBM"}))
        assert receipt.result() == Position(TOPIC, 0, 0)
    record = only(cluster)
    assert (record.key, record.value) == (b"IBM", b"118.50")
    assert record.headers == (("source", b"feed"), ("ticker", b"IBM"))


def test_put_sets_the_key_header(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.put("IBM", b"1")
        producer.put("IBM", b"2", headers={"source": "feed"})
        producer.put("IBM", b"3", headers={"ticker": "IBM", "source": "feed"})
    both = {"ticker": b"IBM", "source": b"feed"}
    assert stored(cluster) == [(b"IBM", b"1", {"ticker": b"IBM"}), (b"IBM", b"2", both), (b"IBM", b"3", both)]


def test_delete_is_a_record_without_a_value_and_empty_bytes_is_a_value(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.delete("IBM")
        producer.put("IBM", b"")
    assert stored(cluster) == [(b"IBM", None, {"ticker": b"IBM"}), (b"IBM", b"", {"ticker": b"IBM"})]


@pytest.mark.parametrize(
    ("key", "wire"),
    [("", b""), (b"\xff", b"\xff"), ("Zoë", "Zoë".encode()), (1, b"1"), ("1", b"1"), (True, b"true"), (-5, b"-5")],
)
def test_r2_keys_are_bytes_on_the_wire_and_the_empty_string_is_a_key(
    cluster: MemoryCluster, key: Any, wire: bytes
) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(Message(b"v", headers={"ticker": key}))
        producer.put(key, b"v")
        producer.delete(key)
    assert [(record.key, record.headers) for record in cluster.records(TOPIC)] == [(wire, (("ticker", wire),))] * 3


@pytest.mark.parametrize("key", [1.5, ["IBM"], object(), "\ud800"])
def test_r2_other_types_are_refused_at_send(cluster: MemoryCluster, key: Any) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        with pytest.raises(UnencodableKey, match="header 'ticker' cannot be sent"):
            producer.send(Message(b"v", headers={"ticker": key}))
        with pytest.raises(UnencodableKey):
            producer.put(key, b"v")
    assert cluster.records(TOPIC) == []


@pytest.mark.parametrize("value", [["IBM"], object(), "\ud800"])
def test_r2_other_types_are_refused_as_other_headers_too(cluster: MemoryCluster, value: Any) -> None:
    refused = pytest.raises(UnencodableKey, match="header 'other' cannot be sent")
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer, refused:
        producer.put("IBM", b"v", headers={"other": value})
    assert cluster.records(TOPIC) == []


def test_r2_a_float_is_a_header_where_that_is_not_the_key(cluster: MemoryCluster) -> None:
    class Price(float):
        def __repr__(self) -> str:
            return "Price"

    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(Message(b"v", headers={"ticker": "IBM", "bid": 118.5, "ask": Price(0.1)}))
        producer.put("IBM", b"v", headers=[("bid", 1e22), ("ask", float("nan"))])
        with pytest.raises(UnencodableKey, match="header 'bid' cannot be sent") as caught:
            producer.send(Message(b"v", headers={"ticker": "IBM", "bid": [1]}))  # type: ignore[dict-item]
        assert "a number" in caught.value.hint
    assert [dict(record.headers) for record in cluster.records(TOPIC)] == [
        {"ticker": b"IBM", "bid": b"118.5", "ask": b"0.1"},
        {"ticker": b"IBM", "bid": b"1e+22", "ask": b"nan"},
    ]


def test_headers_can_be_filled_in_after_the_message_is_made(cluster: MemoryCluster) -> None:
    message, other = Message(b"v"), Message(b"w")
    message.headers["ticker"] = "IBM"  # type: ignore[index]
    assert message.headers is not other.headers
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(message)
    assert only(cluster).key == b"IBM"
    assert repr(other) == "Message(b'w')"


def test_the_last_of_repeated_key_headers_counts(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(Message(b"v", headers=[("ticker", "IBM"), ("x", None), ("ticker", "AAPL")]))
    assert only(cluster).key == b"AAPL"
    assert only(cluster).headers == (("ticker", b"IBM"), ("x", None), ("ticker", b"AAPL"))


def test_a_header_name_must_be_text(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        with pytest.raises(UnencodableKey, match="name of a header"):
            producer.send(Message(b"v", headers={1: "IBM"}))  # type: ignore[dict-item]
        with pytest.raises(UnencodableKey, match="name of a header"):
            producer.put("IBM", b"v", headers={"\ud800": "IBM"})
        producer.put("IBM", b"v", headers={"Börse": "Xetra"})
    assert dict(only(cluster).headers)["Börse"] == b"Xetra"
    with (
        Producer(cluster, rules(topic=TOPIC, key_header=None)) as producer,
        pytest.raises(UnencodableKey, match="name of a header"),
    ):
        producer.send(Message(b"v", headers={None: "IBM"}))  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="cannot be the key header"):
        Producer(cluster, rules(topic=TOPIC, key_header="\udfff"))


def test_key_and_key_header_may_both_be_given_when_they_agree(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.send(Message(b"v", headers={"ticker": "1"}, key=1))
        producer.send(Message(b"v", key="IBM"))
    assert stored(cluster) == [(b"1", b"v", {"ticker": b"1"}), (b"IBM", b"v", {"ticker": b"IBM"})]


def test_a_key_that_disagrees_with_the_key_header_is_an_error_that_names_both(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        with pytest.raises(ConfigError, match=r"'IBM'.*'ticker'.*'AAPL'") as caught:
            producer.send(Message(b"v", headers={"ticker": "AAPL"}, key="IBM"))
        assert caught.value.options == ("key", "ticker")
        with pytest.raises(ConfigError):
            producer.put("IBM", b"v", headers={"ticker": "AAPL"})
        with pytest.raises(ConfigError):
            producer.delete("IBM", headers={"ticker": "AAPL"})
    assert cluster.records(TOPIC) == []


def test_without_a_key_header_the_record_key_itself_is_the_key(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header=None)) as producer:
        producer.send(Message(b"1", headers={"ticker": "AAPL"}, key="IBM"))
        producer.put("IBM", b"2")
        producer.delete("IBM")
    assert stored(cluster) == [(b"IBM", b"1", {"ticker": b"AAPL"}), (b"IBM", b"2", {}), (b"IBM", None, {})]


@pytest.mark.parametrize("headers", [{}, {"ticker": None}, {"source": "feed"}])
@pytest.mark.parametrize("key_header", ["ticker", None])
def test_r1_a_message_without_a_key_passes_with_a_unique_key_and_a_mark(
    cluster: MemoryCluster, headers: Any, key_header: str | None
) -> None:
    for _ in range(2):
        with Producer(cluster, rules(topic=TOPIC, key_header=key_header)) as producer:
            producer.send(Message(b"v", headers=headers))
            producer.send(Message(b"v", headers=headers))
    records = cluster.records(TOPIC)
    assert len({record.key for record in records}) == 4
    for record in records:
        assert record.key is not None
        assert record.key.startswith(b"lvq-unkeyed:")
        assert dict(record.headers)["lvq-unkeyed"] == b"1"


@pytest.mark.parametrize("conflates", [True, False])
def test_r1_a_producer_warns_once_of_a_header_that_seems_to_be_meant_for_the_key_header(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, conflates: bool
) -> None:
    harmless: list[Any] = [{}, {"exchange": "NYSE"}, {"ticker": None}, {"ticker": "IBM", "tikcer": "IBM"}]
    copy = {"tikcer": "IBM", "lvq-unkeyed": "1"}
    queue = LastValueQueue.declare("q", key_header="ticker", conflate=conflates, cluster=cluster)
    caplog.clear()
    with queue.producer() as producer:
        for headers in [*harmless, copy]:
            producer.send(Message(b"v", headers=headers))
        assert not caplog.records
        for headers in ({"tikcer": "IBM"}, {"Ticker": "IBM"}):
            producer.send(Message(b"v", headers=headers))
    assert [record.getMessage() for record in caplog.records] == [
        "a message for q has no header ticker, so it has no key and replaces nothing: is its header tikcer meant for "
        "it?"
    ]


@pytest.mark.parametrize("key_header", ["ticker", None])
def test_r1_a_copy_of_a_message_without_a_key_has_none_either(cluster: MemoryCluster, key_header: str | None) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header=key_header)) as producer:
        producer.send(Message(b"v", headers={"source": "feed"}))
        [given] = cluster.records(TOPIC)
        producer.put(given.key, b"w", given.headers)
        producer.send(Message(b"x", headers=given.headers, key=given.key))
        producer.send(Message(b"y", headers=given.headers))
        producer.delete(given.key, given.headers)
    records = cluster.records(TOPIC)
    assert [record.value for record in records] == [b"v", b"w", b"x", b"y", None]
    assert {record.headers for record in records} == {given.headers}
    assert len({record.key for record in records}) == 2, "without its key it is another message"
    with Producer(cluster, rules(topic=TOPIC, key_header=key_header, keyless="refuse")) as producer:
        for copy in (
            lambda: producer.put(given.key, b"w", given.headers),
            lambda: producer.send(Message(b"w", headers=given.headers, key=given.key)),
        ):
            with pytest.raises(MissingKey, match="keyless"):
                copy()


@pytest.mark.parametrize(("key_header", "says"), [("ticker", "no header 'ticker'"), (None, "no key")])
def test_r1_a_queue_may_refuse_messages_without_a_key(
    cluster: MemoryCluster, key_header: str | None, says: str
) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header=key_header, keyless="refuse")) as producer:
        with pytest.raises(MissingKey, match=f"{says}.*keyless"):
            producer.send(Message(b"v"))
        with pytest.raises(MissingKey):
            producer.send(Message(b"v", headers={"ticker": None}))
    assert cluster.records(TOPIC) == []


@given(st.lists(st.tuples(st.sampled_from(["IBM", "AAPL"]), st.none() | st.binary(max_size=3)), max_size=20))
def test_the_last_value_of_each_key_is_the_one_sent_last(sends: list[tuple[str, bytes | None]]) -> None:
    cluster = MemoryCluster()
    cluster.topics.create(TOPIC, partitions=3, config={"cleanup.policy": "compact"})
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        for key, value in sends:
            _ = producer.delete(key) if value is None else producer.put(key, value)
    assert {record.key: record.value for record in cluster.records(TOPIC)} == {k.encode(): v for k, v in sends}


# -- values ------------------------------------------------------------------------------------------------------------


def test_values_go_through_the_codec(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker"), value=JSON) as producer:
        producer.put("IBM", {"bid": 1})
        producer.send(Message(None, headers={"ticker": "IBM"}))
    assert [record.value for record in cluster.records(TOPIC)] == [b'{"bid":1}', b"null"]


def test_a_value_that_cannot_be_written_is_refused_at_send(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker"), value=TEXT) as producer, pytest.raises(EncodeError):
        producer.put("IBM", b"bytes")  # type: ignore[arg-type]
    with (
        Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as raw,
        pytest.raises(EncodeError, match=r"delete\(\)"),
    ):
        raw.send(Message(None, headers={"ticker": "IBM"}))  # type: ignore[arg-type]
    assert cluster.records(TOPIC) == []


def test_a_codec_can_add_headers(cluster: MemoryCluster) -> None:
    class Marking(Codec[bytes]):
        def _write(self, value: bytes, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
            headers.append(("written-for", topic.encode()))
            return value

    with Producer(cluster, rules(topic=TOPIC, key_header="ticker"), value=Marking(bytes, bytes)) as producer:
        producer.put("IBM", b"v")
    assert dict(only(cluster).headers) == {"ticker": b"IBM", "written-for": b"prices"}


def test_a_message_shows_what_it_holds_and_shortens_a_long_value() -> None:
    assert repr(Message(b"1", headers={"ticker": "IBM"})) == "Message(b'1', headers={'ticker': 'IBM'})"
    assert repr(Message("x", key=7)) == "Message('x', key=7)"
    assert len(repr(Message(b"x" * 1000))) < 80


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failure_that_nobody_saw_is_raised_by_the_next_flush_and_only_once(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", REFUSED, times=3)
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        for _ in range(3):
            producer.put("IBM", b"v")
        with pytest.raises(DeliveryFailed) as caught:
            producer.flush()
        assert caught.value.key == b"IBM"
        assert caught.value.__notes__ == ["2 more messages for 'prices' were not stored."]
        producer.flush()


def test_a_failure_that_a_receipt_has_shown_is_not_raised_again(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", REFUSED, times=2)
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        with pytest.raises(DeliveryFailed):
            producer.put("IBM", b"v").result()
        assert isinstance(producer.put("IBM", b"v").exception(), DeliveryFailed)


def test_leaving_the_context_raises_what_nobody_saw(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", REFUSED)
    with pytest.raises(DeliveryFailed), Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        producer.put("IBM", b"v")


def test_close_raises_what_nobody_saw(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", MessageTooLarge("Too large.", code="MSG_SIZE_TOO_LARGE"))
    producer = Producer(cluster, rules(topic=TOPIC, key_header="ticker"))
    producer.put("IBM", b"v")
    with pytest.raises(MessageTooLarge):
        producer.close()


def test_an_exception_in_the_context_is_not_hidden_by_a_failed_send_but_told_of_it(cluster: MemoryCluster) -> None:
    cluster.fail_next("append", REFUSED)

    def put_and_fail() -> None:
        with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
            producer.put("IBM", b"v")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        put_and_fail()
    assert caught.value.__notes__ == ["The producer of 'prices' also reports: Not stored."]


def test_a_flush_that_runs_out_of_time_says_how_many_are_undecided_and_they_may_still_be_stored(
    cluster: MemoryCluster,
) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        cluster.disconnect()
        receipt = producer.put("IBM", b"v")
        with pytest.raises(OutcomeUnknown, match=r"1 message for 'prices' not acknowledged within 0\.01 s") as caught:
            producer.flush(0.01)
        assert isinstance(caught.value, TimeoutError)
        for ask in (receipt.result, receipt.exception):
            with pytest.raises(OutcomeUnknown, match=r"within 0\.01 s.*may still be stored"):
                ask(0.01)
        assert not receipt.done()
        cluster.reconnect()
        assert receipt.result(5) == Position(TOPIC, 0, 0)


def test_a_failure_that_comes_after_a_vain_wait_for_its_receipt_is_still_news(cluster: MemoryCluster) -> None:
    producer = Producer(cluster, rules(topic=TOPIC, key_header="ticker"))
    cluster.disconnect()
    receipt = producer.put("IBM", b"v")
    with pytest.raises(OutcomeUnknown):
        receipt.result(0)
    cluster.fail_next("append", REFUSED)
    cluster.reconnect()
    with pytest.raises(DeliveryFailed):
        producer.close()


@pytest.mark.parametrize("size", [5_000, 2_000_000], ids=["for the topic", "for the client"])
def test_a_message_that_is_too_large_is_a_failed_delivery_and_names_its_key(cluster: MemoryCluster, size: int) -> None:
    cluster.topics.create("small", partitions=1, config={"max.message.bytes": "1000"})
    with Producer(cluster, rules(topic="small", key_header="ticker")) as producer:
        with pytest.raises(DeliveryFailed) as caught:
            producer.put("IBM", b"v" * size).result()
        assert isinstance(caught.value, MessageTooLarge)
        assert caught.value.key == b"IBM"


def test_a_transaction_that_takes_too_long_is_aborted_so_its_outcome_is_known(cluster: MemoryCluster) -> None:
    producer = Producer(cluster, rules(topic=TOPIC, key_header="ticker"), transactional_id="feed")

    def put_into_an_outage() -> None:
        with producer.transaction(0.01):
            cluster.disconnect()
            producer.put("IBM", b"v")

    with pytest.raises(BrokerUnavailable, match="1 message for 'prices' not acknowledged within"):
        put_into_an_outage()
    cluster.reconnect()
    producer.close()


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_a_send_can_be_awaited(cluster: MemoryCluster) -> None:
    async def use() -> None:
        async with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
            assert await producer.send(Message(b"1", headers={"ticker": "IBM"})) == Position(TOPIC, 0, 0)
            cluster.fail_next("append", REFUSED)
            with pytest.raises(DeliveryFailed):
                await producer.put("IBM", b"2")
            cluster.disconnect()
            asyncio.get_running_loop().call_later(0.01, cluster.reconnect)
            positions = await asyncio.gather(producer.put("IBM", b"3"), producer.delete("MSFT"))
            assert positions == [Position(TOPIC, 0, 1), Position(TOPIC, 0, 2)]

    asyncio.run(asyncio.wait_for(use(), 10))


def test_a_task_that_is_cancelled_while_it_awaits_a_send_does_not_take_it_back(cluster: MemoryCluster) -> None:
    async def use() -> None:
        async with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
            cluster.disconnect()
            receipt = producer.put("IBM", b"1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receipt, 0.01)
            cluster.reconnect()
            assert await receipt == Position(TOPIC, 0, 0)

    asyncio.run(asyncio.wait_for(use(), 10))


def test_leaving_async_with_flushes_without_holding_up_the_loop_and_raises_what_nobody_saw(
    cluster: MemoryCluster,
) -> None:
    async def use() -> None:
        async with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
            cluster.disconnect()
            producer.put("IBM", b"1")
            cluster.fail_next("append", REFUSED)
            asyncio.get_running_loop().call_later(0.01, cluster.reconnect)  # would never run if the loop were blocked

    with pytest.raises(DeliveryFailed):
        asyncio.run(asyncio.wait_for(use(), 10))


def test_the_writer_is_opened_as_the_options_say(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    def writer(**options: Any) -> LogWriter:
        opened.append(options)
        return MemoryCluster().writer()

    monkeypatch.setattr(cluster, "writer", writer)
    Producer(cluster, rules(topic=TOPIC, key_header="ticker"), transactional_id="feed", max_block=2.5).close()
    assert opened == [{"transactional_id": "feed", "max_block": 2.5}]


def test_a_closed_producer_refuses_everything_but_another_close(cluster: MemoryCluster) -> None:
    producer = Producer(cluster, rules(topic=TOPIC, key_header="ticker"))
    producer.close()
    producer.close()
    with pytest.raises(Closed):
        producer.put("IBM", b"v")
    with pytest.raises(Closed):
        producer.delete("IBM")
    with pytest.raises(Closed, match="The producer of 'prices' is closed"):
        producer.send(Message(b"v", headers={"ticker": "IBM"}))
    again = Producer(cluster, rules(topic=TOPIC, key_header="ticker"), transactional_id="feed")
    again.close()
    with pytest.raises(Closed, match="The producer of 'prices' is closed"), again.transaction():
        pytest.fail("nothing can begin")


def test_a_bare_value_is_refused_with_the_type_that_send_takes(cluster: MemoryCluster) -> None:
    class Odd(dict[str, str]):
        def items(self) -> Any:
            raise AttributeError("mine")

    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:
        with pytest.raises(TypeError, match=r"send takes a Message, not 'x'; put\(key, value\) is the shorthand"):
            producer.send("x")  # type: ignore[arg-type]
        with pytest.raises(AttributeError, match="mine"):  # unchanged when a message's headers raise it
            producer.send(Message(b"v", headers=Odd()))


def test_threads_may_share_a_producer(cluster: MemoryCluster) -> None:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer:

        def send(name: int) -> None:
            for _ in range(50):
                producer.put(name, b"v")
                producer.send(Message(b"unkeyed"))

        threads = [threading.Thread(target=send, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    keys = [record.key for record in cluster.records(TOPIC)]
    assert len(keys) == 400
    assert len(set(keys)) == 204


# -- transactions ------------------------------------------------------------------------------------------------------


def send_and_fail(producer: Producer[bytes]) -> None:
    with producer.transaction():
        producer.put("IBM", b"1")
        raise ZeroDivisionError


@pytest.fixture
def transactional(cluster: MemoryCluster) -> Iterator[Producer[bytes]]:
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker"), transactional_id="feed") as producer:
        yield producer


def test_a_transaction_becomes_visible_at_its_end(cluster: MemoryCluster, transactional: Producer[bytes]) -> None:
    with transactional.transaction() as same:
        assert same is transactional
        transactional.put("IBM", b"1")
        transactional.put("AAPL", b"2")
        assert cluster.records(TOPIC) == []
    assert [record.value for record in cluster.records(TOPIC)] == [b"1", b"2"]


def test_an_exception_aborts_the_transaction(cluster: MemoryCluster, transactional: Producer[bytes]) -> None:
    with pytest.raises(ZeroDivisionError):
        send_and_fail(transactional)
    with transactional.transaction():
        transactional.put("IBM", b"2")
    assert [record.value for record in cluster.records(TOPIC)] == [b"2"]


def test_a_send_that_failed_aborts_the_transaction(cluster: MemoryCluster, transactional: Producer[bytes]) -> None:

    def send() -> None:
        with transactional.transaction():
            transactional.put("IBM", b"1")
            cluster.fail_next("append", REFUSED)
            transactional.put("IBM", b"2")

    with pytest.raises(DeliveryFailed):
        send()
    assert cluster.records(TOPIC) == []
    transactional.close()


def test_sends_that_an_abort_withdraws_are_not_reported_as_failures(
    cluster: MemoryCluster, transactional: Producer[bytes]
) -> None:
    cluster.fail_next("append", REFUSED)
    with pytest.raises(ZeroDivisionError):
        send_and_fail(transactional)
    transactional.close()


def test_a_transactional_producer_sends_in_transactions_only(transactional: Producer[bytes]) -> None:
    with pytest.raises(StateError):
        transactional.put("IBM", b"1")


def test_a_transaction_in_a_transaction_is_an_error_and_aborts_the_outer_one(
    cluster: MemoryCluster, transactional: Producer[bytes]
) -> None:
    def nest() -> None:
        with transactional.transaction():
            transactional.put("IBM", b"1")
            with transactional.transaction():
                pytest.fail("entered")

    with pytest.raises(StateError):
        nest()
    assert cluster.records(TOPIC) == []


def test_a_producer_without_a_transactional_id_has_no_transactions(cluster: MemoryCluster) -> None:
    with (
        Producer(cluster, rules(topic=TOPIC, key_header="ticker")) as producer,
        pytest.raises(StateError, match="transactional"),
        producer.transaction(),
    ):
        pytest.fail("entered")


def test_a_newer_producer_with_the_same_transactional_id_fences_this_one_off(
    cluster: MemoryCluster, transactional: Producer[bytes]
) -> None:
    def send_and_be_fenced() -> None:
        with transactional.transaction():
            transactional.put("IBM", b"old")
            successors.append(Producer(cluster, rules(topic=TOPIC, key_header="ticker"), transactional_id="feed"))

    successors: list[Producer[bytes]] = []
    with pytest.raises(TransportError) as caught:
        send_and_be_fenced()
    successor = successors[0]
    assert caught.value.code == "_FENCED"
    assert not hasattr(caught.value, "__notes__")
    with successor, successor.transaction():
        successor.put("IBM", b"new")
    assert [record.value for record in cluster.records(TOPIC)] == [b"new"]
