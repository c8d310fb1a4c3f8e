"""Memory of what was durable in lost partitions, in case the group forgets it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lvq_kafka.core.commit_map import CommitMap

__all__ = ["Promise", "Promises"]

_REMEMBERED = 120.0
"""Seconds for which the last commit of an assignment is remembered: longer than a coordinator takes to move.

Not for good: somebody may drop the queue meanwhile and declare it again, or reset it.
"""


class Promise(NamedTuple):
    """The last commit of an assignment that the group was known to hold."""

    map: CommitMap
    epoch: int
    """The leader epoch that it names."""
    until: float
    """When it is forgotten, in seconds on the owner's clock."""


class Promises:
    """The last durable commits of lost partitions, to compare with what the group holds.

    A commit that arrives late over a lost connection takes back newer ones, and so may a coordinator that moves. While
    a partition is assigned, checks find that. Without a memory, a partition that is lost before the check and regained
    would be consumed again from there (G11). Each commit is true whatever came later, so it may be written again.
    """

    def __init__(self) -> None:
        self._promises: dict[int, Promise] = {}  # by partition

    def keep(self, partition: int, last: CommitMap, epoch: int, now: float) -> None:
        """Remember the last commit of an assignment that has ended."""
        self._promises[partition] = Promise(last, epoch, now + _REMEMBERED)

    def release(self, partition: int) -> None:
        """Forget the last commit: a new assignment has begun."""
        self._promises.pop(partition, None)

    def broken(self, partition: int, stored: CommitMap, now: float) -> Promise | None:
        """Return the promise that the group no longer keeps; None if it holds what it should.

        A sequence of 0 is that of a queue that was just declared, perhaps not for the first time.
        """
        promise = self._promises.get(partition)
        if promise is None or promise.until < now:
            return None
        last = promise.map
        is_older = 0 < stored.sequence < last.sequence and stored.topic_tag == last.topic_tag
        if not is_older or not last.covers(stored):
            return None
        return promise._replace(map=_with_deliveries(last, stored))


def _with_deliveries(last: CommitMap, stored: CommitMap) -> CommitMap:
    """Return the last commit with deliveries that somebody else may have counted since."""
    marks = [mark for mark in (last.delivered, stored.delivered) if mark is not None]
    counts = dict(last.counts)
    for offset, count in stored.counts.items():
        if offset >= last.base and not last.done(offset):
            counts[offset] = max(count, counts.get(offset, 0))
    return replace(last, delivered=max(marks, default=None), counts=counts)
