"""Answers: a status, headers, and a body or a stream; and the headers that every one has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.latest.catch_up import ReaderStatus
from lvq_kafka.serve.problems import HttpRefusal, problem_body

__all__ = ["HeaderLines", "HttpAnswer", "SendPart", "StreamedAnswer", "cut_text", "problem", "state_headers"]

HeaderLines = Sequence[tuple[str, str]]

SendPart = Callable[[bytes], Awaitable[None]]
"""Sends a part of a body. It waits while the client takes no more."""

_LONGEST_CUT = 2048  # characters of a header: some hundred partitions

_ALWAYS: HeaderLines = (
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
)

_INERT = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""Values are what anybody wrote, and a browser may show them: never as a page that can do something."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer whose body is at hand."""

    status: int
    headers: HeaderLines
    body: bytes = b""
    policy: str = _INERT
    """The things that a browser lets it do (Content-Security-Policy)."""

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        """All headers, as they are sent."""
        size = [] if self.status in (204, 304) else [("content-length", str(len(self.body)))]
        return _encoded([*self.headers, *size, ("content-security-policy", self.policy), *_ALWAYS])


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer whose body is made as it is sent."""

    headers: HeaderLines
    stream: Callable[[SendPart], Coroutine[Any, Any, None]]
    """Sends the body. It is never called for a HEAD."""
    close: Callable[[], object] = lambda: None
    """Gives back what the stream needs, whether it was called or not."""

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        """All headers, as they are sent."""
        return _encoded([*self.headers, ("content-security-policy", _INERT), *_ALWAYS])


def problem(refusal: HttpRefusal) -> HttpAnswer:
    """Return the answer that says what was wrong."""
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store"), *refusal.headers]
    return HttpAnswer(refusal.status, headers, problem_body(refusal))


def state_headers(status: ReaderStatus, offsets: Mapping[int, int]) -> HeaderLines:
    """Return the headers that say how current an answer is (R46).

    Args:
        status: that of the reader.
        offsets: the cut: the next offset of each partition.
    """
    headers = [("lvq-state", status.state), ("lvq-age", f"{max(0.0, status.silence):.3f}")]
    text = cut_text(offsets)
    return headers if len(text) > _LONGEST_CUT else [*headers, ("lvq-cut", text)]


def cut_text(offsets: Mapping[int, int]) -> str:
    """Return a cut as text: ``0=42, 1=17``."""
    return ", ".join(f"{partition}={offset}" for partition, offset in sorted(offsets.items()))


def _encoded(headers: HeaderLines) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
