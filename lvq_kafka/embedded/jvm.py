"""JVM commands: options, the class archive, and the two programs that it runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lvq_kafka.embedded.data_directory import PreparedStorage, new_id
from lvq_kafka.embedded.java import Java

__all__ = ["Jvm"]

_LOGGING = Path(__file__).with_name("log4j2.properties")
# For a quick start and a small footprint: a single developer's broker never gets hot enough for the big compiler.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")


@dataclass(frozen=True, slots=True)
class Jvm:
    """A Java, the broker's jars, and their options. ``options`` come last and win."""

    java: Java
    jars: Sequence[Path]
    heap: str
    options: Sequence[str] = ()

    @property
    def archive(self) -> Path:
        """The class-data archive for this Java and these jars.

        If it exists, the JVM loads it instead of 8,000 classes.
        """
        identity = f"{self.java.executable.resolve()}\n{self.java.build}"
        name = hashlib.sha256(identity.encode()).hexdigest()[:12]
        return self.jars[0].parent / f"classes-{name}.jsa"

    @property
    def storage(self) -> PreparedStorage:
        """A data directory that was formatted with these jars."""
        return PreparedStorage(self.jars[0].parent / "storage")

    @property
    def new_archive(self) -> Path | None:
        """The file that this process's broker writes at exit, if there is no archive yet."""
        return None if self.archive.exists() else self.archive.with_suffix(f".{os.getpid()}.tmp")

    def broker(self, config: Path) -> list[str]:
        """Return the command that runs the broker."""
        new = self.new_archive
        archive = self._with_archive if new is None else (f"-XX:ArchiveClassesAtExit={new}",)
        return [*self._java(*archive, f"-Xmx{self.heap}", "-XX:+ExitOnOutOfMemoryError"), "kafka.Kafka", str(config)]

    def format(self, config: Path, log: Path) -> int:
        """Format the data directory named in ``config`` for a new cluster.

        Return the exit code; ``log`` has the details.
        """
        arguments = ["format", f"--cluster-id={new_id()}", "-c", str(config)]  # in one piece: an id may start with "-"
        command = [*self._java(*self._with_archive, "-Xmx128m"), "kafka.tools.StorageTool", *arguments]
        with log.open("ab") as output:
            return subprocess.call(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    @property
    def _with_archive(self) -> tuple[str, ...]:
        return (f"-XX:SharedArchiveFile={self.archive}",) if self.archive.exists() else ()

    def _java(self, *options: str) -> list[str]:
        return [
            *(str(self.java.executable), *_OPTIONS, *options),
            *(f"-Dlog4j2.configurationFile={_LOGGING}", "-Djava.awt.headless=true", *self.options),
            *("-cp", os.pathsep.join(map(str, self.jars))),
        ]
