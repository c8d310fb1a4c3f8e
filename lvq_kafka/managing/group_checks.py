"""The consumer group that holds what a queue's consumers have done: its beginning, and how to tell that all is well."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from lvq_kafka.cluster import Cluster, Commit, LogEnd, TopicDescription
from lvq_kafka.core.commit_map import CommitMap, topic_tag
from lvq_kafka.errors import CommitMapRefused, LVQError, QueueError, TransportError
from lvq_kafka.managing.damage import Findings, examine
from lvq_kafka.retrying import patiently

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
"""What a new queue holds: the values that are in its topic already, or only those to come."""

OnForeignCommits = Literal["refuse", "ignore"]
"""What to do about a commit whose text is missing, not the queue's, newer or damaged: raise `CommitMapRefused`, or go
by its offset alone, so that what was done above it comes again, and all below counts as done."""

# What a broker answers to commits and deletions from outside while a group has members.
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
    """Commit where a new queue starts, for every partition; False when the group has its commits already.

    Existing commits are never moved. Call this when the queue itself is new: where the queue was declared before, a
    group without commits has expired, and to start it again would replay or skip messages silently (R17).

    Args:
        queue: the queue's name, for messages; default the group's.

    Raises:
        OffsetsExpired, PartitionsAdded, TopicRecreated, DataLoss, CommitMapRefused: the group is not new, and
            something is wrong with what it holds; see `check_group`.
        TopicNotFound: the topic does not exist.
        TransportError: the commits could not be stored within ``timeout`` seconds.
    """
    described = cluster.describe_topic(topic)
    commits = patiently(lambda: cluster.committed(group, topic), timeout)
    first, stable = cluster.start_offsets(topic), cluster.stable_ends(topic)
    # What an open transaction hides is still to come.
    starts = first if start == "earliest" else {partition: stable[partition].offset for partition in first}
    if commits:
        ends = known_ends(cluster, topic, commits, stable)
        try:
            check_group(group, topic, starts, commits, queue=queue, described=described, ends=ends)
        except LVQError as error:
            error.add_note(f"The queue is new, and its group is not: delete the group {group!r}, or name it otherwise.")
            raise
        return False
    tag = topic_tag(described.id)
    begun = {partition: CommitMap(at, topic_tag=tag, partitions=len(starts)) for partition, at in starts.items()}
    texts = {p: Commit(first.base, first.encode(), stable[p].leader_epoch) for p, first in begun.items()}
    # Nobody consumes from the group before this is done, so it can be stored as often as it takes.
    patiently(lambda: cluster.commit(group, topic, texts), timeout)
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
    """What a group has done in each of these partitions. Arguments as for `lvq_kafka.managing.damage.examine`.

    Raises:
        GroupNotFound, OffsetsExpired, PartitionsAdded: a partition has no commit: the queue was never declared, the
            group has expired or was deleted, or the topic was given more partitions.
        TopicRecreated: the commits are of an earlier topic of that name.
        DataLoss: the log ends before what was consumed, or has other records there now.
        CommitMapRefused: a commit's text is missing, not the queue's, newer or damaged, and not to be ignored.
    """
    found = examine(group, topic, partitions, commits, queue=queue, described=described, ends=ends)
    return trusted(found, on_foreign_commits)


def known_ends(
    cluster: Cluster, topic: str, commits: Mapping[int, Commit], stable: Mapping[int, LogEnd], *, timeout: float = 10.0
) -> dict[int, int]:
    """How far each log is the one that its group knows: to its end, or to where it was cut and written anew.

    A log that was cut (an unclean leader election, a backup) and has grown again looks like one that has only grown,
    and what is new in it would pass for done. Its records tell by their leaders' epochs; they are looked at only where
    the leader is a later one than when the group last committed.

    Args:
        commits: what the group has committed.
        stable: what `Cluster.stable_ends` said afterwards.
    """
    ends = {partition: end.offset for partition, end in stable.items()}
    reaches = {p: LogEnd(_reach(commit), commit.leader_epoch) for p, commit in commits.items() if p in ends}
    later = {p: reach for p, reach in reaches.items() if 0 <= reach.leader_epoch < stable[p].leader_epoch}
    behind = [p for p, reach in reaches.items() if reach.offset > ends[p] and p not in later]
    if behind:  # an open transaction may have begun there since; but it is not behind the end of the log
        log_ends = cluster.end_offsets(topic, timeout=timeout)
        ends |= {p: log_ends[p] for p in behind}
    if later:
        ends |= cluster.overwritten(topic, later, timeout=timeout)
    return ends


def _reach(commit: Commit) -> int:
    """How far up a commit calls anything done."""
    try:
        return CommitMap.decode(commit.offset, commit.metadata).end
    except CommitMapRefused:
        return commit.offset


def trusted(found: Findings, on_foreign_commits: OnForeignCommits) -> dict[int, CommitMap]:
    """What a group has done, by what was found about its commits. Raises as `check_group`."""
    damages = [one for one in found.damages if on_foreign_commits == "refuse" or one.kind != "commit-refused"]
    if damages:
        for other in damages[1:]:
            damages[0].error.add_note(f"Besides: {other}")
        raise damages[0].error
    return dict(found.maps)


def at_work(queue: str) -> QueueError:
    """The error of what cannot be done while the queue is consumed."""
    return QueueError(
        f"Consumers of the queue {queue} are still at work.",
        queue=queue,
        hint="Close them first. One that was killed counts until its session ends, some six seconds later.",
    )


def means_at_work(error: TransportError) -> bool:
    """Whether a broker has refused a commit or a deletion because the group has members."""
    return error.code in _AT_WORK
