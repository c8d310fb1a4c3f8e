"""Last-value durables and maps (R21): what a subscriber may ask for, who may create what, and the errors."""

from __future__ import annotations

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from lvq_kafka import TEXT, AddressSettings, LastValueQueue, durables, queues
from lvq_kafka.core.facts import Right
from lvq_kafka.core.queue.content_matcher import ContentMatcher
from lvq_kafka.durables import Subscription
from lvq_kafka.errors import (
    BoundToProcess,
    ConfigError,
    DynamicDurablesDisabled,
    IncompatibleMatcher,
    NoKeyTest,
    NotAString,
    QueueMismatch,
    QueueNotDeclared,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare

IBM = '{"Symbol":"IBM","Exchange":"NYSE"}'


@pytest.fixture(autouse=True)
def _dynamic(memory_cluster: MemoryCluster) -> None:
    AddressSettings(cluster=memory_cluster).set("trades", {"dynamic-durables": True})


def static(cluster: MemoryCluster, name: str = "ticker", **options: Any) -> LastValueQueue[str]:
    return declare(cluster, name, **{"key_header": "Symbol", "non_destructive": True, **options})


def subscribe(cluster: MemoryCluster, matcher: Any = IBM, key_field: str | None = "Symbol") -> Subscription[str]:
    return durables.subscribe("trades", "ticker", matcher, key_field, value=TEXT, cluster=cluster)


def received(subscription: Subscription[str]) -> list[str]:
    found = []
    while (message := subscription.receive(0.2)) is not None:
        found.append(message.value)
    return found


def test_s145_a_subscriber_gets_the_current_value_of_its_key_and_then_newer_ones(memory_cluster: MemoryCluster) -> None:
    queue = static(memory_cluster)
    with queue.producer() as producer:
        for key, value in (("IBM", "1"), ("IBM", "2"), ("MSFT", "9")):
            producer.put(key, value)
        producer.flush()
        with subscribe(memory_cluster, {"Symbol": "IBM"}, None) as subscription:
            assert received(subscription) == ["2"]
            producer.put("IBM", "3")
            producer.put("MSFT", "10")
            producer.delete("IBM")
            producer.put("IBM", "4").result(5)
            assert received(subscription)[-1] == "4"
            assert (subscription.key, subscription.durable) == ("IBM", queue.definition)


def test_a_subscription_can_be_iterated(memory_cluster: MemoryCluster) -> None:
    with static(memory_cluster).producer() as producer:
        producer.put("IBM", "1").result(5)
    with subscribe(memory_cluster, {"Symbol": "IBM"}) as subscription:
        assert next(iter(subscription)).value == "1"


def test_default_filters_of_a_durable_are_not_for_its_subscribers(memory_cluster: MemoryCluster) -> None:
    with static(memory_cluster, default_filters={"selector": "Exchange = 'LSE'"}).producer() as producer:
        producer.put("IBM", "1").result(5)
    with subscribe(memory_cluster, {"Symbol": "IBM"}) as subscription:
        assert received(subscription) == ["1"]


def test_s149_a_dynamic_durable_is_created_for_any_value_of_its_key(memory_cluster: MemoryCluster) -> None:
    subscribe(memory_cluster).close()
    definition = LastValueQueue.open("ticker", cluster=memory_cluster).definition
    assert ContentMatcher.of_queue(definition) == ContentMatcher.of('{"Symbol":true,"Exchange":"NYSE"}')
    assert (definition.key_header, definition.non_destructive, definition.keyless) == ("Symbol", True, "refuse")


@pytest.mark.parametrize(
    "matcher",
    [
        '{ "Exchange" : "NYSE", "Symbol": "MSFT" }',
        {"Exchange": "NYSE", "Symbol": "IBM"},
        {"Symbol": "", "Exchange": "NYSE"},
    ],
)
@pytest.mark.parametrize("key_field", [None, "Symbol"])
def test_r21_matchers_are_compared_by_meaning(
    memory_cluster: MemoryCluster, matcher: Any, key_field: str | None
) -> None:
    static(memory_cluster, selector="Symbol is not null AND  Exchange='NYSE'")
    subscribe(memory_cluster, matcher, key_field).close()


@pytest.mark.parametrize(
    "matcher",
    [
        {"Symbol": "IBM"},
        {"Symbol": "IBM", "Exchange": True},
        {"Symbol": "IBM", "Exchange": "LSE"},
        {"Symbol": "IBM", "Exchange": "NYSE", "Desk": "a"},
        {"Symbol": "IBM", "Exchange": "nyse"},
    ],
)
def test_r21_a_matcher_with_other_clauses_is_incompatible(memory_cluster: MemoryCluster, matcher: Any) -> None:
    subscribe(memory_cluster).close()
    with pytest.raises(IncompatibleMatcher, match="The durable ticker was declared for") as caught:
        subscribe(memory_cluster, matcher)
    assert caught.value.declared == '{"Exchange": "NYSE", "Symbol": true}'
    assert caught.value.asked == str(ContentMatcher.of(matcher).generalized("Symbol"))
    assert pickle.loads(pickle.dumps(caught.value)).asked == caught.value.asked


def test_r21_a_durable_with_a_selector_that_is_no_matcher_is_incompatible(memory_cluster: MemoryCluster) -> None:
    static(memory_cluster, selector="price > 100")
    with pytest.raises(IncompatibleMatcher, match="with the selector 'price > 100'") as caught:
        subscribe(memory_cluster, {"Symbol": "IBM"}, None)
    assert caught.value.declared == "price > 100"


@pytest.mark.parametrize("matcher", [{}, {"Symbol": True}, {"Exchange": "NYSE"}])
def test_r21_a_matcher_without_a_value_of_the_key_field_creates_nothing(
    memory_cluster: MemoryCluster, matcher: Any
) -> None:
    with pytest.raises(NoKeyTest) as caught:
        subscribe(memory_cluster, matcher)
    assert caught.value.key_field == "Symbol"
    with pytest.raises(QueueNotDeclared):
        LastValueQueue.open("ticker", cluster=memory_cluster)


def test_r21_without_a_matcher_a_durable_is_created_for_its_key_field_and_not_subscribed_to(
    memory_cluster: MemoryCluster,
) -> None:
    for _ in range(2):
        with pytest.raises(NoKeyTest):
            subscribe(memory_cluster, None)
    definition = LastValueQueue.open("ticker", cluster=memory_cluster).definition
    assert str(ContentMatcher.of_queue(definition)) == '{"Symbol": true}'


def test_a_static_durable_needs_a_value_of_its_key_field(memory_cluster: MemoryCluster) -> None:
    static(memory_cluster)
    with pytest.raises(NoKeyTest, match="'Symbol'"):
        subscribe(memory_cluster, None, None)


@pytest.mark.parametrize("value", [5, 1.5, None, False, ["IBM"]])
def test_a_key_that_is_no_string_is_refused(memory_cluster: MemoryCluster, value: object) -> None:
    with pytest.raises(NotAString, match="not a string"):
        subscribe(memory_cluster, {"Symbol": value})


@pytest.mark.parametrize("key_field", [5, "", " ", b"Symbol", ["Symbol"], "\ud800", "lvq-ttl", "a\0"])
@pytest.mark.parametrize("matcher", [IBM, None])
def test_a_key_field_is_the_name_of_a_header(memory_cluster: MemoryCluster, key_field: Any, matcher: Any) -> None:
    for call in (
        lambda: subscribe(memory_cluster, matcher, key_field),
        lambda: durables.open_map("trades", "ticker", key_field, cluster=memory_cluster),
    ):
        with pytest.raises(ConfigError, match=r"key_field|key header"):
            call()
    assert not queues(cluster=memory_cluster)


def test_a_static_durable_has_to_be_declared(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(QueueNotDeclared, match="No durable ticker is declared") as caught:
        subscribe(memory_cluster, IBM, None)
    assert "lvq declare ticker --key-header NAME --non-destructive" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "key_field", "differences"),
    [
        ({}, "Isin", {"key_header": ("Symbol", "Isin")}),
        ({"non_destructive": False}, None, {"non_destructive": (False, True)}),
        ({"key_header": None}, None, {"key_header": (None, None)}),
        (
            {"conflate": False, "non_destructive": False},
            "Symbol",
            {"conflate": (False, True), "non_destructive": (False, True)},
        ),
    ],
)
def test_a_queue_of_another_kind_is_no_durable(
    memory_cluster: MemoryCluster, options: dict[str, Any], key_field: str | None, differences: dict[str, Any]
) -> None:
    static(memory_cluster, **options)
    with pytest.raises(QueueMismatch, match="The queue ticker is not a last-value durable") as caught:
        subscribe(memory_cluster, {"Symbol": "IBM", "Isin": "x"}, key_field)
    assert caught.value.differences == differences


