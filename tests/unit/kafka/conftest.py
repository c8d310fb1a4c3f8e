from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.unit.kafka.mock_queue")

from tests.unit.kafka.mock_cluster import MockCluster  # noqa: E402
from tests.unit.kafka.mock_queue import NewQueue  # noqa: E402  # must not be imported before this


@pytest.fixture
def new_queue() -> Iterator[NewQueue]:
    new_queue = NewQueue()
    yield new_queue
    new_queue.close()


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    """Yield the client's mock cluster, with a topic ``t`` of one partition."""
    mock = MockCluster()
    mock.create_topic("t", 1)
    yield mock
    mock.close()
