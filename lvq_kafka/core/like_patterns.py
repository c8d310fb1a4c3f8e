"""Patterns of the operator LIKE, whose matching is never slower than text times pattern."""

from __future__ import annotations

import re

__all__ = ["LONGEST_PATTERN", "like_pattern"]

LONGEST_PATTERN = 1024
"""Characters of a pattern, which bound the work for a long text."""


def like_pattern(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    """Compile a pattern in which ``_`` is any character, and ``%`` any number of them.

    Args:
        pattern: the pattern; matches whole texts.
        escape: the character that makes the next one stand for itself.

    Raises:
        ValueError: the escape character precedes something else than ``%``, ``_`` or itself.
    """
    parts = [""]  # regular expressions of what lies between the percent signs
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, "")
            if not literal or literal not in ("%", "_", escape):
                raise ValueError(f"{escape!r} precedes {literal!r}" if literal else f"{escape!r} is the last character")
            parts[-1] += re.escape(literal)
        elif character == "%":
            parts.append("")
        else:
            parts[-1] += "." if character == "_" else re.escape(character)
    return re.compile(_joined(parts), re.DOTALL)


def _joined(parts: list[str]) -> str:
    """Join parts so that each is found at its first place, and never looked for at another.

    If there is a match at all, there is one with the first places. So the groups are atomic, and nothing backtracks
    over more than one of them.
    """
    first, *others = parts
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + (f".*{last}" if last else ".*")