def test_r21_a_user_who_may_not_declare_cannot_create_a_durable_and_the_right_is_named(
    memory_cluster: MemoryCluster,
) -> None:
    right = Right("Create", "Topic", "ticker")
    memory_cluster.fail_next(
        "topics.check_may_create", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED", missing=right)
    )
    with pytest.raises(DynamicDurablesDisabled, match="this user may not create one for the endpoint trades") as caught:
        subscribe(memory_cluster)
    assert (caught.value.queue, caught.value.endpoint) == ("ticker", "trades")
    assert isinstance(caught.value.__cause__, Unauthorized)
    assert pickle.loads(pickle.dumps(caught.value)).endpoint == "trades"


@pytest.mark.parametrize("settings", [{}, {"#": True, "trades": False}, {"orders": True}])
def test_r21_subscribers_create_a_durable_only_if_a_setting_of_the_endpoint_says_so(
    memory_cluster: MemoryCluster, settings: dict[str, bool]
) -> None:
    stored = AddressSettings(cluster=memory_cluster)
    stored.delete("trades")
    for pattern, allowed in settings.items():
        stored.set(pattern, {"dynamic-durables": allowed})
    for create in (
        lambda: subscribe(memory_cluster),
        lambda: durables.open_map("trades", "ticker", "Symbol", cluster=memory_cluster),
    ):
        with pytest.raises(
            DynamicDurablesDisabled, match="subscribers of the endpoint trades may not create"
        ) as caught:
            create()
        assert "lvq settings set trades -o dynamic-durables=true" in caught.value.hint
    with pytest.raises(QueueNotDeclared):
        LastValueQueue.open("ticker", cluster=memory_cluster)
    static(memory_cluster, selector="Exchange = 'NYSE'")
    subscribe(memory_cluster).close()  # there is nothing to create


