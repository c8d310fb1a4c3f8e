"""A store on any file system that Hadoop knows: HDFS, and the object stores."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from lvq_spark.store.storage import StoredFile

__all__ = ["HadoopStorage"]

_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "oss", "cos", "cosn", "obs"})
"""Schemes where a file appears whole when it is closed, and renaming is not atomic."""

_CHUNK = 1 << 20
"""Bytes to pass between the JVM and Python at once."""


class HadoopStorage:
    """A directory on any file system that Hadoop knows, through Spark's JVM.

    Creation must succeed only once. On HDFS and the like, a file is renamed into place by a rename that refuses to
    replace, which is a single step of the name node. Object stores have no such rename. There the file is written in
    place, with replacing forbidden: it appears whole, and it is up to the store and its connector that only one writer
    wins. S3A guarantees this from Hadoop 3.4.2 on, if the bucket takes conditional writes; so do Google's and Azure's
    connectors.
    """

    def __init__(self, jvm: Any, configuration: Any, root: str) -> None:
        self._hadoop = jvm.org.apache.hadoop
        self._jvm = jvm
        self._configuration = configuration
        self.root = root.rstrip("/")
        self._files = self._path("").getFileSystem(configuration)
        self._renames = str(self._files.getUri().getScheme()) not in _OBJECT_STORES

    @property
    def settles(self) -> bool:
        """See `Storage`."""
        return self._renames

    def _path(self, name: str) -> Any:
        return self._hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    def names(self, folder: str) -> list[str]:
        """See `Storage`."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def files(self, folder: str) -> list[StoredFile]:
        """See `Storage`."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        found, listing = [], self._files.listFiles(path, True)
        above = len(self._path("").toUri().getPath()) + 1
        while listing.hasNext():
            status = listing.next()
            name = str(status.getPath().toUri().getPath())[above:]
            found.append(StoredFile(name, int(status.getLen())))
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

    def open(self, name: str) -> IO[bytes]:
        """See `Storage`."""
        path = self._path(name)
        if not self._files.exists(path):
            raise _not_there(self.root, name)
        size = int(self._files.getFileStatus(path).getLen())
        return io.BufferedReader(_HadoopFile(self._files.open(path), size), _CHUNK)

    def crc32(self, name: str) -> int:
        """See `Storage`. The JVM reads the file; none of its bytes come to Python."""
        path = self._path(name)
        if not self._files.exists(path):
            raise _not_there(self.root, name)
        found = self._jvm.java.util.zip.CRC32()
        stream = self._jvm.java.util.zip.CheckedInputStream(self._files.open(path), found)
        try:
            with _as_io_error():
                stream.transferTo(self._jvm.java.io.OutputStream.nullOutputStream())
        finally:
            stream.close()
        return int(found.getValue())

    def create(self, name: str, content: bytes) -> bool:
        """See `Storage`."""
        target = self._path(name)
        if not self._renames:
            return self._write(target, content)
        temporary = self._path(f"{name.rpartition('/')[0]}/.{uuid.uuid4().hex}")
        self._write(temporary, content, cleanup=temporary)
        rename = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 0
        )
        context = self._hadoop.fs.FileContext.getFileContext(target.toUri(), self._configuration)
        return self._unless_there(lambda: context.rename(temporary, target, rename), cleanup=temporary)

    def _write(self, target: Any, content: bytes, cleanup: Any = None) -> bool:
        def write() -> None:
            stream = self._files.create(target, False)
            try:
                for start in range(0, len(content), _CHUNK):  # each chunk goes to the JVM as text
                    stream.write(bytearray(content[start : start + _CHUNK]))
            finally:
                stream.close()

        return self._unless_there(write, cleanup)

    def _unless_there(self, step: Any, cleanup: Any = None) -> bool:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            step()
        except Py4JJavaError as error:
            if cleanup is not None:
                with suppress(Py4JJavaError):
                    self._files.delete(cleanup, False)
            if str(error.java_exception.getClass().getSimpleName()) == "FileAlreadyExistsException":
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        """See `Storage`."""
        self._files.delete(self._path(name), True)


def _not_there(root: str, name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{root}/{name}")


@contextmanager
def _as_io_error() -> Iterator[None]:
    """Turn a file system's own checksum error into the ``OSError`` that a bad disk raises."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        if str(error.java_exception.getClass().getSimpleName()) != "ChecksumException":
            raise
        raise OSError(errno.EIO, str(error.java_exception.getMessage())) from error


class _HadoopFile(io.RawIOBase):
    """A file that the JVM reads."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._size, self._at = stream, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        many = min(len(buffer), self._size - self._at)
        if many <= 0:
            return 0
        with _as_io_error():
            self._stream.seek(self._at)
            found = bytes(self._stream.readNBytes(many))
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
