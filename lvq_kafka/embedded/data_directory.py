"""Preparing a data directory for a new cluster, which Kafka leaves to a program of its own."""

from __future__ import annotations

import base64
import contextlib
import shutil
import tempfile
import uuid
from pathlib import Path

__all__ = ["META", "PreparedStorage", "new_id"]

META = "meta.properties"
"""The file by which Kafka knows a directory that was prepared."""

_OWN = ("cluster.id", "directory.id")  # what two clusters must not have in common


def new_id() -> str:
    """Return an id of the form that Kafka gives clusters and directories."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class PreparedStorage:
    """A data directory as Kafka's own program has once prepared it, to be copied: a JVM less for each start.

    ``directory`` belongs to one version of Kafka; it need not exist yet, and may be one that cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def copy_to(self, data: Path) -> bool:
        """Prepare ``data`` with ids of its own. Return False, and do nothing, if there is nothing to copy yet."""
        try:
            lines = (self._directory / META).read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        shutil.copytree(self._directory, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
        names = [line.partition("=")[0] for line in lines]
        own = [f"{name}={new_id()}" if name in _OWN else line for name, line in zip(names, lines, strict=True)]
        (data / META).write_text("\n".join([*own, ""]), encoding="utf-8")  # last: now it is prepared
        return True

    def keep(self, data: Path) -> None:
        """Keep a copy of ``data``, which has just been prepared. Where that fails the next one tries again."""
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=self._directory.parent) as temporary:
            copy = Path(temporary) / "storage"
            shutil.copytree(data, copy)
            copy.rename(self._directory)  # one step, so that nobody finds half of it; fails if somebody was quicker
