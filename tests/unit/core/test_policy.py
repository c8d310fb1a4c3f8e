"""The verdict on a topic's settings."""

from __future__ import annotations

import pytest

from lvq_kafka.core.policy import TopicSpec, judge, topic_settings
from lvq_kafka.errors import ConfigError


def test_the_settings_we_create_with_pass_our_own_verdict() -> None:
    for spec in (TopicSpec(), TopicSpec(reclaim=True), TopicSpec(replication_factor=3)):
        settings = {"retention.bytes": "-1", "unclean.leader.election.enable": "false", **topic_settings(spec)}
        assert judge(settings, replication_factor=spec.replication_factor or 1) == []


def test_a_topic_that_is_not_compacted_is_an_error() -> None:
    (finding,) = judge({"cleanup.policy": "delete"}, replication_factor=1)
    assert (finding.setting, finding.severity, finding.actual) == ("cleanup.policy", "error", "delete")
    assert "compact" in str(finding)


@pytest.mark.parametrize(
    ("setting", "value", "replicas"),
    [
        ("message.timestamp.type", "CreateTime", 1),
        ("delete.retention.ms", "1000", 1),
        ("unclean.leader.election.enable", "true", 1),
        ("min.insync.replicas", "1", 3),
    ],
)
def test_softer_differences_are_warnings(setting: str, value: str, replicas: int) -> None:
    (finding,) = judge({"cleanup.policy": "compact", setting: value}, replication_factor=replicas)
    assert (finding.setting, finding.severity) == (setting, "warning")


def test_retention_counts_where_age_deletes_too() -> None:
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "604800000", "retention.bytes": "-1"}
    assert [finding.setting for finding in judge(settings, replication_factor=1)] == ["retention.ms"]
    assert judge(settings | {"cleanup.policy": "compact"}, replication_factor=1) == []


def test_one_replica_needs_no_second_in_sync() -> None:
    assert judge({"cleanup.policy": "compact", "min.insync.replicas": "1"}, replication_factor=1) == []


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": 0},
        {"replication_factor": 0},
        {"delete_retention": -1.0},
        {"config": {"cleanup.policy": "delete"}},
    ],
)
def test_a_spec_that_cannot_be_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        TopicSpec(**options)  # type: ignore[arg-type]


def test_own_settings_go_over_ours() -> None:
    settings = topic_settings(TopicSpec(config={"segment.ms": "1"}, delete_retention=7.5))
    assert settings["segment.ms"] == "1"
    assert settings["delete.retention.ms"] == "7500"
