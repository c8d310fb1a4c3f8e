"""Topics of queues, created by users with few rights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lvq_kafka.cluster import TopicDescription
from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.declared.queue_topic import check_topic, ensure_topic
from lvq_kafka.errors import Unauthorized
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_admin import MemoryTopics


class Replicated(MemoryTopics):
    """The topics of a cluster with three replicas by default."""

    def describe(self, topic: str, **options: Any) -> TopicDescription:
        return replace(super().describe(topic, **options), replication_factor=3)


@pytest.fixture
def replicating() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.topics = Replicated(cluster._state)
    return cluster


def test_a_topic_of_three_replicas_needs_two_of_them_for_an_acknowledgement(
    replicating: MemoryCluster,
) -> None:
    assert ensure_topic(replicating, "t", TopicSpec())
    assert replicating.topics.config("t")["min.insync.replicas"] == "2"


def test_a_user_who_may_create_and_not_alter_gets_a_topic_and_a_warning(
    replicating: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    replicating.fail_next("topics.alter_config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    assert ensure_topic(replicating, "t", TopicSpec())
    findings, _, _ = check_topic(replicating, "t", TopicSpec(), "raise")
    assert "min.insync.replicas" in [finding.setting for finding in findings]
    assert "min.insync.replicas is 1, not 2" in caplog.text


def test_partitions_and_replicas_other_than_asked_for_are_told_and_left_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = MemoryCluster()
    ensure_topic(cluster, "t", TopicSpec(partitions=2))
    asked = TopicSpec(partitions=3, replication_factor=2, config={"segment.ms": "1000"})
    left, mended, _ = check_topic(cluster, "t", asked, "reconcile")
    assert [(one.setting, one.expected, one.actual) for one in left] == [
        ("partitions", "3", "2"),
        ("replication_factor", "2", "1"),
    ]
    assert [one.setting for one in mended] == ["segment.ms"]
    assert "topic t: partitions is 2, not 3" in caplog.text
    assert cluster.topics.describe("t").partitions == 2
    assert check_topic(cluster, "t", TopicSpec(), "raise")[0] == []
    cluster.fail_next("topics.config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    findings, _, unchecked = check_topic(cluster, "t", TopicSpec(partitions=3), "raise")
    assert [one.setting for one in findings] == ["partitions"]
    assert unchecked
