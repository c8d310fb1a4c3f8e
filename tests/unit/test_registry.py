"""The registry on the in-memory cluster: one definition per queue, no matter who declares it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lvq_kafka import LastValueQueue, QueueDefinition, queues
from lvq_kafka.cluster import LogReader, LogWriter
from lvq_kafka.core.facts import Right
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import (
    BrokerUnavailable,
    CatchUpTimeout,
    ConfigError,
    DeliveryFailed,
    LVQError,
    QueueMismatch,
    QueueNotDeclared,
    TransportError,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster


def definition(name: str = "prices", **changes: Any) -> QueueDefinition:
    return QueueDefinition(**{"name": name, "topic": name, "key_header": "ticker", **changes})


@pytest.fixture
def registry(memory_cluster: MemoryCluster) -> Registry:
    return Registry(memory_cluster)


def before_the_next_write(cluster: MemoryCluster, step: Callable[[], object]) -> None:
    """Run ``step`` when the next writer is opened, after the registry was read, as if somebody were quicker."""
    opened = cluster.writer

    def writer(**options: Any) -> LogWriter:
        cluster.writer = opened  # type: ignore[method-assign]
        step()
        return opened(**options)

    cluster.writer = writer  # type: ignore[method-assign]


NOT_NOW = TransportError("Not now.", code="_TRANSPORT", retriable=True)


class TestReading:
    def test_a_failure_that_passes_by_itself_is_waited_out(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        registry.declare(definition())
        memory_cluster.fail_next("poll", NOT_NOW, times=3)
        assert registry.get("prices") == definition()

    @pytest.mark.parametrize(
        "call",
        [
            lambda cluster: LastValueQueue.open("prices", cluster=cluster),
            lambda cluster: LastValueQueue.declare("prices", key_header="ticker", cluster=cluster),
            lambda cluster: LastValueQueue.declare("new", key_header="ticker", cluster=cluster),
            lambda cluster: queues(cluster=cluster),
        ],
        ids=["open", "declare again", "declare", "queues"],
    )
    def test_a_poll_that_fails_once_fails_nothing_that_reads_it(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, call: Callable[[MemoryCluster], object]
    ) -> None:
        LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)
        opened, failed = memory_cluster.reader, []

        def reader(topic: str, positions: Mapping[int, int], **how: Any) -> LogReader:
            memory_cluster.fail_next("poll", NOT_NOW)
            failed.append(topic)
            return opened(topic, positions, **how)

        monkeypatch.setattr(memory_cluster, "reader", reader)
        call(memory_cluster)
        assert set(failed) == {REGISTRY_TOPIC}

    def test_a_failure_that_does_not_pass_in_time_is_the_cause_of_giving_up(
        self, memory_cluster: MemoryCluster
    ) -> None:
        Registry(memory_cluster).declare(definition())
        memory_cluster.fail_next("poll", NOT_NOW, times=100_000)
        with pytest.raises(CatchUpTimeout) as caught:
            Registry(memory_cluster, timeout=0.05).get("prices")
        assert caught.value.__cause__ is NOT_NOW

    def test_a_failure_that_does_not_pass_is_raised_at_once(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        registry.declare(definition())
        memory_cluster.fail_next("poll", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"))
        with pytest.raises(Unauthorized):
            registry.get("prices")

    def test_a_cluster_without_a_registry_has_no_queues_and_is_not_given_one(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        assert registry.all() == []
        assert not registry.check(definition())
        with pytest.raises(QueueNotDeclared):
            registry.get("prices")
        with pytest.raises(LVQError):
            memory_cluster.topics.describe(REGISTRY_TOPIC)

    def test_a_name_that_is_nearly_right_is_told_the_right_one(self, registry: Registry) -> None:
        for name in ("prices", "orders", "closed"):
            registry.declare(definition(name))
        registry.remove("closed")
        for asked, told in (
            ("pricse", "Did you mean prices?"),
            ("closed", "lvq declare closed"),
            ("x", "`lvq queues`"),
        ):
            with pytest.raises(QueueNotDeclared) as caught:
                registry.get(asked)
            assert told in caught.value.hint

    def test_a_declared_queue_is_there_for_everybody_and_survives_compaction(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        mine = [definition("a"), definition("b", key_header=None, order="in-place"), definition("c", keyless="refuse")]
        for one in mine:
            registry.declare(one)
        registry.remove("c")
        registry.declare(mine[2])
        memory_cluster.compact(REGISTRY_TOPIC, drop_tombstones=True)
        assert Registry(memory_cluster).all() == mine
        assert Registry(memory_cluster).get("b") == mine[1]

    def test_a_transaction_that_hides_what_follows_is_named_when_the_time_is_up(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        registry.declare(definition())
        writer = memory_cluster.writer(transactional_id="x")
        writer.begin_transaction()
        writer.append(REGISTRY_TOPIC, b"hidden", b"{}")
        with pytest.raises(CatchUpTimeout, match="partition 0 is at offset 1 of 2") as caught:
            Registry(memory_cluster, timeout=0.1).all()
        assert caught.value.shortfalls[0].target == 2
        assert "transaction" in caught.value.hint


class TestDeclaring:
    def test_the_topic_is_compacted_and_has_one_partition(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        registry.declare(definition())
        assert memory_cluster.topics.describe(REGISTRY_TOPIC).partitions == 1
        assert memory_cluster.topics.config(REGISTRY_TOPIC)["cleanup.policy"] == "compact"

    def test_the_same_again_writes_nothing(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        assert registry.declare(definition())
        assert registry.check(definition())
        assert not registry.declare(definition())
        assert len(memory_cluster.records(REGISTRY_TOPIC)) == 1

    @pytest.mark.parametrize(
        ("change", "value"),
        [("topic", "other"), ("key_header", "isin"), ("order", "in-place"), ("non_destructive", True)],
    )
    def test_another_definition_is_refused_and_says_what_differs(
        self, memory_cluster: MemoryCluster, registry: Registry, change: str, value: object
    ) -> None:
        registry.declare(definition())
        for call in (registry.declare, registry.check):
            with pytest.raises(QueueMismatch, match=change) as caught:
                call(definition(**{change: value}))
            assert caught.value.differences == {change: (getattr(definition(), change), value)}
        assert len(memory_cluster.records(REGISTRY_TOPIC)) == 1

    def test_queues_share_a_topic_only_if_they_agree_on_the_key_header(self, registry: Registry) -> None:
        registry.declare(definition("a", topic="t"))
        assert registry.declare(definition("b", topic="t", order="in-place"))
        with pytest.raises(QueueMismatch, match="'ticker' and None") as caught:
            registry.declare(definition("c", topic="t", key_header=None))
        assert caught.value.queue == "c"
        assert [one.name for one in registry.all()] == ["a", "b"]

    def test_of_two_at_the_same_moment_the_first_wins_and_the_other_is_told(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        first = definition(key_header="isin")
        before_the_next_write(memory_cluster, lambda: Registry(memory_cluster).declare(first))
        with pytest.raises(QueueMismatch) as caught:
            registry.declare(definition())
        assert caught.value.differences == {"key_header": ("isin", "ticker")}
        assert registry.get("prices") == first

    def test_a_definition_that_is_about_to_be_taken_back_is_seen_by_nobody(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        first, second = definition(), definition(key_header="code")
        registry.declare(first)
        memory_cluster.write(REGISTRY_TOPIC, b"prices", second.to_json())
        assert registry.get("prices") == first
        assert registry.all() == [first]
        assert registry.check(first)
        with pytest.raises(QueueMismatch):
            registry.declare(second)
        registry.remove("prices")
        assert registry.declare(second)
        assert registry.get("prices") == second

    def test_of_two_that_are_the_same_one_has_written_it(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        before_the_next_write(memory_cluster, lambda: Registry(memory_cluster).declare(definition()))
        assert not registry.declare(definition())
        assert registry.all() == [definition()]

    def test_of_two_queues_that_meet_on_a_topic_the_second_is_taken_back(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        first = definition("isins", topic="prices", key_header="isin")
        before_the_next_write(memory_cluster, lambda: Registry(memory_cluster).declare(first))
        with pytest.raises(QueueMismatch, match="share the topic prices"):
            registry.declare(definition())
        assert registry.all() == [first]

    def test_a_queue_that_is_deleted_at_the_same_moment_does_not_count(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        def come_and_go() -> None:
            Registry(memory_cluster).declare(definition(key_header="isin"))
            Registry(memory_cluster).remove("prices")

        before_the_next_write(memory_cluster, come_and_go)
        assert registry.declare(definition())
        assert registry.get("prices") == definition()

    def test_of_many_threads_exactly_one_wins(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        start = threading.Barrier(8)

        def declare(number: int) -> int | None:
            start.wait()
            try:
                Registry(memory_cluster).declare(definition(key_header=f"header-{number}"))
            except QueueMismatch:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(declare, range(8)) if number is not None]
        assert [f"header-{number}" for number in winners] == [registry.get("prices").key_header]


class TestRemoving:
    def test_a_removed_queue_is_gone_and_can_be_declared_otherwise(self, registry: Registry) -> None:
        registry.declare(definition())
        assert registry.remove("prices") == definition()
        assert registry.all() == []
        assert registry.declare(definition(key_header="isin"))

    def test_a_queue_that_is_not_declared_cannot_be_removed(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        registry.declare(definition("other"))
        with pytest.raises(QueueNotDeclared, match="prices"):
            registry.remove("prices")
        assert len(memory_cluster.records(REGISTRY_TOPIC)) == 1


class TestUnreadable:
    @pytest.fixture(autouse=True)
    def _unreadable(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        registry.declare(definition())
        memory_cluster.write(REGISTRY_TOPIC, b"newer", b'{"version": 3}')

    def test_it_is_left_out_and_told_once(
        self, memory_cluster: MemoryCluster, registry: Registry, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert registry.all() == [definition()]
        assert registry.declare(definition("other"))
        assert caplog.text.count("the queue newer in _lvq_queues has version 3") == 1

    def test_a_caller_that_has_to_know_all_of_a_topic_is_not_left_in_doubt(
        self, memory_cluster: MemoryCluster, registry: Registry
    ) -> None:
        assert registry.on_topic("prices") == [definition()]
        assert registry.on_topic("elsewhere") == []
        for value in (b"no JSON", b"[]", b'{"version": 3, "topic": 5}', b'{"version": 3, "topic": "elsewhere"}'):
            memory_cluster.write(REGISTRY_TOPIC, b"newer", None)
            memory_cluster.write(REGISTRY_TOPIC, b"newer", value)
            assert registry.on_topic("prices") == [definition()], "one that names another topic stops nobody"
        with pytest.raises(ConfigError, match="newer"):
            registry.on_topic("elsewhere")

    def test_it_can_neither_be_read_nor_declared_again(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        for call in (lambda: registry.get("newer"), lambda: registry.declare(definition("newer"))):
            with pytest.raises(ConfigError, match="upgrade"):
                call()
        assert len(memory_cluster.records(REGISTRY_TOPIC)) == 2

    def test_one_that_comes_at_the_same_moment_is_kept(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        before_the_next_write(memory_cluster, lambda: memory_cluster.write(REGISTRY_TOPIC, b"mine", b'{"version": 3}'))
        with pytest.raises(ConfigError, match="upgrade"):
            registry.declare(definition("mine"))
        assert memory_cluster.records(REGISTRY_TOPIC)[-1].value == b'{"version": 3}'


class TestWriting:
    REFUSAL = Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED")

    def failure(self, cause: Exception) -> DeliveryFailed:
        failure = DeliveryFailed("It was not stored.", key=b"prices", code="X")
        failure.__cause__ = cause
        return failure

    @pytest.mark.parametrize("late", [False, True])
    def test_a_refused_user_learns_which_right_is_missing(
        self, memory_cluster: MemoryCluster, registry: Registry, late: bool
    ) -> None:
        memory_cluster.fail_next("append", self.failure(self.REFUSAL) if late else self.REFUSAL)
        with pytest.raises(Unauthorized, match="the queue prices to _lvq_queues") as caught:
            registry.declare(definition())
        assert caught.value.code == self.REFUSAL.code
        assert caught.value.missing == Right("Write", "Topic", REGISTRY_TOPIC)
        assert "--operation Write --topic _lvq_queues" in caught.value.hint
        assert registry.all() == []

    def test_any_other_failure_is_what_it_is(self, memory_cluster: MemoryCluster, registry: Registry) -> None:
        memory_cluster.fail_next("append", self.failure(TimeoutError()))
        with pytest.raises(DeliveryFailed, match="not stored"):
            registry.declare(definition())

    def test_a_write_that_nobody_acknowledges_is_given_up_in_time(self, memory_cluster: MemoryCluster) -> None:
        registry = Registry(memory_cluster, timeout=0.1)
        before_the_next_write(memory_cluster, memory_cluster.disconnect)
        with pytest.raises(BrokerUnavailable, match=r"not acknowledged within 0\.1 s") as caught:
            registry.declare(definition())
        assert caught.value.retriable
        memory_cluster.reconnect()
        assert registry.declare(definition())
