"""Decoded reads of the latest values: what a view and a snapshot have in common, and the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.core.fold import Order
from lvq_kafka.core.keys import Key, encode_key, key_text
from lvq_kafka.core.value_store import ValueStore
from lvq_kafka.entries import Entry, to_entry
from lvq_kafka.errors import UnencodableKey

__all__ = ["CurrentValues", "Snapshot"]


class CurrentValues(Mapping[str, V]):
    """Decoded reads of a table. Keys may be asked for as text, bytes, int or bool (R2)."""

    _topic: str
    _codec: Codec[V]
    _undecodable: Undecodable
    _order: Order

    def _locked(self) -> AbstractContextManager[ValueStore]:
        raise NotImplementedError

    def __getitem__(self, key: Key) -> V:
        """The current value of a key.

        Raises:
            KeyError: it has none.
            DecodeError: its codec cannot read it, and the policy is ``"raise"``.
        """
        return self.entry(key).value

    def __contains__(self, key: object) -> bool:
        """Whether a key has a value; what can be no key has none."""
        with self._locked() as table:
            try:
                return encode_key(key) in table
            except UnencodableKey:
                return False

    def __len__(self) -> int:
        with self._locked() as table:
            return len(table)

    def __iter__(self) -> Iterator[str]:
        """The keys of now, in queue order."""
        with self._locked() as table:
            keys = table.keys(self._order)
        return map(key_text, keys)

    # Two mappings of a moving thing are the same only if they are one.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def entry(self, key: Key) -> Entry[V]:
        """The current value of a key with its position, time and headers.

        Raises:
            KeyError, DecodeError: as for ``view[key]``.
        """
        with self._locked() as table:
            record = table.record(encode_key(key))
        if record is None:
            raise KeyError(key)
        return to_entry(record, self._topic, self._codec, raw_on_error=self._undecodable == "raw")

    def entries(self) -> list[Entry[V]]:
        """All entries of now, in queue order."""
        with self._locked() as table:
            records = list(table.records(self._order))
        raw = self._undecodable == "raw"
        return [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in records]

    def prefix(self, start: Key) -> list[Entry[V]]:
        """The entries whose key begins with ``start``, in byte order of their keys."""
        low = encode_key(start)
        return self._range(low, _after_prefix(low))

    def range(self, start: Key = b"", stop: Key | None = None) -> list[Entry[V]]:
        """The entries from the key ``start`` up to, but without, ``stop``, in byte order of their keys."""
        return self._range(encode_key(start), None if stop is None else encode_key(stop))

    def _range(self, start: bytes, stop: bytes | None) -> list[Entry[V]]:
        with self._locked() as table:
            records = [table.record(key) for key in table.key_range(start, stop)]
        raw = self._undecodable == "raw"
        return [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in records if record]


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with the prefix; None when there is no such bound."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


class Snapshot(CurrentValues[V]):
    """The current values of one moment, with the cut through the log that they are (G8).

    ``offsets`` holds the next offset of each partition: every record below it has been folded in, and none at or
    above it. ``topic_id`` tells that topic from another one of the same name.

    Whoever reads the log to these offsets finds the same rows, as long as the log holds them: compaction takes those
    that were superseded since, retention and DeleteRecords those that lie below the start of the log.
    """

    def __init__(
        self, table: ValueStore, topic: str, topic_id: str, codec: Codec[V], undecodable: Undecodable, order: Order
    ) -> None:
        self._table = table
        self._topic = topic
        self._codec = codec
        self._undecodable = undecodable
        self._order = order
        self.topic = topic
        self.topic_id = topic_id
        self.offsets: dict[int, int] = dict(sorted(table.positions.items()))

    def _locked(self) -> AbstractContextManager[ValueStore]:
        return nullcontext(self._table)

    def iter_entries(self) -> Iterator[Entry[V]]:
        """As `entries`, but each is made when its turn comes: a million of them take no room.

        Raises:
            DecodeError: as `entries`.
        """
        raw = self._undecodable == "raw"
        for record in self._table.records(self._order):
            yield to_entry(record, self._topic, self._codec, raw_on_error=raw)

    def __repr__(self) -> str:
        return f"<Snapshot of {self.topic} at {self.offsets}: {len(self)} keys>"
