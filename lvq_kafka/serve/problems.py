"""Answers that say what is wrong and what to do, and the table of statuses of errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.errors import (
    CatchUpTimeout,
    Closed,
    ConfigError,
    DataLoss,
    LVQError,
    MissingExtra,
    OutcomeUnknown,
    QueueNotDeclared,
    ReaderFailed,
    StateError,
    StoreFailed,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    UnencodableKey,
)

__all__ = ["STATUS", "HttpRefusal", "problem_body", "refusal_of", "status_of"]

STATUS: tuple[tuple[type[LVQError], int], ...] = (
    (DataLoss, 410),
    (TopicRecreated, 410),
    (MissingExtra, 501),
    (ConfigError, 400),
    (UnencodableKey, 400),
    (CatchUpTimeout, 503),
    (ReaderFailed, 503),
    (Closed, 503),
    (StateError, 503),
    (StoreFailed, 503),
    (TransportError, 503),
    (OutcomeUnknown, 503),
    (TopicNotFound, 503),
    (QueueNotDeclared, 503),
    (LVQError, 500),
)
"""The status for each kind of error of the library; the first that fits counts.

A topic or queue that is gone is no fault of the client, who asked for one that is served.
"""

_AGAIN = (CatchUpTimeout, OutcomeUnknown)
"""Errors after which the same request may succeed a moment later; a `TransportError` knows by itself."""

_SOON = "1"  # seconds, of Retry-After


class HttpRefusal(Exception):
    """An answer other than the one that was asked for.

    Args:
        status: its status.
        detail: a sentence for the client: what is wrong.
        hint: what to do about it.
        kind: the name of the library's error, if it is one.
        headers: further headers.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str = "",
        kind: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = bounded(f"{detail} {hint}".rstrip())
        self.kind = kind
        self.headers = tuple(headers)


def status_of(error: LVQError) -> int:
    """Return the status for an error of the library."""
    return next(status for kind, status in STATUS if isinstance(error, kind))


def refusal_of(error: LVQError) -> HttpRefusal:
    """Return the answer for an error of the library, in its words."""
    status = status_of(error)
    again = status == 503 and (isinstance(error, _AGAIN) or (isinstance(error, TransportError) and error.retriable))
    headers = [("retry-after", _SOON)] if again else []
    return HttpRefusal(status, str(error), kind=type(error).__name__, headers=headers)


def problem_body(refusal: HttpRefusal) -> bytes:
    """Return the body of an answer of the type application/problem+json (RFC 9457)."""
    row = {"title": HTTPStatus(refusal.status).phrase, "status": refusal.status, "detail": refusal.detail}
    if refusal.kind:
        row["error"] = refusal.kind
    return json.dumps(row).encode() + b"\n"
