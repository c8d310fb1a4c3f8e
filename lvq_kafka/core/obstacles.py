"""Obstacles to a consumer's progress, in words for people."""

from __future__ import annotations

from typing import Literal

__all__ = ["Doing", "Obstacles"]

Doing = Literal["reading", "committing", "transacting", "expiring", "reclaiming", "paging"]
"""An activity that has trouble: of the consumer's thread, of a transaction, of letters of what has expired, of
reclaiming, or of paging.
"""

_ASIDE: frozenset[Doing] = frozenset(("expiring", "reclaiming", "paging"))
"""Activities that do not say whether messages come and go."""


class Obstacles:
    """The current failures, and the problems that are none.

    Activities are tracked separately: incoming messages do not prove that commits are stored.
    """

    def __init__(self) -> None:
        self.idle = ""
        """Why nothing is handed out although the cluster answers; empty if nothing is wrong."""
        self._trouble: dict[Doing, str] = {}  # why the last attempt failed

    def report(self, doing: Doing, error: str) -> bool:
        """Record that an activity fails. Return whether it is the only trouble with messages."""
        first = self._trouble.keys() <= _ASIDE
        self._trouble[doing] = error
        return first

    def clear(self, *doings: Doing) -> None:
        """Record that these activities succeed."""
        for doing in doings:
            self._trouble.pop(doing, None)

    def of(self, doing: Doing) -> str:
        """Return why an activity fails; empty if it does not."""
        return self._trouble.get(doing, "")

    @property
    def in_trouble(self) -> bool:
        """True if the last attempt to read or to commit failed."""
        return not self._trouble.keys().isdisjoint(("reading", "committing"))

    def __str__(self) -> str:
        aside = [said for doing, said in self._trouble.items() if doing in _ASIDE]
        told = [said for doing, said in self._trouble.items() if doing not in _ASIDE] + aside
        return next(iter(told), "") or self.idle
