"""Topic settings that a last value queue needs and why, and checks of existing topics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lvq_kafka.core.columns import Order
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.validation import at_least_one, delays, instance
from lvq_kafka.errors import ConfigError

__all__ = [
    "DELETE_RETENTION",
    "Finding",
    "TopicSpec",
    "delete_retention",
    "judge",
    "judge_order",
    "judge_size",
    "judge_ttl",
    "lifetime",
    "reason_for",
    "topic_settings",
]

DELETE_RETENTION = 86_400.0
"""Kafka's default for ``delete.retention.ms``, in seconds: a day.

It applies to topics where nobody has set how long deletes are kept.
"""

_SKEW = 3600.0
"""Seconds for which a topic keeps records after they have expired, since clocks differ."""

_SHORTEST_DELETE_RETENTION = 10_000  # ms
"""The shortest retention of deletes that readers can work with.

They look at the log's end every few seconds, and a topic takes seconds to read; below this they start over.
"""

_REASONS = {
    "cleanup.policy": "compaction keeps the newest record of each key forever",
    "cleanup.policy=compact,delete": "retention frees the disk of what has expired, and compaction does not",
    "message.timestamp.type": "arrival time must not depend on producers' clocks",
    "segment.ms": "the active segment is never compacted, so a quiet topic must roll it",
    "segment.bytes": "the active segment is never compacted, so a small busy topic must roll it early",
    "min.cleanable.dirty.ratio": "a tenth of new records is enough to compact: readers start on short logs",
    "min.compaction.lag.ms": "a reader has a minute to read a record before compaction may take it",
    "max.compaction.lag.ms": "every superseded record is removed within a day, however quiet the topic",
    "delete.retention.ms": "a reader may be away this long; one that was away for longer reads everything again",
    "min.insync.replicas": "an acknowledged message survives the loss of a broker",
    "unclean.leader.election.enable": "a replica that lags must not become the truth",
    "retention.ms": "age alone must not remove a current value",
    "retention.bytes": "size alone must not remove a current value",
    "ttl": "nothing frees the disk of an expired value until a newer one of its key replaces it",
    "order": "compaction removes the first record of a key, and with it the key's place",
    "partitions": "an existing topic keeps its partition count, since changing it would move keys",
    "replication_factor": "an existing topic keeps its replicas; kafka-reassign-partitions changes them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The settings to create a queue's topic with, or to compare an existing one with.

    Args:
        partitions: with one, order is total; with more, it is per partition. None means one for a new topic.
        replication_factor: None means the cluster's default.
        delete_retention: seconds for which a delete stays readable; a reader away for longer has to start over.
        reclaim: use the policy ``compact,delete``, so that DeleteRecords can remove a consumed prefix.
        config: topic settings, by Kafka's names, that override those chosen here.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    delete_retention: float = DELETE_RETENTION
    reclaim: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("partitions", "replication_factor"):
            if (value := getattr(self, option)) is not None:
                at_least_one(**{option: value})
        delays(delete_retention=self.delete_retention)
        instance("config", self.config, Mapping, 'For example config={"segment.ms": "600000"}.')
        given: Mapping[Any, Any] = self.config
        for name, setting in given.items():
            if not isinstance(name, str) or not isinstance(setting, str):
                raise ConfigError(
                    f"The setting {name!r} of a topic is {setting!r}, not text.",
                    options=[str(name)],
                    hint='Write numbers as text as well: config={"segment.ms": "600000"}.',
                )
        policy = self.config.get("cleanup.policy")
        if policy is not None and "compact" not in policy:
            raise ConfigError(
                f"cleanup.policy={policy} and a last value queue cannot be combined: {_REASONS['cleanup.policy']}.",
                options=["cleanup.policy", "key_header"],
            )

    @property
    def new_partitions(self) -> int:
        """The partition count of a new topic."""
        return self.partitions or 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that does not suit a last value queue.

    An ``error`` breaks promises, a ``warning`` bends some. The setting is one of the topic's, ``partitions``,
    ``replication_factor``, or ``order`` or ``ttl``, which are the queue's own.
    """

    setting: str
    expected: str
    actual: str
    severity: Literal["error", "warning"]

    @property
    def reason(self) -> str:
        """The reason why the setting matters."""
        return _REASONS.get(f"{self.setting}={self.expected}") or _REASONS[self.setting]

    def __str__(self) -> str:
        return f"{self.setting} is {self.actual}, not {self.expected}: {self.reason}"


def lifetime(definition: QueueDefinition, others: Iterable[QueueDefinition]) -> float | None:
    """Return the seconds after which a topic need not keep a message of a queue.

    None if the queue's messages never expire; infinity if they do, but some may live on, in this queue or in another
    one on the topic.

    Args:
        others: declared queues, on any topic.
    """
    if not definition.expires:
        return None
    ttls = [other.ttl for other in (definition, *others) if other.topic == definition.topic]
    return max(math.inf if ttl is None or ttl.maximum is None else ttl.maximum for ttl in ttls)


