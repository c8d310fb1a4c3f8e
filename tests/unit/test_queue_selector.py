"""R26, R27: a queue with a selector, and default filters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, Entry, LastValueQueue, Message, queues
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, QueueDefinition
from lvq_kafka.errors import ConfigError, QueueMismatch
from lvq_kafka.testing import MemoryCluster

NYSE = "exchange = 'NYSE'"


def declare(cluster: MemoryCluster, name: str = "nyse", **options: Any) -> LastValueQueue[str]:
    options = {"key_header": "ticker", "topic": "prices", "selector": NYSE, **options}
    return LastValueQueue.declare(name, value=TEXT, cluster=cluster, **options)


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    return declare(memory_cluster)


def send(queue: LastValueQueue[str], *messages: str) -> None:
    """Send ``key=value@exchange``; a message without a value is a delete."""
    with queue.producer() as producer:
        for message in messages:
            key, _, rest = message.partition("=")
            value, _, exchange = rest.partition("@")
            if value:
                producer.send(Message(value, headers={"ticker": key, "exchange": exchange}))
            else:
                producer.delete(key)


def consumed(queue: LastValueQueue[str]) -> list[str]:
    """Take and ack as many messages as the queue's stats count; there must be no more."""
    depth = queue.stats().depth
    values: list[str] = []
    with queue.consumer() as consumer:
        for _ in range(depth):
            delivery = consumer.acquire(30)
            assert delivery is not None
            values.append(delivery.value)
            delivery.ack(wait=True, timeout=30)
        assert consumer.acquire(0.05) is None
    return values


def test_r26_a_message_with_a_text_too_long_for_a_pattern_is_not_in_the_queue_and_counted(
    memory_cluster: MemoryCluster,
) -> None:
    queue = declare(memory_cluster, selector="exchange LIKE 'N%'")
    send(queue, "IBM=1@NYSE", f"GE=2@N{'Y' * 100_000}")
    with queue.view() as view, queue.consumer() as consumer, queue.browser() as browser:
        assert dict(view) == {"IBM": "1"}
        assert view.unjudged == 1
        delivery = consumer.acquire(10)
        assert delivery is not None
        assert delivery.value == "1"
        assert consumer.acquire(0.05) is None
        assert consumer.stats.unjudged == 1
        assert [event.key for event in browser.drain() if isinstance(event, Entry)] == ["IBM"]
        assert browser.unjudged == 1
    with LastValueQueue("prices", key_header="ticker", cluster=memory_cluster).view() as view:
        watch = view.watch(dump=True, selector="exchange NOT LIKE 'L%'")
        assert [event.key for event in watch.drain() if isinstance(event, Entry)] == ["IBM"]
        assert watch.unjudged == 1


def test_r26_only_what_is_selected_is_handed_out(queue: LastValueQueue[str]) -> None:
    send(queue, "IBM=1@NYSE", "MSFT=2@NASDAQ", "GE=3@NYSE", "BP=4@LSE")
    assert queue.stats().depth == 2
    assert consumed(queue) == ["1", "3"]
    stats = queue.stats()
    assert (stats.depth, stats.lag) == (0, 0)


def test_r26_a_newer_value_that_is_not_selected_replaces_one_that_is(queue: LastValueQueue[str]) -> None:
    send(queue, "IBM=1@NYSE", "GE=2@NYSE", "IBM=3@LSE")
    assert queue.stats().depth == 1
    assert consumed(queue) == ["2"]
    send(queue, "IBM=4@NYSE")
    assert consumed(queue) == ["4"]


def test_r26_a_message_that_is_not_selected_waits_for_nobody(memory_cluster: MemoryCluster) -> None:
    """Queues on one topic with different selectors share its messages between them."""
    nyse, others = declare(memory_cluster), declare(memory_cluster, "others", selector=f"NOT ({NYSE})")
    whole = declare(memory_cluster, "whole", selector=None)
    send(nyse, "IBM=1@NYSE", "MSFT=2@NASDAQ", "GE=3@NYSE")
    assert (consumed(nyse), consumed(others), consumed(whole)) == (["1", "3"], ["2"], ["1", "2", "3"])


