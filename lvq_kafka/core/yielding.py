"""When a consumer whose transactions cannot begin leaves its partitions to others, and when it wants them back."""

from __future__ import annotations

__all__ = ["PATIENCE", "Yielding"]

_NEVER = float("-inf")

PATIENCE = 30.0
"""Seconds for which transactions may fail to begin, and between two attempts of a program that goes on trying.

Longer than a coordinator's fail-over: a broker that dies counts for another 9 s (``broker.session.timeout.ms``), the
next one loads its transactions, and clients wait up to 10 s before they connect again. A rolling restart is a row of
these, with work in between.
"""


class Yielding:
    """Judges by the clock whether a consumer is of no use to its partitions. It is not thread-safe.

    Time counts from the first of the attempts that have failed in a row, while there are attempts. It begins again
    whenever something is consumed outside of transactions, or somebody looks there and finds nothing that waits.
    """

    def __init__(self) -> None:
        self.away = False
        """Whether the consumer has left, or is about to."""
        self._trying = 0
        self._since = 0.0
        self._tried_at = _NEVER  # when the last attempt failed
        self._settled = 0

    def attempt(self, now: float, settled: int) -> None:
        """A transaction is about to begin; so many messages were settled up to now."""
        if not self._trying and now - self._tried_at > PATIENCE:
            self._restart(now, settled)
        self._trying += 1

    def failed(self, now: float) -> None:
        """It has not begun."""
        self._trying -= 1
        self._tried_at = now

    def begun(self, now: float, settled: int) -> None:
        """It has: the consumer is of use, and part of its group again."""
        self._trying -= 1
        self._tried_at, self.away = _NEVER, False
        self._restart(now, settled)

    def decided(self, settled: int) -> None:
        """A transaction is over, and has settled so many messages."""
        self._settled += settled

    def asked(self, now: float) -> None:
        """Somebody wants messages, and there are none: the consumer is part of its group again."""
        self._since, self.away = now, False

    def excused(self, now: float) -> None:
        """Nobody else could do more just now."""
        self._since = now

    def lasted(self, now: float, settled: int) -> float:
        """For how many seconds the consumer has been of no use; 0 where it is, or nobody tries."""
        if settled != self._settled:
            self._restart(now, settled)
        if self._trying:
            return now - self._since
        return self._tried_at - self._since if now - self._tried_at <= PATIENCE else 0.0

    def is_due(self, now: float, settled: int) -> bool:
        """Whether it has been so for long enough to leave."""
        return self.lasted(now, settled) >= PATIENCE

    def _restart(self, now: float, settled: int) -> None:
        self._since, self._settled = now, settled
