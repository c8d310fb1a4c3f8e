"""Faults in a queue's commits: each kind is distinct, and names its remedy (R17)."""

from __future__ import annotations

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.declared.damage import Damage, examine
from lvq_kafka.declared.group_checks import check_group
from lvq_kafka.errors import (
    CommitMapRefused,
    DataLoss,
    GroupNotFound,
    OffsetsExpired,
    PartitionsAdded,
    QueueNotDeclared,
    TopicRecreated,
)
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import commits, declare, maps, overwrite, put, said


def damages(queue: LastValueQueue[str]) -> list[Damage]:
    return list(queue.repair(dry_run=True).found)


def test_the_commits_of_declare_are_whole(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1")
    assert damages(queue) == []
    assert queue.stats().depth == 2


def test_a_declared_group_tells_the_topic_and_its_partitions(memory_cluster: MemoryCluster) -> None:
    early = declare(memory_cluster)
    put(early, "a=1", "b=1")
    late = declare(memory_cluster, "late", topic="prices", start="latest")
    assert {p: (one.base, one.partitions, one.sequence) for p, one in maps(early).items()} == {0: (0, 1, 0)}
    assert {p: (one.base, one.partitions, one.sequence) for p, one in maps(late).items()} == {0: (2, 1, 0)}
    assert maps(early)[0].topic_tag == maps(late)[0].topic_tag != bytes(8)


def test_a_group_without_commits_has_expired_or_was_deleted(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    memory_cluster.groups.delete("lvq.prices")
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("group-gone", (0,), True)
    assert isinstance(damage.error, GroupNotFound)
    assert (damage.error.queue, damage.error.group) == ("prices", "lvq.prices")
    assert "lvq repair prices --start" in damage.error.hint
    assert damage.error.hint not in str(damage)


def test_added_partitions_are_told_from_commits_that_expired(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    memory_cluster.topics.add_partitions("prices", 3)
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("partitions-added", (1, 2), False)
    assert isinstance(damage.error, PartitionsAdded)
    assert (damage.error.queue, damage.error.partitions) == ("prices", (1, 2))
    assert "partitions 1, 2 after the queue 'prices' was declared on 1" in str(damage)

    two = declare(memory_cluster, "two", topic="two")
    memory_cluster.topics.add_partitions("two", 3)
    memory_cluster.groups.delete("lvq.two")
    overwrite(two, p0=said(two, 0, partitions=2))
    expired, added = damages(two)
    assert (expired.kind, expired.partitions, expired.needs_start) == ("commits-expired", (1,), True)
    assert isinstance(expired.error, OffsetsExpired)
    assert (expired.error.queue, expired.error.partitions) == ("two", (1,))
    assert (added.kind, added.partitions) == ("partitions-added", (2,))


def test_missing_commits_beside_those_of_something_else_may_be_either_and_need_a_start(
    memory_cluster: MemoryCluster,
) -> None:
    queue = declare(memory_cluster)
    overwrite(queue, p0=Commit(0))
    memory_cluster.topics.add_partitions("prices", 2)
    expired, _ = damages(queue)
    assert (expired.kind, expired.partitions) == ("commits-expired", (1,))


def test_commits_of_an_earlier_topic_of_that_name_are_known_by_their_tag(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1")
    before = commits(queue)
    memory_cluster.topics.delete("prices")
    memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    overwrite(queue, p0=before[0])
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("topic-recreated", (0,), True)
    assert isinstance(damage.error, TopicRecreated)
    assert damage.error.topic == "prices"


@pytest.mark.parametrize(("base", "runs", "end"), [(5, (), 5), (1, (1, 3), 5)])
def test_a_log_that_ends_before_what_was_consumed_has_lost_records(
    memory_cluster: MemoryCluster, base: int, runs: tuple[int, ...], end: int
) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1")
    overwrite(queue, p0=said(queue, base, *runs))
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("offsets-lost", (0,), False)
    assert isinstance(damage.error, DataLoss)
    assert f"partition 0 up to {end}, but the log has kept only the records below 2" in str(damage)


def test_r17_a_log_that_was_cut_and_has_grown_again_has_lost_records(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1", "d=1")
    queue.purge(keys=["b", "c"])
    memory_cluster.elect("prices", 0, end=2)
    put(queue, "e=1", "f=1", "g=1", "h=1")
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("offsets-lost", (0,), False)
    assert "partition 0 up to 3, but the log has kept only the records below 2" in str(damage)
    with pytest.raises(DataLoss, match="lvq repair prices"):
        queue.stats()
    repaired = queue.repair()
    assert [damage.kind for damage in repaired.found] == ["offsets-lost"]
    assert damages(queue) == []
    assert queue.stats().depth == 5


def test_a_later_leader_that_lacks_nothing_is_no_damage(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1")
    queue.purge()
    memory_cluster.elect("prices", 0)
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"c", b"1")
    writer.abort_transaction()
    queue.reset({0: 4})  # past the aborted transaction
    memory_cluster.elect("prices", 0)
    put(queue, "d=1")
    assert damages(queue) == []
    assert queue.stats().depth == 1


def test_records_that_an_open_transaction_writes_over_a_cut_log_are_not_overlooked(
    memory_cluster: MemoryCluster,
) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    queue.purge()
    memory_cluster.elect("prices", 0, end=1)
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    for key in (b"d", b"e", b"f"):
        writer.append("prices", key, b"1")
    (damage,) = damages(queue)
    assert damage.kind == "offsets-lost"
    queue.repair()
    writer.commit_transaction()
    assert queue.stats().depth == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "foreign"), ("streams-metadata", "foreign"), ("lvq9.AAAA", "newer"), ("lvq1.AAAA", "corrupt")],
)
def test_a_text_that_is_not_the_queues_is_refused_or_ignored(
    memory_cluster: MemoryCluster, text: str, reason: str
) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1")
    overwrite(queue, p0=Commit(1, text))
    (damage,) = damages(queue)
    assert (damage.kind, damage.partitions, damage.needs_start) == ("commit-refused", (0,), False)
    with pytest.raises(CommitMapRefused) as caught:
        queue.stats()
    assert (caught.value.reason, caught.value.partition, caught.value.queue) == (reason, 0, "prices")
    assert queue.stats(on_foreign_commits="ignore").depth == 1


def test_several_things_can_be_wrong_at_once(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1")
    overwrite(queue, p0=Commit(7, "foreign"))
    memory_cluster.topics.add_partitions("prices", 2)
    assert [damage.kind for damage in damages(queue)] == ["commits-expired", "offsets-lost", "commit-refused"]
    with pytest.raises(OffsetsExpired) as caught:
        queue.stats()
    assert [note.startswith("Also: ") for note in caught.value.__notes__] == [True, True]


def test_a_handler_of_queue_not_declared_handles_everything_that_a_group_can_lack(
    memory_cluster: MemoryCluster,
) -> None:
    """Programs written before these errors had their own names work as before."""
    assert {kind.__base__ for kind in (GroupNotFound, OffsetsExpired, PartitionsAdded)} == {QueueNotDeclared}
    queue = declare(memory_cluster)
    memory_cluster.groups.delete("lvq.prices")
    with pytest.raises(LookupError):
        queue.stats()


def test_only_the_partitions_that_matter_are_judged() -> None:
    known = {0: Commit(0, CommitMap(0, partitions=2).encode()), 1: Commit(3, "foreign")}
    assert check_group("lvq.q", "q", [0], known) == {0: CommitMap(0, partitions=2)}
    assert check_group("lvq.q", "q", [], known) == {}
    (damage,) = examine("lvq.q", "q", [2], known).damages
    assert damage.kind == "partitions-added"


def test_a_new_queue_does_not_take_over_a_group_in_which_something_is_wrong(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("prices", partitions=2, config={"cleanup.policy": "compact"})
    memory_cluster.groups.commit("lvq.prices", "prices", {0: Commit(0)})
    with pytest.raises(OffsetsExpired) as caught:
        declare(memory_cluster, on_mismatch="warn")
    assert "delete the group 'lvq.prices'" in caught.value.__notes__[-1]
    assert memory_cluster.groups.committed("lvq.prices", "prices") == {0: Commit(0)}
