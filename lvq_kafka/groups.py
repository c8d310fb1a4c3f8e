"""The consumer group that holds what a queue's consumers have done: its beginning, and how to tell that it is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from lvq_kafka.errors import QueueNotDeclared
from lvq_kafka.ports import Commit, Log
from lvq_kafka.retrying import patiently

__all__ = ["Start", "check_group", "declare_group"]

Start = Literal["earliest", "latest"]
"""What a new queue holds: the values that are in its topic already, or only those to come."""


def declare_group(
    log: Log, group: str, topic: str, start: Start = "earliest", *, queue: str | None = None, timeout: float = 10.0
) -> bool:
    """Commit where a new queue starts, for every partition; False when the group has its commits already.

    Existing commits are never moved. Call this when the queue itself is new: where the queue was declared before, a
    group without commits has expired, and to start it again would replay or skip messages silently (R17).

    Args:
        queue: the queue's name, for messages; default the group's.

    Raises:
        QueueNotDeclared: some partitions have a commit and others not, so this is not a new group.
        TopicNotFound: the topic does not exist.
        TransportError: the commits could not be stored within ``timeout`` seconds.
    """
    # What an open transaction hides is still to come.
    starts = log.start_offsets(topic) if start == "earliest" else log.end_offsets(topic, stable=True)
    commits = patiently(lambda: log.committed(group, topic), timeout)
    if commits:
        check_group(group, topic, starts, commits, queue=queue)
        return False
    # Nobody consumes from the group before this is done, so it can be stored as often as it takes.
    patiently(lambda: log.commit(group, topic, {p: Commit(offset) for p, offset in starts.items()}), timeout)
    return True


def check_group(
    group: str,
    topic: str,
    partitions: Collection[int],
    commits: Mapping[int, Commit],
    *,
    queue: str | None = None,
) -> None:
    """See that a group has a commit for each of these partitions.

    Raises:
        QueueNotDeclared: it has not: the queue was never declared, the group has expired or was deleted, or the topic
            was given more partitions.
    """
    missing = sorted(set(partitions) - commits.keys())
    if not missing:
        return
    name = queue or group
    if commits:
        which = f"partition{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of topic {topic!r}"
        raise QueueNotDeclared(
            f"The consumer group {group!r} of queue {name!r} holds no position for {which}: partitions were added "
            "after the queue was declared, or its positions have expired.",
            queue=name,
            hint="Nothing is replayed or skipped silently: delete the queue, and declare it with the start you choose.",
        )
    raise QueueNotDeclared(
        f"The consumer group {group!r} of queue {name!r} holds no position in topic {topic!r}: the queue was never "
        "declared, or its group has expired or was deleted.",
        queue=name,
        hint="Declare it. If it was declared before, delete it first; what it had consumed is not known any more.",
    )
