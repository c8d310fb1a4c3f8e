"""Log lines of a consumer that begins to evict, or to fail to page (R12)."""

from __future__ import annotations

import logging

from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.ledger.ring import Ring
from lvq_kafka.runtime.notice import Notice

__all__ = ["PagingWarnings", "RingWarnings"]

logger = logging.getLogger("lvq_kafka.consumer")


class RingWarnings:
    """Checks a consumer's ring periodically.

    Args:
        name: the queue's name.
        ring: None if the queue is no ring.
    """

    def __init__(self, name: str, ring: Ring | None) -> None:
        self._name = name
        self._ring = ring
        self._crossings = 0
        self._oversized = Notice()

    def check(self) -> None:
        """Report new evictions."""
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
        if oversized is not None and self._oversized.begins():
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


class PagingWarnings:
    """Checks a consumer's pages periodically.

    Args:
        name: the queue's name.
        shared: the consumer's shared state.
    """

    def __init__(self, name: str, shared: SharedState) -> None:
        self._name = name
        self._shared = shared

    def check(self) -> None:
        """Report new failures or their end, and free room on the disk."""
        pages = self._shared.pages
        if pages is None:
            return
        pages.trim()
        failure = pages.failure
        with self._shared as core:
            known = core.obstacles.of("paging")
            if failure:
                core.obstacles.report("paging", failure)
            else:
                core.obstacles.clear("paging")
        if failure and not known:
            logger.warning("the consumer of %s: %s", self._name, failure)
        elif known and not failure:
            logger.info("the consumer of %s pages to disk again", self._name)
