"""Applications on a port, and a line to one that can be cut."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Literal, Self

import uvicorn

from tests.waiting import eventually

__all__ = ["CutLine", "listening"]


@contextmanager
def listening(served: Any, lifespan: Literal["on", "off"] = "off") -> Iterator[int]:
    """Run a server in a thread, and yield its port.

    Args:
        served: the application.
        lifespan: whether the server runs that of the application.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        config = uvicorn.Config(
            served, http="h11", ws="none", lifespan=lifespan, log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            eventually(lambda: server.started)
            server.should_exit = True
            thread.join(20)


class CutLine:
    """A line to a server on this machine. It can be cut, and fall dumb.

    Once dumb, it carries nothing any more, and neither side notices.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self.limits: list[int] = []
        """The bytes after which the answers of the next connections are cut off, one for each."""
        self._carries = threading.Event()
        self._carries.set()
        self._refuses = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """Cut all connections. New ones are carried."""
        for pair in list(self._pairs):
            _end(*pair)

    def refuse(self) -> None:
        """Cut all connections, and carry no new ones."""
        self._refuses = True
        self.cut()

    def fall_dumb(self) -> None:
        self._carries.clear()

    def mend(self) -> None:
        self._refuses = False
        self._carries.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self._refuses:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                limit = self.limits.pop(0) if self.limits else None
                self._pairs.add((client, server))
                for source, target, most in ((client, server, None), (server, client, limit)):
                    thread = threading.Thread(target=self._carry, args=(source, target, most), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, most: int | None) -> None:
        left = most
        with suppress(OSError):
            while data := source.recv(65_536):
                self._carries.wait()
                target.sendall(data if left is None else data[:left])
                left = None if left is None else left - len(data)
                if left is not None and left <= 0:
                    break
        _end(source, target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._carries.set()
        _end(self._listener)
        self._listener.close()
        self._threads[0].join(10)
        self.cut()
        for thread in self._threads:
            thread.join(10)
        for pair in self._pairs:
            for end in pair:
                end.close()


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
