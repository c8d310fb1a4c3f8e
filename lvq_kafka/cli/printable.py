"""Text that fits a cell of a table, for people."""

from __future__ import annotations

import json
from typing import Any

from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.text.quoting import printable

__all__ = ["printable_key", "printable_text", "printable_value"]

_WIDEST = 1_000  # characters in a cell; measuring more costs a second per megabyte


def printable_key(key: str) -> str:
    """Return a key for a person to read.

    The unique key given to a message without one is meaningless to people.
    """
    return "(no key)" if key.startswith(f"{UNKEYED_HEADER}:") else printable_text(key)


def printable_text(text: str) -> str:
    """Return text for a table cell, cut to what could fit on any terminal."""
    return printable(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…")


def printable_value(value: Any) -> str:
    """Return a value for a table cell, cut likewise."""
    if isinstance(value, bytes):
        try:
            return printable_text(value.decode("utf-8"))
        except UnicodeDecodeError:
            return f"0x{value[:24].hex()}{'…' if len(value) > 24 else ''} ({len(value)} bytes)"
    return printable_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
