"""A client that calls an ASGI application without a socket, and reads streams as they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.event_parser import EventParser, ServerEvent

__all__ = ["AsgiClient", "Reply", "Stream"]

_LIMIT = 20.0  # seconds for anything


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """A stream that is open."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.taking = asyncio.Event()
        self.taking.set()
        self.leaving = asyncio.Event()
        self.begun = asyncio.Event()
        self._parser = EventParser()
        self._ready: list[ServerEvent] = []

    async def event(self, *names: str) -> ServerEvent:
        """Return the next event, or the next with one of these names."""
        while True:
            while not self._ready:
                part = await asyncio.wait_for(self.parts.get(), _LIMIT)
                if part is None:
                    raise EOFError
                self._ready += self._parser.feed(part)
            event = self._ready.pop(0)
            if not names or event.name in names:
                return event

    async def until(self, name: str) -> list[ServerEvent]:
        """Return the events up to the first with a name, which is the last of them."""
        events = [await self.event()]
        while events[-1].name != name:
            events.append(await self.event())
        return events


class AsgiClient:
    """Calls an application."""

    def __init__(self, app: Any, host: str = "127.0.0.1", root: str = "", peer: str = "127.0.0.1") -> None:
        self.app = app
        self._host = host
        self._root = root
        self.peer = peer

    def scope(self, target: str, method: str = "GET", headers: Mapping[str, str] = {}) -> dict[str, Any]:
        """Return the scope of a request."""
        path, _, query = target.partition("?")
        given = {"host": self._host, **headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": self._root,
            "client": (self.peer, 50_000),
            "query_string": query.encode(),
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
        }

    async def get(
        self,
        target: str,
        *,
        method: str = "GET",
        leave: asyncio.Event | None = None,
        body: bytes | Sequence[bytes] = b"",
        **headers: str,
    ) -> Reply:
        """Return the whole answer. Underscores in the names of headers stand for hyphens.

        Args:
            body: the body of the request, or its parts.
        """
        sent: list[dict[str, Any]] = []
        parts_left = [body] if isinstance(body, bytes) else list(body)

        async def receive() -> dict[str, Any]:
            if parts_left:
                return {"type": "http.request", "body": parts_left.pop(0), "more_body": bool(parts_left)}
            await (leave or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await asyncio.wait_for(self.app(self.scope(target, method, named), receive, send), _LIMIT)
        if not sent:
            return Reply(0, {}, b"")
        start, *parts = sent
        assert not parts[-1].get("more_body", False), "the answer has an end"
        found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        assert len(found) == len(start["headers"]), "no header is sent twice"
        return Reply(start["status"], found, b"".join(part["body"] for part in parts))

    async def put(self, target: str, body: bytes | Sequence[bytes], **headers: str) -> Reply:
        """Write a value; see `get`."""
        return await self.get(target, method="PUT", body=body, **headers)

    async def delete(self, target: str, **headers: str) -> Reply:
        """Delete a value; see `get`."""
        return await self.get(target, method="DELETE", **headers)

    @asynccontextmanager
    async def stream(self, target: str, **headers: str) -> AsyncIterator[Stream]:
        """Open a stream, and leave it at the end of the context."""
        stream = Stream()

        async def receive() -> dict[str, Any]:
            await stream.leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                stream.status = message["status"]
                stream.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                stream.begun.set()
                return
            await stream.taking.wait()
            stream.parts.put_nowait(message["body"])
            if not message.get("more_body", False):
                stream.parts.put_nowait(None)

        named = {name.replace("_", "-"): value for name, value in headers.items()}
        call = asyncio.ensure_future(self.app(self.scope(target, "GET", named), receive, send))
        try:
            await asyncio.wait_for(stream.begun.wait(), _LIMIT)
            yield stream
        finally:
            stream.leaving.set()
            stream.taking.set()
            await asyncio.wait_for(call, _LIMIT)
