"""What is bound to its process: it cannot be pickled or copied, and is of no use in a forked child.

Threads and connections stay with the parent. So what was open tells the child that it is of no use there: without that
a view would serve what it held at the fork for ever, and call itself caught up.
"""

from __future__ import annotations

import ctypes
import os
from typing import ClassVar, NoReturn, Protocol
from weakref import WeakSet

from lvq_kafka.errors import BoundToProcess

__all__ = ["Bound", "LeftBehind", "left_behind", "notify_of_forks"]


class Bound:
    """Something that is neither pickled nor copied."""

    __slots__ = ()

    elsewhere: ClassVar[str] = "Send what it takes to open the queue, such as its name, and open another one there."
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        raise BoundToProcess(
            f"{self!r} cannot be pickled or copied: it belongs to the process that opened it.", hint=self.elsewhere
        )


class LeftBehind(Protocol):
    """Something open, with threads of its own."""

    def left_behind(self) -> None:
        """This is a forked child. Whatever lock there is may be held for ever, so replace it; be of no use, loudly."""


_open: WeakSet[LeftBehind] = WeakSet()
_kept: list[LeftBehind] = []  # in a child


def notify_of_forks(thing: LeftBehind) -> None:
    """Call ``left_behind`` in every child process that is forked from now on, for as long as the thing lives."""
    _open.add(thing)


def left_behind(what: str) -> BoundToProcess:
    """The error of all that is asked of it there."""
    return BoundToProcess(f"{what} belongs to the process that opened it.", hint="Open another one after the fork.")


def _in_child() -> None:
    _kept.extend(_open)
    for thing in _kept:
        # To free a client whose threads are not there ends the process, or stands still. And Python frees whatever it
        # can when it ends, so there is one reference more than it knows of.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        thing.left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
