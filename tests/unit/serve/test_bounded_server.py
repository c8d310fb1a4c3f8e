"""The server of `lvq serve`: clients that hold connections without asking, or without taking, are cut off (R46)."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from lvq_kafka.cli import http_server
from lvq_kafka.cli.http_server import BoundedServer, allow_open_files
from lvq_kafka.serve import http_peer
from tests.unit.serve.desks import Desk, desk
from tests.unit.serve.scenes import Scene, scene


@asynccontextmanager
async def serving(on: Scene | Desk, most: int = 100) -> AsyncIterator[tuple[BoundedServer, tuple[str, int]]]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        server = BoundedServer(on.app, most, lambda _: None)
        task = asyncio.ensure_future(server._serve(sockets=[listening]))
        try:
            yield server, listening.getsockname()
        finally:
            server.should_exit = True
            await asyncio.wait_for(task, 20)


async def soon(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0.001)


async def cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a byte of a head every few milliseconds, until the connection ends."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with asyncio.timeout(0.01):
                    assert await cut_off(reader)
                return
            except TimeoutError:
                writer.write(b"a")


async def test_r46_a_client_that_does_not_finish_a_head_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sends nothing, others a byte now and then: in the first head, in the next one, and in the body between."""
    monkeypatch.setattr(http_server, "_REQUEST", 0.3)
    monkeypatch.setattr(http_server, "_EVERY", 1)
    done = b"GET /live HTTP/1.1\r\nHost: localhost\r\n"
    async with scene() as on, serving(on) as (server, address):
        streaming, asking = await asyncio.open_connection(*address)
        asking.write(b"GET /v1/queues/prices/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.wait_for(streaming.readuntil(b"end-of-dump"), 20)
        late = []
        for begin in (b"", b"GET /live HTTP/1.1\r\nA: ", done + b"\r\n" + done, done + b"Content-Length: 999\r\n\r\n"):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(begin)
            if begin.startswith(done):
                await asyncio.wait_for(reader.readuntil(b"true}\n"), 20)
            late.append((reader, writer))
        await asyncio.gather(*(drip(*each) if number else cut_off(each[0]) for number, each in enumerate(late)))
        await soon(lambda: len(server.server_state.connections) == 1)
        on.put(IBM="119.00")
        await asyncio.wait_for(streaming.readuntil(b"119.00"), 20)
        for _, writer in (*late, (streaming, asking)):
            writer.close()


async def test_g3_r46_a_client_that_was_cut_off_holds_no_connection_although_it_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_peer, "_SLOWEST", 0.2)
    monkeypatch.setattr(http_server, "_LAST", 0.2)
    monkeypatch.setattr(http_server, "_EVERY", 1)
    async with scene() as on, serving(on) as (server, address):
        on.cluster.write("prices", b"large", b"x" * 900_000)
        await on.settle()
        with ExitStack() as opened:
            for path in (b"events", b"values/large"):
                client = opened.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
                client.connect(address)
                client.sendall(b"GET /v1/queues/prices/%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            await soon(lambda: len(server.server_state.tasks) == 2)
            await soon(lambda: not server.server_state.tasks and not server.server_state.connections)


async def test_r46_connections_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_SPARE", 2)
    monkeypatch.setattr(http_server, "_MORE", 2)
    async with scene() as on, serving(on, most=1) as (server, address):
        several = [await asyncio.open_connection(*address) for _ in range(20)]
        ends = [asyncio.ensure_future(cut_off(reader)) for reader, _ in several]
        await soon(lambda: sum(end.done() for end in ends) == 15)
        assert len(server.server_state.connections) == 5
        for _, writer in several:
            writer.close()
        await asyncio.gather(*ends)


async def test_r46_a_head_has_an_end_or_its_client_is_cut_off() -> None:
    """The server keeps a bounded part of it, wherever it begins."""
    async with scene() as on, serving(on) as (_, address):
        for begin in (b"GET /", b"GET /live HTTP/1.1\r\nHost: localhost\r\nLong: "):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b"true}\n"), 20)
            answer = asyncio.ensure_future(reader.read())
            writer.write(begin)
            async with asyncio.timeout(20):
                while not answer.done():
                    writer.write(b"a" * 1000)
                    await asyncio.wait({answer}, timeout=0.01)
            with suppress(ConnectionResetError):
                assert answer.result().startswith(b"HTTP/1.1 400")
            writer.close()


@pytest.mark.parametrize("begin", [b"0\r\nLong: ", b"1;long="])
async def test_r46_a_body_with_an_endless_trailer_is_cut_off(begin: bytes) -> None:
    """A trailer, or an extension of a frame, while the client reads a stream. A body may be long."""
    async with scene() as on, serving(on) as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(
            b"GET /v1/queues/prices/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n%s\r\n" % (50_000, b"b" * 50_000)
        )
        await asyncio.wait_for(reader.readuntil(b"end-of-dump"), 20)
        writer.write(begin)
        async with asyncio.timeout(20):
            while server.server_state.connections:
                writer.write(b"a" * 1000)
                await asyncio.sleep(0.01)
        writer.close()


