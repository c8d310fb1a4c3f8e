"""File systems as a store uses them. Above all, they create a file whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from lvq_kafka.errors import ConfigError, LVQError, StoreFailed
from lvq_spark.session.remote import spark_errors

__all__ = ["LocalStorage", "Storage", "StoredFile", "storage_errors"]


_PIECE = 1 << 20
"""Bytes of a file to read at once."""


class StoredFile(NamedTuple):
    """A file below a store."""

    name: str
    bytes: int


class Storage(Protocol):
    """A directory. Names are relative to it, with slashes."""

    root: str
    """The directory's URL as Spark takes it, with its scheme."""

    @property
    def settles(self) -> bool:
        """True if a `create` that has failed is over. An object store may still do it."""

    def names(self, folder: str) -> list[str]:
        """Return the names directly in a folder; empty if there is no such folder."""

    def files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder, by name; empty if there is no such folder."""

    def touched(self, name: str) -> float:
        """Return when a file, or a folder or anything in it, last changed.

        The time is by the clock of the file system; 0 if nothing is there.
        """

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if there is no such file."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for random access.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def crc32(self, name: str) -> int:
        """Return the checksum of a file's content.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: with ``EIO``: the file system itself finds the file damaged.
        """

    def create(self, name: str, content: bytes) -> bool:
        """Create a file atomically. Return False, leaving it unchanged, if it exists already.

        If several create the same file at once, exactly one gets True.
        """

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it. Do nothing if there is none."""


@contextmanager
def storage_errors(root: str) -> Iterator[None]:
    """Raise the errors of a file system as errors of this library.

    Args:
        root: the directory of the store that is used meanwhile.

    Raises:
        ConfigError: there is a file where a directory should be, or the reverse.
        StoreFailed: anything else.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, LVQError):
            raise
        raise _refused(root, error.strerror or str(error), str(error.filename or "")) from error
    except spark_errors() as error:  # the JVM writes most files, and it has words for this only
        found = _REFUSED.search(str(error))
        if found is None:
            raise
        raise _refused(root, found[1] or found[0], "") from error


_NO_SPACE = "No space left|[Qq]uota *[Ee]xceeded"
_NO_DIRECTORY = "Is a directory|Not a directory|File exists|ParentNotDirectory|FileAlreadyExists|Mkdirs failed"
_REFUSED = re.compile(
    rf"(?:java\.io\.IOException|FileNotFoundException|FileSystemException|AccessDeniedException)[^\n]*?"
    rf"((?:{_NO_SPACE}|{_NO_DIRECTORY}|Permission denied|Read-only file system|Input/output error)[^\n]*)"
    r"|(?:AccessControlException|ParentNotDirectoryException|FileAlreadyExistsException): [^\n]*"
)


def _refused(root: str, said: str, file: str) -> LVQError:
    said = f"{said.strip().rstrip('.')}{f' ({file})' if file and file not in said else ''}"
    if re.search(_NO_DIRECTORY, said):
        return ConfigError(
            f"{root} cannot be the directory of a store: {said}.", options=["path"], hint="Give it one to itself."
        )
    hint = "Check the rights of this user, and of Spark's executors, and the disk."
    if re.search(_NO_SPACE, said):
        hint = (
            "Make room there, or for Spark's own files (spark.local.dir). This attempt has deleted what it wrote, and "
            "earlier versions are as they were."
        )
    return StoreFailed(f"The store {root} cannot be read or written: {said}.", path=root, hint=hint)


class LocalStorage:
    """A directory on this machine, or one that all machines mount.

    Its file system must support hard links.
    """

    settles = True

    def __init__(self, root: str) -> None:
        self._path = Path(root).absolute()
        self.root = f"file://{self._path}"  # not as_uri(): Hadoop takes percent signs literally

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        try:
            return sorted(os.listdir(self._path / folder))
        except FileNotFoundError:
            return []

    def files(self, folder: str) -> list[StoredFile]:
        """See `Storage`."""
        found = self._below(self._path / folder)
        return sorted(
            StoredFile(path.relative_to(self._path).as_posix(), status.st_size)
            for path, status in found
            if stat.S_ISREG(status.st_mode)
        )

    def touched(self, name: str) -> float:
        """See `Storage`."""
        return max((status.st_mtime for _, status in self._below(self._path / name)), default=0.0)

    def _below(self, top: Path) -> Iterator[tuple[Path, os.stat_result]]:
        for path in (top, *(Path(where, name) for where, *names in os.walk(top) for name in chain(*names))):
            with suppress(FileNotFoundError):  # skip what has vanished meanwhile
                yield path, path.stat()

    def read(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def open(self, name: str) -> IO[bytes]:
        """See `Storage`."""
        return (self._path / name).open("rb")

    def crc32(self, name: str) -> int:
        """See `Storage`."""
        found = 0
        with self.open(name) as file:
            while piece := file.read(_PIECE):
                found = zlib.crc32(piece, found)
        return found

    def create(self, name: str, content: bytes) -> bool:
        """See `Storage`. POSIX creates a hard link whole or not at all, and never replaces a file."""
        target = self._path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                    raise ConfigError(
                        f"The file system of {self._path} has no hard links.",
                        options=["path"],
                        hint="Use one that has: without them, two refreshes could both take theirs for the next "
                        "version.",
                    ) from error
                raise
        finally:
            temporary.unlink(missing_ok=True)
        _sync(target.parent)
        return True

    def delete(self, name: str) -> None:
        """See `Storage`."""
        target = self._path / name
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)  # another process may be deleting it, too
        else:
            target.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Flush a folder, so that the names in it survive a failure of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