def test_r26_a_held_message_stays_with_its_holder_when_its_key_leaves_the_queue(queue: LastValueQueue[str]) -> None:
    """R6."""
    send(queue, "IBM=1@NYSE")
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        send(queue, "IBM=2@LSE", "GE=3@NYSE")
        other = consumer.acquire(30)
        assert other is not None
        assert other.value == "3"
        delivery.release()
        assert consumer.acquire(0.05) is None, "it is not the newest any longer"
        other.ack(wait=True, timeout=30)
    assert queue.stats().depth == 0


def test_r26_management_counts_and_moves_only_what_is_selected(
    queue: LastValueQueue[str], memory_cluster: MemoryCluster
) -> None:
    send(queue, "IBM=1@NYSE", "MSFT=2@NASDAQ", "GE=3@NYSE", "BP=4@NYSE")
    assert queue.purge(keys=["IBM", "MSFT"]).messages == 1
    archive = declare(memory_cluster, "archive", topic="archive", selector=None)
    assert queue.move(archive).messages == 2
    assert consumed(archive) == ["3", "4"]
    assert queue.stats().depth == 0


def test_r26_a_selector_can_judge_the_key_and_messages_without_one(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, selector="lvq_key LIKE 'I%' OR lvq_key IS NULL")
    with queue.producer() as producer:
        for ticker in ("IBM", "GE"):
            producer.put(ticker, ticker)
    assert consumed(queue) == ["IBM"]


@pytest.mark.parametrize("order", ["tail", "in-place"])
def test_r26_a_key_that_comes_back_is_new_to_the_queue(memory_cluster: MemoryCluster, order: str) -> None:
    queue = declare(memory_cluster, order=order)
    send(queue, "IBM=1@NYSE", "GE=2@NYSE", "IBM=3@LSE", "IBM=4@NYSE")
    assert consumed(queue) == ["2", "4"]


def test_r26_readers_show_what_is_selected_and_what_they_select_of_it(queue: LastValueQueue[str]) -> None:
    send(queue, "IBM=1@NYSE", "MSFT=2@NASDAQ", "GE=3@NYSE")
    with queue.view() as view, queue.view(selector="ticker = 'GE' OR ticker = 'MSFT'") as part:
        assert dict(view) == {"IBM": "1", "GE": "3"}
        assert dict(part) == {"GE": "3"}
        send(queue, "GE=4@LSE", "IBM=5@NYSE")
        view.barrier(30)
        part.barrier(30)
        assert dict(view) == {"IBM": "5"}
        assert dict(part) == {}
        assert len(view.snapshot()) == 1
    with queue.browser() as browser, queue.browser(hide_consumed=False) as other:
        for one in (browser, other):
            assert [event.key for event in one.drain(30) if isinstance(event, Entry)] == ["IBM"]
        send(queue, "IBM=6@LSE")
        assert browser.drain(30) == [Deleted("IBM", left=True)]


def test_r28_default_filters_are_for_browsers(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, selector=None, default_filters={"selector": NYSE})
    send(queue, "IBM=1@NYSE", "MSFT=2@NASDAQ")

    def shown(**options: Any) -> list[str]:
        with queue.browser(follow=False, **options) as browser:
            return [event.value for event in browser if isinstance(event, Entry)]

    assert shown() == shown(keys=["IBM", "MSFT"]) == ["1"]
    assert shown(selector="exchange = 'NASDAQ'") == ["2"]
    assert shown(default_filters=False) == ["1", "2"]
    with queue.view() as view:
        assert len(view) == 2
    assert queue.stats().depth == 2
    assert consumed(queue) == ["1", "2"]


def test_the_definition_keeps_selector_and_filters(memory_cluster: MemoryCluster) -> None:
    declare(memory_cluster, default_filters={"replay_period": 60, "selector": "price > 5"})
    (definition,) = queues(cluster=memory_cluster)
    assert definition.selector == NYSE
    assert definition.default_filters is not None
    assert definition.default_filters.replay_period == 60.0
    assert definition.default_filters.selector == "price > 5"
    declare(memory_cluster, default_filters={"replay_period": 60.0, "selector": "price > 5"})  # matches
    with pytest.raises(QueueMismatch, match="selector"):
        declare(memory_cluster, selector="exchange = 'LSE'", default_filters=definition.default_filters)


