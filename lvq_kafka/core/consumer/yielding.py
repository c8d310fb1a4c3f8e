"""The decision to leave a group while transactions cannot begin, and to join it again."""

from __future__ import annotations

__all__ = ["PATIENCE", "Yielding"]

_NEVER = float("-inf")

PATIENCE = 30.0
"""Seconds for which transactions may fail to begin, and the longest gap between attempts.

A program with a longer gap has stopped trying. This is longer than a coordinator failover: a dead broker counts as
alive for another 9 s (``broker.session.timeout.ms``), the next one loads its transactions, and clients wait up to 10 s
before they reconnect. A rolling restart is a series of these, with work in between.
"""


class Yielding:
    """Judge by the clock whether a consumer is useless to its partitions.

    The time counts from the first of several failed attempts in a row, as long as attempts continue. It restarts when
    messages are consumed outside of transactions, or requested there while none waits.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why the consumer has left, or is about to; empty if it has not."""
        self._trying = 0
        self._since = 0.0
        self._tried_at = _NEVER  # when the last attempt failed
        self._settled = 0

    @property
    def away(self) -> bool:
        """True once the consumer has left, or is about to."""
        return bool(self.reason)

    def leave(self, now: float, settled: int, error: str) -> str:
        """Leave the partitions to others, and return the reason.

        Args:
            error: why no transaction begins.
        """
        self.reason = (
            "it leaves its partitions to others: none of its transactions could begin for "
            f"{self.lasted(now, settled):.0f} s{f' ({error})' if error else ''}. It rejoins when one begins, or when "
            "a message is acquired outside of transactions. Check whether the transaction coordinator can be "
            "reached from here, and keep trying"
        )
        return self.reason

    def attempt(self, now: float, settled: int) -> None:
        """Note that a transaction is about to begin; ``settled`` messages were settled so far."""
        if not self._trying and now - self._tried_at > PATIENCE:
            self._restart(now, settled)
        self._trying += 1

    def failed(self, now: float) -> None:
        """Note that it failed to begin."""
        self._trying -= 1
        self._tried_at = now

    def begun(self, now: float, settled: int) -> None:
        """Note that it began: the consumer is useful, and part of its group again."""
        self._trying -= 1
        self._tried_at, self.reason = _NEVER, ""
        self._restart(now, settled)

    def decided(self, settled: int) -> None:
        """Note that a transaction ended and settled this many messages."""
        self._settled += settled

    def asked(self, now: float) -> None:
        """Note a request that found no messages: the consumer is part of its group again."""
        self._since, self.reason = now, ""

    def excused(self, now: float) -> None:
        """Note that no other consumer could do more right now."""
        self._since = now

    def lasted(self, now: float, settled: int) -> float:
        """Return for how many seconds the consumer was useless; 0 if it is not, or nobody tries."""
        if settled != self._settled:
            self._restart(now, settled)
        if self._trying:
            return now - self._since
        return self._tried_at - self._since if now - self._tried_at <= PATIENCE else 0.0

    def is_due(self, now: float, settled: int) -> bool:
        """Return whether the consumer has been useless for long enough to leave."""
        return self.lasted(now, settled) >= PATIENCE

    def _restart(self, now: float, settled: int) -> None:
        self._since, self._settled = now, settled
