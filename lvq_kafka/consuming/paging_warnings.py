"""Report that a consumer cannot page values to disk, once each time that it begins (R12)."""

from __future__ import annotations

import logging

from lvq_kafka.consuming.shared_state import SharedState

__all__ = ["PagingWarnings"]

logger = logging.getLogger("lvq_kafka.consumer")


class PagingWarnings:
    """Checks a consumer's pages periodically.

    Args:
        name: the queue's.
        shared: the consumer's shared state.
    """

    def __init__(self, name: str, shared: SharedState) -> None:
        self._name = name
        self._shared = shared
        self._fails = False

    def check(self) -> None:
        """Report what is new, and give room on the disk back."""
        pages = self._shared.pages
        if pages is None:
            return
        pages.trim()
        failure, failed = pages.failure, self._fails
        self._fails = bool(failure)
        if self._fails and not failed:
            with self._shared as core:
                core.obstacles.report("paging", failure)
            logger.warning("the consumer of %s: %s", self._name, failure)
        elif failed and not self._fails:
            with self._shared as core:
                core.obstacles.clear("paging")
            logger.info("the consumer of %s pages to disk again", self._name)
