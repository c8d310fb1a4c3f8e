"""A broker that answers metadata requests only, for answers no real broker can be made to give."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from io import BytesIO
from threading import Thread
from types import TracebackType
from typing import BinaryIO, Self

__all__ = ["FakeBroker"]

_METADATA, _METADATA_VERSION = 3, 4
_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
_OTHERS = (0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 19, 20, 22, 32)  # other requests that it claims to support
_LEADER_NOT_AVAILABLE = 5
_NULL_TEXT = struct.pack(">h", -1)


class FakeBroker:
    """A broker that reports no live brokers, as a real one does while the controller has fenced all.

    Each requested topic exists, with one partition without a leader. The first ``alive`` answers that ask for no topic
    name the broker itself: a client needs them to learn who the controller is.
    """

    def __init__(self, *, alive: int = 0) -> None:
        self._alive = alive
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._host, self._port = self._socket.getsockname()
        self.address = f"{self._host}:{self._port}"

    def __enter__(self) -> Self:
        Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                Thread(target=self._talk, args=[connection], daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rwb") as stream:
            while True:
                request = BytesIO(stream.read(*_read(stream, ">i")))
                key, version, correlation = _read(request, ">hhi")
                _text(request)  # client id
                if key == _API_VERSIONS:
                    answer = _api_versions(version)
                elif key == _METADATA:
                    answer = self._metadata(request)
                else:
                    return
                stream.write(struct.pack(">ii", 4 + len(answer), correlation) + answer)
                stream.flush()

    def _metadata(self, request: BinaryIO) -> bytes:
        (count,) = _read(request, ">i")
        topics = [_text(request) for _ in range(count)]
        self._alive -= not topics
        brokers = [struct.pack(">i", 1) + _packed(self._host.encode()) + struct.pack(">i", self._port) + _NULL_TEXT]
        controller = 1
        if topics or self._alive < 0:
            brokers, controller = [], -1
        return (
            struct.pack(">ii", 0, len(brokers))
            + b"".join(brokers)
            + _NULL_TEXT
            + struct.pack(">ii", controller, len(topics))
            + b"".join(map(_topic, topics))
        )


def _topic(name: bytes) -> bytes:
    partition = struct.pack(">hiiiii", _LEADER_NOT_AVAILABLE, 0, -1, 1, 1, 0)  # its only replica is on broker 1
    return struct.pack(">h", 0) + _packed(name) + struct.pack(">bi", 0, 1) + partition


def _api_versions(version: int) -> bytes:
    """Answer in the oldest form. A client understands it when its own version is unsupported."""
    known = [
        (_API_VERSIONS, 0, 0),
        (_METADATA, _METADATA_VERSION, _METADATA_VERSION),
        *((key, 0, 1) for key in _OTHERS),
    ]
    told = b"".join(struct.pack(">hhh", *api) for api in known)
    return struct.pack(">hi", _UNSUPPORTED_VERSION if version else 0, len(known)) + told


def _read(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def _text(stream: BinaryIO) -> bytes:
    (length,) = _read(stream, ">h")
    return stream.read(max(0, length))


def _packed(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
