"""The definitions of the indexes of a view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.quoting import listed, quoted
from lvq_kafka.errors import ConfigError

__all__ = ["IndexRule", "IndexRules", "known_index"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class IndexRule:
    """The definition of an index."""

    name: str
    by: object
    """The header, or the function."""
    said: Mapping[str, str]
    """The definition, for another process in the types of JSON.

    No other process says that of a function without a version.
    """
    place: Callable[[Record], bytes | None]
    """Returns the place of a record, or None if it has none. It raises nothing."""

    def is_same(self, other: IndexRule) -> bool:
        """Return whether both are by the same."""
        return self.said == other.said or ("function" in self.said.keys() & other.said.keys() and self.by == other.by)


class IndexRules:
    """The indexes that a view keeps. Any thread may read them while one is added."""

    def __init__(self) -> None:
        self.all: tuple[IndexRule, ...] = ()
        """Another tuple whenever an index is added."""

    def add(self, rule: IndexRule) -> None:
        """Add an index, unless it is there.

        Raises:
            ConfigError: there is another one of that name.
        """
        known = next((one for one in self.all if one.name == rule.name), None)
        if known is None:
            self.all = (*self.all, rule)
        elif not known.is_same(rule):
            raise ConfigError(
                f"There is an index {quoted(rule.name)} already, by something else.",
                options=["name", "by"],
                hint="Give this one another name.",
            )


def known_index(name: object, known: Mapping[str, T], hint: str) -> T:
    """Return what is known of an index.

    Raises:
        ConfigError: there is no index of that name; ``hint`` says how to have one.
    """
    found = known.get(name) if isinstance(name, str) else None
    if found is None:
        there = f"There are {listed(sorted(known))}." if known else "There is none at all."
        raise ConfigError(f"There is no index {quoted(name)}. {there}", options=["name"], hint=hint)
    return found
