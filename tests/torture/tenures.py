"""Who had which partition, from when to when, and what that allows a delivery count to be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from tests.torture.history import Hold, Life
from tests.torture.journal import Kind

__all__ = ["Tenures"]


@dataclass(slots=True)
class _Tenure:
    """One assignment of a partition to a process."""

    life: Life
    begin: float
    end: float = inf


class Tenures:
    """The assignments of all partitions, by the journals."""

    def __init__(self, lives: Iterable[Life]) -> None:
        self._tenures: dict[int, list[_Tenure]] = defaultdict(list)
        for life in lives:
            present: dict[int, _Tenure] = {}
            for event in life.events:
                if event.kind is Kind.GOT:
                    for partition in event.facts["partitions"]:
                        present[partition] = _Tenure(life, event.at)
                        self._tenures[partition].append(present[partition])
                elif event.kind in (Kind.GONE, Kind.CLOSED):
                    for partition in event.facts.get("partitions", list(present)):
                        if (tenure := present.pop(partition, None)) is not None:
                            tenure.end = event.at
            for tenure in present.values():
                tenure.end = life.killed

    def most(self, partition: int, holds: int, since: float, until: float) -> int:
        """How many deliveries may be counted of a message that was there since, and was held so many times.

        What is set aside when a partition goes may stay counted, for all that is known here of how it went; and a
        process may be killed before it can write down what it has got.
        """
        return holds + sum(since <= tenure.end <= until for tenure in self._tenures[partition])

    def remembered(self, before: Hold, hold: Hold) -> bool:
        """Whether the consumer of the second delivery of a message knew the count of the first.

        Its own it knows as long as it has the partition. What another one has counted durably it knows when all who had
        the partition in between did the same: who does not count durably forgets what was counted.
        """
        tenures = self._tenures[hold.partition]
        own = [one for one in tenures if one.life is hold.life and one.begin <= hold.acquired <= one.end]
        if not own:
            return False
        begin = own[0].begin
        if begin <= before.acquired:  # else the first holder stands still, and is none any more
            return before.life is hold.life
        return before.life.counts and all(one.life.counts for one in tenures if before.acquired < one.begin < begin)
