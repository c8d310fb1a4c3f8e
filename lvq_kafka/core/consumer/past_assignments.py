"""Past assignments, and their last durable commits in case the group forgets them.

Each assignment of a partition is a *generation*, and a handle is valid for one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from lvq_kafka.core.commit_map.commit_map import CommitMap

__all__ = ["Generations", "Promise", "Promises"]

_REMEMBERED = 120.0
"""Seconds for which the last commit of an assignment is remembered: longer than a coordinator takes to move.

Not forever: an operator may reset the queue meanwhile, or drop it and declare it again.
"""


_GENERATIONS = 256  # ended ones whose last commit is kept


class Promise(NamedTuple):
    """The last commit of an assignment that the group was known to hold."""

    map: CommitMap
    epoch: int
    """The leader epoch that it names."""
    until: float
    """When it is forgotten, in seconds on the owner's clock."""


class Promises:
    """The last durable commits of lost partitions, to compare with the group's commits.

    A commit that arrives late over a lost connection overwrites newer ones, and a coordinator that moves may lose some.
    While a partition is assigned, checks find that. A partition that is revoked before the check, and later assigned
    again, would be consumed again from the older commit, if this consumer did not remember its own (G11). Each commit
    stays true whatever happened later, so it may be written again.
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
        """Return the promise that the group no longer keeps; None if it keeps all of it.

        A sequence of 0 is that of a queue that was just declared, perhaps again.
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
    """Return the last commit, with deliveries that another consumer may have counted since."""
    marks = [mark for mark in (last.delivered, stored.delivered) if mark is not None]
    counts = dict(last.counts)
    for offset, count in stored.counts.items():
        if offset >= last.base and not last.done(offset):
            counts[offset] = max(count, counts.get(offset, 0))
    return replace(last, delivered=max(marks, default=None), counts=counts)


class Generations:
    """The generations of assigned partitions, as numbered by the ledger."""

    def __init__(self) -> None:
        self._present: dict[int, int] = {}  # by partition
        self._last: OrderedDict[int, CommitMap] = OrderedDict()  # by generation

    def start(self, partition: int, generation: int) -> None:
        """Record that a partition was assigned."""
        self._present[partition] = generation

    def end(self, partition: int, last: CommitMap) -> None:
        """Record that an assignment ended, and the last commit that the group is known to hold."""
        self._last[self._present.pop(partition)] = last
        while len(self._last) > _GENERATIONS:
            self._last.popitem(last=False)

    def is_current(self, partition: int, generation: int) -> bool:
        """Return whether that generation is still assigned."""
        return self._present.get(partition) == generation

    def committed(self, offset: int, generation: int) -> bool:
        """Return whether the message was durably done when its generation ended."""
        last = self._last.get(generation)
        return last is not None and last.done(offset)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the assigned partitions."""
        return iter(self._present)