async def test_r46_requests_that_are_sent_at_once_are_answered_one_after_another() -> None:
    async with scene() as on, serving(on) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        names = [b"IBM", b"MSFT", b"FB"] * 100  # more than the bytes of one head
        writer.write(
            b"".join(b"GET /v1/queues/prices/values/%s HTTP/1.1\r\nHost: a.localhost\r\n\r\n" % name for name in names)
        )
        for name in names:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
            [size] = [line.split()[1] for line in head.splitlines() if line.startswith(b"content-length")]
            body = await asyncio.wait_for(reader.readexactly(int(size)), 20)
            assert (head[9:12], body[:6]) == {
                b"IBM": (b"200", b"118.50"),
                b"MSFT": (b"200", b"27.95"),
                b"FB": (b"404", b'{"titl'),
            }[name]
        writer.close()


async def test_r46_the_host_of_an_address_in_absolute_form_counts() -> None:
    async with scene() as on, serving(on) as (_, address):
        for host, status in ((b"127.0.0.1", b"200"), (b"evil.example", b"421")):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET http://%s/live?a=1 HTTP/1.1\r\nHost: localhost\r\n\r\n" % host)
            assert (await asyncio.wait_for(reader.readline(), 20)).split()[1] == status
            writer.close()


async def test_r46_no_request_is_hidden_in_the_body_of_another() -> None:
    async with scene() as on, serving(on) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        lengths = b"Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        hidden = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + lengths + hidden)
        answer = await asyncio.wait_for(reader.read(), 20)
        assert (answer[:12], answer.count(b"HTTP/1.1")) == (b"HTTP/1.1 400", 1)
        writer.close()


async def test_r46_a_request_that_is_none_is_not_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with scene() as on, serving(on) as (_, address):
        for sent in (
            b"\0\r\n\r\n",
            b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(sent)
            assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 4")
            writer.close()
    assert caplog.records == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("limits", "now", "few"),
    [
        ((1024, 20_000), (1576, 20_000), None),
        ((1024, 1200), (1200, 1200), 1200),
        ((1024, resource.RLIM_INFINITY), (1576, resource.RLIM_INFINITY), None),
        ((20_000, 20_000), None, None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, None),
    ],
)
def test_open_files_are_allowed_for_all_clients(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], now: tuple[int, int] | None, few: int | None
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: made.append(found))
    assert allow_open_files(1000) == few
    assert made == ([] if now is None else [now])


PUT = b"PUT /v1/queues/prices/values/IBM HTTP/1.1\r\nHost: localhost\r\n"


async def answered(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send parts of requests on a connection, each after a moment, and return what comes until it is quiet or ends."""
    reader, writer = await asyncio.open_connection(*address)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)
    found = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    writer.close()
    return found


@pytest.mark.parametrize("apart", [False, True])
async def test_r52_a_client_that_would_speak_another_protocol_has_its_value_written_whole(apart: bool) -> None:
    """Java's own client asks for HTTP/2 with each request."""
    head = PUT + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 6\r\n\r\n"
    async with desk() as on, serving(on) as (_, address):
        parts = [head, b"118.50"] if apart else [head + b"118.50"]
        assert (await answered(address, *parts)).startswith(b"HTTP/1.1 204")
        assert on.stored() == [(b"IBM", b"118.50")]


async def test_r52_bytes_after_a_value_on_its_connection_take_no_answer_back() -> None:
    """The client has counted characters, not bytes."""
    async with desk() as on, serving(on) as (_, address):
        found = await answered(address, PUT + b"Content-Length: 6\r\n\r\n" + "Z\u00fcrich".encode())
        assert found.startswith(b"HTTP/1.1 204")
        assert on.stored() == [(b"IBM", "Z\u00fcric".encode())]


async def test_r52_a_trailer_names_no_user(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("user:alice prices:write\n")
    tokens.chmod(0o600)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nRemote-User: alice\r\n\r\n"
    async with desk(token_file=tokens, user_header="Remote-User") as on, serving(on) as (_, address):
        assert (await answered(address, PUT + chunked)).startswith(b"HTTP/1.1 401")
        assert on.stored() == []


async def test_r52_a_write_is_unknown_to_a_client_whose_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_ENDING", 0.05)
    monkeypatch.setattr("lvq_kafka.serve.queue_writer._CLOSING", 0.01)
    async with desk() as on:
        async with serving(on) as (server, address):
            on.cluster.disconnect()
            answer = asyncio.ensure_future(answered(address, PUT + b"Content-Length: 1\r\n\r\n1"))
            await on.until(1)
            server.should_exit = True
            assert (await asyncio.wait_for(answer, 20)).startswith(b"HTTP/1.1 504")
        on.cluster.reconnect()


async def test_r46_r52_a_value_that_still_arrives_when_the_server_ends_is_503() -> None:
    async with desk() as on:
        async with serving(on) as (server, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(PUT + b"Content-Length: 100\r\n\r\n118")
            await soon(lambda: on.app._served.writes.room.size == 3)
            server.should_exit = True
            head, _, body = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
            writer.close()
        assert head.startswith(b"HTTP/1.1 503")
        assert b"content-type: application/problem+json" in head.lower()
        assert b"retry-after: 5" in head.lower()
        assert b"The server ends" in body
        assert (on.app._served.writes.room.size, on.stored()) == (0, [])
