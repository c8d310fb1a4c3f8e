"""Bridges on a cluster in memory, with a link that a test plays the other broker on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.bridging import from_broker, to_broker
from lvq_kafka.bridging.amqp_link import Disposition
from lvq_kafka.bridging.amqp_message import AmqpMessage, decode_message, encode_message
from lvq_kafka.bridging.broker_address import BrokerAddress
from lvq_kafka.bridging.from_broker import FromBroker
from lvq_kafka.bridging.to_broker import ToBroker
from lvq_kafka.errors import BrokerRefused
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

ADDRESS = BrokerAddress.of("amqp://broker.example/prices", environ={})


class PlayedLink:
    """A link in memory: what the bridge asked for, and the listener to report to."""

    def __init__(self, address: BrokerAddress, listener: Any, **options: Any) -> None:
        self.address = address
        self.listener = listener
        self.options = options
        self.trouble = ""
        self.granted: list[tuple[int, bool]] = []
        self.concluded: list[tuple[int, bool]] = []
        self.sent: list[tuple[int, int, dict[str, Any]]] = []
        self.renewed = 0
        self.started = threading.Event()
        self.closed = False

    def start(self) -> None:
        self.started.set()

    def grant(self, attachment: int, number: int, *, drain: bool = False) -> None:
        self.granted.append((number, drain))

    @property
    def drains(self) -> int:
        return sum(drain for _, drain in list(self.granted))

    def conclude(self, attachment: int, deliveries: Sequence[tuple[int, bool]]) -> None:
        self.concluded += deliveries

    def renew(self, attachment: int) -> None:
        self.renewed += 1

    def send(self, attachment: int, tag: int, data: bytes) -> None:
        amqp = decode_message(data)
        self.sent.append((attachment, tag, {"value": amqp.body, **amqp.application}))

    def close(self) -> None:
        self.closed = True

    def tags(self, attachment: int) -> list[int]:
        return [tag for sent_on, tag, _ in list(self.sent) if sent_on == attachment]


@pytest.fixture(autouse=True)
def links(monkeypatch: pytest.MonkeyPatch) -> list[PlayedLink]:
    made: list[PlayedLink] = []

    def make(*arguments: Any, **options: Any) -> PlayedLink:
        made.append(PlayedLink(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(from_broker, "AmqpLink", make)
    monkeypatch.setattr(to_broker, "AmqpLink", make)
    monkeypatch.setattr(from_broker, "_IDLE", 0.05)
    return made


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[bytes]:
    return LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)


class Interrupted(Exception):
    """In place of Ctrl-C."""


@contextmanager
def running(bridge: FromBroker | ToBroker, links: list[PlayedLink], *, ends: bool = False) -> Iterator[PlayedLink]:
    """Run a bridge in a thread; it is interrupted unless it ``ends`` by itself."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            bridge.run()
        except Interrupted:
            pass
        except Exception as error:  # noqa: BLE001  # raised at the end
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    link = links[-1]
    try:
        assert link.started.wait(30)
        yield link
    finally:
        if not ends:
            link.listener.failed(Interrupted())
        thread.join(30)
    assert not thread.is_alive()
    assert link.closed
    if failures:
        raise failures[0]


def arrives(link: PlayedLink, tag: int, key: str, value: bytes = b"1", **fields: Any) -> None:
    data = encode_message(AmqpMessage(value, application={"ticker": key}, **fields))
    link.listener.arrived(tag, data, len(data))


def values(queue: LastValueQueue[bytes]) -> dict[str, bytes]:
    with queue.view() as view:
        return dict(view)


def until(condition: Callable[[], object]) -> None:
    eventually(lambda: bool(condition()), 30)


def has_no_more(link: PlayedLink) -> None:
    """Answer the next drain: nothing comes."""
    drains = link.drains
    until(lambda: link.drains > drains)
    link.listener.drained()


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_source_is_empty_once_a_drain_brings_nothing(
    queue: LastValueQueue[bytes], links: list[PlayedLink], mode: from_broker.Mode
) -> None:
    bridge = FromBroker(ADDRESS, queue, mode=mode, once=True)
    with running(bridge, links, ends=True) as link:
        assert link.options["browses"] == (mode == "browse")
        link.listener.attached(1, "anything")
        arrives(link, 0, "IBM")
        until(lambda: link.drains == 1)
        arrives(link, 1, "MSFT")
        link.listener.drained()
        until(lambda: link.drains == 2)
        assert not link.granted[-2][1], "credit that a drain has taken back is granted again"
        link.listener.drained()
    assert link.concluded == [(0, True), (1, True)]
    assert values(queue) == {"IBM": b"1", "MSFT": b"1"}
    assert bridge.stats.copied == 2


