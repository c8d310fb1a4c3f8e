"""One read of a topic: its stage, its targets, and its distance from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.value_store import ValueStore
from lvq_kafka.core.log.absence import Absence

__all__ = ["ReadStage", "Replay"]


class ReadStage(StrEnum):
    """The stage of one read of a topic."""

    FIRST_TARGET = "first target"
    """It reads up to the end that the log had when it began."""
    BETWEEN_TARGETS = "between targets"
    """It has reached that end, and needs the current last stable offset of the log."""
    SECOND_TARGET = "second target"
    """It reads up to that offset."""
    CAUGHT_UP = "caught up"
    """It has reached that offset, and follows the log."""


@dataclass(eq=False, slots=True)
class Replay:
    """A read of a topic from given starts into a store, up to the log's ends and beyond."""

    topic_id: str
    partitions: int
    """The topic's partition count, as of the last check."""
    values: ValueStore
    since: Mapping[int, int]
    """The requested start; the log may start later."""
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    """The log ends, as of the last check."""
    stable: Mapping[int, int]
    """The last stable offsets, as of the last check."""
    absence: Absence
    targets: Mapping[int, int] = field(init=False)
    stage: ReadStage | None = None
    accepted: bool = False
    """True if the read counts as complete, although an open transaction hides some records."""

    def __post_init__(self) -> None:
        self.targets = self.ends

    @property
    def caught_up(self) -> bool:
        """True if everything that the log held at the start was read."""
        return self.stage is ReadStage.CAUGHT_UP

    @property
    def complete(self) -> bool:
        """True if caught up, or as far as open transactions allow (see `AsFarAsAllowed`)."""
        return self.accepted or self.stage is ReadStage.CAUGHT_UP

    @property
    def blocked(self) -> bool:
        """True if open transactions hide all records that are missing until caught up."""
        shortfalls = self.shortfalls(self.targets)
        return bool(shortfalls) and all(shortfall.blocked for shortfall in shortfalls)

    @property
    def hidden(self) -> list[Shortfall]:
        """The partitions where an open transaction hides records, as of the last check."""
        positions, stable = self.values.progress.positions, self.stable
        return [
            Shortfall(partition, position, end, position)
            for partition, end in sorted(self.ends.items())
            if stable.get(partition) == (position := positions.get(partition, 0)) < end
        ]

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read, and total offsets to read until caught up."""
        positions, done, total = self.values.progress.positions, 0, 0
        for partition, end in self.targets.items():
            start = self.starts.get(partition, 0)
            if end > start:
                total += end - start
                done += min(positions.get(partition, 0), end) - start
        return done, total

    def shortfalls(self, targets: Mapping[int, int]) -> list[Shortfall]:
        """Return the partitions below their targets, and the offsets that block them."""
        # A target may lie beyond the end of the log, which is not the fault of a transaction.
        hiding = {p: stable for p, stable in self.stable.items() if stable < self.ends.get(p, stable)}
        return self.values.progress.shortfalls(targets, hiding)