@pytest.mark.parametrize(
    ("options", "culprits", "said"),
    [
        ({"selector": "exchange ="}, ("selector",), "column 11"),
        ({"selector": ""}, ("selector",), "empty"),
        ({"selector": 5}, ("selector",), "not text"),
        ({"default_filters": {"selector": "a >"}}, ("default_filters",), "The default_filters is wrong at column 4"),
        ({"default_filters": {"selector": " "}}, ("default_filters", "selector"), "empty"),
        ({"default_filters": {"replay_period": "abc"}}, ("default_filters", "replay_period"), "'abc'"),
        ({"default_filters": {"replay_period": -1}}, ("default_filters", "replay_period"), "-1"),
        ({"default_filters": {"replay_period": 1e308}}, ("default_filters", "replay_period"), "inf"),
        ({"default_filters": {"replay_period": [1, 2]}}, ("default_filters", "replay_period"), "1, 2"),
        ({"default_filters": {"replay_perod": 5}}, ("default_filters",), "Did you mean replay_period?"),
        ({"default_filters": {"x": 5}}, ("default_filters",), "Choose from replay_period, selector"),
        ({"default_filters": 5}, ("default_filters",), "not a mapping"),
    ],
)
def test_bad_selectors_and_filters_fail_when_a_queue_is_declared(
    memory_cluster: MemoryCluster, options: dict[str, Any], culprits: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        declare(memory_cluster, **options)
    assert caught.value.options == culprits
    assert said in str(caught.value)
    assert queues(cluster=memory_cluster) == []


def test_no_filters_are_no_option(memory_cluster: MemoryCluster) -> None:
    LastValueQueue.declare("nyse", key_header="ticker", selector=None, default_filters={}, cluster=memory_cluster)
    (definition,) = queues(cluster=memory_cluster)
    assert b'"version": 1' in definition.to_json()


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("selector", "Declare another queue on the topic with selector="),
        ("headers", "queue.browser(headers=...)"),
        ("keys", "with selector="),
        ("replay_period", "with start="),
        ("dump", "queue.browser(dump=...)"),
    ],
)
def test_r27_a_consumer_cannot_select(queue: LastValueQueue[str], option: str, remedy: str) -> None:
    options: dict[str, Any] = {option: None}
    with pytest.raises(ConfigError) as caught:
        queue.consumer(**options)
    assert caught.value.options == (option,)
    assert remedy in str(caught.value)


@pytest.fixture
def broken(memory_cluster: MemoryCluster) -> Iterator[LastValueQueue[str]]:
    """A queue whose selector another client wrote, and nobody can read."""
    declare(memory_cluster)
    (definition,) = queues(cluster=memory_cluster)
    memory_cluster.write("_lvq_queues", b"nyse", None)  # of two definitions the first counts
    memory_cluster.write("_lvq_queues", b"nyse", definition.to_json().replace(b"= 'NYSE'", b"> 'NYSE'"))
    return LastValueQueue.open("nyse", value=TEXT, cluster=memory_cluster)


def test_a_selector_that_nobody_can_read_is_named_by_all_who_need_it(broken: LastValueQueue[str]) -> None:
    for use in (broken.consumer, broken.stats, lambda: broken.purge(keys=["IBM"]), broken.view, broken.browser):
        with pytest.raises(ConfigError, match="The selector is wrong at column 10"):
            use()
    assert len(queues(cluster=broken.cluster)) == 1


def test_a_stored_selector_that_cannot_be_read_names_the_queue_and_the_way_out(memory_cluster: MemoryCluster) -> None:
    """Only another program can store it: `declare` refuses it."""
    declare(memory_cluster).close()
    stored = QueueDefinition(name="nyse", topic="prices", key_header="ticker", selector="exchange = = 1")
    memory_cluster.write(REGISTRY_TOPIC, b"nyse", None)  # of two definitions the first counts
    memory_cluster.writer().append(REGISTRY_TOPIC, b"nyse", stored.to_json()).result(10)
    for use in (LastValueQueue.view, LastValueQueue.consumer):
        with (
            LastValueQueue.open("nyse", cluster=memory_cluster) as queue,
            pytest.raises(
                ConfigError, match=r"The queue nyse was declared with a selector that cannot be read"
            ) as caught,
            use(queue),
        ):
            pass
        assert "lvq delete _lvq_queues nyse --bare" in caught.value.hint
