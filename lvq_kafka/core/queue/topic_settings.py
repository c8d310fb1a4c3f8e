"""Topic settings that a last value queue needs and why, and checks of existing topics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import at_least_one, delays, instance
from lvq_kafka.core.text.wording import Spelling, worded
from lvq_kafka.errors import ConfigError

__all__ = [
    "DELETE_RETENTION",
    "NO_NEEDS",
    "Finding",
    "TopicNeeds",
    "TopicSpec",
    "check_policy",
    "check_spec",
    "delete_retention",
    "judge",
    "judge_definition",
    "judge_size",
    "judge_ttl",
    "reason_for",
    "topic_settings",
]

DELETE_RETENTION = 86_400.0
"""Kafka's default for ``delete.retention.ms``, in seconds: a day.

It applies to topics without a setting of their own.
"""

_SKEW = 3600.0
"""Seconds for which a topic keeps records after they have expired, since clocks differ."""

_MINUTE, _DAY = 60_000, 86_400_000  # ms

_SHORTEST_DELETE_RETENTION = 10_000  # ms
"""The shortest retention of deletes that readers can work with.

They check the log's end every few seconds, and a topic takes seconds to read. With a shorter retention, they start
over.
"""

_REASONS = {
    "cleanup.policy": "compaction keeps the newest record of each key forever",
    "cleanup.policy=delete": "compaction would remove messages of a standard queue, since others have the same key",
    "cleanup.policy=compact,delete": "without delete, neither expiry nor reclaiming frees the disk",
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
    "offsets.retention.minutes": "so many minutes after its last consumer has left, brokers forget what a queue has "
    "consumed",
    "ttl": "nothing frees the disk of an expired value until a newer one of its key replaces it",
    "ttl=a maximum, or consumers": "nothing frees the disk of a standard queue that is never consumed",
    "groups": "in each partition a group has a consumer of its own",
    "limits": "they bind the producers that this library opens on the queue; other clients add to it, and producers "
    "that race exceed them by what they have under way",
    "limits=one limit for the queue": "each partition evicts beyond an even share, also while others have room",
    "order": "keys keep their places only until compaction removes the records that give them",
    "order=over one partition": "each consumer hands out the best message of its own partitions",
    "min.compaction.lag.ms with max_delay": "else compaction removes the value that counts while a newer one is "
    "scheduled, and its key goes dark until then",
    "partitions": "an existing topic keeps its partition count, since changing it would move keys",
    "replication_factor": "an existing topic keeps its replicas; kafka-reassign-partitions changes them",
}
_MAXIMUM = "Give it a maximum: `max-ttl|ttl=Ttl(maximum=...)`"
_REMEDIES = {
    "ttl": _MAXIMUM,
    "ttl=a maximum, or consumers": _MAXIMUM,
    "groups": """Place messages by group (`place-by='group'|placement="group"`), have one partition, or make the """
    "group the key",
    "limits": """A ring (`overflow='ring'|policy="ring"`) evicts what others add, too""",
    "limits=one limit for the queue": "Have one partition for a limit that all share",
    "offsets.retention.minutes": "Raise it on the brokers, or run lvq keep-alive more often while nobody consumes",
    "order": """The order of arrival (`order='tail'|order="tail"`) lasts""",
    "order=over one partition": "Have one partition for one order",
    "partitions": "Leave `partitions|TopicSpec(partitions=...)` out, or name another `topic`",
    "replication_factor": "Or leave `replication-factor|TopicSpec(replication_factor=...)` out",
}
"""Remedies, by reason. Settings that are missing from this table can be changed."""
_RECONCILE = """`on_mismatch="reconcile"` sets it"""
_PLURAL = ("groups", "limits")
_OWN = ("groups", "limits", "order", "ttl")  # the queue's own options


_MOST = {"partitions": 2**31 - 1, "replication_factor": 2**15 - 1}
"""The largest numbers that Kafka's protocol has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """The settings to create a queue's topic with, or to compare an existing one with.

    Args:
        partitions: with one, order is total; with more, it is per partition. None means one for a new topic.
        replication_factor: None means the cluster's default.
        delete_retention: seconds for which a delete stays readable; a reader away for longer has to start over.
        reclaim: use the policy ``compact,delete``, so that DeleteRecords can remove a consumed prefix.
        config: topic settings, by Kafka's names, that override those of this library.
    """

    partitions: int | None = None
    replication_factor: int | None = None
    delete_retention: float = DELETE_RETENTION
    reclaim: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option, highest in _MOST.items():
            if (value := getattr(self, option)) is not None:
                at_least_one(highest, **{option: value})
        delays(delete_retention=self.delete_retention)
        if self.delete_retention * 1000 >= 2**63:
            raise ConfigError(
                f"delete_retention={quoted(self.delete_retention)} is more than Kafka can keep as milliseconds.",
                options=["delete_retention"],
                hint="A day is Kafka's default.",
            )
        instance("config", self.config, Mapping, 'For example config={"segment.ms": "600000"}.')
        given: Mapping[Any, Any] = self.config
        for name, setting in given.items():
            if not isinstance(name, str) or not isinstance(setting, str):
                raise ConfigError(
                    f"The setting {name!r} of a topic is {setting!r}, not text.",
                    options=[str(name)],
                    hint='Write numbers as text as well: config={"segment.ms": "600000"}.',
                )

    @property
    def new_partitions(self) -> int:
        """The partition count of a new topic."""
        return self.partitions or 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that does not suit a queue.

    An ``error`` breaks guarantees, a ``warning`` weakens some. The setting is one of the topic's, ``partitions``,
    ``replication_factor``, ``offsets.retention.minutes`` of the brokers, or ``order``, ``ttl``, ``groups`` or
    ``limits``, which are the queue's own.
    """

    setting: str
    expected: str
    actual: str
    severity: Literal["error", "warning"]

    @property
    def reason(self) -> str:
        """The reason why the setting matters."""
        return _REASONS.get(self._case, "it was asked for")

    @property
    def fact(self) -> str:
        """The setting, its fault, and why it matters."""
        verb = "are" if self.setting in _PLURAL else "is"
        rather = "" if self.setting in _OWN else f", not {self.expected}"
        return f"{self.setting} {verb} {self.actual}{rather}: {self.reason}"

    def worded(self, spell: Spelling) -> str:
        """Return the fact and the remedy, with each option in them spelled by a function."""
        return f"{self.fact}. {self.remedy(spell)}."

    def remedy(self, spell: Spelling) -> str:
        """Return the remedy, with each option that it mentions spelled by a function."""
        return worded(_REMEDIES.get(self._case, _RECONCILE), spell)

    def __str__(self) -> str:
        return self.worded(lambda mention: mention.python)

    @property
    def _case(self) -> str:
        if self.setting == "min.compaction.lag.ms":  # judged only where messages may be scheduled
            return "min.compaction.lag.ms with max_delay"
        case = f"{self.setting}={self.expected}"
        return case if case in _REASONS else self.setting


