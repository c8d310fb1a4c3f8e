"""Files for browsers, as they are in the package. They have no data, and need no token."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files

from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.entity_tags import is_known
from lvq_kafka.serve.http_answers import HttpAnswer
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["BOARD", "answer_board", "answer_module"]

BOARD = ("board.css", "board.js", "board.svg")
"""The files that the board takes, beside lvq.js."""

_PAGE = "board.html"
_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The page takes its own files and the answers of its server, and can make no markup of a value."""


async def answer_module(call: HttpCall) -> HttpAnswer:
    """Answer with lvq.js, with which programs in browsers follow queues (R47)."""
    return _answer(call, "lvq.js")


async def answer_board(call: HttpCall) -> HttpAnswer:
    """Answer with the board, or a file that it takes."""
    if not call.served.board:
        raise HttpRefusal(404, "There is nothing at this address.", hint="The queues are at v1/queues.")
    name = call.request.segments[0].decode() or _PAGE
    return replace(_answer(call, name), policy=_POLICY)


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
