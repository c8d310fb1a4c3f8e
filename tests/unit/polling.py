"""Hooks before the polls of a reader, where races happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.testing import MemoryCluster

__all__ = ["before_polls"]


def before_polls(cluster: MemoryCluster, hook: Callable[[int, int], object]) -> None:
    """Call ``hook(reader, poll)``, both counted from 1, before each poll of each reader that is opened from now on."""
    opened, readers = cluster.reader, 0

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        nonlocal readers
        readers += 1
        found, number, polls = opened(topic, positions), readers, 0
        original = found.poll

        def poll(timeout: float) -> Fetch:
            nonlocal polls
            polls += 1
            hook(number, polls)
            return original(timeout)

        found.poll = poll  # type: ignore[method-assign]
        return found

    cluster.reader = reader  # type: ignore[method-assign]
