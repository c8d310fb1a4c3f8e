"""The contract of topics: creation, description, changes, deletion and offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from lvq_kafka.cluster import Cluster, Commit, ConsumerGroups, LogEnd, Logs, Topics
from lvq_kafka.core.facts import Operation
from lvq_kafka.errors import Closed, ConfigError, TopicNotFound
from tests.contract.harness import COMPACTED, Listener, follow, pairs, put, read_all
from tests.waiting import eventually


class TopicsContract:
    def test_a_created_topic_is_described_with_what_it_was_created_with(self, cluster: Cluster, topic: str) -> None:
        assert cluster.topics.create(topic, partitions=3, config=COMPACTED) is True
        found = cluster.topics.describe(topic)
        assert (found.name, found.partitions, found.replication_factor) == (topic, 3, 1)
        assert found.id

    def test_creating_a_topic_twice_says_so_and_changes_nothing(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        before = cluster.topics.describe(topic)
        assert cluster.topics.create(topic, partitions=5, config={"cleanup.policy": "delete"}) is False
        assert cluster.topics.describe(topic) == before
        assert cluster.topics.config(topic)["cleanup.policy"] == "compact"

    def test_a_missing_topic_is_named_in_every_answer(self, cluster: Cluster, topic: str) -> None:
        for question in (
            cluster.topics.describe,
            cluster.topics.config,
            cluster.logs.start_offsets,
            cluster.logs.end_offsets,
            cluster.topics.delete,
        ):
            with pytest.raises(TopicNotFound, match=topic) as caught:
                question(topic)
            assert caught.value.topic == topic

    def test_settings_come_with_their_defaults(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"segment.ms": "60000"})
        config = cluster.topics.config(topic)
        assert config["segment.ms"] == "60000"
        assert config["delete.retention.ms"] == "86400000"
        assert config["max.message.bytes"] == "1048588"

    def test_altering_a_setting_leaves_the_others_alone(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED | {"segment.ms": "60000"})
        cluster.topics.alter_config(topic, {"delete.retention.ms": "5000"})
        config = eventually(
            lambda: found if (found := cluster.topics.config(topic))["delete.retention.ms"] == "5000" else None
        )
        assert config is not None
        assert config["segment.ms"] == "60000"
        assert config["cleanup.policy"] == "compact"

    def test_an_unknown_setting_is_refused(self, cluster: Cluster, topic: str) -> None:
        with pytest.raises(ConfigError):
            cluster.topics.create(topic, partitions=1, config={"cleanup.polizy": "compact"})
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        with pytest.raises(ConfigError):
            cluster.topics.alter_config(topic, {"cleanup.polizy": "compact"})

    def test_impossible_counts_are_refused(self, cluster: Cluster, topic: str) -> None:
        with pytest.raises(ConfigError):
            cluster.topics.create(topic, partitions=0, config=COMPACTED)
        with pytest.raises(ConfigError):
            cluster.topics.create(topic, partitions=1, replication_factor=99, config=COMPACTED)
        with pytest.raises(ConfigError):
            cluster.topics.create("no such name", partitions=1, config=COMPACTED)

    def test_checking_that_a_topic_may_be_created_creates_nothing(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.check_may_create(topic, partitions=3, config=COMPACTED)
        with pytest.raises(TopicNotFound):
            cluster.topics.describe(topic)
        for options in (
            {"partitions": 0, "config": COMPACTED},
            {"partitions": 1, "replication_factor": 99, "config": COMPACTED},
            {"partitions": 1, "config": {"cleanup.polizy": "compact"}},
        ):
            with pytest.raises(ConfigError):
                cluster.topics.check_may_create(topic, **options)
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.topics.check_may_create(topic, partitions=3, config=COMPACTED)
        assert cluster.topics.describe(topic).partitions == 1

    def test_where_nothing_is_forbidden_everything_is_allowed(self, cluster: Cluster, topic: str) -> None:
        with pytest.raises(TopicNotFound):
            cluster.topics.check_may("Write", topic)
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        for operation in get_args(Operation):
            cluster.topics.check_may(operation, topic)

    def test_partitions_can_be_added_but_not_taken_away(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        identity = cluster.topics.describe(topic).id
        cluster.topics.add_partitions(topic, 3)
        found = cluster.topics.describe(topic)
        assert (found.id, found.partitions) == (identity, 3)
        assert cluster.logs.end_offsets(topic) == {0: 0, 1: 0, 2: 0}
        for total in (2, 3):
            with pytest.raises(ConfigError):
                cluster.topics.add_partitions(topic, total)

    def test_end_offsets_cover_at_most_the_given_number_of_partitions(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        assert cluster.logs.end_offsets(topic, partitions=2) == {0: 0, 1: 0}
        cluster.topics.add_partitions(topic, 3)
        assert cluster.logs.end_offsets(topic, partitions=2) == {0: 0, 1: 0}
        assert cluster.logs.end_offsets(topic, partitions=5, stable=True) == {0: 0, 1: 0, 2: 0}
        cluster.topics.delete(topic)
        with pytest.raises(TopicNotFound):
            cluster.logs.end_offsets(topic, partitions=3, timeout=5)

    def test_a_topic_created_again_is_another_topic(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        before = cluster.topics.describe(topic)
        cluster.topics.delete(topic)
        with pytest.raises(TopicNotFound):
            cluster.topics.describe(topic)
        assert cluster.topics.create(topic, partitions=1, config=COMPACTED) is True
        assert cluster.topics.describe(topic).id != before.id
        assert cluster.logs.end_offsets(topic) == {0: 0}

    def test_offsets_begin_at_zero_and_end_behind_the_last_record(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=2, config=COMPACTED)
        assert cluster.logs.start_offsets(topic) == cluster.logs.end_offsets(topic) == {0: 0, 1: 0}
        positions = put(cluster, topic, *[(f"k{n}", "v") for n in range(10)])
        ends = {p: sum(position.partition == p for position in positions) for p in (0, 1)}
        assert cluster.logs.end_offsets(topic) == cluster.logs.end_offsets(topic, stable=True) == ends
        assert cluster.logs.start_offsets(topic) == {0: 0, 1: 0}

    def test_offsets_at_a_time_are_the_first_that_are_as_young(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        put(cluster, topic, ("a", "1"))
        [first] = read_all(cluster, topic)

        def later() -> int:
            put(cluster, topic, ("a", "2"))
            return read_all(cluster, topic)[-1].timestamp > first.timestamp

        eventually(later)
        records = read_all(cluster, topic)
        young = next(record for record in records if record.timestamp > first.timestamp)
        assert cluster.logs.offsets_at(topic, 0) == {0: 0}
        assert cluster.logs.offsets_at(topic, first.timestamp) == {0: 0}
        assert cluster.logs.offsets_at(topic, first.timestamp + 1) == {0: young.offset}
        assert cluster.logs.offsets_at(topic, records[-1].timestamp + 1) == cluster.logs.end_offsets(topic)

    def test_there_is_at_least_one_broker(self, cluster: Cluster, topic: str) -> None:
        assert cluster.broker_count() >= 1

    def test_its_time_is_about_that_of_its_appends(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        before = cluster.now()
        put(cluster, topic, ("a", "1"))
        (record,) = read_all(cluster, topic)
        assert before - 60 < record.timestamp / 1000 < cluster.now() + 60

    def test_a_commit_text_may_be_as_long_as_the_broker_says(self, cluster: Cluster, topic: str) -> None:
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        longest = "x" * cluster.groups.commit_text_limit()
        assert len(longest) >= 4095
        cluster.groups.commit(f"group-{topic}", topic, {0: Commit(0, longest)})
        assert cluster.groups.committed(f"group-{topic}", topic)[0].metadata == longest

    def test_a_closed_log_answers_nothing(self, another_cluster: Cluster, topic: str) -> None:
        cluster = another_cluster
        cluster.topics.create(topic, partitions=1, config=COMPACTED)
        cluster.close()
        cluster.close()
        asked: dict[str, Callable[[], object]] = {
            "topics.describe": lambda: cluster.topics.describe(topic),
            "topics.config": lambda: cluster.topics.config(topic),
            "topics.create": lambda: cluster.topics.create(topic, partitions=1, config=COMPACTED),
            "topics.alter_config": lambda: cluster.topics.alter_config(topic, {"segment.ms": "60000"}),
            "topics.add_partitions": lambda: cluster.topics.add_partitions(topic, 2),
            "topics.delete": lambda: cluster.topics.delete(topic),
            "broker_count": cluster.broker_count,
            "groups.commit_text_limit": cluster.groups.commit_text_limit,
            "groups.retention": cluster.groups.retention,
            "logs.start_offsets": lambda: cluster.logs.start_offsets(topic),
            "logs.end_offsets": lambda: cluster.logs.end_offsets(topic),
            "logs.stable_ends": lambda: cluster.logs.stable_ends(topic),
            "logs.check_uncut": lambda: cluster.logs.check_uncut(topic, {0: LogEnd(0, 0)}),
            "logs.overwritten": lambda: cluster.logs.overwritten(topic, {0: LogEnd(0, 0)}),
            "logs.offsets_at": lambda: cluster.logs.offsets_at(topic, 0),
            "logs.delete_before": lambda: cluster.logs.delete_before(topic, {0: 0}),
            "groups.committed": lambda: cluster.groups.committed("group", topic),
            "topics.check_may_create": lambda: cluster.topics.check_may_create(topic, partitions=1, config=COMPACTED),
            "topics.check_may": lambda: cluster.topics.check_may("Write", topic),
            "groups.check_may_commit": lambda: cluster.groups.check_may_commit("group", topic),
            "groups.commit": lambda: cluster.groups.commit("group", topic, {0: Commit(0)}),
            "groups.committed_at": lambda: cluster.groups.committed_at("group"),
            "groups.delete": lambda: cluster.groups.delete("group"),
            "groups.assigned": lambda: cluster.groups.assigned("group", topic, "member"),
            "groups.member_count": lambda: cluster.groups.member_count("group"),
            "reader": lambda: cluster.reader(topic, {0: 0}),
            "member": lambda: cluster.member("group", topic, Listener()),
            "writer": cluster.writer,
        }
        for question in asked.values():
            with pytest.raises(Closed):
                question()
        assert asked.keys() == {
            *(name for name in vars(Cluster) if not name.startswith("_") and name not in ("close", "now")),
            *(
                f"{part.__name__.removeprefix('Consumer').lower()}.{name}"
                for part in (Topics, Logs, ConsumerGroups)
                for name in vars(part)
                if name[0] != "_"
            ),
        }

    def test_readers_and_writers_outlive_the_cluster_that_opened_them(
        self, another_cluster: Cluster, topic: str
    ) -> None:
        another_cluster.topics.create(topic, partitions=1, config=COMPACTED)
        writer, reader = another_cluster.writer(), another_cluster.reader(topic, {0: 0})
        another_cluster.close()
        writer.append(topic, b"a", b"1").result(10)
        assert pairs(follow(reader, {0: 1})) == [("a", "1")]
        reader.close()
        assert writer.close() == 0
