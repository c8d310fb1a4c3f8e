"""A cluster with one topic, for tests of the stores of its views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from typing import Any

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock

__all__ = ["DAY", "Prices", "held_back", "recreate"]

DAY = 86_400.0


class Prices(MemoryCluster):
    """A cluster with the topic ``prices``, which keeps deletes for a day, and a list of where its readers began."""

    def __init__(self, partitions: int = 1) -> None:
        self.clock = Clock()
        super().__init__(clock=self.clock)
        self.topics.create("prices", partitions=partitions, config={"cleanup.policy": "compact"})
        self.begun: list[dict[int, int]] = []
        self.may_read = Flag()
        self.may_read.set()

    def reader(self, topic: str, positions: Mapping[int, int], **how: Any) -> LogReader:
        found = super().reader(topic, positions, **how)
        self.begun.append(dict(positions))
        poll = found.poll

        def poll_once_allowed(timeout: float) -> Fetch:
            return poll(timeout) if self.may_read.wait(timeout) else Fetch(RecordBatch(), {})

        found.poll = poll_once_allowed  # type: ignore[method-assign]
        return found

    def queue(self, **options: Any) -> LastValueQueue[str]:
        return LastValueQueue("prices", cluster=self, value=TEXT, **{"key_header": "ticker", **options})

    def put(self, headers: Any = (), partition: int | None = None, **values: str | None) -> None:
        for key, value in values.items():
            data = None if value is None else value.encode()
            self.write("prices", key.encode(), data, headers, partition=partition)


@contextmanager
def held_back(cluster: Prices) -> Iterator[None]:
    """Let readers that are opened meanwhile get nothing, until the end."""
    cluster.may_read.clear()
    try:
        yield
    finally:
        cluster.may_read.set()


def recreate(cluster: Prices) -> None:
    cluster.topics.delete("prices")
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    cluster.put(x="1", y="2", z="3", a="4")
