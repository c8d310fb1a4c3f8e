"""Judging by the clock whether a reader missed deletes (R18), or has stalled (G5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lvq_kafka.core.log.records import Fetch

__all__ = ["PRESENT", "STALLED", "Absence", "Lapse"]

PRESENT = 10.0  # seconds; a reader that checked the topic since then is not away, however short the retention

STALLED = 10.0
"""Seconds without progress after which a partition with unread records has stalled.

A reader gives up on a broker that does not answer after the same time.
"""
_TRUSTED = 0.9  # of the retention; the rest allows for clocks that run at different speeds
_FRUITLESS = 60.0  # seconds; a read that was current to the log's end for longer than this was useful


@dataclass(frozen=True, slots=True)
class Lapse:
    """A read that was too late: deletes in its range may already be compacted away."""

    partition: int
    away: float
    """Seconds since the partition was last known to its end."""
    retention: float
    """Seconds for which the topic keeps deletes."""
    fruitless: bool
    """True if this read was hardly ever current: the next one is unlikely to be faster."""

    def __str__(self) -> str:
        return (
            f"partition {self.partition} was last known to its end {self.away:.1f} s ago, but the topic keeps "
            f"deletes for {self.retention:g} s (delete.retention.ms): some since then may be gone"
        )


class _Known:
    """The state of one partition."""

    __slots__ = ("at", "began", "ends", "moved", "position")

    def __init__(self, now: float, position: int, age: float | None) -> None:
        self.moved = now
        self.at = now - (age or 0.0)
        """The time at which everything below the position was known."""
        self.began = now if age is None else float("-inf")
        self.position = position
        self.ends: deque[tuple[float, int]] = deque(maxlen=2)  # (time, end of the log), to be reached next

    def reach(self) -> None:
        while self.ends and self.ends[0][1] <= self.position:
            self.at = max(self.at, self.ends.popleft()[0])


class Absence:
    """Judge by the clock whether reads of a topic's partitions are still complete.

    A broker keeps a delete for ``delete.retention.ms`` from its first cleaning on, and does not clean beyond the last
    stable offset. So a reader that at time *t* had read a partition up to its last stable offset misses no delete in
    the records that it reads within that time after *t*. A reader that has just started holds no records, so it has
    missed no delete.

    A later read is too late if offsets are missing in it, since one of them may have been a delete. If no offset is
    missing, no delete is.

    Args:
        retention: seconds for which the topic keeps deletes.
    """

    def __init__(self, retention: float) -> None:
        self._retention = self._before = retention
        self._asked = float("-inf")  # when the retention was last asked for, after an absence
        self._known: dict[int, _Known] = {}

    def track(self, now: float, positions: Mapping[int, int], ages: Mapping[int, float] | None = None) -> None:
        """Start tracking partitions that are read from these positions.

        Args:
            now: the time.
            positions: the positions.
            ages: if records from below are held: the seconds since everything below was known, by partition.
        """
        self._known |= {
            partition: _Known(now, position, None if ages is None else ages.get(partition, float("inf")))
            for partition, position in positions.items()
        }

    def ages(self, now: float) -> dict[int, float]:
        """Return the seconds since everything below its position was known, by partition."""
        return {partition: now - known.at for partition, known in list(self._known.items())}

    def untrack(self, partitions: Collection[int]) -> None:
        """Stop tracking partitions that are no longer read."""
        for partition in partitions:
            self._known.pop(partition, None)

    @property
    def retention(self) -> float:
        """Seconds for which the topic keeps deletes."""
        return self._retention

    def keeps(self, retention: float) -> None:
        """Set how long the topic keeps deletes.

        Until the next call, the previous retention counts if it was shorter: deletes may already be compacted away.
        """
        self._before, self._retention = self._retention, retention

    def outdated(self, now: float) -> bool:
        """Return whether the retention must be asked for before the latest read is judged.

        It may have been changed during an absence. Call `asked` afterwards.
        """
        return self.away(now) > PRESENT and now - self._asked > PRESENT

    def asked(self, now: float, retention: float) -> None:
        """Record the retention that the topic reported, or the old one if it may not be asked."""
        self._asked = now
        self.keeps(retention)

    def ended(self, then: float, ends: Mapping[int, int]) -> None:
        """Record last stable offsets that were current at ``then`` or later."""
        for partition, end in ends.items():
            known = self._known.get(partition)
            if known is not None:
                if len(known.ends) == 2:  # the first must be reached eventually, however fast the log grows
                    known.ends.pop()
                known.ends.append((then, end))
                known.reach()

    def read(self, now: float, fetch: Fetch) -> Lapse | None:
        """Record a fetch, or return the lapse for which it has to be discarded.

        The lapse names the first partition for which the fetch was too late.
        """
        for partition, position in fetch.positions.items():
            known = self._known.get(partition)
            if known is None or position <= known.position:
                continue
            away = now - known.at
            if away > self.trusted and _holes(fetch, partition, known.position, position):
                return Lapse(partition, away, self._kept, fruitless=known.at - known.began < _FRUITLESS)
            known.position, known.moved = position, now
            known.reach()
        return None

    def stalled(self, now: float) -> dict[int, int]:
        """Return the positions of stalled partitions.

        They had unread records `STALLED` seconds ago, and have not moved since.
        """
        return {
            partition: known.position
            for partition, known in list(self._known.items())
            if known.ends and now - max(known.moved, known.ends[0][0]) > STALLED
        }

    def was_busy(self, seconds: float) -> None:
        """Leave out a time in which nobody asked for records, when it is judged whether any came."""
        for known in self._known.values():
            known.moved += seconds

    def try_again(self, now: float) -> None:
        """Give stalled partitions as much time again: they get another connection."""
        for partition in self.stalled(now):
            self._known[partition].moved = now

    def away(self, now: float) -> float:
        """Return the longest time, in seconds, for which a partition was not known to its end.

        Any thread may call it.
        """
        return now - min((known.at for known in list(self._known.values())), default=now)

    @property
    def trusted(self) -> float:
        """Seconds for which a reader may be away."""
        return _TRUSTED * self._kept

    @property
    def _kept(self) -> float:
        return min(self._retention, self._before)


def _holes(fetch: Fetch, partition: int, start: int, end: int) -> bool:
    batch = fetch.batch
    there = sum(p == partition and offset >= start for p, offset in zip(batch.partitions, batch.offsets))
    return there < end - start
