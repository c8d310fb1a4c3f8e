"""One read of a topic: into which table, how far it is, and how far there is to go."""

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
    """A topic as it is read by somebody: from these starts, into this table, to these ends of the log and beyond.

    The first target is the end that the log had when the read began. Having reached it, a reader goes on to the end of
    then, before all is well: a value below the first end that was replaced meanwhile may have been compacted away
    before it was read; what replaced it is committed, and lies below the second end.

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
        self.since = since  # where it was to begin; the log may have begun later
        self.stable = stable
        self._starts = starts
        self._ends = ends
        self._targets = ends
        self._stage: Stage = "first target"
        self._accepted = False

    # ---------------------------------------------------------------- what happens to it

    def note_progress(self) -> bool:
        """The table has moved on: whether it is caught up just now."""
        if self._stage in ("first target", "second target") and self.reached(self._targets):
            self._stage = "aiming again" if self._stage == "first target" else "caught up"
            return self.caught_up
        return False

    def aim(self, then: float, stable: Mapping[int, int]) -> None:
        """Take the last stable offsets as the second target; ``then`` is when they were asked for."""
        self._targets = self.stable = stable
        self.absence.ended(then, stable)
        self._stage = "second target"

    def accept_incomplete(self) -> None:
        """Count it as complete where it stands, though an open transaction hides something."""
        self._accepted = True

    def observed(
        self, then: float, described: TopicDescription, ends: Mapping[int, int], stable: Mapping[int, int]
    ) -> None:
        """So the topic was then, or later."""
        self.described, self._ends, self.stable = described, ends, stable
        self.absence.ended(then, stable)

    # ---------------------------------------------------------------- how far it is

    @property
    def aiming_again(self) -> bool:
        """Whether it has reached the first target, and is to be given the second one."""
        return self._stage == "aiming again"

    @property
    def caught_up(self) -> bool:
        """Whether the table holds all that the log held at the start."""
        return self._stage == "caught up"

    @property
    def complete(self) -> bool:
        """Whether it is caught up, or as far as open transactions let it be."""
        return self.caught_up or self._accepted

    @property
    def blocked(self) -> bool:
        """Whether all that is missing to caught up is hidden by open transactions."""
        shortfalls = self.shortfalls()
        return bool(shortfalls) and all(shortfall.blocked for shortfall in shortfalls)

    @property
    def hidden(self) -> list[Shortfall]:
        """The partitions in which an open transaction hides what follows, as of the last look at the topic."""
        return [shortfall for shortfall in self.shortfalls(self._ends) if shortfall.blocked]

    @property
    def lag(self) -> dict[int, int]:
        """Offsets to the end of the log, by partition, as of the last look at the topic."""
        positions = self.table.positions
        return {p: max(0, end - positions.get(p, 0)) for p, end in sorted(self._ends.items())}

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read and offsets to read in all until caught up."""
        positions, starts = self.table.positions, self._starts
        total = sum(max(0, end - starts.get(p, 0)) for p, end in self._targets.items())
        done = sum(
            min(positions.get(p, 0), end) - starts.get(p, 0)
            for p, end in self._targets.items()
            if end > starts.get(p, 0)
        )
        return done, total

    def reached(self, targets: Mapping[int, int]) -> bool:
        """Whether each partition has been read up to its target."""
        return Progress(self.table.positions).reached(targets)

    def shortfalls(self, targets: Mapping[int, int] | None = None) -> list[Shortfall]:
        """What is missing to a target (default: to caught up), and what holds it up."""
        # A target may lie beyond the end of the log, which no transaction is to blame for.
        hiding = {p: stable for p, stable in self.stable.items() if stable < self._ends.get(p, stable)}
        return Progress(self.table.positions).shortfalls(self._targets if targets is None else targets, hiding)
