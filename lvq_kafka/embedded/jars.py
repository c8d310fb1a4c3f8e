"""Sets of jars, such as the broker's, fetched once per user and checked against a lock."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lvq_kafka.core.text.validation import function
from lvq_kafka.embedded.cache import cache_dir, filling, locked
from lvq_kafka.embedded.coordinates import Jar, Module
from lvq_kafka.embedded.download_bar import shown
from lvq_kafka.errors import CorruptDownload
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from lvq_kafka.embedded.repository import Repository

__all__ = ["BROKER", "KAFKA_VERSION", "JarSet", "ReportProgress", "check_progress", "ensure_jars"]

KAFKA_VERSION = "4.3.1"

ReportProgress = Callable[[str, int, int], None]
"""Called with the current step, the number of jars done, and their total."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together.

    Args:
        what: the name of the set in errors, after "the".
        directory: the name of its directory in the cache; the lock's digest is appended.
        lock_file: the file that lists each jar with its digest.
        roots: the modules that the lock is resolved from.
        relocked_by: the command that rewrites the lock, for its first line.
    """

    what: str
    directory: str
    lock_file: Path
    roots: tuple[Module, ...]
    relocked_by: str

    def read_lock(self) -> tuple[Jar, ...]:
        """Return every jar, in class path order."""
        lines = self.lock_file.read_text(encoding="ascii").splitlines()
        return tuple(Jar(*line.split()) for line in lines if line and not line.startswith("#"))

    @property
    def home(self) -> Path:
        """The directory in the cache that holds the jars, once they are fetched."""
        # Named by the lock's content, so that a library version with another lock has its own directory.
        digest = hashlib.sha256("\n".join(jar.sha256 for jar in self.read_lock()).encode()).hexdigest()[:8]
        return cache_dir() / f"{self.directory}-{digest}"

    def ensure(self, progress: ReportProgress | None = None) -> list[Path]:
        """Return the paths of the jars, fetching those that are not in the cache.

        Every file is checked on the first call of a process. A damaged one is replaced; a download that differs from
        the lock is refused and not kept. Several processes may call this at once: one of them downloads. If it is
        interrupted, the next one continues.

        Raises:
            CorruptDownload: a downloaded file is not the one that the lock names.
            EmbeddedBrokerError: the download failed, or the cache cannot be written.
            MissingExtra: jgo, which the download needs, is not installed.
            DiskFull: the cache directory has no space left.
        """
        check_progress(progress)
        lock, home = self.read_lock(), self.home
        if not _are_good(lock, home):
            with (
                shown(self.what) if progress is None else nullcontext(progress) as show,
                locked(home.parent / "jars.lock", on_wait=lambda: show("waiting for another download", 0, len(lock))),
            ):
                self._fetch(lock, home, show)
            _are_good.cache_clear()
        return [home / jar.file for jar in lock]

    def _fetch(self, lock: Sequence[Jar], home: Path, progress: ReportProgress) -> None:
        """Fetch the jars that ``home`` lacks, one by one; the caller holds the lock."""
        missing = [jar for jar in lock if not _is_good(jar, home)]  # another process may have fetched some of them
        if not missing:
            return
        with filling(home.parent, f"the {self.what}"):
            home.mkdir(exist_ok=True)
            for archive in home.glob("classes-*.jsa"):
                archive.unlink()  # it is good for the files that it was made from
        with needing("embedded", f"Fetching the {self.what}"):
            from lvq_kafka.embedded.repository import Repository  # only here: it takes a third of a second
        with Repository(self.what) as repository:
            for done, jar in enumerate(missing, len(lock) - len(missing)):
                progress("downloading", done, len(lock))
                with filling(home.parent, f"the {self.what}"):
                    _fetch_checked(repository, jar, home)
        progress("downloading", len(lock), len(lock))

    def relock(self) -> int:
        """Resolve the dependencies again and rewrite the lock; return the number of jars."""
        with needing("embedded", f"Fetching the {self.what}"):
            from lvq_kafka.embedded.repository import Repository
        lines = [f"# organisation, name, version, sha256 of each jar. Written by: {self.relocked_by}\n"]
        with Repository(self.what) as repository, tempfile.TemporaryDirectory() as temporary:
            for organisation, name, version in sorted(repository.resolve(self.roots)):
                jar = Jar(organisation, name, version, "")
                path = Path(temporary, jar.file)
                repository.fetch(organisation, name, version, path)
                lines.append(" ".join(jar._replace(sha256=_sha256(path))) + "\n")
        self.lock_file.write_text("".join(lines), encoding="ascii")
        return len(lines) - 1


BROKER = JarSet(
    what="broker's jars",
    directory=f"kafka-{KAFKA_VERSION}",
    lock_file=Path(__file__).with_name("jars.lock"),
    # The broker; the logging binding that its release ships but its POM does not name; and the console tools, whose
    # dependencies are those of the broker.
    roots=(
        Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, transitive=True),
        Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", transitive=True),
        Module("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ),
    relocked_by="python -m lvq_kafka.embedded --relock",
)


def check_progress(progress: object) -> None:
    """Check a function that shows the progress of a download; None shows a bar.

    Raises:
        ConfigError: it is not a plain function of three arguments.
    """
    if progress is not None:
        function("progress", progress, "doing", "done", "total", hint="Show the progress at once.", classes=False)


def ensure_jars(progress: ReportProgress | None = None) -> list[Path]:
    """Return the paths of the broker's jars, fetching them if needed; see `JarSet.ensure`."""
    return BROKER.ensure(progress)


@functools.cache
def _are_good(lock: tuple[Jar, ...], home: Path) -> bool:
    return all(_is_good(jar, home) for jar in lock)


def _is_good(jar: Jar, directory: Path) -> bool:
    try:
        return _sha256(directory / jar.file) == jar.sha256
    except OSError:
        return False


def _fetch_checked(repository: Repository, jar: Jar, home: Path) -> None:
    """Fetch a jar; it is in ``home`` under its name only if it is the one that the lock names."""
    partial = home / f"{jar.file}.part"
    repository.fetch(jar.organisation, jar.name, jar.version, partial)
    if (digest := _sha256(partial)) != jar.sha256:
        partial.unlink()
        raise CorruptDownload(
            f"The download of {jar.file} is corrupt: its SHA-256 is {digest}, not the lock's {jar.sha256}. It was not "
            "kept.",
            path=home / jar.file,
            hint="Run the command again; if the error persists, the repository, mirror or proxy in use alters files.",
        )
    partial.replace(home / jar.file)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
