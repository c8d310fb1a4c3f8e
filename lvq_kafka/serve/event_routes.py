"""The changes and the state of a queue as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from typing import Any

from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import Closed, ConfigError, LVQError, ReaderFailed
from lvq_kafka.json_lines import event_line, how_gone, shown
from lvq_kafka.reading.entries import Deleted, EndOfDump
from lvq_kafka.reading.key_pages import token_of
from lvq_kafka.reading.watch import Watch
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.event_stream import HEARTBEAT, event_bytes, id_bytes, retry_bytes
from lvq_kafka.serve.http_answers import SendPart, StreamedAnswer, state_headers
from lvq_kafka.serve.media_types import chosen_type
from lvq_kafka.serve.operations import CURRENT, SELECTOR, AnswerForm, HttpOperation
from lvq_kafka.serve.parameters import FLAG, KEY, TEXT, Parameter, seconds
from lvq_kafka.serve.served_queue import ServedQueue

__all__ = ["EVENTS", "answer_events"]

_TICK = 0.5  # seconds between two looks at the state while nothing happens
_RETRY = 2000  # ms until a client that was cut off connects again
_PART = 65_536  # bytes that are sent at once

_START_OVER = "start-over"
"""The id of a reset. A client that is cut off in the dump has a part of it, and nothing to go on from."""

EVENTS = HttpOperation(
    "followEvents",
    "Follow the changes of a queue, as server-sent events.",
    {
        200: AnswerForm(
            "Events, until the client leaves: `state`, `reset`, `value`, `deleted`, `end-of-dump`. A client forgets "
            "what it has at a `reset`, and otherwise applies each; then it has what the view has.",
            {"text/event-stream": {}},
            (*CURRENT, "cache-control", "x-accel-buffering", "lvq-format"),
        )
    },
    query={
        "keys": Parameter(KEY, "Only these keys.", several=True),
        "prefix": Parameter(KEY, "Only keys that begin with this."),
        "selector": Parameter(TEXT, SELECTOR),
        "every": Parameter(seconds(3600.0, least=0.01), "The least seconds between two batches of changes."),
        "changed": Parameter(FLAG, "1 for no event when a value was only written again."),
        "since": Parameter(TEXT, "The token of a page, of all values or of a stream, to go on from."),
        "heartbeat": Parameter(seconds(3600.0, least=1.0), "The most seconds between two events with the state."),
    },
    headers={"Last-Event-ID": "The last id of an earlier stream, to go on from. It counts rather than `since`."},
    refusals=(406, 501),
)


async def answer_events(call: HttpCall) -> StreamedAnswer:
    """Answer with the events of a queue, until the client leaves."""
    asked = call.parameters()
    chosen_type(call.request.header("accept"), ["text/event-stream"])
    queue = call.queue
    queue.check_complete()
    since, often = asked.pop("since", None), asked.pop("heartbeat", math.inf)
    if "prefix" not in asked and since is not None:
        asked |= _prefix_of(since)
    queue.view.watch(**asked).close()  # raises what is wrong with them, while there still is a status for it
    last = call.request.header("last-event-id") or since
    stream = _EventStream(call, None if last == _START_OVER else last, asked, often)
    headers = [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),  # nginx would keep events back
        ("lvq-format", queue.form),
        *state_headers(queue.view.status, queue.view.cut.offsets),
    ]
    return StreamedAnswer(headers, stream.run, stream.close)


def _prefix_of(since: str) -> dict[str, Any]:
    """Return the prefix of the pages that a stream follows, which holds for it, too."""
    try:
        prefix = token_of(since, "since").prefix
    except ConfigError:
        return {}  # it will be refused
    return {"prefix": prefix} if prefix else {}


async def _dump(queue: ServedQueue, options: dict[str, Any]) -> Watch[bytes]:
    watch = await queue.view.watch_async(dump=True, **options)
    await in_thread(watch.subscribe, abort=watch.close)  # with very many keys it takes longer than a tick
    return watch


class _EventStream:
    """The events of one client.

    It keeps nothing for a client but its watch, which has keys, not values. While the client takes no more, nothing is
    made for it; then it gets the newest value of each key that has changed (G3).

    Args:
        call: the request.
        since: the point to go on from; None for all values.
        options: those of the watch.
        often: the seconds after which the state is said again, even if it is the same.
    """

    def __init__(self, call: HttpCall, since: str | None, options: dict[str, Any], often: float) -> None:
        self._call = call
        self._queue = call.queue
        self._since = since
        self._options = options
        self._often = often
        self._watch: Watch[bytes] | None = None
        self._reset = b""
        self._state = ""
        self._said = -math.inf  # when the state was sent
        self._point: str | None = None  # what the client would resume from
        self._sent = 0.0

    def close(self) -> None:
        """Give back what the stream has needed."""
        if self._watch is not None:
            self._watch.close()

    async def run(self, send: SendPart) -> None:
        """Send events until the view is closed or fails, or the client may no longer read it."""
        await self._say(retry_bytes(_RETRY) + self._news(), send)
        opening = asyncio.ensure_future(self._open_watch())
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # the client may have left
        try:
            while not (await asyncio.wait({opening}, timeout=_TICK))[0]:
                await self._say(self._pulse(), send)
            watch = self._watch = opening.result()
            while self._call.allowed:
                events = await watch._part(_PART, _TICK)
                await self._say(self._encode(events, watch.token) if events else self._pulse(), send)
        except (ReaderFailed, Closed):
            await self._say(self._news(), send)
        finally:
            opening.cancel()

    async def _open_watch(self) -> Watch[bytes]:
        """Return a watch that goes on from the point, or one with a dump.

        Before a dump, the reset is set that says why. It may take long, for the reader may have to catch up, or to read
        the topic once more; and a cluster that does not answer takes its time.
        """
        reset = {"reason": "All values follow."}
        if self._since is not None:
            try:
                return await self._queue.view.watch_async(since=self._since, **self._options)
            except LVQError as error:  # if it is one of the reader, the dump will raise it, too
                reset = {"error": type(error).__name__, "reason": str(error)}
        self._reset = id_bytes(_START_OVER) + event_bytes("reset", json.dumps(reset).encode())
        return await _dump(self._queue, self._options)

    async def _say(self, part: bytes, send: SendPart) -> None:
        if part:
            await send(part)
            self._sent = time.monotonic()

    def _pulse(self) -> bytes:
        """Return what there is to say while nothing happens."""
        idle = time.monotonic() - self._sent >= self._call.served.heartbeat
        return self._news() or (HEARTBEAT if idle else b"")

    def _encode(self, events: Sequence[Record | Deleted | EndOfDump], point: str | None) -> bytes:
        """Return events as bytes; from the last one on, a client can go on from the point.

        A reset comes with the first event of the dump: a client keeps what it has until there is something new, which
        takes a while if the view has to read the topic again.
        """
        shared = self._queue.shared
        made = [shared.event(event) if isinstance(event, Record) else self._other(event) for event in events]
        if point is not None and point != self._point:
            made.insert(-1, id_bytes(point))
            self._point = point
        parts = (self._news(), self._reset, *made)
        self._reset = b""
        return b"".join(parts)

    def _other(self, event: Deleted | EndOfDump) -> bytes:
        """Return an event that is not a value."""
        if isinstance(event, EndOfDump):
            return event_bytes("end-of-dump", event_line(event, self._queue.form)[:-1])
        row = {"key": shown(encode_key(event.key)), "reason": how_gone(event)}
        return event_bytes("deleted", json.dumps(row).encode())

    def _news(self) -> bytes:
        """Return an event with the state if the client does not know it, or wants it again."""
        now = time.monotonic()
        if self._queue.view.state == self._state and now - self._said < self._often:
            return b""
        status = self._queue.view.status
        self._state, self._said = status.state, now
        row: dict[str, Any] = {"state": status.state, "lag": status.lag, "age": max(0.0, round(status.silence, 3))}
        why = [status.failure or status.trouble] if status.failure or status.trouble else status.blocked_by
        if why:
            row["reason"] = "; ".join(map(str, why))
        return event_bytes("state", json.dumps(row).encode())
