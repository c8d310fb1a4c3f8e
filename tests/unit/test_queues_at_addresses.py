"""Queues at addresses, on the in-memory cluster: what they read, and who declares them (R38)."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from lvq_kafka import TEXT, Browser, Consumer, DefaultFilters, Entry, LastValueQueue, Message, queues
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, QueueNotDeclared, TopicNotFound
from lvq_kafka.managing import declaring
from lvq_kafka.testing import MemoryCluster

CREATED = "prices; {create: %s, node: {x-declare: {arguments: {'qpid.last_value_queue_key': ticker}}}}"


def at(cluster: MemoryCluster, address: str, **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.at(address, value=TEXT, cluster=cluster, **options)


def declared(cluster: MemoryCluster, name: str = "prices", **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare(name, **{"key_header": "ticker", "value": TEXT, "cluster": cluster, **options})


def put(queue: LastValueQueue[str], **values: str) -> None:
    with queue.producer() as producer:
        for key, value in values.items():
            producer.put(key, value).result(30)


def names(cluster: MemoryCluster) -> list[str]:
    return [definition.name for definition in queues(cluster=cluster)]


def topics(cluster: MemoryCluster) -> set[str]:
    found = set()
    for topic in ("prices", "other", "expired", "letters", "orders", REGISTRY_TOPIC, "_lvq_settings"):
        try:
            cluster.topics.describe(topic)
        except TopicNotFound:
            continue
        found.add(topic)
    return found


def shown(browser: Browser[str]) -> list[tuple[object, str]]:
    with browser:
        return [(event.key, event.value) for event in browser if isinstance(event, Entry)]


class TestCreation:
    @pytest.mark.parametrize("policy", ["always", "sender", "receiver"])
    def test_r38_a_missing_queue_is_declared_by_its_first_link_and_not_before(
        self, memory_cluster: MemoryCluster, policy: str
    ) -> None:
        queue = at(memory_cluster, CREATED % policy)
        assert queue.definition == replace(parse_address(CREATED % policy).definition(), format="text")
        assert (names(memory_cluster), queue.declaration) == ([], None)
        if policy == "receiver":
            queue.browser().close()
        else:
            queue.producer().close()
        assert names(memory_cluster) == ["prices"]
        assert queue.declaration is not None
        assert queue.declaration.created_queue
        put(queue, IBM="118.50")
        assert shown(at(memory_cluster, "prices; {mode: browse}").browser(follow=False)) == [("IBM", "118.50")]

    @pytest.mark.parametrize("opens", ["browser", "view", "consumer", "receiver"])
    def test_r38_a_view_browser_or_consumer_is_a_receiver(self, memory_cluster: MemoryCluster, opens: str) -> None:
        queue = at(memory_cluster, CREATED % "receiver")
        with getattr(queue, opens)():
            assert names(memory_cluster) == ["prices"]

    def test_r38_an_address_that_creates_for_senders_does_not_create_for_receivers(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = at(memory_cluster, CREATED % "sender")
        with pytest.raises(QueueNotDeclared, match="declares one for the first sender, not for a receiver"):
            queue.receiver()
        assert names(memory_cluster) == []
        declared(memory_cluster)
        with queue.receiver() as receiver:
            assert isinstance(receiver, Consumer)

    def test_r38_an_address_that_creates_nothing_is_an_error_for_a_missing_queue(
        self, memory_cluster: MemoryCluster
    ) -> None:
        for address in ("prices", "prices; {mode: browse}", CREATED % "never"):
            with pytest.raises(QueueNotDeclared, match="No queue prices is declared"):
                at(memory_cluster, address)
        with pytest.raises(QueueNotDeclared):
            at(memory_cluster, CREATED % "always", create=False)
        assert topics(memory_cluster) == set()

    def test_r38_management_never_declares_a_queue(self, memory_cluster: MemoryCluster) -> None:
        queue = at(memory_cluster, CREATED % "always")
        other = declared(memory_cluster, "other")
        for manage in (
            queue.stats,
            queue.purge,
            queue.repair,
            queue.reclaim,
            queue.drop,
            lambda: queue.expire(0),
            lambda: queue.reset("earliest"),
            lambda: queue.move(other),
            lambda: other.move(queue),
        ):
            with pytest.raises(QueueNotDeclared, match="No queue prices is declared"):
                manage()
        assert names(memory_cluster) == ["other"]

    def test_r38_management_finds_a_queue_that_was_declared_meanwhile(self, memory_cluster: MemoryCluster) -> None:
        queue = at(memory_cluster, CREATED % "always")
        there = declared(memory_cluster, topic="other", key_header="code")
        put(there, a="1")
        assert queue.stats().depth == 1
        assert queue.definition == there.definition
        at(memory_cluster, CREATED % "always").drop(delete_topic=True)
        assert topics(memory_cluster) == {REGISTRY_TOPIC}

    def test_an_address_without_a_key_header_cannot_create(self, memory_cluster: MemoryCluster) -> None:
        with pytest.raises(ConfigError, match="needs the name of its key header"):
            at(memory_cluster, "prices; {create: always}")
        assert at(memory_cluster, "prices?last-value=false").definition.conflate is False

    @pytest.mark.parametrize(
        ("address", "error"),
        [
            ("_lvq_queues?last-value-key=a", "holds the definitions of queues"),
            ("__consumer_offsets::prices?last-value-key=a", "has a name reserved by Kafka"),
            ("_lvq_queues::prices?last-value-key=a", "holds the definitions of queues"),
            ("prices?last-value-key=a&expiry-delay=1000&expiry-address=_lvq_queues", "holds the definitions of queues"),
            ("prices?last-value-key=lvq-ttl", "reserved"),
        ],
    )
    def test_an_address_cannot_declare_what_belongs_to_others(
        self, memory_cluster: MemoryCluster, address: str, error: str
    ) -> None:
        with pytest.raises(ConfigError, match=error):
            at(memory_cluster, address)
        assert topics(memory_cluster) == set()

    def test_an_address_declares_only_what_it_names(self, memory_cluster: MemoryCluster) -> None:
        expiring = "other::prices?last-value-key=a&expiry-delay=1000&expiry-address=expired"
        with pytest.raises(TopicNotFound, match="expired"):
            at(memory_cluster, expiring).producer()
        assert topics(memory_cluster) <= {REGISTRY_TOPIC}
        declared(memory_cluster, "expired")
        before = queues(cluster=memory_cluster)
        at(memory_cluster, expiring).producer().close()
        assert topics(memory_cluster) == {REGISTRY_TOPIC, "expired", "other"}
        assert [each for each in queues(cluster=memory_cluster) if each.name != "prices"] == before

    def test_an_address_changes_no_setting_of_a_topic_that_exists(self, memory_cluster: MemoryCluster) -> None:
        memory_cluster.topics.create("prices", partitions=3, config={"cleanup.policy": "delete"})
        with pytest.raises(LVQError, match="cannot hold a last value queue"):
            at(memory_cluster, CREATED % "always").producer()
        assert memory_cluster.topics.config("prices")["cleanup.policy"] == "delete"
        assert names(memory_cluster) == []


class TestRaces:
    def test_r38_of_many_creators_all_have_the_one_queue(self, memory_cluster: MemoryCluster) -> None:
        ready = Barrier(8)

        def create(number: int) -> Any:
            queue = at(memory_cluster, CREATED % "always")
            ready.wait(30)
            put(queue, **{f"key{number}": "1"})
            return queue

        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(create, range(8)))
        assert {queue.definition for queue in found} == {found[0].definition}
        assert sum(queue.declaration is not None and queue.declaration.created_queue for queue in found) == 1
        assert found[0].stats().depth == 8

    @pytest.mark.parametrize("asserted", [False, True])
    def test_r38_a_creator_that_comes_second_uses_the_other_queue_or_fails_if_it_asserts_its_own(
        self,
        memory_cluster: MemoryCluster,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        asserted: bool,
    ) -> None:
        real = declaring.declare

        def overtaken(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(declaring, "declare", real)
            declared(memory_cluster, key_header="code")
            return real(*arguments, **options)

        address = (CREATED % "always").replace("create", "assert: sender, create" if asserted else "create")
        queue = at(memory_cluster, address)
        monkeypatch.setattr(declaring, "declare", overtaken)
        if asserted:
            with pytest.raises(QueueMismatch, match="not as its address says"):
                queue.producer()
        else:
            put(queue, IBM="1")
            assert queue.declaration is None
        assert queue.definition.key_header == "code"
        assert sum("used as it is" in record.getMessage() for record in caplog.records) == 1

    def test_two_threads_with_one_queue_declare_it_once(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[object] = []
        real = declaring.declare
        monkeypatch.setattr(declaring, "declare", lambda *a, **k: (calls.append(a), real(*a, **k))[1])
        queue = at(memory_cluster, CREATED % "always")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: put(queue, **{f"key{number}": "1"}), range(4)))
        assert len(calls) == 1


class TestExisting:
    def test_r38_a_queue_that_exists_is_used_as_it_is_and_one_warning_says_where_it_differs(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        there = declared(memory_cluster, non_destructive=True)
        caplog.set_level(logging.WARNING)
        queue = at(memory_cluster, "prices?last-value-key=code&non-destructive=true")
        put(queue, IBM="1")
        queue.receiver().close()
        assert queue.definition == there.definition
        (said,) = [record.getMessage() for record in caplog.records if record.name == "lvq_kafka.topics"]
        assert said == (
            "The queue prices is not as its address says: it is declared with key_header 'ticker' (requested: 'code'). "
            "It is used as it is."
        )

    def test_r38_a_queue_that_is_as_its_address_says_is_used_without_a_warning(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        declared(memory_cluster, non_destructive=True)
        for address in ("prices", "prices; {mode: browse}", CREATED % "always", CREATED % "never, assert: always"):
            at(memory_cluster, address).receiver().close()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    @pytest.mark.parametrize("link", ["producer", "receiver"])
    @pytest.mark.parametrize("asserted", ["never", "always", "sender", "receiver"])
    def test_r38_an_assertion_that_does_not_hold_is_an_error_for_the_links_that_the_address_names(
        self, memory_cluster: MemoryCluster, asserted: str, link: str
    ) -> None:
        declared(memory_cluster)
        address = f"prices; {{assert: {asserted}, node: {{x-declare: {{arguments: {{lvqKey: code}}}}}}}}"
        if asserted in ("always", link.replace("producer", "sender")):
            with pytest.raises(QueueMismatch) as caught:
                getattr(at(memory_cluster, address), link)()
            assert caught.value.differences == {"key_header": ("ticker", "code")}
        else:
            getattr(at(memory_cluster, address), link)().close()


class TestReceivers:
    @pytest.mark.parametrize(
        ("address", "kind"),
        [
            ("prices", Consumer),
            ("prices; {mode: consume}", Consumer),
            ("prices; {mode: browse}", Browser),
            ("direct://amq.direct/prices/prices?browse='true'", Browser),
            ("queue://prices", Consumer),
            ("topic://prices", Browser),
            ("topic://other::prices", Consumer),
        ],
    )
    def test_r38_an_address_says_what_its_receiver_is(
        self, memory_cluster: MemoryCluster, address: str, kind: type
    ) -> None:
        declared(memory_cluster, topic="other")
        with at(memory_cluster, address).receiver() as receiver:
            assert type(receiver) is kind

    def test_the_receiver_of_a_queue_without_an_address_consumes_unless_nothing_can_be_consumed(
        self, memory_cluster: MemoryCluster
    ) -> None:
        with declared(memory_cluster).receiver(max_in_work=2) as consumer:
            assert isinstance(consumer, Consumer)
        with declared(memory_cluster, "other", non_destructive=True).receiver(follow=False) as browser:
            assert isinstance(browser, Browser)
        with pytest.raises(ConfigError, match="consumer takes no argument follow"):
            declared(memory_cluster).receiver(follow=False)

    def test_r38_readers_select_as_the_address_says_unless_their_callers_say_otherwise(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declared(memory_cluster)
        with queue.producer() as producer:
            for key, value, headers in (
                ("IBM", "1", {"exchange": "NYSE", "qpid.subject": "usa"}),
                ("MSFT", "2", {"exchange": "NASDAQ", "qpid.subject": "usa"}),
                ("VOD", "3", {"exchange": "LSE"}),
            ):
                producer.send(Message(value, {**headers, "ticker": key})).result(30)
        selecting = at(memory_cluster, "prices/usa; {mode: browse, link: {selector: \"exchange = 'NYSE'\"}}")
        assert shown(selecting.browser(follow=False)) == [("IBM", "1")]
        assert shown(selecting.browser(follow=False, selector="exchange <> 'NYSE'")) == [("MSFT", "2")]
        assert shown(selecting.browser(follow=False, selector="TRUE", headers={})) == [
            ("IBM", "1"),
            ("MSFT", "2"),
            ("VOD", "3"),
        ]
        with selecting.view() as view:
            assert dict(view) == {"IBM": "1"}

    def test_r38_a_replay_period_of_an_address_comes_before_that_of_the_queue(
        self, memory_cluster: MemoryCluster
    ) -> None:
        filters = DefaultFilters(replay_period=0.0)
        put(declared(memory_cluster, non_destructive=True, default_filters=filters), IBM="1")
        assert shown(at(memory_cluster, "prices; {mode: browse}").browser(follow=False)) == []
        replaying = at(memory_cluster, "prices: {link: {x-subscribe: {arguments: {x-qpid-replay-period: '3600'}}}}")
        receiver = replaying.receiver(follow=False)
        assert isinstance(receiver, Browser)
        assert shown(receiver) == [("IBM", "1")]
        assert shown(replaying.browser(follow=False, replay_period=0.0)) == []

    @pytest.mark.parametrize(
        ("address", "opens", "column", "says"),
        [
            ("prices; {link: {selector: 'a = 1'}}", "receiver", 27, "A consumer cannot have selector"),
            ("prices/usa", "receiver", 8, "A consumer cannot have headers"),
            ("direct:////prices?x-qpid-replay-period='60'", "receiver", 19, "A consumer cannot have replay_period"),
            ("prices; {mode: browse}", "consumer", 16, "The address is for browsing"),
            ("prices/usa", "producer", 8, "The subject usa of the address is for receivers"),
            ("direct:////prices?x-qpid-replay-period='60'", "view", 19, "so it has no replay period"),
            ("prices; {link: {selector: 'a ='}}", None, 27, "The selector is wrong"),
            ("prices?last-value-key=a&filter=b%20%3D", None, 25, "The filter is wrong"),
        ],
    )
    def test_an_error_of_a_link_names_its_place_in_the_address_and_declares_nothing(
        self, memory_cluster: MemoryCluster, address: str, opens: str | None, column: int, says: str
    ) -> None:
        if "last-value-key" not in address and "prices" in address and opens is not None:
            declared(memory_cluster)
        before = names(memory_cluster)
        with pytest.raises(ConfigError, match=f"^Column {column} of the address: .*{says}"):
            getattr(at(memory_cluster, address), str(opens))()
        assert names(memory_cluster) == before

    def test_a_receiver_that_cannot_be_leaves_a_missing_queue_undeclared(self, memory_cluster: MemoryCluster) -> None:
        options = "create: always, node: {x-declare: {arguments: {lvqKey: ticker}}}, link: {selector: 'a = 1'}"
        with pytest.raises(ConfigError, match="A consumer cannot have selector"):
            at(memory_cluster, f"prices; {{{options}}}").receiver()
        assert names(memory_cluster) == []


class TestAsyncio:
    def test_a_queue_at_an_address_is_declared_and_read(self, memory_cluster: MemoryCluster) -> None:
        async def main() -> str:
            async with await LastValueQueue.at_async(CREATED % "always", value=TEXT, cluster=memory_cluster) as queue:
                async with await queue.producer_async() as producer:
                    await producer.put("IBM", "118.50")
                receiver = await queue.receiver_async()
                assert isinstance(receiver, Consumer)
                async with receiver:
                    delivery = await receiver.acquire_async(30)
                    assert delivery is not None
                    return str(delivery.value)

        assert asyncio.run(main()) == "118.50"
        assert names(memory_cluster) == ["prices"]
