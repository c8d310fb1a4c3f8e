"""The changes and the state of a queue as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.errors import (
    CatchUpTimeout,
    ConfigError,
    DataLoss,
    ReaderFailed,
    TopicRecreated,
    TransportError,
)
from lvq_kafka.json_lines import event_line, how_gone, shown
from lvq_kafka.reading.entries import Deleted, EndOfDump, Event
from lvq_kafka.reading.key_pages import token_of
from lvq_kafka.reading.watch import Watch
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.event_stream import HEARTBEAT, event_bytes, retry_bytes
from lvq_kafka.serve.http_answers import SendPart, StreamedAnswer, state_headers
from lvq_kafka.serve.media_types import chosen_type
from lvq_kafka.serve.parameters import Parameter, flag, key, seconds, text
from lvq_kafka.serve.served_queue import ServedQueue

__all__ = ["answer_events"]

_TICK = 0.5  # seconds between two looks at the state while nothing happens
_RETRY = 2000  # ms until a client that was cut off connects again
_PART = 65_536  # bytes that are sent at once

_START_OVER = "start-over"
"""The id of a reset. A client that is cut off in the dump has a part of it, and nothing to go on from."""

_STARTS_OVER = (CatchUpTimeout, DataLoss, TopicRecreated, TransportError)
"""Reasons why a stream cannot go on where the client left it, beside a point that is none."""

_SELECTION = {
    "keys": Parameter(key, several=True),
    "prefix": Parameter(key),
    "selector": Parameter(text),
    "every": Parameter(seconds(3600.0, least=0.01)),
    "changed": Parameter(flag),
}


async def answer_events(call: HttpCall) -> StreamedAnswer:
    """Answer with the events of a queue, until the client leaves."""
    asked = call.parameters({**_SELECTION, "since": Parameter(text)})
    chosen_type(call.request.header("accept"), ["text/event-stream"])
    queue = call.queue
    queue.check_complete()
    since = asked.pop("since", None)
    if "prefix" not in asked and since is not None:
        asked |= _prefix_of(since)
    last = call.request.header("last-event-id") or since
    watch, reset = await _watch(queue, None if last == _START_OVER else last, asked)
    stream = _EventStream(queue, watch, reset, call.served.heartbeat)
    headers = [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),  # nginx would keep events back
        *state_headers(queue.view.status, queue.view.cut.offsets),
    ]
    return StreamedAnswer(headers, stream.run, watch.close)


def _prefix_of(since: str) -> dict[str, Any]:
    """Return the prefix of the pages that a stream follows, which holds for it, too."""
    try:
        prefix = token_of(since, "since").prefix
    except ConfigError:
        return {}  # it will be refused
    return {"prefix": prefix} if prefix else {}


async def _watch(
    queue: ServedQueue, since: str | None, options: dict[str, Any]
) -> tuple[Watch[bytes], dict[str, str] | None]:
    """Return a watch that resumes, and None; or one with a dump, and why it starts over."""
    reset = {"reason": "All values follow."}
    if since is not None:
        try:
            return await queue.view.watch_async(since=since, **options), None
        except (ConfigError, *_STARTS_OVER) as error:
            if isinstance(error, ConfigError) and "since" not in error.options:
                raise
            reset = {"error": type(error).__name__, "reason": str(error)}
    return await _dump(queue, options), reset


async def _dump(queue: ServedQueue, options: dict[str, Any]) -> Watch[bytes]:
    watch = await queue.view.watch_async(dump=True, **options)
    await in_thread(watch.subscribe, abort=watch.close)  # with very many keys it takes longer than a tick
    return watch


class _EventStream:
    """The events of one client.

    It keeps nothing for a client but its watch, which has keys, not values. While the client takes no more, nothing is
    made for it; then it gets the newest value of each key that has changed (G3).
    """

    def __init__(self, queue: ServedQueue, watch: Watch[bytes], reset: dict[str, str] | None, heartbeat: float) -> None:
        self._queue = queue
        self._watch = watch
        self._reset = reset
        self._heartbeat = heartbeat
        self._state = ""
        self._point: str | None = None  # what the client would resume from

    async def run(self, send: SendPart) -> None:
        """Send events until the view is closed or fails."""
        sent = time.monotonic()
        part = self._first_events()
        while True:
            if part:
                await send(part)
                sent = time.monotonic()
            try:
                async with asyncio.timeout(_TICK):
                    event = await anext(self._watch)
            except TimeoutError:
                idle = time.monotonic() - sent >= self._heartbeat
                part = self._news() or (HEARTBEAT if idle else b"")
            except (StopAsyncIteration, ReaderFailed):
                await send(self._news())
                return
            else:
                part = await self._gather(event)

    async def _gather(self, event: Event[bytes]) -> bytes:
        """Return an event and those that are ready, as far as they fit into one part."""
        parts = [self._news(), self._encode(event)]
        size = len(parts[1])
        with suppress(TimeoutError, StopAsyncIteration, ReaderFailed):  # the next wait reports the latter two
            async with asyncio.timeout(0):  # until the watch waits, or lets others run
                while size < _PART:
                    parts.append(self._encode(await anext(self._watch)))
                    size += len(parts[-1])
        return b"".join(parts)

    def _encode(self, event: Event[bytes]) -> bytes:
        """Return an event that the watch has just returned, with the point to go on from."""
        match event:
            case EndOfDump():
                name, data = "end-of-dump", event_line(event, self._queue.form)[:-1]
            case Deleted():
                row = {"key": shown(encode_key(event.key)), "reason": how_gone(event)}
                name, data = "deleted", json.dumps(row).encode()
            case _:
                name, data = "value", self._queue.line(event)
        point, before = self._watch.token, self._point
        self._point = point
        return event_bytes(name, data, event_id=None if point == before else point)

    def _news(self) -> bytes:
        """Return an event with the state, if that is another than the client knows."""
        status = self._queue.view.status
        if status.state == self._state:
            return b""
        self._state = status.state
        row: dict[str, Any] = {"state": status.state, "lag": status.lag, "age": max(0.0, round(status.silence, 3))}
        why = status.failure or status.trouble
        if why is not None:
            row["reason"] = str(why)
        return event_bytes("state", json.dumps(row).encode())

    def _first_events(self) -> bytes:
        """Return the first events: the state, and a reset if the client has to forget what it has."""
        first = retry_bytes(_RETRY) + self._news()
        if self._reset is None:
            return first
        return first + event_bytes("reset", json.dumps(self._reset).encode(), event_id=_START_OVER)
