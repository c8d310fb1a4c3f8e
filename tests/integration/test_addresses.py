"""The addresses of the documentation of Qpid, Artemis and Broker-J, in Python and in the shell (R38)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from lvq_kafka import TEXT, Browser, Consumer, Entry, LastValueQueue, Message
from lvq_kafka.errors import ConfigError, LVQError, QueueNotDeclared
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.named_queues import forget
from tests.integration.test_cli import Shell, values

NAMES = ("prices", "myqueue", "my.destination.name", "orders1")

QPID = (
    "prices;{create:always, node:{type:queue, x-declare:{arguments:{'qpid.last_value_queue_key':'ticker'}}}}",
    "prices;{create:always, node:{type:queue,x-declare:{arguments:{'qpid.last_value_queue_key':ticker}}}}",
)
ARTEMIS = {
    "queue://my.destination.name?last-value-key=reuters_code": ("reuters_code", Consumer),
    "topic://my.destination.name?last-value-key=reuters_code": ("reuters_code", Browser),
    "my.destination.name?last-value-key=reuters_code&non-destructive=true": ("reuters_code", Browser),
    "my.destination.name?last-value=true": ("_AMQ_LVQ_NAME", Consumer),
    "topic://foo.bar::orders1?last-value-key=reuters_code": ("reuters_code", Consumer),
}
BROKERJ = (
    "myqueue : { link : { x-subscribe: { arguments : { x-qpid-replay-period : '3600' } } } }",
    "direct://amq.direct/myqueue/myqueue?x-qpid-replay-period='3600'",
)
BROKERJ_ATTRIBUTES = (
    '{"name": "myqueue", "type": "lvq", "lvqKey": "ticker", "ensureNondestructiveConsumers": true, '
    '"defaultFilters": { "x-qpid-replay-period" : { "x-qpid-replay-period" : [ "0" ] } }}'
)

At = Callable[[str], LastValueQueue[str]]


@pytest.fixture
def at(broker: ProvidedBroker, kafka_cluster: KafkaCluster) -> Iterator[At]:
    """Return a function that opens an address on a broker that has none of the queues in these documents."""
    opened = []

    def opening(address: str) -> LastValueQueue[str]:
        queue = LastValueQueue.at(address, value=TEXT, bootstrap_servers=broker.bootstrap_servers)
        opened.append(queue)
        return queue

    forget(kafka_cluster, *NAMES)
    yield opening
    for queue in opened:
        queue.close()
    forget(kafka_cluster, *NAMES)


@pytest.fixture
def shell(broker: ProvidedBroker) -> Shell:
    return Shell(broker.bootstrap_servers)


def shown(browser: Browser[str]) -> list[tuple[object, str]]:
    with browser:
        return [(event.key, event.value) for event in browser if isinstance(event, Entry)]


@pytest.mark.parametrize("address", QPID, ids=["quoted", "unquoted"])
def test_r38_the_address_in_qpids_document_makes_the_queue_and_the_newest_of_each_key_goes_to_the_tail(
    at: At, shell: Shell, address: str
) -> None:
    queue = at(address)
    assert queue.definition.key_header == "ticker"
    with pytest.raises(LVQError, match="No queue prices"):
        LastValueQueue.open("prices", cluster=queue.cluster)
    with queue.producer() as producer:
        for number, key in enumerate(["key1", "key2", "key3", "key4", "key2", "key1"]):
            producer.send(Message(str(number), {"ticker": key})).result(60)
    left = [("key3", "2"), ("key4", "3"), ("key2", "4"), ("key1", "5")]
    receiver = at("prices; {mode: browse}").receiver(follow=False)
    assert isinstance(receiver, Browser)
    assert shown(receiver) == left
    assert list(values(shell.rows("browse", address)).items()) == left
    shell.run("send", address, "6", "-H", "ticker=key3")
    assert list(values(shell.rows("browse", "prices; {mode: browse}"))) == ["key4", "key2", "key1", "key3"]
    with queue.receiver() as consumer:
        assert isinstance(consumer, Consumer)
        for _ in range(4):
            delivery = consumer.acquire(60)
            assert delivery is not None
            delivery.ack()


@pytest.mark.parametrize("address", QPID, ids=["quoted", "unquoted"])
def test_r38_the_address_in_qpids_document_makes_the_queue_in_the_shell(at: At, shell: Shell, address: str) -> None:
    assert b"No queue prices" in shell.run("stats", address, code=4).stderr
    assert b"No queue prices" in shell.run("drop", address, "--yes", code=4).stderr
    shell.run("send", address, "1", "-H", "ticker=key1")
    (row,) = (row for row in shell.rows("queues") if row["name"] == "prices")
    assert (row["key_header"], row["topic"]) == ("ticker", "prices")
    assert [row["key"] for row in shell.rows("consume", address, "--count", "1")] == ["key1"]
    assert shell.rows("drop", address, "--yes")[0]["dropped"] == "prices"


@pytest.mark.parametrize("address", ARTEMIS)
def test_r38_the_addresses_in_artemis_document_make_the_queue(at: At, shell: Shell, address: str) -> None:
    key_header, receiver_kind = ARTEMIS[address]
    queue = at(address)
    with queue.producer() as producer:
        for value in ("1", "2"):
            producer.send(Message(value, {key_header: "VOD.L"})).result(60)
    declared = LastValueQueue.open(queue.name, cluster=queue.cluster).definition
    assert declared.key_header == key_header
    assert (declared.topic, declared.name) == ("foo.bar" if "::" in address else queue.name, queue.name)
    assert declared.non_destructive is ("non-destructive" in address)
    with queue.receiver() as receiver:
        assert type(receiver) is receiver_kind
    assert values(shell.rows("browse", address)) == {"VOD.L": "2"}
    if receiver_kind is Browser:
        assert b"lvq: " in shell.run("consume", address, "--count", "1", code=2).stderr
    else:
        assert values(shell.rows("consume", address, "--count", "1")) == {"VOD.L": "2"}


@pytest.mark.parametrize("address", BROKERJ, ids=["addressing", "binding-url"])
def test_r15_the_replay_period_in_broker_js_document_comes_before_the_default_filter_of_its_queue(
    at: At, shell: Shell, address: str
) -> None:
    with pytest.raises(QueueNotDeclared, match="No queue myqueue is declared"):
        at(address)
    shell.run("put", BROKERJ_ATTRIBUTES, "IBM", "118.50")
    receiver = at(address).receiver(follow=False)
    assert isinstance(receiver, Browser)
    assert shown(receiver) == [("IBM", "118.50")]
    assert values(shell.rows("browse", address)) == {"IBM": "118.50"}
    assert values(shell.rows("browse", "myqueue")) == {}, "the default filter shows what arrives from now on"
    assert shown(at("myqueue").browser(follow=False)) == []
    assert b"Column" in shell.run("export", address, code=2).stderr


def test_r27_an_address_with_a_replay_period_cannot_consume(at: At, shell: Shell) -> None:
    shell.run("declare", "myqueue", "--key-header", "ticker")
    for address, at_fault in zip(BROKERJ, ("'3600'", "x-qpid")):
        column = address.index(at_fault) + 1
        with pytest.raises(ConfigError, match=f"^Column {column} of the address: A consumer cannot have replay_period"):
            at(address).receiver()
        assert f"Column {column} of the address".encode() in shell.run("consume", address, code=2).stderr


def test_r38_creators_that_race_have_one_queue(at: At, broker: ProvidedBroker, shell: Shell) -> None:
    """Half of them want another key header, and use the queue as it is."""
    addresses = [QPID[0], "prices?last-value-key=code"] * 4
    ready = Barrier(len(addresses))

    def create(number: int) -> Any:
        with LastValueQueue.at(addresses[number], value=TEXT, bootstrap_servers=broker.bootstrap_servers) as queue:
            ready.wait(60)
            with queue.producer() as producer:
                producer.put(f"key{number}", str(number)).result(60)
            return queue.definition, queue.declaration is not None and queue.declaration.created_queue

    with ThreadPoolExecutor(len(addresses)) as threads:
        found = list(threads.map(create, range(len(addresses))))
    assert len({definition for definition, _ in found}) == 1
    assert sum(created for _, created in found) == 1
    assert at("prices").stats(timeout=60).depth == len(addresses)


def test_r38_processes_that_race_have_one_queue(at: At, broker: ProvidedBroker, shell: Shell) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "lvq_kafka", "-b", broker.bootstrap_servers, "put", address, f"key{number}", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number, address in enumerate([QPID[0], "prices?last-value-key=code", QPID[1]])
    ]
    for racer in racers:
        _, said = racer.communicate(timeout=120)
        assert racer.returncode == 0, said.decode()
    assert sorted(values(shell.rows("browse", "prices"))) == ["key0", "key1", "key2"]
