"""The client of one request: it takes what is sent to it, or it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["Emit", "HttpPeer", "PeerLost", "Receive", "too_large"]

_SLOWEST = 60.0  # seconds for a client to take a part; one that does not is cut off, and may come back
_PART = 65_536  # bytes that are sent at once
_UPLOAD = 30.0  # seconds for the body of a request

AsgiMessage = MutableMapping[str, Any]

Receive = Callable[[], Awaitable[AsgiMessage]]
"""Returns the next message of a client, as ASGI defines it."""

Emit = Callable[[AsgiMessage], Awaitable[None]]
"""Sends a message to a client, as ASGI defines it. It waits while the client takes no more."""


class PeerLost(Exception):
    """The client takes nothing, or is gone: there is no one to answer."""


class HttpPeer:
    """A client."""

    def __init__(self, receive: Receive, send: Emit) -> None:
        self._receive = receive
        self._emit = send
        self._left = False

    async def body(self, most: int, take: Callable[[int], object]) -> bytes:
        """Return the body of the request.

        Args:
            most: how many bytes it may have.
            take: called with the size of each part before that is kept; it may refuse.

        Raises:
            HttpRefusal: it is larger, or does not come in time.
            PeerLost: the client left before its end.
        """
        found = bytearray()
        try:
            async with asyncio.timeout(_UPLOAD):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self._left = True
                        raise PeerLost("it left within its request")
                    part = message.get("body", b"")
                    if len(found) + len(part) > most:
                        raise too_large(most)
                    take(len(part))
                    found += part
                    if not message.get("more_body", False):
                        return bytes(found)
        except TimeoutError:
            raise HttpRefusal(
                408, f"The body of the request took more than {_UPLOAD:g} s.", headers=[("connection", "close")]
            ) from None

    async def leave(self) -> None:
        """Return when the client has left.

        If this is cancelled, it may be called again: a server says only once that a client has left.
        """
        while not self._left:
            self._left = (await self._receive())["type"] == "http.disconnect"

    async def send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head of an answer. Raises `PeerLost`."""
        await self._send_in_time(_head(status, headers))

    async def send_part(self, data: bytes) -> None:
        """Send some of a body, in parts that the client has to take in time.

        Raises `PeerLost`.
        """
        for at in range(0, len(data), _PART):
            await self._send_in_time({"type": "http.response.body", "body": data[at : at + _PART], "more_body": True})

    async def send_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send an answer. Raises `PeerLost`."""
        if len(body) <= _PART:  # one timer is enough
            await self._send_in_time(_head(status, headers), _end(body))
            return
        await self.send_head(status, headers)
        await self.send_part(body)
        await self.send_end()

    async def send_end(self) -> None:
        """Send the end of a body. Raises `PeerLost`."""
        await self._send_in_time(_end())

    async def _send_in_time(self, *messages: AsgiMessage) -> None:
        try:
            async with asyncio.timeout(_SLOWEST):
                for message in messages:
                    await self._emit(message)
        except TimeoutError:
            raise PeerLost(f"it took nothing for {_SLOWEST:g} s") from None
        except OSError as error:  # some servers say so
            raise PeerLost(f"it has left: {error}") from error


def too_large(most: int) -> HttpRefusal:
    """Return the answer to a request whose body has more bytes than it may."""
    why = f"The body of the request is larger than {most:,} bytes." if most else "A DELETE has no body."
    return HttpRefusal(413, why, hint="Nothing was written.", headers=[("connection", "close")])


def _head(status: int, headers: list[tuple[bytes, bytes]]) -> AsgiMessage:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _end(data: bytes = b"") -> AsgiMessage:
    return {"type": "http.response.body", "body": data, "more_body": False}
