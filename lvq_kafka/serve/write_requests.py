"""Requests to write: the headers and terms of a message, and the things that none can ask."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lvq_kafka.core.producer.message_terms import MessageTerms
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.errors import DecodeError
from lvq_kafka.json_lines import parse_headers
from lvq_kafka.serve.http_peer import too_large
from lvq_kafka.serve.http_requests import HttpRequest
from lvq_kafka.serve.parameters import TEXT, Parameter, ParameterKind, seconds
from lvq_kafka.serve.problems import HttpRefusal
from lvq_kafka.serve.repeated_writes import fingerprint_of, idempotency_key

__all__ = ["HEADERS", "LARGEST_VALUE", "OF_DELETES", "OF_VALUES", "WriteRequest", "read_write"]

HEADERS = "lvq-headers"
"""The header of a request that has those of the message: an object of JSON, as in the entry form of a value.

Not one header for each, since their names in HTTP have no case, and their values few characters.
"""

LARGEST_VALUE = 1_000_000
"""Bytes of a value, at most.

With the longest key and headers that a request can have, it fits into a message of the default size of brokers.
"""

_MOST_HEADERS = 64
_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
_LONGEST = 1e9  # seconds, some 30 years: the library has limits of its own
_EPOCH = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A message to write, without its key and value."""

    headers: list[tuple[str, bytes | None]]
    terms: MessageTerms
    delay: float | None
    """The seconds after which it counts; None if it does at once, or from a time of `terms` on."""
    name: str | None
    """The key by which the client repeats it; None if it does not."""
    most: int
    """How many bytes the body may have."""

    def terms_at(self, now: float) -> MessageTerms:
        """Return the terms of a message that is sent now."""
        return self.terms if self.delay is None else {**self.terms, "not_before": now + self.delay}


def read_write(request: HttpRequest, asked: dict[str, Any]) -> WriteRequest:
    """Return what a PUT or a DELETE asks for.

    Args:
        request: the request.
        asked: the parameters of its query.

    Raises:
        HttpRefusal: something in it cannot be done, or is malformed.
    """
    _check_origin(request)
    _check_unconditional(request)
    deletes = request.method == "DELETE"
    most = 0 if deletes else LARGEST_VALUE
    size = request.header("content-length") or ""
    if size.isdecimal() and (len(size) > 12 or int(size) > most):
        raise too_large(most)  # before any of it is read
    delay = asked.pop("delay", None)
    if "not-before" in asked:
        if delay is not None:
            raise HttpRefusal(400, "The parameters delay and not-before exclude each other.", hint="Give one of them.")
        asked["not_before"] = asked.pop("not-before")
    name = idempotency_key(request.header("idempotency-key"))
    return WriteRequest(_headers_of(request), _as_terms(asked), delay, name, most)


def fingerprint(request: HttpRequest, queue: str, key: bytes, body: bytes) -> bytes:
    """Return a digest of all that a write depends on."""
    headers = (request.header(HEADERS) or "").encode("latin-1")
    return fingerprint_of([queue.encode(), request.method.encode(), key, request.query, headers, body])


def _check_origin(request: HttpRequest) -> None:
    """Check that no page of another origin sends it, whatever a proxy has permitted that page."""
    if request.header("sec-fetch-site") not in (None, "same-origin", "none"):
        raise HttpRefusal(403, "A page of another origin may not write here. Nothing was written.")


def _check_unconditional(request: HttpRequest) -> None:
    for name in _CONDITIONS:
        if request.header(name) is not None:
            raise HttpRefusal(
                400,
                f"A write cannot depend on {name}: Kafka has no conditional writes. Nothing was written.",
                hint="Leave it out. The last writer decides.",
                rule="R52",
            )
    if request.header("content-range") is not None:
        raise HttpRefusal(400, "A part of a value cannot be written.", hint="Write all of it, without Content-Range.")
    coding = (request.header("content-encoding") or "identity").strip().lower()
    if coding != "identity":
        raise HttpRefusal(
            415,
            "The body has a Content-Encoding, and is stored as it is.",
            hint="Send it without.",
            headers=[("accept-encoding", "identity")],
        )


def _headers_of(request: HttpRequest) -> list[tuple[str, bytes | None]]:
    given = request.header(HEADERS)
    if given is None:
        return []
    try:
        told = given.encode("latin-1").decode("utf-8")
        found = read_json(told, once=True)
        if not isinstance(found, dict):
            raise HttpRefusal(400, f"The header {HEADERS} is not an object of JSON.", hint=_EXAMPLE)
        pairs = parse_headers(found, told)
    except DecodeError as error:
        raise HttpRefusal(400, f"The header {HEADERS} {error}", hint=_EXAMPLE) from None
    except ValueError as error:
        raise HttpRefusal(400, f"The header {HEADERS} is not JSON in UTF-8: {error}.", hint=_EXAMPLE) from None
    if len(pairs) > _MOST_HEADERS:
        raise HttpRefusal(400, f"The header {HEADERS} has more than {_MOST_HEADERS} headers.")
    if any(name == UNKEYED_HEADER for name, _ in pairs):  # with it, a producer adds no key header
        raise HttpRefusal(
            400,
            f"The header {UNKEYED_HEADER} says that a message has no key, and the address names one.",
            hint="Leave it out. Nothing was written.",
            rule="R1",
        )
    return pairs


_EXAMPLE = f"For example {HEADERS}: {json.dumps({'exchange': 'NYSE'})}"


def _as_terms(asked: Mapping[str, object]) -> MessageTerms:
    terms: MessageTerms = {}
    terms.update(asked)  # type: ignore[typeddict-item]  # the parameters have their names
    return terms


def _digits(data: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,3}", data):
        raise ValueError("a whole number")
    return int(data)


def _time(data: bytes) -> float | datetime:
    written = data.decode("utf-8", "replace")
    if _EPOCH.fullmatch(written):
        return float(written)
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None or not math.isfinite(found.timestamp()):
        raise ValueError("seconds since the epoch, or a time with its zone such as 2026-08-01T12:30Z")
    return found


OF_DELETES: Mapping[str, Parameter] = {
    "group": Parameter(TEXT, "The group of the message; needed where the queue places messages by group."),
}
OF_VALUES: Mapping[str, Parameter] = {
    **OF_DELETES,
    "ttl": Parameter(seconds(_LONGEST), "The seconds for which the value counts."),
    "delay": Parameter(seconds(_LONGEST), "The seconds after which it counts. Not with `not-before`."),
    "not-before": Parameter(
        ParameterKind(_time, {"type": "string"}),
        "The time from which it counts: seconds since the epoch, or ISO 8601 with a zone.",
    ),
    "priority": Parameter(
        ParameterKind(_digits, {"type": "integer", "minimum": 0, "maximum": 9}),
        "Its priority; 9 is first.",
    ),
    "sort": Parameter(TEXT, "The text that it is sorted by."),
}
"""The parameters, as the options of ``lvq put``."""
