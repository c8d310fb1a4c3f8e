"""Topics: creating, describing, changing, deleting, and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from lvq_kafka.core.rights import Operation
from lvq_kafka.errors import Closed, ConfigError, TopicNotFound
from lvq_kafka.ports import Commit, Log, LogEnd
from tests.contract.harness import COMPACTED, Listener, follow, pairs, put, read_all
from tests.waiting import eventually


class TopicsContract:
    def test_a_created_topic_is_described_with_what_it_was_created_with(self, log: Log, topic: str) -> None:
        assert log.create_topic(topic, partitions=3, config=COMPACTED) is True
        found = log.describe_topic(topic)
        assert (found.name, found.partitions, found.replication_factor) == (topic, 3, 1)
        assert found.id

    def test_creating_a_topic_twice_says_so_and_changes_nothing(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        before = log.describe_topic(topic)
        assert log.create_topic(topic, partitions=5, config={"cleanup.policy": "delete"}) is False
        assert log.describe_topic(topic) == before
        assert log.topic_config(topic)["cleanup.policy"] == "compact"

    def test_a_missing_topic_is_named_in_every_answer(self, log: Log, topic: str) -> None:
        for question in (log.describe_topic, log.topic_config, log.start_offsets, log.end_offsets, log.delete_topic):
            with pytest.raises(TopicNotFound, match=topic) as caught:
                question(topic)
            assert caught.value.topic == topic

    def test_settings_come_with_their_defaults(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED | {"segment.ms": "60000"})
        config = log.topic_config(topic)
        assert config["segment.ms"] == "60000"
        assert config["delete.retention.ms"] == "86400000"
        assert config["max.message.bytes"] == "1048588"

    def test_altering_a_setting_leaves_the_others_alone(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED | {"segment.ms": "60000"})
        log.alter_topic_config(topic, {"delete.retention.ms": "5000"})
        config = eventually(
            lambda: found if (found := log.topic_config(topic))["delete.retention.ms"] == "5000" else None
        )
        assert config is not None
        assert config["segment.ms"] == "60000"
        assert config["cleanup.policy"] == "compact"

    def test_an_unknown_setting_is_refused(self, log: Log, topic: str) -> None:
        with pytest.raises(ConfigError):
            log.create_topic(topic, partitions=1, config={"cleanup.polizy": "compact"})
        log.create_topic(topic, partitions=1, config=COMPACTED)
        with pytest.raises(ConfigError):
            log.alter_topic_config(topic, {"cleanup.polizy": "compact"})

    def test_impossible_counts_are_refused(self, log: Log, topic: str) -> None:
        with pytest.raises(ConfigError):
            log.create_topic(topic, partitions=0, config=COMPACTED)
        with pytest.raises(ConfigError):
            log.create_topic(topic, partitions=1, replication_factor=99, config=COMPACTED)
        with pytest.raises(ConfigError):
            log.create_topic("no such name", partitions=1, config=COMPACTED)

    def test_what_could_be_created_can_be_asked_and_is_not_created(self, log: Log, topic: str) -> None:
        log.check_may_create(topic, partitions=3, config=COMPACTED)
        with pytest.raises(TopicNotFound):
            log.describe_topic(topic)
        for options in (
            {"partitions": 0, "config": COMPACTED},
            {"partitions": 1, "replication_factor": 99, "config": COMPACTED},
            {"partitions": 1, "config": {"cleanup.polizy": "compact"}},
        ):
            with pytest.raises(ConfigError):
                log.check_may_create(topic, **options)
        log.create_topic(topic, partitions=1, config=COMPACTED)
        log.check_may_create(topic, partitions=3, config=COMPACTED)
        assert log.describe_topic(topic).partitions == 1

    def test_where_nothing_is_forbidden_everything_is_allowed(self, log: Log, topic: str) -> None:
        with pytest.raises(TopicNotFound):
            log.check_may("Write", topic)
        log.create_topic(topic, partitions=1, config=COMPACTED)
        for operation in get_args(Operation):
            log.check_may(operation, topic)

    def test_partitions_can_be_added_but_not_taken_away(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        identity = log.describe_topic(topic).id
        log.add_partitions(topic, 3)
        found = log.describe_topic(topic)
        assert (found.id, found.partitions) == (identity, 3)
        assert log.end_offsets(topic) == {0: 0, 1: 0, 2: 0}
        for total in (2, 3):
            with pytest.raises(ConfigError):
                log.add_partitions(topic, total)

    def test_who_knows_the_partition_count_is_told_the_ends_of_so_many(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        assert log.end_offsets(topic, partitions=2) == {0: 0, 1: 0}
        log.add_partitions(topic, 3)
        assert log.end_offsets(topic, partitions=2) == {0: 0, 1: 0}
        assert log.end_offsets(topic, partitions=5, stable=True) == {0: 0, 1: 0, 2: 0}
        log.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            log.end_offsets(topic, partitions=3, timeout=5)

    def test_a_topic_created_again_is_another_topic(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        put(log, topic, ("a", "1"))
        before = log.describe_topic(topic)
        log.delete_topic(topic)
        with pytest.raises(TopicNotFound):
            log.describe_topic(topic)
        assert log.create_topic(topic, partitions=1, config=COMPACTED) is True
        assert log.describe_topic(topic).id != before.id
        assert log.end_offsets(topic) == {0: 0}

    def test_offsets_begin_at_zero_and_end_behind_the_last_record(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=2, config=COMPACTED)
        assert log.start_offsets(topic) == log.end_offsets(topic) == {0: 0, 1: 0}
        positions = put(log, topic, *[(f"k{n}", "v") for n in range(10)])
        ends = {p: sum(position.partition == p for position in positions) for p in (0, 1)}
        assert log.end_offsets(topic) == log.end_offsets(topic, stable=True) == ends
        assert log.start_offsets(topic) == {0: 0, 1: 0}

    def test_offsets_at_a_time_are_the_first_that_are_as_young(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        put(log, topic, ("a", "1"))
        [first] = read_all(log, topic)

        def later() -> int:
            put(log, topic, ("a", "2"))
            return read_all(log, topic)[-1].timestamp > first.timestamp

        eventually(later)
        records = read_all(log, topic)
        young = next(record for record in records if record.timestamp > first.timestamp)
        assert log.offsets_at(topic, 0) == {0: 0}
        assert log.offsets_at(topic, first.timestamp) == {0: 0}
        assert log.offsets_at(topic, first.timestamp + 1) == {0: young.offset}
        assert log.offsets_at(topic, records[-1].timestamp + 1) == log.end_offsets(topic)

    def test_there_is_at_least_one_broker(self, log: Log, topic: str) -> None:
        assert log.broker_count() >= 1

    def test_a_commit_text_may_be_as_long_as_the_broker_says(self, log: Log, topic: str) -> None:
        log.create_topic(topic, partitions=1, config=COMPACTED)
        longest = "x" * log.commit_text_limit()
        assert len(longest) >= 4095
        log.commit(f"group-{topic}", topic, {0: Commit(0, longest)})
        assert log.committed(f"group-{topic}", topic)[0].metadata == longest

    def test_a_closed_log_answers_nothing(self, another_log: Log, topic: str) -> None:
        log = another_log
        log.create_topic(topic, partitions=1, config=COMPACTED)
        log.close()
        log.close()
        asked: dict[str, Callable[[], object]] = {
            "describe_topic": lambda: log.describe_topic(topic),
            "topic_config": lambda: log.topic_config(topic),
            "create_topic": lambda: log.create_topic(topic, partitions=1, config=COMPACTED),
            "alter_topic_config": lambda: log.alter_topic_config(topic, {"segment.ms": "60000"}),
            "add_partitions": lambda: log.add_partitions(topic, 2),
            "delete_topic": lambda: log.delete_topic(topic),
            "broker_count": log.broker_count,
            "commit_text_limit": log.commit_text_limit,
            "start_offsets": lambda: log.start_offsets(topic),
            "end_offsets": lambda: log.end_offsets(topic),
            "stable_ends": lambda: log.stable_ends(topic),
            "check_uncut": lambda: log.check_uncut(topic, {0: LogEnd(0, 0)}),
            "overwritten": lambda: log.overwritten(topic, {0: LogEnd(0, 0)}),
            "offsets_at": lambda: log.offsets_at(topic, 0),
            "delete_before": lambda: log.delete_before(topic, {0: 0}),
            "committed": lambda: log.committed("group", topic),
            "check_may_create": lambda: log.check_may_create(topic, partitions=1, config=COMPACTED),
            "check_may": lambda: log.check_may("Write", topic),
            "check_may_commit": lambda: log.check_may_commit("group", topic),
            "commit": lambda: log.commit("group", topic, {0: Commit(0)}),
            "committed_at": lambda: log.committed_at("group"),
            "delete_group": lambda: log.delete_group("group"),
            "member_count": lambda: log.member_count("group"),
            "reader": lambda: log.reader(topic, {0: 0}),
            "member": lambda: log.member("group", topic, Listener()),
            "writer": log.writer,
        }
        for question in asked.values():
            with pytest.raises(Closed):
                question()
        assert asked.keys() == {name for name in vars(Log) if not name.startswith("_")} - {"close"}

    def test_what_a_log_has_opened_outlives_it(self, another_log: Log, topic: str) -> None:
        another_log.create_topic(topic, partitions=1, config=COMPACTED)
        writer, reader = another_log.writer(), another_log.reader(topic, {0: 0})
        another_log.close()
        writer.append(topic, b"a", b"1").result(10)
        assert pairs(follow(reader, {0: 1})) == [("a", "1")]
        reader.close()
        assert writer.close() == 0
