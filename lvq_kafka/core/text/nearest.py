"""Names that are nearly alike: they differ in case, in separators, or by a slip."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["folded", "nearest"]

_SEPARATORS = str.maketrans("", "", "-_. ")
_LONGEST = 200  # characters of a name that are compared


def folded(name: str) -> str:
    """Return a name in small letters and without separators."""
    return name.lower().translate(_SEPARATORS)


def nearest(name: str, names: Iterable[str], most: int = 1, *, alike: float = 0.6) -> list[str]:
    """Return the names that this one may be a slip for, the nearest first.

    Of names that differ in case or separators only, the first counts.

    Args:
        most: how many to return at most.
        alike: how alike they have to be, from 0 to 1.
    """
    by_letters: dict[str, str] = {}
    for each in names:
        by_letters.setdefault(folded(each), each)
    return [by_letters[found] for found in get_close_matches(folded(name[:_LONGEST]), by_letters, n=most, cutoff=alike)]
