"""Queues that are altered while they live (R39)."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

import lvq_kafka.queue as queue_module
from lvq_kafka import TEXT, AddressSettings, DefaultFilters, EndOfDump, LastValueQueue, Limits, Message, Ttl
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.queue.altering import ALTERABLE, FIXED
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, QueueDefinition
from lvq_kafka.core.queue.history import NOTICE, alteration_to_json
from lvq_kafka.declared import registry_watch
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    MissingKey,
    QueueFull,
    QueueMismatch,
    QueueNotDeclared,
    TopicMismatch,
    TopicNotFound,
)
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_member import MemoryMember
from tests.clock import Clock
from tests.unit.timed_readers import shown
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_watch, "_LOOK", 0.02)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> MemoryCluster:
    return MemoryCluster(clock=clock)


def declare(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare("prices", key_header="ticker", cluster=cluster, value=TEXT, **options)


def opened(cluster: MemoryCluster) -> LastValueQueue[str]:
    return LastValueQueue.open("prices", cluster=cluster, value=TEXT)


def put(queue: LastValueQueue[str], key: str, value: str = "1", **terms: Any) -> None:
    with queue.producer() as producer:
        producer.put(key, value, **terms).result(5)


TTLS = [None, Ttl(), Ttl(maximum=60.0), Ttl(default=5.0), Ttl(never=True)]


class TestTimes:
    @pytest.mark.parametrize("before", TTLS)
    @pytest.mark.parametrize("after", TTLS)
    def test_r39_a_message_from_before_keeps_its_terms_for_readers_old_and_new(
        self, cluster: MemoryCluster, clock: Clock, before: Ttl | None, after: Ttl | None
    ) -> None:
        queue = declare(cluster, ttl=before)
        put(queue, "BMW")
        with queue.view() as view:
            queue.alter(ttl=after)
            clock.now += NOTICE - 1
            put(queue, "IBM")
            clock.now += 1
            put(queue, "SAP")
            lives = {None: 1e9, Ttl(): 1e9, Ttl(maximum=60.0): 60.0, Ttl(default=5.0): 5.0, Ttl(never=True): 1e9}
            ends = {"BMW": -NOTICE + lives[before], "IBM": -1 + lives[before], "SAP": lives[after]}
            since = clock.now
            for later in (1, 6, 31, 70):
                clock.now = since + later
                alive = {key: "1" for key, end in ends.items() if end >= later}
                view.barrier(10)
                eventually(lambda: view.state == "caught-up")
                assert shown(view) == alive
                with opened(cluster).view() as new:
                    assert shown(new) == alive

    def test_g1_a_reader_keeps_what_it_fetched_when_it_notices_an_alteration_that_does_not_concern_it(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = declare(cluster)
        with queue.view() as view:
            thread = view._follower._reader_thread
            poll = type(thread._reader).poll

            def noticing(reader: Any, timeout: float) -> Fetch:
                fetch = poll(reader, timeout)
                if fetch.positions:
                    thread.altered()
                return fetch

            monkeypatch.setattr(type(thread._reader), "poll", noticing)
            for key in ("IBM", "SAP"):  # the first may come by a poll that is under way
                put(queue, key)
                view.barrier(10)
            assert shown(view) == {"IBM": "1", "SAP": "1"}

    def test_r11_a_message_is_due_by_the_delay_of_its_time(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster, max_delay=100.0)
        put(queue, "IBM", not_before=clock.now + 90)
        with queue.view() as view:
            queue.alter(max_delay=None)
            clock.now += NOTICE
            put(queue, "SAP")
            assert dict(view.snapshot()) == {} or view.barrier(10)
            eventually(lambda: shown(view) == {"SAP": "1"})
            clock.now += 61
            assert shown(view) == {"IBM": "1", "SAP": "1"}

    def test_a_queue_may_get_scheduled_messages(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster)
        with queue.view() as view, queue.producer() as producer:
            alteration = queue.alter(max_delay=50.0)
            assert alteration.since == clock.now + NOTICE
            with pytest.raises(ConfigError, match="max_delay"):
                producer.put("IBM", "1", not_before=clock.now + 40)
            clock.now += NOTICE
            eventually(lambda: queue.definition.max_delay == 50.0)
            eventually(lambda: sends(producer, "IBM", not_before=clock.now + 40))
            view.barrier(10)
            assert shown(view) == {}
            clock.now += 40
            assert shown(view) == {"IBM": "1"}
        assert cluster.topics.config("prices")["min.compaction.lag.ms"] == "110000"

    def test_g8_snapshots_agree_on_what_lives(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster, ttl=Ttl(maximum=40.0))
        with queue.view() as early:
            put(queue, "BMW")
            queue.alter(ttl=Ttl(maximum=10.0))
            clock.now += NOTICE
            put(queue, "SAP")
            with opened(cluster).view() as late:
                for _ in range(5):
                    early.barrier(10)
                    eventually(lambda: early.state == "caught-up")
                    assert dict(early.snapshot()) == dict(late.snapshot())
                    clock.now += 4

    def test_r34_a_watch_does_not_resume_in_a_queue_whose_messages_used_to_expire(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        queue = declare(cluster, ttl=Ttl(maximum=5.0))
        put(queue, "IBM")
        queue.alter(ttl=None)
        clock.now += NOTICE
        with queue.view() as view, pytest.raises(ConfigError, match="expire"):
            view.watch(since={0: 0})


def sends(producer: Any, key: str, value: str = "1", **terms: Any) -> bool:
    try:
        producer.put(key, value, **terms).result(5)
    except ConfigError:
        return False
    return True


class TestConsumers:
    def test_r39_a_consumer_moves_over_and_what_was_consumed_stays_so(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        queue = declare(cluster)
        for key in ("BMW", "IBM"):
            put(queue, key)
        with queue.consumer() as consumer:
            first = consumer.acquire(10)
            assert first is not None
            first.ack(wait=True, timeout=10)
            queue.alter(ttl=Ttl(maximum=5.0))
            eventually(lambda: consumer._shared.core.ledger.times is not None, 20)
            clock.now += NOTICE
            put(queue, "SAP")
            eventually(lambda: consumer.stats.available == 2)
            clock.now += 6
            second = consumer.acquire(10)
            assert second is not None
            assert (first.key, second.key) == ("BMW", "IBM")
            assert consumer.acquire(0.1) is None, "SAP has expired"
        assert queue.stats().depth == 1

    def test_a_holder_may_finish_before_its_consumer_moves_over(self, cluster: MemoryCluster) -> None:
        queue = declare(cluster)
        put(queue, "IBM")
        with queue.consumer(revoke_grace=0.0) as consumer:
            held = consumer.acquire(10)
            assert held is not None
            queue.alter(ttl=Ttl(maximum=5.0))
            eventually(lambda: consumer._thread._moves_at is not None, 20)
            put(queue, "SAP")
            assert consumer.acquire(0.1) is None
            held.ack(wait=True, timeout=10)
            following = consumer.acquire(10)
            assert following is not None
            assert following.key == "SAP"

    def test_r12_a_queue_becomes_a_ring_from_a_time_on(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster)
        for key in ("BMW", "IBM", "SAP"):
            put(queue, key)
        with queue.consumer() as consumer:
            eventually(lambda: consumer.stats.available == 3)
            queue.alter(limits=Limits(messages=2, policy="ring"))
            assert consumer.stats.available == 3
            clock.now += NOTICE
            eventually(lambda: consumer.stats.evicted == 1, 20)
            eventually(lambda: consumer.stats.available == 2)
            queue.alter(limits=Limits(messages=2, policy="disk"))
            clock.now += NOTICE
            eventually(lambda: consumer._shared.pages is not None, 20)
            queue.alter(limits=None)
            clock.now += NOTICE
            eventually(lambda: consumer._shared.pages is None, 20)
            assert [found.key for found in consumer.acquire_many(5, 10)] == ["IBM", "SAP"]

    def test_expired_messages_go_to_the_topic_of_their_time(self, cluster: MemoryCluster, clock: Clock) -> None:
        cluster.topics.create("old", partitions=1, config={})
        cluster.topics.create("new", partitions=1, config={})
        queue = declare(cluster, ttl=Ttl(maximum=5.0), expiry_topic="old")
        put(queue, "IBM")
        with queue.consumer() as consumer:
            clock.now += 6
            eventually(lambda: len(cluster.records("old")) == 1)
            queue.alter(expiry_topic="new")
            clock.now += NOTICE
            eventually(lambda: consumer._shared._definition.expiry_topic == "new", 20)
            put(queue, "SAP")
            clock.now += 6
            eventually(lambda: len(cluster.records("new")) == 1)
            assert len(cluster.records("old")) == 1

    def test_g5_letters_that_nobody_wants_any_longer_are_no_trouble(self, cluster: MemoryCluster, clock: Clock) -> None:
        cluster.topics.create("letters", partitions=1, config={})
        queue = declare(cluster, ttl=Ttl(maximum=5.0), expiry_topic="letters")
        put(queue, "BMW")
        put(queue, "IBM")
        with queue.consumer() as consumer:
            eventually(lambda: consumer.stats.available == 2)
            cluster.topics.delete("letters")
            clock.now += 10
            eventually(lambda: "letters" in consumer.stats.trouble)
            queue.alter(expiry_topic=None)
            clock.now += NOTICE
            eventually(lambda: consumer.stats.trouble == "" and consumer.stats.expired == 4)
            assert consumer.acquire(0) is None

    def test_g5_dead_letters_that_nobody_wants_any_longer_are_no_trouble(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        cluster.topics.create("letters", partitions=1, config={})
        queue = declare(cluster, dead_letters="letters")
        put(queue, "BMW")
        with queue.consumer() as consumer:
            delivery = consumer.acquire(10)
            assert delivery is not None
            cluster.topics.delete("letters")
            delivery.reject("no use")
            eventually(lambda: "letters" in consumer.stats.trouble)
            queue.alter(dead_letters=None)
            clock.now += NOTICE
            eventually(lambda: consumer.stats.trouble == "" and consumer.stats.available == 1)
            again = consumer.acquire(10)
            assert again is not None
            again.reject("no use").result(10)
            assert consumer.acquire(0) is None


class TestProducers:
    def test_a_producer_takes_a_ttl_from_the_time_on_that_the_queue_has_one(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        queue = declare(cluster)
        with queue.producer() as producer:
            queue.alter(ttl=Ttl())
            assert not sends(producer, "IBM", ttl=5.0)
            clock.now += NOTICE
            eventually(lambda: sends(producer, "IBM", ttl=5.0))
            queue.alter(ttl=None)
            clock.now += NOTICE
            eventually(lambda: not sends(producer, "IBM", ttl=5.0))

    def test_r1_a_producer_refuses_messages_without_a_key_once_its_queue_does(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        queue = declare(cluster)
        with queue.producer() as producer:
            producer.send(Message("1")).result(5)
            queue.alter(keyless="refuse")
            clock.now += NOTICE

            def refuses() -> bool:
                try:
                    producer.send(Message("2")).result(5)
                except MissingKey:
                    return True
                return False

            eventually(refuses)

    def test_r12_a_producer_keeps_to_limits_that_its_queue_got(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster)
        with queue.producer() as producer:
            producer.put("BMW", "1").result(5)
            queue.alter(limits=Limits(messages=1, policy="reject"))
            clock.now += NOTICE

            def refuses() -> bool:
                try:
                    producer.put("IBM", "1").result(5)
                    producer.delete("IBM").result(5)
                except QueueFull:
                    return True
                return False

            eventually(refuses)
            queue.alter(limits=None)
            clock.now += NOTICE
            eventually(lambda: not refuses())

    def test_r12_a_producer_keeps_to_limits_that_took_hold_while_it_was_opened(
        self, cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = declare(cluster)
        with queue.view():  # so the watch looks already, and has nobody else to tell
            queue.alter(limits=Limits(messages=1, policy="reject"))
            gate_of = queue_module.gate_of

            def slow(*args: Any, **options: Any) -> Any:
                gate = gate_of(*args, **options)
                clock.now += NOTICE
                assert queue._watch is not None
                queue._watch._notify()
                return gate

            monkeypatch.setattr(queue_module, "gate_of", slow)
            with queue.producer() as producer:

                def is_full() -> bool:
                    try:
                        producer.put(f"{clock.now}", "1").result(5)
                    except QueueFull:
                        return True
                    clock.now += 1
                    return False

                eventually(is_full)

    def test_r12_a_sender_that_waits_goes_on_once_the_limit_is_higher(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        queue = declare(cluster, limits=Limits(messages=1, policy="block"))
        with queue.producer(max_block=30) as producer:
            producer.put("BMW", "1").result(5)
            sender = threading.Thread(target=producer.put, args=("IBM", "1"))
            sender.start()
            queue.alter(limits=Limits(messages=5, policy="block"))
            clock.now += NOTICE
            sender.join(20)
            assert not sender.is_alive()
            sender = threading.Thread(target=lambda: [producer.put(str(key), "1") for key in range(6)])
            sender.start()
            queue.alter(limits=None)
            clock.now += NOTICE
            sender.join(20)
            assert not sender.is_alive()

    def test_a_ring_of_bytes_that_ends_refuses_no_large_message(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster, limits=Limits(bytes=10, policy="ring"))
        with queue.producer() as producer:
            queue.alter(limits=None)
            clock.now += NOTICE

            def accepts() -> bool:
                try:
                    producer.put("IBM", "1" * 99).result(5)
                except QueueFull:
                    return False
                except Exception as error:  # noqa: BLE001
                    return "may hold" not in str(error)
                return True

            eventually(accepts)


class TestQueue:
    def test_r28_browsers_have_the_default_filters_of_their_time(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster)
        put(queue, "IBM")
        clock.now += 100
        put(queue, "SAP")
        queue.alter(default_filters={"replay_period": 40.0})

        def dump() -> list[str]:
            with queue.browser(follow=False) as browser:
                return [event.key for event in browser if not isinstance(event, EndOfDump)]  # type: ignore[union-attr]

        assert dump() == ["IBM", "SAP"]
        clock.now += NOTICE
        assert dump() == ["SAP"]
        assert queue.definition.default_filters == DefaultFilters.of({"replay_period": 40.0})

    def test_the_definition_holds_the_options_of_the_moment(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue, began = declare(cluster, ttl=Ttl(maximum=9.0)), clock.now
        alteration = queue.alter(ttl=None, keyless="refuse")
        assert (alteration.definition.ttl, alteration.since) == (None, began + NOTICE)
        assert (queue.definition.ttl, queue.definition.keyless) == (Ttl(maximum=9.0), "pass")
        clock.now += NOTICE
        assert (queue.definition.ttl, queue.definition.keyless) == (None, "refuse")
        assert [terms.ttl for terms in queue.definition.earlier] == [Ttl(maximum=9.0)]
        assert queue.alter(ttl=None).since is None, "it is so already"
        assert asyncio.run(queue.alter_async(keyless="pass")).since == clock.now + NOTICE

    @pytest.mark.parametrize("option", FIXED)
    def test_an_option_that_is_fixed_is_refused_with_the_reason_and_the_way_out(
        self, cluster: MemoryCluster, option: str
    ) -> None:
        queue = declare(cluster)
        if option in ("topic", "key_header"):
            with pytest.raises(ConfigError):
                queue.alter(**{option: "other"})
            return
        with pytest.raises(ConfigError, match="cannot be altered") as caught:
            queue.alter(**{option: "otherwise"})  # type: ignore[arg-type]
        assert "another queue" in str(caught.value)
        assert queue.alter(**{option: getattr(queue.definition, option)}).since is None

    def test_every_option_can_be_altered_or_is_refused_with_a_reason(self) -> None:
        options = {*QueueDefinition.__dataclass_fields__} - {"name", "earlier", "from_settings"}
        assert options == {*ALTERABLE, *FIXED}

    def test_a_bare_topic_has_nothing_to_alter(self, cluster: MemoryCluster) -> None:
        declare(cluster)
        bare = LastValueQueue("prices", key_header="ticker", cluster=cluster)
        with pytest.raises(QueueNotDeclared, match="bare topic"):
            bare.alter(ttl=Ttl())

    def test_malformed_options_alter_nothing(self, cluster: MemoryCluster) -> None:
        queue = declare(cluster)
        for changes, error in (
            ({"ttl": 5}, ConfigError),
            ({"expiry_topic": "elsewhere"}, ConfigError),
            ({"ttl": Ttl(), "expiry_topic": "elsewhere"}, TopicNotFound),
            ({"keyless": "maybe"}, ConfigError),
            ({"on_mismatch": "maybe"}, ConfigError),
        ):
            with pytest.raises(error):
                queue.alter(**changes)  # type: ignore[arg-type]
        assert len(cluster.records(REGISTRY_TOPIC)) == 1

    @pytest.mark.parametrize("ttl", [None, Ttl(never=True)])
    def test_an_alteration_is_refused_unless_it_makes_sense_without_the_terms_before(
        self, cluster: MemoryCluster, ttl: Ttl | None
    ) -> None:
        """They are not stored with it, so nobody could read it."""
        cluster.topics.create("letters", partitions=1, config={})
        queue = declare(cluster, ttl=Ttl(maximum=5.0), expiry_topic="letters")
        queue.alter(ttl=Ttl(maximum=6.0))
        with pytest.raises(ConfigError, match="of the queue prices is for messages that expire"):
            queue.alter(ttl=ttl)
        assert opened(cluster).newest().ttl == Ttl(maximum=6.0)
        queue.alter(ttl=ttl, expiry_topic=None)
        assert opened(cluster).newest().ttl == ttl

    def test_of_two_alterations_at_once_the_first_counts_and_the_other_caller_learns_it(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, clock: Clock
    ) -> None:
        queue, other = declare(cluster), opened(cluster)
        append = Registry._append

        def overtaken(self: Registry, *args: Any, **named: Any) -> int:
            monkeypatch.setattr(Registry, "_append", append)
            other.alter(ttl=Ttl(maximum=5.0))
            return append(self, *args, **named)

        monkeypatch.setattr(Registry, "_append", overtaken)
        with pytest.raises(QueueMismatch, match="at the same time"):
            queue.alter(ttl=Ttl(maximum=9.0))
        clock.now += NOTICE
        assert queue.definition.ttl is None or queue.refresh().ttl == Ttl(maximum=5.0)
        assert queue.refresh().ttl == Ttl(maximum=5.0)
        assert queue.alter(ttl=Ttl(maximum=9.0)).definition.ttl == Ttl(maximum=9.0)

    def test_compaction_of_the_registry_keeps_all_alterations(self, cluster: MemoryCluster, clock: Clock) -> None:
        queue = declare(cluster)
        for seconds in (5.0, 9.0, 7.0):
            queue.alter(ttl=Ttl(maximum=seconds))
            clock.now += 10
        known = queue.refresh()
        cluster.compact(REGISTRY_TOPIC)
        assert opened(cluster).refresh().earlier == known.earlier
        assert len(known.earlier) == 3

    def test_an_alteration_that_was_stored_twice_holds_from_one_time_on_whether_compacted_or_not(
        self, cluster: MemoryCluster, clock: Clock
    ) -> None:
        """A producer may store a message twice, and compaction keeps the last of a key."""
        declare(cluster).alter(ttl=Ttl(maximum=5.0))
        record = next(record for record in cluster.records(REGISTRY_TOPIC) if record.key != b"prices")
        clock.now += 8
        cluster.write(REGISTRY_TOPIC, record.key, record.value)
        before = opened(cluster).refresh()
        cluster.close_segments(REGISTRY_TOPIC)
        cluster.compact(REGISTRY_TOPIC)
        assert len(cluster.records(REGISTRY_TOPIC)) == 2
        assert opened(cluster).refresh() == before
        assert before.earlier != ()

    @pytest.mark.parametrize("declared_again", [{}, {"topic": "others", "key_header": "isin"}, {"keyless": "refuse"}])
    @pytest.mark.parametrize("again", [True, False])
    def test_an_alteration_of_a_queue_that_is_dropped_meanwhile_is_not_one_of_the_next(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, declared_again: dict[str, Any], again: bool
    ) -> None:
        queue, append = declare(cluster), Registry._append

        def late(registry: Registry, name: str, document: bytes | None, *, key: str | None = None) -> int:
            if key is not None:
                monkeypatch.setattr(Registry, "_append", append)
                opened(cluster).drop()
                if again:
                    options = {"key_header": "ticker", "format": "text", **declared_again}
                    LastValueQueue.declare("prices", cluster=cluster, **options)
            return append(registry, name, document, key=key)

        monkeypatch.setattr(Registry, "_append", late)
        if again and not declared_again:  # the same queue, as far as anybody can tell
            queue.alter(max_delay=5.0)
            return
        with pytest.raises(QueueMismatch if again else QueueNotDeclared):
            queue.alter(max_delay=5.0)
        newest = {record.key: record.value for record in cluster.records(REGISTRY_TOPIC)}
        assert [key for key, value in newest.items() if value is not None] == [b"prices"] * again

    def test_a_record_that_would_alter_what_is_fixed_alters_nothing(self, cluster: MemoryCluster) -> None:
        queue = declare(cluster)
        other = replace(queue.newest(), topic="others", key_header="isin", ttl=Ttl(maximum=5.0))
        cluster.write(REGISTRY_TOPIC, b"prices/1", alteration_to_json(other, after=""))
        assert queue.newest() == queue.definition
        assert queue.alter(max_delay=5.0).definition.topic == "prices"

    def test_a_declaration_matches_what_the_queue_has_or_had_and_a_new_one_starts_afresh(
        self, cluster: MemoryCluster, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A service that declares its queue at each start goes on doing so."""
        queue = declare(cluster)
        queue.alter(ttl=Ttl(maximum=5.0))
        queue.alter(max_delay=9.0)
        again = declare(cluster, ttl=Ttl(maximum=5.0), max_delay=9.0)
        assert again.refresh().earlier == queue.refresh().earlier
        told = "it was altered since it was declared like this; it has"
        assert told not in caplog.text
        for options in ({}, {"ttl": Ttl(maximum=5.0)}):
            caplog.clear()
            assert declare(cluster, **options).newest() == queue.newest()
            assert told in caplog.text
        with pytest.raises(QueueMismatch, match="alter"):
            declare(cluster, max_delay=9.0)
        queue.drop()
        assert declare(cluster).refresh().earlier == ()
        assert [record.value for record in cluster.records(REGISTRY_TOPIC) if record.key != b"prices"][-1] is None

    def test_r37_a_declaration_stays_right_when_settings_are_applied_to_an_altered_queue(
        self, cluster: MemoryCluster
    ) -> None:
        """Its options and what settings gave later may be a mixture that the queue never had."""
        declare(cluster, ttl=Ttl(maximum=5.0)).alter(ttl=Ttl(maximum=9.0))
        with AddressSettings(cluster=cluster) as settings:
            for delay in (3_000, 4_000):
                settings.set("prices", {"max-delay": delay / 1000, "default-replay-period": 3})
                settings.apply()
                opened(cluster).alter(max_delay=float(delay))
                settings.set("prices", {"max-delay": delay / 1000, "keyless": "refuse"})
                settings.apply()
                assert declare(cluster, ttl=Ttl(maximum=5.0)).newest().ttl == Ttl(maximum=9.0)
        with pytest.raises(QueueMismatch):
            declare(cluster, ttl=Ttl(maximum=6.0))

    def test_alterations_of_a_queue_that_was_dropped_halfway_do_not_come_back(self, cluster: MemoryCluster) -> None:
        queue = declare(cluster)
        queue.alter(ttl=Ttl(maximum=5.0))
        cluster.write(REGISTRY_TOPIC, b"prices", None)
        assert declare(cluster).refresh().ttl is None

    def test_a_registry_whose_times_come_from_clients_takes_no_alteration(self, cluster: MemoryCluster) -> None:
        queue = declare(cluster)
        cluster.topics.alter_config(REGISTRY_TOPIC, {"message.timestamp.type": "CreateTime"})
        with pytest.raises(TopicMismatch, match="takes its times from clients"):
            queue.alter(ttl=Ttl())


