"""R50: queues without consumers, whose record of what was consumed brokers forget after a while."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.core.queue.idle_queues import in_words, judge_retention, risk
from lvq_kafka.errors import (
    ConfigError,
    GroupNotFound,
    PartitionsAdded,
    QueueNotDeclared,
    TransportError,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_member import MemoryMember
from tests.unit.managing import commits, consume, declare, drained, put
from tests.waiting import eventually

HOUR, DAY = 3600.0, 86_400.0


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def day(clock: Clock) -> MemoryCluster:
    """Return a cluster that forgets commits after a day."""
    return MemoryCluster(clock=clock, retention=DAY)


def consumed(cluster: MemoryCluster) -> LastValueQueue[str]:
    """Return a queue whose last consumer has just left, with one of three messages done."""
    queue = declare(cluster, spec=TopicSpec(partitions=2))
    put(queue, "a=1", "b=1", "c=1")
    consume(queue, "a")
    return queue


def test_r50_brokers_forget_what_was_consumed_a_while_after_the_last_consumer(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    clock.now += DAY - 1
    assert queue.stats().depth == 2
    clock.now += 2
    with pytest.raises(GroupNotFound, match="has expired"):
        queue.stats()


def test_r50_keep_alive_is_as_if_a_consumer_had_just_left(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    before = commits(queue)
    for _ in range(5):
        clock.now += DAY - 1
        assert queue.keep_alive()
        assert commits(queue) == before, "it commits nothing"
        assert queue.stats().members == 0, "it has left"
    assert sorted(drained(queue)) == ["1", "1"]
    clock.now += DAY + 1
    assert commits(queue) == {}


def test_r50_keep_alive_takes_no_message_and_no_partition_from_consumers(day: MemoryCluster) -> None:
    queue = consumed(day)
    with queue.consumer() as consumer:
        held = consumer.acquire(10)
        assert held is not None
        partitions = consumer.stats.partitions
        assert not queue.keep_alive()
        assert consumer.stats.partitions == partitions
        held.ack(wait=True, timeout=10)
    assert queue.stats().depth == 1
    assert queue.keep_alive()
    assert queue.stats().attempted == 1, "nothing more was handed out"


def test_r50_a_commit_from_outside_prolongs_nothing_once_there_was_a_consumer(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    clock.now += DAY - 1
    queue.purge(keys=["b"])
    clock.now += 2
    assert commits(queue) == {}


def test_r50_a_queue_that_was_never_consumed_is_forgotten_after_its_declaration(
    day: MemoryCluster, clock: Clock
) -> None:
    queue = declare(day)
    clock.now += DAY - 1
    assert commits(queue).keys() == {0}
    assert queue.keep_alive()
    clock.now += DAY - 1
    assert commits(queue).keys() == {0}
    clock.now += 2
    assert commits(queue) == {}


def test_r50_where_all_is_forgotten_there_is_nothing_to_keep(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    clock.now += DAY + 1
    with pytest.raises(GroupNotFound, match="has expired") as caught:
        queue.keep_alive()
    assert "lvq repair prices --start earliest --apply" in caught.value.hint
    assert day.groups.member_count("lvq.prices") == 0
    queue.repair("earliest")
    assert len(drained(queue)) == 3, "it is consumed again"


def test_r50_a_damaged_group_is_kept_and_the_damage_is_told(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    day.topics.add_partitions("prices", 3)
    clock.now += DAY - 1
    with pytest.raises(PartitionsAdded):
        queue.keep_alive()
    clock.now += DAY - 1
    queue.repair()
    assert queue.stats().depth == 2


def test_r50_queues_without_a_group_have_nothing_to_keep(memory_cluster: MemoryCluster) -> None:
    forever = declare(memory_cluster, "forever", non_destructive=True)
    with pytest.raises(ConfigError, match="nothing can be kept alive"):
        forever.keep_alive()
    with pytest.raises(QueueNotDeclared):
        LastValueQueue("forever", key_header="ticker", cluster=memory_cluster).keep_alive()


def test_r50_a_group_that_admits_nobody_is_an_error_in_time(
    day: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = consumed(day)
    monkeypatch.setattr(MemoryMember, "_reconcile", lambda member: None)
    monkeypatch.setattr(MemoryMember, "_due", lambda member: False)
    with pytest.raises(TransportError, match=r"admitted no member within 0\.01 s") as caught:
        queue.keep_alive(timeout=0.01)
    assert caught.value.retriable
    assert day.groups.member_count("lvq.prices") == 0, "it does not stay"


@pytest.mark.parametrize(("times", "timeout", "retriable"), [(3, 30.0, True), (1000, 0.01, True), (1, 30.0, False)])
def test_r50_errors_are_waited_out_if_they_pass(
    day: MemoryCluster, monkeypatch: pytest.MonkeyPatch, times: int, timeout: float, retriable: bool
) -> None:
    queue, left, poll = consumed(day), [times], MemoryMember.poll

    def failing(member: MemoryMember, timeout: float) -> Any:
        if left[0]:
            left[0] -= 1
            raise TransportError("not now", code="_TRANSPORT", retriable=retriable)
        return poll(member, timeout)

    monkeypatch.setattr(MemoryMember, "poll", failing)
    if retriable and timeout > 1:
        assert queue.keep_alive(timeout=timeout)
    else:
        with pytest.raises(TransportError, match="not now"):
            queue.keep_alive(timeout=timeout)
        assert day.groups.member_count("lvq.prices") == 0, "it does not stay"


def test_r50_stats_warn_of_brokers_that_soon_forget(day: MemoryCluster, clock: Clock) -> None:
    queue = consumed(day)
    stats = queue.stats()
    assert (stats.retention, stats.waited) == (DAY, 0)
    assert stats.at_risk == (
        "no consumer is active, and brokers forget what was consumed 1 day after the last one has left "
        "(offsets.retention.minutes)"
    )
    clock.now += 20 * HOUR
    assert queue.stats().at_risk.endswith("; the oldest message has waited for 20 hours")
    with queue.consumer() as consumer:
        eventually(lambda: len(consumer.stats.partitions) == 2)
        stats = queue.stats()
        assert (stats.retention, stats.at_risk) == (None, "")


def test_r50_stats_of_a_usual_cluster_warn_only_of_messages_that_wait_for_long(clock: Clock) -> None:
    cluster = MemoryCluster(clock=clock, retention=7 * DAY)
    queue = consumed(cluster)
    assert queue.stats().at_risk == ""
    clock.now += 4 * DAY
    assert "has waited for 4 days" in queue.stats().at_risk
    queue.purge()
    assert queue.stats().at_risk == "", "nothing shows how long it has been idle"


@pytest.mark.parametrize(
    "error", [Unauthorized("No.", code="CLUSTER_AUTHORIZATION_FAILED"), TransportError("No.", code="INVALID_CONFIG")]
)
def test_r50_nothing_is_said_where_the_setting_cannot_be_read(
    day: MemoryCluster, error: TransportError, caplog: pytest.LogCaptureFixture
) -> None:
    day.fail_next("groups.retention", error, times=2)
    queue = declare(day)
    assert queue.declaration is not None
    assert (queue.declaration.findings, queue.declaration.unchecked, caplog.messages) == ((), (), [])
    stats = queue.stats()
    assert (stats.retention, stats.at_risk) == (None, "")


@pytest.mark.parametrize(("options", "warns"), [({}, True), ({"non_destructive": True}, False)])
def test_r50_declare_warns_of_brokers_that_soon_forget(
    day: MemoryCluster, options: dict[str, Any], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lvq_kafka"):
        for _ in range(2):
            queue = declare(day, **options)
            assert queue.declaration is not None
            found = [finding.setting for finding in queue.declaration.findings]
            assert found == ["offsets.retention.minutes"] * warns
    assert [message for message in caplog.messages if "offsets.retention" in message] == [
        "queue prices: offsets.retention.minutes is 1440, not 10080 or more: so many minutes after its last consumer "
        "has left, brokers forget what a queue has consumed. Raise it on the brokers, or run lvq keep-alive more often "
        "while nobody consumes."
    ] * (2 * warns)


@given(retention=st.floats(60, 1e9), waited=st.none() | st.floats(0, 1e9))
def test_r50_a_warning_names_its_evidence(retention: float, waited: float | None) -> None:
    """A week is Kafka's default. Shorter is known to be short; else a message must have waited for half of it."""
    long = waited is not None and waited > retention / 2
    said = risk(retention, waited)
    assert (said != "") == (retention < 7 * DAY or long)
    assert ("has waited" in said) == long
    assert bool(judge_retention(retention)) == (retention < 7 * DAY)


def test_r50_nothing_is_at_risk_where_nothing_is_forgotten_or_known() -> None:
    assert risk(None, 1e9) == risk(math.inf, 1e9) == ""
    assert judge_retention(math.inf) == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (60, "1 minute"),
        (0, "0 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (DAY, "1 day"),
        (36 * HOUR, "36 hours"),
        (7 * DAY, "7 days"),
        (2000 * DAY, "2,000 days"),
    ],
)
def test_durations_are_in_units_that_a_person_counts_in(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
