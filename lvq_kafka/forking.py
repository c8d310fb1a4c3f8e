"""Forks: threads and connections stay with the parent, so what was open tells the child that it is of no use there.

Without that a view would serve what it held at the fork for ever, and call itself caught up.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from lvq_kafka.errors import StateError

__all__ = ["LeftBehind", "left_behind", "tell_of_forks"]


class LeftBehind(Protocol):
    """Something open, with threads of its own."""

    def left_behind(self) -> None:
        """This is a forked child. Whatever lock there is may be held for ever, so replace it; be of no use, loudly."""


_open: WeakSet[LeftBehind] = WeakSet()
_kept: list[LeftBehind] = []  # in a child: to free a client there, whose threads are not, ends the process


def tell_of_forks(thing: LeftBehind) -> None:
    """Call ``left_behind`` in every child process that is forked from now on, for as long as the thing lives."""
    _open.add(thing)


def left_behind(what: str) -> StateError:
    """The error of all that is asked of it there."""
    return StateError(f"{what} belongs to the process that opened it.", hint="Open another one after the fork.")


def _in_child() -> None:
    _kept.extend(_open)
    for thing in _kept:
        thing.left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
