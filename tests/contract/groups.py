"""The contract of groups: membership, and commits with and without members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from lvq_kafka.cluster import Answered, Cluster, Commit
from lvq_kafka.errors import Closed, TopicNotFound, TransportError
from tests.contract.harness import COMPACTED, Listener, follow, pairs, poll_until, put, read_all
from tests.waiting import eventually


class Refusing(Listener):
    """A listener that takes no partitions."""

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        raise ZeroDivisionError


class GroupsContract:
    def test_a_commit_is_read_back_with_its_text_and_other_partitions_are_missing(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        assert cluster.groups.committed(group, topic) == {}
        cluster.groups.commit(group, topic, {0: Commit(5), 2: Commit(7, "lvq1:äöü €")})
        assert cluster.groups.committed(group, topic) == {0: Commit(5), 2: Commit(7, "lvq1:äöü €")}
        cluster.groups.commit(group, topic, {0: Commit(3, "back")})
        assert cluster.groups.committed(group, topic) == {0: Commit(3, "back"), 2: Commit(7, "lvq1:äöü €")}

    def test_commits_of_groups_and_topics_are_apart(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.groups.commit(group, topic, {0: Commit(1)})
        assert cluster.groups.committed(f"{group}-other", topic) == {}
        assert cluster.groups.committed(group, f"{topic}-other") == {}

    @pytest.mark.parametrize("character", ["x", "€"])
    def test_a_text_of_4095_characters_is_the_longest(
        self, cluster: Cluster, topic: str, group: str, character: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.groups.commit(group, topic, {0: Commit(1, character * 4095)})
        assert cluster.groups.committed(group, topic) == {0: Commit(1, character * 4095)}
        with pytest.raises(TransportError) as caught:
            cluster.groups.commit(group, topic, {0: Commit(2, character * 4096)})
        assert caught.value.code == "OFFSET_METADATA_TOO_LARGE"
        assert cluster.groups.committed(group, topic)[0].offset == 1

    def test_a_text_that_is_too_long_does_not_keep_the_other_partitions_from_their_commits(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        with pytest.raises(TransportError):
            cluster.groups.commit(group, topic, {0: Commit(1, "x" * 5000), 1: Commit(2, "short")})
        assert cluster.groups.committed(group, topic) == {1: Commit(2, "short")}

    def test_a_commit_for_a_missing_topic_or_partition_is_refused(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        with pytest.raises(TopicNotFound):
            cluster.groups.commit(group, topic, {0: Commit(1)})
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        with pytest.raises(TopicNotFound):
            cluster.groups.commit(group, topic, {5: Commit(1)})

    def test_a_commit_has_the_time_of_the_clusters_clock(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config={**COMPACTED, "message.timestamp.type": "LogAppendTime"})
        put(cluster, topic, ("a", "before"))
        cluster.groups.commit(group, topic, {0: Commit(0)})
        at = cluster.groups.committed_at(group)
        put(cluster, topic, ("b", "after"))
        before, after = (record.timestamp / 1000 for record in read_all(cluster, topic))
        assert before <= at <= after

    def test_asking_whether_a_group_may_commit_commits_nothing(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.groups.check_may_commit(group, topic)
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.groups.check_may_commit(group, topic)
        assert cluster.groups.committed(group, topic) == {}
        assert cluster.groups.delete(group) is False
        cluster.groups.commit(group, topic, {0: Commit(1)})
        cluster.groups.check_may_commit(group, topic)
        assert cluster.groups.committed(group, topic) == {0: Commit(1)}

    def test_r50_a_member_whose_listener_refuses_its_partitions_reads_nothing_and_can_leave(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        """A client that had taken none of them would wait forever as it leaves."""
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("b", "2"))
        cluster.groups.commit(group, topic, {0: Commit(0, "text"), 1: Commit(0)})
        before = cluster.groups.committed(group, topic)
        for _ in range(2):
            member = cluster.member(group, topic, Refusing(), renews=True)
            with pytest.raises(ZeroDivisionError):
                poll_until(lambda member=member: len(member.poll(0.05).batch), member)
            member.close()
            eventually(lambda: cluster.groups.member_count(group) == 0, 30)
        assert cluster.groups.committed(group, topic) == before

    def test_a_deleted_group_has_forgotten_its_commits(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        assert cluster.groups.delete(group) is False
        cluster.groups.commit(group, topic, {0: Commit(1)})
        assert cluster.groups.delete(group) is True
        assert cluster.groups.committed(group, topic) == {}
        assert cluster.groups.delete(group) is False

    def test_a_deleted_topic_takes_its_commits_along(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.groups.commit(group, topic, {0: Commit(1)})
        cluster.topics.delete(topic)
        eventually(lambda: cluster.groups.committed(group, topic) == {})

    def test_a_member_gets_all_partitions_with_their_commits_and_reads_from_there(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        put(cluster, topic, *[(f"k{n}", str(n)) for n in range(20)])
        ends = cluster.logs.end_offsets(topic)
        cluster.groups.commit(group, topic, {1: Commit(ends[1] - 1, "text")})
        listener = Listener()
        member = cluster.member(group, topic, listener)
        records = follow(member, ends, timeout=30)
        assert listener.held == {0, 1}
        assert listener.commits == {1: Commit(ends[1] - 1, "text")}
        assert len(records) == ends[0] + 1
        member.close()
        assert listener.held == set()
        assert listener.diary[-1][0] == "revoked"

    def test_two_members_share_the_partitions(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=4, config=COMPACTED)
        one, two = Listener(), Listener()
        first = cluster.member(group, topic, one)
        poll_until(lambda: one.held == {0, 1, 2, 3}, first)
        second = cluster.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 2, first, second)
        assert one.held | two.held == {0, 1, 2, 3}
        first.close()
        poll_until(lambda: two.held == {0, 1, 2, 3}, second)
        second.close()

    def test_a_member_that_leaves_can_commit_once_more_and_its_successor_goes_on_there(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("a", "2"), ("a", "3"))
        one, two = Listener(), Listener()
        first = cluster.member(group, topic, one)
        follow(first, {0: 3}, timeout=30)
        one.on_revoke = lambda partitions: first.commit({0: Commit(2, "last words")})
        first.close()
        second = cluster.member(group, topic, two)
        assert pairs(follow(second, {0: 3}, timeout=30)) == [("a", "3")]
        assert two.commits == {0: Commit(2, "last words")}
        second.close()

    def test_a_commit_is_durable_when_the_call_returns(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0, 1}, member)
        member.commit({0: Commit(4, "x")})
        assert cluster.groups.committed(group, topic) == {0: Commit(4, "x")}
        member.commit({0: Commit(5, "y"), 1: Commit(1)})
        assert cluster.groups.committed(group, topic) == {0: Commit(5, "y"), 1: Commit(1)}
        member.close()

    def test_a_commit_in_the_background_is_durable_when_its_answer_comes(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0, 1}, member)
        answers: list[Mapping[int, TransportError | None]] = []
        member.commit_async({0: Commit(4, "x"), 1: Commit(1)}, answers.append)
        assert answers == []  # answered during a poll, on the polling thread
        poll_until(lambda: len(answers) == 1, member)
        assert answers == [{0: None, 1: None}]
        assert cluster.groups.committed(group, topic) == {0: Commit(4, "x"), 1: Commit(1)}
        member.close()

    def test_commits_in_the_background_are_answered_each_for_itself(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        answered: list[int] = []

        def told(number: int) -> Answered:
            return lambda _: answered.append(number)

        for number in range(5):
            member.commit_async({0: Commit(7, f"{number}")}, told(number))
        poll_until(lambda: len(answered) == 5, member)
        assert answered == [0, 1, 2, 3, 4]
        assert cluster.groups.committed(group, topic) == {0: Commit(7, "4")}
        member.close()

    def test_a_text_that_is_too_long_is_the_answer_to_a_commit_in_the_background(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        answers: list[Mapping[int, TransportError | None]] = []
        member.commit_async({0: Commit(1, "x" * 5000)}, answers.append)
        poll_until(lambda: len(answers) == 1, member)
        error = answers[0][0]
        assert error is not None
        assert error.code == "OFFSET_METADATA_TOO_LARGE"
        assert cluster.groups.committed(group, topic) == {}
        member.close()

    def test_a_commit_in_the_background_for_a_partition_that_is_not_held_is_refused_at_once(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        one, two = Listener(), Listener()
        first, second = cluster.member(group, topic, one), cluster.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
        [foreign] = two.held
        with pytest.raises(TransportError):
            first.commit_async({foreign: Commit(1)}, lambda _: None)
        assert cluster.groups.committed(group, topic) == {}
        first.close()
        second.close()

    def test_a_member_cannot_commit_for_a_partition_it_does_not_hold(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        one, two = Listener(), Listener()
        first, second = cluster.member(group, topic, one), cluster.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
        [foreign] = two.held
        with pytest.raises(TransportError):
            first.commit({foreign: Commit(1)})
        assert cluster.groups.committed(group, topic) == {}
        first.close()
        second.close()

    def test_a_group_with_members_refuses_commits_and_deletion_from_outside(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        with pytest.raises(TransportError):
            cluster.groups.commit(group, topic, {0: Commit(1)})
        with pytest.raises(TransportError) as caught:
            cluster.groups.delete(group)
        assert caught.value.code == "NON_EMPTY_GROUP"
        member.close()
        cluster.groups.commit(group, topic, {0: Commit(1)})
        assert cluster.groups.delete(group) is True

    def test_the_members_of_a_group_are_counted(self, cluster: Cluster, topic: str, group: str) -> None:
        assert cluster.groups.member_count(group) == 0
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        cluster.groups.commit(group, topic, {0: Commit(0)})
        assert cluster.groups.member_count(group) == 0
        one, two = Listener(), Listener()
        first, second = cluster.member(group, topic, one), cluster.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
        assert cluster.groups.member_count(group) == 2
        first.close()
        second.close()
        eventually(lambda: cluster.groups.member_count(group) == 0)

    def test_a_group_says_what_a_member_has_and_the_member_what_it_has_heard_of(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0, 1}, member)
        name, heard = member.membership
        assert heard == {0, 1}
        poll_until(lambda: cluster.groups.assigned(group, topic, name) == ({0, 1}, {0, 1}), member)
        assert cluster.groups.assigned(group, topic, "another") is None
        assert cluster.groups.assigned("no-such-group", topic, name) is None
        member.close()
        eventually(lambda: cluster.groups.assigned(group, topic, name) is None)

    def test_added_partitions_come_to_the_members(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        cluster.topics.add_partitions(topic, 2)
        poll_until(lambda: listener.held == {0, 1}, member)
        member.close()

    def test_a_closed_member_refuses_to_poll(self, cluster: Cluster, topic: str, group: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        member = cluster.member(group, topic, Listener())
        member.close()
        with pytest.raises(Closed):
            member.poll(0)
