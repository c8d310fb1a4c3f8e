"""An application that writes a queue on an in-memory cluster, and a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lvq_kafka import TEXT, Codec, LastValueQueue
from lvq_kafka.serve import QueueApp, app
from lvq_kafka.testing import MemoryCluster
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import values_of

__all__ = ["Desk", "desk"]


@dataclass
class Desk:
    """An application that writes the topic ``prices``, and a client."""

    cluster: MemoryCluster
    app: QueueApp
    client: AsgiClient

    def stored(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in self.cluster.records("prices")]

    @property
    def under_way(self) -> int:
        return len(self.app._served.writes.room)

    async def until(self, writes: int) -> None:
        """Wait until this many writes are under way."""
        async with asyncio.timeout(10):
            while self.under_way != writes:
                await asyncio.sleep(0)


@asynccontextmanager
async def desk(value: Codec[Any] = TEXT, *, queue: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Desk]:
    cluster = MemoryCluster()
    if queue is None:
        prices = values_of(cluster, value)
    else:
        prices = LastValueQueue.declare("prices", key_header="ticker", value=value, cluster=cluster, **queue)
    async with app(prices, writable=True, **options) as served:
        client = AsgiClient(served)
        async with asyncio.timeout(20):
            while (await client.get("/ready")).status == 503:
                await asyncio.sleep(0.01)
        yield Desk(cluster, served, client)
