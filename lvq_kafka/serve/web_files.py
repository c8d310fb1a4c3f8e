"""Files for browsers, as they are in the package. They have no data, and need no token."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.entity_tags import is_known
from lvq_kafka.serve.http_answers import HttpAnswer

__all__ = ["answer_module"]

_TYPES = {"js": "text/javascript"}


async def answer_module(call: HttpCall) -> HttpAnswer:
    """Answer with lvq.js, with which programs in browsers follow queues (R47)."""
    return _answer(call, "lvq.js")


def _answer(call: HttpCall, name: str) -> HttpAnswer:
    """Return a file, unless the client has it."""
    body, tag = _read(name)
    headers = [("cache-control", "no-cache"), ("etag", tag)]
    if is_known(tag, call.request.header("if-none-match")):
        return HttpAnswer(304, headers)
    kind = _TYPES[name.rpartition(".")[2]]
    return HttpAnswer(200, [("content-type", f"{kind}; charset=utf-8"), *headers], body)


@cache
def _read(name: str) -> tuple[bytes, str]:
    """Return a file and its entity tag."""
    body = files("lvq_kafka.serve").joinpath("web", name).read_bytes()
    return body, f'"{sha256(body).hexdigest()[:32]}"'
