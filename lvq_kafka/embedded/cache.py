"""The cache between runs: the broker's jars, its class archive, logs of failed starts.

``LVQ_CACHE_DIR`` names the directory; the default is ``lvq-kafka`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lvq_kafka.errors import DiskFull, EmbeddedBrokerError, LVQError

__all__ = ["cache_dir", "filling", "locked"]


def cache_dir() -> Path:
    """Return this user's cache directory, and create it if necessary."""
    named = os.environ.get("LVQ_CACHE_DIR")
    if named:
        path = Path(named).expanduser().absolute()
    else:
        xdg = os.environ.get("XDG_CACHE_HOME")
        path = (Path(xdg) if xdg else Path.home() / ".cache") / "lvq-kafka"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EmbeddedBrokerError(
            f"The cache directory {path} cannot be created: {error.strerror}.",
            hint="Set LVQ_CACHE_DIR to a directory that this user may write to.",
        ) from None
    return path


@contextmanager
def filling(path: Path, what: str) -> Iterator[None]:
    """Guard the writing of ``what`` to a cache directory.

    Raises:
        DiskFull: the directory has no space left.
        EmbeddedBrokerError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, LVQError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"No space is left in {path} for {what}.",
                path=path,
                hint="Free some space, or choose another directory in LVQ_CACHE_DIR.",
            ) from None
        raise EmbeddedBrokerError(
            f"The cache directory {path} cannot be written: {error.strerror}.",
            hint="Set LVQ_CACHE_DIR to a directory that this user may write to.",
        ) from None


@contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` across processes.

    The lock is released even if its holder is killed. ``on_wait`` is called once if another process holds it.
    """
    with filling(path.parent, "a lock"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
