"""Why a consumer hands nothing out, where that looks like a mistake: said in the log, once."""

from __future__ import annotations

import logging
import math

from lvq_kafka.consuming.custody import Custody

__all__ = ["Standstill"]

logger = logging.getLogger("lvq_kafka.consumer")

_PARTITIONLESS = 15.0  # seconds; the session of a member that died is over before, and its partitions are moved
_UNSETTLED = 30.0  # seconds


class _Lasting:
    """Something that is told of once, when it has lasted for so many seconds."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._due = now + seconds

    def is_due(self, now: float, so: bool) -> bool:
        """Whether it is to be told of now. ``so`` says whether it still, or again, is so."""
        if not so:
            self._due = max(self._due, now + self._seconds)
        elif now >= self._due:
            self._due = math.inf
            return True
        return False


class Standstill:
    """Looks at a consumer now and then. It says once that it has no partition, and once that all it may hold is held.

    Neither is an error: a spare consumer waits for the others' partitions, and work may take its time. But without a
    word who starts one consumer too many, or forgets to settle, sees messages stop and nothing else.
    """

    def __init__(self, name: str, custody: Custody, now: float) -> None:
        self._name = name
        self._custody = custody
        self._partitionless = _Lasting(_PARTITIONLESS, now)
        self._unsettled = _Lasting(_UNSETTLED, now)
        self._delivered = -1

    def look(self, now: float) -> None:
        """See how it stands. ``now`` in seconds of a clock that never goes back."""
        custody = self._custody
        if self._partitionless.is_due(now, not custody.partitions):
            logger.warning(
                "the consumer of %s has had no partition for %g s: each has one consumer at a time, so others may have "
                "them all. Share one consumer between threads or tasks, or declare a queue on more partitions",
                self._name,
                _PARTITIONLESS,
            )
        before, self._delivered = self._delivered, custody.delivered
        if self._unsettled.is_due(now, custody.is_full and self._delivered == before):
            logger.warning(
                "the consumer of %s hands nothing out: all %d messages that may be in work (max_in_work) are held, and "
                "none was settled for %g s. Settle each: ack, release or reject it, or handle it in a with block",
                self._name,
                custody.limits.max_in_work,
                _UNSETTLED,
            )
