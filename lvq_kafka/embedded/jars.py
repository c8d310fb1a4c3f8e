"""Sets of jars, such as the broker's, fetched once per user and checked against a lock."""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lvq_kafka.core.text.validation import function
from lvq_kafka.embedded import ivy
from lvq_kafka.embedded.cache import cache_dir, locked
from lvq_kafka.errors import CorruptDownload

__all__ = ["BROKER", "KAFKA_VERSION", "Jar", "JarSet", "Progress", "check_progress", "ensure_jars"]

KAFKA_VERSION = "4.3.1"

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of jars done, and their total."""


class Jar(NamedTuple):
    """One line of a lock."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file in the cache."""
        return f"{self.name}-{self.version}.jar"


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
    roots: tuple[ivy.Module, ...]
    relocked_by: str

    def read_lock(self) -> tuple[Jar, ...]:
        """Return every jar, in class path order."""
        lines = self.lock_file.read_text(encoding="ascii").splitlines()
        return tuple(Jar(*line.split()) for line in lines if line and not line.startswith("#"))

    def ensure(self, progress: Progress | None = None) -> list[Path]:
        """Return the paths of the jars, fetching them if they are not in the cache.

        Every file is checked on the first call of a process. A damaged cache is replaced by a fresh download; a
        download that differs from the lock is refused and not kept. Several processes may call this at once: one of
        them downloads.

        Raises:
            CorruptDownload: a downloaded file is not the one that the lock names.
            EmbeddedBrokerError: the download failed, or the cache cannot be written.
            MissingExtra: PySpark, which the download needs, is not installed.
            DiskFull: the cache directory has no space left.
            JavaNotFound: the download runs on Java, and none was found.
        """
        check_progress(progress)
        cache, lock, progress = cache_dir(), self.read_lock(), progress or (lambda *_: None)
        # Named by the lock's content, so that a library version with another lock has its own directory.
        digest = hashlib.sha256("\n".join(jar.sha256 for jar in lock).encode()).hexdigest()[:8]
        home = cache / f"{self.directory}-{digest}"
        if not _is_good(lock, home):
            with locked(cache / "jars.lock", on_wait=lambda: progress("waiting for another download", 0, len(lock))):
                _is_good.cache_clear()  # another process may have fetched it in the meantime
                if not _is_good(lock, home):
                    self._fetch(lock, home, progress)
                    _is_good.cache_clear()
        return [home / jar.file for jar in lock]

    def _fetch(self, lock: Sequence[Jar], home: Path, progress: Progress) -> None:
        done = 0

        def on_line(line: str) -> None:
            nonlocal done
            if "[SUCCESSFUL ]" in line:
                done += 1
                progress("downloading", done, len(lock))

        with _workshop(home.parent) as work:
            progress("downloading", 0, len(lock))
            modules = [ivy.Module(jar.organisation, jar.name, jar.version) for jar in lock]
            pattern = "jars/[artifact]-[revision].[ext]"
            ivy.retrieve(modules, pattern, work, pinned=True, what=f"the {self.what}", on_line=on_line)
            progress("checking", len(lock), len(lock))
            try:
                _verify(lock, work / "jars")
            except CorruptDownload as error:
                raise CorruptDownload(
                    f"The download of {error.path.name} is corrupt (missing, or not what the lock says). "
                    "Nothing was kept.",
                    path=home / error.path.name,
                    hint="Run the command again; if the error persists, the repository, mirror or proxy in use "
                    "alters files.",
                ) from error
            if home.exists():
                home.rename(work / "damaged")
            (work / "jars").rename(home)

    def relock(self) -> int:
        """Resolve the dependencies again and rewrite the lock; return the number of jars."""
        with tempfile.TemporaryDirectory() as temporary:
            jars = Path(temporary) / "jars"
            pattern = "jars/[organisation]/[module]/[revision]/[artifact].[ext]"
            ivy.retrieve(self.roots, pattern, Path(temporary), pinned=False, what=f"the {self.what}")
            locked_jars = []
            for path in sorted(jars.rglob("*.jar")):
                organisation, name, version, _ = path.relative_to(jars).parts
                locked_jars.append(Jar(organisation, name, version, _sha256(path)))
        header = f"# organisation, name, version, sha256 of each jar. Written by: {self.relocked_by}\n"
        self.lock_file.write_text(header + "".join(" ".join(jar) + "\n" for jar in locked_jars), encoding="ascii")
        return len(locked_jars)


BROKER = JarSet(
    what="broker's jars",
    directory=f"kafka-{KAFKA_VERSION}",
    lock_file=Path(__file__).with_name("jars.lock"),
    # The broker; the logging binding that its release ships but its POM does not name; and the console tools, whose
    # dependencies are those of the broker.
    roots=(
        ivy.Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION, transitive=True),
        ivy.Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", transitive=True),
        ivy.Module("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ),
    relocked_by="python -m lvq_kafka.embedded --relock",
)


def check_progress(progress: object) -> None:
    """Check a function that shows the progress of a download; None shows nothing.

    Raises:
        ConfigError: it is not a plain function of three arguments.
    """
    if progress is not None:
        function("progress", progress, "doing", "done", "total", hint="Show the progress at once.", classes=False)


def ensure_jars(progress: Progress | None = None) -> list[Path]:
    """Return the paths of the broker's jars, fetching them if needed; see `JarSet.ensure`."""
    return BROKER.ensure(progress)


@functools.cache
def _is_good(lock: tuple[Jar, ...], home: Path) -> bool:
    try:
        _verify(lock, home)
    except (OSError, CorruptDownload):
        return False
    return True


def _verify(lock: Iterable[Jar], directory: Path) -> None:
    """Check that ``directory`` holds exactly the jars of ``lock``, all unchanged."""
    expected = {jar.file: jar.sha256 for jar in lock}
    found = {path.name for path in directory.glob("*.jar")}
    if found != expected.keys():
        path = directory / sorted(found ^ expected.keys())[0]
        raise CorruptDownload(f"{path} is {'unexpected' if path.name in found else 'missing'}.", path=path)
    for name, sha256 in expected.items():
        path = directory / name
        if _sha256(path) != sha256:
            raise CorruptDownload(f"{path} does not match the lock (its SHA-256 differs).", path=path)


@contextmanager
def _workshop(cache: Path) -> Iterator[Path]:
    """Yield a scratch directory on the cache's file system; the caller holds the lock.

    Scratch directories of killed processes are removed.
    """
    for stale in cache.glob(".fetch-*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
