from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.unit.kafka.mock_queue")

from tests.unit.kafka.mock_cluster import MockCluster  # noqa: E402
from tests.unit.kafka.mock_queue import MockQueue, NewQueue  # noqa: E402  # must not be imported before this


@pytest.fixture
def new_queue() -> Iterator[NewQueue]:
    """Makes a queue on a mock cluster of its own."""
    opened: list[tuple[MockCluster, MockQueue]] = []

    def new(partitions: int = 1, *, brokers: int = 1, declared: bool = True) -> MockQueue:
        cluster = MockCluster(brokers)
        opened.append((cluster, MockQueue(cluster, partitions, declared=declared)))
        return opened[-1][1]

    yield new
    for cluster, queue in opened:
        queue.close()
        cluster.close()
