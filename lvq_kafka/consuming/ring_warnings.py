"""Report that a consumer evicts messages, once each time that it begins to (R12)."""

from __future__ import annotations

import logging

from lvq_kafka.core.ledger.ring import Ring

__all__ = ["RingWarnings"]

logger = logging.getLogger("lvq_kafka.consumer")


class RingWarnings:
    """Checks a consumer's ring periodically.

    Args:
        name: the queue's.
        ring: None if the queue is no ring.
    """

    def __init__(self, name: str, ring: Ring | None) -> None:
        self._name = name
        self._ring = ring
        self._crossings = 0
        self._said = False  # whether a message was reported that is too large

    def check(self) -> None:
        """Report what is new."""
        ring = self._ring
        if ring is None:
            return
        crossings, oversized = ring.crossings, ring.oversized
        if crossings > self._crossings:
            self._crossings = crossings
            logger.warning(
                "the consumer of %s evicts messages: the queue holds more than its ring, %s. The lowest that wait make "
                "room for newer ones; this is said again after a fifth of the ring was free",
                self._name,
                ring.limits.described,
            )
        if oversized is not None and not self._said:
            self._said = True
            logger.warning(
                "the consumer of %s evicted the message at offset %d of partition %d, which has %d bytes where the "
                "partition may hold %d; others that are too large are only counted. Another client wrote it: "
                "producers of this library refuse such messages",
                self._name,
                oversized.offset,
                oversized.partition,
                oversized.size,
                oversized.share,
            )
