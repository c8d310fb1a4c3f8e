"""The versions of a store: list, commit and prune them."""

from __future__ import annotations

import errno
import logging
import random
import re
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from lvq_kafka.errors import ConfigError, DataLoss, LVQError
from lvq_spark.session.remote import spark_errors
from lvq_spark.store.manifest import DataFile, Version, decode, encode
from lvq_spark.store.storage import Storage

__all__ = ["Store"]

_MANIFESTS = "versions"
_MANIFEST = re.compile(r"(\d{10})\.json")
_FOLDER = re.compile(r"v(\d+)-[0-9a-f]{12}")

BUILT_UPON, READ = 256 << 20, 64 << 20
"""Bytes of a version's files to verify before building on it, and before reading it.

The former takes about a tenth of a second of processor time. The rest is verified page by page, by whatever reads it.
"""

logger = logging.getLogger("lvq_spark.store")


class Store:
    """A directory with versions.

    Its layout is::

        versions/0000000007.json    the manifest: what makes it version 7; written last, and never changed
        v7-3f2a9c01b7de/*.parquet   files that were written for it; it may share others with versions before it

    The writer that creates a version's manifest owns its number; the file is created atomically, so only one writer
    can. Each attempt writes its data to a folder of its own, so data without a manifest belongs to no version.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def numbers(self) -> list[int]:
        """Return the numbers of the versions, ascending."""
        found = map(_MANIFEST.fullmatch, self.storage.names(_MANIFESTS))
        return sorted(int(match[1]) for match in found if match)

    def get(self, number: int) -> Version | None:
        """Return a version; None if there is no such version.

        Raises:
            ConfigError: its manifest is newer than this library.
            DataLoss: its manifest is damaged.
        """
        name = _name(number)
        content = self.storage.read(name)
        return None if content is None else decode(content, f"{self.storage.root}/{name}")

    def all(self) -> list[Version]:
        """Return all versions, ascending.

        Those whose manifest is damaged are left out, with a warning.

        Raises:
            ConfigError: a manifest is newer than this library.
        """
        found, damaged = self._readable()
        for damage in damaged.values():
            logger.warning("A version is left out: %s", damage)
        return found

    def _readable(self) -> tuple[list[Version], dict[int, DataLoss]]:
        """Return the versions, ascending, and what is wrong with those whose manifest is damaged."""
        found, damaged = [], {}
        for number in self.numbers():
            try:
                version = self.get(number)
            except DataLoss as damage:
                damaged[number] = damage
            else:
                found += [] if version is None else [version]
        return found, damaged

    def as_of(self, moment: datetime) -> Version | None:
        """Return the newest version that was pinned by then; None if there is none.

        Raises as `get` does: a damaged one before it may be the one.
        """
        found = map(self.get, reversed(self.numbers()))
        return next((one for one in found if one is not None and one.pinned <= moment), None)

    def latest(self) -> Version | None:
        """Return the newest version; None if the store is empty. Raises as `get` does."""
        numbers = self.numbers()
        while numbers:
            version = self.get(numbers[-1])
            if version is not None:
                return version
            numbers = self.numbers()  # it was just pruned, so there are newer ones
        return None

    def check_vacant(self) -> None:
        """Check that a store can be created here.

        Raises:
            ConfigError: something else lies here, such as a Delta or Iceberg table.
        """
        others = [name for name in self.storage.names("") if name != _MANIFESTS and not _FOLDER.fullmatch(name)]
        if others:
            table = "a Delta table" if "_delta_log" in others else "an Iceberg table" if "metadata" in others else ""
            raise ConfigError(
                f"{self.storage.root} holds {table or 'something else'}: {', '.join(others[:3])}.",
                options=["path"],
                hint="A store has Parquet files of its own. Give it a directory to itself.",
            )

    def sealed(self, files: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Return files with checksums of their current content."""
        return tuple(replace(file, crc32=self.storage.crc32(file.name)) for file in files)

    def damage(self, version: Version) -> str:
        """Return what is wrong with a version's files; empty if they are present and intact."""
        folders = {file.name.partition("/")[0] for file in version.files}
        there = {entry.name: entry.bytes for folder in folders for entry in self.storage.files(folder)}
        for file in version.files:
            if file.name not in there:
                return f"{self.storage.root}/{file.name} is missing"
            if there[file.name] != file.bytes:
                return f"{self.storage.root}/{file.name} has {there[file.name]} bytes, but had {file.bytes}"
        return self.changed(version, BUILT_UPON, larger=True)

    def changed(self, version: Version, room: int, *, larger: bool = False) -> str:
        """Return which file's checksum has changed; empty if none of those checked has.

        The overlay is checked first, then other files in random order, up to ``room`` bytes in all. So a small store is
        checked completely, and a large one over time. A file larger than the remaining room is skipped or, with
        ``larger``, checked just often enough to average that many bytes.
        """
        sealed = [file for file in version.files if file.crc32 is not None]
        for file in sorted(random.sample(sealed, len(sealed)), key=lambda file: not file.overlay):
            if file.bytes > room and not (larger and random.random() * file.bytes < room):
                continue
            room -= file.bytes
            if self._changed(file):
                return f"{self.storage.root}/{file.name} is not what was written: its checksum differs"
        return ""

    def _changed(self, file: DataFile) -> bool:
        try:
            return self.storage.crc32(file.name) != file.crc32
        except FileNotFoundError:  # deleted along with its version
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return True

    @contextmanager
    def attempt(self, number: int) -> Iterator[str]:
        """Yield a folder's name for the data of one attempt at a version.

        The folder is deleted if the attempt fails. No other attempt writes to it. Tasks of a job that has failed may
        still do so; what they leave is for `clean`.
        """
        folder = f"v{number}-{uuid.uuid4().hex[:12]}"
        try:
            yield folder
        except _FAILURES:
            with suppress(*_harmless()):
                self.storage.delete(folder)
            raise

    def commit(self, version: Version) -> bool:
        """Commit a version; return False if its number is taken.

        If that fails, the version's own files are deleted, unless the manifest is there or may still appear.
        """
        # A number stays taken after its version was pruned.
        if any(number >= version.number for number in self.numbers()):
            return False
        try:
            return self.storage.create(_name(version.number), encode(version))
        except _FAILURES:
            with suppress(*_harmless()):
                if self.storage.settles and self.storage.read(_name(version.number)) is None:
                    self.discard(version)
            raise

    def discard(self, version: Version) -> None:
        """Delete the files of a version that was not committed, except those it shares."""
        if version.data.startswith(f"v{version.number}-"):
            self.storage.delete(version.data)

    def clean(self, keep: int, grace: float) -> None:
        """Delete versions beyond the ``keep`` newest, and leftovers of attempts.

        A version is deleted once it has not been the newest for ``grace`` seconds, and leftovers once nothing in them
        has changed for as long. A version's manifest is deleted before its files.

        Nobody knows which files a version has whose manifest is damaged. Until it is deleted, too, all that is not
        newer stays.
        """
        now = datetime.now(UTC)
        found, damaged = self._readable()
        kept = deque(found)
        while len(kept) > keep and (now - kept[1].committed).total_seconds() >= grace:
            gone = kept.popleft()
            self.storage.delete(_name(gone.number))
            logger.info("Version %d of %s is pruned.", gone.number, self.storage.root)
        for number in sorted(damaged):
            newer = next((version for version in found if version.number > number), None)
            if newer is not None and (now - newer.committed).total_seconds() >= grace:
                self.storage.delete(_name(number))
                del damaged[number]
        used = {file.name.partition("/")[0] for version in kept for file in version.files}
        folders = {name: int(match[1]) for name in self.storage.names("") if (match := _FOLDER.fullmatch(name))}
        unknown = max(damaged, default=0)
        left = [name for name, number in folders.items() if name not in used and number > unknown]
        left += [f"{_MANIFESTS}/{name}" for name in self.storage.names(_MANIFESTS) if name.startswith(".")]
        for name in left:
            if time.time() - self.storage.touched(name) >= grace:
                self.storage.delete(name)

    def paths(self, files: Iterable[DataFile]) -> list[str]:
        """Return the files' paths as Spark takes them."""
        return [f"{self.storage.root}/{file.name}" for file in files]


_FAILURES = (Exception, KeyboardInterrupt, SystemExit)
"""Failures of an attempt after which the process can still clean up."""


def _harmless() -> tuple[type[BaseException], ...]:
    """Return the errors of a storage that do not matter while cleaning up after another."""
    return (OSError, LVQError, *spark_errors())


def _name(number: int) -> str:
    return f"{_MANIFESTS}/{number:010}.json"
