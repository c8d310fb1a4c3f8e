"""The keys and values that a listener was given: which enter, change and leave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.reading.entries import Deleted
from lvq_kafka.reading.selection import Selection

__all__ = ["GivenKeys", "KnownValues"]


class GivenKeys:
    """The keys that a listener was given. Turns changes into its events.

    If only keys select, every change of a selected key is an event. If values do, a key without a selected value is an
    event only if the listener was given one (R24).
    """

    def __init__(self, *, by_value: bool) -> None:
        self._given: set[bytes] | None = set() if by_value else None

    @classmethod
    def of(cls, selection: Selection[Any]) -> GivenKeys:
        """Return the keys of a new listener: none."""
        return cls(by_value=bool(selection.conditions))

    def to_event(
        self, key: bytes, record: Record | None, matches: bool, cause: Cause | None
    ) -> Record | Deleted | None:
        """Return the event for a key, or None for no event; see `lvq_kafka.reading.watch.ToEvent`."""
        given = self._given
        if record is not None and matches:
            if given is not None:
                given.add(key)
            return record
        if given is not None and not self.forget(key):
            return None
        left = record is not None or cause == "deselected"
        return Deleted(key_text(key), left=left, expired=not left and cause == "expired")

    def remember(self, keys: Iterable[bytes]) -> None:
        """Consider these keys given. Only tracked if values select."""
        if self._given is not None:
            self._given.update(keys)

    def forget(self, key: bytes) -> bool:
        """Forget that a key was given; return whether it was. Only tracked if values select."""
        if not self._given or key not in self._given:
            return False
        self._given.remove(key)
        return True


class KnownValues:
    """The newest record of each key that a listener was given.

    Args:
        before: the records that it knew before the first one; None if there were none. The table is not copied.
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
