"""Damage to a group's commits: each kind with its error, and what can still be trusted.

None of it is ever repaired silently: starting over would replay or skip messages (R17). Consumers raise the errors;
`lvq_kafka.LastValueQueue.repair` repairs the damage on request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lvq_kafka.cluster import Commit, TopicDescription
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.errors import (
    CommitMapRefused,
    DataLoss,
    GroupNotFound,
    LVQError,
    OffsetsExpired,
    PartitionsAdded,
    TopicRecreated,
)

__all__ = ["Damage", "DamageKind", "Findings", "examine"]

DamageKind = Literal[
    "topic-recreated", "group-gone", "commits-expired", "partitions-added", "offsets-lost", "commit-refused"
]
"""The kinds of damage, in this order:

- the commits belong to an earlier topic of that name;
- there are no commits;
- some commits are gone;
- partitions were added after the queue was declared;
- the log lacks the records that the commits refer to;
- the text of a commit is missing, not the queue's, newer, or damaged.
"""

_UNKNOWN_SINCE: frozenset[DamageKind] = frozenset({"topic-recreated", "group-gone", "commits-expired"})


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage to a group's commits."""

    kind: DamageKind
    partitions: tuple[int, ...]
    error: LVQError
    """The error that a consumer raises for it."""

    @property
    def needs_start(self) -> bool:
        """True if the consumed state is lost, so that only the user can say where to start."""
        return self.kind in _UNKNOWN_SINCE

    def __str__(self) -> str:
        """Describe the damage, without the remedy."""
        return str(self.error).removesuffix(self.error.hint).rstrip()


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of examining a group's commits."""

    maps: Mapping[int, CommitMap]
    """By partition, the maps that can be trusted.

    Using them may redeliver messages, but loses none.
    """
    damages: tuple[Damage, ...]


def examine(
    group: str,
    topic: str,
    partitions: Collection[int],
    commits: Mapping[int, Commit],
    *,
    queue: str | None = None,
    described: TopicDescription | None = None,
    ends: Mapping[int, int] | None = None,
) -> Findings:
    """Examine a group's commits.

    Args:
        partitions: the partitions that matter.
        commits: all commits of the group in the topic, to distinguish partitions that are missing from those that never
            had a commit.
        queue: the queue's name, for messages; the group's by default.
        described: the topic as it is. Without it, commits of an earlier topic are not detected.
        ends: how far each log is the one that the group knows (`lvq_kafka.declared.group_checks.known_ends`), asked for
            after the commits. Without it, commits beyond that are not detected.
    """
    name = queue or group
    tag = None if described is None else topic_tag(described.id)
    maps: dict[int, CommitMap] = {}
    refused: list[Damage] = []
    foreign: list[int] = []
    lost: list[tuple[int, int, int]] = []
    declared = 0  # the number of partitions that the topic had then
    for partition, commit in sorted(commits.items()):
        try:
            loaded = CommitMap.decode(commit.offset, commit.metadata, queue=name, partition=partition)
        except CommitMapRefused as error:
            refused.append(Damage("commit-refused", (partition,), error))
            loaded = CommitMap(commit.offset)
        if tag is not None and any(loaded.topic_tag) and loaded.topic_tag != tag:
            foreign.append(partition)
            continue
        declared = max(declared, loaded.partitions)
        if ends is not None and loaded.end > ends.get(partition, loaded.end):
            lost.append((partition, loaded.end, ends[partition]))
            loaded = _cut(loaded, ends[partition])
        maps[partition] = loaded
    missing = sorted(set(partitions) - commits.keys())
    added = [partition for partition in missing if commits and 0 < declared <= partition]
    damages = [
        *_recreated(group, topic, name, foreign),
        *_missing(group, topic, name, [partition for partition in missing if partition not in added], commits),
        *_added(topic, name, added, declared),
        *_lost(group, topic, name, lost),
        *refused,
    ]
    wanted = set(partitions)
    return Findings(
        {partition: loaded for partition, loaded in maps.items() if partition in wanted},
        tuple(damage for damage in damages if wanted.intersection(damage.partitions)),
    )


def _cut(loaded: CommitMap, end: int) -> CommitMap:
    """Return the map without offsets from ``end`` on, which have yet to be written."""
    runs: list[int] = []
    at = loaded.base
    for pending, done in zip(loaded.runs[::2], loaded.runs[1::2]):
        if at + pending >= end:
            break
        runs += (pending, min(done, end - at - pending))
        at += pending + done
    return replace(
        loaded,
        base=min(loaded.base, end),
        runs=tuple(runs),
        delivered=None if loaded.delivered is None else min(loaded.delivered, end),
        counts={offset: count for offset, count in loaded.counts.items() if offset < end},
    )


def _recreated(group: str, topic: str, name: str, partitions: Sequence[int]) -> list[Damage]:
    if not partitions:
        return []
    error = TopicRecreated(
        f"The commits of the consumer group {group!r} of queue {name!r} belong to an earlier topic {topic!r}, which "
        "was deleted and re-created.",
        topic=topic,
        hint=f"They say nothing about this one. {_say_where(name)}",
    )
    return [Damage("topic-recreated", tuple(partitions), error)]


def _missing(
    group: str, topic: str, name: str, partitions: Sequence[int], commits: Mapping[int, Commit]
) -> list[Damage]:
    if not partitions:
        return []
    if not commits:
        gone = GroupNotFound(
            f"The consumer group {group!r} of queue {name!r} holds no position in topic {topic!r}: the queue was "
            "never declared, or its group has expired or was deleted, or its topic was deleted and re-created.",
            queue=name,
            group=group,
            hint=f"Declare it. If it was declared, the record of what it had consumed is lost. {_say_where(name)}",
        )
        return [Damage("group-gone", tuple(partitions), gone)]
    error = OffsetsExpired(
        f"The consumer group {group!r} of queue {name!r} holds no position for {_listed(partitions)} of topic "
        f"{topic!r}, though it does for others: positions expire one by one.",
        queue=name,
        partitions=partitions,
        hint=f"The record of what was consumed there is lost. {_say_where(name)}",
    )
    return [Damage("commits-expired", tuple(partitions), error)]


def _added(topic: str, name: str, partitions: Sequence[int], declared: int) -> list[Damage]:
    if not partitions:
        return []
    error = PartitionsAdded(
        f"The topic {topic!r} gained {_listed(partitions)} after the queue {name!r} was declared on {declared}.",
        queue=name,
        partitions=partitions,
        hint=f"Include them from their beginning: queue.repair(), or: lvq repair {name} --apply",
    )
    return [Damage("partitions-added", tuple(partitions), error)]


def _lost(group: str, topic: str, name: str, lost: Sequence[tuple[int, int, int]]) -> list[Damage]:
    if not lost:
        return []
    which = "; ".join(
        f"partition {p} up to {done}, but the log has kept only the records below {end}" for p, done, end in lost
    )
    error = DataLoss(
        f"The log of topic {topic!r} has lost records: the consumer group {group!r} of queue {name!r} has consumed "
        f"{which}. A replica that lagged became leader, or a backup was restored.",
        hint="Messages written from there on would count as consumed. Continue there: queue.repair(), or: lvq "
        f"repair {name} --apply",
    )
    return [Damage("offsets-lost", tuple(partition for partition, _, _ in lost), error)]


def _say_where(name: str) -> str:
    return f'Choose where to start: queue.repair(start="earliest"), or: lvq repair {name} --start earliest --apply'


def _listed(partitions: Sequence[int]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions))}"
