"""One read of a topic: the table it fills, its progress, and its targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lvq_kafka.cluster import TopicDescription
from lvq_kafka.core.absence import Absence
from lvq_kafka.core.progress import Progress, Shortfall
from lvq_kafka.core.value_store import ValueStore

__all__ = ["Replay"]

Stage = Literal["first target", "aiming again", "second target", "caught up"]


class Replay:
    """A read of a topic from given starts into a table, up to the log's ends and beyond.

    The first target is the log end at the start of the read. Having reached it, a reader continues to the log end at
    that moment before it counts as caught up: a value below the first end that was superseded meanwhile may have been
    compacted away before it was read. Its replacement is committed, and lies below the second end.

    Not thread-safe; `lvq_kafka.reading.follower_state.FollowerState` guards it.
    """

    def __init__(
        self,
        described: TopicDescription,
        table: ValueStore,
        since: Mapping[int, int],
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        stable: Mapping[int, int],
        absence: Absence,
    ) -> None:
        self.described = described
        self.table = table
        self.absence = absence
        self.since = since  # the requested start; the log may start later
        self.stable = stable
        self._starts = starts
        self._ends = ends
        self._targets = ends
        self._stage: Stage = "first target"
        self._accepted = False

    # ---------------------------------------------------------------- updates

    def note_progress(self) -> bool:
        """Note that the table has advanced; return whether it has just caught up."""
        if self._stage in ("first target", "second target") and self.reached(self._targets):
            self._stage = "aiming again" if self._stage == "first target" else "caught up"
            return self.caught_up
        return False

    def aim(self, then: float, stable: Mapping[int, int]) -> None:
        """Set the last stable offsets as the second target; ``then`` is when they were requested."""
        self._targets = self.stable = stable
        self.absence.ended(then, stable)
        self._stage = "second target"

    def accept_incomplete(self) -> None:
        """Count the read as complete now, although an open transaction hides some records."""
        self._accepted = True

    def observed(
        self, then: float, described: TopicDescription, ends: Mapping[int, int], stable: Mapping[int, int]
    ) -> None:
        """Record an observation of the topic, made at ``then`` or later."""
        self.described, self._ends, self.stable = described, ends, stable
        self.absence.ended(then, stable)

    # ---------------------------------------------------------------- progress

    @property
    def aiming_again(self) -> bool:
        """True if the first target is reached, and the second one is not set yet."""
        return self._stage == "aiming again"

    @property
    def caught_up(self) -> bool:
        """True if the table holds everything that the log held at the start."""
        return self._stage == "caught up"

    @property
    def complete(self) -> bool:
        """True if caught up, or as far as open transactions allow."""
        return self.caught_up or self._accepted

    @property
    def blocked(self) -> bool:
        """True if everything that is missing until caught up is hidden by open transactions."""
        shortfalls = self.shortfalls()
        return bool(shortfalls) and all(shortfall.blocked for shortfall in shortfalls)

    @property
    def hidden(self) -> list[Shortfall]:
        """The partitions where an open transaction hides records, as of the last look."""
        return [shortfall for shortfall in self.shortfalls(self._ends) if shortfall.blocked]

    @property
    def lag(self) -> dict[int, int]:
        """The offsets left to the end of the log, by partition, as of the last look at the topic."""
        positions = self.table.progress.positions
        return {p: max(0, end - positions.get(p, 0)) for p, end in sorted(self._ends.items())}

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read, and total offsets to read until caught up."""
        positions, starts = self.table.progress.positions, self._starts
        total = sum(max(0, end - starts.get(p, 0)) for p, end in self._targets.items())
        done = sum(
            min(positions.get(p, 0), end) - starts.get(p, 0)
            for p, end in self._targets.items()
            if end > starts.get(p, 0)
        )
        return done, total

    def reached(self, targets: Mapping[int, int]) -> bool:
        """Return whether each partition has been read up to its target."""
        return Progress(self.table.progress.positions).reached(targets)

    def shortfalls(self, targets: Mapping[int, int] | None = None) -> list[Shortfall]:
        """Return what is missing to a target (default: until caught up), and what blocks it."""
        # A target may lie beyond the end of the log, which is not the fault of a transaction.
        hiding = {p: stable for p, stable in self.stable.items() if stable < self._ends.get(p, stable)}
        return Progress(self.table.progress.positions).shortfalls(self._targets if targets is None else targets, hiding)