def test_a_source_is_not_asked_whether_it_has_more_while_its_credit_is_used_up(
    queue: LastValueQueue[bytes], links: list[PlayedLink], memory_cluster: MemoryCluster, monkeypatch: Any
) -> None:
    monkeypatch.setattr(from_broker, "_MOST", 2)
    monkeypatch.setattr(from_broker, "_IDLE", 0.0)
    bridge = FromBroker(ADDRESS, queue, mode="consume", once=True)
    with running(bridge, links, ends=True) as link:
        memory_cluster.disconnect()
        link.listener.attached(1, "")
        arrives(link, 0, "IBM")
        arrives(link, 1, "MSFT")
        until(lambda: bridge.stats.in_flight == 2)
        assert not link.drains
        memory_cluster.reconnect()
        has_no_more(link)
    assert len(link.concluded) == 2


def test_g10_a_message_is_settled_only_once_kafka_has_it(
    queue: LastValueQueue[bytes], links: list[PlayedLink], memory_cluster: MemoryCluster
) -> None:
    bridge = FromBroker(ADDRESS, queue, mode="consume")
    with running(bridge, links) as link:
        link.listener.attached(1, "")
        memory_cluster.disconnect()
        arrives(link, 0, "IBM")
        until(lambda: bridge.stats.in_flight == 1)
        assert link.concluded == []
        memory_cluster.reconnect()
        until(lambda: link.concluded == [(0, True)])


def test_g10_a_message_whose_answer_was_lost_is_sent_again(
    queue: LastValueQueue[bytes], links: list[PlayedLink], memory_cluster: MemoryCluster
) -> None:
    with running(FromBroker(ADDRESS, queue, mode="consume"), links) as link:
        link.listener.attached(1, "")
        memory_cluster.lose_answers("append")
        arrives(link, 0, "IBM")
        until(lambda: link.concluded == [(0, True)])
    assert [record.value for record in memory_cluster.records("prices")] == [b"1", b"1"]


def test_a_message_that_cannot_be_copied_is_left_unsettled_and_named_and_the_next_goes_on(
    queue: LastValueQueue[bytes], links: list[PlayedLink], caplog: pytest.LogCaptureFixture
) -> None:
    bridge = FromBroker(ADDRESS, queue, mode="consume")
    with running(bridge, links) as link:
        link.listener.attached(1, "")
        link.listener.arrived(0, b"\xff", 1)
        link.listener.arrived(1, None, 100_000_000)
        arrives(link, 2, "IBM", properties={"message-id": "odd-3"})
        arrives(link, 3, "MSFT")
        until(lambda: len(link.concluded) == 4)
    assert link.concluded == [(0, False), (1, False), (2, True), (3, True)]
    assert (bridge.stats.left, bridge.stats.copied) == (2, 2)
    assert "message 1 stays in amqp://broker.example:5672/prices: it is malformed" in caplog.text
    assert "message 2 stays in amqp://broker.example:5672/prices: it has 100,000,000 bytes of at most" in caplog.text


def test_a_link_that_is_lost_brings_all_that_was_not_settled_once_more(
    queue: LastValueQueue[bytes], links: list[PlayedLink]
) -> None:
    bridge = FromBroker(ADDRESS, queue, mode="consume")
    with running(bridge, links) as link:
        link.listener.attached(1, "")
        arrives(link, 0, "IBM", b"1")
        until(lambda: link.concluded == [(0, True)])
        link.listener.detached()
        link.listener.attached(2, "")
        arrives(link, 1, "IBM", b"1")
        arrives(link, 2, "IBM", b"2")
        until(lambda: len(link.concluded) == 3)
    assert values(queue) == {"IBM": b"2"}