@dataclass(frozen=True, slots=True)
class TopicNeeds:
    """The needs of the queues on a topic that follow from their options."""

    lifetime: float | None = None
    """Seconds after which the topic may drop a message of the queue that is declared.

    None if the queue's messages never expire; infinity if they do, but some may live on, in this queue or in another
    one on the topic.
    """
    max_delay: float = 0.0
    """The longest time, in seconds, by which any queue on it lets messages be scheduled ahead."""
    own: bool = False
    """True if the queue that is declared has such an option itself.

    If not, unsuitable settings do not break it.
    """
    conflate: bool = True
    """Whether the queues on it are last value queues.

    Standard queues share no topic with last value queues.
    """
    consumed: bool = True
    """Whether the queue that is declared is ever consumed."""

    @classmethod
    def of(cls, definition: QueueDefinition, others: Iterable[QueueDefinition], now: float = math.inf) -> TopicNeeds:
        """Return a queue's needs of its topic, given all declared queues, on any topic.

        Args:
            now: the time, in seconds since the epoch. The terms that queues had before they were altered count for as
                long as messages of that time may live or be scheduled.
        """
        sharing = [definition, *(other for other in others if other.topic == definition.topic)]
        times = [time_rule(queue) for queue in sharing]
        lifetime = max(one.longest_life(now) for one in times) if definition.expires else None
        return cls(
            lifetime,
            max(one.delay_that_counts(now) for one in times),
            time_rule(definition).matters,
            conflate=definition.conflate,
            consumed=not definition.non_destructive,
        )

    @property
    def delay(self) -> int:
        """The longest delay in ms."""
        return round(self.max_delay * 1000)


NO_NEEDS = TopicNeeds()
"""The needs of a queue without options of time."""


