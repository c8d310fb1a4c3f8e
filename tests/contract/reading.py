"""The contract of readers: positions, waiting and errors."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import Closed, DataLoss, TopicNotFound
from tests.contract.harness import COMPACTED, Faults, follow, pairs, polls_without_error, put, stays_at
from tests.waiting import eventually


class ReadingContract:
    def test_an_empty_topic_is_at_its_end_at_once(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        reader = cluster.reader(topic, {0: 0, 1: 0})
        assert follow(reader, {0: 0, 1: 0}) == []
        assert stays_at(reader, {0: 0, 1: 0})
        reader.close()

    def test_a_reader_placed_at_the_end_reports_that_position_and_waits(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("a", "2"))
        reader = cluster.reader(topic, {0: 2})
        assert follow(reader, {0: 2}) == []
        assert stays_at(reader, {0: 2})
        put(cluster, topic, ("a", "3"))
        assert pairs(follow(reader, {0: 3})) == [("a", "3")]
        reader.close()

    def test_a_reader_starts_at_its_position(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, *[("a", str(n)) for n in range(5)])
        reader = cluster.reader(topic, {0: 3})
        assert pairs(follow(reader, {0: 5})) == [("a", "3"), ("a", "4")]
        reader.close()

    def test_a_reader_reads_only_the_partitions_it_was_given(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        put(cluster, topic, *[(f"k{n}", "v") for n in range(30)])
        end = cluster.logs.end_offsets(topic)[1]
        reader = cluster.reader(topic, {1: 0})
        records = follow(reader, {1: end})
        assert len(records) == end
        assert {record.partition for record in records} == {1}
        assert stays_at(reader, {1: end})
        reader.close()

    def test_a_reader_without_headers_sees_none_and_all_the_rest(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        with closing(cluster.writer()) as writer:
            writer.append(topic, b"a", b"1", [("ticker", b"a")]).result(10)
        put(cluster, topic, ("b", None))
        with closing(cluster.reader(topic, {0: 0}, headers=False)) as reader:
            records = follow(reader, {0: 2})
        assert [(record.key, record.value, record.headers) for record in records] == [
            (b"a", b"1", ()),
            (b"b", None, ()),
        ]

    def test_assigning_a_partition_again_starts_it_anew(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"), ("a", "2"))
        reader = cluster.reader(topic, {0: 0})
        follow(reader, {0: 2})
        reader.assign({0: 1})
        assert pairs(follow(reader, {0: 2})) == [("a", "2")]
        reader.close()

    def test_partitions_that_were_added_can_be_assigned(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        reader = cluster.reader(topic, {0: 0})
        follow(reader, {0: 1})
        cluster.topics.add_partitions(topic, 4)
        put(cluster, topic, *[(f"k{n}", "v") for n in range(20)])
        ends = cluster.logs.end_offsets(topic)
        reader.assign({1: 0, 2: 0, 3: 0})
        assert len(follow(reader, ends)) == 20
        reader.close()

    def test_a_reader_may_go_from_one_partition_to_the_next(self, cluster: Cluster, topic: str) -> None:
        """Records that were fetched in advance do not come once their partition is unassigned."""
        cluster.topics.create(topic, partitions=3, config=COMPACTED)
        put(cluster, topic, *[(f"k{n}", str(n)) for n in range(300)])
        ends = cluster.logs.end_offsets(topic)
        reader = cluster.reader(topic, {0: 0, 1: 0})
        reader.poll(5)
        reader.unassign([0, 1])
        reader.assign({2: 0})
        found = follow(reader, {2: ends[2]})
        assert [(record.partition, record.offset) for record in found] == [(2, offset) for offset in range(ends[2])]
        reader.unassign([2, 7])
        put(cluster, topic, *[(f"k{n}", "later") for n in range(30)])
        assert not reader.poll(0.3).positions
        reader.assign({0: 1})
        found = follow(reader, {0: cluster.logs.end_offsets(topic)[0]})
        assert {record.partition for record in found} == {0}
        assert found[0].offset == 1
        reader.close()

    def test_a_poll_wakes_up_for_a_record(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        reader = cluster.reader(topic, {0: 0})
        follow(reader, {0: 0})
        fetched: list[Fetch] = []
        waiting = threading.Thread(target=lambda: fetched.append(reader.poll(60)))
        waiting.start()
        put(cluster, topic, ("a", "1"))
        waiting.join(10)
        assert not waiting.is_alive()
        assert pairs(fetched[0].batch) == [("a", "1")]
        reader.close()

    def test_a_position_below_the_start_is_data_loss(self, cluster: Cluster, topic: str, faults: Faults) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"cleanup.policy": "delete"})
        put(cluster, topic, *[("a", str(n)) for n in range(5)])
        faults.delete_records(topic, 0, 3)
        assert cluster.logs.start_offsets(topic) == {0: 3}
        assert cluster.logs.end_offsets(topic) == {0: 5}
        late = cluster.reader(topic, {0: 1})
        with pytest.raises(DataLoss):
            eventually(lambda: polls_without_error(late), 30)
        late.close()
        reader = cluster.reader(topic, {0: 3})
        assert pairs(follow(reader, {0: 5})) == [("a", "3"), ("a", "4")]
        reader.close()

    def test_a_position_beyond_the_end_is_data_loss(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        reader = cluster.reader(topic, {0: 7})
        with pytest.raises(DataLoss):
            eventually(lambda: polls_without_error(reader), 30)
        reader.close()

    def test_a_reader_of_a_missing_topic_says_so(self, cluster: Cluster, topic: str) -> None:
        reader = cluster.reader(topic, {0: 0})
        with pytest.raises(TopicNotFound, match=topic):
            eventually(lambda: polls_without_error(reader), 30)
        reader.close()

    def test_a_reader_learns_that_its_topic_is_deleted(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        reader = cluster.reader(topic, {0: 0})
        follow(reader, {0: 1})
        cluster.topics.delete(topic)
        with pytest.raises(TopicNotFound, match=topic):
            eventually(lambda: polls_without_error(reader), 30)
        reader.close()

    def test_a_closed_reader_refuses_to_poll(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        reader = cluster.reader(topic, {0: 0})
        reader.close()
        reader.close()
        with pytest.raises(Closed):
            reader.poll(0)
