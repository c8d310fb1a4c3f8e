"""A Maven repository for tests, served on the loopback interface."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeRepository:
    """A Maven repository on the loopback interface, or a proxy in front of one."""

    files: dict[str, bytes]
    url: str = ""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The path, or the address, of each request so far, and its headers by their names in lower case."""
    broken_off: int = 0
    """The number of answers to break off in the middle."""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next answers."""
    ranges: bool = True

    @property
    def names(self) -> list[str]:
        """The name of the file in each request so far."""
        return [target.rpartition("/")[2] for target, _ in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append((handler.path, headers))
        content = self.files.get(handler.path.rpartition("/maven2/")[2])
        status = self.statuses.pop(0) if self.statuses else 404 if content is None else 200
        if status != 200:
            handler.send_error(status)
            return
        assert content is not None
        if self.ranges and "range" in headers:
            begin = int(headers["range"].removeprefix("bytes=").removesuffix("-"))
            if begin >= len(content):
                handler.send_error(416)
                return
            content, status = content[begin:], 206
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if self.broken_off:
            self.broken_off -= 1
            content = content[: len(content) // 2]
            handler.close_connection = True
        handler.wfile.write(content)


def pipe(source: socket.socket, target: socket.socket) -> None:
    """Pass on what one socket receives, until either is closed."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def serve(repository: FakeRepository, context: ssl.SSLContext | None = None) -> Iterator[None]:
    """Serve a fake repository, with TLS if there is a context for it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            repository.answer(self)

        def do_CONNECT(self) -> None:
            repository.requests.append((self.path, {}))
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port))) as other:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=pipe, args=(other, self.connection))
                back.start()
                pipe(self.connection, other)
                back.join()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that refuse the certificate."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        repository.url = f"{scheme}://127.0.0.1:{server.server_port}/maven2"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()
