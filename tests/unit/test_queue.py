"""Declaring, opening and deleting queues on the in-memory cluster: nothing that exists changes silently."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, Message, QueueDefinition, TopicSpec, connect, queues
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.core.queue.topic_settings import topic_settings
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    MissingKey,
    QueueError,
    QueueMismatch,
    QueueNotDeclared,
    TopicMismatch,
    TopicNotFound,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_admin import MemoryTopics

NO_CODEC: Any = "text"
FORBIDDEN = Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED")


def declare(cluster: MemoryCluster, name: str = "prices", **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare(name, **{"key_header": "ticker", "value": TEXT, "cluster": cluster, **options})


def put(queue: LastValueQueue[str], **values: str) -> None:
    with queue.producer() as producer:
        for key, value in values.items():
            producer.put(key, value)


def consumed(queue: LastValueQueue[str], count: int) -> list[str]:
    """Take and ack this many messages; there must be no more."""
    values = []
    with queue.consumer() as consumer:
        for _ in range(count):
            delivery = consumer.acquire(30)
            assert delivery is not None
            values.append(delivery.value)
            delivery.ack(wait=True, timeout=30)
        assert consumer.acquire(0.1) is None
    return values


class Cluster(MemoryCluster):
    """A cluster for the library's own connections, which it counts."""

    opened = 0
    closed = 0

    def connect(self, config: object) -> MemoryCluster:
        self.opened += 1
        return self

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr("lvq_kafka.kafka.KafkaCluster", cluster.connect)
    return cluster


