"""The OpenAPI document of the routes (OpenAPI 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from lvq_kafka._version import __version__
from lvq_kafka.serve.operations import CURRENT, HEADERS, SCHEMAS, AnswerForm, HttpOperation, schema_of
from lvq_kafka.serve.parameters import Parameter
from lvq_kafka.serve.routes import Route

__all__ = ["openapi_document"]

_ABOUT = """\
The current values of last value queues on Kafka. HEAD is answered wherever GET is, without a body; methods that are not
named here are refused with 405. A query may have no parameters that an operation does not name. Every answer has
`nosniff` and a strict content security policy. Requests are answered for the hosts of this server only; others get 421.
"""

_ALWAYS = (400, 414, 421, 431, 500)
"""The statuses of problems that any request may have, whatever it asks for."""

_PARTS: Mapping[str, str] = {
    "queue": "The name of the queue.",
    "key": "The key, percent-encoded: any bytes. A slash is `%2F`. It may be empty.",
}
_EVERY = ("cache-control", "retry-after", *CURRENT)
"""The headers that a problem may have."""

_OF_STATUS: Mapping[int, tuple[str, ...]] = {
    401: ("www-authenticate",),
    405: ("allow",),
    408: ("connection",),
    413: ("connection",),
    415: ("accept-encoding",),
}
"""Those that a problem of one status may have."""


def openapi_document(routes: Iterable[Route], *, max_wait: float, tokens: bool) -> dict[str, Any]:
    """Return the document of a server.

    Args:
        routes: its routes.
        max_wait: the longest that a request may ask to wait, in seconds.
        tokens: whether routes that are not public need a bearer token.
    """
    paths: dict[str, dict[str, Any]] = {}
    refusals: set[int] = set()
    for route in routes:
        statuses = _refusals(route, tokens=tokens)
        refusals.update(statuses)
        described = _described(route, max_wait)
        described["responses"] |= {str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses}
        if tokens and not route.public:
            described["security"] = [{"bearer": []}]
        paths.setdefault(f"/{route.path}", {})[route.methods[0].lower()] = described
    components: dict[str, Any] = {
        "schemas": SCHEMAS,
        "headers": {name: _header(name) for name in HEADERS},
        "responses": {str(status): _problem(status) for status in sorted(refusals)},
    }
    if tokens:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "lvq serve", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "."}],  # where this document is, wherever the application is mounted
        "paths": paths,
        "components": components,
    }


def _described(route: Route, max_wait: float) -> dict[str, Any]:
    operation = route.operation
    parts = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    body = {"requestBody": _body(operation.body)} if operation.body else {}
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        **body,
        "parameters": [
            *(_parameter(part, "path", _PARTS[part], {"type": "string"}, required=True) for part in parts),
            *(_queried(name, parameter) for name, parameter in operation.parameters(max_wait).items()),
            *(_parameter(name, "header", meaning, {"type": "string"}) for name, meaning in operation.headers.items()),
        ],
        "responses": {str(status): _answer(form) for status, form in operation.answers.items()},
    }


def _parameter(
    name: str, place: str, meaning: str, schema: Mapping[str, Any], *, required: bool = False
) -> dict[str, Any]:
    return {"name": name, "in": place, "description": meaning, "required": required, "schema": schema}


def _body(meaning: str) -> dict[str, Any]:
    return {"description": meaning, "content": {"*/*": {}}}


def _queried(name: str, parameter: Parameter) -> dict[str, Any]:
    schema = parameter.kind.schema
    return _parameter(
        name, "query", parameter.meaning, {"type": "array", "items": schema} if parameter.several else schema
    )


def _answer(form: AnswerForm) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": form.meaning}
    if form.headers:
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in form.headers}
    if form.content:
        answer["content"] = {kind: {"schema": schema} for kind, schema in form.content.items()}
    return answer


def _header(name: str) -> dict[str, Any]:
    meaning, schema = HEADERS[name]
    return {"description": meaning, "schema": schema}


def _refusals(route: Route, *, tokens: bool) -> list[int]:
    """Return the statuses of problems that a route may have, unless its own answers have them."""
    operation: HttpOperation = route.operation
    found = {*_ALWAYS, *operation.refusals}
    if tokens and not route.public:
        found |= {401, 403}
    if "{queue}" in route.path:
        found |= {404, 503}
    if route.long:
        found.add(503)
    return sorted(found - set(operation.answers))


def _problem(status: int) -> dict[str, Any]:
    headers = (*_EVERY, *_OF_STATUS.get(status, ()))
    return _answer(AnswerForm(HTTPStatus(status).phrase, {"application/problem+json": schema_of("Problem")}, headers))
