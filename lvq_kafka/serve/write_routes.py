"""Writes of a key: a value, or its delete, acknowledged when durable (R52)."""

from __future__ import annotations

from functools import partial

from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.http_answers import HttpAnswer
from lvq_kafka.serve.long_answers import ending
from lvq_kafka.serve.write_requests import fingerprint, read_write

__all__ = ["answer_write"]


async def answer_write(call: HttpCall) -> HttpAnswer:
    """Write a value with PUT, or delete it with DELETE, and answer with its position."""
    writer, asked, writes = call.writer, read_write(call.request), call.served.writes
    if call.served.long_answers.ended:
        raise ending()
    with writes.room.enter() as place:
        body = await call.peer.body(asked.most, place.add_bytes)
        value = None if call.request.method == "DELETE" else body
        name = None if asked.name is None else (call.bearer.identity, asked.name)
        digest = fingerprint(call.request, call.queue.name, call.key, body) if name is not None else b""
        position = await writes.written(name, digest, place, partial(writer.write, call.key, value, asked))
    return HttpAnswer(204, [("lvq-position", str(position)), ("cache-control", "no-store")])