def test_the_most_specific_setting_of_an_endpoint_counts(memory_cluster: MemoryCluster) -> None:
    stored = AddressSettings(cluster=memory_cluster)
    stored.set("#", {"dynamic-durables": False})
    subscribe(memory_cluster).close()


@pytest.mark.parametrize("endpoint", ["", "a b", "x" * 300])
def test_an_endpoint_has_the_name_of_a_topic(memory_cluster: MemoryCluster, endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        durables.subscribe(endpoint, "ticker", IBM, "Symbol", cluster=memory_cluster)


@pytest.mark.parametrize("round_", range(5))
def test_r21_of_two_creators_at_once_the_first_counts_and_the_other_is_compared_with_it(
    memory_cluster: MemoryCluster, round_: int
) -> None:
    together = Barrier(4)

    def create(exchange: str) -> str:
        together.wait(10)
        try:
            subscribe(memory_cluster, {"Symbol": "IBM", "Exchange": exchange}).close()
        except IncompatibleMatcher as error:
            return error.declared
        return "subscribed"

    asked = ["NYSE", "LSE", "NYSE", "LSE"]
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(create, asked))
    definition = LastValueQueue.open("ticker", cluster=memory_cluster).definition
    has = ContentMatcher.of_queue(definition)
    assert has is not None
    for exchange, outcome in zip(asked, outcomes):
        wanted = ContentMatcher.of({"Symbol": True, "Exchange": exchange})
        assert outcome == ("subscribed" if wanted == has else str(has))


