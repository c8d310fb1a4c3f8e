"""A cable between a Kafka client and its broker that can be cut, and that can hold a frame back.

While it is cut, nothing arrives, and neither side notices. A held frame arrives when it is released, over its own
connection. It is as if a middlebox reset the client's side of the connection, and sent its buffer later.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Queue
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

__all__ = ["CONSUMER_GROUP_HEARTBEAT", "END_TXN", "OFFSET_COMMIT", "TXN_OFFSET_COMMIT", "Cable", "Trap"]

OFFSET_COMMIT = 8
"""The API key of these requests, as below."""
END_TXN = 26
TXN_OFFSET_COMMIT = 28
CONSUMER_GROUP_HEARTBEAT = 68


@dataclass(eq=False)
class Trap:
    """A trap for one kind of request, or for its answer."""

    api: int
    at_answer: bool
    cuts: bool
    longer_than: int = 0
    """The bytes of frames that it lets pass."""
    sprung: Event = field(default_factory=Event)
    frame: bytes = b""
    target: socket.socket | None = None
    answers: Queue[bytes] = field(default_factory=Queue)

    def release(self) -> bytes:
        """Deliver the frame, and return the broker's answer, which the client will not see."""
        assert self.target is not None, "it has not been caught"
        self.target.sendall(self.frame)
        return self.answers.get(timeout=10)


class Cable:
    """A cable to one broker on this machine. It rewrites the port in answers, so that clients keep using the cable.

    Frames sent while it is cut arrive after the repair, if the connection is still open.
    """

    def __init__(self, servers: str) -> None:
        self._host, port = servers.rsplit(":", 1)
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._own_port = int(self._listener.getsockname()[1])
        self._whole = Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._traps: list[Trap] = []
        self._setting = Lock()
        self._threads: list[Thread] = []
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()
        self.bootstrap_servers = f"{self._host}:{self._own_port}"

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def keep_next(self, api: int) -> Trap:
        """Hold the next request of this kind. Its connection carries nothing more, and is reset for the client."""
        return self._set(Trap(api, at_answer=False, cuts=False))

    def cut_at(self, api: int, *, answer: bool = False, longer_than: int = 0) -> Trap:
        """Cut the cable at the next request of this kind, or its answer, with more bytes. That frame is lost."""
        return self._set(Trap(api, at_answer=answer, cuts=True, longer_than=longer_than))

    def _set(self, trap: Trap) -> Trap:
        with self._setting:
            self._traps.append(trap)
        return trap

    def _caught(self, api: int, size: int, *, is_answer: bool) -> Trap | None:
        with self._setting:
            for trap in self._traps:
                if (trap.api, trap.at_answer) == (api, is_answer) and size > trap.longer_than:
                    self._traps.remove(trap)
                    return trap
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._whole.set()
        _close(self._listener)
        self._accepting.join(10)  # one more client can arrive until then
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
                except OSError:  # no broker is running
                    client.close()
                    continue
                self._sockets += [client, broker]
                asked: dict[bytes, int | Trap] = {}  # by correlation id
                for source, target in ((client, broker), (broker, client)):
                    thread = Thread(target=self._carry, args=(source, target, asked, target is client), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _carry(
        self, source: socket.socket, target: socket.socket, asked: dict[bytes, int | Trap], is_answer: bool
    ) -> None:
        there, here = (self._host.encode() + struct.pack(">i", port) for port in (self._port, self._own_port))
        with suppress(OSError, EOFError):
            while True:
                head = _receive(source, 4)
                frame = head + _receive(source, *struct.unpack(">i", head))
                if is_answer:
                    api = asked.pop(frame[4:8], -1)
                    if isinstance(api, Trap):
                        api.answers.put(frame)
                        continue
                else:
                    (api,) = struct.unpack(">h", frame[4:6])
                    asked[frame[8:12]] = api
                trap = self._caught(api, len(frame), is_answer=is_answer)
                if trap is not None and trap.cuts:
                    self.cut()
                    trap.sprung.set()
                    continue
                if trap is not None:
                    trap.frame, trap.target = frame, target
                    asked[frame[8:12]] = trap
                    _reset(source)
                    trap.sprung.set()
                    return
                self._whole.wait()
                target.sendall(frame.replace(there, here) if is_answer else frame)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _reset(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
        one.close()


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
