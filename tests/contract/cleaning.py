"""The contract of logs after compaction and deletion of records."""

from __future__ import annotations

import pytest

from lvq_kafka.cluster import Cluster, LogEnd
from lvq_kafka.errors import ConfigError, DataLoss, TopicNotFound
from tests.contract.harness import COMPACTED, Faults, follow, pairs, put, read_all, settled


def newest(cluster: Cluster, topic: str) -> dict[str, str]:
    """Return the newest value of each key that is not deleted."""
    return {key: value for key, value in dict(pairs(read_all(cluster, topic))).items() if value is not None}


class CleaningContract:
    def test_compaction_keeps_the_newest_value_of_each_key_where_it_lies(
        self, cluster: Cluster, topic: str, faults: Faults
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("end", "1"))
        before = {record.offset: record for record in read_all(cluster, topic)}
        faults.compact(topic)
        after = read_all(cluster, topic)
        kept = [record for record in after if record.key in (b"a", b"b", b"c")]
        assert pairs(kept) == [("a", "2"), ("c", "1"), ("b", "2")]
        assert kept == [before[2], before[3], before[4]]
        assert cluster.logs.start_offsets(topic) == {0: 0}

    def test_a_reader_crosses_the_holes(self, cluster: Cluster, topic: str, faults: Faults) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, *[("a", str(n)) for n in range(50)], ("b", "1"))
        faults.compact(topic)
        end = cluster.logs.end_offsets(topic)[0]
        for start in (0, 7, 49):
            reader = cluster.reader(topic, {0: start})
            records = [record for record in follow(reader, {0: end}) if record.key in (b"a", b"b")]
            assert pairs(records) == [("a", "49"), ("b", "1")]
            reader.close()

    def test_a_log_that_ends_in_a_hole_is_read_to_its_true_end(
        self, cluster: Cluster, topic: str, faults: Faults
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("b", "1"))
        writer = cluster.writer(transactional_id=topic)
        for _ in range(3):
            writer.begin_transaction()
            writer.append(topic, b"a", b"never").result(20)
            writer.abort_transaction(20)
        writer.close()
        end = settled(cluster, topic)
        assert end == {0: 8}
        assert pairs(read_all(cluster, topic)) == [("a", "1"), ("b", "1")]  # read_all fails unless it reaches the end

    def test_a_delete_outlives_the_value_it_hides_and_is_then_cleaned_away(
        self, cluster: Cluster, topic: str, faults: Faults
    ) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("a", None), ("b", "1"), ("end", "1"))
        faults.compact(topic)
        records = pairs(read_all(cluster, topic))
        assert ("a", "1") not in records
        assert ("a", None) in records
        faults.compact(topic, drop_tombstones=True)
        assert "a" not in dict(pairs(read_all(cluster, topic)))
        assert newest(cluster, topic)["b"] == "1"

    def test_compaction_changes_no_current_value(self, cluster: Cluster, topic: str, faults: Faults) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        put(cluster, topic, *[(f"k{n % 7}", None if n % 5 == 0 else str(n)) for n in range(60)])
        before = {key: value for key, value in newest(cluster, topic).items() if key.startswith("k")}
        faults.compact(topic)
        assert {key: value for key, value in newest(cluster, topic).items() if key.startswith("k")} == before
        faults.compact(topic, drop_tombstones=True)
        assert {key: value for key, value in newest(cluster, topic).items() if key.startswith("k")} == before

    def test_deleted_records_leave_the_end_where_it_was(self, cluster: Cluster, topic: str, faults: Faults) -> None:
        cluster.topics.create(topic, partitions=1, config={"cleanup.policy": "delete"})
        put(cluster, topic, ("a", "1"), ("a", "2"))
        faults.delete_records(topic, 0, 2)
        assert cluster.logs.start_offsets(topic) == cluster.logs.end_offsets(topic) == {0: 2}
        assert read_all(cluster, topic) == []
        put(cluster, topic, ("a", "3"))
        assert pairs(read_all(cluster, topic)) == [("a", "3")]

    def test_records_are_deleted_below_an_offset_where_the_policy_allows_it(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=2, config={"cleanup.policy": "compact,delete"})
        put(cluster, topic, *[(f"k{n}", str(n)) for n in range(20)])
        ends = cluster.logs.end_offsets(topic)
        assert cluster.logs.delete_before(topic, {0: 3, 1: ends[1]}) == {0: 3, 1: ends[1]}
        assert cluster.logs.start_offsets(topic) == {0: 3, 1: ends[1]}
        assert cluster.logs.end_offsets(topic) == ends
        assert {record.partition for record in read_all(cluster, topic)} == {0}
        assert cluster.logs.delete_before(topic, {0: 1}) == {0: 3}
        with pytest.raises(DataLoss):
            cluster.logs.delete_before(topic, {0: ends[0] + 1})
        assert cluster.logs.start_offsets(topic)[0] == 3

    def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(self, cluster: Cluster, topic: str) -> None:
        with pytest.raises(TopicNotFound):
            cluster.logs.delete_before(topic, {0: 1})
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("b", "1"))
        with pytest.raises(ConfigError):
            cluster.logs.delete_before(topic, {0: 1})
        assert cluster.logs.start_offsets(topic) == {0: 0}

    def test_a_log_that_only_grows_and_is_compacted_was_not_cut(
        self, cluster: Cluster, topic: str, faults: Faults
    ) -> None:
        with pytest.raises(TopicNotFound):
            cluster.logs.check_uncut(topic, {0: LogEnd(0, 0)})
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        empty = cluster.logs.stable_ends(topic)
        put(cluster, topic, ("a", "1"), ("b", "1"), ("a", "2"))
        full = cluster.logs.stable_ends(topic)
        assert (empty[0].offset, full[0].offset) == (0, 3)
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"3").result(10)
        opened = cluster.logs.stable_ends(topic)
        assert opened == full
        cluster.logs.check_uncut(topic, opened)
        writer.abort_transaction(10)
        writer.close()
        settled(cluster, topic)
        faults.compact(topic)
        for then in (empty, full, cluster.logs.stable_ends(topic), {0: LogEnd(3, -1)}, {}):
            cluster.logs.check_uncut(topic, then)

    def test_the_first_record_of_a_later_leader_is_found(self, cluster: Cluster, topic: str, faults: Faults) -> None:
        with pytest.raises(TopicNotFound):
            cluster.logs.overwritten(topic, {0: LogEnd(1, 0)})
        cluster.topics.create(topic, partitions=2, config={"cleanup.policy": "compact,delete"})
        writer = cluster.writer(transactional_id=topic)
        writer.begin_transaction()
        writer.append(topic, b"a", b"1").result(10)
        writer.abort_transaction(10)
        writer.close()
        settled(cluster, topic)
        put(cluster, topic, *((f"k{number}", str(number)) for number in range(30)))
        faults.delete_records(topic, 1, 5)
        ends = cluster.logs.stable_ends(topic)
        assert cluster.logs.overwritten(topic, ends) == {}
        assert cluster.logs.overwritten(topic, {p: LogEnd(99, epoch) for p, (_, epoch) in ends.items()}) == {}
        # -1, no epoch, is lower than any epoch. Offsets from the end on are not checked.
        records = read_all(cluster, topic)
        for end in (1, 3, 5, 6, 99):
            below = [record for record in records[::-1] if record.offset < end]
            assert cluster.logs.overwritten(topic, {0: LogEnd(end, -1), 1: LogEnd(end, -1)}) == {
                record.partition: record.offset for record in below
            }
        assert cluster.logs.overwritten(topic, {}) == {}

    def test_a_log_that_begins_behind_where_it_ended_lacks_something(
        self, cluster: Cluster, topic: str, faults: Faults
    ) -> None:
        cluster.topics.create(topic, partitions=1, config={"cleanup.policy": "delete"})
        put(cluster, topic, ("a", "1"), ("b", "1"))
        then = cluster.logs.stable_ends(topic)
        put(cluster, topic, ("a", "2"), ("b", "2"))
        faults.delete_records(topic, 0, 2)
        cluster.logs.check_uncut(topic, then)
        faults.delete_records(topic, 0, 3)
        with pytest.raises(DataLoss):
            cluster.logs.check_uncut(topic, then)

    def test_a_log_that_does_not_reach_where_it_ended_was_cut(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        [end] = cluster.logs.stable_ends(topic).values()
        for epoch in (end.leader_epoch, -1):
            with pytest.raises(DataLoss):
                cluster.logs.check_uncut(topic, {0: LogEnd(end.offset + 1, epoch)})
