"""How long somebody who reads a log was away from it, and whether deletes may have gone meanwhile (R18)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lvq_kafka.core.records import Fetch

__all__ = ["PRESENT", "Absence", "Lapse"]

PRESENT = 10.0  # seconds; nobody is away who has looked at the topic since, however short a time it keeps deletes for

_TRUSTED = 0.9  # of what the topic keeps deletes for; the rest is for clocks that do not run alike
_IN_VAIN = 60.0  # seconds; a read that knew the end of the log for longer than this was of some use


@dataclass(frozen=True, slots=True)
class Lapse:
    """A reader came too late for what it has just read: deletes in it may have gone before."""

    partition: int
    away: float
    """Seconds since it last knew all of the partition."""
    retention: float
    """Seconds for which the topic keeps deletes."""
    in_vain: bool
    """Whether this read had never got anywhere: the next one is not likely to be any faster."""

    def __str__(self) -> str:
        return (
            f"partition {self.partition} was last known to its end {self.away:.1f} s ago, and the topic keeps deletes "
            f"for {self.retention:g} s (delete.retention.ms): some since then may be gone"
        )


class _Known:
    """What is known of one partition."""

    __slots__ = ("at", "began", "ends", "position")

    def __init__(self, now: float, position: int) -> None:
        self.began = self.at = now
        """When all below the position was known."""
        self.position = position
        self.ends: deque[tuple[float, int]] = deque(maxlen=2)  # when the log ended where; the next ones to be reached

    def reach(self) -> None:
        while self.ends and self.ends[0][1] <= self.position:
            self.at = max(self.at, self.ends.popleft()[0])


class Absence:
    """Judges by the clock what is read of a topic's partitions.

    A broker keeps a delete for ``delete.retention.ms`` from its first cleaning on, and does not clean beyond the last
    stable offset. So somebody who had read a partition at time *t* up to the last stable offset of then, misses no
    delete of what they read on within that time from *t*. Who begins to read knows all of the nothing that they hold.

    What is read later than that is too late where offsets are missing in it: a delete may have been there. Where none
    is, nothing is.

    Args:
        retention: seconds for which the topic keeps deletes.
    """

    def __init__(self, retention: float) -> None:
        self._retention = self._before = retention
        self._asked = float("-inf")  # when the topic was asked for that, once somebody had been away
        self._known: dict[int, _Known] = {}

    def track(self, now: float, positions: Mapping[int, int]) -> None:
        """These partitions are read from these positions on, from now on."""
        self._known |= {partition: _Known(now, position) for partition, position in positions.items()}

    def untrack(self, partitions: Collection[int]) -> None:
        """These are read no more."""
        for partition in partitions:
            self._known.pop(partition, None)

    def keeps(self, retention: float) -> None:
        """The topic keeps deletes for so long now. What was kept for less before may be gone, until the next look."""
        self._before, self._retention = self._retention, retention

    def outdated(self, now: float) -> bool:
        """Whether the topic has to be asked how long it keeps deletes before what was read by now is judged.

        Who was away cannot know otherwise: that may have been changed meanwhile. `asked` follows.
        """
        return self.away(now) > PRESENT and now - self._asked > PRESENT

    def asked(self, now: float, retention: float) -> None:
        """The topic keeps deletes for so long, it has said, or it may not be asked."""
        self._asked = now
        self.keeps(retention)

    def ended(self, then: float, ends: Mapping[int, int]) -> None:
        """At that time, or later, these were the last stable offsets."""
        for partition, end in ends.items():
            known = self._known.get(partition)
            if known is not None:
                if len(known.ends) == 2:  # the first one has to be reached some day, however the log grows meanwhile
                    known.ends.pop()
                known.ends.append((then, end))
                known.reach()

    def read(self, now: float, fetch: Fetch) -> Lapse | None:
        """This was read by now. Returns the first partition that it came too late for; then it is to be thrown away."""
        for partition, position in fetch.positions.items():
            known = self._known.get(partition)
            if known is None or position <= known.position:
                continue
            away = now - known.at
            if away > self.trusted and _holes(fetch, partition, known.position, position):
                return Lapse(partition, away, self._kept, in_vain=known.at - known.began < _IN_VAIN)
            known.position = position
            known.reach()
        return None

    def away(self, now: float) -> float:
        """Seconds since any of the partitions was last known to its end. Any thread may ask."""
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