def check_policy(spec: TopicSpec, *, conflate: bool) -> None:
    """Check that the policy asked for, if any, suits the kind of queue.

    Raises:
        ConfigError: it does not.
    """
    policy = spec.config.get("cleanup.policy")
    if policy is None or ("compact" in policy) == conflate:
        return
    kind, reason = ("last value", "cleanup.policy") if conflate else ("standard", "cleanup.policy=delete")
    raise ConfigError(
        f"cleanup.policy={policy} and a {kind} queue cannot be combined: {_REASONS[reason]}.",
        options=["cleanup.policy", "conflate"],
        hint="Leave the setting out.",
    )


def check_spec(spec: TopicSpec, needs: TopicNeeds) -> None:
    """Check that the settings asked for leave room for scheduled messages.

    Raises:
        ConfigError: compaction would remove the values that they are to replace later.
    """
    needed = _MINUTE + needs.delay
    for setting in ("min.compaction.lag.ms", "max.compaction.lag.ms") if needs.max_delay and needs.conflate else ():
        if setting in spec.config and _number(spec.config, setting) < needed:
            raise ConfigError(
                f"{setting}={spec.config[setting]} and max_delay={needs.max_delay:g} exclude each other: keys go dark "
                "while a newer value is scheduled, since compaction removes the one that counts.",
                options=[setting, "max_delay"],
                hint=f"Leave the setting out, or make it at least {needed}.",
            )


def topic_settings(spec: TopicSpec, needs: TopicNeeds = NO_NEEDS) -> dict[str, str]:
    """Return the settings to create the topic with."""
    lifetime = math.inf if needs.lifetime is None else needs.lifetime
    retention = "-1" if lifetime == math.inf else str(math.ceil(1000 * (lifetime + _SKEW)))
    settings = _standard_settings(retention) if not needs.conflate else _compacted_settings(spec, needs, retention)
    if (spec.replication_factor or 0) >= 3:
        settings["min.insync.replicas"] = "2"
    return {**settings, **spec.config}


def _standard_settings(retention: str) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": retention,
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "segment.ms": "3600000",
        "segment.bytes": "67108864",
    }


def _compacted_settings(spec: TopicSpec, needs: TopicNeeds, retention: str) -> dict[str, str]:
    removes = spec.reclaim or retention != "-1" or "delete" in spec.config.get("cleanup.policy", "")
    settings = {
        "cleanup.policy": "compact,delete" if removes else "compact",
        "message.timestamp.type": "LogAppendTime",
        "segment.ms": "3600000",
        "segment.bytes": "67108864",
        "min.cleanable.dirty.ratio": "0.1",
        "min.compaction.lag.ms": str(_MINUTE + needs.delay),
        "max.compaction.lag.ms": str(_DAY + needs.delay),
        "delete.retention.ms": str(round(spec.delete_retention * 1000)),
    }
    if removes:
        settings["retention.ms"] = retention
    return settings


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
    needs: TopicNeeds = NO_NEEDS,
) -> list[Finding]:
    """Compare a topic's settings with those for a new one.

    Settings that are not visible are skipped, unless the spec gives them: a topic's settings name all that there are.
    """
    spec = spec or TopicSpec()
    wanted = topic_settings(spec, needs)
    retention = wanted.get("retention.ms", "-1")
    findings: list[Finding] = []
    judged: set[str] = set()

    def expect(setting: str, expected: str, good: bool, severity: Literal["error", "warning"] = "warning") -> None:
        judged.add(setting)
        if setting in config and not good:
            findings.append(Finding(setting, expected, config[setting], severity))

    def at_most(setting: str) -> None:
        expect(setting, wanted[setting], _number(config, setting) <= _number(wanted, setting))

    def at_least(setting: str, least: str, severity: Literal["error", "warning"] = "warning") -> None:
        expect(setting, least, _number(config, setting) >= float(least), severity)

    policy = {part.strip() for part in config.get("cleanup.policy", "").split(",")}
    if not needs.conflate:  # only retention removes messages, perhaps before they are consumed
        size = wanted["retention.bytes"]
        expect("cleanup.policy", "delete", "compact" not in policy, "error")
        expect("retention.ms", retention, _retains(config.get("retention.ms"), retention), "error")
        expect("retention.bytes", size, _retains(config.get("retention.bytes"), size), "error")
    elif "compact" not in policy:
        expect("cleanup.policy", "compact", False, "error")
    elif "delete" in policy:
        expect("retention.ms", retention, _retains(config.get("retention.ms"), retention))
        expect("retention.bytes", "-1", config.get("retention.bytes") == "-1")
    elif "delete" in wanted["cleanup.policy"]:
        expect("cleanup.policy", "compact,delete", False)
        judged.add("retention.ms")
        if (kept := config.get("retention.ms", "")) != retention:
            findings.append(Finding("retention.ms", retention, kept, "warning"))
    append_time = config.get("message.timestamp.type") == "LogAppendTime"
    timing: Literal["error", "warning"] = "error" if needs.own else "warning"
    expect("message.timestamp.type", "LogAppendTime", append_time, timing)
    for setting in ("segment.ms", "segment.bytes"):
        at_most(setting)
    expect("unclean.leader.election.enable", "false", config.get("unclean.leader.election.enable") == "false")
    if replication_factor >= 3:
        at_least("min.insync.replicas", "2")
    if needs.conflate:
        at_most("min.cleanable.dirty.ratio")
        shortest = str(_MINUTE + needs.delay) if needs.max_delay else "0"  # whatever the spec says
        at_least("min.compaction.lag.ms", shortest, timing)
        longest = max(wanted["max.compaction.lag.ms"], shortest, key=_as_number)
        fits = float(shortest) <= _number(config, "max.compaction.lag.ms") <= _as_number(longest)
        expect("max.compaction.lag.ms", longest, fits)
        at_least("delete.retention.ms", str(max(int(wanted["delete.retention.ms"]), _SHORTEST_DELETE_RETENTION)))
    for setting, value in spec.config.items():  # settings without a rule must have the spec's value
        if setting not in judged and config.get(setting) != value:
            findings.append(Finding(setting, value, config.get(setting, "no setting of a topic"), "warning"))
    return findings