class TestDeclare:
    def test_a_missing_topic_is_created_and_reported(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        assert queue.declaration is not None
        assert (queue.declaration.created_topic, queue.declaration.created_queue) == (True, True)
        assert (queue.declaration.findings, queue.declaration.reconciled, queue.declaration.unchecked) == ((), (), ())
        assert (queue.name, queue.topic, queue.key_header) == ("prices", "prices", "ticker")
        assert repr(queue) == "<LastValueQueue prices on prices, key ticker>"
        config = memory_cluster.topics.config("prices")
        assert config["cleanup.policy"] == "compact"
        assert config["message.timestamp.type"] == "LogAppendTime"
        assert memory_cluster.topics.describe("prices").partitions == 1
        (commit,) = memory_cluster.groups.committed("lvq.prices", "prices").values()
        declared = CommitMap.decode(commit.offset, commit.metadata)
        assert declared == CommitMap(0, topic_tag=topic_tag(memory_cluster.topics.describe("prices").id), partitions=1)

    def test_the_same_again_changes_nothing(self, memory_cluster: MemoryCluster) -> None:
        put(declare(memory_cluster), a="1")
        before = memory_cluster.records(REGISTRY_TOPIC), memory_cluster.topics.config("prices")
        again = declare(memory_cluster, spec=TopicSpec(partitions=8), start="latest")
        assert again.declaration is not None
        assert (again.declaration.created_topic, again.declaration.created_queue) == (False, False)
        assert (memory_cluster.records(REGISTRY_TOPIC), memory_cluster.topics.config("prices")) == before
        assert memory_cluster.topics.describe("prices").partitions == 1
        assert consumed(again, 1) == ["1"]

    def test_the_spec_shapes_a_new_topic(self, memory_cluster: MemoryCluster) -> None:
        spec = TopicSpec(partitions=3, delete_retention=7200.0, reclaim=True, config={"segment.ms": "60000"})
        queue = declare(memory_cluster, topic="ticks", spec=spec)
        assert (queue.name, queue.topic) == ("prices", "ticks")
        config = memory_cluster.topics.config("ticks")
        assert memory_cluster.topics.describe("ticks").partitions == 3
        assert config["delete.retention.ms"] == "7200000"
        assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", "-1")
        assert config["segment.ms"] == "60000"
        again = declare(memory_cluster, topic="ticks", spec=spec, on_mismatch="reconcile")
        assert queue.declaration is not None
        assert again.declaration is not None
        assert queue.declaration.findings == again.declaration.reconciled == ()
        assert memory_cluster.topics.config("ticks") == config

    def test_three_replicas_need_two_in_sync(self) -> None:
        cluster = MemoryCluster(brokers=3)
        declare(cluster, spec=TopicSpec(replication_factor=3))
        assert cluster.topics.config("prices")["min.insync.replicas"] == "2"
        declare(cluster, "alone", spec=TopicSpec(replication_factor=1))
        assert cluster.topics.config("alone")["min.insync.replicas"] == "1"

    def test_three_replicas_by_the_clusters_default_need_two_in_sync_too(self) -> None:
        class Replicating(MemoryTopics):
            def create(
                self,
                topic: str,
                *,
                partitions: int,
                replication_factor: int | None = None,
                config: Mapping[str, str],
                timeout: float = 10.0,
            ) -> bool:
                return super().create(
                    topic, partitions=partitions, replication_factor=replication_factor or 3, config=config
                )

        cluster = MemoryCluster(brokers=3)
        cluster.topics = Replicating(cluster._state)
        queue = declare(cluster)
        assert cluster.topics.config("prices")["min.insync.replicas"] == "2"
        assert queue.declaration is not None
        assert queue.declaration.findings == ()

    @pytest.mark.parametrize(("start", "kept"), [("earliest", ["1", "2"]), ("latest", [])])
    def test_a_new_queue_holds_what_is_there_or_only_what_comes(
        self, memory_cluster: MemoryCluster, start: str, kept: list[str]
    ) -> None:
        memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        put(LastValueQueue("prices", key_header="ticker", value=TEXT, cluster=memory_cluster), a="1", b="2")
        queue = declare(memory_cluster, start=start)
        put(queue, c="3")
        assert consumed(queue, len(kept) + 1) == [*kept, "3"]

    @pytest.mark.parametrize(
        ("options", "option"),
        [
            ({"on_mismatch": "ignore"}, "on_mismatch"),
            ({"start": "middle"}, "start"),
            ({"order": "random"}, "order"),
            ({"keyless": "drop"}, "keyless"),
            ({"key_mismatch": "both"}, "key-mismatch"),
            ({"key_header": ""}, "key_header"),
            ({"non_destructive": "yes"}, "non_destructive"),
            ({"topic": "a b"}, "topic"),
        ],
    )
    def test_an_option_that_cannot_be_is_refused_before_anything_is_asked(
        self, memory_cluster: MemoryCluster, options: dict[str, Any], option: str
    ) -> None:
        memory_cluster.disconnect()
        with pytest.raises(ConfigError) as caught:
            declare(memory_cluster, **options)
        assert caught.value.options == (option,)

    def test_a_lost_cluster_is_an_error_and_nothing_is_declared(self, memory_cluster: MemoryCluster) -> None:
        memory_cluster.disconnect()
        with pytest.raises(BrokerUnavailable):
            declare(memory_cluster)
        memory_cluster.reconnect()
        assert queues(cluster=memory_cluster) == []

    @pytest.mark.parametrize("step", ["groups.check_may_commit", "topics.check_may_create", "topics.check_may"])
    def test_a_declare_that_may_not_be_finished_creates_no_topic_and_no_group(
        self, memory_cluster: MemoryCluster, step: str
    ) -> None:
        declare(memory_cluster, "another")  # the registry exists already
        memory_cluster.fail_next(step, FORBIDDEN)
        with pytest.raises(Unauthorized):
            declare(memory_cluster)
        with pytest.raises(TopicNotFound):
            memory_cluster.topics.describe("prices")
        assert memory_cluster.groups.committed("lvq.prices", "prices") == {}

    def test_a_queue_that_is_declared_can_be_verified_without_any_right_to_change_it(
        self, memory_cluster: MemoryCluster
    ) -> None:
        declare(memory_cluster)
        for step in ("groups.check_may_commit", "topics.check_may_create", "topics.check_may", "commit", "append"):
            memory_cluster.fail_next(step, FORBIDDEN)
        assert declare(memory_cluster).declaration is not None

    @pytest.mark.parametrize("step", ["topics.create", "groups.committed", "commit", "append"])
    def test_a_declare_that_fails_half_way_declares_nothing_and_can_be_repeated(
        self, memory_cluster: MemoryCluster, step: str
    ) -> None:
        memory_cluster.fail_next(step, FORBIDDEN)
        with pytest.raises(Unauthorized):
            declare(memory_cluster)
        assert queues(cluster=memory_cluster) == []
        queue = declare(memory_cluster)
        put(queue, a="1")
        assert consumed(queue, 1) == ["1"]

    def test_of_many_at_the_same_moment_one_wins_and_the_others_are_told(self, memory_cluster: MemoryCluster) -> None:
        start = threading.Barrier(6)

        def try_it(number: int) -> str | None:
            start.wait()
            try:
                return declare(memory_cluster, key_header=f"header-{number}").key_header
            except QueueMismatch:
                return None

        with ThreadPoolExecutor(6) as pool:
            winners = [header for header in pool.map(try_it, range(6)) if header is not None]
        assert winners == [LastValueQueue.open("prices", cluster=memory_cluster).key_header]


class TestExistingTopic:
    @pytest.fixture
    def topic(self, memory_cluster: MemoryCluster) -> str:
        memory_cluster.topics.create("prices", partitions=2, config={"retention.ms": "1000"})
        return "prices"

    def test_one_that_is_not_compacted_is_refused(self, memory_cluster: MemoryCluster, topic: str) -> None:
        with pytest.raises(TopicMismatch, match=r"cleanup\.policy is delete, not compact") as caught:
            declare(memory_cluster)
        assert caught.value.settings == {"cleanup.policy": ("compact", "delete")}
        assert queues(cluster=memory_cluster) == []
        assert memory_cluster.topics.config(topic)["cleanup.policy"] == "delete"

    def test_it_can_be_taken_as_it_is_with_a_warning(
        self, memory_cluster: MemoryCluster, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = declare(memory_cluster, on_mismatch="warn")
        assert queue.declaration is not None
        found = {finding.setting: finding.severity for finding in queue.declaration.findings}
        assert found.pop("cleanup.policy") == "error"
        assert found.keys() >= {"message.timestamp.type", "segment.ms"}
        assert set(found.values()) == {"warning"}
        assert "topic prices: cleanup.policy is delete" in caplog.text
        assert memory_cluster.topics.config(topic)["cleanup.policy"] == "delete"

    def test_it_can_be_set_right_and_the_rest_is_left_alone(self, memory_cluster: MemoryCluster, topic: str) -> None:
        queue = declare(memory_cluster, on_mismatch="reconcile")
        assert queue.declaration is not None
        assert queue.declaration.findings == ()
        mended = {finding.setting: finding.actual for finding in queue.declaration.reconciled}
        assert mended.items() >= {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}.items()
        config = memory_cluster.topics.config(topic)
        assert config.items() >= {setting: topic_settings(TopicSpec())[setting] for setting in mended}.items()
        assert config["retention.ms"] == "1000"

    def test_a_setting_that_bends_a_promise_only_warns(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        memory_cluster.topics.create("soft", partitions=1, config={"cleanup.policy": "compact"})
        queue = declare(memory_cluster, "soft")
        assert queue.declaration is not None
        assert {finding.severity for finding in queue.declaration.findings} == {"warning"}
        assert "message.timestamp.type is CreateTime, not LogAppendTime" in caplog.text
        assert "segment.ms is 604800000, not 3600000: the active segment is never compacted" in caplog.text
        assert memory_cluster.topics.config("soft")["segment.ms"] == "604800000"

    def test_without_the_right_to_look_it_says_what_it_could_not_check(
        self, memory_cluster: MemoryCluster, topic: str
    ) -> None:
        memory_cluster.fail_next("topics.config", FORBIDDEN)
        queue = declare(memory_cluster)
        assert queue.declaration is not None
        assert queue.declaration.unchecked == ("the settings of prices: this user may not read them",)
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["prices"]


class TestScheduled:
    """R11: a topic must keep the value that counts for as long as a newer one may be scheduled."""

    LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")

    def lags(self, cluster: MemoryCluster, topic: str = "prices") -> tuple[str, ...]:
        config = cluster.topics.config(topic)
        return tuple(config[setting] for setting in self.LAGS)

    def test_a_new_topic_is_not_compacted_for_as_long(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, max_delay=3600)
        assert queue.definition.max_delay == 3600.0
        assert self.lags(memory_cluster) == ("3660000", "90000000")
        assert queue.declaration is not None
        assert queue.declaration.findings == ()
        again = declare(memory_cluster, max_delay=3600.0)
        assert again.declaration is not None
        assert (again.declaration.created_queue, again.declaration.findings) == (False, ())
        with pytest.raises(QueueMismatch, match="max_delay") as caught:
            declare(memory_cluster)
        assert caught.value.differences == {"max_delay": ({"ms": 3_600_000}, None)}

    def test_producers_of_the_queue_schedule(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster, max_delay=60)
        due = memory_cluster.now() + 30
        bare: LastValueQueue[str] = LastValueQueue(
            "prices", key_header="ticker", max_delay=60, value=TEXT, cluster=memory_cluster
        )
        for queue in (LastValueQueue.open("prices", value=TEXT, cluster=memory_cluster), bare):
            with queue.producer() as producer:
                producer.put("a", "1", not_before=due)
        said = [dict(record.headers)["lvq-not-before"] for record in memory_cluster.records("prices")]
        assert said == [b"%d" % round(due * 1000)] * 2

    def test_a_topic_that_compacts_sooner_is_refused_with_the_reason(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster, "plain", topic="t")
        with pytest.raises(TopicMismatch, match=r"min\.compaction\.lag\.ms is 60000, not 3660000.*goes dark") as caught:
            declare(memory_cluster, "late", topic="t", max_delay=3600)
        assert caught.value.settings == {"min.compaction.lag.ms": ("3660000", "60000")}
        assert "reconcile" in caught.value.hint
        assert self.lags(memory_cluster, "t") == ("60000", "86400000"), "nothing is altered unasked"
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["plain"]

    def test_it_can_be_taken_as_it_is_with_a_warning(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        declare(memory_cluster, "plain", topic="t")
        queue = declare(memory_cluster, "late", topic="t", max_delay=3600, on_mismatch="warn")
        assert queue.declaration is not None
        assert [(found.setting, found.severity) for found in queue.declaration.findings] == [
            ("min.compaction.lag.ms", "error")
        ]
        assert "topic t: min.compaction.lag.ms is 60000, not 3660000: else compaction removes the value" in caplog.text
        assert self.lags(memory_cluster, "t") == ("60000", "86400000")

    @pytest.mark.parametrize("longest", [None, "120000"])
    def test_it_can_be_set_right(self, memory_cluster: MemoryCluster, longest: str | None) -> None:
        declare(memory_cluster, "plain", topic="t")
        if longest is not None:
            memory_cluster.topics.alter_config("t", {"max.compaction.lag.ms": longest})
        queue = declare(memory_cluster, "late", topic="t", max_delay=86400, on_mismatch="reconcile")
        assert queue.declaration is not None
        assert queue.declaration.findings == ()
        shortest, latest = map(int, self.lags(memory_cluster, "t"))
        assert shortest == 86_460_000 <= latest

    def test_the_longest_delay_on_a_topic_counts(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster, "day", topic="t", max_delay=86400)
        assert self.lags(memory_cluster, "t") == ("86460000", "172800000")
        for name, options in (("hour", {"max_delay": 3600}), ("plain", {})):
            queue = declare(memory_cluster, name, topic="t", on_mismatch="reconcile", **options)
            assert queue.declaration is not None
            assert queue.declaration.findings == queue.declaration.reconciled == ()
        assert self.lags(memory_cluster, "t") == ("86460000", "172800000")

    @pytest.mark.parametrize("setting", LAGS)
    def test_settings_that_exclude_it_are_refused_before_anything_is_created(
        self, memory_cluster: MemoryCluster, setting: str
    ) -> None:
        spec = TopicSpec(config={setting: "1000"})
        with pytest.raises(ConfigError, match=f"{setting}=1000 and max_delay=60 exclude each other") as caught:
            declare(memory_cluster, spec=spec, max_delay=60)
        assert caught.value.options == (setting, "max_delay")
        with pytest.raises(TopicNotFound):
            memory_cluster.topics.describe("prices")

    def test_they_can_be_insisted_on_and_are_a_finding(self, memory_cluster: MemoryCluster) -> None:
        spec = TopicSpec(config={"min.compaction.lag.ms": "1000"})
        queue = declare(memory_cluster, spec=spec, max_delay=60, on_mismatch="warn")
        assert self.lags(memory_cluster)[0] == "1000"
        assert queue.declaration is not None
        assert [(found.setting, found.expected) for found in queue.declaration.findings] == [
            ("min.compaction.lag.ms", "120000")
        ]


class TestSharedTopic:
    def test_each_queue_has_its_own_consumption(self, memory_cluster: MemoryCluster) -> None:
        one, other = declare(memory_cluster, "one", topic="t"), declare(memory_cluster, "other", topic="t")
        put(one, a="1", b="2")
        assert consumed(one, 2) == ["1", "2"]
        assert consumed(other, 2) == ["1", "2"]

    def test_another_key_header_is_refused_and_nothing_is_left_of_it(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster, "one", topic="t")
        with pytest.raises(QueueMismatch, match="different key headers, 'ticker' and 'isin'"):
            declare(memory_cluster, "other", topic="t", key_header="isin")
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["one"]
        assert memory_cluster.groups.committed("lvq.other", "t") == {}


class TestOpen:
    def test_a_queue_is_opened_as_it_was_declared(self, memory_cluster: MemoryCluster) -> None:
        declared = declare(memory_cluster, topic="t", order="in-place", keyless="refuse")
        opened = LastValueQueue.open("prices", cluster=memory_cluster)
        assert opened.definition == declared.definition
        assert opened.declaration is None
        with pytest.raises(MissingKey), opened.producer() as producer:
            producer.send(Message(b"1"))

    def test_one_that_is_not_declared_is_refused_though_its_topic_is_there(self, memory_cluster: MemoryCluster) -> None:
        memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        with pytest.raises(QueueNotDeclared) as caught:
            LastValueQueue.open("prices", cluster=memory_cluster)
        assert caught.value.queue == "prices"

    def test_queues_are_listed_by_name(self, memory_cluster: MemoryCluster) -> None:
        for name in ("b", "a", "c"):
            declare(memory_cluster, name)
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["a", "b", "c"]

    def test_a_bare_topic_needs_no_registry_and_its_record_key_is_the_key(self, memory_cluster: MemoryCluster) -> None:
        memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        memory_cluster.write("prices", b"a", b"1")
        queue = LastValueQueue("prices", key_header=None, value=TEXT, cluster=memory_cluster)
        put(queue, b="2")
        with queue.view() as view, queue.browser(follow=False) as browser:
            assert dict(view) == {"a": "1", "b": "2"}
            assert len(list(browser)) == 3
        assert memory_cluster.records("prices")[-1].headers == ()
        assert queues(cluster=memory_cluster) == []
        assert repr(queue) == "<LastValueQueue prices on prices, key of the record>"

    def test_the_key_of_a_bare_topic_has_to_be_said(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster)
        with pytest.raises(ConfigError, match=r"LastValueQueue\('prices'\).*key_header") as caught:
            LastValueQueue("prices", value=TEXT, cluster=memory_cluster)  # type: ignore[call-arg]  # a type checker sees it, too
        assert caught.value.options == ("key_header",)
        for remedy in ("LastValueQueue.open('prices')", "LastValueQueue.declare('prices', ", "key_header=None"):
            assert remedy in caught.value.hint
        said = inspect.signature(LastValueQueue).parameters["key_header"]
        assert (said.kind, said.default) == (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)

    def test_a_log_and_servers_exclude_each_other(self, memory_cluster: MemoryCluster) -> None:
        with pytest.raises(ConfigError) as caught:
            LastValueQueue.open("prices", bootstrap_servers="localhost:9092", cluster=memory_cluster)
        assert caught.value.options == ("cluster", "bootstrap_servers")

    def test_properties_without_servers_are_refused(self) -> None:
        with pytest.raises(ConfigError) as caught:
            connect(config={"security.protocol": "ssl"})
        assert caught.value.options == ("bootstrap.servers",)

    def test_a_log_that_was_given_stays_its_givers_to_close(self, memory_cluster: MemoryCluster) -> None:
        with declare(memory_cluster) as declared, LastValueQueue.open("prices", cluster=memory_cluster) as opened:
            assert declared.cluster is opened.cluster is memory_cluster
        LastValueQueue("prices", key_header="ticker", cluster=memory_cluster).close()
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["prices"]
        assert memory_cluster.broker_count() == 1

    @pytest.mark.parametrize(
        "get",
        [
            lambda: LastValueQueue.declare("prices", key_header="ticker", bootstrap_servers="broker:9092"),
            lambda: LastValueQueue.open("prices", bootstrap_servers="broker:9092"),
            lambda: LastValueQueue("prices", key_header=None, config={"bootstrap.servers": "broker:9092"}),
        ],
    )
    def test_a_connection_that_was_opened_for_a_queue_is_closed_with_it(
        self, cluster: Cluster, get: Callable[[], LastValueQueue[bytes]]
    ) -> None:
        declare(cluster)
        with get() as queue:
            assert queue.cluster is cluster
            assert (cluster.opened, cluster.closed) == (1, 0)
        assert cluster.closed == 1
        queue.close()
        assert cluster.closed == 1

    @pytest.mark.parametrize(
        "fail",
        [
            lambda: LastValueQueue.declare("prices", key_header="isin", bootstrap_servers="broker:9092"),
            lambda: LastValueQueue.open("nothing", bootstrap_servers="broker:9092"),
            lambda: LastValueQueue("prices", key_header=None, value=NO_CODEC, bootstrap_servers="broker:9092"),
        ],
    )
    def test_a_connection_that_no_queue_comes_of_is_closed_at_once(
        self, cluster: Cluster, fail: Callable[[], object]
    ) -> None:
        declare(cluster)
        with pytest.raises((QueueMismatch, QueueNotDeclared, ConfigError)):
            fail()
        assert (cluster.opened, cluster.closed) == (1, 1)

    def test_asking_a_cluster_for_its_queues_leaves_no_connection(self, cluster: Cluster) -> None:
        declare(cluster)
        assert [definition.name for definition in queues("broker:9092")] == ["prices"]
        assert (cluster.opened, cluster.closed) == (1, 1)


class TestDelete:
    def test_the_definition_and_the_consumption_go_and_the_topic_stays(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, a="1", b="2")
        consumed(queue, 2)
        queue.drop()
        assert queues(cluster=memory_cluster) == []
        assert memory_cluster.groups.committed("lvq.prices", "prices") == {}
        with LastValueQueue("prices", key_header="ticker", value=TEXT, cluster=memory_cluster).view() as view:
            assert dict(view) == {"a": "1", "b": "2"}
        assert consumed(declare(memory_cluster), 2) == ["1", "2"]  # declared again, it starts over

    def test_the_topic_goes_when_asked(self, memory_cluster: MemoryCluster) -> None:
        declare(memory_cluster).drop(delete_topic=True)
        assert queues(cluster=memory_cluster) == []
        with pytest.raises(TopicNotFound):
            memory_cluster.topics.describe("prices")

    def test_a_topic_that_serves_others_is_kept(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, "one", topic="t")
        for name in ("two", "three"):
            declare(memory_cluster, name, topic="t")
        with pytest.raises(QueueError, match="also serves three, two") as caught:
            queue.drop(delete_topic=True)
        assert caught.value.queue == "one"
        assert len(queues(cluster=memory_cluster)) == 3
        queue.drop()
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["three", "two"]

    def test_consumers_at_work_keep_the_queue(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, a="1")
        with queue.consumer() as consumer:
            assert consumer.acquire(30) is not None
            with pytest.raises(QueueError, match="still has active consumers") as caught:
                queue.drop()
            assert "Close them first" in caught.value.hint
        queue.drop()
        assert queues(cluster=memory_cluster) == []

    def test_a_queue_that_is_not_declared_cannot_be_dropped(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        queue.drop()
        with pytest.raises(QueueNotDeclared, match="prices"):
            queue.drop()

    @pytest.mark.parametrize("delete_topic", [False, True])
    def test_a_delete_that_may_not_be_finished_takes_nothing(
        self, memory_cluster: MemoryCluster, delete_topic: bool
    ) -> None:
        queue = declare(memory_cluster)
        before = memory_cluster.groups.committed("lvq.prices", "prices")
        memory_cluster.fail_next("topics.check_may", FORBIDDEN)
        with pytest.raises(Unauthorized):
            queue.drop(delete_topic=delete_topic)
        assert memory_cluster.groups.committed("lvq.prices", "prices") == before
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["prices"]

    @pytest.mark.parametrize("step", ["groups.delete", "append"])
    def test_a_delete_that_fails_half_way_can_be_repeated(self, memory_cluster: MemoryCluster, step: str) -> None:
        queue = declare(memory_cluster)
        memory_cluster.fail_next(step, FORBIDDEN)
        with pytest.raises(Unauthorized):
            queue.drop()
        assert [definition.name for definition in queues(cluster=memory_cluster)] == ["prices"]
        queue.drop()
        assert queues(cluster=memory_cluster) == []


def test_r4_in_place_lasts_until_compaction_and_declare_says_so_at_once(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # the second time, the queue exists already
        queue = LastValueQueue.declare("q", key_header="k", order="in-place", cluster=memory_cluster)
        assert queue.declaration is not None
        (finding,) = queue.declaration.findings
        assert (finding.setting, finding.severity) == ("order", "warning")
        assert "compaction" in str(finding)
    assert len([line for line in caplog.messages if str(finding) in line]) == 2
    with queue.producer() as producer:
        for key in "aba":
            producer.put(key, b"1")
    with queue.view() as view:
        memory_cluster.compact("q")
        with queue.view() as later:
            assert (list(view), list(later)) == (["a", "b"], ["b", "a"])


def test_r13_a_non_destructive_queue_has_no_group_and_no_consumers(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, non_destructive=True)
    put(queue, a="1")
    with pytest.raises(ConfigError, match="non_destructive"):
        queue.consumer()
    with queue.browser(follow=False) as browser:
        assert len(list(browser)) == 2
    assert not memory_cluster.groups.delete("lvq.prices")
    queue.drop()


def test_r17_a_second_declare_does_not_bring_an_expired_group_back(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    memory_cluster.groups.delete("lvq.prices")
    again = declare(memory_cluster)
    assert memory_cluster.groups.committed("lvq.prices", "prices") == {}
    for one in (queue, again):
        with pytest.raises(QueueNotDeclared, match=r"lvq\.prices.*expired"):
            one.consumer()


def test_a_definition_is_what_it_was_declared_with(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, topic="t", key_mismatch="header", keyless="refuse", order="in-place")
    assert queue.definition == QueueDefinition(
        name="prices",
        topic="t",
        key_header="ticker",
        key_mismatch="header",
        keyless="refuse",
        order="in-place",
        format="text",
    )
