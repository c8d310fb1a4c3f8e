"""The pages of a consumer: values in temporary files, to be read back when needed (R12)."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import IO
from zlib import crc32

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.text.validation import text
from lvq_kafka.errors import ConfigError, PageUnreadable

__all__ = ["FilePage", "PageFile", "check_page_directory"]

_SEGMENT = 64 << 20  # bytes
_CHECKSUM = 4  # bytes before each value
_LEAST = 64  # bytes
_STEPS = 8  # sizes of places between two powers of two: at most an eighth is lost
_PAUSE = 1.0  # seconds without another try after a write has failed
_OVER = 10.0  # seconds after which a failure is over if no write was attempted since


class _Segment:
    """A temporary file of pages.

    Where the system allows, it has no name, so nobody else can open it, and a crash leaves nothing.
    """

    __slots__ = ("end", "file", "pages")

    def __init__(self, directory: str | None) -> None:
        self.file: IO[bytes] = TemporaryFile(buffering=0, dir=directory, prefix="lvq-pages-")  # noqa: SIM115
        self.end = 0
        """The first byte that no page has used."""
        self.pages = 0
        """The number of pages in it."""


class FilePage:
    """A value in a `PageFile`; see `lvq_kafka.core.ledger.paging.Page`."""

    __slots__ = ("_at", "_file", "_segment", "length")

    def __init__(self, file: PageFile, segment: _Segment, at: int, length: int) -> None:
        self._file = file
        self._segment = segment
        self._at = at
        self.length = length
        """The bytes of the value."""

    def read(self) -> bytes:
        """See `lvq_kafka.core.ledger.paging.Page.read`."""
        file, segment = self._file, self._segment.file
        try:
            with file.lock:
                segment.seek(self._at)
                found = segment.read(_CHECKSUM + self.length)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise file.unreadable(self.length, str(error)) from error
        value = found[_CHECKSUM:]
        if len(value) != self.length or found[:_CHECKSUM] != _checksum(value):
            raise file.unreadable(self.length, "it is not what was written")
        return value

    def __del__(self) -> None:
        self._file.dropped.append((self._segment, self._at, self.length))


class PageFile:
    """Values on disk, in temporary files of 64 MB that are opened when they are needed.

    The room of dropped pages is reused for values of about the same size, and a file is closed when no page is left in
    it. While the sizes of values change, the disk may hold two or three times as much. Each page has a checksum.

    Thread-safe.

    Args:
        directory: where the files are; None for the system's directory of temporary files.
        on_unreadable: called with the error when a value cannot be read back, before that is raised.
    """

    def __init__(self, directory: str | None, on_unreadable: Callable[[PageUnreadable], object]) -> None:
        self.failure = ""
        """The reason why values cannot be written, and its remedy; empty if they can."""
        self.dropped: deque[tuple[_Segment, int, int]] = deque()
        """The places of pages that are no longer referenced.

        Python collects pages at any point, on any thread and under any lock. So reporting them takes no lock.
        """
        self._directory = None if directory is None else os.path.abspath(directory)
        self._on_unreadable = on_unreadable
        self.lock = Lock()
        self._segments: list[_Segment] = []
        self._free: dict[int, dict[_Segment, list[int]]] = {}  # by size, where the next page of that size may be
        self._again = 0.0  # when to try to write after a failure
        self._closed = False

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        try:
            return Path(self._directory or gettempdir())
        except OSError:  # Python knows no directory that can be written
            return Path(os.environ.get("TMPDIR", os.curdir))

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(segment.end for segment in self._segments)

    # ---------------------------------------------------------------- pages

    def write(self, value: bytes) -> FilePage | None:
        """See `lvq_kafka.core.ledger.paging.PageStore.write`."""
        with self.lock:
            if self._closed or (self.failure and time.monotonic() < self._again):
                return None
            try:
                page = self._write(value)
            except OSError as error:
                self._again = time.monotonic() + _PAUSE
                self.failure = bounded(
                    f"values beyond the limits stay in memory, since they cannot be written to {self.directory}: "
                    f"{error}. {_remedy(error)}"
                )
                return None
            self.failure = ""
            return page

    def unreadable(self, length: int, reason: str) -> PageUnreadable:
        """Return the error for a value that cannot be read back, and report it."""
        error = PageUnreadable(
            f"A value of {length} bytes that was paged to disk, in {self.directory}, cannot be read back: {reason}.",
            path=self.directory,
            hint="The message is still in the queue: a new consumer reads it from the log. Check the disk, or name "
            "another directory in page_directory.",
        )
        if not self._closed:
            self._on_unreadable(error)
        return error

    def trim(self) -> None:
        """Close files without pages, and forget a failure that no longer matters.

        Call it once in a while: a queue that empties writes nothing.
        """
        if self.dropped:
            with self.lock:
                self._collect()
        if self.failure and time.monotonic() > self._again + _OVER:
            self.failure = ""

    def close(self) -> None:
        """Close the files, and write no more."""
        with self.lock:
            self._close()

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`. The files are still open in the parent."""
        self.lock = Lock()
        self._close()

    def _close(self) -> None:
        self._closed = True
        for segment in self._segments:
            segment.file.close()
        self._segments.clear()
        self._free.clear()

    # ---------------------------------------------------------------- places

    def _write(self, value: bytes) -> FilePage:
        self._collect()
        size = _place_size(len(value))
        places = self._free.get(size)
        if places:
            segment, free = next(iter(places.items()))
            at = free[-1]
            _write_at(segment, at, value)
            free.pop()
            if not free:
                del places[segment]
        else:
            segment = self._last(size)
            at = segment.end
            _write_at(segment, at, value)
            segment.end += size
        segment.pages += 1
        return FilePage(self, segment, at, len(value))

    def _last(self, size: int) -> _Segment:
        """Return the segment that has room for a page at its end."""
        segments = self._segments
        if not segments or segments[-1].end + size > max(_SEGMENT, size):
            segments.append(_Segment(self._directory))
        return segments[-1]

    def _collect(self) -> None:
        """Free the room of dropped pages for reuse, and close files that have none left."""
        dropped = self.dropped
        while dropped:
            segment, at, length = dropped.popleft()
            segment.pages -= 1
            self._free.setdefault(_place_size(length), {}).setdefault(segment, []).append(at)
            if not segment.pages and not segment.file.closed:
                segment.file.close()
                self._segments.remove(segment)
                for places in self._free.values():
                    places.pop(segment, None)


