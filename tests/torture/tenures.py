"""Tenures of partition owners, and the delivery counts that they allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from tests.torture.handover import HandOvers
from tests.torture.history import Hold, Life
from tests.torture.journal import Kind

__all__ = ["Tenures"]

_CLOCKS = 0.5  # seconds between what a process does, and what the broker or its journal says of it


@dataclass(slots=True)
class _Tenure:
    """An assignment of a partition to a process, as far as the process knows."""

    life: Life
    begin: float
    end: float = inf
    counts_aside: bool = True
    """Whether messages set aside at its end may be counted as delivered."""


class Tenures:
    """The assignments of all partitions, from the journals.

    Args:
        transactional: whether processes settle in transactions.
    """

    def __init__(self, lives: Iterable[Life], hand_overs: HandOvers, *, transactional: bool) -> None:
        self._hand_overs = hand_overs
        self._transactional = transactional
        self._tenures: dict[int, list[_Tenure]] = defaultdict(list)
        for life in lives:
            self._read(life)
        for tenures in self._tenures.values():
            tenures.sort(key=lambda tenure: tenure.begin)

    def _read(self, life: Life) -> None:
        present: dict[int, _Tenure] = {}
        committing = False  # then there is no last commit: it would overwrite the transaction's
        for event in life.events:
            match event.kind:
                case Kind.ACKING:
                    committing = self._transactional
                case Kind.DURABLE | Kind.ABORTED:
                    committing = False
                case Kind.GOT:
                    for partition in event.facts["partitions"]:
                        present[partition] = _Tenure(life, event.at, counts_aside=life.counts)
                        self._tenures[partition].append(present[partition])
                case Kind.GONE | Kind.CLOSED:
                    in_order = event.facts.get("how") == "given up" and not committing
                    for partition in event.facts.get("partitions", list(present)):
                        if (tenure := present.pop(partition, None)) is not None:
                            tenure.end = event.at
                            if in_order and self._hand_overs.in_peace(life, event.at):
                                tenure.counts_aside = False
                    committing = committing and event.kind is Kind.GONE
        for tenure in present.values():
            tenure.end = life.killed

    def most(self, partition: int, holds: int, since: float, until: float) -> int:
        """Return the highest count that a message may have, from when it was sent and how often it was held.

        A durable counter that ends without notice counts the messages set aside at that moment. A process may be killed
        before it records what it got. A frozen process has lost a partition before it knows.
        """
        begun = [tenure for tenure in self._tenures[partition] if tenure.begin <= until]
        over = [tenure for tenure in begun if tenure is not begun[-1] or tenure.end <= until]
        return holds + sum(tenure.counts_aside and since <= tenure.end for tenure in over)

    def of(self, hold: Hold) -> tuple[float, float] | None:
        """Return from when to when its holder had the partition; None if a journal ends before it says."""
        return self.at(hold.life, hold.partition, hold.acquired)

    def at(self, life: Life, partition: int, at: float) -> tuple[float, float] | None:
        """Return from when to when a process had a partition that it had at a time; None if it had not."""
        for tenure in self._tenures[partition]:
            if tenure.life is life and tenure.begin <= at <= tenure.end:
                return tenure.begin, tenure.end
        return None

    def doubted(self, partition: int, at: float, life: Life, *, since: float = inf) -> bool:
        """Return whether another process than this one believed at a time that it owned a partition.

        Args:
            since: only one that had it before this time, too.
        """
        return any(
            tenure.life is not life and tenure.begin <= min(since, at) and at - _CLOCKS <= tenure.end
            for tenure in self._tenures[partition]
        )

    def remembered(self, before: Hold, hold: Hold) -> bool:
        """Return whether the consumer of a message's second delivery knew the count of the first.

        A consumer knows its own counts while it has the partition. It knows another's durable counts if all owners in
        between counted durably, too: other owners forget the counts.
        """
        tenures = self._tenures[hold.partition]
        own = [one for one in tenures if one.life is hold.life and one.begin <= hold.acquired <= one.end]
        if not own:
            return False
        begin = own[0].begin
        if begin <= before.acquired:  # otherwise the first holder is frozen, and no longer the owner
            return before.life is hold.life
        return before.life.counts and all(one.life.counts for one in tenures if before.acquired < one.begin < begin)
