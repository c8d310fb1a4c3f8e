"""Contexts: client properties under a name, in the user's configuration directory.

A context is a file like one in ``--config``, which only its user may read. The directory is ``lvq-kafka`` in
``XDG_CONFIG_HOME`` or in ``~/.config``.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.errors import ConfigError

__all__ = ["SavedContexts"]

_SUFFIX = ".properties"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class SavedContexts:
    """The contexts of a user, one of which may be in use.

    Args:
        directory: where they are; by default in the user's configuration directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = _default_directory() if directory is None else directory

    @property
    def names(self) -> list[str]:
        """The names of all contexts, sorted."""
        try:
            files = os.listdir(self._directory / "contexts")
        except FileNotFoundError:
            return []
        names = (file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))
        return sorted(name for name in names if _NAME.fullmatch(name))

    @property
    def current(self) -> str | None:
        """The name of the context in use; None if there is none."""
        try:
            return (self._directory / "current").read_text("utf-8").strip() or None
        except FileNotFoundError:
            return None

    def path(self, name: str) -> Path:
        """Return the path of a context's file.

        Raises:
            ConfigError: there is no such context.
        """
        path = self._path(name)
        if not path.is_file():
            known = self.names
            near = nearest(name, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {listed(known)}." if known else ""
            raise ConfigError(
                f"There is no context {brief(name)}.",
                options=["context"],
                hint=f"{hint} Save one: lvq context set {name} -b host:port".strip(),
            )
        return path

    def save(self, name: str, text: str) -> Path:
        """Write the file of a context, which nobody else can ever read, and return its path.

        Raises:
            ConfigError: the name is unsuitable.
            OSError: the file cannot be written.
        """
        path = self._path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, text)
        return path

    def use(self, name: str | None) -> None:
        """Make a context the one in use; with None, none is.

        Raises:
            ConfigError: there is no such context.
            OSError: the choice cannot be written.
        """
        current = self._directory / "current"
        if name is None:
            current.unlink(missing_ok=True)
        else:
            self.path(name)
            _write(current, f"{name}\n")

    def remove(self, name: str) -> None:
        """Delete a context. If it is in use, none is from now on.

        Raises:
            ConfigError: there is no such context.
            OSError: the file cannot be deleted.
        """
        path = self.path(name)
        if self.current == name:
            self.use(None)
        path.unlink()

    def path_in_use(self) -> Path | None:
        """Return the file of the context in use, if any.

        Raises:
            ConfigError: its file is gone.
        """
        current = self.current
        return None if current is None else self.path(current)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{brief(name)} cannot be the name of a context.",
                options=["context"],
                hint="Use up to 100 letters, digits, and _ . - within them.",
            )
        return self._directory / "contexts" / f"{name}{_SUFFIX}"


def _default_directory() -> Path:
    xdg = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(xdg) if xdg else Path.home() / ".config") / "lvq-kafka"
    except RuntimeError:  # a user without a home directory
        raise ConfigError(
            "Contexts have no place: this user has no home directory.",
            options=["context"],
            hint="Set XDG_CONFIG_HOME to a directory that this user may write to.",
        ) from None


def _write(path: Path, text: str) -> None:
    """Replace a file at once; a reader sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