def test_a_browse_that_does_not_follow_is_renewed_and_what_it_knows_is_not_copied_again(
    queue: LastValueQueue[bytes], links: list[PlayedLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(from_broker, "_LOOK", 0.01)
    bridge = FromBroker(ADDRESS, queue)
    with running(bridge, links) as link:
        for look, found in enumerate([["1"], ["1", "2"], ["2"]], start=1):
            link.listener.attached(look, "apache-activemq-artemis")
            for at, key in enumerate(found):
                arrives(link, 10 * look + at, key, ttl=look)  # a TTL that goes down is no new value
            until(lambda look=look: link.drains == look)  # type: ignore[misc]
            link.listener.drained()
            until(lambda look=look: link.renewed == look)  # type: ignore[misc]
            link.listener.detached()
    assert (bridge.stats.copied, bridge.stats.unchanged) == (2, 2)


def test_a_browse_that_follows_is_not_renewed(queue: LastValueQueue[bytes], links: list[PlayedLink]) -> None:
    with running(FromBroker(ADDRESS, queue), links) as link:
        link.listener.attached(1, "Apache Qpid Broker-J Core")
        until(lambda: link.drains == 1)
        link.listener.drained()
        until(lambda: len(link.granted) == 3)
        arrives(link, 0, "IBM")
        until(lambda: link.concluded)
    assert [drain for _, drain in link.granted[:3]] == [False, True, False]
    assert (link.renewed, link.drains) == (0, 1)


def test_a_dry_run_stores_nothing(queue: LastValueQueue[bytes], links: list[PlayedLink]) -> None:
    bridge = FromBroker(ADDRESS, queue, once=True, dry_run=True)
    with running(bridge, links, ends=True) as link:
        link.listener.attached(1, "")
        arrives(link, 0, "IBM")
        has_no_more(link)
    assert (bridge.stats.copied, values(queue)) == (1, {})


def test_a_refusal_ends_the_bridge(queue: LastValueQueue[bytes], links: list[PlayedLink]) -> None:
    def refuse() -> None:
        with running(FromBroker(ADDRESS, queue), links, ends=True) as link:
            link.listener.failed(BrokerRefused("no such queue", condition="amqp:not-found"))

    with pytest.raises(BrokerRefused, match="no such queue"):
        refuse()


def fill(queue: LastValueQueue[bytes], *keys: str) -> None:
    with queue.producer() as producer:
        for key in keys:
            producer.put(key, key.encode()).result()


def settle(link: PlayedLink, tag: int, outcome: Disposition = "accepted") -> None:
    link.listener.settled(tag, outcome, "")


def test_g10_a_message_is_acked_only_once_the_other_broker_has_accepted_it(
    queue: LastValueQueue[bytes], links: list[PlayedLink]
) -> None:
    fill(queue, "a", "b")
    bridge = ToBroker(queue, ADDRESS, once=True)
    with running(bridge, links, ends=True) as link:
        link.listener.attached(1, "")
        until(lambda: len(link.sent) == 2)
        settle(link, 1)
        until(lambda: queue.stats().depth == 1)
        settle(link, 2)
    assert [message for *_, message in link.sent] == [{"value": b"a", "ticker": "a"}, {"value": b"b", "ticker": "b"}]
    assert (queue.stats().depth, bridge.stats.copied) == (0, 2)


def test_a_message_that_the_other_broker_rejects_stays_and_the_others_go_on(
    queue: LastValueQueue[bytes], links: list[PlayedLink], caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, "a", "b")
    bridge = ToBroker(queue, ADDRESS)
    with running(bridge, links) as link:
        link.listener.attached(1, "")
        until(lambda: len(link.sent) == 2)
        settle(link, 1, "rejected")
        settle(link, 2)
        until(lambda: len(link.sent) == 3)
        assert link.sent[2][2]["value"] == b"a"
        assert (bridge.stats.copied, bridge.stats.left) == (1, 1)
        settle(link, 3)
        until(lambda: queue.stats().depth == 0)
        assert bridge.stats.left == 0
    assert "stays in prices: the other broker answers rejected; trying again" in caplog.text


def test_a_bridge_that_runs_once_ends_though_messages_were_not_accepted(
    queue: LastValueQueue[bytes], links: list[PlayedLink]
) -> None:
    """One has no counterpart, and the other broker rejects one. Each was tried, and stays for the next bridge."""
    with queue.producer() as producer:
        producer.put("unfit", b"{", [("amqp-body", b"map")]).result()
    fill(queue, "rejected", "a")
    bridge = ToBroker(queue, ADDRESS, once=True)
    with running(bridge, links, ends=True) as link:
        link.listener.attached(1, "")
        until(lambda: len(link.sent) == 2)
        settle(link, 1, "rejected")
        settle(link, 2)
    assert (bridge.stats.copied, bridge.stats.left, queue.stats().depth) == (1, 2, 2)


def test_messages_that_were_on_their_way_when_the_link_was_lost_are_sent_again_in_order(
    queue: LastValueQueue[bytes], links: list[PlayedLink]
) -> None:
    fill(queue, "a", "b", "c")
    bridge = ToBroker(queue, ADDRESS, once=True)
    with running(bridge, links, ends=True) as link:
        link.listener.attached(1, "")
        until(lambda: len(link.sent) == 3)
        settle(link, 1)
        link.listener.detached()
        link.listener.attached(2, "")
        assert link.tags(2) == [2, 3]
        settle(link, 2)
        settle(link, 3)
    assert (bridge.stats.copied, bridge.stats.again, queue.stats().depth) == (3, 2, 0)


def test_a_message_for_which_the_other_broker_ends_the_link_is_found_and_set_aside(
    queue: LastValueQueue[bytes], links: list[PlayedLink], caplog: pytest.LogCaptureFixture
) -> None:
    fill(queue, "bad", "b", "c")
    bridge = ToBroker(queue, ADDRESS)
    with running(bridge, links) as link:
        link.listener.attached(1, "")
        until(lambda: len(link.sent) == 3)
        for attachment in (2, 3):
            link.listener.detached()
            link.listener.attached(attachment, "")
        assert (link.tags(2), link.tags(3)) == ([1, 2, 3], [1]), "the last time, one by one"
        link.listener.detached()
        link.listener.attached(4, "")
        assert link.tags(4) == [2]
        settle(link, 2)
        assert link.tags(4)[:2] == [2, 3]
        settle(link, 3)
        until(lambda: bridge.stats.copied == 2)
        assert bridge.stats.left == 1
    assert "the other broker ends the link when it comes" in caplog.text
