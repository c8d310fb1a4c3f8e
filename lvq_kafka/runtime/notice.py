"""Log lines on a state that lasts: one when it begins, then none until it has ended."""

from __future__ import annotations

__all__ = ["Notice"]


class Notice:
    """Remembers whether a state that lasts has been reported.

    It has no lock: a caller with several threads holds its own.
    """

    __slots__ = ("stands",)

    def __init__(self) -> None:
        self.stands = False
        """True while the state lasts."""

    def begins(self) -> bool:
        """Note that the state holds. Return whether it did not before: then report it."""
        before, self.stands = self.stands, True
        return not before

    def ends(self) -> bool:
        """Note that the state does not hold. Return whether it did until now."""
        before, self.stands = self.stands, False
        return before
