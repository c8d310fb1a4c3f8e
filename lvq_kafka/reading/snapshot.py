"""Snapshots, and the decoded reads of the latest values that they share with views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.core.fold import Order
from lvq_kafka.core.keys import Key, encode_key, key_text
from lvq_kafka.core.value_store import NewestRecords
from lvq_kafka.entries import Entry, to_entry
from lvq_kafka.errors import UnencodableKey

__all__ = ["CurrentValues", "Snapshot"]


class CurrentValues(Mapping[str, V]):
    """Decoded reads of a table. Keys may be given as text, bytes, int or bool (R2)."""

    _topic: str
    _codec: Codec[V]
    _undecodable: Undecodable
    _order: Order

    def _locked(self) -> AbstractContextManager[NewestRecords]:
        raise NotImplementedError

    def __getitem__(self, key: Key) -> V:
        """Return the current value of a key.

        Raises:
            KeyError: the key has no value.
            DecodeError: the codec cannot decode the value, and the policy is ``"raise"``.
        """
        return self.entry(key).value

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value; False for anything that cannot be a key."""
        with self._locked() as table:
            try:
                return encode_key(key) in table
            except UnencodableKey:
                return False

    def __len__(self) -> int:
        with self._locked() as table:
            return len(table)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the current keys, in queue order."""
        with self._locked() as table:
            keys = table.keys(self._order)
        return map(key_text, keys)

    # Mappings that change over time are equal only if they are identical.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def entry(self, key: Key) -> Entry[V]:
        """Return the current value of a key with its position, time and headers.

        Raises:
            KeyError, DecodeError: as for ``view[key]``.
        """
        with self._locked() as table:
            record = table.record(encode_key(key))
        if record is None:
            raise KeyError(key)
        return to_entry(record, self._topic, self._codec, raw_on_error=self._undecodable == "raw")

    def entries(self) -> list[Entry[V]]:
        """Return all current entries, in queue order."""
        with self._locked() as table:
            records = list(table.records(self._order))
        raw = self._undecodable == "raw"
        return [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in records]

    def prefix(self, start: Key) -> list[Entry[V]]:
        """Return the entries whose key begins with ``start``, in byte order of their keys."""
        low = encode_key(start)
        return self._range(low, _after_prefix(low))

    def range(self, start: Key = b"", stop: Key | None = None) -> list[Entry[V]]:
        """Return the entries from ``start`` up to, but excluding, ``stop``, in byte order of keys."""
        return self._range(encode_key(start), None if stop is None else encode_key(stop))

    def _range(self, start: bytes, stop: bytes | None) -> list[Entry[V]]:
        with self._locked() as table:
            records = [table.record(key) for key in table.key_range(start, stop)]
        raw = self._undecodable == "raw"
        return [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in records if record]


def _after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with the prefix; None if there is no such bound."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class Snapshot(CurrentValues[V]):
    """The current values at one moment, with their cut through the log (G8).

    ``offsets`` holds the next offset of each partition: every record below it has been applied, and none at or above
    it. ``topic_id`` distinguishes the topic from another one of the same name.

    Reading the log up to these offsets yields the same rows, as long as the log holds them: compaction removes those
    superseded since, retention and DeleteRecords remove those below the log start offset.
    """

    def __init__(
        self,
        table: NewestRecords,
        offsets: Mapping[int, int],
        topic: str,
        topic_id: str,
        codec: Codec[V],
        undecodable: Undecodable,
        order: Order,
    ) -> None:
        self._table = table
        self._topic = topic
        self._codec = codec
        self._undecodable = undecodable
        self._order = order
        self.topic = topic
        self.topic_id = topic_id
        self.offsets: dict[int, int] = dict(sorted(offsets.items()))

    def _locked(self) -> AbstractContextManager[NewestRecords]:
        return nullcontext(self._table)

    def iter_entries(self) -> Iterator[Entry[V]]:
        """Yield the entries of `entries` one by one: a million of them need no extra memory.

        Raises:
            DecodeError: as for `entries`.
        """
        raw = self._undecodable == "raw"
        for record in self._table.records(self._order):
            yield to_entry(record, self._topic, self._codec, raw_on_error=raw)

    def __repr__(self) -> str:
        return f"<Snapshot of {self.topic} at {self.offsets}: {len(self)} keys>"
