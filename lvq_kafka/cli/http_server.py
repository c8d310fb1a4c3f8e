"""The server of ``lvq serve``: uvicorn, with bounds on what clients may hold open."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from lvq_kafka.cli.server_sockets import BACKLOG

if TYPE_CHECKING:
    from lvq_kafka.serve import QueueApp

__all__ = ["BoundedServer", "allow_open_files", "run_server"]

_SPARE = 256  # connections beside those that wait or stream
_MORE = 64  # connections beyond that, which get an answer that says so
_OWN_FILES = 256  # of the process: stores, and connections to brokers
_HEADERS = 16_384  # bytes of a request's line and headers; longer ones are cut off before they are read
_ENDING = 5  # seconds for answers that are on their way when the server ends
_REQUEST = 10.0  # seconds for a client to send the head of a request
_LAST = 30.0  # seconds for a client to take the last bytes before its connection is closed
_EVERY = 10  # ticks of 0.1 s between two looks at the connections


def run_server(served: QueueApp, listening: socket.socket, most_streams: int) -> None:
    """Serve an application until a signal ends it, which then ends the command as any other.

    Args:
        served: the application.
        listening: the socket.
        most_streams: the most clients that wait or read a stream at once.
    """
    ended_by: list[int] = []

    async def run() -> None:
        async with served:
            await BoundedServer(served, most_streams, ended_by.append).serve(sockets=[listening])

    asyncio.run(run())
    for number in ended_by[:1]:
        signal.raise_signal(number)  # in the event loop, its tasks would complain


class _BoundedProtocol(H11Protocol):
    """A connection. Beyond what the server allows, it is closed at once."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency + _MORE:
            transport.abort()


class BoundedServer(Server):
    """Serves an application until a signal.

    It ends streams before it waits for answers. It cuts off who sends the head of a request for too long, and who does
    not take what was sent before his connection was closed: uvicorn waits for both forever.

    Args:
        served: the application.
        most_streams: the most clients that wait or read a stream at once.
        heed: called with a signal that ends the server.
    """

    def __init__(self, served: QueueApp, most_streams: int, heed: Callable[[int], object]) -> None:
        super().__init__(
            Config(
                served,
                http=_BoundedProtocol,
                ws="none",
                lifespan="off",  # the application is open
                proxy_headers=False,
                log_config=None,
                log_level="critical",  # anybody can send what it would warn of
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                h11_max_incomplete_event_size=_HEADERS,
                limit_concurrency=most_streams + _SPARE,
                timeout_graceful_shutdown=_ENDING,
            )
        )
        self._served = served
        self._heed = heed
        self._waiting: dict[object, tuple[object, float]] = {}

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End because of a signal."""
        self._heed(sig)
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals meanwhile.

        Unlike uvicorn's, it does not raise them again in the event loop.
        """
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        """Do the work of each tenth of a second; return whether to end."""
        if counter % _EVERY == 0:
            self._cut_off_late_clients(time.monotonic())
        return await super().on_tick(counter)

    def _cut_off_late_clients(self, now: float) -> None:
        waiting: dict[object, tuple[object, float]] = {}
        for connection in list(self.server_state.connections):
            assert isinstance(connection, H11Protocol)
            cycle, closing = connection.cycle, connection.transport.is_closing()
            unanswered = cycle is not None and not cycle.response_complete  # type: ignore[redundant-expr]  # None at first
            if unanswered and not closing:
                continue  # it gets an answer, which has a limit of its own
            stage = (cycle, closing)
            known, since = self._waiting.get(connection, (None, now))
            waiting[connection] = (stage, since if stage == known else now)
            if now - waiting[connection][1] > (_LAST if closing else _REQUEST):
                connection.transport.abort()
        self._waiting = waiting

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: first the streams, which would be waited for."""
        self._served.end_streams()
        await super().shutdown(sockets=sockets)


def allow_open_files(most_streams: int) -> int | None:
    """Raise the limit of open files if needed; return it if it stays too low."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return None
    wanted = most_streams + _SPARE + _MORE + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    except (ValueError, OSError):  # the system has another limit, too
        return soft
    return None if most == wanted else most
