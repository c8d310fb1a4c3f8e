"""A queue on an in-memory cluster, an application that serves it, and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lvq_kafka import TEXT, Codec, LastValueQueue, View
from lvq_kafka.serve import QueueApp, app
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.unit.serve.asgi_client import AsgiClient

__all__ = ["Scene", "scene"]

Play = Callable[["Scene"], Coroutine[Any, Any, None]]


@dataclass
class Scene:
    """A view of the topic ``prices``, an application on it, and a client."""

    cluster: MemoryCluster
    view: View[Any]
    app: QueueApp
    client: AsgiClient

    def put(self, **values: str | None) -> None:
        for key, value in values.items():
            self.cluster.write("prices", key.encode(), None if value is None else value.encode())

    async def settle(self) -> None:
        await self.view.barrier_async(10)


def values_of(cluster: MemoryCluster, value: Codec[Any] = TEXT, partitions: int = 1, **options: Any) -> Any:
    cluster.topics.create("prices", partitions=partitions, config={"cleanup.policy": "compact"})
    return LastValueQueue("prices", key_header="ticker", cluster=cluster, value=value, **options)


@asynccontextmanager
async def scene(
    value: Codec[Any] = TEXT,
    *,
    partitions: int = 1,
    queue: dict[str, Any] | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> AsyncIterator[Scene]:
    """Yield a scene, with IBM and MSFT."""
    cluster = MemoryCluster() if clock is None else MemoryCluster(clock=clock)
    values = values_of(cluster, value, partitions, **(queue or {}))
    cluster.write("prices", b"IBM", b"118.50", [("exchange", b"NYSE")])
    cluster.write("prices", b"MSFT", b"27.95")
    async with values.view(metadata_interval=0.05, undecodable="raw") as view:
        served = app(view, **options)
        yield Scene(cluster, view, served, AsgiClient(served))
