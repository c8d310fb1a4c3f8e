"""The first few of very many keys, as they change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["Leaders"]


class Leaders:
    """Tracks the keys that rank first, and examines only keys that have changed.

    Args:
        keys: all current keys; the collection changes, and each change is reported to `changed`.
        rank: the sort key, least first. No two keys share a rank.
        spare: how many keys after the first ones to keep as well, in case some of those are removed.
    """

    def __init__(self, keys: Collection[str], rank: Callable[[str], Any], *, spare: int = 200) -> None:
        self._spare = spare
        self._keys = keys
        self._rank = rank
        self._changed: set[str] = set()
        self._known: dict[str, Any] = {}  # the keys that rank no lower than the floor, and their ranks
        self._floor: Any = None  # None while all keys are known

    def changed(self, key: str) -> None:
        """Report that a key was added or removed, or that its rank changed."""
        self._changed.add(key)

    def first(self, number: int) -> list[str]:
        """Return the first ``number`` keys in order, or fewer if there are fewer."""
        self._apply_changes()
        most = number + self._spare
        if self._floor is not None and len(self._known) < number:
            self._know(self._keys, most)
        elif len(self._known) > 2 * most:
            self._know(self._known, most)
        return heapq.nsmallest(number, self._known, key=self._known.__getitem__)

    def _apply_changes(self) -> None:
        changed, self._changed = self._changed, set()
        for key in changed:
            self._known.pop(key, None)
            if key in self._keys:
                rank = self._rank(key)
                if self._floor is None or rank <= self._floor:
                    self._known[key] = rank

    def _know(self, keys: Collection[str], most: int) -> None:
        """Keep only the first of these keys."""
        first = heapq.nsmallest(most, keys, key=self._rank)
        if len(first) < len(self._keys):
            self._floor = self._rank(first[-1])
        else:
            self._floor = None
        self._known = {key: self._rank(key) for key in first}
