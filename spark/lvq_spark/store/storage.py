"""Where a store lies: the few things it asks of a file system, above all to create a file whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from lvq_kafka.errors import ConfigError
from lvq_spark.remote import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LocalStorage", "Storage", "StoredFile", "open_storage"]


_PIECE = 1 << 20
"""Bytes of a file that are read at once."""


class StoredFile(NamedTuple):
    """A file below a store."""

    name: str
    bytes: int


class Storage(Protocol):
    """A directory. Names are relative to it, with slashes."""

    root: str
    """As Spark takes it, with its scheme."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder; nothing if it is not there."""

    def files(self, folder: str) -> list[StoredFile]:
        """All files below a folder, by name; nothing if it is not there."""

    def touched(self, name: str) -> float:
        """When a file, or a folder or anything in it, was changed last, by the clock of the file system; 0 if never."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it is not there."""

    def open(self, name: str) -> IO[bytes]:
        """A file to read here and there.

        Raises:
            FileNotFoundError: it is not there.
        """

    def crc32(self, name: str) -> int:
        """The checksum of a file's content.

        Raises:
            FileNotFoundError: it is not there.
            OSError: with ``EIO``: the file system itself finds it damaged.
        """

    def create(self, name: str, content: bytes) -> bool:
        """Create a file, in one step for everybody who looks; False if it is there already, and then it is unchanged.

        Of several that create the same file at once, one gets True.
        """

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens if it is not there."""


def open_storage(spark: SparkSession, path: str | os.PathLike[str]) -> Storage:
    """The directory that Spark means by a path. A path without a scheme is of Hadoop's default file system.

    Raises:
        ConfigError: the session cannot tell, as one of Spark Connect cannot; or Hadoop does not know the scheme; or it
            is no path.
    """
    path = _text(path)
    globs = sorted(set("{}[]*?\\") & set(path))
    if globs:
        raise ConfigError(
            f"The path {path!r} has a {globs[0]} in it.", options=["path"], hint="Spark would take it for a pattern."
        )
    scheme = urlsplit(path).scheme
    jvm: Any = getattr(spark, "_jvm", None) if not is_connect(spark) else None
    if jvm is None:
        if scheme == "file":
            return LocalStorage(unquote(urlsplit(path).path))
        raise ConfigError(
            f"A session of Spark Connect does not tell where {path} lies.",
            options=["path"],
            hint="Use a classic session, in the driver; or a path that starts with file:.",
        )
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    from lvq_spark.store.hadoop import HadoopStorage

    configuration = spark._jsc.hadoopConfiguration()
    try:
        target = jvm.org.apache.hadoop.fs.Path(path)
        files = target.getFileSystem(configuration)
    except Py4JJavaError as error:
        raise ConfigError(
            f"Hadoop has no file system for {path}: {error.java_exception.getMessage()}", options=["path"]
        ) from None
    qualified = files.makeQualified(target)
    if files.getUri().getScheme() == "file":
        return LocalStorage(str(qualified.toUri().getPath()))
    return HadoopStorage(jvm, configuration, str(qualified.toString()))


class LocalStorage:
    """A directory of this machine, or one that all machines have mounted. Its file system must know hard links."""

    def __init__(self, root: str) -> None:
        self._path = Path(root).absolute()
        self.root = f"file://{self._path}"  # not as_uri(): Hadoop takes a percent sign for what it is

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
            with suppress(FileNotFoundError):  # what vanishes meanwhile is left out
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
        """See `Storage`. A hard link is what POSIX creates whole or not at all, and never over something."""
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
                        hint="Without them two refreshes could both believe that theirs is the next version.",
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
            shutil.rmtree(target, ignore_errors=True)  # another may be deleting it, too
        else:
            target.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Have the folder remember its names, should the machine fail now."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(path: str | os.PathLike[str]) -> str:
    given: object = path
    if isinstance(given, str):
        return given
    if not isinstance(given, os.PathLike):
        raise ConfigError(f"{given!r} is no path.", options=["path"], hint="Give text, or a pathlib.Path.")
    text: str = os.fspath(given)
    if urlsplit(text).scheme:
        raise ConfigError(f"The path {text} has lost slashes as a Path.", options=["path"], hint="Give a URL as text.")
    return text
