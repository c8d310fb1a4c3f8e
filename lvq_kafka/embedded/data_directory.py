"""Data directories for new clusters. Kafka formats them with a separate program."""

from __future__ import annotations

import base64
import contextlib
import shutil
import tempfile
import uuid
from pathlib import Path

__all__ = ["META", "PreparedStorage", "new_id"]

META = "meta.properties"
"""The file that marks a formatted directory for Kafka."""

_OWN = ("cluster.id", "directory.id")  # must be unique to each cluster


def new_id() -> str:
    """Return an id in the format that Kafka uses for clusters and directories."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class PreparedStorage:
    """A copy of a data directory that Kafka's own program formatted; saves a JVM per start.

    ``directory`` belongs to one version of Kafka. It need not exist yet, and it may be read-only.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def copy_to(self, data: Path) -> bool:
        """Prepare ``data`` with ids of its own.

        Return False, and do nothing, if there is nothing to copy yet.
        """
        try:
            lines = (self._directory / META).read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        shutil.copytree(self._directory, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
        names = [line.partition("=")[0] for line in lines]
        own = [f"{name}={new_id()}" if name in _OWN else line for name, line in zip(names, lines, strict=True)]
        (data / META).write_text("\n".join([*own, ""]), encoding="utf-8")  # last: this marks it as formatted
        return True

    def keep(self, data: Path) -> None:
        """Keep a copy of ``data``, which was just formatted. On failure, the next start retries."""
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=self._directory.parent) as temporary:
            copy = Path(temporary) / "storage"
            shutil.copytree(data, copy)
            copy.rename(self._directory)  # atomic, so that nobody sees half of it; fails if another process was faster
