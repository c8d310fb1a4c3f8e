"""The verdict on a topic's settings."""

from __future__ import annotations

import math

import pytest

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import TopicNeeds, TopicSpec, check_spec, judge, judge_ttl, topic_settings
from lvq_kafka.core.timing.ttl import Ttl
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


def test_the_settings_that_a_verdict_wants_are_those_a_topic_is_created_with() -> None:
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
def test_a_setting_that_is_better_than_wanted_is_no_finding(setting: str, value: str) -> None:
    assert judge({"cleanup.policy": "compact", setting: value}, replication_factor=1) == []


def test_a_setting_that_its_creator_asked_for_is_no_finding() -> None:
    spec = TopicSpec(delete_retention=60.0, config={"segment.ms": "7200000", "min.cleanable.dirty.ratio": "0.4"})
    assert judge(topic_settings(spec), spec, replication_factor=1) == []
    assert [finding.setting for finding in judge(topic_settings(spec), replication_factor=1)] == [
        "segment.ms",
        "min.cleanable.dirty.ratio",
        "delete.retention.ms",
    ]


@pytest.mark.parametrize("config", [{"max.message.bytes": "1048588"}, {}])
def test_a_setting_that_was_asked_for_and_that_no_rule_judges_is_a_finding_where_it_differs(
    config: dict[str, str],
) -> None:
    """It used to be ignored for a topic that was there before."""
    spec = TopicSpec(config={"max.message.bytes": "5242880"})
    (finding,) = judge({"cleanup.policy": "compact", **config}, spec, replication_factor=1)
    found = config.get("max.message.bytes", "no setting of a topic")
    assert str(finding).startswith(f"max.message.bytes is {found}, not 5242880: it was asked for. ")
    assert judge({"cleanup.policy": "compact", **spec.config}, spec, replication_factor=1) == []


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
    settings = topic_settings(TopicSpec(), TopicNeeds(60.0))
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact,delete", "3660000")
    assert judge(settings, replication_factor=1, needs=TopicNeeds(60.0)) == []
    assert judge(settings | {"retention.ms": "-1"}, replication_factor=1, needs=TopicNeeds(60.0)) == []
    (early,) = judge(settings | {"retention.ms": "60000"}, replication_factor=1, needs=TopicNeeds(60.0))
    assert (early.setting, early.expected) == ("retention.ms", "3660000")
    first, second = judge(topic_settings(TopicSpec()), replication_factor=1, needs=TopicNeeds(60.0))
    assert str(first).startswith("cleanup.policy is compact, not compact,delete: without delete, neither expiry")
    assert (second.setting, second.expected) == ("retention.ms", "3660000")


@pytest.mark.parametrize("spec", [TopicSpec(reclaim=True), TopicSpec(config={"cleanup.policy": "compact,delete"})])
def test_where_records_are_reclaimed_age_removes_none(spec: TopicSpec) -> None:
    settings = topic_settings(spec)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact,delete", "-1")
    assert judge(settings, spec, replication_factor=1) == []
    default = settings | {"cleanup.policy": "compact", "retention.ms": "604800000"}
    found = judge(default, spec, replication_factor=1)
    assert [(finding.setting, finding.expected) for finding in found] == [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "-1"),
    ]
    (policy,) = judge(settings | {"cleanup.policy": "compact"}, spec, replication_factor=1)
    assert policy.setting == "cleanup.policy"


def test_a_ttl_needs_append_times() -> None:
    needs = TopicNeeds(math.inf, own=True)
    settings = topic_settings(TopicSpec(), needs) | {"message.timestamp.type": "CreateTime"}
    (finding,) = judge(settings, replication_factor=1, needs=needs)
    assert (finding.setting, finding.severity) == ("message.timestamp.type", "error")


def test_a_topic_keeps_records_for_the_queue_that_needs_them_longest() -> None:
    def queue(name: str, ttl: Ttl | None, topic: str = "t") -> QueueDefinition:
        return QueueDefinition(name=name, topic=topic, key_header="k", ttl=ttl)

    def lifetime(definition: QueueDefinition, others: list[QueueDefinition]) -> float | None:
        return TopicNeeds.of(definition, others).lifetime

    hour, day = queue("a", Ttl(maximum=3600)), queue("b", Ttl(maximum=86400))
    assert lifetime(hour, []) == 3600
    assert lifetime(hour, [hour, day]) == 86400
    assert lifetime(hour, [queue("c", None, topic="other")]) == 3600
    assert lifetime(hour, [queue("c", None)]) == math.inf
    assert lifetime(queue("d", Ttl()), []) == math.inf
    assert lifetime(queue("d", Ttl(never=True)), [hour]) is None
    assert lifetime(queue("d", None), [hour]) is None
    assert [finding.setting for finding in judge_ttl(TopicNeeds(math.inf))] == ["ttl"]
    assert judge_ttl(TopicNeeds(60.0)) == judge_ttl(TopicNeeds()) == []


