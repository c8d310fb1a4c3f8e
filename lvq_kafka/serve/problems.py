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
    EncodeError,
    LVQError,
    MessageTooLarge,
    MissingExtra,
    MissingKey,
    OutcomeUnknown,
    QueueFull,
    QueueMismatch,
    QueueNotDeclared,
    ReaderFailed,
    StateError,
    StoreFailed,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    UnencodableKey,
)

__all__ = ["STATUS", "HttpRefusal", "problem_body", "refusal_of", "rule_of", "status_of"]

STATUS: tuple[tuple[type[LVQError], int], ...] = (
    (DataLoss, 410),
    (TopicRecreated, 410),
    (MissingExtra, 501),
    (ConfigError, 400),
    (UnencodableKey, 400),
    (MissingKey, 400),
    (EncodeError, 400),
    (QueueFull, 429),
    (MessageTooLarge, 413),
    (OutcomeUnknown, 504),
    (CatchUpTimeout, 503),
    (ReaderFailed, 503),
    (Closed, 503),
    (StateError, 503),
    (StoreFailed, 503),
    (TransportError, 503),
    (TopicNotFound, 503),
    (QueueNotDeclared, 503),
    (QueueMismatch, 503),
    (LVQError, 500),
)
"""The status for each kind of error of the library; the first that fits counts.

A topic or queue that is gone is no fault of the client, who asked for one that is served. A write that is answered
with 504 may have been done, and with any other of these it was not (R52).
"""

_RULES = {
    "group": "R36",
    "key": "R2",
    "not_before": "R11",
    "priority": "R20",
    "sort": "R20",
    "ttl": "R10",
}
"""By the option that an error is about, or the reserved header without its prefix, the rule that decides."""

_AGAIN = (CatchUpTimeout, QueueFull)
"""Errors after which the same request may succeed a moment later; a `TransportError` knows by itself."""

_SOON = "1"  # seconds, of Retry-After


class HttpRefusal(Exception):
    """An answer other than the one that was asked for.

    Args:
        status: its status.
        detail: a sentence for the client: what is wrong.
        hint: what to do about it.
        kind: the name of the library's error, if it is one.
        rule: the number of the rule that refuses the request, if there is one.
        headers: further headers.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str = "",
        kind: str = "",
        rule: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = bounded(f"{detail} {hint}".rstrip())
        self.kind = kind
        self.rule = rule
        self.headers = tuple(headers)


def status_of(error: LVQError) -> int:
    """Return the status for an error of the library."""
    return next(status for kind, status in STATUS if isinstance(error, kind))


def refusal_of(error: LVQError) -> HttpRefusal:
    """Return the answer for an error of the library, in its words."""
    status = status_of(error)
    again = isinstance(error, _AGAIN) or (status == 503 and isinstance(error, TransportError) and error.retriable)
    headers = [("retry-after", _SOON)] if again else []
    return HttpRefusal(status, str(error), kind=type(error).__name__, rule=rule_of(error), headers=headers)


def rule_of(error: LVQError) -> str:
    """Return the number of the rule by which a message is refused; empty if it is by none."""
    if isinstance(error, QueueFull):
        return "R12"
    if isinstance(error, MissingKey):
        return "R1"
    if isinstance(error, UnencodableKey):
        return "R2"
    names = [name.removeprefix("lvq-").replace("-", "_") for name in error.options]
    return next((_RULES[name] for name in names if name in _RULES), "")


def problem_body(refusal: HttpRefusal) -> bytes:
    """Return the body of an answer of the type application/problem+json (RFC 9457)."""
    row = {"title": HTTPStatus(refusal.status).phrase, "status": refusal.status, "detail": refusal.detail}
    if refusal.kind:
        row["error"] = refusal.kind
    if refusal.rule:
        row["rule"] = refusal.rule
    return json.dumps(row).encode() + b"\n"
