"""Files for browsers, and the OpenAPI document. They have no data, and need no token."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files

from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.entity_tags import is_known
from lvq_kafka.serve.http_answers import HttpAnswer
from lvq_kafka.serve.operations import HELD, IF_NONE_MATCH, JSON_TYPE, AnswerForm, HttpOperation
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["BOARD", "DOCUMENT", "MODULE", "answer_board", "answer_document", "answer_module", "board_operation"]

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


def _file_operation(name: str, summary: str, kind: str, *, refusals: tuple[int, ...] = ()) -> HttpOperation:
    return HttpOperation(
        name,
        summary,
        {200: AnswerForm("The file.", {kind: {}}, HELD), 304: AnswerForm("The client has it.", headers=HELD)},
        headers={"If-None-Match": IF_NONE_MATCH},
        refusals=refusals,
    )


def board_operation(name: str) -> HttpOperation:
    """Return the operation of the board, or of a file that it takes."""
    title = "".join(part.title() for part in (name or _PAGE).split("."))
    summary = "Get a file of the board." if name else "Get the board: a page that shows the queues as they change."
    return _file_operation(f"get{title}", summary, _type_of(name or _PAGE), refusals=(404,))


MODULE = _file_operation("getModule", "Get lvq.js, with which programs in browsers follow queues.", _TYPES["js"])
DOCUMENT = _file_operation("getDocument", "Get this document.", JSON_TYPE)


async def answer_document(call: HttpCall) -> HttpAnswer:
    """Answer with the OpenAPI document."""
    return _answer(call, call.served.document, JSON_TYPE)


async def answer_module(call: HttpCall) -> HttpAnswer:
    """Answer with lvq.js, with which programs in browsers follow queues (R47)."""
    return _answer_file(call, "lvq.js")


async def answer_board(call: HttpCall) -> HttpAnswer:
    """Answer with the board, or a file that it takes."""
    if not call.served.board:
        raise HttpRefusal(404, "There is nothing at this address.", hint="The queues are at v1/queues.")
    name = call.request.segments[0].decode() or _PAGE
    return replace(_answer_file(call, name), policy=_POLICY)


def _answer_file(call: HttpCall, name: str) -> HttpAnswer:
    return _answer(call, _read(name), f"{_type_of(name)}; charset=utf-8")


def _answer(call: HttpCall, body: bytes, kind: str) -> HttpAnswer:
    """Return a body, unless the client has it."""
    tag = _tag_of(body)
    headers = [("cache-control", "no-cache"), ("etag", tag)]
    if is_known(tag, call.request.header("if-none-match")):
        return HttpAnswer(304, headers)
    return HttpAnswer(200, [("content-type", kind), *headers], body)


def _type_of(name: str) -> str:
    return _TYPES[name.rpartition(".")[2]]


@cache
def _read(name: str) -> bytes:
    return files("lvq_kafka.serve").joinpath("web", name).read_bytes()


def _tag_of(body: bytes) -> str:
    return f'"{sha256(body).hexdigest()[:32]}"'
