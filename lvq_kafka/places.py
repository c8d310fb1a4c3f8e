"""Finds the place in a user's program where something was opened."""

from __future__ import annotations

import sys

__all__ = ["opened_at"]

_OURS = frozenset({"lvq_kafka", "lvq_spark", "threading", "contextlib"})  # their frames are not the user's


def opened_at() -> str:
    """Describe the nearest caller outside this library: file and line, if known."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        if frame.f_back is None:
            return "one that was opened in a thread of its own"
        frame = frame.f_back
    return f"one that was opened at {frame.f_code.co_filename}:{frame.f_lineno}"