class TestUnsure:
    @pytest.fixture
    def queue(self, cluster: MemoryCluster) -> LastValueQueue[str]:
        queue = declare(cluster)
        put(queue, "BMW")
        return queue

    @pytest.fixture
    def blind(self, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Set it, and nobody can look at the registry, and has not been able to for long."""
        blind, end = threading.Event(), Registry.end

        def asked(self: Registry, timeout: float) -> int:
            if blind.is_set():
                raise BrokerUnavailable("No leader.", code="_TIMED_OUT", retriable=True)
            return end(self, timeout)

        monkeypatch.setattr(Registry, "end", asked)
        monkeypatch.setattr(registry_watch, "TRUSTED", 0.5)
        return blind

    def test_g5_r39_a_reader_that_cannot_look_says_so_and_judges_nothing(
        self, queue: LastValueQueue[str], blind: threading.Event
    ) -> None:
        with queue.view() as view:
            assert shown(view) == {"BMW": "1"}
            blind.set()
            eventually(lambda: view.state == "disconnected")
            assert "nobody could look whether the queue prices was altered" in str(view.status.trouble)
            with opened_blindly(queue) as producer:
                producer.put("IBM", "1").result(5)
            assert shown(view) == {"BMW": "1"}
            blind.clear()
            eventually(lambda: view.state == "caught-up")
            view.barrier(10)
            assert shown(view) == {"BMW": "1", "IBM": "1"}

    def test_r39_a_consumer_that_cannot_look_leaves_its_group_and_comes_back(
        self,
        queue: LastValueQueue[str],
        blind: threading.Event,
        cluster: MemoryCluster,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        with queue.consumer() as consumer:
            eventually(lambda: consumer.stats.available == 1)
            blind.set()
            eventually(lambda: cluster.groups.member_count("lvq.prices") == 0, 20)
            assert "nobody could look" in consumer.stats.trouble
            assert "the consumer of prices has left its group: For " in caplog.text
            assert consumer.acquire(0.1) is None
            blind.clear()
            found = consumer.acquire(20)
            assert found is not None
            assert found.key == "BMW"
            assert consumer.stats.trouble == ""

    def test_g5_r39_a_reader_that_was_frozen_while_it_awaited_messages_does_not_judge_these_yet(
        self,
        queue: LastValueQueue[str],
        blind: threading.Event,
        cluster: MemoryCluster,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with queue.view() as view:
            view_reader, watch = view._follower._reader_thread._reader, queue._watch
            assert watch is not None
            assert shown(view) == {"BMW": "1"}
            poll, frozen = type(view_reader).poll, threading.Event()

            def freezing(reader: Any, timeout: float) -> Fetch:
                if reader is view_reader and not frozen.is_set():
                    frozen.set()
                    opened(cluster).alter(ttl=Ttl(maximum=1.0))
                    blind.set()
                    clock.now += NOTICE
                    cluster.write("prices", b"IBM", b"1")
                    clock.now += 2
                    watch._looked_at -= NOTICE
                return poll(reader, timeout)

            monkeypatch.setattr(type(view_reader), "poll", freezing)
            assert frozen.wait(10)
            eventually(lambda: view.state == "disconnected")
            assert shown(view) == {"BMW": "1"}
            blind.clear()
            eventually(lambda: view.state == "caught-up")
            view.barrier(10)
            assert shown(view) == {"BMW": "1"}

    def test_g10_a_consumer_that_was_frozen_judges_nothing_by_the_terms_it_knew(
        self, cluster: MemoryCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even if the watch wakes up first: else it would count what lives as expired, for good."""
        queue = LastValueQueue.declare("levels", key_header="k", cluster=cluster, value=TEXT, ttl=Ttl(maximum=1.0))
        with queue.consumer() as consumer:
            assert consumer.acquire(0.1) is None
            watch, poll, frozen = queue._watch, MemoryMember.poll, threading.Event()
            assert watch is not None

            def freezing(member: MemoryMember, timeout: float) -> Fetch:
                if not frozen.is_set():
                    frozen.set()
                    LastValueQueue.open("levels", cluster=cluster).alter(ttl=None)
                    clock.now += NOTICE
                    with LastValueQueue.open("levels", cluster=cluster, value=TEXT).producer() as producer:
                        producer.put("BMW", "1").result(5)
                    clock.now += 2
                    watch._looked_at -= NOTICE
                    watch.refresh()
                return poll(member, timeout)

            monkeypatch.setattr(MemoryMember, "poll", freezing)
            delivery = consumer.acquire(10)
            assert delivery is not None
            delivery.ack()

    def test_g5_r39_a_queue_that_was_dropped_and_declared_otherwise_is_not_read_by_the_former_rules(
        self, queue: LastValueQueue[str], cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry_watch, "_LOOK", 0.5)
        with queue.view() as view, queue.producer() as producer:
            opened(cluster).drop()
            again = declare(cluster, ttl=Ttl(maximum=5.0))
            eventually(lambda: view.state == "disconnected")
            assert "was dropped, and declared otherwise" in str(view.status.trouble)
            with pytest.raises(QueueMismatch, match="Open it again"):
                queue.consumer()
            end = cluster.logs.end_offsets("prices")
            for _ in range(2):
                with pytest.raises(QueueMismatch, match="Open it again"):
                    producer.put("IBM", "not of this queue")
            assert cluster.logs.end_offsets("prices") == end
            again.drop()
            declare(cluster)
            eventually(lambda: view.state == "caught-up")
            assert view.status.trouble is None
            producer.put("IBM", "1").result(10)

    def test_an_alteration_by_a_newer_library_is_one_that_nobody_can_know(
        self, queue: LastValueQueue[str], cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry_watch, "TRUSTED", 0.5)
        with queue.view() as view:
            cluster.write(REGISTRY_TOPIC, b"prices/1", b'{"version": 9}')
            eventually(lambda: view.state == "disconnected")
            assert "version 9" in str(view.status.trouble)
        with pytest.raises(ConfigError, match=r"version 9.*lvq delete _lvq_queues prices/1 --bare"):
            opened(cluster)

    def test_an_alteration_that_cannot_be_read_says_which_record_to_remove(
        self, queue: LastValueQueue[str], cluster: MemoryCluster
    ) -> None:
        for definition in (b'{"version": 1}', b'{"version": 1, "name": "prices", "topic": "prices", "key_header": ""}'):
            document = b'{"version": 1, "after": "", "definition": ' + definition + b"}"
            cluster.write(REGISTRY_TOPIC, b"prices/1", document)
            with pytest.raises(ConfigError, match=r"An alteration .*lvq delete _lvq_queues prices/1 --bare"):
                opened(cluster)
            cluster.write(REGISTRY_TOPIC, b"prices/1", None)
        assert opened(cluster).newest() == queue.newest()


def opened_blindly(queue: LastValueQueue[str]) -> Any:
    return LastValueQueue("prices", key_header="ticker", cluster=queue.cluster, value=TEXT).producer()


def test_the_thread_that_watches_ends_with_the_last_that_follows(cluster: MemoryCluster) -> None:
    def watching() -> bool:
        return any(thread.name == "lvq-registry-prices" for thread in threading.enumerate())

    queue = declare(cluster)
    eventually(lambda: not watching())  # of other tests, too
    with queue.view():
        with queue.producer():
            assert watching()
        assert watching()
    eventually(lambda: not watching())
    with queue.consumer():
        assert watching()
    eventually(lambda: not watching())
