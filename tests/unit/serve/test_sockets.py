"""The application on a real server: streams that end, clients that leave or take nothing, raw paths (R46)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from tests.event_parser import EventParser
from tests.unit.serve.scenes import Scene, scene


@asynccontextmanager
async def serving(on: Scene) -> AsyncIterator[int]:
    """Serve a scene, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)  # connections inherit both
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(on.app, http="h11", ws="none", lifespan="on", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        task = asyncio.ensure_future(server._serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            on.app.end_streams()
            server.should_exit = True
            await asyncio.wait_for(task, 20)


async def opened(
    port: int, target: str, *, method: str = "GET", host: str = "localhost", version: str = "1.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request. To one of version 1.0, the body is sent as it is, without chunks."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=16_384)
    writer.write(f"{method} {target} HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    return reader, writer


async def asked(port: int, target: str, *, method: str = "GET", host: str = "localhost") -> tuple[int, bytes]:
    reader, writer = await opened(port, target, method=method, host=host)
    head, _, body = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def soon(on: Scene, streams: int) -> None:
    async with asyncio.timeout(20):
        while (on.app.open_streams, len(on.view._shared.notifier)) != (streams, streams):
            await asyncio.sleep(0.001)


async def test_r2_r46_raw_paths_arrive_as_they_were_sent() -> None:
    async with scene() as on, serving(on) as port:
        for key in (b"a/b", b"", b"\xff", b"a?b"):
            on.cluster.write("prices", key, b"<%s>" % key)
        await on.settle()
        for path, key in {"a%2Fb": b"a/b", "": b"", "%FF": b"\xff", "a%3Fb": b"a?b"}.items():
            assert await asked(port, f"/v1/queues/prices/values/{path}") == (200, b"<%s>" % key)
        assert await asked(port, "/v1/queues/prices/values/IBM", method="HEAD") == (200, b"")
        assert (await asked(port, "/live", host="evil.example"))[0] == 421
        assert (await asked(port, "/live", method="BREW"))[0] == 405


async def test_g3_r46_a_client_that_leaves_costs_nothing_more() -> None:
    async with scene() as on, serving(on) as port:
        for target in ("/v1/queues/prices/events", "/v1/queues/prices/values/IBM?wait=20"):
            reader, writer = await opened(port, target)
            await soon(on, 1)
            writer.transport.abort()
            await soon(on, 0)
            del reader


async def test_g3_r46_a_client_that_takes_nothing_has_a_bounded_part_of_memory() -> None:
    """Keys wait for it, not values. Once it takes again, it gets the newest values, and each once."""
    async with scene() as on, serving(on) as port:
        reader, writer = await opened(port, "/v1/queues/prices/events", version="1.0")
        await soon(on, 1)
        padding = "x" * 1000
        for number in range(3000):  # 3 MB, more than all buffers on the way hold
            on.put(**{f"k{number % 10}": f"{number} {padding}"})
            if number % 100 == 0:
                assert (await asked(port, "/live"))[0] == 200
        on.put(last="1")
        await on.settle()
        await reader.readuntil(b"\r\n\r\n")
        parser, events = EventParser(), []
        async with asyncio.timeout(20):
            while not any(event.name == "value" and event.json["key"] == "last" for event in events):
                events += parser.feed(await reader.read(4096))
        writer.close()
        held = {event.json["key"]: event.json["value"] for event in events if event.name == "value"}
        assert held == dict(on.view)
        assert len(events) < 2000


async def test_r46_a_server_that_ends_ends_its_streams_whole() -> None:
    async with scene() as on:
        async with serving(on) as port:
            reader, writer = await opened(port, "/v1/queues/prices/events")
            await asyncio.wait_for(reader.readuntil(b"end-of-dump"), 20)
        assert (await asyncio.wait_for(reader.read(), 20)).endswith(b"\r\n0\r\n\r\n")
        writer.close()
