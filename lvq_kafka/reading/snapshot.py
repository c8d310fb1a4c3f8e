"""Snapshots, and the decoded reads of the latest values that they share with views."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.latest.catch_up import ReaderStatus
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import Key, encode_key, key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import UnencodableKey
from lvq_kafka.reading.carried_values import CarriedValues, CutRows
from lvq_kafka.reading.entries import Entry, to_entry
from lvq_kafka.reading.listing import Listing
from lvq_kafka.reading.scan import KeyScan, key_bounds
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from lvq_kafka.tabular.arrow_rows import ArrowRows

__all__ = ["CurrentValues", "Snapshot"]


class TableSource(Protocol):
    """The source of the table of decoded reads."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock to hold from `current` to the last use of the table."""

    def current(self, key: bytes | None) -> NewestRecords:
        """Return the table to look up this key, if it is one.

        Raise if the table is no longer valid.
        """

    def current_whole(self) -> NewestRecords:
        """Return the table for anything else."""


class CurrentValues(CarriedValues, Mapping[str, V]):
    """Decoded reads of a table. Keys may be given as text, bytes, int or bool (R2)."""

    _source: TableSource
    _topic: str
    _codec: Codec[V]
    _raw_on_error: bool
    _iterated: Listing  # the order of iteration

    def _find(self, key: Key) -> Record:
        source, encoded = self._source, encode_key(key)
        with source.lock:
            record = source.current(encoded).record(encoded)
        if record is None:
            raise KeyError(key)
        return record

    def __getitem__(self, key: Key) -> V:
        """Return the current value of a key.

        Raises:
            KeyError: the key has no value.
            DecodeError: the codec cannot decode the value, and the policy is ``"raise"``.
        """
        partition, offset, _, _, data, headers = self._find(key)
        assert data is not None
        at = (self._topic, partition, offset)
        return self._codec.decode_at(data, at, headers=headers, raw_on_error=self._raw_on_error)

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a value; False for anything that cannot be a key."""
        source = self._source
        try:
            encoded = encode_key(key)
        except UnencodableKey:
            encoded = None
        with source.lock:
            table = source.current(encoded)
            return encoded is not None and encoded in table

    def __len__(self) -> int:
        with self._source.lock:
            return len(self._source.current_whole())

    def __iter__(self) -> Iterator[str]:
        """Iterate over the current keys, in queue order."""
        with self._source.lock:
            keys = self._iterated.keys(self._source.current_whole())
        return map(key_text, keys)

    def items(self) -> ItemsView[str, V]:
        """Return the keys and their values, in queue order.

        A value is the current one when it is reached. A key that has lost its value by then is left out.
        """
        return _ItemsLeft(self)

    def values(self) -> ValuesView[V]:
        """Return the values, in queue order; see `items`."""
        return _ValuesLeft(self)

    # Mappings that change over time are equal only if they are identical.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def entry(self, key: Key) -> Entry[V]:
        """Return the current value of a key with its position, time and headers.

        Raises:
            KeyError, DecodeError: as for ``view[key]``.
        """
        return to_entry(self._find(key), self._topic, self._codec, raw_on_error=self._raw_on_error)

    def entries(self) -> list[Entry[V]]:
        """Return all current entries, in queue order."""
        with self._source.lock:
            records = list(self._iterated.records(self._source.current_whole()))
        raw = self._raw_on_error
        return [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in records]

    def scan(self, *, prefix: Key | None = None, start: Key | None = None, stop: Key | None = None) -> KeyScan[V]:
        """Return the entries of a range of keys, in byte order of their keys.

        All are of one moment. Values are decoded when they are reached.

        Args:
            prefix: only keys that begin with this text.
            start: no key before this one.
            stop: only keys before this one.

        Raises:
            UnencodableKey: one of these cannot be a key, or a part of one.
        """
        low, high = key_bounds(prefix, start, stop)
        with self._source.lock:
            found = self._source.current_whole().scan(low, high)
        return KeyScan(found, self._topic, self._codec, raw_on_error=self._raw_on_error)


class _ItemsLeft(ItemsView[str, V]):
    """Items of a mapping that may lose keys while they are iterated over."""

    _mapping: Mapping[str, V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        found = self._mapping
        for key in found:
            try:
                value = found[key]
            except KeyError:
                continue
            yield key, value


class _ValuesLeft(ValuesView[V]):
    """Values of a mapping that may lose keys while they are iterated over."""

    _mapping: Mapping[str, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in _ItemsLeft(self._mapping))

    def __contains__(self, value: object) -> bool:
        return any(one is value or one == value for one in self)


class _Frozen:
    """A table that no one changes."""

    lock = nullcontext()

    def __init__(self, table: NewestRecords) -> None:
        self._table = table

    def current(self, key: bytes | None) -> NewestRecords:
        return self._table

    def current_whole(self) -> NewestRecords:
        return self._table


class Snapshot(CurrentValues[V]):
    """The current values at one moment, with their cut through the log (G8).

    It is in queue order, by rank if the queue is (R20).

    ``offsets`` holds the next offset of each partition: every record below it has been applied, and none at or above
    it. ``as_of`` is the time of the snapshot, in seconds since the epoch: values that had expired by then are missing,
    messages scheduled for a later time do not count, and neither changes later. ``topic_id`` distinguishes the topic
    from another one of the same name. ``status`` is that of the view just before, so the values are no older than it
    says; and ``complete`` whether these are all values of the cut. It is False only before the view is caught up for
    the first time.

    Reading the log up to these offsets, as of this time, yields the same rows, as long as the log holds them:
    compaction removes those superseded since, retention and DeleteRecords remove those below the log start offset.
    """

    def __init__(
        self,
        table: NewestRecords,
        offsets: Mapping[int, int],
        topic: str,
        topic_id: str,
        codec: Codec[V],
        *,
        raw_on_error: bool,
        listing: Listing,
        as_of: float,
        queue: str,
        status: ReaderStatus,
        complete: bool,
    ) -> None:
        self._source = _Frozen(table)
        self._topic = topic
        self._codec = codec
        self._raw_on_error = raw_on_error
        self._iterated = listing
        self.queue = queue
        self.status = status
        self.complete = complete
        self.topic = topic
        self.topic_id = topic_id
        self.offsets: dict[int, int] = dict(sorted(offsets.items()))
        self.as_of = as_of

    def iter_entries(self) -> Iterator[Entry[V]]:
        """Yield the entries of `entries` one by one.

        A million of them need no extra memory, unless they are ordered by rank.

        Raises:
            DecodeError: as for `entries`.
        """
        for record in self._iterated.records(self._source.current_whole()):
            yield to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error)

    @property
    def about(self) -> dict[str, Any]:
        """The cut and the state as JSON has them, which go along with the values (R49)."""
        return {
            "queue": self.queue,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "as_of": self.as_of,
            "state": self.status.state,
            "complete": self.complete,
            "lag": self.status.lag,
            "age": max(0.0, round(self.status.silence, 3)),
        }

    def _frozen(self) -> CutRows:
        return self

    def _first(self, most: int) -> Iterator[tuple[str, Any]]:
        for record in self._source.current_whole().scan(most=most).records():
            entry = to_entry(record, self._topic, self._codec, raw_on_error=True)
            yield entry.key, entry.value

    def _cut_rows(self, columns: Sequence[str] | None = None) -> ArrowRows[V]:
        return self._usual_rows if columns is None else self._rows(columns)

    @cached_property
    def _usual_rows(self) -> ArrowRows[V]:
        return self._rows(None)  # which remember their schema

    def _rows(self, columns: Sequence[str] | None) -> ArrowRows[V]:
        with needing("arrow", "A stream of Arrow"):
            from lvq_kafka.tabular.arrow_rows import ArrowRows
        table = self._source.current_whole()
        return ArrowRows(
            found=table.scan(),
            expiry=table.expiry,
            topic=self._topic,
            codec=self._codec,
            raw_on_error=self._raw_on_error,
            rules=self._iterated.rules,
            columns=columns,
            about=self.about,
        )

    def __repr__(self) -> str:
        return f"<Snapshot of {self.topic} at {self.offsets}: {len(self)} keys>"
