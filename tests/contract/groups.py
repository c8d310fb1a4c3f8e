"""Groups: commits without members, and with them."""

from __future__ import annotations

import pytest

from lvq_kafka.errors import Closed, TopicNotFound, TransportError
from lvq_kafka.ports import Commit, Log
from tests.contract.harness import COMPACTED, Listener, follow, pairs, poll_until, put
from tests.waiting import eventually


class GroupsContract:
    def test_a_commit_is_read_back_with_its_text_and_other_partitions_are_missing(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create_topic(topic, partitions=3, config=COMPACTED)
        assert log.committed(group, topic) == {}
        log.commit(group, topic, {0: Commit(5), 2: Commit(7, "lvq1:äöü €")})
        assert log.committed(group, topic) == {0: Commit(5), 2: Commit(7, "lvq1:äöü €")}
        log.commit(group, topic, {0: Commit(3, "back")})
        assert log.committed(group, topic) == {0: Commit(3, "back"), 2: Commit(7, "lvq1:äöü €")}

    def test_commits_of_groups_and_topics_are_apart(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        log.commit(group, topic, {0: Commit(1)})
        assert log.committed(f"{group}-other", topic) == {}
        assert log.committed(group, f"{topic}-other") == {}

    @pytest.mark.parametrize("character", ["x", "€"])
    def test_a_text_of_4095_characters_is_the_longest(self, log: Log, topic: str, group: str, character: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        log.commit(group, topic, {0: Commit(1, character * 4095)})
        assert log.committed(group, topic) == {0: Commit(1, character * 4095)}
        with pytest.raises(TransportError) as caught:
            log.commit(group, topic, {0: Commit(2, character * 4096)})
        assert caught.value.code == "OFFSET_METADATA_TOO_LARGE"
        assert log.committed(group, topic)[0].offset == 1

    def test_a_text_that_is_too_long_does_not_keep_the_other_partitions_from_their_commits(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        with pytest.raises(TransportError):
            log.commit(group, topic, {0: Commit(1, "x" * 5000), 1: Commit(2, "short")})
        assert log.committed(group, topic) == {1: Commit(2, "short")}

    def test_a_commit_for_a_missing_topic_or_partition_is_refused(self, log: Log, topic: str, group: str) -> None:
        with pytest.raises(TopicNotFound):
            log.commit(group, topic, {0: Commit(1)})
        log.create_topic(topic, partitions=1, config=COMPACTED)
        with pytest.raises(TopicNotFound):
            log.commit(group, topic, {5: Commit(1)})

    def test_a_deleted_group_has_forgotten_its_commits(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        assert log.delete_group(group) is False
        log.commit(group, topic, {0: Commit(1)})
        assert log.delete_group(group) is True
        assert log.committed(group, topic) == {}
        assert log.delete_group(group) is False

    def test_a_deleted_topic_takes_its_commits_along(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        log.commit(group, topic, {0: Commit(1)})
        log.delete_topic(topic)
        eventually(lambda: log.committed(group, topic) == {})

    def test_a_member_gets_all_partitions_with_their_commits_and_reads_from_there(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        put(log, topic, *[(f"k{n}", str(n)) for n in range(20)])
        ends = log.end_offsets(topic)
        log.commit(group, topic, {1: Commit(ends[1] - 1, "text")})
        listener = Listener()
        member = log.member(group, topic, listener)
        records = follow(member, ends, timeout=30)
        assert listener.held == {0, 1}
        assert listener.commits == {1: Commit(ends[1] - 1, "text")}
        assert len(records) == ends[0] + 1
        member.close()
        assert listener.held == set()
        assert listener.diary[-1][0] == "revoked"

    def test_two_members_share_the_partitions(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=4, config=COMPACTED)
        one, two = Listener(), Listener()
        first = log.member(group, topic, one)
        poll_until(lambda: one.held == {0, 1, 2, 3}, first)
        second = log.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 2, first, second)
        assert one.held | two.held == {0, 1, 2, 3}
        first.close()
        poll_until(lambda: two.held == {0, 1, 2, 3}, second)
        second.close()

    def test_a_member_that_leaves_can_commit_once_more_and_its_successor_goes_on_there(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        put(log, topic, ("a", "1"), ("a", "2"), ("a", "3"))
        one, two = Listener(), Listener()
        first = log.member(group, topic, one)
        follow(first, {0: 3}, timeout=30)
        one.on_revoke = lambda partitions: first.commit({0: Commit(2, "last words")})
        first.close()
        second = log.member(group, topic, two)
        assert pairs(follow(second, {0: 3}, timeout=30)) == [("a", "3")]
        assert two.commits == {0: Commit(2, "last words")}
        second.close()

    def test_a_commit_is_durable_when_the_call_returns(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        listener = Listener()
        member = log.member(group, topic, listener)
        poll_until(lambda: listener.held == {0, 1}, member)
        member.commit({0: Commit(4, "x")})
        assert log.committed(group, topic) == {0: Commit(4, "x")}
        member.commit({0: Commit(5, "y"), 1: Commit(1)})
        assert log.committed(group, topic) == {0: Commit(5, "y"), 1: Commit(1)}
        member.close()

    def test_a_member_cannot_commit_for_a_partition_it_does_not_hold(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        one, two = Listener(), Listener()
        first, second = log.member(group, topic, one), log.member(group, topic, two)
        poll_until(lambda: len(one.held) == len(two.held) == 1, first, second)
        [foreign] = two.held
        with pytest.raises(TransportError):
            first.commit({foreign: Commit(1)})
        assert log.committed(group, topic) == {}
        first.close()
        second.close()

    def test_a_group_with_members_refuses_commits_and_deletion_from_outside(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = log.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        with pytest.raises(TransportError):
            log.commit(group, topic, {0: Commit(1)})
        with pytest.raises(TransportError) as caught:
            log.delete_group(group)
        assert caught.value.code == "NON_EMPTY_GROUP"
        member.close()
        log.commit(group, topic, {0: Commit(1)})
        assert log.delete_group(group) is True

    def test_added_partitions_come_to_the_members(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = log.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        log.add_partitions(topic, 2)
        poll_until(lambda: listener.held == {0, 1}, member)
        member.close()

    def test_a_paused_partition_brings_nothing_until_it_is_resumed(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        listener = Listener()
        member = log.member(group, topic, listener)
        poll_until(lambda: listener.held == {0, 1}, member)
        follow(member, {}, timeout=1)
        member.pause([0])
        placed = put(log, topic, *[(f"k{n}", "v") for n in range(20)])
        ends = log.end_offsets(topic)
        assert {record.partition for record in follow(member, {1: ends[1]}, timeout=30)} == {1}
        member.resume([0])
        later = follow(member, {0: ends[0]}, timeout=30)
        assert len(later) == sum(position.partition == 0 for position in placed)
        member.close()

    def test_a_closed_member_refuses_to_poll(self, log: Log, topic: str, group: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        member = log.member(group, topic, Listener())
        member.close()
        with pytest.raises(Closed):
            member.poll(0)
