"""The contract of transactions: markers, aborted records, and waits for open transactions."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lvq_kafka.cluster import Cluster, Commit
from lvq_kafka.errors import OutcomeUnknown, StateError, TransportError
from tests.contract.harness import (
    COMPACTED,
    Faults,
    Listener,
    follow,
    pairs,
    poll_until,
    put,
    read_all,
    settled,
    stays_at,
)
from tests.waiting import eventually


class TransactionsContract:
    def test_a_committed_transaction_is_seen_and_its_marker_takes_an_offset(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        receipts = [writer.append(topic, b"a", b"1"), writer.append(topic, b"b", b"2")]
        writer.commit_transaction(20)
        assert [receipt.result(0).offset for receipt in receipts] == [0, 1]
        assert settled(cluster, topic) == {0: 3}
        assert pairs(read_all(cluster, topic)) == [("a", "1"), ("b", "2")]
        writer.close()

    def test_an_aborted_transaction_is_never_seen_and_the_position_passes_it(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"never").result(20)
        writer.append(topic, b"a", b"never").result(20)
        writer.abort_transaction(20)
        assert settled(cluster, topic) == {0: 4}
        reader = cluster.reader(topic, {0: 0})
        assert pairs(follow(reader, {0: 4})) == [("a", "1")]
        assert stays_at(reader, {0: 4})
        put(cluster, topic, ("a", "2"))
        assert pairs(follow(reader, {0: 5})) == [("a", "2")]
        reader.close()
        writer.close()

    def test_an_abort_shortly_after_a_commit_leaves_a_writer_that_can_go_on(self, cluster: Cluster, topic: str) -> None:
        """For some ms after a commit, the broker refuses to add partitions to the next transaction."""
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer(transactional_id=topic)
        for value in range(30):
            writer.begin_transaction()
            writer.append(topic, b"a", str(value).encode())
            writer.commit_transaction(20)
            writer.begin_transaction()
            with suppress(OutcomeUnknown):
                writer.append(topic, b"a", b"never").result(0.01)
            writer.abort_transaction(20)
        writer.close()
        logs = cluster.logs  # the coordinator answers before the marker of the last abort is in the log
        eventually(lambda: logs.end_offsets(topic, stable=True) == logs.end_offsets(topic))
        assert {value for _, value in pairs(read_all(cluster, topic))} == {str(value) for value in range(30)}

    def test_an_open_transaction_hides_what_follows_it_too(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"b", b"2").result(20)
        put(cluster, topic, ("c", "3"))
        assert cluster.logs.end_offsets(topic) == {0: 3}
        assert cluster.logs.end_offsets(topic, stable=True) == {0: 1}
        reader = cluster.reader(topic, {0: 0})
        assert pairs(follow(reader, {0: 1})) == [("a", "1")]
        assert stays_at(reader, {0: 1})
        writer.commit_transaction(20)
        assert pairs(follow(reader, {0: 4})) == [("b", "2"), ("c", "3")]
        reader.close()
        writer.close()

    def test_a_reader_can_stand_beyond_the_last_stable_offset(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"1").result(20)
        put(cluster, topic, ("b", "2"))
        reader = cluster.reader(topic, {0: 1})
        assert stays_at(reader, {0: 1})
        writer.commit_transaction(20)
        assert pairs(follow(reader, {0: 3})) == [("b", "2")]
        reader.close()
        writer.close()

    def test_a_transaction_over_several_partitions_ends_in_each_that_it_touched(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.topics.create(topic, partitions=4, config=COMPACTED)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        touched = {writer.append(topic, key, b"v").result(20).partition for key in (b"a", b"b")}
        writer.commit_transaction(20)
        ends = settled(cluster, topic)
        assert {partition for partition, end in ends.items() if end} == touched
        assert sum(ends.values()) == 2 + len(touched)
        writer.close()

    def test_a_new_writer_with_the_same_id_fences_the_old_one_off(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        old = cluster.writer(transactional_id=topic)
        old.begin_transaction()
        old.append(topic, b"a", b"never").result(20)
        new = cluster.writer(transactional_id=topic)
        new.begin_transaction()
        new.append(topic, b"a", b"1").result(20)
        new.commit_transaction(20)
        with pytest.raises(TransportError) as caught:
            old.commit_transaction(20)
        assert caught.value.code == "_FENCED"
        with suppress(TransportError):
            old.abort_transaction(5)
        with pytest.raises(TransportError, match="has fenced this one off"):
            old.begin_transaction(5)
        new.begin_transaction()
        new.append(topic, b"b", b"2").result(20)
        new.commit_transaction(20)
        settled(cluster, topic)
        assert pairs(read_all(cluster, topic)) == [("a", "1"), ("b", "2")]
        old.close(0)
        new.close()

    def test_steps_out_of_order_are_refused(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        plain = cluster.writer()
        with pytest.raises(StateError):
            plain.begin_transaction()
        plain.close()
        writer = cluster.writer(transactional_id=topic)
        with pytest.raises(StateError):
            writer.append(topic, b"a", b"1")
        with pytest.raises(StateError):
            writer.commit_transaction(20)
        writer.begin_transaction()
        with pytest.raises(StateError):
            writer.begin_transaction()
        writer.abort_transaction(20)
        writer.close()

    def test_a_transaction_with_a_failed_append_cannot_be_committed(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"max.message.bytes": "1000"})
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"never").result(20)
        assert writer.append(topic, b"a", b"x" * 5000).exception(20) is not None
        with pytest.raises(TransportError):
            writer.commit_transaction(20)
        writer.abort_transaction(20)
        writer.close()
        successor = cluster.writer(transactional_id=topic)
        successor.begin_transaction()
        successor.append(topic, b"a", b"1").result(20)
        successor.commit_transaction(20)
        settled(cluster, topic)
        assert pairs(read_all(cluster, topic)) == [("a", "1")]
        successor.close()

    def test_closing_a_writer_aborts_its_open_transaction(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"never").result(20)
        assert writer.close(20) == 0
        assert settled(cluster, topic) == {0: 2}
        assert read_all(cluster, topic) == []

    def test_offsets_sent_in_a_transaction_are_committed_or_dropped_with_it(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        writer = cluster.writer(transactional_id=topic)
        for end, expected in ((writer.abort_transaction, {}), (writer.commit_transaction, {0: Commit(1, "done")})):
            writer.begin_transaction()
            writer.append(topic, b"b", b"2").result(20)
            writer.send_offsets(member, {0: Commit(1, "done")})
            end(20)
            settled(cluster, topic)
            assert cluster.groups.committed(group, topic) == expected
        writer.close()
        member.close()

    def test_offsets_of_a_group_without_members_are_committed_or_dropped_with_a_transaction(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        writer = cluster.writer(transactional_id=topic)
        for end, expected in (
            (writer.abort_transaction, {}),
            (writer.commit_transaction, {0: Commit(1, "one"), 1: Commit(0, "none")}),
        ):
            writer.begin_transaction()
            writer.append(topic, b"b", b"2").result(20)
            writer.send_offsets_of(group, topic, {0: Commit(1, "one"), 1: Commit(0, "none")})
            end(20)
            settled(cluster, topic)
            assert cluster.groups.committed(group, topic) == expected
        writer.begin_transaction()  # with offsets alone
        writer.send_offsets_of(group, topic, {0: Commit(2, "two")})
        writer.commit_transaction(20)
        assert cluster.groups.committed(group, topic) == {0: Commit(2, "two"), 1: Commit(0, "none")}
        assert cluster.groups.member_count(group) == 0
        writer.close()

    def test_the_offsets_of_a_writer_that_was_fenced_off_are_not_committed(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        old = cluster.writer(transactional_id=topic)
        old.begin_transaction()
        old.append(topic, b"a", b"never").result(20)
        old.send_offsets_of(group, topic, {0: Commit(1, "never")})
        new = cluster.writer(transactional_id=topic)
        assert cluster.groups.committed(group, topic) == {}
        new.begin_transaction()
        new.send_offsets_of(group, topic, {0: Commit(2, "new")})
        new.commit_transaction(20)
        with pytest.raises(TransportError) as caught:
            old.commit_transaction(20)
        assert caught.value.code == "_FENCED"
        assert cluster.groups.committed(group, topic) == {0: Commit(2, "new")}
        old.close(0)
        new.close()

    def test_a_commit_in_an_open_transaction_is_not_answered_yet(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        member.commit({0: Commit(1, "before")})
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.send_offsets(member, {0: Commit(2, "in it")})
        with pytest.raises(TransportError) as caught:
            cluster.groups.committed(group, topic, timeout=0.3)
        assert caught.value.retriable
        writer.abort_transaction(20)
        assert cluster.groups.committed(group, topic) == {0: Commit(1, "before")}
        writer.close()
        member.close()

    def test_a_plain_commit_overtakes_one_in_an_open_transaction(
        self, cluster: Cluster, topic: str, group: str
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener = Listener()
        member = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, member)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.send_offsets(member, {0: Commit(2, "in it")})
        member.commit({0: Commit(1, "plain")})
        writer.commit_transaction(20)
        assert cluster.groups.committed(group, topic) == {0: Commit(1, "plain")}
        writer.close()
        member.close()

    def test_offsets_of_a_member_that_was_put_out_are_refused(
        self, cluster: Cluster, topic: str, group: str, faults: Faults
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        listener, others = Listener(), Listener()
        zombie = cluster.member(group, topic, listener)
        poll_until(lambda: listener.held == {0}, zombie)
        writer = cluster.writer(transactional_id=topic)

        def is_refused() -> bool:
            writer.begin_transaction()
            writer.append(topic, b"a", b"never").result(20)
            with pytest.raises(TransportError) as caught:
                writer.send_offsets(zombie, {0: Commit(2, "the zombie's")})
            writer.abort_transaction(20)
            return caught.value.code in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}

        faults.expel(zombie)
        assert is_refused()
        successor = cluster.member(group, topic, others)
        poll_until(lambda: others.held == {0}, successor)
        successor.commit({0: Commit(1, "its successor's")})
        assert is_refused()
        settled(cluster, topic)
        assert cluster.groups.committed(group, topic) == {0: Commit(1, "its successor's")}
        assert read_all(cluster, topic) == []
        writer.close()
        successor.close()
        zombie.close()
