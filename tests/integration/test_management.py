"""Management on a real broker: its effects on commits, transactions, groups and logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random

import pytest

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.errors import (
    CommitMapRefused,
    ConfigError,
    DataLoss,
    GroupNotFound,
    OffsetsExpired,
    PartitionsAdded,
    QueueError,
    TopicMismatch,
    TopicNotFound,
    TopicRecreated,
)
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.managing.backlog import snapshot_queue
from lvq_kafka.managing.management import signed, store
from lvq_kafka.managing.moving import _SoleMember
from tests.unit.managing import claims, commits, consume, declare, drained, maps, overwrite, put, said
from tests.waiting import eventually

Queue = LastValueQueue[str]


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[Queue]:
    queue = declare(kafka_cluster, topic_name, spec=TopicSpec(partitions=2, reclaim=True))
    yield queue
    queue.drop()


@pytest.fixture
def other(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[Queue]:
    other = declare(kafka_cluster, f"{topic_name}-other")
    yield other
    other.drop()
    with suppress(TopicNotFound):
        kafka_cluster.topics.delete(other.topic)


def test_the_commits_of_declare_are_whole(kafka_cluster: KafkaCluster, queue: Queue) -> None:
    described = kafka_cluster.topics.describe(queue.topic)
    assert {one.partitions for one in maps(queue).values()} == {described.partitions} == {2}
    assert queue.repair(dry_run=True).found == ()


def test_a_queue_is_counted_purged_reset_and_expired(kafka_cluster: KafkaCluster, queue: Queue) -> None:
    put(queue, *(f"{number}=1" for number in range(20)), *(f"{number}=2" for number in range(10)))
    begin = time.time()
    stats = queue.stats()
    assert (stats.depth, stats.lag, stats.members) == (20, 30, 0)
    assert stats.oldest is not None
    assert begin - 60 < stats.oldest < begin + 60

    consume(queue, "3", "12")
    assert (queue.stats().depth, queue.stats().attempted) == (18, 18)
    assert queue.purge(keys=["4", "13", "nobody"]).messages == 2
    assert queue.stats().depth == 16
    queue.purge()
    assert (queue.stats().depth, queue.stats().lag) == (0, 0)
    queue.reset("earliest")
    assert len(drained(queue)) == 20
    queue.reset("earliest")
    assert queue.expire(3600).messages == 0
    eventually(lambda: queue.expire(0.05).messages == 20 or queue.stats().depth == 0)
    assert queue.stats().depth == 0
    change = queue.reset(begin - 3600)
    assert {p: one.base for p, one in change.after.items()} == {0: 0, 1: 0}
    assert {p: one.base for p, one in queue.reset(begin + 3600).after.items()} == kafka_cluster.logs.end_offsets(
        queue.topic
    )
    assert queue.reset({1: 2}).after[1].base == 2


def test_age_is_counted_by_the_clusters_clock(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    put(queue, "a=1", "b=1")
    monkeypatch.setattr(KafkaCluster, "now", lambda self: time.time() + 7200)
    assert queue.expire(3600).messages == 0
    assert queue.stats().depth == 2


def test_nothing_is_changed_while_consumers_are_at_work(queue: Queue, other: Queue) -> None:
    put(queue, "a=1", "b=1")
    with queue.consumer() as consumer:
        eventually(lambda: len(consumer.stats.partitions) == 2, 30)
        before = claims(queue)
        for change in (queue.purge, lambda: queue.reset("latest"), lambda: queue.expire(1), lambda: queue.move(other)):
            with pytest.raises(QueueError, match="still has active consumers"):
                change()

        def broker_refuses() -> bool:  # if the consumer has committed meanwhile, the library refuses first
            snapshot = snapshot_queue(queue.cluster, queue.definition)
            with pytest.raises(QueueError) as caught:
                store(queue.cluster, snapshot, signed(snapshot, snapshot.maps()))
            return "still has active consumers" in str(caught.value)

        eventually(broker_refuses)
        assert claims(queue) == before
        assert queue.stats().members == 1
    queue.purge()
    assert queue.stats().depth == 0


def test_added_partitions_and_lost_groups_are_repaired_when_it_is_said_how(
    kafka_cluster: KafkaCluster, queue: Queue
) -> None:
    put(queue, *(f"{number}=1" for number in range(20)))
    consume(queue, *map(str, range(20)))
    kafka_cluster.topics.add_partitions(queue.topic, 3)
    with pytest.raises(PartitionsAdded, match="partition 2 after"):
        queue.stats()
    assert [damage.kind for damage in queue.repair().found] == ["partitions-added"]
    assert queue.stats().depth == 0

    kafka_cluster.groups.delete(queue.definition.group)
    with pytest.raises(GroupNotFound, match="expired or was deleted"):
        queue.consumer().close()
    assert [damage.kind for damage in queue.repair().left] == ["group-gone"]
    queue.repair("earliest")
    assert queue.stats().depth == 20

    kafka_cluster.groups.delete(queue.definition.group)
    overwrite(queue, p0=said(queue, 1), p2=said(queue, 0))
    with pytest.raises(OffsetsExpired, match="expire one by one"):
        queue.stats()
    assert queue.repair("latest").left == ()
    assert maps(queue)[0].base == 1


def test_commits_that_are_not_of_this_log_are_told_and_repaired(kafka_cluster: KafkaCluster, queue: Queue) -> None:
    put(queue, *(f"{number}=1" for number in range(20)))
    overwrite(queue, p0=said(queue, 1, 1, 1000))
    with pytest.raises(DataLoss):
        queue.stats()
    queue.repair()
    assert maps(queue)[0].end == kafka_cluster.logs.end_offsets(queue.topic)[0]

    overwrite(queue, p1=Commit(1, "text of another kind"))
    with pytest.raises(CommitMapRefused):
        queue.purge()
    queue.repair()
    assert maps(queue)[1].base == 1

    old = commits(queue)
    kafka_cluster.topics.delete(queue.topic)
    kafka_cluster.topics.create(queue.topic, partitions=2, config={"cleanup.policy": "compact"})
    eventually(lambda: commits(queue) == {})  # a broker deletes the commits with the topic
    with pytest.raises(GroupNotFound, match="deleted and re-created"):
        queue.stats()
    overwrite(queue, p0=Commit(0, old[0].metadata), p1=Commit(0, old[1].metadata))  # a late consumer writes them again
    with pytest.raises(TopicRecreated):
        queue.stats()
    assert [damage.kind for damage in queue.repair("earliest").found] == ["topic-recreated"]
    assert queue.repair(dry_run=True).found == ()


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "at least once"])
def test_messages_move_to_another_queue(kafka_cluster: KafkaCluster, queue: Queue, other: Queue, atomic: bool) -> None:
    put(queue, *(f"{number}={number}" for number in range(20)), "3=three")
    consume(queue, "0")
    assert queue.move(other, keys=[0, 3, 4], atomic=atomic).messages == 2
    assert (queue.stats().depth, other.stats().depth) == (17, 2)
    assert queue.move(other, atomic=atomic).messages == 17
    assert (queue.stats().depth, queue.stats().lag, queue.stats().members) == (0, 0, 0)
    assert sorted(drained(other)) == sorted(["three", *(str(number) for number in range(1, 20) if number != 3)])
    put(queue, "z=z")
    assert drained(queue) == ["z"]


def test_a_consumer_that_joins_while_messages_move_ends_the_move_and_none_is_in_both(
    kafka_cluster: KafkaCluster, queue: Queue, other: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.managing.moving._BATCH", 50)
    put(queue, *(f"{number}={number}" for number in range(1000)))
    check, checks, joined = _SoleMember.check, count(1), []

    def join_before_the_third(member: _SoleMember) -> None:
        if next(checks) == 3:
            joined.append(queue.consumer())
            # A group moves partitions only while its members poll.
            eventually(lambda: member.member.poll(0.1) is None or joined[0].stats.partitions, 60)
        check(member)

    monkeypatch.setattr(_SoleMember, "check", join_before_the_third)
    with pytest.raises(QueueError, match="still has active consumers") as caught:
        queue.move(other)
    joined[0].close()
    assert caught.value.__notes__ == ["100 of 1000 messages had been moved by then."]
    assert (queue.stats().depth, other.stats().depth) == (900, 100)


def test_consumed_messages_are_reclaimed(kafka_cluster: KafkaCluster, queue: Queue, other: Queue) -> None:
    put(queue, *(f"{number}=1" for number in range(20)))
    overwrite(queue, p0=said(queue, 3), p1=said(queue, 2, 1, 1))
    assert queue.reclaim(dry_run=True).after == {0: 3, 1: 2}
    assert queue.reclaim().offsets == 5
    assert kafka_cluster.logs.start_offsets(queue.topic) == {0: 3, 1: 2}
    assert queue.stats().depth == len(drained(queue)) == 14
    with pytest.raises(TopicMismatch, match="compact"):
        other.reclaim()
    with pytest.raises(ConfigError):
        queue.reset({0: 0})


def test_a_map_of_a_few_thousand_runs_is_stored_and_read_back(kafka_cluster: KafkaCluster, queue: Queue) -> None:
    put(queue, *(f"{number}=1" for number in range(6000)))
    change = queue.purge(keys=Random(7).sample(range(6000), 3000))
    assert change.messages == 3000
    assert maps(queue) == dict(change.after)
    assert max(len(commit.metadata) for commit in commits(queue).values()) > 500
    assert queue.stats().depth == 3000
    assert CommitMap.decode(change.after[0].base, commits(queue)[0].metadata) == change.after[0]