def delaying(name: str, max_delay: float | None, topic: str = "t") -> QueueDefinition:
    return QueueDefinition(name=name, topic=topic, key_header="k", max_delay=max_delay)


def test_r11_a_topic_is_not_compacted_for_the_longest_delay_of_its_queues_and_a_minute() -> None:
    hour, day, plain = delaying("a", 3600), delaying("b", 86400.0005), delaying("c", None)
    elsewhere = delaying("d", 1e6, topic="other")
    for one, others, delay in ((hour, [], 3600), (hour, [hour, plain, day], 86400), (plain, [hour, elsewhere], 3600)):
        needs = TopicNeeds.of(one, others)
        settings = topic_settings(TopicSpec(), needs)
        assert settings["min.compaction.lag.ms"] == str(60_000 + 1000 * delay)
        assert settings["max.compaction.lag.ms"] == str(86_400_000 + 1000 * delay)
        assert judge(settings, replication_factor=1, needs=needs) == []
    assert topic_settings(TopicSpec(), TopicNeeds.of(plain, [elsewhere])) == topic_settings(TopicSpec())


@pytest.mark.parametrize("lag", ["0", "60000", "3659999"])
def test_r11_compaction_that_may_take_the_value_below_a_scheduled_one_is_an_error(lag: str) -> None:
    needs = TopicNeeds.of(delaying("a", 3600), [])
    settings = topic_settings(TopicSpec(), needs)
    (finding,) = judge(settings | {"min.compaction.lag.ms": lag}, replication_factor=1, needs=needs)
    assert (finding.setting, finding.expected, finding.severity) == ("min.compaction.lag.ms", "3660000", "error")
    assert str(finding).startswith(f"min.compaction.lag.ms is {lag}, not 3660000: else compaction removes the value")
    assert "its key goes dark" in str(finding)
    assert judge(settings | {"min.compaction.lag.ms": "3660001"}, replication_factor=1, needs=needs) == []


def test_r11_the_longest_time_until_compaction_is_not_below_the_shortest() -> None:
    """Brokers refuse that, so both are set right at once."""
    needs = TopicNeeds.of(delaying("a", 3600), [])
    found = judge(topic_settings(TopicSpec()) | {"max.compaction.lag.ms": "3600000"}, replication_factor=1, needs=needs)
    assert {finding.setting: finding.expected for finding in found} == {
        "min.compaction.lag.ms": "3660000",
        "max.compaction.lag.ms": "90000000",
    }
    enough = topic_settings(TopicSpec(), needs) | {"max.compaction.lag.ms": "3660000"}
    assert judge(enough, replication_factor=1, needs=needs) == []


def test_r11_a_queue_without_delays_is_not_broken_by_what_another_one_on_its_topic_needs() -> None:
    needs = TopicNeeds.of(delaying("c", None), [delaying("a", 3600)])
    settings = topic_settings(TopicSpec()) | {"message.timestamp.type": "CreateTime"}
    found = judge(settings, replication_factor=1, needs=needs)
    assert {finding.setting for finding in found} == {"message.timestamp.type", "min.compaction.lag.ms"}
    assert {finding.severity for finding in found} == {"warning"}


def test_r11_delays_need_append_times() -> None:
    needs = TopicNeeds.of(delaying("a", 3600), [])
    settings = topic_settings(TopicSpec(), needs) | {"message.timestamp.type": "CreateTime"}
    (finding,) = judge(settings, replication_factor=1, needs=needs)
    assert (finding.setting, finding.severity) == ("message.timestamp.type", "error")


@pytest.mark.parametrize("setting", ["min.compaction.lag.ms", "max.compaction.lag.ms"])
def test_r11_settings_that_exclude_the_delay_are_named_with_it(setting: str) -> None:
    needs = TopicNeeds.of(delaying("a", 3600), [])
    with pytest.raises(ConfigError, match=rf"{setting}=3659999 and max_delay=3600 exclude.*at least 3660000") as caught:
        check_spec(TopicSpec(config={setting: "3659999"}), needs)
    assert caught.value.options == (setting, "max_delay")
    check_spec(TopicSpec(config={setting: "3660000"}), needs)
    spec = TopicSpec(config={setting: "3659999"})
    found = judge(topic_settings(spec, needs), spec, replication_factor=1, needs=needs)
    assert [(finding.setting, finding.expected) for finding in found] == [(setting, "3660000")]
    check_spec(TopicSpec(config={setting: "0"}), TopicNeeds())


def test_one_replica_needs_no_second_in_sync() -> None:
    assert judge({"cleanup.policy": "compact", "min.insync.replicas": "1"}, replication_factor=1) == []


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": 0},
        {"replication_factor": 0},
        {"delete_retention": -1.0},
    ],
)
def test_a_spec_that_cannot_be_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        TopicSpec(**options)  # type: ignore[arg-type]


def test_own_settings_go_over_ours() -> None:
    settings = topic_settings(TopicSpec(config={"segment.ms": "1"}, delete_retention=7.5))
    assert settings["segment.ms"] == "1"
    assert settings["delete.retention.ms"] == "7500"
