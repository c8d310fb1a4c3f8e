"""Patterns of the operator LIKE.

Matching takes time in proportion to the text, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["LONGEST_PATTERN", "LONGEST_TEXT", "LikePattern"]

LONGEST_PATTERN = 1024
"""Characters of a pattern."""
LONGEST_TEXT = 65_536
"""Bytes of a text that is compared with a pattern. Whether a longer one matches is unknown."""

_LITTLE = 65_536  # characters of text times those of a part, up to which a regular expression is the quickest


class LikePattern:
    """A pattern in which ``_`` is any character, and ``%`` any number of them.

    Its parts lie between the percent signs. The first and the last one have a fixed place. Each of the others is looked
    for behind the one before, and taken where it is found first: if there is a match at all, there is one with the
    first places. So no part of the text is looked at twice.

    Args:
        pattern: the pattern; matches whole texts.
        escape: the character that makes the next one stand for itself.

    Raises:
        ValueError: the escape character precedes something else than ``%``, ``_`` or itself.
    """

    __slots__ = ("_first", "_last", "_least", "_middle")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        parts = [_Literal("".join(units)) if None not in units else _Wild(units) for units in _parts(pattern, escape)]  # type: ignore[arg-type]
        self._least = sum(part.length for part in parts)
        self._first = parts[0]
        self._last = parts[-1] if len(parts) > 1 else None
        self._middle = [part for part in parts[1:-1] if part.length]

    def matches(self, text: str) -> bool:
        """Return whether the whole text has this pattern."""
        last, size = self._last, len(text)
        if size < self._least or not self._first.is_at(text, 0):
            return False
        if last is None:
            return size == self._least
        end = size - last.length
        if last.length and not last.is_at(text, end):
            return False
        place = self._first.length
        for part in self._middle:
            found = part.find(text, place, end)
            if found < 0:
                return False
            place = found + part.length
        return True


def _parts(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Return what lies between the percent signs: characters, and None for any."""
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, "")
            if not literal or literal not in ("%", "_", escape):
                raise ValueError(f"{escape!r} precedes {literal!r}" if literal else f"{escape!r} is the last character")
            parts[-1].append(literal)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return parts


class _Literal:
    """A part without ``_``."""

    __slots__ = ("_text", "length")

    def __init__(self, text: str) -> None:
        self._text = text
        self.length = len(text)

    def is_at(self, text: str, place: int) -> bool:
        """Return whether the part is at this place of a text."""
        return text.startswith(self._text, place)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first place of the part between two places; -1 if there is none."""
        return text.find(self._text, start, end)


class _Wild:
    """A part with ``_``."""

    __slots__ = ("_any", "_expression", "_masks", "length")

    def __init__(self, units: Sequence[str | None]) -> None:
        self.length = len(units)
        self._expression = re.compile("".join("." if unit is None else re.escape(unit) for unit in units), re.DOTALL)
        self._any = sum(1 << place for place, unit in enumerate(units) if unit is None)
        self._masks: dict[str, int] = {}
        for place, unit in enumerate(units):
            if unit is not None:
                self._masks[unit] = self._masks.get(unit, self._any) | 1 << place

    def is_at(self, text: str, place: int) -> bool:
        """See `_Literal.is_at`."""
        return self._expression.match(text, place) is not None

    def find(self, text: str, start: int, end: int) -> int:
        """See `_Literal.find`.

        A regular expression may begin a comparison at each place. In a long text, all are compared at once: the bits of
        a number say how much of the part ends at the current place (Shift-And).
        """
        length = self.length
        if (end - start) * length <= _LITTLE:
            found = self._expression.search(text, start, end)
            return -1 if found is None else found.start()
        masks, wild, whole, state = self._masks, self._any, 1 << (length - 1), 0
        for place in range(start, end):
            state = (state << 1 | 1) & masks.get(text[place], wild)
            if state & whole:
                return place - length + 1
        return -1
