"""Objects bound to their process: not picklable, not copyable, and unusable after a fork.

Threads and connections stay with the parent. In the child, open objects are therefore marked as unusable. Otherwise a
view would serve its contents from the moment of the fork forever, and call itself caught up.
"""

from __future__ import annotations

import ctypes
import os
from typing import ClassVar, NoReturn, Protocol
from weakref import WeakSet

from lvq_kafka.errors import BoundToProcess

__all__ = ["Bound", "LeftBehind", "keep_for_good", "left_behind", "notify_of_forks"]


class Bound:
    """Base of objects that can be neither pickled nor copied."""

    __slots__ = ()

    elsewhere: ClassVar[str] = "Send what is needed to open the queue, such as its name, and open another one there."
    """The hint that says what to do instead."""

    def __reduce__(self) -> NoReturn:
        raise BoundToProcess(
            f"{self!r} cannot be pickled or copied: it belongs to the process that opened it.", hint=self.elsewhere
        )


class LeftBehind(Protocol):
    """An open object with its own threads."""

    def left_behind(self) -> None:
        """Replace all locks, and fail loudly from now on: this is a forked child.

        Any lock may be held forever.
        """


_open: WeakSet[LeftBehind] = WeakSet()
_kept: list[LeftBehind] = []  # in a child process


def notify_of_forks(thing: LeftBehind) -> None:
    """Call ``left_behind`` in every child forked from now on, while the object lives."""
    _open.add(thing)


def left_behind(what: str) -> BoundToProcess:
    """Return the error for any use of the object in the child."""
    return BoundToProcess(f"{what} belongs to the process that opened it.", hint="Open another one after the fork.")


def keep_for_good(thing: object) -> None:
    """Never free an object, not even at exit, where Python frees what it can.

    This adds a reference that it does not know of.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _in_child() -> None:
    _kept.extend(_open)
    for thing in _kept:
        keep_for_good(thing)  # freeing a client whose threads do not exist crashes or hangs the process
        thing.left_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
