"""Turns: whether a consumer hands out the message that comes first among those that it knows to wait (R4, R20, R36).

A journal says what was handed out, not what waited meanwhile. A message has certainly waited for its turn if its
process has handed out a later one of the partition before, so that it had read it; and hands out the message itself
afterwards, in the same assignment. Whatever else may have kept it back excuses the consumer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf

from tests.torture.feed import Place, group_of
from tests.torture.history import Hold
from tests.torture.tenures import Tenures

__all__ = ["Turns"]

_WINDOW = 17_571  # offsets above the base within which the order of ranks is exact; no base is below 0
_SLACK = 1.0  # seconds from the end of a delivery until the consumer knows of it


class Turns:
    """The order in which each process was handed messages.

    Args:
        ranks: the rank of each message, a lower one first; None if they come in the order of arrival.
        grouped: whether messages have groups. Then the order is that within a group.
        buried: keys of messages that have a dead letter: nobody knows for how long each was on its way.
        find: called with each fault.
    """

    def __init__(
        self,
        tenures: Tenures,
        *,
        ranks: Mapping[Place, int] | None,
        grouped: bool,
        buried: Collection[str],
        find: Callable[[str], None],
    ) -> None:
        self._tenures = tenures
        self._ranks = ranks
        self._grouped = grouped
        self._buried = buried
        self._find = find
        self.waited = 0
        """Times that a message that waited was compared with one that was handed out meanwhile."""

    def check(self, holds: Iterable[Hold]) -> None:
        """Check that no message was handed out while a better one waited."""
        by_life: dict[str, list[Hold]] = defaultdict(list)
        for hold in holds:
            # Messages set aside, to be prefetched or counted first, keep the order that they had then.
            if not (hold.ahead or hold.life.counts):
                by_life[hold.life.name].append(hold)
        for taken in by_life.values():
            self._check(sorted(taken, key=lambda hold: hold.number))

    def _check(self, taken: Sequence[Hold]) -> None:
        by_key: dict[tuple[int, str], list[Hold]] = defaultdict(list)
        for hold in taken:
            by_key[hold.partition, hold.key].append(hold)
        for at, hold in enumerate(taken):
            tenure = self._tenures.of(hold)
            if tenure is None or hold.offset >= _WINDOW or hold.key in self._buried:
                continue
            if hold.redelivered:
                continue  # one that failed twice, at any consumer, lets others go in between
            of_key = by_key[hold.partition, hold.key]
            if any(before.offset == hold.offset and before.number < hold.number for before in of_key):
                continue  # it came back, maybe after a delay
            since = self._read_by(hold, taken[:at], tenure[0])
            busy = [(one.asked, _end(one) + _SLACK) for one in of_key if one.number < hold.number]
            for other in reversed(taken[:at]):
                if other.asked <= since:
                    break
                if not any(begin <= other.acquired and other.asked <= end for begin, end in busy):
                    self._compare(hold, other)

    def _read_by(self, hold: Hold, before: Sequence[Hold], begin: float) -> float:
        """Return a time by which the process had read a message; infinite if none is known."""
        return min(
            (
                other.acquired
                for other in before
                if other.partition == hold.partition and other.offset > hold.offset and other.asked >= begin
            ),
            default=inf,
        )

    def _compare(self, hold: Hold, other: Hold) -> None:
        """Check that a message which waited comes after another one that was handed out meanwhile."""
        if self._grouped and not (hold.session == other.session and _group(hold) == _group(other) is not None):
            return
        mine, its = self._rank(hold), self._rank(other)
        if mine is None or its is None:
            return
        self.waited += 1
        later = its == mine and hold.partition == other.partition and other.offset > hold.offset
        if its > mine or later:
            rule = "R36" if self._grouped else "R4" if self._ranks is None else "R20"
            ranks = "" if self._ranks is None else f", of rank {mine} and not {its}"
            self._find(f"{rule}: {other} was handed out while {hold}{ranks} waited")

    def _rank(self, hold: Hold) -> int | None:
        return 0 if self._ranks is None else self._ranks.get((hold.partition, hold.offset))


def _end(hold: Hold) -> float:
    """Return a time from which on the next message of a key may certainly be handed out."""
    # A lock lasts from when the message is handed out, and `Hold.let_go` counts from when it was asked for.
    waited = hold.acquired - hold.asked if hold.why == "timed out" else 0.0
    return hold.durable if hold.rejected else hold.let_go + waited


def _group(hold: Hold) -> str | None:
    return group_of(hold.key) if hold.key.startswith("key-") else None
