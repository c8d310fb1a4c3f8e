"""Producers of queues with an order by rank: priorities and sort keys (R20, R22)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lvq_kafka import LastValueQueue, Message, Producer, Ttl
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules

TOPIC = "prices"


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def declare(cluster: MemoryCluster, **options: Any) -> LastValueQueue[bytes]:
    return LastValueQueue.declare(TOPIC, key_header="ticker", cluster=cluster, **options)


def headers(cluster: MemoryCluster) -> list[dict[str, bytes | None]]:
    return [dict(record.headers) for record in cluster.records(TOPIC)]


def test_r20_a_message_says_its_priority_in_any_way(cluster: MemoryCluster) -> None:
    with declare(cluster, order="priority", priorities=2).producer() as producer:
        producer.put("IBM", b"1", priority=0)
        producer.put("IBM", b"1", {"a": "b"}, priority=9)
        producer.put("IBM", b"1", {"lvq-priority": 8})
        producer.put("IBM", b"1", {"lvq-priority": "7"})
        producer.send(Message(b"1", key="IBM", priority=6))
        producer.send(Message(b"1", headers={"ticker": "IBM"}, priority=5))
        producer.put("IBM", b"1")
    assert [said.get("lvq-priority") for said in headers(cluster)] == [b"0", b"9", b"8", b"7", b"6", b"5", None]
    assert {said["ticker"] for said in headers(cluster)} == {b"IBM"}


def test_r20_a_message_says_its_sort_key_in_any_way(cluster: MemoryCluster) -> None:
    with declare(cluster, order="sorted").producer() as producer:
        producer.put("IBM", b"1", sort="ü")
        producer.put("IBM", b"1", sort="")
        producer.put("IBM", b"1", {"lvq-sort": "b"})
        producer.send(Message(b"1", key="IBM", sort="c"))
        producer.put("IBM", b"1")
    assert [said.get("lvq-sort") for said in headers(cluster)] == ["ü".encode(), b"", b"b", b"c", None]


def test_r20_a_sort_header_may_be_an_ordinary_header(cluster: MemoryCluster) -> None:
    with declare(cluster, order="sorted", sort_header="price").producer() as producer:
        producer.put("IBM", b"1", sort="118")
        producer.put("IBM", b"1", {"price": "119"})
        producer.send(Message(b"1", headers={"ticker": "IBM", "price": 120}))
    assert [said["price"] for said in headers(cluster)] == [b"118", b"119", b"120"]


def test_a_rank_goes_with_a_ttl_and_a_schedule(cluster: MemoryCluster) -> None:
    with declare(cluster, order="priority", ttl=Ttl(), max_delay=60.0).producer() as producer:
        producer.put("IBM", b"1", ttl=5, not_before=7, priority=1)
    (record,) = cluster.records(TOPIC)
    assert record.headers == (
        ("ticker", b"IBM"),
        ("lvq-priority", b"1"),
        ("lvq-not-before", b"7000"),
        ("lvq-ttl", b"5000"),
    )


def test_messages_of_standard_queues_have_ranks_too(cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare(TOPIC, key_header=None, conflate=False, order="priority", cluster=cluster)
    with queue.producer() as producer:
        producer.send(Message(b"1", priority=3))
        with pytest.raises(ConfigError, match="send"):
            producer.put("IBM", b"1", priority=3)
    assert headers(cluster) == [{"lvq-priority": b"3"}]


def test_ranks_in_transactions_and_in_asyncio(cluster: MemoryCluster) -> None:
    queue = declare(cluster, order="sorted")
    with queue.producer(transactional_id="t") as producer, producer.transaction():
        producer.put("IBM", b"1", sort="a")

    async def send() -> None:
        async with await queue.producer_async() as producer:
            await producer.send(Message(b"1", key="IBM", sort="b"))
            await producer.put("IBM", b"1", sort="c")

    asyncio.run(send())
    assert [said["lvq-sort"] for said in headers(cluster) if said] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("priority", [-1, 10, 10**30, "7", b"7", 7.0, True, (7,)])
def test_a_priority_that_is_none_is_refused(cluster: MemoryCluster, priority: Any) -> None:
    with declare(cluster, order="priority").producer() as producer:
        for call in (
            lambda: producer.put("IBM", b"1", priority=priority),
            lambda: producer.send(Message(b"1", key="IBM", priority=priority)),
        ):
            with pytest.raises(ConfigError, match="is not a whole number from 0 to 9") as caught:
                call()
            assert caught.value.options == ("priority",)
    assert headers(cluster) == []


@pytest.mark.parametrize("sort", [7, b"a", True, ["a"], "\ud800"])
def test_a_sort_key_that_is_not_text_is_refused(cluster: MemoryCluster, sort: Any) -> None:
    with declare(cluster, order="sorted").producer() as producer:
        with pytest.raises(ConfigError, match="is not text that UTF-8 can encode") as caught:
            producer.put("IBM", b"1", sort=sort)
        assert caught.value.options == ("sort",)
    assert headers(cluster) == []


@pytest.mark.parametrize(
    ("order", "given", "said", "options"),
    [
        ("priority", {"lvq-priority": None}, "is None, not a digit from 0 to 9. Pass priority", ("lvq-priority",)),
        ("priority", {"lvq-priority": "10"}, "not a digit from 0 to 9", ("lvq-priority",)),
        ("priority", {"lvq-priority": "٣"}, "not a digit from 0 to 9", ("lvq-priority",)),
        ("priority", {"lvq-sort": "a"}, "'lvq-sort' is reserved.*order=\"sorted\"", ("lvq-sort",)),
        ("sorted", {"lvq-sort": None}, "is None, not text in UTF-8. Pass sort", ("lvq-sort",)),
        ("sorted", {"lvq-sort": b"\xff"}, "not text in UTF-8", ("lvq-sort",)),
        ("sorted", {"lvq-priority": 4}, "'lvq-priority' is reserved.*order=\"priority\"", ("lvq-priority",)),
        ("tail", {"lvq-priority": 4}, "'lvq-priority' is reserved", ("lvq-priority",)),
        ("in-place", {"lvq-sort": 4}, "'lvq-sort' is reserved", ("lvq-sort",)),
    ],
)
def test_r22_a_header_that_means_nothing_is_refused(
    cluster: MemoryCluster, order: str, given: dict[str, Any], said: str, options: tuple[str, ...]
) -> None:
    with declare(cluster, order=order).producer() as producer:
        for call in (
            lambda: producer.put("IBM", b"1", given),
            lambda: producer.send(Message(b"1", {"ticker": "IBM", **given})),
        ):
            with pytest.raises(ConfigError, match=said) as caught:
                call()
            assert caught.value.options == options
    assert headers(cluster) == []


def test_r22_a_rank_is_refused_where_the_order_is_another(cluster: MemoryCluster) -> None:
    refused: list[tuple[str, dict[str, Any]]] = [
        ("tail", {"priority": 4}),
        ("tail", {"sort": "a"}),
        ("in-place", {"priority": 4}),
        ("sorted", {"priority": 4}),
        ("priority", {"sort": "a"}),
    ]
    for number, (order, rank) in enumerate(refused):
        (option,) = rank
        queue = LastValueQueue.declare(f"q{number}", key_header="ticker", order=order, cluster=cluster)  # type: ignore[arg-type]
        with queue.producer() as producer:
            for call in (
                lambda: producer.put("IBM", b"1", **rank),  # noqa: B023
                lambda: producer.send(Message(b"1", {"ticker": "IBM"}, **rank)),  # noqa: B023
            ):
                with pytest.raises(ConfigError, match=f"'lvq-{option}' .* {option} would have no effect") as caught:
                    call()
                assert caught.value.options == (option, f"lvq-{option}")


def test_r22_the_usual_sort_header_means_nothing_where_another_one_sorts(cluster: MemoryCluster) -> None:
    with (
        declare(cluster, order="sorted", sort_header="price").producer() as producer,
        pytest.raises(ConfigError, match="set the header by which it is sorted"),
    ):
        producer.put("IBM", b"1", {"lvq-sort": "a"})


@pytest.mark.parametrize(
    ("options", "rank", "header", "said"),
    [
        ({"order": "priority"}, {"priority": 4}, {"lvq-priority": 4}, "both priority=4 and the header lvq-priority"),
        ({"order": "sorted"}, {"sort": "a"}, {"lvq-sort": "a"}, "both sort='a' and the header lvq-sort"),
        (
            {"order": "sorted", "sort_header": "price"},
            {"sort": "1"},
            {"price": "1"},
            "both sort='1' and the header price",
        ),
    ],
)
def test_a_rank_is_given_once(
    cluster: MemoryCluster, options: dict[str, Any], rank: dict[str, Any], header: dict[str, Any], said: str
) -> None:
    with declare(cluster, **options).producer() as producer, pytest.raises(ConfigError, match=said) as caught:
        producer.put("IBM", b"1", header, **rank)
    assert caught.value.options == (*rank, *header)


def test_a_queue_may_be_sorted_by_its_keys_which_leaves_nothing_to_set(cluster: MemoryCluster) -> None:
    with declare(cluster, order="sorted", sort_header="ticker").producer() as producer:
        producer.put("IBM", b"1")
        with pytest.raises(ConfigError, match="both key header and sort header") as caught:
            producer.put("IBM", b"1", sort="a")
        assert caught.value.options == ("sort", "ticker")
    assert headers(cluster) == [{"ticker": b"IBM"}]


def test_a_bare_producer_is_given_the_order(cluster: MemoryCluster) -> None:
    cluster.topics.create(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
    with Producer(cluster, rules(topic=TOPIC, key_header="ticker", order="sorted", sort_header="price")) as producer:
        producer.put("IBM", b"1", sort="118")
    assert headers(cluster) == [{"ticker": b"IBM", "price": b"118"}]
    with pytest.raises(ConfigError) as caught:
        Producer(cluster, rules(topic=TOPIC, key_header="ticker", order="sideways"))  # type: ignore[arg-type]
    assert caught.value.options == ("order",)
    with pytest.raises(ConfigError, match="reserved") as caught:
        Producer(cluster, rules(topic=TOPIC, key_header="ticker", order="sorted", sort_header="lvq-ttl"))
    assert caught.value.options == ("sort_header",)


def test_a_message_shows_its_rank() -> None:
    assert repr(Message(b"1", priority=7)) == "Message(b'1', priority=7)"
    assert repr(Message(b"1", sort="a")) == "Message(b'1', sort='a')"
