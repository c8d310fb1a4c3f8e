"""Waking readers in other processes by a file that they watch (R41)."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Event
from time import monotonic
from typing import Any
from weakref import finalize

__all__ = ["Bell", "Ears"]

logger = logging.getLogger("lvq_kafka.store")

_MODIFIED, _DELETED, _MOVED, _IGNORED = 0x2, 0x400, 0x800, 0x8000
_EVENT = Struct("=iIII")  # watch, mask, cookie, length of the name
_BRIEF, _LONG = 0.001, 0.02  # seconds between two looks where the system cannot wake us
_RECENT = 0.5  # seconds after a change during which others are likely


class Bell:
    """A file that its owner writes a byte to, again and again.

    A byte in the cache of the system costs a microsecond, however many watch.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._closed = _closing(self, self._file)

    def ring(self) -> None:
        """Wake all who watch. Not after `close`."""
        with suppress(OSError):  # they look by themselves, if late
            os.pwrite(self._file, b"!", 0)

    def close(self) -> None:
        """Close the file."""
        self._closed()


class Ears:
    """Waits for a bell, in one thread, which closes it.

    Other threads may call `wake`, even after that.

    Linux tells by inotify. Elsewhere, or where a user has no inotify left, it looks again and again.

    Args:
        path: the bell. It need not exist yet.
        look: returns another value after a change, for want of inotify.
    """

    def __init__(self, path: Path, look: Callable[[], object]) -> None:
        self._path = path
        self._look = look
        self._seen: object = None
        self._changed = monotonic()
        self._woken = Event()
        self._watch = -1
        self._inotify = _Inotify.opened(path)
        self._out, self._in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else os.pipe()
        _closing(self, self._out, self._in)

    def wake(self) -> None:
        """Make `wait` return. May be called in a finalizer."""
        self._woken.set()
        with suppress(OSError):
            os.write(self._in, b"!")

    def close(self) -> None:
        """Let go of inotify, of which a user has few instances. Nobody waits after this."""
        if self._inotify is not None:
            self._inotify.close()

    def wait(self, timeout: float) -> None:
        """Wait for the bell, for `wake`, or for as many seconds."""
        if self._inotify is None:
            self._wait_by_looking(timeout)
            return
        if self._watch < 0:
            self._watch = self._inotify.watch(self._path)
        for file, _ in self._inotify.poll(self._out, timeout):
            if file == self._out:
                os.read(self._out, 4096)
            elif self._inotify.lost_in(self._watch):
                self._watch = -1

    def _wait_by_looking(self, timeout: float) -> None:
        until = monotonic() + timeout
        while (now := monotonic()) < until and not self._woken.is_set():
            seen = self._look()
            if seen != self._seen:
                self._seen, self._changed = seen, now
                return
            self._woken.wait(min(_BRIEF if now - self._changed < _RECENT else _LONG, until - now))


def _closing(owner: object, *files: int) -> finalize[..., Any]:
    """Close files with their owner, but not at exit.

    Threads may use them to the end, when the number may already be that of another file.
    """
    closing = finalize(owner, _close, *files)
    closing.atexit = False
    return closing


def _close(*files: int) -> None:
    for file in files:
        os.close(file)


class _Inotify:
    """The calls of inotify."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.close = _closing(self, file)
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)
        self._others: set[int] = set()

    @classmethod
    def opened(cls, path: Path) -> _Inotify | None:
        """Return an open one; None if the system has none, or none to spare."""
        if not sys.platform.startswith("linux"):
            return None
        libc = _libc()
        file = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if file < 0:
            logger.warning(
                "%s is looked at every %g ms for changes, as this user has no inotify left: %s",
                path.parent,
                1000 * _LONG,
                os.strerror(ctypes.get_errno()),
            )
            return None
        return cls(file)

    def watch(self, path: Path) -> int:
        """Watch a file, and return the number of the watch; -1 if that is not possible yet."""
        number: int = _libc().inotify_add_watch(self._file, os.fsencode(path), _MODIFIED | _DELETED | _MOVED)
        return number

    def poll(self, other: int, timeout: float) -> list[tuple[int, int]]:
        """Wait for events, or for another file to be readable."""
        if other not in self._others:
            self._poll.register(other, select.POLLIN)
            self._others.add(other)
        return self._poll.poll(max(0, round(1000 * timeout)))

    def lost_in(self, number: int) -> bool:
        """Read the events, and return whether the file of a watch is gone."""
        lost = False
        while True:
            try:
                data = os.read(self._file, 1 << 16)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                return lost
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                lost = lost or (watch == number and bool(mask & (_DELETED | _MOVED | _IGNORED)))
                at += _EVENT.size + length


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
