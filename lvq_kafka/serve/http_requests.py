"""Requests as the routes need them: raw path segments, a query, and headers; bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["HttpRequest", "decoded", "path_segments", "read_request"]

_LONGEST_TARGET = 8192  # bytes
_MOST_HEADERS = 64
_MOST_HEADER_BYTES = 16_384
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request."""

    method: str
    host: str | None
    """The host that it is for, as it was sent; None if it names none, or several."""
    segments: tuple[bytes, ...]
    """The raw parts between the slashes of its path, below the place of the application."""
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)  # they may have a token
    """The names are in small letters."""
    peer: str | None = None
    """The address that the connection comes from; None if it is not known."""

    def header(self, name: str) -> str | None:
        """Return a header, or None. Repeated ones are a list with commas."""
        wanted = name.encode("latin-1")
        found = [value for header, value in self.headers if header == wanted]
        return b", ".join(found).decode("latin-1") if found else None


def read_request(scope: Mapping[str, Any]) -> HttpRequest:
    """Return the request of an ASGI scope.

    Raises:
        HttpRefusal: its target or its headers are too long, or too many; or its body has two lengths, which is how one
            request is hidden in another.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"], safe="/").encode("latin-1")
    query: bytes = scope.get("query_string", b"")
    if len(raw) + len(query) > _LONGEST_TARGET:
        raise HttpRefusal(414, f"The address is longer than {_LONGEST_TARGET:,} bytes.", hint="Ask for less at once.")
    headers = tuple((bytes(name).lower(), bytes(value)) for name, value in scope["headers"])
    if len(headers) > _MOST_HEADERS or sum(len(name) + len(value) for name, value in headers) > _MOST_HEADER_BYTES:
        raise HttpRefusal(431, f"There are more than {_MOST_HEADERS} headers, or {_MOST_HEADER_BYTES:,} bytes of them.")
    names = [name for name, _ in headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise HttpRefusal(400, "The body of the request has two lengths.", headers=[("connection", "close")])
    hosts = [value for name, value in headers if name == b"host"]
    if (absolute := _ABSOLUTE.match(raw)) is not None:  # its host counts, whatever the header says
        raw, hosts = raw[absolute.end() :], [absolute[1]]
    host = hosts[0].decode("latin-1") if len(hosts) == 1 else None
    peer = scope.get("client")
    segments = path_segments(raw, scope.get("root_path", ""))
    return HttpRequest(scope["method"], host, segments, query, headers, peer[0] if peer else None)


def path_segments(raw: bytes, root: str) -> tuple[bytes, ...]:
    """Return the segments of a raw path below the place where an application is mounted.

    Args:
        raw: the path as it was sent, percent-encoded.
        root: the decoded path of that place; empty for none. A path that does not begin with it is taken as one
            from which it was removed.
    """
    segments = raw.removeprefix(b"/").split(b"/")
    above = root.strip("/").encode("utf-8", "surrogateescape")
    depth = above.count(b"/") + 1 if above else 0
    if depth and unquote_to_bytes(b"/".join(segments[:depth])) == above:
        segments = segments[depth:] or [b""]
    return tuple(segments)


def decoded(text: bytes, *, plus: bool = False, what: str) -> bytes:
    """Return percent-encoded text as bytes.

    Args:
        text: the text.
        plus: whether a plus sign stands for a space, as it does in a query.
        what: the text, in words.

    Raises:
        HttpRefusal: a percent sign is not followed by two hexadecimal digits.
    """
    if _BAD_ESCAPE.search(text):
        raise HttpRefusal(400, f"{what} has a percent sign without two hexadecimal digits.", hint="Write it %25.")
    return unquote_to_bytes(text.replace(b"+", b" ") if plus else text)
