"""What open transactions hide from a stream: told once, when it has lasted."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.core.progress import Shortfall

__all__ = ["LASTS", "Hidden"]

LASTS = 5.0
"""Seconds in which transactions that are at work end."""


class Hidden:
    """Looks at the ends of a log now and then. A transaction that is open keeps the last stable offset where it is."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], float] = {}
        self._reported: set[tuple[int, int]] = set()

    def newly_hidden(self, stable: Mapping[int, int], ends: Mapping[int, int], now: float) -> list[Shortfall]:
        """Where a transaction has been open for `LASTS` seconds, and was not told of yet.

        Args:
            stable: the last stable offset of each partition that is read.
            ends: where their logs end. Which of both was asked first makes no difference.
            now: seconds of a clock that never goes back.
        """
        here = [(p, offset) for p, offset in stable.items() if offset < ends.get(p, 0)]
        self._since = {place: self._since.get(place, now) for place in here}
        self._reported.intersection_update(here)
        due = [place for place in here if now - self._since[place] >= LASTS and place not in self._reported]
        self._reported.update(due)
        return [Shortfall(p, offset, ends[p], offset) for p, offset in sorted(due)]
