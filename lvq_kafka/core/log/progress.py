"""Progress of a reader toward a target: the position of each partition, and obstacles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lvq_kafka.core.facts import Shortfall

__all__ = ["Progress", "describe"]


class Progress:
    """Positions of a reader by partition, and their distance to a target.

    A position is the next offset to read, so a partition is done when its position reaches the end offset. That holds
    for empty partitions, for holes left by compaction, and for logs that end in transaction markers or aborted records;
    the offset of the last record proves nothing (KAFKA-6190, KAFKA-12951).
    """

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)

    def advance(self, positions: Mapping[int, int]) -> None:
        """Advance to new positions. A position never moves back."""
        mine = self.positions
        for partition, position in positions.items():
            if position > mine.get(partition, -1):
                mine[partition] = position

    def reached(self, targets: Mapping[int, int]) -> bool:
        """Return whether every partition of the target has been read up to its offset."""
        positions = self.positions
        return all(positions.get(partition, 0) >= target for partition, target in targets.items())

    def lag(self, targets: Mapping[int, int]) -> int:
        """Return the offsets left to read in all partitions, an upper bound of missing records."""
        positions = self.positions
        return sum(max(0, target - positions.get(partition, 0)) for partition, target in targets.items())

    def shortfalls(self, targets: Mapping[int, int], stable: Mapping[int, int] | None = None) -> list[Shortfall]:
        """Return the partitions below their target, in order.

        Args:
            stable: the last stable offsets, where known.
        """
        return [
            Shortfall(partition, self.positions.get(partition, 0), target, (stable or {}).get(partition))
            for partition, target in sorted(targets.items())
            if self.positions.get(partition, 0) < target
        ]


def describe(shortfalls: Iterable[Shortfall]) -> str:
    """Describe shortfalls in one sentence, for people."""
    return "; ".join(map(str, shortfalls))
