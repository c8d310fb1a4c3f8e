"""Purge, reset, expire and repair: outside changes of consumption, correct and never behind a consumer's back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.errors import (
    ConfigError,
    DataLoss,
    QueueError,
    QueueNotDeclared,
    TopicRecreated,
    TransportError,
    Unauthorized,
    UnencodableKey,
)
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import claims, commits, consume, declare, drained, maps, overwrite, put, said
from tests.waiting import eventually

CHANGES: dict[str, Callable[[LastValueQueue[str]], Any]] = {
    "purge": lambda queue: queue.purge(),
    "purge of keys": lambda queue: queue.purge(keys=["a"]),
    "expire": lambda queue: queue.expire(0),
    "reset": lambda queue: queue.reset("earliest"),
    "repair": lambda queue: queue.repair(),
    "move": lambda queue: queue.move(declare(queue.cluster, "other")),
}  # type: ignore[dict-item]
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


class TestPurge:
    def test_everything_in_the_queue_is_consumed_and_the_topic_stays_as_it_was(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "a=2")
        before = memory_cluster.records("prices")
        change = queue.purge()
        assert (change.before[0].base, change.after[0].base, change.messages) == (0, 3, None)
        assert memory_cluster.records("prices") == before
        assert queue.stats().depth == 0
        put(queue, "b=3")
        assert drained(queue) == ["3"]

    def test_messages_hidden_by_a_transaction_are_still_to_come(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1")
        with queue.producer(transactional_id="t") as producer, producer.transaction():
            producer.put("b", "2").result(5)
            assert queue.purge().after[0].base == 1
        assert drained(queue) == ["2"]

    def test_keys_are_taken_out_and_the_others_stay(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "c=1", "b=2")
        change = queue.purge(keys=["b", "nobody"])
        assert (change.messages, change.without_room) == (1, 0)
        assert (change.after[0].base, change.after[0].runs) == (0, (3, 1))
        put(queue, "b=3")
        assert drained(queue) == ["1", "1", "3"]

    def test_a_key_may_be_of_any_type_that_has_a_wire_form(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "1=one", "true=yes", "c=c")
        assert queue.purge(keys=[1, True]).messages == 2
        assert drained(queue) == ["c"]
        with pytest.raises(ConfigError, match="one key, not several"):
            queue.purge(keys="c")

    def test_a_message_without_a_key_has_none_to_be_chosen_by(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "c=c")
        with pytest.raises(UnencodableKey, match="cannot be chosen by its key") as caught:
            queue.purge(keys=["c", None])  # type: ignore[list-item]
        assert caught.value.hint == "Leave keys out to choose all messages."
        assert drained(queue) == ["c"]

    def test_messages_done_out_of_order_stay_done(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "c=1", "d=1")
        overwrite(queue, p0=said(queue, 0, 2, 1, sequence=7, delivered=3, counts={0: 2, 1: 4}))
        change = queue.purge(keys=["a"])
        assert change.after[0] == CommitMap(
            1,
            (1, 1),
            topic_tag=topic_tag(memory_cluster.topics.describe("prices").id),
            partitions=1,
            sequence=8,
            delivered=3,
            counts={1: 4},
        )
        assert maps(queue) == dict(change.after)
        assert drained(queue) == ["1", "1"]

    def test_a_keys_newer_value_that_was_consumed_still_hides_the_older_one(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "a=2")
        overwrite(queue, p0=said(queue, 0, 2, 1))  # a=2 is done, b=1 is not, and a=1 is superseded
        assert queue.stats().depth == 1
        assert queue.purge(keys=["a"]).messages == 0
        assert drained(queue) == ["1"]

    def test_every_partition_is_purged(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, spec=TopicSpec(partitions=3))
        put(queue, *(f"{number}=1" for number in range(30)))
        queue.purge()
        assert {p: one.base for p, one in maps(queue).items()} == memory_cluster.logs.end_offsets("prices")

    def test_marks_that_do_not_fit_are_left_out_and_counted(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, *(f"{number}=1" for number in range(24_000)))
        chosen = Random(7).sample(range(24_000), 12_000)  # in no order, so that deflating the runs helps little
        change = queue.purge(keys=chosen)
        assert change.messages is not None
        assert change.without_room > 0 < change.messages
        assert change.messages + change.without_room == len(chosen)
        assert len(commits(queue)[0].metadata) <= 4095
        assert queue.stats().depth == 24_000 - change.messages

    def test_the_work_of_consumers_is_never_forgotten_for_it(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, *(f"{number}=1" for number in range(40_000)))
        full = CommitMap(0, tuple(Random(7).choices((1, 2, 3), k=18_000))).shortened(4000)
        scattered = Random(7).sample(range(full.end, 40_000), (40_000 - full.end) // 2)
        for keys, room_for_all in ((range(40_000), True), (range(100), True), (scattered, False)):
            overwrite(queue, p0=said(queue, full.base, *full.runs))
            assert len(commits(queue)[0].metadata) > 3900
            change = queue.purge(keys=keys)
            assert change.after[0].covers(full)
            assert bool(change.without_room) is not room_for_all

    def test_a_broker_that_takes_less_text_gets_less(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, *(f"{number}=1" for number in range(100)))
        too_large = TransportError("Too large.", code="OFFSET_METADATA_TOO_LARGE")
        memory_cluster.fail_next("commit", too_large, times=5)
        change = queue.purge(keys=range(1, 100, 2))
        assert len(commits(queue)[0].metadata) <= 4095 // 32
        assert change.messages is not None
        assert 0 < change.messages < 50
        assert change.messages + change.without_room == 50
        memory_cluster.fail_next("commit", too_large, times=99)
        with pytest.raises(TransportError, match="Too large"):
            queue.purge(keys=range(1, 100, 2))


class TestReset:
    @pytest.fixture
    def queue(self, memory_cluster: MemoryCluster) -> LastValueQueue[str]:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "c=1")
        return queue

    def test_to_the_beginning_everything_comes_again_and_is_marked_so(self, queue: LastValueQueue[str]) -> None:
        overwrite(queue, p0=said(queue, 1, 1, 1, sequence=4))
        change = queue.reset("earliest")
        assert (change.before[0].base, change.before[0].runs) == (1, (1, 1))
        assert (change.after[0].base, change.after[0].runs, change.after[0].sequence) == (0, (), 5)
        assert change.after[0].delivered == 3
        assert queue.stats().attempted == 3
        assert drained(queue) == ["1", "1", "1"]

    def test_to_the_end_nothing_is_left(self, queue: LastValueQueue[str]) -> None:
        assert queue.reset("latest").after[0].base == 3
        assert drained(queue) == []

    def test_to_an_offset_in_one_partition_the_others_stay(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
        put(queue, *(f"{number}=1" for number in range(20)))
        before = commits(queue)
        assert queue.reset({1: 3}).after.keys() == {0, 1}
        assert maps(queue)[1].base == 3
        assert commits(queue)[0] == before[0]
        assert queue.stats().depth == 20 - 3

    def test_to_a_time_what_arrived_since_comes(self) -> None:
        now = [1_000.0]
        cluster = MemoryCluster(clock=lambda: now[0])
        queue = declare(cluster)
        put(queue, "a=1")
        now[0] = 2_000.5
        put(queue, "b=2")
        assert queue.reset(2_000.5).after[0].base == 1
        assert queue.reset(2_000.4).after[0].base == 1
        assert queue.reset(2_001).after[0].base == 2
        assert queue.reset(0).after[0].base == 0

    def test_below_the_beginning_of_a_truncated_log_nothing_is_promised(
        self, memory_cluster: MemoryCluster, queue: LastValueQueue[str]
    ) -> None:
        memory_cluster.delete_records("prices", 0, 1)
        assert queue.reset("earliest").after[0].base == 1
        with pytest.raises(ConfigError, match="partition 0, which holds 1 to 3"):
            queue.reset({0: 0})

    @pytest.mark.parametrize("to", [{}, {1: 0}, {0: 4}, {0: -1}, {0: True}, {"0": 1}, -1, True, "middle", None, 1e400])
    def test_to_what_is_no_point_in_the_log_is_refused(self, queue: LastValueQueue[str], to: Any) -> None:
        before = commits(queue)
        with pytest.raises(ConfigError) as caught:
            queue.reset(to)
        assert caught.value.options == ("to",)
        assert commits(queue) == before


class TestExpire:
    def test_older_messages_are_consumed_however_the_keys_lie(self) -> None:
        now = [1_000_000.0]
        cluster = MemoryCluster(clock=lambda: now[0])
        queue = declare(cluster)
        put(queue, "a=1", "b=1", "c=1")
        now[0] = 4_000_000_000.0  # far in the future
        put(queue, "a=2", "d=2")
        change = queue.expire(3600)
        assert (change.messages, change.after[0].base) == (2, 3)
        assert drained(queue) == ["2", "2"]

    def test_time_need_not_follow_the_offsets(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1")
        memory_cluster.write("prices", b"b", b"old", timestamp=1_000)
        put(queue, "c=1")
        change = queue.expire(3600.0)
        assert (change.messages, change.after[0].base, change.after[0].runs) == (1, 0, (1, 1))
        assert drained(queue) == ["1", "1"]

    def test_age_is_counted_by_the_clusters_clock(self) -> None:
        behind = [0.0]
        cluster = MemoryCluster(clock=lambda: time.time() - behind[0])
        queue = declare(cluster)
        put(queue, "a=1")
        behind[0] = -4000.0
        assert queue.expire(3600).messages == 1, "it came 4,000 s ago, though no time has passed here"
        behind[0] = 7200.0
        put(queue, "b=1")
        assert queue.expire(3600).messages == 0, "it has just come, two hours ago by the clock of this machine"
        assert drained(queue) == ["1"]

    def test_the_clock_of_this_machine_is_taken_where_the_cluster_does_not_tell(
        self, memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1")
        memory_cluster.fail_next("groups.committed_at", Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED"))
        assert queue.expire(3600).messages == 0
        assert "judged by the clock of this machine: No." in caplog.text

    @pytest.mark.parametrize("older_than", [-1, True, "1h", float("nan"), float("inf")])
    def test_a_value_that_is_no_time_is_refused(self, memory_cluster: MemoryCluster, older_than: Any) -> None:
        with pytest.raises(ConfigError, match="older_than"):
            declare(memory_cluster).expire(older_than)


class TestRepair:
    def test_an_undamaged_queue_is_left_alone(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        before = commits(queue)
        repair = queue.repair()
        assert (repair.found, repair.left, repair.after) == ((), (), {})
        assert commits(queue) == before

    def test_a_dry_run_tells_and_changes_nothing_also_while_consumers_are_at_work(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster)
        with queue.consumer():
            before = claims(queue)
            memory_cluster.topics.add_partitions("prices", 2)
            repair = queue.repair(dry_run=True)
            assert [damage.kind for damage in repair.found] == ["partitions-added"]
            assert (repair.left, repair.dry_run) == ((), True)
            assert {p: one.base for p, one in repair.after.items()} == {0: 0, 1: 0}
            assert claims(queue) == before

    def test_added_partitions_are_taken_in_from_their_beginning(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, start="latest")
        memory_cluster.topics.add_partitions("prices", 3)
        put(queue, *(f"{number}=1" for number in range(20)))
        with pytest.raises(QueueNotDeclared):
            queue.consumer().close()
        repair = queue.repair()
        assert repair.left == ()
        assert maps(queue) == dict(repair.after)
        assert {one.partitions for one in repair.after.values()} == {3}
        assert len(drained(queue)) == 20

    def test_a_group_that_is_gone_begins_where_the_caller_says(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        memory_cluster.groups.delete("lvq.prices")
        repair = queue.repair()
        assert [damage.kind for damage in repair.left] == ["group-gone"]
        assert (repair.after, commits(queue)) == ({}, {})
        assert queue.repair("latest").left == ()
        assert drained(queue) == []
        memory_cluster.groups.delete("lvq.prices")
        queue.repair({0: 1})
        assert drained(queue) == ["1"]

    def test_expired_offsets_begin_where_the_caller_says_and_the_rest_stays(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster, spec=TopicSpec(partitions=3))
        put(queue, *(f"{number}=1" for number in range(30)))
        kept = said(queue, 2, 1, 1, sequence=3)
        memory_cluster.groups.delete("lvq.prices")
        overwrite(queue, p1=kept)
        repair = queue.repair({0: 1})
        assert [damage.partitions for damage in repair.found] == [(0, 2)]
        assert [damage.partitions for damage in repair.left] == [(2,)]
        assert queue.repair("latest").left == ()
        found = maps(queue)
        assert (found[0].base, found[1].base, found[1].runs) == (1, 2, (1, 1))
        assert found[2].base == memory_cluster.logs.end_offsets("prices")[2]

    def test_a_topic_that_was_created_anew_is_adopted_where_the_caller_says(
        self, memory_cluster: MemoryCluster
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        old = said(queue, 1, 1, 1)
        memory_cluster.topics.delete("prices")
        memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        put(queue, "a=3", "b=3", "c=3")
        overwrite(queue, p0=old)
        with pytest.raises(TopicRecreated):
            queue.purge()
        assert [damage.kind for damage in queue.repair().left] == ["topic-recreated"]
        assert queue.repair("earliest").left == ()
        assert drained(queue) == ["3", "3", "3"]

    @pytest.mark.parametrize(
        ("base", "runs", "left"), [(9, (1, 3), (3, ())), (1, (1, 5), (1, (1, 1))), (0, (1, 1, 9, 9), (0, (1, 1)))]
    )
    def test_lost_offsets_are_cut_at_the_end_so_that_nothing_new_is_taken_for_done(
        self, memory_cluster: MemoryCluster, base: int, runs: tuple[int, ...], left: tuple[int, tuple[int, ...]]
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1", "c=1")
        overwrite(queue, p0=said(queue, base, *runs, delivered=30, counts={base: 1, 20: 2}))
        with pytest.raises(DataLoss):
            queue.stats()
        queue.repair()
        mended = maps(queue)[0]
        assert (mended.base, mended.runs) == left
        assert (mended.delivered, set(mended.counts)) == (3, {base} if base < 3 else set())
        depth = queue.stats().depth
        put(queue, "d=1", "e=1")
        assert queue.stats().depth == depth + 2

    @pytest.mark.parametrize("text", ["", "foreign"])
    def test_a_foreign_text_is_replaced_by_one_that_goes_by_the_offset(
        self, memory_cluster: MemoryCluster, text: str
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        overwrite(queue, p0=Commit(1, text))
        tried = queue.repair(dry_run=True)
        assert ([one.kind for one in tried.found], tried.left, tried.after[0].base) == (["commit-refused"], (), 1)
        assert commits(queue) == {0: Commit(1, text)}
        repair = queue.repair()
        assert (repair.left, repair.after[0].base, repair.after[0].runs) == ((), 1, ())
        assert drained(queue) == ["1"]

    def test_a_foreign_commit_gives_way_to_where_one_says_to_start(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        overwrite(queue, p0=Commit(2))
        assert queue.repair("earliest").after[0].base == 0
        assert drained(queue) == ["1", "1"]

    def test_several_damages_are_mended_at_once(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
        overwrite(queue, p0=said(queue, 99, partitions=2), p1=Commit(0, "foreign"))
        memory_cluster.topics.add_partitions("prices", 3)
        repair = queue.repair()
        assert {damage.kind for damage in repair.found} == {"partitions-added", "offsets-lost", "commit-refused"}
        assert queue.repair().found == ()


class TestConsumersAtWork:
    @changes
    def test_nothing_is_changed_behind_their_backs(
        self, memory_cluster: MemoryCluster, change: Callable[[LastValueQueue[str]], Any]
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        with queue.consumer() as consumer:
            eventually(lambda: consumer.stats.partitions)
            before = claims(queue)
            with pytest.raises(QueueError, match=r"still has active consumers\..*Close them first"):
                change(queue)
            assert claims(queue) == before
        change(queue)

    @changes
    def test_a_caller_that_may_not_ask_for_members_is_refused_by_the_broker(
        self, memory_cluster: MemoryCluster, change: Callable[[LastValueQueue[str]], Any]
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1")
        overwrite(queue, p0=Commit(0, "foreign") if change is CHANGES["repair"] else said(queue, 0))
        memory_cluster.fail_next(
            "groups.member_count", Unauthorized("No.", code="GROUP_AUTHORIZATION_FAILED"), times=99
        )
        member = memory_cluster.member("lvq.prices", "prices", _Nobody())
        before = commits(queue)
        if change is not CHANGES["move"]:  # a move would share the partitions, and wait for all of them
            with pytest.raises(QueueError, match="still has active consumers"):
                change(queue)
        assert commits(queue) == before
        member.close()
        change(queue)

    def test_commits_made_since_the_look_are_not_overwritten(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        look = memory_cluster.logs.start_offsets

        def meanwhile(topic: str, *, timeout: float = 10.0) -> dict[int, int]:
            overwrite(queue, p0=said(queue, 1, sequence=5))
            return look(topic)

        monkeypatch.setattr(memory_cluster.logs, "start_offsets", meanwhile)
        with pytest.raises(QueueError, match="has changed meanwhile"):
            queue.purge(keys=["b"])
        assert maps(queue)[0].base == 1

    @pytest.mark.parametrize("own", [True, False], ids=["ours", "foreign"])
    def test_a_text_that_each_reading_ends_in_other_rubbish_has_not_changed(
        self, memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, own: bool
    ) -> None:
        """The client reads the metadata of some other clients like this."""
        queue = declare(memory_cluster)
        put(queue, "a=1", "b=1")
        overwrite(queue, p0=Commit(1, said(queue, 1).metadata if own else "of another client"))
        ask, rubbish = memory_cluster.groups.committed, count()

        def overread(*args: Any, **options: Any) -> dict[int, Commit]:
            return {p: replace(one, metadata=f"{one.metadata}{next(rubbish)}") for p, one in ask(*args).items()}

        with monkeypatch.context() as patched:
            patched.setattr(memory_cluster.groups, "committed", overread)
            assert [damage.kind for damage in queue.repair().found] == ([] if own else ["commit-refused"])
            if own:
                queue.purge()
        assert queue.stats().depth == (0 if own else 1)

    def test_a_refusal_for_another_reason_is_told_as_it_is(self, memory_cluster: MemoryCluster) -> None:
        queue = declare(memory_cluster)
        memory_cluster.fail_next("commit", Unauthorized("No.", code="GROUP_AUTHORIZATION_FAILED"))
        with pytest.raises(Unauthorized):
            queue.purge()


class TestWhatCannotBeConsumed:
    @pytest.mark.parametrize(
        "change",
        [CHANGES[name] for name in CHANGES if name != "move"],
        ids=[name for name in CHANGES if name != "move"],
    )
    def test_has_nothing_to_change(
        self, memory_cluster: MemoryCluster, change: Callable[[LastValueQueue[str]], Any]
    ) -> None:
        queue = declare(memory_cluster, "pictures", non_destructive=True)
        with pytest.raises(ConfigError) as refused:
            change(queue)
        assert refused.value.options == ("non_destructive",)
        with pytest.raises(QueueNotDeclared, match="bare topic"):
            change(LastValueQueue("pictures", key_header=None, value=TEXT, cluster=memory_cluster))


class _Nobody:
    """A member's listener that does nothing."""

    def assigned(self, partitions: Any, commits: Any) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Any) -> None:
        pass

    lost = revoked


def test_a_consumer_goes_on_after_each_change(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    consume(queue, "b")
    assert maps(queue)[0].runs == (1, 1)
    queue.purge(keys=["c"])
    assert maps(queue)[0].runs == (1, 2)
    assert drained(queue) == ["1"]
    queue.reset("earliest")
    assert drained(queue) == ["1", "1", "1"]
