"""The page *Last-Value Durable Reference* of TIBCO FTL, statement by statement, on a real Kafka (R29, R21)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest
from click.testing import CliRunner

from lvq_kafka import TEXT, LastValueQueue, durables
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.core.queue.content_matcher import ContentMatcher
from lvq_kafka.durables import Subscription
from lvq_kafka.errors import DynamicDurablesDisabled, IncompatibleMatcher, NoKeyTest, QueueNotDeclared
from lvq_kafka.kafka import KafkaCluster

PATIENCE = 60.0
SUBSCRIBER = '{"Symbol":"IBM","Exchange":"NYSE"}'
DURABLE = '{"Symbol":true,"Exchange":"NYSE"}'


class Ftl:
    """An endpoint, and a durable of it that need not exist."""

    def __init__(self, cluster: KafkaCluster, endpoint: str) -> None:
        self.cluster, self.endpoint, self.durable = cluster, endpoint, f"{endpoint}-ticker"

    def lvq(self, *arguments: str) -> str:
        invocation = Invocation(cluster=self.cluster, out=Output(False))
        ran = CliRunner().invoke(lvq, arguments, obj=invocation, prog_name="lvq")
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    def publish(self, **fields: Any) -> None:
        """Publish a message to the endpoint, as JSON, and let the store forward it."""
        writer = self.cluster.writer()
        writer.append(self.endpoint, None, json.dumps(fields).encode()).result(PATIENCE)
        writer.close()

    def forward(self) -> dict[str, int]:
        """Run the store's part: the feed from the endpoint."""
        stats: dict[str, int] = json.loads(self.lvq("feed", self.endpoint, self.durable, "--until-end"))
        return stats

    def subscribe(self, matcher: Any, key_field: str | None = "Symbol") -> Subscription[str]:
        return durables.subscribe(self.endpoint, self.durable, matcher, key_field, value=TEXT, cluster=self.cluster)

    @property
    def matcher(self) -> ContentMatcher | None:
        return ContentMatcher.of_queue(LastValueQueue.open(self.durable, cluster=self.cluster).definition)


