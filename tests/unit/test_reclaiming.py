"""Reclaiming: it deletes what all queues on a topic have consumed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, QueueDefinition
from lvq_kafka.errors import ConfigError, QueueError, QueueNotDeclared, TopicMismatch, Unauthorized
from lvq_kafka.managing import reclaiming
from lvq_kafka.managing.backlog import QueueSnapshot, snapshot_queue
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare, drained, overwrite, put, said

RECLAIMABLE = TopicSpec(partitions=2, reclaim=True)


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    queue = declare(memory_cluster, spec=RECLAIMABLE)
    put(queue, *(f"{number}=1" for number in range(20)))
    return queue


def test_consumed_messages_are_deleted_and_waiting_ones_are_not(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    end = memory_cluster.logs.end_offsets("prices")[1]
    overwrite(queue, p0=said(queue, 3, 2, 1), p1=said(queue, end))
    before = queue.stats().depth
    asked = queue.reclaim(dry_run=True)
    assert (asked.after, asked.offsets, asked.dry_run) == ({0: 3, 1: end}, 3 + end, True)
    assert memory_cluster.logs.start_offsets("prices") == {0: 0, 1: 0}
    done = queue.reclaim()
    assert (done.before, done.after, done.queues, done.offsets) == ({0: 0, 1: 0}, {0: 3, 1: end}, ("prices",), 3 + end)
    assert memory_cluster.logs.start_offsets("prices") == {0: 3, 1: end}
    assert queue.stats().depth == before == len(drained(queue))
    assert queue.reclaim().after[0] == memory_cluster.logs.end_offsets("prices")[0]
    assert queue.reclaim().offsets == 0


def test_the_queue_that_has_consumed_least_decides(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    slow = declare(memory_cluster, "slow", topic="prices")
    elsewhere = declare(memory_cluster, "elsewhere", spec=RECLAIMABLE)
    queue.purge()
    assert queue.reclaim().offsets == 0
    overwrite(slow, p0=said(slow, 4), p1=said(slow, 2))
    done = slow.reclaim()
    assert (done.after, done.queues) == ({0: 4, 1: 2}, ("prices", "slow"))
    assert len(drained(slow)) == 20 - 6
    assert elsewhere.reclaim().queues == ("elsewhere",)


def test_a_queue_that_is_never_consumed_keeps_all(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    pictures = declare(memory_cluster, "pictures", topic="prices", non_destructive=True)
    queue.purge()
    with pytest.raises(QueueError, match="also serves pictures"):
        queue.reclaim()
    with pytest.raises(ConfigError):
        pictures.reclaim()
    assert memory_cluster.logs.start_offsets("prices") == {0: 0, 1: 0}


def test_a_queue_of_which_it_is_not_known_what_it_has_consumed_keeps_all(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    declare(memory_cluster, "gone", topic="prices")
    memory_cluster.groups.delete("lvq.gone")
    queue.purge()
    with pytest.raises(QueueNotDeclared, match="queue 'gone'"):
        queue.reclaim()
    writer = memory_cluster.writer()
    writer.append(REGISTRY_TOPIC, b"newer", b'{"version": 99, "topic": "elsewhere"}').result(5)
    with pytest.raises(QueueNotDeclared, match="queue 'gone'"):
        queue.reclaim()
    writer.append(REGISTRY_TOPIC, b"newer", None).result(5)
    writer.append(REGISTRY_TOPIC, b"newer", b'{"version": 99, "topic": "prices"}').result(5)
    with pytest.raises(ConfigError, match="newer"):
        queue.reclaim()
    assert memory_cluster.logs.start_offsets("prices") == {0: 0, 1: 0}


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_only_a_topic_that_is_compacted_and_deleted_from_is_reclaimed(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], policy: str
) -> None:
    queue.purge()
    memory_cluster.topics.alter_config("prices", {"cleanup.policy": policy})
    with pytest.raises(TopicMismatch, match=f"cleanup.policy is {policy}") as refused:
        queue.reclaim()
    assert refused.value.settings == {"cleanup.policy": ("compact,delete", policy)}
    memory_cluster.topics.alter_config("prices", {"cleanup.policy": "delete, compact"})
    assert queue.reclaim().offsets == 20


def test_a_user_who_may_not_see_the_policy_reclaims_nothing(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    memory_cluster.fail_next("topics.config", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(Unauthorized):
        queue.reclaim()


def test_a_queue_that_was_dropped_meanwhile_reclaims_nothing(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    queue.purge()
    LastValueQueue.open("prices", cluster=memory_cluster).drop()
    with pytest.raises(QueueNotDeclared):
        queue.reclaim()


def _after_the_first_look(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Run ``change`` once, when reclaiming knows what may go and nothing has gone yet."""
    changes = [change]

    def looked(cluster: Cluster, definition: QueueDefinition, *, consumed: bool = True) -> QueueSnapshot:
        snapshot = snapshot_queue(cluster, definition, consumed=consumed)
        if changes:
            changes.pop()()
        return snapshot

    monkeypatch.setattr(reclaiming, "snapshot_queue", looked)


def test_a_queue_declared_meanwhile_keeps_what_it_has_still_to_consume(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.purge()
    _after_the_first_look(monkeypatch, lambda: declare(memory_cluster, "late", topic="prices", start="earliest"))
    done = queue.reclaim()
    assert (done.offsets, done.after, done.queues) == (0, {0: 0, 1: 0}, ("late", "prices"))
    assert len(drained(LastValueQueue.open("late", value=TEXT, cluster=memory_cluster))) == 20


def test_a_queue_reset_meanwhile_keeps_what_it_shall_consume_again(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = declare(memory_cluster, "other", topic="prices")
    queue.purge()
    other.purge()
    end = memory_cluster.logs.end_offsets("prices")[0]
    _after_the_first_look(monkeypatch, lambda: overwrite(other, p1=said(other, 2)))
    assert queue.reclaim().after == {0: end, 1: 2}
    assert memory_cluster.logs.start_offsets("prices") == {0: end, 1: 2}


def test_a_queue_that_is_never_consumed_and_was_declared_meanwhile_keeps_all(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.purge()
    _after_the_first_look(
        monkeypatch, lambda: declare(memory_cluster, "pictures", topic="prices", non_destructive=True)
    )
    with pytest.raises(QueueError, match="also serves pictures"):
        queue.reclaim()
    assert memory_cluster.logs.start_offsets("prices") == {0: 0, 1: 0}


def test_a_partition_may_begin_where_all_queues_of_its_topic_have_consumed() -> None:
    assert reclaiming.reclaimable([]) == {}
    assert reclaiming.reclaimable([{0: 5, 1: 7}]) == {0: 5, 1: 7}
    assert reclaiming.reclaimable([{0: 5, 1: 7}, {0: 6, 1: 2}]) == {0: 5, 1: 2}
    assert reclaiming.reclaimable([{0: 5, 1: 7}, {0: 6}]) == {0: 5}, "of 1 nobody knows what one of them has consumed"


def test_a_consumer_may_be_at_work(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    with queue.consumer() as consumer:
        for _ in range(20):
            delivery = consumer.acquire(30)
            assert delivery is not None
            delivery.ack(wait=True, timeout=30)
        assert queue.reclaim().offsets == 20
        put(queue, "a=2")
        delivery = consumer.acquire(30)
        assert delivery is not None
        assert delivery.value == "2"
        delivery.ack()
