"""Where a store lies: the few things it asks of a file system, above all to create a file whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from lvq_kafka.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Entry", "HadoopStorage", "LocalStorage", "Storage", "open_storage"]

_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cos", "cosn", "obs"})
"""Where a file appears whole when it is closed, and renaming is no atomic step."""


class Entry(NamedTuple):
    """A file below a store."""

    name: str
    bytes: int


class Storage(Protocol):
    """A directory. Names are relative to it, with slashes."""

    root: str
    """As Spark takes it, with its scheme."""

    def names(self, folder: str) -> list[str]:
        """What lies directly in a folder; nothing if it is not there."""

    def files(self, folder: str) -> list[Entry]:
        """All files below a folder, by name; nothing if it is not there."""

    def touched(self, name: str) -> float:
        """When a file, or a folder or anything in it, was changed last, by the clock of the file system; 0 if never."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None if it is not there."""

    def create(self, name: str, content: bytes) -> bool:
        """Create a file, in one step for everybody who looks; False if it is there already, and then it is unchanged.

        Of several that create the same file at once, one gets True.
        """

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens if it is not there."""


def open_storage(spark: SparkSession, path: str) -> Storage:
    """The directory that Spark means by a path. A path without a scheme is of Hadoop's default file system.

    Raises:
        ConfigError: the session cannot tell, as one of Spark Connect cannot; or Hadoop does not know the scheme.
    """
    globs = sorted(set("{}[]*?\\") & set(path))
    if globs:
        raise ConfigError(
            f"The path {path!r} has a {globs[0]} in it.", options=["path"], hint="Spark would take it for a pattern."
        )
    scheme = urlsplit(path).scheme
    jvm: Any = getattr(spark, "_jvm", None) if not _is_connect(spark) else None
    if jvm is None:
        if scheme == "file":
            return LocalStorage(unquote(urlsplit(path).path))
        raise ConfigError(
            f"A session of Spark Connect does not tell where {path} lies.",
            options=["path"],
            hint="Use a classic session, in the driver; or a path that starts with file:.",
        )
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

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


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


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

    def files(self, folder: str) -> list[Entry]:
        """See `Storage`."""
        found = self._below(self._path / folder)
        return sorted(
            Entry(path.relative_to(self._path).as_posix(), status.st_size)
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


class HadoopStorage:
    """A directory of any file system that Hadoop knows, through Spark's JVM.

    A file is created where it may lie only once: on HDFS and the like by a rename that refuses to replace, which is one
    step of the name node. Object stores have no such rename. There the file is written in place, without leave to
    replace: it appears whole, and that one writer wins is up to the store and its connector. S3A has it from Hadoop
    3.4.2 on, where the bucket takes conditional writes; Google's and Azure's connectors have it.
    """

    def __init__(self, jvm: Any, configuration: Any, root: str) -> None:
        self._hadoop = jvm.org.apache.hadoop
        self._jvm = jvm
        self._configuration = configuration
        self.root = root.rstrip("/")
        self._files = self._path("").getFileSystem(configuration)
        self._renames = str(self._files.getUri().getScheme()) not in _OBJECT_STORES

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def files(self, folder: str) -> list[Entry]:
        """See `Storage`."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        found, listing = [], self._files.listFiles(path, True)
        above = len(self._path("").toUri().getPath()) + 1
        while listing.hasNext():
            status = listing.next()
            name = str(status.getPath().toUri().getPath())[above:]
            found.append(Entry(name, int(status.getLen())))
        return sorted(found)

    def touched(self, name: str) -> float:
        """See `Storage`."""
        path = self._path(name)
        if not self._files.exists(path):
            return 0.0
        status = self._files.getFileStatus(path)
        below = self._files.listStatus(path) if status.isDirectory() else ()
        inside = (self.touched(f"{name}/{child.getPath().getName()}") for child in below)
        return max(float(status.getModificationTime()) / 1000, *inside, 0.0)

    def read(self, name: str) -> bytes | None:
        """See `Storage`."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, name: str, content: bytes) -> bool:
        """See `Storage`."""
        target = self._path(name)
        if not self._renames:
            return self._write(target, content)
        temporary = self._path(f"{name.rpartition('/')[0]}/.{uuid.uuid4().hex}")
        self._write(temporary, content)
        rename = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
        )
        context = self._hadoop.fs.FileContext.getFileContext(target.toUri(), self._configuration)
        return self._unless_there(lambda: context.rename(temporary, target, rename), cleanup=temporary)

    def _write(self, target: Any, content: bytes) -> bool:
        def write() -> None:
            stream = self._files.create(target, False)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()

        return self._unless_there(write)

    def _unless_there(self, step: Any, cleanup: Any = None) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            step()
        except Py4JJavaError as error:
            if cleanup is not None:
                self._files.delete(cleanup, False)
            if str(error.java_exception.getClass().getSimpleName()) == "FileAlreadyExistsException":
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """See `Storage`."""
        self._files.delete(self._path(name), True)
