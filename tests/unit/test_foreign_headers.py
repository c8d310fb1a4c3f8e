"""Headers of other systems that schedule messages and name groups: translated, or reported (R22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lvq_kafka import Groups, LastValueQueue, Message, TopicSpec
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.queue.foreign_headers import DELAY_HEADERS, GROUP_HEADERS, TIME_HEADERS, ForeignHeaders
from lvq_kafka.errors import ConfigError
from lvq_kafka.producing.producer import Producer
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare
from tests.waiting import eventually

TOPIC = "prices"
NOW = 1_800_000_000.25
DUE = 1_800_000_007_250
OWN = {**dict.fromkeys(TIME_HEADERS, DUE), **dict.fromkeys(DELAY_HEADERS, 7_000)}
"""By header, the value that makes a message due at `DUE`."""


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(clock=lambda: NOW)


def queue_of(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    return declare(cluster, TOPIC, **options)


def stored(cluster: MemoryCluster) -> list[tuple[tuple[str, bytes | None], ...]]:
    return [record.headers for record in cluster.records(TOPIC)]


def sent(producer: Producer[str], headers: dict[str, Any], **options: Any) -> None:
    """Send the same message in each way that there is."""
    producer.put("IBM", "1", headers, **options)
    producer.send(Message("1", {"ticker": "IBM", **headers}, **options))
    producer.send(Message("1", [*headers.items()], "IBM", **options))


def about_headers(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "in other systems" in message]


@pytest.mark.parametrize("header", sorted(OWN))
def test_r22_a_producer_translates_when_a_message_counts(
    cluster: MemoryCluster, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    with queue_of(cluster, max_delay=60.0).producer() as producer:
        sent(producer, {"x": "y", header: OWN[header], "z": None})
        sent(producer, {header: str(OWN[header])}, ttl=None)
    by_header = [dict(headers) for headers in stored(cluster)]
    assert {headers["lvq-not-before"] for headers in by_header} == {b"%d" % DUE}
    assert not any(header in headers for headers in by_header)
    assert by_header[0] == {"x": b"y", "lvq-not-before": b"%d" % DUE, "z": None, "ticker": b"IBM"}
    assert about_headers(caplog) == []


@pytest.mark.parametrize("header", sorted(GROUP_HEADERS))
@pytest.mark.parametrize("own", ["lvq-group", "team"])
def test_r22_a_producer_translates_the_group_of_a_message(cluster: MemoryCluster, header: str, own: str) -> None:
    groups = Groups(header=own, placement="group")
    with queue_of(cluster, groups=groups, spec=TopicSpec(partitions=5)).producer() as producer:
        sent(producer, {header: "g"})
        producer.delete("IBM", {header: "g"})
        producer.delete("SAP", {header: None})
    group = [(record.partition, dict(record.headers)[own], record.key) for record in cluster.records(TOPIC)]
    home = home_partition(b"g", 5)
    assert sorted(group, key=str) == sorted(
        [*[(home, b"g", b"IBM")] * 4, (home_partition(b"SAP", 5), None, b"SAP")], key=str
    )
    assert not any(header in dict(headers) for headers in stored(cluster))


def test_r22_a_queue_that_is_grouped_by_the_header_of_jms_takes_it_as_it_is(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = queue_of(cluster, groups=Groups(header="JMSXGroupID"))
    with queue.producer() as producer, queue.view(), queue.consumer():
        sent(producer, {"JMSXGroupID": "g"})
        producer.put("IBM", "1", {"_AMQ_GROUP_ID": "g"})
        producer.put("IBM", "1", {"_AMQ_GROUP_ID": "g", "JMSXGroupID": "g"})
    assert {dict(headers).get("JMSXGroupID") for headers in stored(cluster)} == {b"g"}
    assert {len(headers) for headers in stored(cluster)} == {2}
    assert about_headers(caplog) == []


@pytest.mark.parametrize(
    ("headers", "own", "options", "said"),
    [
        ({"_AMQ_SCHED_DELIVERY": "soon"}, {}, ("_AMQ_SCHED_DELIVERY",), "_AMQ_SCHED_DELIVERY is b'soon', not a number"),
        ({"x-opt-delivery-delay": None}, {}, ("x-opt-delivery-delay",), "x-opt-delivery-delay is None, not a number"),
        ({"x-opt-delivery-delay": -1}, {}, ("x-opt-delivery-delay",), "x-opt-delivery-delay is b'-1', not a number"),
        ({"x-opt-delivery-delay": 60_001}, {}, ("x-opt-delivery-delay", "max_delay"), "x-opt-delivery-delay is 60.001"),
        ({"x-opt-delivery-time": 2 * DUE}, {}, ("x-opt-delivery-time", "max_delay"), "x-opt-delivery-time is 1,800"),
        (
            {"JMSXGroupID": " "},
            {},
            ("The header JMSXGroupID",),
            "The header JMSXGroupID must be text that is not blank",
        ),
        (
            {"x-opt-delivery-time": DUE},
            {"not_before": DUE / 1000},
            ("not_before", "x-opt-delivery-time"),
            "both not_before=1800000007.25 and the header x-opt-delivery-time",
        ),
        (
            {"_AMQ_GROUP_ID": "g"},
            {"group": "g"},
            ("group", "_AMQ_GROUP_ID"),
            "both group='g' and the header _AMQ_GROUP_ID",
        ),
        (
            {"lvq-not-before": DUE, "x-opt-delivery-time": DUE + 1},
            {},
            ("lvq-not-before", "x-opt-delivery-time"),
            "the headers lvq-not-before and x-opt-delivery-time, and they disagree",
        ),
        (
            {"JMSXGroupID": "g", "_AMQ_GROUP_ID": "h"},
            {},
            ("JMSXGroupID", "_AMQ_GROUP_ID"),
            "the headers JMSXGroupID and _AMQ_GROUP_ID, and they disagree",
        ),
    ],
)
def test_r22_headers_that_make_no_sense_or_clash_are_refused_and_named_as_they_were_given(
    cluster: MemoryCluster, headers: dict[str, Any], own: dict[str, Any], options: tuple[str, ...], said: str
) -> None:
    with queue_of(cluster, max_delay=60.0, groups=Groups()).producer() as producer:
        calls: list[Callable[[], object]] = [
            lambda: producer.put("IBM", "1", headers, **own),
            lambda: producer.send(Message("1", headers, "IBM", **own)),
        ]
        if "not_before" not in own:
            calls.append(lambda: producer.delete("IBM", {**headers}, **own))
        for call in calls[: 2 if "time" in options[-1] or "delay" in options[-1] else 3]:
            with pytest.raises(ConfigError) as caught:
                call()
            assert said in str(caught.value)
            assert caught.value.options == options
    assert stored(cluster) == []


def test_r22_headers_that_agree_are_one(cluster: MemoryCluster) -> None:
    with queue_of(cluster, max_delay=60.0).producer() as producer:
        sent(producer, {"lvq-not-before": DUE, "_AMQ_SCHED_DELIVERY": DUE, "x-opt-delivery-delay": 7_000})
    assert [sorted(headers) for headers in stored(cluster)] == [
        [("lvq-not-before", b"%d" % DUE), ("ticker", b"IBM")]
    ] * 3


def test_r22_a_header_of_another_system_does_not_schedule_a_delete(cluster: MemoryCluster) -> None:
    with queue_of(cluster, max_delay=60.0).producer() as producer:
        with pytest.raises(ConfigError, match="The header x-opt-delivery-delay would schedule a delete") as caught:
            producer.delete("IBM", {"x-opt-delivery-delay": 5})
        assert caught.value.options == ("x-opt-delivery-delay",)


def test_r22_a_producer_says_once_that_a_header_has_no_effect_and_what_would_give_it_one(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with queue_of(cluster).producer() as producer:
        for header in ("JMSXGroupID", "_AMQ_GROUP_ID", "x-qpid-not-valid-before", "x-opt-delivery-delay"):
            sent(producer, {header: "whatever"})
        producer.delete("IBM", {"JMSXGroupID": "g"})
    assert about_headers(caplog) == [
        "the header JMSXGroupID in prices names the group of a message in other systems, and is ignored here: declare "
        'the queue with groups=Groups(header="JMSXGroupID")',
        "the header x-qpid-not-valid-before in prices schedules a message in other systems, and is ignored here: "
        "declare the queue with max_delay=..., for example max_delay=3600.0",
    ]
    assert [dict(headers).get("JMSXGroupID") for headers in stored(cluster)[:3]] == [b"whatever"] * 3


READERS: dict[str, Callable[[LastValueQueue[str]], Any]] = {
    "view": LastValueQueue.view,
    "browser": LastValueQueue.browser,
    "consumer": LastValueQueue.consumer,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("key_header", ["ticker", None])
@pytest.mark.parametrize(
    ("options", "header", "remedy"),
    [
        ({}, "x-opt-delivery-time", "declare the queue with max_delay=..., for example max_delay=3600.0"),
        ({}, "JMSXGroupID", 'declare the queue with groups=Groups(header="JMSXGroupID")'),
        (
            {"max_delay": 60.0},
            "x-opt-delivery-delay",
            "write lvq-not-before in its place, as producers of this library",
        ),
        (
            {"groups": Groups(header="team")},
            "_AMQ_GROUP_ID",
            "write team in its place, as producers of this library do, or declare the queue with groups=Groups(",
        ),
    ],
)
def test_r22_a_reader_says_once_what_another_program_asks_for(
    cluster: MemoryCluster,
    caplog: pytest.LogCaptureFixture,
    reader: str,
    key_header: str | None,
    options: dict[str, Any],
    header: str,
    remedy: str,
) -> None:
    queue = queue_of(cluster, key_header=key_header, **options)
    for key in (b"a", b"b"):
        named = [("ticker", key)] if key_header else []
        cluster.write(TOPIC, key, b"1", [*named, (header, b"5")])
    with READERS[reader](queue):
        eventually(lambda: about_headers(caplog) != [])
        cluster.write(TOPIC, b"c", b"1", [(header, b"5")])
        with queue.view() as view:  # by then, the others have read it, too
            assert len(view) == 3
    mine = [
        record.getMessage()
        for record in caplog.records
        if record.name == ("lvq_kafka.consumer" if reader == "consumer" else "lvq_kafka.follower")
        and "in other systems" in record.getMessage()
    ]
    assert len(mine) == (1 if reader == "consumer" else 2)  # the second is that of the other view
    assert mine[0].startswith(f"the header {header} in prices ")
    assert f"is ignored here: {remedy}" in mine[0]


@pytest.mark.parametrize("header", ["JMSXGroupID", "x-opt-delivery-time"])
def test_r22_a_header_that_names_the_key_or_the_rank_is_not_another_systems(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, header: str
) -> None:
    queue = queue_of(cluster, key_header=header, order="sorted", sort_header="_AMQ_GROUP_ID", groups=Groups())
    with queue.producer() as producer, queue.view() as view, queue.consumer():
        producer.put("IBM", "1", sort="7")
        producer.send(Message("1", {header: "SAP", "_AMQ_GROUP_ID": "5"}))
        view.barrier()
        assert set(view) == {"IBM", "SAP"}
    assert about_headers(caplog) == []
    assert [dict(headers).keys() for headers in stored(cluster)] == [{header, "_AMQ_GROUP_ID"}] * 2


def test_once_reported_headers_are_looked_at_no_more() -> None:
    class Counted(list[Any]):
        looks = 0

        def __iter__(self) -> Any:
            Counted.looks += 1
            return super().__iter__()

    foreign = ForeignHeaders(TOPIC, scheduled=False, group_header=None)
    batch = Counted([[("JMSXGroupID", b"g"), ("x-opt-delivery-time", b"5")], None])
    foreign.check(batch)
    assert len(foreign.pop_warnings()) == 2
    seen = Counted.looks
    foreign.check(batch)
    assert (Counted.looks, foreign.pop_warnings()) == (seen, [])
