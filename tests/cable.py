"""A cable between a Kafka client and its broker that can be cut: nothing arrives then, and neither side is told."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self

__all__ = ["Cable"]


class Cable:
    """Leads to one broker of this machine. In its answers the port is changed, so that the client comes this way again.

    What is sent while it is cut arrives when it is mended, as far as somebody still waits for it.
    """

    def __init__(self, servers: str) -> None:
        self._host, port = servers.rsplit(":", 1)
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._own_port = int(self._listener.getsockname()[1])
        self._whole = Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()
        self.bootstrap_servers = f"{self._host}:{self._own_port}"

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.set()
        _close(self._listener)
        self._accepting.join(10)  # until then there can be one more client
        for one in self._sockets:
            _close(one)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection((self._host, self._port))
                except OSError:  # no broker there now
                    client.close()
                    continue
                self._sockets += [client, broker]
                for source, target in ((client, broker), (broker, client)):
                    thread = Thread(target=self._carry, args=(source, target, target is client), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        there, here = (self._host.encode() + struct.pack(">i", port) for port in (self._port, self._own_port))
        with suppress(OSError, EOFError):
            while True:
                head = _receive(source, 4)
                frame = head + _receive(source, *struct.unpack(">i", head))
                self._whole.wait()
                target.sendall(frame.replace(there, here) if is_answer else frame)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _receive(source: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = source.recv(size - len(received))
        if not part:
            raise EOFError
        received += part
    return bytes(received)
