"""The consumer group that holds a queue's progress: its first commits, and its checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from lvq_kafka.cluster import Cluster, Commit, LogEnd, TopicDescription
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.declared.damage import Findings, examine
from lvq_kafka.errors import CommitMapRefused, LVQError, QueueError, TransportError
from lvq_kafka.runtime.retrying import patiently

__all__ = [
    "OnForeignCommits",
    "Start",
    "at_work",
    "check_group",
    "declare_group",
    "known_ends",
    "means_at_work",
    "trusted",
]

Start = Literal["earliest", "latest"]
"""The initial content of a new queue: the values in its topic, or only those to come."""

OnForeignCommits = Literal["refuse", "ignore"]
"""The handling of a commit whose text is missing, not the queue's, newer or damaged.

Raise `CommitMapRefused`; or use its offset alone, so that messages done above it are redelivered, and all below count
as done.
"""

# Broker errors for outside commits and deletions while a group has members.
_AT_WORK = frozenset({"UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"})


def declare_group(
    cluster: Cluster,
    group: str,
    topic: str,
    start: Start = "earliest",
    *,
    queue: str | None = None,
    timeout: float = 10.0,
) -> bool:
    """Commit a new queue's start in all partitions. Return False if the group has commits.

    Existing commits are never moved. Call this only when the queue itself is new: if it was declared before, a group
    without commits has expired, and restarting it would silently replay or skip messages (R17).

    Args:
        queue: the queue's name, for messages; the group's by default.

    Raises:
        OffsetsExpired, PartitionsAdded, TopicRecreated, DataLoss, CommitMapRefused: the group is not new, and its
            commits are damaged; see `check_group`.
        TopicNotFound: the topic does not exist.
        TransportError: the commits could not be stored within ``timeout`` seconds.
    """
    described = cluster.topics.describe(topic)
    commits = patiently(lambda: cluster.groups.committed(group, topic), timeout)
    first, stable = cluster.logs.start_offsets(topic), cluster.logs.stable_ends(topic)
    # Values hidden by an open transaction are still to come.
    starts = first if start == "earliest" else {partition: stable[partition].offset for partition in first}
    if commits:
        ends = known_ends(cluster, topic, commits, stable)
        try:
            check_group(group, topic, starts, commits, queue=queue, described=described, ends=ends)
        except LVQError as error:
            error.add_note(
                f"The queue is new, but its group is not: delete the group {group!r}, or choose another name."
            )
            raise
        return False
    tag = topic_tag(described.id)
    begun = {partition: CommitMap(at, topic_tag=tag, partitions=len(starts)) for partition, at in starts.items()}
    texts = {p: Commit(first.base, first.encode(), stable[p].leader_epoch) for p, first in begun.items()}
    # Nobody consumes from the group before this is done, so retrying is safe.
    patiently(lambda: cluster.groups.commit(group, topic, texts), timeout)
    return True


def check_group(
    group: str,
    topic: str,
    partitions: Collection[int],
    commits: Mapping[int, Commit],
    *,
    queue: str | None = None,
    described: TopicDescription | None = None,
    ends: Mapping[int, int] | None = None,
    on_foreign_commits: OnForeignCommits = "refuse",
) -> dict[int, CommitMap]:
    """Return the group's commit map for each of these partitions.

    Args as in `lvq_kafka.declared.damage.examine`.

    Raises:
        GroupNotFound, OffsetsExpired, PartitionsAdded: a partition has no commit: the queue was never declared, the
            group has expired or was deleted, or partitions were added to the topic.
        TopicRecreated: the commits belong to an earlier topic of that name.
        DataLoss: the log ends before what was consumed, or has other records there now.
        CommitMapRefused: a commit's text is missing, not the queue's, newer or damaged, and is not to be ignored.
    """
    found = examine(group, topic, partitions, commits, queue=queue, described=described, ends=ends)
    return trusted(found, on_foreign_commits)


def known_ends(
    cluster: Cluster, topic: str, commits: Mapping[int, Commit], stable: Mapping[int, LogEnd], *, timeout: float = 10.0
) -> dict[int, int]:
    """Return how far each log is the one that its group knows.

    That is to its end, or to where it was cut and rewritten. A log that was cut (an unclean leader election, a backup)
    and has grown again looks like one that has only grown, and its new records would pass for done. Their leader epochs
    give them away; these are checked only if the current leader epoch is later than that of the group's last commit.

    Args:
        commits: the group's commits.
        stable: the result of `Logs.stable_ends`, asked afterwards.
    """
    ends = {partition: end.offset for partition, end in stable.items()}
    reaches = {p: LogEnd(_reach(commit), commit.leader_epoch) for p, commit in commits.items() if p in ends}
    later = {p: reach for p, reach in reaches.items() if 0 <= reach.leader_epoch < stable[p].leader_epoch}
    behind = [p for p, reach in reaches.items() if reach.offset > ends[p] and p not in later]
    if behind:  # an open transaction may have begun there since, but never beyond the log end
        log_ends = cluster.logs.end_offsets(topic, timeout=timeout)
        ends |= {p: log_ends[p] for p in behind}
    if later:
        ends |= cluster.logs.overwritten(topic, later, timeout=timeout)
    return ends


def _reach(commit: Commit) -> int:
    """Return the offset up to which a commit calls anything done."""
    try:
        return CommitMap.decode(commit.offset, commit.metadata).end
    except CommitMapRefused:
        return commit.offset


def trusted(found: Findings, on_foreign_commits: OnForeignCommits) -> dict[int, CommitMap]:
    """Return the trusted maps of the findings. Raises what `check_group` raises."""
    damages = [one for one in found.damages if on_foreign_commits == "refuse" or one.kind != "commit-refused"]
    if damages:
        for other in damages[1:]:
            damages[0].error.add_note(f"Also: {other}")
        raise damages[0].error
    return dict(found.maps)


def at_work(queue: str) -> QueueError:
    """Return the error for an operation that is impossible while the queue is consumed."""
    return QueueError(
        f"The queue {queue} still has active consumers.",
        queue=queue,
        hint="Close them first. One that was killed counts until its session ends, some six seconds later.",
    )


def means_at_work(error: TransportError) -> bool:
    """Return whether a broker refused a commit or a deletion because the group has members."""
    return error.code in _AT_WORK
