"""The conditions for reading on from values that were kept across a restart (R40)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lvq_kafka.core.text.quoting import quoted

__all__ = ["ClockReading", "Footing", "Terms"]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A moment by two clocks.

    The time of day can be set, and the uptime ends with the system.
    """

    uptime: float
    """Seconds since the system started."""
    time: float
    """Seconds since the epoch."""
    boot: str
    """The id of this start of the system; empty if unknown."""

    def since(self, earlier: ClockReading) -> float:
        """Return the seconds since an earlier moment; infinity if the clocks cannot tell.

        Where both clocks tell, the longer time counts.
        """
        ages = [self.time - earlier.time]
        if self.boot and self.boot == earlier.boot:
            ages.append(self.uptime - earlier.uptime)
        return float("inf") if min(ages) < -_APART else max(0.0, *ages)

    def before(self, seconds: float) -> ClockReading:
        """Return the moment that was so long before."""
        return ClockReading(self.uptime - seconds, self.time - seconds, self.boot)


_APART = 1.0  # seconds by which the time of day may be set back, as it is when a clock is corrected


@dataclass(frozen=True, slots=True)
class Terms:
    """The meaning of a store's values: the queue, its options, and the selection, by name."""

    said: Mapping[str, str]
    lasting: bool = True
    """False if a part of it is a function of the program's, which may be another one after a restart."""

    def difference(self, earlier: Mapping[str, str]) -> str | None:
        """Return in words how other terms differed from these; None if they were the same."""
        if not self.lasting:
            return "`where` or `undecodable` may select other values in another process"
        for name in (*self.said, *earlier):
            if self.said.get(name) != earlier.get(name):
                return f"the {name} was {_shown(earlier.get(name))}, and is {_shown(self.said.get(name))}"
        return None

    def serves(self, earlier: Mapping[str, str]) -> bool:
        """Return whether values kept under other terms may be shown while all is read again."""
        return self.lasting and {**self.said, _TIMES: ""} == {**earlier, _TIMES: ""}


_TIMES = "time rule"
"""The name among terms of the rule by which messages expire and are due (R39)."""


def _shown(value: str | None) -> str:
    return "not said" if value is None else quoted(value)


@dataclass(frozen=True, slots=True)
class Footing:
    """The knowledge that a store had of its topic when it was last written."""

    topic_id: str
    partitions: int
    retention: float
    """Seconds for which the topic kept deletes."""
    known: Mapping[int, ClockReading]
    """By partition, the last moment at which everything below its position was known."""
    newest: int = 0
    """The newest append time that was seen, in ms."""

    def ages(self, now: ClockReading) -> dict[int, float]:
        """Return by partition how long ago its end was seen, in seconds."""
        return {partition: now.since(moment) for partition, moment in self.known.items()}

    def to_note(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_note(cls, note: bytes) -> Footing:
        """Parse the result of `to_note`."""
        said: dict[str, Any] = json.loads(note)
        known = {int(partition): ClockReading(**moment) for partition, moment in said.pop("known").items()}
        return cls(known=known, **said)