def check_page_directory(directory: str | os.PathLike[str], definition: QueueDefinition) -> str:
    """Return the path of a directory that a queue's values can be paged to.

    Raises:
        ConfigError: the queue keeps its values in memory, or this is no directory that can be written to.
    """
    path = text("page_directory", os.fspath(directory) if isinstance(directory, os.PathLike) else directory)
    if QueueRules.of(definition).paged is None:
        raise ConfigError(
            f"`page_directory` is for values beyond the limits, and consumers of the queue {definition.name} keep all "
            "values in memory.",
            options={"page_directory": path, "limits": definition.limits},
            hint='Leave it out, or declare the queue with limits of `policy="disk"`.',
        )
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(
            "`page_directory` is not a directory that this process may write to.",
            options={"page_directory": path},
            hint="Create it, or leave it out for the system's directory of temporary files.",
        )
    return path


def _write_at(segment: _Segment, at: int, value: bytes) -> None:
    """Write a value with its checksum.

    Raises:
        OSError: that failed, perhaps half-way.
    """
    left = memoryview(_checksum(value) + value)
    segment.file.seek(at)
    while left:  # if only a part was written, the next try raises the reason
        left = left[segment.file.write(left) :]


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit of open files"
    return "Make room there, or name another directory in page_directory or TMPDIR"


def _checksum(value: bytes) -> bytes:
    return crc32(value).to_bytes(_CHECKSUM, "big")


def _place_size(length: int) -> int:
    """Return the size of a value's place: one of few sizes, so that others fit into it later."""
    content = _CHECKSUM + length
    step = max(_LEAST, 1 << (content.bit_length() - 1)) // _STEPS
    return -(-content // step) * step
