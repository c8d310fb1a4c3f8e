"""Queues, and the values of one: a page, or all of them at one cut as lines or a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

from lvq_kafka.codecs import BYTES
from lvq_kafka.core.latest.catch_up import ReaderStatus
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.csv_lines import CSV_HEAD, csv_line
from lvq_kafka.json_lines import to_line
from lvq_kafka.reading.entries import Entry, to_record
from lvq_kafka.reading.selection import Selection
from lvq_kafka.reading.snapshot import Snapshot
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.http_answers import HeaderLines, HttpAnswer, SendPart, StreamedAnswer, state_headers
from lvq_kafka.serve.media_types import chosen_type
from lvq_kafka.serve.operations import AT_CUT, JSON_TYPE, SELECTOR, AnswerForm, HttpOperation, schema_of
from lvq_kafka.serve.parameters import KEY, TEXT, Parameter, whole_number
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.served_queue import ServedQueue

__all__ = [
    "LIVE",
    "QUEUE",
    "QUEUES",
    "READY",
    "VALUES",
    "answer_live",
    "answer_queue",
    "answer_queues",
    "answer_ready",
    "answer_values",
]

_MOST = 1000  # entries of a page
_USUAL = 100
_MOST_READ = 20_000  # entries for a page: some milliseconds
_STEP = 16  # entries that are read first, then twice as many each time: how large they are is not known
_PAGE = 1 << 20  # bytes of values after which a page ends
_TOKEN = 6000  # characters of a token that an address has room for; one has the last key of its page
_PART = 65_536  # bytes that are sent at once

_LINES, _TABLE = "application/x-ndjson", "text/csv"
_ARROW = "application/vnd.apache.arrow.stream"
_OFFERS = [JSON_TYPE, _LINES, _TABLE, *([_ARROW] if find_spec("pyarrow") else [])]


def _flagged(name: str) -> dict[str, Any]:
    return {"type": "object", "required": [name], "properties": {name: {"type": "boolean"}}}


_READY_FORM = {JSON_TYPE: _flagged("ready")}

LIVE = HttpOperation(
    "isLive",
    "Ask whether the process runs.",
    {200: AnswerForm("It does.", {JSON_TYPE: _flagged("live")}, ("cache-control",))},
)
READY = HttpOperation(
    "isReady",
    "Ask whether all queues are caught up.",
    {
        200: AnswerForm("They are.", _READY_FORM, ("cache-control",)),
        503: AnswerForm("They are not.", _READY_FORM, ("cache-control",)),
    },
)
QUEUES = HttpOperation(
    "listQueues",
    "List the queues that the client may read, with their states.",
    {
        200: AnswerForm(
            "The queues.",
            {
                JSON_TYPE: {
                    "type": "object",
                    "required": ["queues"],
                    "properties": {"queues": {"type": "array", "items": schema_of("Queue")}},
                }
            },
            ("cache-control",),
        )
    },
)
QUEUE = HttpOperation(
    "getQueue",
    "Get the state of a queue.",
    {200: AnswerForm("The queue.", {JSON_TYPE: schema_of("Queue")}, ("cache-control",))},
)
VALUES = HttpOperation(
    "listValues",
    "List the current values: a page of JSON, or all at one cut as lines of JSON, a table or Arrow.",
    {
        200: AnswerForm(
            "The values.",
            {kind: schema_of("Page") if kind == JSON_TYPE else {"type": "string"} for kind in _OFFERS},
            AT_CUT,
        )
    },
    query={
        "prefix": Parameter(KEY, "Only keys that begin with this. Not for Arrow."),
        "selector": Parameter(TEXT, f"{SELECTOR} Not for Arrow."),
        "limit": Parameter(whole_number(_MOST), f"The most values of a page; {_USUAL} if it is left out."),
        "after": Parameter(TEXT, "The token of the page before."),
    },
    refusals=(406, 410, 501),  # 501: selectors need a package
)


async def answer_live(call: HttpCall) -> HttpAnswer:
    """Answer that the process runs."""
    return _json({"live": True})


async def answer_ready(call: HttpCall) -> HttpAnswer:
    """Answer whether all queues are open, complete and in a ready state, without their names."""
    served = call.served
    views = [queue.view for queue in served.queues.values()]
    ready = len(views) == len(served.names) and all(view.complete and view.state in served.ready for view in views)
    return _json({"ready": ready}, status=200 if ready else 503)


async def answer_queues(call: HttpCall) -> HttpAnswer:
    """Answer with the queues that this client may read."""
    call.parameters()
    queues = [queue for name, queue in call.served.queues.items() if call.bearer.rights.may_read(name)]
    return _json({"queues": [_row(queue) for queue in queues]})


async def answer_queue(call: HttpCall) -> HttpAnswer:
    """Answer with the state of a queue."""
    call.parameters()
    return _json(_row(call.queue))


async def answer_values(call: HttpCall) -> HttpAnswer | StreamedAnswer:
    """Answer with a page of values, or with all."""
    asked = call.parameters()
    kind = chosen_type(call.request.header("accept"), _OFFERS)
    call.queue.check_complete()
    chooses = _chooser(call.queue, asked.get("selector"))
    status = call.queue.view.status  # before the values, which are then no older than it says
    if kind == JSON_TYPE:
        state = state_headers(status, call.queue.view.cut.offsets)
        after = asked.get("after")
        with call.served.long_answers.thread() if _waits(call.queue, after) else nullcontext():
            body = await _page(call.queue, after, asked.get("limit", _USUAL), asked.get("prefix"), chooses)
        return HttpAnswer(200, _headers(call, kind, state), body)
    if refused := [name for name in ("limit", "after") if name in asked]:
        raise HttpRefusal(
            400, f"There is no {refused[0]} for all values at one cut.", hint="Leave it out, or ask for JSON."
        )
    if kind == _ARROW:
        if selecting := [name for name in ("prefix", "selector") if name in asked]:
            raise HttpRefusal(400, f"There is no {selecting[0]} for Arrow.", hint=f"Leave it out, or ask for {_LINES}.")
        return await _arrow(call, status)
    snapshot = await call.queue.view.snapshot_async()
    prefix = asked.get("prefix", b"")
    token = _token(call.queue, snapshot, prefix)
    entries = _selected(snapshot, prefix, chooses)
    parts = _table(entries) if kind == _TABLE else _lines(call.queue, snapshot, entries, token)

    async def stream(send: SendPart) -> None:
        while part := await in_thread(partial(_some, parts)):
            await send(part)

    content = f"{kind}; charset=utf-8; header=present" if kind == _TABLE else kind
    at_cut = _headers(call, content, state_headers(status, snapshot.offsets))
    return StreamedAnswer([*at_cut, ("lvq-token", token)], stream)


async def _arrow(call: HttpCall, status: ReaderStatus) -> StreamedAnswer:
    """Return all values at one cut as a stream of Arrow, in byte order of keys (R49)."""
    from lvq_kafka.tabular.arrow_files import streamed

    snapshot = await call.queue.decoded.snapshot_async()
    parts = streamed(await in_thread(snapshot.to_arrow))  # which may have to look at all values

    async def stream(send: SendPart) -> None:
        while part := await in_thread(lambda: next(parts, b"")):
            await send(part)

    at_cut = _headers(call, _ARROW, state_headers(status, snapshot.offsets))
    return StreamedAnswer([*at_cut, ("lvq-token", _token(call.queue, snapshot))], stream)


# -------------------------------------------------------------------- pages


def _waits(queue: ServedQueue, after: str | None) -> bool:
    """Return whether a page has to wait until the view is as far as the one before."""
    if after is None:
        return False
    cut = queue.view.cut.offsets
    behind = any(cut.get(partition, 0) < at for partition, at in PageToken.parse(after, "after").offsets.items())
    return behind or queue.view.state not in ("caught-up", "disconnected")


async def _page(
    queue: ServedQueue, after: str | None, limit: int, prefix: bytes | None, chooses: Callable[[Entry[bytes]], bool]
) -> bytes:
    """Return a page as JSON.

    It may have fewer entries than were asked for, and more may follow: ``last`` says that. It has more if its last key
    is too long for the address of the next page.
    """
    entries: list[Entry[bytes]] = []
    read, size, step, token, last = 0, 0, _STEP, after, False
    while not last:
        if (len(entries) >= limit or read >= _MOST_READ or size >= _PAGE) and len(token or "") <= _TOKEN:
            break
        page = await queue.view.page_async(token, limit=max(1, min(step, limit - len(entries))), prefix=prefix)
        chosen = await in_thread(partial(_chosen, page.entries, chooses))
        entries += chosen
        read, size, step = read + len(page.entries), size + sum(len(entry.value) for entry in chosen), 2 * step
        token, last = page.token, page.last
    return await in_thread(partial(_page_text, queue, entries, token, last=last))


def _chosen(entries: list[Entry[bytes]], chooses: Callable[[Entry[bytes]], bool]) -> list[Entry[bytes]]:
    return [entry for entry in entries if chooses(entry)]


def _page_text(queue: ServedQueue, entries: list[Entry[bytes]], token: str | None, *, last: bool) -> bytes:
    rest = json.dumps({"token": token, "last": last})[1:]
    return b'{"values": [' + b", ".join(map(queue.line, entries)) + b"], " + rest.encode() + b"\n"


def _chooser(queue: ServedQueue, selector: str | None) -> Callable[[Entry[bytes]], bool]:
    """Return a function that judges entries by a selector; without one, it takes all."""
    if selector is None:
        return lambda entry: True
    selection = Selection(queue.view.topic, BYTES, selector=selector)
    return lambda entry: selection.matches(to_record(entry))


# -------------------------------------------------------------------- all values


def _selected(
    snapshot: Snapshot[bytes], prefix: bytes, chooses: Callable[[Entry[bytes]], bool]
) -> Iterator[Entry[bytes]]:
    for entry in snapshot.iter_entries():
        if encode_key(entry.key).startswith(prefix) and chooses(entry):
            yield entry


def _some(lines: Iterator[bytes]) -> bytes:
    """Return the next lines, as many as are sent at once."""
    parts, size = [], 0
    for line in lines:
        parts.append(line)
        size += len(line)
        if size >= _PART:
            break
    return b"".join(parts)


def _lines(
    queue: ServedQueue, snapshot: Snapshot[bytes], entries: Iterator[Entry[bytes]], token: str
) -> Iterator[bytes]:
    """Yield the lines of an export, and one more, which shows that it is whole.

    That one has the token that events go on from.
    """
    yield to_line(
        {
            "lvq_export": 1,
            "queue": queue.name,
            "topic": snapshot.topic,
            "topic_id": snapshot.topic_id,
            "offsets": {str(partition): offset for partition, offset in snapshot.offsets.items()},
            "as_of": snapshot.as_of,
            "state": snapshot.status.state,
            "format": queue.form,
        }
    )
    number = 0
    for entry in entries:
        yield queue.line(entry) + b"\n"
        number += 1
    yield to_line({"event": "end-of-dump", "values": number, "token": token})


def _table(entries: Iterator[Entry[bytes]]) -> Iterator[bytes]:
    """Yield the lines of a table."""
    yield CSV_HEAD
    yield from map(csv_line, entries)


def _token(queue: ServedQueue, snapshot: Snapshot[Any], prefix: bytes = b"") -> str:
    """Return the token of a snapshot, which the events go on from."""
    return PageToken(queue.name, snapshot.topic_id, snapshot.as_of, snapshot.offsets, prefix, None).text


# -------------------------------------------------------------------- answers


def _row(queue: ServedQueue) -> dict[str, Any]:
    """Return the state of a queue."""
    status = queue.view.status
    row: dict[str, Any] = {"name": queue.name, "format": queue.form, "state": status.state}
    row |= {"complete": queue.view.complete, "lag": status.lag, "age": max(0.0, round(status.silence, 3))}
    if status.trouble is not None:
        row["trouble"] = str(status.trouble)
    if status.state not in ("failed", "closed") and queue.view.complete:
        cut = queue.view.cut
        row |= {"keys": len(queue.view), "topic_id": cut.topic_id, "as_of": cut.as_of}
        row["cut"] = {str(partition): offset for partition, offset in cut.offsets.items()}
    return row


def _json(row: dict[str, Any], *, status: int = 200) -> HttpAnswer:
    return HttpAnswer(
        status, [("content-type", JSON_TYPE), ("cache-control", "no-store")], json.dumps(row).encode() + b"\n"
    )


def _headers(call: HttpCall, kind: str, state: HeaderLines) -> HeaderLines:
    return [("content-type", kind), *state, ("vary", "accept"), call.cache_control]
