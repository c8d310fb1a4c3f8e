"""The keys and values that a listener was given: which enter, change and leave."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from secrets import token_bytes
from typing import Any

from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.reading.entries import Deleted
from lvq_kafka.reading.selection import Selection

__all__ = ["GivenKeys", "KnownValues", "ReturnedValues"]

_DIGEST = 16  # bytes


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


class ReturnedValues:
    """The value that a listener was returned last for each key (R42).

    It keeps short values, and digests of longer ones: some 150 bytes for each key that has a value. The digests have a
    secret key, so nobody can write two values that have the same one.

    Args:
        all_known: whether the listener has no values but those that it was returned.
    """

    def __init__(self, *, all_known: bool) -> None:
        self._all_known = all_known
        self._returned: dict[bytes, bytes | None] = {}  # None: something that equals no value
        self._digest = blake2b(digest_size=_DIGEST, key=token_bytes(_DIGEST))

    def changes(self, key: bytes, record: Record | None) -> bool:
        """Note the next event of a key, with its record or None.

        Return whether it changes what the listener has.
        """
        returned = self._returned
        if record is None:
            there = key in returned
            returned.pop(key, None)
            return there or not self._all_known
        value = record.value
        assert value is not None
        if len(value) >= _DIGEST:  # of this length, only digests
            digest = self._digest.copy()  # twice as fast as a new one
            digest.update(value)
            value = digest.digest()
        if returned.get(key) == value:
            return False
        returned[key] = value
        return True

    def spoil(self, key: bytes) -> None:
        """Note that a value could not be returned: whatever comes next changes something."""
        self._returned[key] = None
