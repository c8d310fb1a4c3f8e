"""Fixtures for scenarios on the in-memory cluster. ``tests/integration/test_scenarios.py`` uses a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.scenarios.harness")

from lvq_kafka.testing import MemoryCluster  # noqa: E402  # the harness must not be imported earlier
from tests.scenarios.harness import Declare, Queue, Venue, declaring  # noqa: E402


class InMemory:
    """`Venue` in memory. Its storage outlives its clients, so a restart does nothing."""

    def __init__(self) -> None:
        self._passed = 0.0
        self.cluster = MemoryCluster(clock=lambda: time.time() + self._passed)
        self.compact = self.cluster.compact
        self.delete_records = self.cluster.delete_records

    def write(self, topic: str, partition: int, key: str, value: str | None, timestamp: int | None = None) -> None:
        body = None if value is None else value.encode()
        self.cluster.write(topic, key.encode(), body, partition=partition, timestamp=timestamp)

    def restart(self) -> None:
        pass

    def later(self, seconds: float) -> None:
        self._passed += seconds + 0.01


@pytest.fixture
def venue() -> Venue:
    return InMemory()


@pytest.fixture
def declare(venue: Venue) -> Iterator[Declare]:
    with declaring(venue, "q") as declare:
        yield declare


@pytest.fixture
def q(declare: Declare) -> Queue:
    """Return an empty queue keyed by the header k."""
    return declare()
