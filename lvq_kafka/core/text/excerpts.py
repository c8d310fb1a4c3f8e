"""Places in a text that somebody has written, in words, and with a caret below its line."""

from __future__ import annotations

__all__ = ["excerpt", "place_in"]

_WIDTH = 36  # characters of the text on each side of the caret


def place_in(text: str, at: int) -> str:
    """Return the column of a place, counted from 1; with its line if the text has several."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"line {line:,}, column {column:,}" if "\n" in text else f"column {column:,}"


def excerpt(text: str, at: int) -> str:
    """Return the part of the text around a place, and a caret that points at it."""
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line, at = text[begin : None if end < 0 else end], at - begin
    start = max(0, at - _WIDTH)
    before, after = line[start:at], line[at : at + _WIDTH]
    before = ("… " if start else "") + "".join(c if c.isprintable() else " " for c in before)
    after = "".join(c if c.isprintable() else " " for c in after) + (" …" if at + _WIDTH < len(line) else "")
    return f"    {before}{after}\n    {' ' * len(before)}^"
