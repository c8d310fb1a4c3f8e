"""The values that a listener knows, to be reported beside those that replace them."""

from __future__ import annotations

from collections.abc import Iterable

from lvq_kafka.core.latest.value_store import NewestRecords
from lvq_kafka.core.log.records import Record

__all__ = ["KnownValues"]


class KnownValues:
    """The newest record of each key that a listener was given.

    Args:
        before: what it knew before the first one; None if nothing. It is not copied.
    """

    def __init__(self, before: NewestRecords | None) -> None:
        self._before = before
        self._given: dict[bytes, Record | None] = {}

    def forget(self, keys: Iterable[bytes]) -> None:
        """Forget the values of these keys."""
        self._given.update(dict.fromkeys(keys))

    def replace(self, key: bytes, record: Record | None) -> tuple[Record | None, bool]:
        """Note a key's new record, or None; return the old one, and whether it was given."""
        given, before = self._given, self._before
        there = key in given
        old = given[key] if there else None if before is None else before.record(key)
        if record is not None or (before is not None and key in before):
            given[key] = record
        elif there:
            del given[key]
        return old, there
