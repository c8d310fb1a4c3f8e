"""The verdict on a topic's settings."""

from __future__ import annotations

import math

import pytest

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.policy import TopicSpec, judge, judge_ttl, lifetime, topic_settings
from lvq_kafka.core.terms import Ttl
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing.memory_state import DEFAULTS


def test_the_settings_we_create_with_pass_our_own_verdict() -> None:
    for spec in (TopicSpec(), TopicSpec(reclaim=True), TopicSpec(replication_factor=3)):
        settings = {"retention.bytes": "-1", "unclean.leader.election.enable": "false", **topic_settings(spec)}
        assert judge(settings, spec, replication_factor=spec.replication_factor or 1) == []


def test_a_topic_with_the_brokers_defaults_is_warned_of_all_that_delays_its_compaction() -> None:
    findings = judge({**DEFAULTS, "cleanup.policy": "compact"}, replication_factor=1)
    assert {finding.setting: (finding.expected, finding.actual) for finding in findings} == {
        "message.timestamp.type": ("LogAppendTime", "CreateTime"),
        "segment.ms": ("3600000", "604800000"),
        "segment.bytes": ("67108864", "1073741824"),
        "min.cleanable.dirty.ratio": ("0.1", "0.5"),
        "max.compaction.lag.ms": ("86400000", "9223372036854775807"),
    }
    assert {finding.severity for finding in findings} == {"warning"}


def test_what_a_verdict_wants_is_what_a_topic_is_created_with() -> None:
    worst = {"cleanup.policy": "delete", "min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "0"}
    worst |= {name: str(2**62) for name in ("segment.ms", "segment.bytes", "max.compaction.lag.ms")}
    wanted = {finding.setting: finding.expected for finding in judge(worst, replication_factor=1)}
    assert wanted.keys() == worst.keys()
    assert wanted.items() <= topic_settings(TopicSpec()).items()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("segment.ms", "60000"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0.0"),
        ("max.compaction.lag.ms", "3600000"),
        ("delete.retention.ms", "172800000"),
    ],
)
def test_what_is_better_than_wanted_is_no_finding(setting: str, value: str) -> None:
    assert judge({"cleanup.policy": "compact", setting: value}, replication_factor=1) == []


def test_what_its_creator_asked_for_is_no_finding() -> None:
    spec = TopicSpec(delete_retention=60.0, config={"segment.ms": "7200000", "min.cleanable.dirty.ratio": "0.4"})
    assert judge(topic_settings(spec), spec, replication_factor=1) == []
    assert [finding.setting for finding in judge(topic_settings(spec), replication_factor=1)] == [
        "segment.ms",
        "min.cleanable.dirty.ratio",
        "delete.retention.ms",
    ]


@pytest.mark.parametrize("spec", [TopicSpec(delete_retention=0.1), TopicSpec(config={"delete.retention.ms": "100"})])
def test_deletes_that_are_kept_for_too_short_a_time_for_any_reader_are_a_finding_whoever_asked_for_it(
    spec: TopicSpec,
) -> None:
    (finding,) = judge(topic_settings(spec), spec, replication_factor=1)
    assert str(finding).startswith("delete.retention.ms is 100, not 10000: a reader may be away this long")


def test_a_topic_that_is_not_compacted_is_an_error() -> None:
    (finding,) = judge({"cleanup.policy": "delete"}, replication_factor=1)
    assert (finding.setting, finding.severity, finding.actual) == ("cleanup.policy", "error", "delete")
    assert "compact" in str(finding)


@pytest.mark.parametrize(
    ("setting", "value", "replicas"),
    [
        ("message.timestamp.type", "CreateTime", 1),
        ("delete.retention.ms", "86399999", 1),
        ("segment.ms", "3600001", 1),
        ("segment.bytes", "67108865", 1),
        ("min.cleanable.dirty.ratio", "0.5", 1),
        ("max.compaction.lag.ms", "86400001", 1),
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


def test_retention_frees_the_disk_of_what_has_expired() -> None:
    settings = topic_settings(TopicSpec(), 60.0)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact,delete", "3660000")
    assert judge(settings, replication_factor=1, lifetime=60.0) == []
    assert judge(settings | {"retention.ms": "-1"}, replication_factor=1, lifetime=60.0) == []
    (early,) = judge(settings | {"retention.ms": "60000"}, replication_factor=1, lifetime=60.0)
    assert (early.setting, early.expected) == ("retention.ms", "3660000")
    first, second = judge(topic_settings(TopicSpec()), replication_factor=1, lifetime=60.0)
    assert str(first).startswith("cleanup.policy is compact, not compact,delete: retention frees the disk")
    assert (second.setting, second.expected) == ("retention.ms", "3660000")


def test_a_ttl_needs_append_times() -> None:
    settings = topic_settings(TopicSpec(), math.inf) | {"message.timestamp.type": "CreateTime"}
    (finding,) = judge(settings, replication_factor=1, lifetime=math.inf)
    assert (finding.setting, finding.severity) == ("message.timestamp.type", "error")


def test_a_topic_keeps_records_for_the_queue_that_needs_them_longest() -> None:
    def queue(name: str, ttl: Ttl | None, topic: str = "t") -> QueueDefinition:
        return QueueDefinition(name=name, topic=topic, key_header="k", ttl=ttl)

    hour, day = queue("a", Ttl(maximum=3600)), queue("b", Ttl(maximum=86400))
    assert lifetime(hour, []) == 3600
    assert lifetime(hour, [hour, day]) == 86400
    assert lifetime(hour, [queue("c", None, topic="other")]) == 3600
    assert lifetime(hour, [queue("c", None)]) == math.inf
    assert lifetime(queue("d", Ttl()), []) == math.inf
    assert lifetime(queue("d", Ttl(never=True)), [hour]) is None
    assert lifetime(queue("d", None), [hour]) is None
    assert [finding.setting for finding in judge_ttl(math.inf)] == ["ttl"]
    assert judge_ttl(60.0) == judge_ttl(None) == []


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
