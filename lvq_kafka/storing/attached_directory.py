"""The directory of a store, for a reader in any process (R41)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lvq_kafka.errors import ConfigError, StoreFailed, StoreNotFound
from lvq_kafka.runtime.extras import needing
from lvq_kafka.storing.places import mounted_read_only, network_file_system, pid_namespace
from lvq_kafka.storing.store_manifest import BELL, MANIFEST, distrust, read_manifest, undamaged
from lvq_kafka.storing.value_file import MAP_SIZES, ValueFile, open_file

__all__ = ["AttachedDirectory", "NotAttachable"]

_ATTEMPTS = 5  # to open the file that counts, while it is replaced again and again


class NotAttachable(StoreFailed):
    """A store that can be attached once its writer has been started again."""


class AttachedDirectory:
    """A directory with a store that another process may write.

    Args:
        path: the directory.
        sizes: see `ValueFile`.
    """

    def __init__(self, path: str | os.PathLike[str], sizes: Sequence[int] = MAP_SIZES) -> None:
        self.path = Path(path)
        self._sizes = sizes
        self._read: tuple[int, int] | None = None  # which version of the manifest was read last

    @property
    def bell(self) -> Path:
        """The file that the writer writes to after each commit."""
        return self.path / BELL

    def moved(self) -> bool:
        """Return whether there is another manifest than at the last `open`."""
        return self._version() not in (None, self._read)

    def check_again(self) -> None:
        """Let `moved` be true, since the last `open` was of no use."""
        self._read = None

    def _version(self) -> tuple[int, int] | None:
        try:
            found = (self.path / MANIFEST).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def open(self) -> ValueFile:
        """Return the file that counts.

        Raises:
            StoreNotFound: there is no store, or none yet.
            StoreFailed: it cannot be read from this process, or not be trusted.
            ConfigError: it is on a network file system.
            MissingExtra: LMDB is not installed.
        """
        with needing("store", "`attach`", options=["path"]):
            import lmdb  # noqa: F401
        try:
            for _ in range(_ATTEMPTS):
                self._read = self._version()
                said = read_manifest(self.path)
                if not said:
                    raise self._not_found()
                self._check(said)
                path, why = undamaged(self.path, said)
                if why is None:
                    return open_file(path, self._sizes, reader=self)
                if not self.moved():
                    raise self._not_attachable(why, "Wait until its writer has built it again.")
            raise self._failed("it is replaced all the time", "")
        except OSError as error:
            if isinstance(error, StoreFailed):
                raise
            hint = "Run this process as the user who writes the store." if isinstance(error, PermissionError) else ""
            raise self._failed(str(error.strerror or error), hint) from error

    def _check(self, said: Mapping[str, object]) -> None:
        if kind := network_file_system(self.path):
            raise ConfigError(
                f"The store {self.path} is on {kind}, a network file system, which does not show what others write.",
                options=["path"],
                hint="Attach to a store on a disk of this machine.",
            )
        if why := distrust(said):
            raise self._not_attachable(why, "Wait until its writer has built it again.")
        if said.get("pids") != pid_namespace():
            raise self._not_attachable(
                "its writer is in another PID namespace, where nobody could tell whether this reader still lives",
                "Share the PID namespace: `shareProcessNamespace: true` in a pod, `--pid=container:NAME` in Docker.",
            )
        if mounted_read_only(self.path):
            raise self._failed(
                "its file system is mounted read-only, where readers cannot say what they read",
                "Mount it writable; nothing but the lock file is written.",
            )

    def _not_found(self) -> StoreNotFound:
        return StoreNotFound(
            f"There is no store in {self.path}, or none yet.",
            path=str(self.path),
            hint="Start its writer: a view with this store, or `lvq hold`.",
        )

    def _failed(self, why: str, hint: str, kind: type[StoreFailed] = StoreFailed) -> StoreFailed:
        return kind(f"The store {self.path} cannot be attached: {why}.", path=str(self.path), hint=hint)

    def _not_attachable(self, why: str, hint: str) -> StoreFailed:
        return self._failed(why, hint, NotAttachable)
