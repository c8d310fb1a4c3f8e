"""Queues on a real broker, for the tests of the guarantees of product.md section 2; one file for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Protocol

import pytest

pytest.register_assert_rewrite("tests.integration.guarantees.cluster", "tests.integration.guarantees.writing")

from lvq_kafka import TEXT, LastValueQueue, TopicSpec  # noqa: E402
from lvq_kafka.errors import TopicNotFound  # noqa: E402
from lvq_kafka.kafka import KafkaLog  # noqa: E402
from lvq_kafka.testing.brokers import ProvidedBroker  # noqa: E402


class Declare(Protocol):
    """Declares a queue of its own for a test, keyed by the header ``ticker``."""

    def __call__(
        self, partitions: int = 1, *, config: Mapping[str, str] | None = None, **options: Any
    ) -> LastValueQueue[str]: ...


@pytest.fixture
def declare(kafka_log: KafkaLog, topic_name: str) -> Iterator[Declare]:
    """A factory of queues on the session's broker."""
    with ExitStack() as queues:

        def declare(
            partitions: int = 1, *, config: Mapping[str, str] | None = None, **options: Any
        ) -> LastValueQueue[str]:
            spec = TopicSpec(partitions=partitions, config=config or {})
            queue = LastValueQueue.declare(
                topic_name, key_header="ticker", spec=spec, value=TEXT, log=kafka_log, **options
            )
            queues.callback(_delete, queue)
            return queue

        yield declare


def _delete(queue: LastValueQueue[str]) -> None:
    with suppress(TopicNotFound):  # a test may have deleted it
        queue.delete(delete_topic=True)


@pytest.fixture
def queue(declare: Declare) -> LastValueQueue[str]:
    """A queue with one partition, empty."""
    return declare()


@pytest.fixture
def servers(broker: ProvidedBroker) -> str:
    """The address of the session's broker."""
    return broker.bootstrap_servers


@pytest.fixture
def private_queue(private_broker: ProvidedBroker) -> Iterator[LastValueQueue[str]]:
    """An empty queue on a broker of the test's own."""
    with LastValueQueue.declare(
        "prices", key_header="ticker", value=TEXT, bootstrap_servers=private_broker.bootstrap_servers
    ) as queue:
        yield queue
