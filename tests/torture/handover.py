"""Orderly hand-overs: a process that gives up a partition in peace commits all its acks first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf

from tests.torture.history import Hold, Life
from tests.torture.journal import Kind

__all__ = ["HandOvers"]

_COMMIT = 0.5  # seconds before the partition goes; a later ack may miss the last commit
_TROUBLE = 10.0  # seconds before the partition goes; trouble in that time may have prevented the last commit
_HARMLESS = ("was rejected and", "evicts messages")  # warnings, but no trouble


class HandOvers:
    """Partitions that processes gave up in order.

    Args:
        outages: times when the broker could not answer, from and to.
    """

    def __init__(self, outages: Iterable[tuple[float, float]]) -> None:
        self._outages = list(outages)
        self._lives: dict[int, _Goings] = {}

    def done(self, hold: Hold) -> float:
        """Return when the holder of an acked message gave up the partition and committed the ack; infinite if never."""
        if not hold.acked or hold.refused:
            return inf
        life = hold.life
        gone = self._goings(life).given_up(hold)
        return gone if gone < inf and self.in_peace(life, gone) else inf

    def in_peace(self, life: Life, gone: float) -> bool:
        """Return whether a process and the broker had no trouble in the time before a partition went."""
        begin = gone - _TROUBLE
        if any(first < gone and begin < last for first, last in (*self._outages, *life.stops)):
            return False
        return not self._goings(life).trouble(begin, gone)

    def _goings(self, life: Life) -> _Goings:
        if id(life) not in self._lives:
            self._lives[id(life)] = _Goings(life)
        return self._lives[id(life)]


class _Goings:
    """Times when one process gave up partitions, and when it was in trouble."""

    def __init__(self, life: Life) -> None:
        self._gone: dict[int, list[tuple[float, bool]]] = {}
        self._closing: list[float] = []
        self._troubles: list[float] = []
        for event in life.events:
            match event.kind:
                case Kind.GONE:
                    for partition in event.facts["partitions"]:
                        self._gone.setdefault(partition, []).append((event.at, event.facts["how"] == "given up"))
                case Kind.CLOSING:
                    self._closing.append(event.at)
                case Kind.FAILED | Kind.DIED:
                    self._troubles.append(event.at)
                case Kind.SAID if not _is_harmless(event.facts["text"]):
                    self._troubles.append(event.at)

    def given_up(self, hold: Hold) -> float:
        """Return when the partition went, if the ack came early enough for the last commit; otherwise infinity."""
        gone, in_order = _next(self._gone.get(hold.partition, ()), hold.let_go)
        early = hold.let_go + _COMMIT <= gone or any(hold.let_go <= at <= gone for at in self._closing)
        return gone if in_order and early else inf

    def trouble(self, begin: float, end: float) -> bool:
        """Return whether the process was in trouble between these times."""
        return bisect_right(self._troubles, end) > bisect_right(self._troubles, begin)


def _is_harmless(text: str) -> bool:
    return text.startswith("INFO") or any(words in text for words in _HARMLESS)


def _next(goings: Sequence[tuple[float, bool]], after: float) -> tuple[float, bool]:
    return next((going for going in goings if going[0] >= after), (inf, False))