@pytest.fixture
def ftl(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[Ftl]:
    kafka_cluster.topics.create(topic_name, partitions=2, config={})
    ftl = Ftl(kafka_cluster, topic_name)
    ftl.lvq("settings", "set", topic_name, "-o", "dynamic-durables=true")
    yield ftl
    ftl.lvq("settings", "delete", topic_name)
    with suppress(QueueNotDeclared):
        LastValueQueue.open(ftl.durable, cluster=kafka_cluster).drop(delete_topic=True)


def price(subscription: Subscription[str], timeout: float = PATIENCE) -> float | None:
    message = subscription.receive(timeout)
    return None if message is None else json.loads(message.value)["price"]


def test_last_value_durable_reference_quality_of_service(ftl: Ftl) -> None:
    """A new subscriber gets the most recent message of its sub-stream at once, then those that follow."""
    ftl.lvq("declare", ftl.durable, "--key-header", "Symbol", "--non-destructive", "--keyless", "refuse")
    ftl.publish(Symbol="IBM", price=1)
    ftl.publish(Symbol="IBM", price=2)
    ftl.publish(Symbol="MSFT", price=9)
    ftl.forward()
    with ftl.subscribe({"Symbol": "IBM"}, None) as ibm, ftl.subscribe({"Symbol": "FB"}, None) as none_yet:
        first = price(ibm)
        assert first in (1, 2)  # of two partitions of the endpoint, either may be forwarded first
        ftl.publish(Symbol="IBM", price=3)
        ftl.publish(Symbol="FB", price=4)
        ftl.forward()
        assert price(ibm) == 3
        assert price(none_yet) == 4
        assert price(ibm, 0.5) is None


def test_last_value_durable_reference_message_retention_and_acknowledgments(ftl: Ftl) -> None:
    """One message is retained for each sub-stream, and new subscribers get it until another one replaces it."""
    ftl.lvq("declare", ftl.durable, "--key-header", "Symbol", "--non-destructive")
    for number in range(3):
        ftl.publish(Symbol="IBM", price=number)
        ftl.forward()
    for _ in range(2):
        with ftl.subscribe({"Symbol": "IBM"}, None) as subscription:
            assert price(subscription) == 2
            assert price(subscription, 0.5) is None
    with LastValueQueue.open(ftl.durable, cluster=ftl.cluster).view() as view:
        assert list(view) == ["IBM"]


def test_last_value_durable_reference_subscribers(ftl: Ftl) -> None:
    """A durable has many subscribers at once, and each gets exactly one sub-stream."""
    symbols = ["IBM", "MSFT", "FB"]
    subscriptions = [ftl.subscribe({"Symbol": symbol}) for symbol in [*symbols, "IBM"]]
    for number, symbol in enumerate(symbols):
        ftl.publish(Symbol=symbol, price=number)
    ftl.forward()
    assert [price(each) for each in subscriptions] == [0, 1, 2, 0]
    for each in subscriptions:
        assert price(each, 0.2) is None
        each.close()


@pytest.mark.parametrize("by_shell", [False, True], ids=["publishers of JSON", "lvq send with headers"])
def test_last_value_durable_reference_the_example_of_a_dynamic_durable(ftl: Ftl, by_shell: bool) -> None:
    """The durable ticker, created by a subscriber to IBM on NYSE, is for any symbol on NYSE (S149, S153)."""
    if by_shell:
        ftl.lvq("send", ftl.endpoint, "117", "--bare", "-H", "Symbol=IBM", "-H", "Exchange=NYSE", "-q")
        with ftl.subscribe(SUBSCRIBER) as subscription:
            assert ftl.forward()["fed"] == 1
            message = subscription.receive(PATIENCE)
            assert message is not None
            assert message.value == "117"
        return
    with ftl.subscribe(SUBSCRIBER) as subscription:
        assert ftl.matcher == ContentMatcher.of(DURABLE)
        ftl.publish(Symbol="IBM", Exchange="NYSE", price=118)
        ftl.forward()
        assert price(subscription) == 118
        ftl.publish(Symbol="IBM", Exchange="LSE", price=93)
        ftl.publish(Symbol="MSFT", Exchange="NYSE", price=402)
        ftl.publish(Exchange="NYSE", price=1)
        assert ftl.forward() == {"queue": ftl.durable, "source": ftl.endpoint, "read": 3, "fed": 1, "unselected": 1,
                                 "unreadable": 0, "refused": 1}  # fmt: skip
        assert price(subscription, 0.5) is None
    with ftl.subscribe(SUBSCRIBER) as again, ftl.subscribe({"Exchange": "NYSE", "Symbol": "MSFT"}) as other:
        assert price(again) == 118  # the LSE value did not replace it
        assert price(other) == 402


def test_last_value_durable_reference_dynamic_durables_have_to_be_enabled_on_the_endpoint(ftl: Ftl) -> None:
    ftl.lvq("settings", "set", ftl.endpoint, "-o", "dynamic-durables=false")
    with pytest.raises(DynamicDurablesDisabled):
        ftl.subscribe(SUBSCRIBER)
    with pytest.raises(QueueNotDeclared):
        LastValueQueue.open(ftl.durable, cluster=ftl.cluster)


def test_last_value_durable_reference_subsequent_subscribers_specify_compatible_matchers(ftl: Ftl) -> None:
    ftl.subscribe(SUBSCRIBER).close()
    ftl.subscribe('{ "Exchange" : "NYSE" , "Symbol" : "MSFT" }').close()
    for other in ({"Symbol": "IBM"}, {"Symbol": "IBM", "Exchange": "LSE"}, {"Symbol": "IBM", "Exchange": True}):
        with pytest.raises(IncompatibleMatcher):
            ftl.subscribe(other)
    assert ftl.matcher == ContentMatcher.of(DURABLE)


def test_last_value_durable_reference_a_create_call_without_a_matcher_uses_the_key_field_clause(ftl: Ftl) -> None:
    """The page also says that subscribing requires a matcher, so it creates the durable and does not subscribe."""
    with pytest.raises(NoKeyTest):
        ftl.subscribe(None)
    assert ftl.matcher == ContentMatcher.of('{"Symbol":true}')


def test_last_value_durable_reference_static_durable(ftl: Ftl) -> None:
    """An administrator has defined it; the program names it, or a subscriber name, and the value of the key."""
    with pytest.raises(QueueNotDeclared):
        ftl.subscribe(SUBSCRIBER, None)
    options = ("--key-header", "Symbol", "--non-destructive", "--selector", "Exchange = 'NYSE'")
    ftl.lvq("declare", ftl.durable, *options)
    name = f"{ftl.durable}-desk"
    ftl.lvq("declare", name, "--topic", ftl.durable, *options)
    ftl.publish(Symbol="IBM", Exchange="NYSE", price=118)
    ftl.forward()
    by_name = durables.subscribe(ftl.endpoint, name, SUBSCRIBER, value=TEXT, cluster=ftl.cluster)
    with ftl.subscribe(SUBSCRIBER, None) as by_durable, by_name:
        assert price(by_durable) == price(by_name) == 118
    for no_key in ({"Exchange": "NYSE"}, {"Symbol": True, "Exchange": "NYSE"}):
        with pytest.raises(NoKeyTest):
            ftl.subscribe(no_key, None)
    ftl.lvq("drop", name, "--yes")


def test_r21_of_two_programs_that_create_a_durable_at_once_the_first_counts(ftl: Ftl) -> None:
    together = Barrier(2)

    def create(exchange: str) -> str:
        together.wait(PATIENCE)
        try:
            ftl.subscribe({"Symbol": "IBM", "Exchange": exchange}).close()
        except IncompatibleMatcher as error:
            return error.declared
        return str(ContentMatcher.of({"Symbol": True, "Exchange": exchange}))

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(create, ["NYSE", "LSE"]))
    assert outcomes == [str(ftl.matcher)] * 2


def test_a_key_value_map_is_on_a_dynamic_durable(ftl: Ftl) -> None:
    """S154, from the page *Key/Value Maps*, which this one is for."""
    with durables.open_map(ftl.endpoint, ftl.durable, "Desk", value=TEXT, cluster=ftl.cluster) as limits:
        limits.set("k1", "1")
        limits.set("k2", "2")
        assert limits.get("k1") == "1"
        with durables.open_map(ftl.endpoint, ftl.durable, value=TEXT, cluster=ftl.cluster) as elsewhere:
            assert dict(elsewhere) == {"k1": "1", "k2": "2"}
        limits.remove("k1")
        assert limits.get("k1") is None
        assert list(limits) == ["k2"]