def topic_settings(spec: TopicSpec, lifetime: float | None = None) -> dict[str, str]:
    """Return the settings to create the topic with. See `lifetime`."""
    retention = "-1" if lifetime is None or lifetime == math.inf else str(math.ceil(1000 * (lifetime + _SKEW)))
    removes = spec.reclaim or retention != "-1"
    settings = {
        "cleanup.policy": "compact,delete" if removes else "compact",
        "message.timestamp.type": "LogAppendTime",
        "segment.ms": "3600000",
        "segment.bytes": "67108864",
        "min.cleanable.dirty.ratio": "0.1",
        "min.compaction.lag.ms": "60000",
        "max.compaction.lag.ms": "86400000",
        "delete.retention.ms": str(round(spec.delete_retention * 1000)),
    }
    if removes:
        settings["retention.ms"] = retention
    if (spec.replication_factor or 0) >= 3:
        settings["min.insync.replicas"] = "2"
    return {**settings, **spec.config}


def delete_retention(config: Mapping[str, str]) -> float:
    """Return the seconds for which a topic with these settings keeps deletes."""
    try:
        return float(config["delete.retention.ms"]) / 1000
    except (KeyError, ValueError):
        return DELETE_RETENTION


def judge(
    config: Mapping[str, str],
    spec: TopicSpec | None = None,
    *,
    replication_factor: int,
    lifetime: float | None = None,
) -> list[Finding]:
    """Compare a topic's settings with those for a new one.

    Settings that are not visible are skipped. See `lifetime`.
    """
    wanted = topic_settings(spec or TopicSpec(), lifetime)
    retention = wanted.get("retention.ms", "-1")
    findings: list[Finding] = []

    def expect(setting: str, expected: str, good: bool, severity: Literal["error", "warning"] = "warning") -> None:
        if setting in config and not good:
            findings.append(Finding(setting, expected, config[setting], severity))

    def at_most(setting: str) -> None:
        expect(setting, wanted[setting], _number(config, setting) <= _number(wanted, setting))

    def at_least(setting: str, least: str) -> None:
        expect(setting, least, _number(config, setting) >= float(least))

    policy = {part.strip() for part in config.get("cleanup.policy", "").split(",")}
    expect("cleanup.policy", "compact", "compact" in policy, "error")
    if "delete" in policy and "compact" in policy:
        expect("retention.ms", retention, _retains(config.get("retention.ms"), retention))
        expect("retention.bytes", "-1", config.get("retention.bytes") == "-1")
    elif "compact" in policy and retention != "-1":
        findings.append(Finding("cleanup.policy", "compact,delete", config["cleanup.policy"], "warning"))
        findings.append(Finding("retention.ms", retention, config.get("retention.ms", ""), "warning"))
    append_time = config.get("message.timestamp.type") == "LogAppendTime"
    expect("message.timestamp.type", "LogAppendTime", append_time, "warning" if lifetime is None else "error")
    for setting in ("segment.ms", "segment.bytes", "min.cleanable.dirty.ratio", "max.compaction.lag.ms"):
        at_most(setting)
    at_least("delete.retention.ms", str(max(int(wanted["delete.retention.ms"]), _SHORTEST_DELETE_RETENTION)))
    expect("unclean.leader.election.enable", "false", config.get("unclean.leader.election.enable") == "false")
    if replication_factor >= 3:
        at_least("min.insync.replicas", "2")
    return findings


def judge_size(spec: TopicSpec, *, partitions: int, replication_factor: int) -> list[Finding]:
    """Compare a topic's size with what was asked for, if anything. Settings cannot change it."""
    asked = {
        "partitions": (spec.partitions, partitions),
        "replication_factor": (spec.replication_factor, replication_factor),
    }
    return [
        Finding(name, str(wanted), str(actual), "warning")
        for name, (wanted, actual) in asked.items()
        if wanted not in (None, actual)
    ]


def judge_order(order: Order) -> list[Finding]:
    """Return a finding if a compacted topic does not keep this order."""
    return [Finding("order", "tail", order, "warning")] if order == "in-place" else []


def judge_ttl(lifetime: float | None) -> list[Finding]:
    """Return a finding if messages expire, but none is removed. See `lifetime`."""
    return [Finding("ttl", "a maximum", "without one", "warning")] if lifetime == math.inf else []


def _retains(actual: str | None, wanted: str) -> bool:
    """Return whether a topic keeps records for as long as wanted; -1 stands for no limit."""
    if wanted == "-1" or actual in (None, "-1"):
        return actual == "-1"
    return float(actual) >= float(wanted)


def _number(settings: Mapping[str, str], setting: str) -> float:
    try:
        return float(settings[setting])
    except (KeyError, ValueError):
        return 0.0


def reason_for(setting: str) -> str:
    """Return the reason why a last value queue needs this topic setting."""
    return _REASONS[setting]
