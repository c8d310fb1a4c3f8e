"""The directory of a store: its writer, and the file that counts, if that can be trusted."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from lvq_kafka.core.latest.index_rules import IndexRules
from lvq_kafka.errors import ConfigError, StoreFailed, StoreFull, StoreInUse
from lvq_kafka.runtime.extras import needing
from lvq_kafka.runtime.forking import notify_of_forks
from lvq_kafka.storing.bell import Bell
from lvq_kafka.storing.places import boot_id, host_name, network_file_system, pid_namespace
from lvq_kafka.storing.record_format import FORMAT
from lvq_kafka.storing.store_manifest import BELL, MANIFEST, SUFFIX, distrust, parsed, read_manifest, undamaged
from lvq_kafka.storing.stored_tables import StoredTables
from lvq_kafka.storing.value_file import MAP_SIZES, OnlyAttached, open_file

__all__ = ["StoreDirectory"]

logger = logging.getLogger("lvq_kafka.store")

_WRITER = "writer.lock"


class StoreDirectory:
    """A directory with the values of one view.

    ``store.json`` names the file that counts, the start of the system (boot) and the namespace of process ids in which
    it was written, and whether it was closed. ``writer.lock`` is locked by the view that writes, and names it.
    ``changes.bell`` wakes readers. Only the user who runs the view may read any of it.

    Args:
        path: the directory. It is created if it does not exist; its parent has to.
        sizes: see `ValueFile`.
        indexes: the indexes to keep.
    """

    def __init__(
        self, path: str | os.PathLike[str], sizes: Sequence[int] = MAP_SIZES, *, indexes: IndexRules | None = None
    ) -> None:
        self.path = Path(path)
        self._indexes = indexes or IndexRules()
        self._sizes = sizes
        self._lock: IO[str] | None = None
        self._bell: Bell | None = None
        self._shown: StoredTables | None = None

    # ---------------------------------------------------------------- opening and closing

    def open(self) -> StoredTables | None:
        """Become the writer, and return what an earlier one left.

        Returns None if there is nothing, or nothing to be trusted.

        Raises:
            StoreInUse: another view writes this store.
            StoreFailed: the directory cannot be read or written.
            ConfigError: it is something else than a store, or on a network file system.
            MissingExtra: LMDB is not installed.
        """
        with needing("store", "`store`", options=["store"]):
            import lmdb  # noqa: F401
        try:
            self._enter()
            try:
                return self._earlier()
            except BaseException:
                self._unlock()
                raise
        except OSError as error:
            if isinstance(error, StoreFailed):
                raise
            raise self._failed(error) from error

    def _enter(self) -> None:
        if kind := network_file_system(self.path.parent if not self.path.exists() else self.path):
            raise ConfigError(
                f"The store {self.path} would be on {kind}, a network file system, where its writers could not be kept "
                "apart.",
                options=["store"],
                hint="Name a directory on a disk of this machine.",
            )
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700)
        if not self.path.is_dir() or not self._is_ours():
            raise ConfigError(
                f"{self.path} is not a store.", options=["store"], hint="Name a new directory, or that of a store."
            )
        self._lock_directory()

    def _is_ours(self) -> bool:
        names = {entry.name for entry in self.path.iterdir()}
        return not names - {"lost+found"} or bool(names & {MANIFEST, _WRITER})

    def _lock_directory(self) -> None:
        import fcntl

        descriptor = os.open(self.path / _WRITER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        lock = os.fdopen(descriptor, "r+")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = parsed(lock.read())
            lock.close()
            raise self._in_use({name: str(value) for name, value in holder.items()}) from None
        lock.truncate(0)
        json.dump({"pid": os.getpid(), "host": host_name(), "since": round(time.time(), 3)}, lock)
        lock.flush()
        self._lock = lock
        self._bell = Bell(self.path / BELL)
        notify_of_forks(self)

    def _in_use(self, holder: Mapping[str, str]) -> StoreInUse:
        who = "another process"
        if {"pid", "host", "since"} <= holder.keys():
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(holder["since"])))
            who = f"process {holder['pid']} on {holder['host']}, since {since}"
        return StoreInUse(
            f"Another view writes the store {self.path}: {who}.",
            path=str(self.path),
            holder=holder,
            hint="Close that view, or give this one another directory.",
        )

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`. The lock stays with the parent, and ends with it."""
        self._let_go()

    def _unlock(self) -> None:
        """Let others write, even if a forked child still has the lock that it inherited."""
        import fcntl

        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._let_go()

    def _let_go(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    def check_there(self) -> None:
        """Raise `StoreFailed` if the directory was removed since, or another one has its name.

        Nobody would see the values, and the files of another writer must not be touched.
        """
        if self._lock is None:
            return
        there: os.stat_result | None = None
        with suppress(FileNotFoundError, NotADirectoryError):
            there = os.stat(self.path / _WRITER)
        if there is None or not os.path.samestat(there, os.fstat(self._lock.fileno())):
            raise StoreFailed(
                f"The store {self.path} was removed, or replaced, while it was being written.",
                path=str(self.path),
                hint="Open the view again, or restart `lvq hold`: it builds the store again.",
            )

    def ring(self) -> None:
        """Wake readers in other processes: something was committed."""
        if self._bell is not None:
            self._bell.ring()

    def close(self) -> None:
        """Make all that is shown durable, and let others write.

        Raises:
            StoreFailed: it may not be durable; after a power cut it is then read again.
        """
        if self._lock is None:
            return
        shown, self._shown = self._shown, None
        try:
            if shown is not None:
                try:
                    shown.file.sync()
                    self._say(shown, clean=True)
                finally:
                    shown.file.close()
        except OSError as error:
            raise (error if isinstance(error, StoreFailed) else self._failed(error)) from error
        finally:
            self._unlock()

    # ---------------------------------------------------------------- files

    def _earlier(self) -> StoredTables | None:
        """Return what can be trusted, after a note that it is being written."""
        said = read_manifest(self.path)
        name, why = str(said.get("file", "")), distrust(said)
        found = None
        if said and why is None:
            found, why = self._opened(said)
        if said and why is not None:
            logger.warning("the store %s is built again: %s", self.path, why)
        self._sweep(name if found is not None else "")
        if found is not None:
            self._shown = found
            self._say(found, clean=False)
        return found

    def _opened(self, said: Mapping[str, object]) -> tuple[StoredTables | None, str | None]:
        path, why = undamaged(self.path, said)
        if why is not None:
            return None, why
        try:
            file = open_file(path, self._sizes)
        except OnlyAttached:
            raise
        except StoreFailed as error:
            return None, str(error)
        return StoredTables(file, self._indexes), None

    def begin(self) -> StoredTables:
        """Begin an empty file beside the one that is shown. Raises what `open` raises."""
        try:
            self.check_there()
            self._sweep(*(one.file.path.name for one in (self._shown,) if one is not None))
            # A new name each time: this process may still have files open that were removed.
            file = open_file(self.path / f"{token_hex(8)}{SUFFIX}", self._sizes)
        except OSError as error:
            raise (error if isinstance(error, StoreFailed) else self._failed(error)) from error
        return StoredTables(file, self._indexes)

    def show(self, tables: StoredTables) -> None:
        """Make this file the one that counts.

        The one before is removed, and stays for those who have it open.
        """
        before = self._shown
        if before is tables:
            return
        try:
            self._say(tables, clean=False)
            self._shown = tables
            self._sweep(tables.file.path.name)
        except OSError as error:
            raise self._failed(error) from error
        if before is not None:
            before.file.release()

    def _say(self, tables: StoredTables, *, clean: bool) -> None:
        """Write durably which file counts."""
        self.check_there()
        path = tables.file.path
        said = {
            "format": FORMAT,
            "file": path.name,
            "size": path.stat().st_size,
            "boot": boot_id(),
            "clean": clean,
            "pids": pid_namespace(),
        }
        beside = self.path / f"{MANIFEST}.new"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            json.dump(said, out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(self.path / MANIFEST)
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _sweep(self, *kept: str) -> None:
        """Remove all files but these."""
        for path in self.path.glob(f"*{SUFFIX}*"):
            if path.name not in kept and path.name.removesuffix("-lock") not in kept:
                path.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> StoreFailed:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        said = "its file system is mounted read-only" if error.errno == errno.EROFS else str(error.strerror or error)
        return (StoreFull if full else StoreFailed)(
            f"The store {self.path} cannot be written: {said}.",
            path=str(self.path),
            hint="Make room on its file system." if full else "Name a directory that this user may write.",
        )
