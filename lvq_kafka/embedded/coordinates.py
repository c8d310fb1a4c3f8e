"""The names of jars in a Maven repository: organisation, name and version."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Jar", "Module"]


class Module(NamedTuple):
    """A module that a lock is resolved from.

    Its dependencies come along only if it is ``transitive``.
    """

    organisation: str
    name: str
    version: str
    transitive: bool = False


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
