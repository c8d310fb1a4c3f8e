"""One file of a store: an LMDB environment, its transactions, and its notes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary, finalize

from lvq_kafka.errors import StoreFailed, StoreFull
from lvq_kafka.runtime.extras import needing
from lvq_kafka.runtime.forking import keep_for_good, left_behind, notify_of_forks
from lvq_kafka.runtime.mappings import copy_mappings

if TYPE_CHECKING:
    import lmdb

    Txn = lmdb.Transaction[memoryview]

__all__ = [
    "ASIDE",
    "CHANGES",
    "CHECKPOINTS",
    "CONTESTS",
    "DUE",
    "ENTRIES",
    "EXPIRIES",
    "LINES",
    "MAP_SIZES",
    "PLACES",
    "RECORDS",
    "TRACES",
    "MapOutgrown",
    "OnlyAttached",
    "Pages",
    "PinnedPages",
    "ValueFile",
    "open_file",
]

T = TypeVar("T")

_READERS = 1024  # slots for readers, of all processes that have the file open; half of them are for snapshots
_ROOM = 32 << 20  # bytes of the map to have free before a batch, beyond those that the batch itself may take
_NUMBER = "number"  # the name of a note
_LITTLE = 1 << 20  # bytes of room below which a file system counts as full
_COPIES = 8  # the pages that a batch may take, as a multiple of its bytes
MAP_SIZES = (1 << 40, 1 << 36, 1 << 32, 1 << 30)
"""The sizes of a map to try: address space, which takes neither memory nor disk. A map that is too small grows."""

RECORDS, EXPIRIES, CONTESTS, ASIDE, LINES, DUE, CHANGES, TRACES, CHECKPOINTS, NOTES = (
    *(b"records", b"expiries", b"contests", b"aside", b"lines", b"due"),
    *(b"changes", b"traces", b"checkpoints", b"notes"),
)
PLACES, ENTRIES = b"places", b"entries"
"""The places of all indexes; and for each index and key, its place."""
_TABLES = (RECORDS, EXPIRIES, CONTESTS, ASIDE, LINES, DUE, CHANGES, TRACES, CHECKPOINTS, NOTES, PLACES, ENTRIES)


class MapOutgrown(StoreFailed):
    """A writer in another process has made the file larger than this process sees of it.

    Let go of all cuts, and take another.
    """


class OnlyAttached(StoreFailed):
    """This process has the file open for reading, and LMDB must not open it twice."""


class Pages(Protocol):
    """The source of a table: a file as it is, or a cut of it."""

    @property
    def file(self) -> ValueFile:
        """The file."""

    @property
    def txn(self) -> Txn:
        """The transaction to read in, valid until the next write."""

    def noted(self, name: str) -> bytes | None:
        """Return a note; None if there is none."""


class ValueFile:
    """A file that one process writes, and its current transaction.

    A write begins with the first change, and ends with `commit` or `abort`. Until then, this process reads in it what
    it has changed. All others, and cuts, see what was committed. Nothing is synced before `close`: a process that is
    killed loses nothing, and after a power cut the file must not be opened.

    The file is closed by `close`, or when nobody has it, or a cut of it, any longer. Not thread-safe, except for `cut`
    and `last_commit`, which are all that readers in other processes use (R41).

    Args:
        path: the file.
        sizes: the sizes of its map to try, in bytes.
        create: False to only read it, if this process does not write it already.
    """

    def __init__(self, path: Path, sizes: Sequence[int], *, create: bool = True) -> None:
        self.path = path
        self.read_only = not create
        self._env = _open(path, sizes, read_only=not create)
        finalize(self, self._env.close).atexit = False

        self._cuts: WeakSet[PinnedPages] = WeakSet()
        self._readers: WeakSet[Hashable] = WeakSet()
        self._current: Txn | None = None
        self.writing = False
        """True from the first change to `commit` or `abort`."""
        self._number: int | None = None  # the next one of `next_numbers`, once it is known
        self.version = 0
        """Grows with each commit and abort."""
        self.aborts = 0
        """Grows with each abort, and with each failure."""
        with self._failing("open"):
            self.tables = self._open_tables() if create else self._find_tables()
            self._env.reader_check()
        notify_of_forks(self)

    def _open_tables(self) -> dict[bytes, lmdb._Database]:
        with self._env.begin(write=True) as txn:
            return {
                name: self._env.open_db(name, txn=txn, dupsort=name == LINES, dupfixed=name == LINES)
                for name in _TABLES
            }

    def _find_tables(self) -> dict[bytes, lmdb._Database]:
        """Return the tables. In a transaction for reading, LMDB would forget them at its end."""
        return {
            name: self._env.open_db(name, create=False, dupsort=name == LINES, dupfixed=name == LINES)
            for name in _TABLES
        }

    @property
    def file(self) -> ValueFile:
        """Itself: see `Pages`."""
        return self  # as an attribute, it would live until the garbage collector runs

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`.

        The table of readers, in the file of locks, is shared with the parent: whatever LMDB frees here, it would free
        in the parent's entries, whose pages a writer would then use again. So this process gets a copy of the table
        before it closes the file, which it may then open itself. Where there can be no copy, it keeps the file as it
        is, and cannot open it.
        """
        _open_files.by_path.pop(self.path, None)
        if copy_mappings(self.path.with_name(f"{self.path.name}-lock")):
            self._env.close()
        else:
            for inherited in (self._env, self._current, *(cut.txn for cut in self._cuts)):
                keep_for_good(inherited)
        self._current = None
        self._env = _InParent(self.path)  # type: ignore[assignment]
        for cut in self._cuts:
            cut.txn = self._env  # type: ignore[assignment]

    # ---------------------------------------------------------------- transactions

    @property
    def txn(self) -> Txn:
        """The transaction to read in, valid until the next write begins or ends."""
        current = self._current
        if current is not None:
            return current
        with self._failing("read"):
            self._current = current = self._env.begin(buffers=True)
        return current

    def write(self) -> Txn:
        """Return the transaction to write in."""
        if self.writing:
            assert self._current is not None
            return self._current
        self._stop_reading()
        with self._failing("write"):
            self._current = self._env.begin(write=True, buffers=True)
        self.writing = True
        return self._current

    def commit(self) -> None:
        """Make all changes count, if there are any.

        Raises:
            StoreFull, StoreFailed: they were not written, and are undone.
        """
        if not self.writing:
            return
        if self._number is not None:
            self.note(_NUMBER, b"%d" % self._number)
        txn, self._current, self.writing = self._current, None, False
        assert txn is not None
        self.version += 1
        with self._failing("write"):
            txn.commit()

    def abort(self) -> None:
        """Undo all changes since the last commit."""
        if self.writing:
            txn, self._current, self.writing = self._current, None, False
            assert txn is not None
            txn.abort()
            self.version += 1
            self.aborts += 1
            self._number = None

    def attempt(self, change: Callable[[Txn], T]) -> T:
        """Apply a change in the transaction to write in. Raises what `commit` raises."""
        txn = self.write()
        with self._failing("write"):
            return change(txn)

    def next_numbers(self, count: int) -> int:
        """Return the first of as many numbers, which nobody has had before in this file."""
        if self._number is None:
            self._number = int(self.noted(_NUMBER) or 0)
        first = self._number
        self._number += count
        return first

    @property
    def last_commit(self) -> int:
        """The number of the last commit, by any process. It is read from memory."""
        number: int = self._env.info()["last_txnid"]
        return number

    def cut(self) -> PinnedPages:
        """Return what was committed last, by any process."""
        if len(self._cuts) >= _READERS // 2:
            raise StoreFailed(
                f"The store in {self.path.parent} has {len(self._cuts)} snapshots in use, and can have no more.",
                path=str(self.path.parent),
                hint="Let go of snapshots that are no longer needed.",
            )
        cut = PinnedPages(self, self._start_reading())
        self._cuts.add(cut)
        return cut

    def _start_reading(self) -> Txn:
        import lmdb

        for prepare in (lambda: None, self._env.reader_check, self._see_growth):
            try:
                prepare()
                return self._env.begin(buffers=True)
            except (lmdb.ReadersFullError, lmdb.MapResizedError):
                pass  # nothing must keep this error: its frames have cuts, which keep the map from growing
            except lmdb.Error as error:
                raise failure(error, self.path, "read") from error
        try:
            return self._env.begin(buffers=True)
        except lmdb.Error as error:
            raise failure(error, self.path, "read") from error

    def _see_growth(self) -> None:
        """Make the map as large as the writer has made it, unless this process has cuts."""
        if not len(self._cuts) and self._current is None:
            self._env.set_mapsize(0)

    def reserve(self, size: int) -> None:
        """See to it that the map has room for a batch of this many bytes."""
        info = self._env.info()
        page: int = self._env.stat()["psize"]
        need = info["last_pgno"] * page + _COPIES * size + _ROOM
        if need <= info["map_size"]:
            return
        self._stop_reading()
        if len(self._cuts):
            raise StoreFull(
                f"The store in {self.path.parent} has to grow beyond {info['map_size']:,} bytes of address space, "
                f"which it cannot while snapshots of it are in use ({len(self._cuts)}).",
                path=str(self.path.parent),
                hint="Let go of them, and close what this process has attached; the view then goes on by itself.",
            )
        with self._failing("grow"):
            self._env.set_mapsize(max(2 * info["map_size"], need + need // 2))

    def sync(self) -> None:
        """Wait until the disk has what was committed."""
        with self._failing("sync"):
            self._env.sync(True)

    def check_readers(self) -> None:
        """Free the slots of readers whose process died."""
        self._env.reader_check()

    def release(self) -> None:
        """Let go of the pages that were read last. Cuts keep theirs."""
        self._stop_reading()

    def close(self) -> None:
        """Close the file, or leave that to the cuts and readers of this process that use it.

        A finalizer alone would leave it open for as long as somebody has the closed view.
        """
        with _open_files.lock:
            self._stop_reading()
            self._number = None  # another process may write before this one does again
            if not len(self._cuts) and not len(self._readers):
                _open_files.by_path.pop(self.path, None)
                self._env.close()

    def _stop_reading(self) -> None:
        if self._current is not None and not self.writing:
            self._current.abort()
            self._current = None

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        import lmdb

        try:
            yield
        except lmdb.Error as error:
            self.abort()
            self.aborts += 1  # also if a commit has failed
            raise failure(error, self.path, doing) from error

    # ---------------------------------------------------------------- notes

    def note(self, name: str, data: bytes) -> None:
        """Write a note, which counts from the next commit on."""
        self.attempt(lambda txn: txn.put(name.encode(), data, db=self.tables[NOTES]))

    def noted(self, name: str) -> bytes | None:
        """Return a note; None if there is none."""
        return _noted(self, name)


class PinnedPages:
    """The content of a file after a commit.

    It keeps the file open, and its pages from being used again.
    """

    def __init__(self, file: ValueFile, txn: Txn) -> None:
        self.file = file
        self.txn = txn
        for table in file.tables.values():
            txn.stat(table)  # look-ups then change nothing in the transaction, so threads may share it

    def noted(self, name: str) -> bytes | None:
        """Return a note; None if there is none."""
        return _noted(self, name)


def _noted(pages: Pages, name: str) -> bytes | None:
    found = pages.txn.get(name.encode(), None, pages.file.tables[NOTES])
    return None if found is None else bytes(found)


class _InParent:
    """Stands for an environment or transaction in a forked child."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __getattr__(self, name: str) -> NoReturn:
        raise left_behind(f"The store in {self._path.parent}")


class _OpenFiles:
    """The files that this process has open."""

    def __init__(self) -> None:
        self.by_path: WeakValueDictionary[Path, ValueFile] = WeakValueDictionary()
        self.lock = Lock()
        """Held to open or close one: none is closed that somebody is just about to have."""
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`."""
        self.lock = Lock()


_open_files = _OpenFiles()


def open_file(path: Path, sizes: Sequence[int] = MAP_SIZES, *, reader: Hashable | None = None) -> ValueFile:
    """Open a file, or return it if this process has it open: LMDB must not open one twice.

    Args:
        path: the file.
        sizes: the sizes of its map to try, in bytes.
        reader: who only reads it. The file stays open as long as this lives. None to write it.

    Raises:
        StoreFailed: it cannot be opened, or is no such file.
        MissingExtra: LMDB is not installed.
    """
    place = path.resolve()
    with _open_files.lock:
        found = _open_files.by_path.get(place)
        if found is not None and found.read_only and reader is None:
            raise OnlyAttached(
                f"This process has attached the store in {path.parent}, so it cannot write it.",
                path=str(path.parent),
                hint="Close what is attached, and let go of snapshots of it.",
            )
        if found is None:
            found = _open_files.by_path[place] = ValueFile(place, sizes, create=reader is None)
        if reader is not None:
            found._readers.add(reader)
        return found


def _open(path: Path, sizes: Sequence[int], *, read_only: bool) -> lmdb.Environment:
    with needing("store", "`store`", options=["store"]):
        import lmdb
    for size in sizes:
        try:
            return lmdb.open(
                str(path),
                map_size=size,
                subdir=False,
                readonly=read_only,
                create=not read_only,
                mode=0o600,
                max_dbs=len(_TABLES),
                max_readers=_READERS,
                sync=False,
                metasync=False,
                readahead=False,  # look-ups are all over the file
            )
        except lmdb.MemoryError:
            if size == sizes[-1]:
                raise StoreFailed(
                    f"There is no room for {size:,} bytes of address space, which the store in {path.parent} needs.",
                    path=str(path.parent),
                    hint="Raise the limit of this process (`ulimit -v`).",
                ) from None
        except lmdb.Error as error:
            raise failure(error, path, "open") from error
    raise AssertionError("There is a size.")


def _has_no_room(path: Path) -> bool:
    try:
        room = os.statvfs(path)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _LITTLE


def failure(error: Exception, path: Path, doing: str) -> StoreFailed:
    """Return the error for one of LMDB's."""
    import lmdb

    where, said = str(path.parent), str(error).removeprefix(f"{path}: ")
    # LMDB reports a write that was cut short, since there is no more room, as an error of the device.
    full = isinstance(error, lmdb.DiskError | lmdb.MapFullError) or "quota" in said
    if full or (os.strerror(errno.EIO) in said and _has_no_room(path)):
        return StoreFull(
            f"The store in {where} cannot be written: {said}.",
            path=where,
            hint="Make room on its file system; the view then goes on by itself.",
        )
    if isinstance(error, lmdb.MapResizedError):
        return MapOutgrown(
            f"The store in {where} has grown, and this process cannot see the rest of it while it holds snapshots.",
            path=where,
            hint="Let go of the snapshots; the reader then goes on by itself.",
        )
    if isinstance(error, lmdb.ReadersFullError):
        return StoreFailed(
            f"The store in {where} has {_READERS} readers, and can have no more.",
            path=where,
            hint="End processes that read it, or let go of snapshots.",
        )
    return StoreFailed(f"Cannot {doing} the store in {where}: {said}.", path=where)