def test_a_subscriber_name_is_another_queue_on_the_topic_of_a_durable(memory_cluster: MemoryCluster) -> None:
    queue = static(memory_cluster)
    static(memory_cluster, "desk-7", topic="ticker")
    with queue.producer() as producer:
        producer.put("IBM", "1").result(5)
    with durables.subscribe("trades", "desk-7", {"Symbol": "IBM"}, value=TEXT, cluster=memory_cluster) as subscription:
        assert received(subscription) == ["1"]


def test_a_subscriber_is_warned_if_nothing_feeds_its_durable(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    memory_cluster.topics.create("trades", partitions=1, config={})
    queue = static(memory_cluster)
    with caplog.at_level(logging.WARNING, "lvq_kafka.durables"):
        subscribe(memory_cluster, {"Symbol": "IBM"}).close()
        assert "nothing has fed the durable ticker from trades yet. Run: lvq feed trades ticker" in caplog.text
        caplog.clear()
        with queue.feed("trades") as feed:
            feed.run(until_end=True)
        subscribe(memory_cluster, {"Symbol": "IBM"}).close()
        durables.subscribe("ticker", "ticker", {"Symbol": "IBM"}, cluster=memory_cluster).close()
        assert caplog.text == ""


def test_a_subscription_stays_in_its_process(memory_cluster: MemoryCluster) -> None:
    static(memory_cluster)
    with subscribe(memory_cluster, {"Symbol": "IBM"}) as subscription:
        assert repr(subscription) == "<Subscription to 'IBM' of ticker>"
        with pytest.raises(BoundToProcess):
            pickle.dumps(subscription)


# ---------------------------------------------------------------- maps


def test_s154_a_map_sets_gets_removes_and_iterates(memory_cluster: MemoryCluster) -> None:
    with durables.open_map("trades", "limits", "Desk", value=TEXT, cluster=memory_cluster) as limits:
        limits.set("k1", "1")
        limits.set("k2", "2")
        assert limits.get("k1") == "1"
        limits.remove("k1")
        assert limits.get("k1") is None
        assert list(limits) == ["k2"]
        assert dict(limits.items()) == {"k2": "2"}
        assert "k1" not in limits
        assert len(limits) == 1
        limits.remove("k1")  # nothing to remove is no error
        with pytest.raises(KeyError):
            limits["k1"]


def test_a_map_has_what_another_one_has_set(memory_cluster: MemoryCluster) -> None:
    with (
        durables.open_map("trades", "limits", "Desk", value=TEXT, cluster=memory_cluster) as one,
        durables.open_map("trades", "limits", value=TEXT, cluster=memory_cluster) as other,
    ):
        one.set("k", "1")
        other.set("k", "2")
        one.set("own", "3")
        assert dict(one) == {"k": "2", "own": "3"}
    with durables.open_map("trades", "limits", value=TEXT, cluster=memory_cluster) as later:
        assert dict(later) == {"k": "2", "own": "3"}


def test_r21_a_durable_with_further_clauses_is_no_map(memory_cluster: MemoryCluster) -> None:
    subscribe(memory_cluster).close()
    with pytest.raises(IncompatibleMatcher):
        durables.open_map("trades", "ticker", cluster=memory_cluster)


def test_a_map_that_nobody_declared_needs_a_key_field(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(QueueNotDeclared):
        durables.open_map("trades", "limits", cluster=memory_cluster)


@pytest.mark.parametrize("call", [durables.subscribe, durables.open_map])
def test_an_unknown_argument_names_the_nearest(call: Any) -> None:
    with pytest.raises(ConfigError, match="key_feild") as caught:
        call("trades", "ticker", key_feild="Symbol")
    assert "key_field" in str(caught.value)
