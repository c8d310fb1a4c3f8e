"""Reports of consumers that have no partition, since there are too many of them."""

from __future__ import annotations

__all__ = ["STANDBY_REMEDY", "standby_report", "standing_by"]

STANDBY_REMEDY = (
    "Share one consumer between threads, tasks, workers (consumer.run(handle, workers=8)) or sessions "
    "(consumer.session()), or declare a queue on more partitions"
)
"""Advice for consumers that stand by."""


def standing_by(members: int, partitions: int) -> int:
    """Return how many members of a group have no partition, since each partition has one."""
    return max(0, members - partitions)


def standby_report(members: int, partitions: int) -> str:
    """Describe members without a partition, such as ``2 members, 1 partition: 1 stands by``."""
    idle = standing_by(members, partitions)
    plural = "" if partitions == 1 else "s"
    return f"{members:,} members, {partitions:,} partition{plural}: {idle:,} stand{'s' if idle == 1 else ''} by"
