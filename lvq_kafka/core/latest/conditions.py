"""The rules of selection: by key, by header, or by any condition on a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lvq_kafka.core.log.records import Record, header_value

__all__ = ["UNSELECTED", "ByHeaders", "Condition", "HeaderCondition", "KeySelection"]

UNSELECTED = bytes(bytearray(b"lvq-unselected"))
"""Replaces a value that is not selected, until the fold removes its key; compare by identity."""


ByHeaders = Callable[[Sequence[tuple[str, bytes | None]]], bool]
"""A condition on headers alone. It never raises."""


class Condition(Protocol):
    """A condition on values.

    A key whose newest value does not meet it is not selected.
    """

    @property
    def by_headers(self) -> ByHeaders | None:
        """The same condition on headers alone; None if it needs more of a record.

        Evaluating it takes half the time.
        """

    def matches(self, record: Record) -> bool:
        """Return whether this record, which holds a value, meets the condition.

        It may raise anything; the value is not selected then.
        """


class HeaderCondition:
    """The condition that the last header of each name has this value; None is any value."""

    def __init__(self, wanted: Mapping[str, bytes | None]) -> None:
        self._wanted = dict(wanted)

    def matches(self, record: Record) -> bool:
        """Return whether a record has all these headers."""
        return self.by_headers(record.headers)

    def by_headers(self, headers: Sequence[tuple[str, bytes | None]]) -> bool:
        """Return whether these headers meet the condition."""
        for name, wanted in self._wanted.items():
            found = header_value(headers, name)
            if found is None or (wanted is not None and found != wanted):
                return False
        return True


class KeySelection:
    """The keys among ``keys`` that begin with one of ``prefixes``; None stands for all keys."""

    def __init__(self, keys: frozenset[bytes] | None = None, prefixes: tuple[bytes, ...] | None = None) -> None:
        if keys is not None and prefixes is not None:
            keys, prefixes = frozenset(key for key in keys if key.startswith(prefixes)), None
        self._keys = keys
        self._prefixes = prefixes

    def __bool__(self) -> bool:
        """Return whether this selects fewer than all keys."""
        return self._keys is not None or self._prefixes is not None

    def __contains__(self, key: bytes | None) -> bool:
        if key is None:
            return False
        if self._keys is not None:
            return key in self._keys
        return self._prefixes is None or key.startswith(self._prefixes)

    def rows(self, keys: list[bytes | None]) -> list[int]:
        """Return the rows of these keys that are selected."""
        if self._keys is not None:
            wanted = self._keys
            return [row for row, key in enumerate(keys) if key in wanted]
        if self._prefixes is not None:
            prefixes = self._prefixes
            return [row for row, key in enumerate(keys) if key is not None and key.startswith(prefixes)]
        return list(range(len(keys)))
