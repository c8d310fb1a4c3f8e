"""Slow cables, as in a real network: one delays everything, one holds produce requests back."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread

from tests.cable import Cable, _receive

__all__ = ["HoldingCable", "SlowCable"]

_PRODUCE = 0


class SlowCable(Cable):
    """A cable that delays everything by ``latency`` seconds each way. Any amount of data can be in flight."""

    latency = 0.0

    def _carry(self, source: socket.socket, target: socket.socket, asked: dict[bytes, int], is_answer: bool) -> None:
        near, far = socket.socketpair()
        under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        threads = [
            Thread(target=self._send_in, args=(source, under_way), daemon=True),
            Thread(target=self._let_out, args=(under_way, near), daemon=True),
        ]
        for thread in threads:
            thread.start()
        super()._carry(far, target, asked, is_answer)
        for one in (source, near, far):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
        near.close()
        far.close()

    def _send_in(self, source: socket.socket, under_way: SimpleQueue[tuple[float, bytes]]) -> None:
        piece = b"-"
        while piece:
            piece = b""
            with suppress(OSError):
                piece = source.recv(65536)
            under_way.put((time.monotonic() + self.latency, piece))

    def _let_out(self, under_way: SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
        with suppress(OSError):
            while True:
                due, piece = under_way.get()
                if not piece:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class HoldingCable(Cable):
    """A cable that holds produce requests back after `hold`, and everything after them on their connections."""

    def __init__(self, servers: str) -> None:
        self._holding = self._refusing = False
        self._lock = Lock()
        self._held: dict[tuple[socket.socket, socket.socket], list[bytes]] = {}  # by client and broker socket
        super().__init__(servers)

    @property
    def held(self) -> int:
        """Return the number of requests held back."""
        return sum(map(len, self._held.values()))

    def hold(self) -> None:
        """Hold produce requests back from now on."""
        self._holding = True

    def reset(self) -> None:
        """Close the client's side of connections with held requests, and hold no more."""
        self._holding = False
        for client, _ in list(self._held):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Close new connections at once."""
        self._refusing = True

    def accept(self) -> None:
        """Accept new connections."""
        self._refusing = False

    def release(self) -> None:
        """Deliver the held requests."""
        for (_, broker), frames in self._held.items():
            for frame in frames:
                broker.sendall(frame)

    def _carry(self, source: socket.socket, target: socket.socket, asked: dict[bytes, int], is_answer: bool) -> None:
        there, here = (self._host.encode() + struct.pack(">i", port) for port in (self._port, self._own_port))
        connection = (target, source) if is_answer else (source, target)
        with suppress(OSError, EOFError):
            while not self._refusing:
                head = _receive(source, 4)
                frame = head + _receive(source, *struct.unpack(">i", head))
                if is_answer:
                    target.sendall(frame.replace(there, here))
                elif not self._keep(connection, frame):
                    target.sendall(frame)
        for one in (source, target) if connection not in self._held else ():
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _keep(self, connection: tuple[socket.socket, socket.socket], frame: bytes) -> bool:
        with self._lock:
            is_produce = struct.unpack(">h", frame[4:6])[0] == _PRODUCE
            if connection not in self._held and not (self._holding and is_produce):
                return False
            self._held.setdefault(connection, []).append(frame)
            return True
