"""All routes: the one place where they are listed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.serve.calls import HttpCall
from lvq_kafka.serve.event_routes import EVENTS, answer_events
from lvq_kafka.serve.http_answers import HttpAnswer, StreamedAnswer
from lvq_kafka.serve.http_requests import decoded
from lvq_kafka.serve.list_routes import (
    LIVE,
    QUEUE,
    QUEUES,
    READY,
    VALUES,
    answer_live,
    answer_queue,
    answer_queues,
    answer_ready,
    answer_values,
)
from lvq_kafka.serve.metric_routes import METRICS, answer_metrics
from lvq_kafka.serve.operations import HttpOperation
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.value_routes import VALUE, answer_value
from lvq_kafka.serve.web_files import (
    BOARD,
    DOCUMENT,
    MODULE,
    answer_board,
    answer_document,
    answer_module,
    board_operation,
)
from lvq_kafka.serve.write_routes import DELETE, PUT, answer_write

__all__ = ["ROUTES", "Route", "find_route"]

_READING = ("GET", "HEAD")

AnswerCall = Callable[[HttpCall], Coroutine[Any, Any, HttpAnswer | StreamedAnswer]]


class Route(NamedTuple):
    """A path, the function that answers, and what it takes and answers."""

    path: str
    """Parts in braces stand for any segment: ``{queue}``, and ``{key}``, which may be empty."""
    answer: AnswerCall
    operation: HttpOperation
    """By which the query is parsed, and the route described."""
    public: bool = False
    """Whether it needs no token. It must not name a queue, or show a value."""
    long: bool = False
    """Whether it counts among the answers that are bounded in number."""
    methods: tuple[str, ...] = _READING

    @property
    def writes(self) -> bool:
        """True if it needs the right to write the queue, instead of that to read it."""
        return self.methods != _READING


_VALUE = "v1/queues/{queue}/values/{key}"

ROUTES = (
    Route("live", answer_live, LIVE, public=True),
    Route("ready", answer_ready, READY, public=True),
    Route("openapi.json", answer_document, DOCUMENT, public=True),
    Route("lvq.js", answer_module, MODULE, public=True),
    *(Route(name, answer_board, board_operation(name), public=True) for name in ("", *BOARD)),
    Route("metrics", answer_metrics, METRICS),
    Route("v1/queues", answer_queues, QUEUES),
    Route("v1/queues/{queue}", answer_queue, QUEUE),
    Route("v1/queues/{queue}/values", answer_values, VALUES, long=True),
    Route(_VALUE, answer_value, VALUE),
    Route(_VALUE, answer_write, PUT, methods=("PUT",)),
    Route(_VALUE, answer_write, DELETE, methods=("DELETE",)),
    Route("v1/queues/{queue}/events", answer_events, EVENTS, long=True),
)


_BY_LENGTH: dict[int, list[tuple[Route, Sequence[str]]]] = {}
for _route in ROUTES:
    _wanted = _route.path.split("/")
    _BY_LENGTH.setdefault(len(_wanted), []).append((_route, _wanted))


def find_route(
    segments: tuple[bytes, ...], method: str = "GET", *, writable: bool = False
) -> tuple[Route, Mapping[str, bytes]]:
    """Return the route for the raw segments of a path, and its parts in braces, decoded.

    Args:
        segments: the segments.
        method: the method of the request.
        writable: whether there are queues that can be written.

    Raises:
        HttpRefusal: there is none, or not for this method; or a part is not percent-encoded.
    """
    allowed: list[str] = []
    for route, wanted in _BY_LENGTH.get(len(segments), ()):
        if (writable or not route.writes) and all(map(_fits, wanted, segments)):
            if method not in route.methods:
                allowed += route.methods
                continue
            named = {want[1:-1]: segment for want, segment in zip(wanted, segments) if want.startswith("{")}
            return route, {name: decoded(segment, what=f"The {name}") for name, segment in named.items()}
    if allowed:
        why = "" if writable else "This server only reads."
        raise HttpRefusal(405, f"There is no {quoted(method)} here.", hint=why, headers=[("allow", ", ".join(allowed))])
    value = _VALUE.split("/")
    if len(segments) > len(value) and all(map(_fits, value, segments)):
        raise HttpRefusal(404, "There is nothing below a key.", hint="Write a slash in a key as %2F.")
    raise HttpRefusal(404, "There is nothing at this address.", hint="The queues are at v1/queues.")


def _fits(wanted: str, segment: bytes) -> bool:
    if wanted == "{key}":
        return True
    return bool(segment) if wanted.startswith("{") else wanted.encode() == segment
