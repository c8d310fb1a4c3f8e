"""Server-sent events as bytes (HTML, section 9.2)."""

from __future__ import annotations

import re

__all__ = ["HEARTBEAT", "event_bytes", "id_bytes", "retry_bytes"]

HEARTBEAT = b":\n\n"
"""A comment: it shows that the connection is alive, and is no event."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


def event_bytes(name: str, data: bytes) -> bytes:
    """Return an event.

    Args:
        name: its type, without line ends.
        data: its text in UTF-8.
    """
    lines = [b"event: " + name.encode()]
    lines += [b"data: " + line for line in (_LINE_END.split(data) if _LINE_END.search(data) else (data,))]
    return b"\n".join(lines) + b"\n\n"


def id_bytes(event_id: str) -> bytes:
    """Return the field of an id: from its event on, a client returns it as ``Last-Event-ID``."""
    return b"id: %s\n" % event_id.encode()


def retry_bytes(milliseconds: int) -> bytes:
    """Return the field that says when a client connects again."""
    return b"retry: %d\n\n" % milliseconds
