"""Periodic reclaiming of consumed messages by a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import TIMEOUT_MAX, Event, Thread

from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.text.quoting import bounded

__all__ = ["AutoReclaim"]

logger = logging.getLogger("lvq_kafka.consumer")


class AutoReclaim:
    """Reclaims in a thread of its own, so that the consumer's thread never waits for it.

    It does nothing while the group's known bases have not moved. A failure is logged once, and the next try follows
    after the interval.

    Args:
        name: the queue's name, for log lines.
        reclaim: removes the messages that all queues on the topic have consumed.
        interval: seconds between tries.
        shared: the consumer's shared state.
    """

    def __init__(self, name: str, reclaim: Callable[[], object], interval: float, shared: SharedState) -> None:
        self._name = name
        self._reclaim = reclaim
        self._interval = min(interval, TIMEOUT_MAX)
        self._shared = shared
        self._reclaimed: dict[int, int] = {}
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"lvq-reclaim-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float | None) -> None:
        """Stop, once a request in flight is answered or ``timeout`` seconds are over."""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not (self._stop.wait(self._interval) or self._shared.failed):
            self._try()

    def _try(self) -> None:
        with self._shared as core:
            bases = {partition: said.base for partition, said in core.durable.items()}
        if bases == self._reclaimed:
            return
        try:
            self._reclaim()
        except Exception as error:  # noqa: BLE001  # whatever fails here, the consumer continues
            self._fail(error)
            return
        self._reclaimed = bases
        with self._shared as core:
            core.obstacles.clear("reclaiming")

    def _fail(self, error: Exception) -> None:
        said = bounded(f"what was consumed cannot be removed from {self._shared.topic}: {error}")
        with self._shared as core:
            known = core.obstacles.of("reclaiming")
            core.obstacles.report("reclaiming", said)
        if not (known or self._stop.is_set()):
            logger.warning("the consumer of %s continues, but %s", self._name, said)
