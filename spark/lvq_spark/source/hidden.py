"""Records that open transactions hide from a stream, reported once they stay hidden."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.core.facts import Shortfall

__all__ = ["LASTS", "Hidden"]

LASTS = 5.0
"""Seconds within which active transactions usually end."""


class Hidden:
    """A watch for open transactions, which hold back the last stable offset.

    It is called with the ends of the log now and then.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], float] = {}
        self._reported: set[tuple[int, int]] = set()

    def newly_hidden(self, stable: Mapping[int, int], ends: Mapping[int, int], now: float) -> list[Shortfall]:
        """Return the partitions newly found blocked for `LASTS` seconds by a transaction.

        Args:
            stable: the last stable offset of each partition that is read.
            ends: the ends of their logs. The order in which the two were requested makes no difference.
            now: seconds of a monotonic clock.
        """
        here = [(p, offset) for p, offset in stable.items() if offset < ends.get(p, 0)]
        self._since = {place: self._since.get(place, now) for place in here}
        self._reported.intersection_update(here)
        due = [place for place in here if now - self._since[place] >= LASTS and place not in self._reported]
        self._reported.update(due)
        return [Shortfall(p, offset, ends[p], offset) for p, offset in sorted(due)]
