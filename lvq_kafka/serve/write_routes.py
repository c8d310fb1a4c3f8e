"""Writes of a key: a value, or its delete, acknowledged when durable (R52)."""

from __future__ import annotations

import asyncio
from functools import partial

from lvq_kafka.core.facts import Position
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.http_answers import HttpAnswer
from lvq_kafka.serve.long_answers import ending
from lvq_kafka.serve.operations import AnswerForm, HttpOperation
from lvq_kafka.serve.write_requests import (
    HEADERS,
    LARGEST_VALUE,
    OF_DELETES,
    OF_VALUES,
    WriteRequest,
    fingerprint,
    read_write,
)
from lvq_kafka.serve.write_room import WritePlace

__all__ = ["DELETE", "PUT", "answer_write"]

_DURABLE = AnswerForm("It is durable.", headers=("lvq-position", "cache-control"))
_REFUSALS = (403, 405, 408, 410, 413, 415, 422, 429, 504)
_HEADERS = {
    HEADERS: "The headers of the message: an object of JSON.",
    "Idempotency-Key": "A name of the write. For ten minutes, a repetition is answered as the first was, and writes "
    "nothing; the same name for another write is 422.",
}

PUT = HttpOperation(
    "putValue",
    "Write the value of a key.",
    {204: _DURABLE},
    query=OF_VALUES,
    headers=_HEADERS,
    body=f"The value, byte for byte, up to {LARGEST_VALUE:,} bytes. It must have the queue's format.",
    refusals=_REFUSALS,
)

DELETE = HttpOperation(
    "deleteValue",
    "Delete a key with its value, whether it has one or not.",
    {204: _DURABLE},
    query=OF_DELETES,
    headers=_HEADERS,
    refusals=_REFUSALS,
)


async def answer_write(call: HttpCall) -> HttpAnswer:
    """Write a value with PUT, or delete it with DELETE, and answer with its position."""
    asked, writes = read_write(call.request, call.parameters()), call.served.writes
    if call.served.long_answers.ended:
        raise ending()
    with writes.room.enter() as place:
        begun = await _start_write(call, asked, place)  # nothing here keeps the body of a repetition
        position = await writes.outcome(begun, named=asked.name is not None)
    return HttpAnswer(204, [("lvq-position", str(position)), ("cache-control", "no-store")])


async def _start_write(call: HttpCall, asked: WriteRequest, place: WritePlace) -> asyncio.Task[Position] | Position:
    """Read the body, and begin the write; or return the one that it repeats."""
    writer = call.writer
    body = await call.served.long_answers.unless_ended(call.peer.body(asked.most, place.add_bytes))
    value = None if call.request.method == "DELETE" else body
    name = None if asked.name is None else (call.bearer.identity, asked.name)
    digest = fingerprint(call.request, call.queue.name, call.key, body) if name is not None else b""
    return call.served.writes.begin(name, digest, place, partial(writer.write, call.key, value, asked))
