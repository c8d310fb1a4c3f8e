"""Observers of the input topic during a run: a tape of all records, and a view."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.kafka import KafkaCluster
from tests.torture.lifetimes import ExpiryLetter, Times
from tests.torture.tape import Rule, Tape
from tests.torture.viewing import Viewing

__all__ = ["Observers"]


class Observers:
    """A tape and a view of a queue whose messages count for a limited time only."""

    def __init__(self, cluster: KafkaCluster, definition: QueueDefinition, rule: Rule, partitions: int) -> None:
        self._tape = Tape(cluster.config.bootstrap_servers, definition.topic, partitions, rule)
        self._viewing = Viewing(cluster, definition)

    def start(self) -> None:
        """Start watching."""
        self._tape.start()
        self._viewing.start()

    def finish(self, ends: Mapping[int, int]) -> None:
        """Stop at these offsets, when they are reached."""
        self._tape.finish(ends)
        self._viewing.stop()

    def stop(self) -> None:
        """Stop watching."""
        self._tape.stop()
        self._viewing.stop()

    @property
    def failures(self) -> list[Exception]:
        """Return the errors that ended the view."""
        return self._viewing.failures

    def times(self, letters: Sequence[ExpiryLetter]) -> Times:
        """Return what they have seen, together with these letters."""
        return Times(self._tape.records, letters, time.time() - time.monotonic(), self._viewing.sights)