def judge_size(spec: TopicSpec, *, partitions: int, replication_factor: int) -> list[Finding]:
    """Compare a topic's size with that of a spec, if it has one. Settings cannot change it."""
    asked = {
        "partitions": (spec.partitions, partitions),
        "replication_factor": (spec.replication_factor, replication_factor),
    }
    return [
        Finding(name, str(wanted), str(actual), "warning")
        for name, (wanted, actual) in asked.items()
        if wanted not in (None, actual)
    ]


def judge_definition(definition: QueueDefinition, needs: TopicNeeds, partitions: Callable[[], int]) -> list[Finding]:
    """Return findings on the queue's own options, which no setting of the topic mends.

    Args:
        definition: the queue.
        needs: its needs of the topic.
        partitions: returns the topic's partition count; called if it matters.
    """
    order, groups = definition.order, definition.groups
    policy = None if definition.limits is None else definition.limits.policy
    by_key = groups is not None and groups.placement == "key" and groups.header != definition.key_header
    spread = 1
    if (definition.rank_header is not None or by_key or policy == "ring") and not definition.non_destructive:
        spread = partitions()
    found = [Finding("order", "tail", order, "warning")] if order == "in-place" else []
    if definition.rank_header is not None and spread > 1:
        found.append(Finding("order", "over one partition", f"{order} over {spread} partitions", "warning"))
    if by_key and spread > 1:
        found.append(Finding("groups", "placed by group", f"placed by key in {spread} partitions", "warning"))
    if policy == "ring" and spread > 1:
        found.append(Finding("limits", "one limit for the queue", f"split over {spread} partitions", "warning"))
    if policy in ("reject", "block"):
        found.append(Finding("limits", "binding for all clients", "advisory", "warning"))
    return [*found, *judge_ttl(needs)]


def judge_ttl(needs: TopicNeeds) -> list[Finding]:
    """Return a finding if messages expire or are never consumed, and nothing removes them."""
    if needs.conflate:
        unbounded = needs.lifetime == math.inf
        return [Finding("ttl", "limited", "unlimited", "warning")] if unbounded else []
    if needs.consumed or needs.lifetime not in (None, math.inf):  # else `reclaim`, or the broker, removes them
        return []
    return [Finding("ttl", "a maximum, or consumers", "unlimited", "warning")]


def _retains(actual: str | None, wanted: str) -> bool:
    """Return whether a topic keeps records for as long as wanted; -1 stands for no limit."""
    if wanted == "-1" or actual in (None, "-1"):
        return actual == "-1"
    return float(actual) >= float(wanted)


def _number(settings: Mapping[str, str], setting: str) -> float:
    return _as_number(settings.get(setting, ""))


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def reason_for(setting: str) -> str:
    """Return the reason why a last value queue needs this topic setting."""
    return _REASONS[setting]
