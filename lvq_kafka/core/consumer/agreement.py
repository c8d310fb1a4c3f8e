"""Agreement of a member with its group about which partitions it has.

In the consumer protocol, the coordinator says once what a member gets or has to give up, in the answer to a heartbeat.
If that answer is lost, the client (librdkafka 2.16.0) sends the heartbeat again, but does not ask for all of its
assignment. So the member never hears of it, and nobody else gets the partition. Therefore, when an answer may have been
missed, what the member has heard of is compared with what its group says, more than once: the heartbeat itself may
arrive late. If they go on differing, the member leaves the group and joins it again. See
docs/decisions/044-a-member-compares-its-assignment.md.
"""

from __future__ import annotations

__all__ = ["Agreement"]

_LOOKS = (0.0, 1.0, 5.0, 15.0, 60.0)  # seconds after an answer may have been missed
_AGAIN = 1.0  # seconds until the next comparison after a difference
# Seconds for a difference to vanish by itself, as in a rebalance. A member hears of it with its next heartbeat; by
# default, there is one every 5 s.
_PATIENCE = 10.0
_NONE = frozenset[int]()


class Agreement:
    """Judges by the clock whether a member should join its group again."""

    def __init__(self) -> None:
        self._unheard = 0
        self._due: list[float] = []
        self._difference = (_NONE, _NONE)
        self._since = 0.0

    def doubts(self, unheard: int, now: float) -> bool:
        """Return whether more answers may have been missed than before."""
        more = unheard != self._unheard
        if more:
            self._unheard, self._due = unheard, [now + after for after in _LOOKS]
        return more

    def is_due(self, now: float) -> bool:
        """Return whether it is time to compare."""
        return bool(self._due) and now >= self._due[0]

    def differs_for_long(
        self, heard: frozenset[int], assigned: frozenset[int], target: frozenset[int], now: float
    ) -> bool:
        """Return whether the member has long heard of something else than its group says.

        Args:
            heard: the partitions that the member has heard of.
            assigned: the partitions that it has, as its group says. Those among them that it has not heard of are lost.
            target: the partitions that it should have. It should give up others, even if it has not heard of that.
            now: the current time, in seconds.
        """
        self._due = [due for due in self._due if due > now]
        difference = (assigned - heard, heard - target)
        if difference != self._difference:
            self._difference, self._since = difference, now
        if difference == (_NONE, _NONE):
            return False
        self._due.insert(0, now + _AGAIN)
        return now - self._since >= _PATIENCE
