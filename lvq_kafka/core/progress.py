"""Progress of a reader towards a target: how far each partition is, and what holds it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Progress", "Shortfall", "describe"]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A partition that has not reached its target.

    ``stable`` is the last stable offset where it is known: below it every transaction has been decided. A reader that
    stands at it and not at its target is held up by an open transaction, and by nothing of its own.
    """

    partition: int
    position: int
    target: int
    stable: int | None = None

    @property
    def blocked(self) -> bool:
        """Whether an open transaction holds this partition up."""
        return self.stable == self.position < self.target  # beyond it the last stable offset has moved since

    def __str__(self) -> str:
        if self.blocked:
            return (
                f"partition {self.partition} stands at offset {self.position} of {self.target}: "
                f"a transaction that is open since offset {self.stable} hides what follows"
            )
        return f"partition {self.partition} stands at offset {self.position} of {self.target}"


class Progress:
    """Positions of a reader, by partition, and the distance to a target.

    A position is the next offset to read, so a partition is done when its position has reached the end offset. That
    holds for empty partitions, for holes left by compaction, and when the log ends in transaction markers or aborted
    records; the offset of the last record tells nothing (KAFKA-6190, KAFKA-12951).
    """

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)

    def advance(self, positions: Mapping[int, int]) -> None:
        """Take over new positions. A position never moves back."""
        mine = self.positions
        for partition, position in positions.items():
            if position > mine.get(partition, -1):
                mine[partition] = position

    def reached(self, targets: Mapping[int, int]) -> bool:
        """Whether every partition of the target has been read up to its offset."""
        positions = self.positions
        return all(positions.get(partition, 0) >= target for partition, target in targets.items())

    def lag(self, targets: Mapping[int, int]) -> int:
        """Offsets still to read, over all partitions. An upper bound of the records that are missing."""
        positions = self.positions
        return sum(max(0, target - positions.get(partition, 0)) for partition, target in targets.items())

    def shortfalls(self, targets: Mapping[int, int], stable: Mapping[int, int] | None = None) -> list[Shortfall]:
        """The partitions below their target, in order; ``stable`` are the last stable offsets, where known."""
        return [
            Shortfall(partition, self.positions.get(partition, 0), target, (stable or {}).get(partition))
            for partition, target in sorted(targets.items())
            if self.positions.get(partition, 0) < target
        ]


def describe(shortfalls: Iterable[Shortfall]) -> str:
    """One sentence on what is missing, for a message to people."""
    return "; ".join(map(str, shortfalls))
