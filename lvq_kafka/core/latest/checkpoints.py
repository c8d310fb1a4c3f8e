"""Cuts of the past that a store remembers, to tell what has changed since (R44)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["Checkpoint", "Checkpoints"]

_MOST = 2048


class Checkpoint(NamedTuple):
    """A cut of a store's past."""

    number: int
    """Grows from one to the next."""
    moment: int
    """The time by which messages were due and had expired, in ms since the epoch."""
    positions: Mapping[int, int]
    """The next offset of each partition."""

    def precedes(self, offsets: Mapping[int, int]) -> bool:
        """Return whether a reader that had reached these offsets had read all that this cut has.

        A reader without the offset of a partition did not know of it.
        """
        return all(offsets.get(partition, -1) >= at for partition, at in self.positions.items())


class Checkpoints:
    """The checkpoints of a store, oldest first.

    A change between two of them has the number of the first. A reader at some point lacks the changes that have the
    number of the last checkpoint that precedes it, or a later one. So fewer checkpoints are as right, but less exact.
    """

    def __init__(self, line: Iterable[Checkpoint] = ()) -> None:
        self._line = list(line)

    def __bool__(self) -> bool:
        return bool(self._line)

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self._line)

    @property
    def first(self) -> Checkpoint:
        """The oldest one. Of what was before, not everything is known."""
        return self._line[0]

    @property
    def last(self) -> Checkpoint:
        """The newest one."""
        return self._line[-1]

    def add(self, moment: int, positions: Mapping[int, int]) -> Checkpoint:
        """Add the cut that is current now, and return it."""
        number = self.last.number + 1 if self._line else 0
        added = Checkpoint(number, moment, dict(positions))
        self._line.append(added)
        return added

    def forget(self, horizon: int) -> list[Checkpoint]:
        """Drop old checkpoints, and return them.

        These are the ones that only points before this time, in ms, need; and some others if there are too many.
        """
        line = self._line
        old = 0
        while old + 1 < len(line) and line[old + 1].moment < horizon:
            old += 1
        dropped, line = line[:old], line[old:]
        if len(line) > _MOST:
            half = len(line) // 2
            dropped += line[1:half:2]
            line = line[:half:2] + line[half:]
        self._line = line
        return dropped

    def preceding(self, offsets: Mapping[int, int], moment: int | None) -> Checkpoint | None:
        """Return the last checkpoint whose offsets a reader had reached.

        None if it is not known what has changed since.

        Args:
            offsets: the offsets that the reader had reached.
            moment: its time, in ms; None if messages neither expire nor are scheduled.
        """
        if not self._line or (moment is not None and moment < self.first.moment):
            return None
        return next((one for one in reversed(self._line) if one.precedes(offsets)), None)
