"""The entries that readers return, and the events of their streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.facts import Position, Shortfall
from lvq_kafka.core.log.keys import encode_key, key_text
from lvq_kafka.core.log.records import Headers, Record, header_value
from lvq_kafka.core.text.quoting import abridged

__all__ = ["Deleted", "EndOfDump", "Entry", "Event", "Replacement"]


@dataclass(frozen=True, slots=True, repr=False)
class Entry(Generic[V]):
    """The current value of a key."""

    key: str
    """The key as text, usable for any lookup: non-UTF-8 bytes are kept (surrogateescape)."""
    value: V
    position: Position
    timestamp: float
    """Seconds since the epoch.

    The broker's append time, or the producer's time if the topic is configured so.
    """
    headers: Headers = ()
    """All headers in order; names may repeat.

    If they cannot be read, only ``lvq-unreadable`` (R16).
    """

    @property
    def previous(self) -> Entry[V] | None:
        """The value that this one replaces, from a watch with ``previous=True``.

        None if there was none, if it cannot be decoded, or without that option.
        """
        return None

    def header(self, name: str) -> str | None:
        """Return the text of the last header with that name, or None."""
        value = header_value(self.headers, name)
        return None if value is None else value.decode("utf-8", "replace")

    __repr__ = abridged


@dataclass(frozen=True, slots=True, repr=False)
class Replacement(Entry[V], Generic[V]):
    """An entry with its ``previous`` one, for which a plain entry has no room."""

    previous: Entry[V] | None = None

    __repr__ = abridged


@dataclass(frozen=True, slots=True, repr=False)
class Deleted:
    """A key that had a value and, as far as its reader can see, has none now.

    It was deleted, unless ``consumed``, ``left`` or ``expired`` is set.
    """

    key: str
    consumed: bool = False
    """True if a consumer of the queue has consumed its value."""
    left: bool = False
    """True if its newest value is not selected. Only keys that were selected can leave."""
    expired: bool = False
    """True if its newest value has expired (R10)."""
    previous: Entry[Any] | None = None
    """The value that is gone, from a watch with ``previous=True``; see `Entry`."""

    __repr__ = abridged


@dataclass(frozen=True, slots=True)
class EndOfDump:
    """The current values have all been returned; updates follow.

    The dump is complete up to ``offsets``, the next offset of each partition. ``blocked`` names the partitions where an
    open transaction hides later records; if it is empty, nothing acknowledged before the open is missing. ``as_of`` is
    the time of the dump, in seconds since the epoch: values that had expired by then are not in it.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    blocked: tuple[Shortfall, ...] = ()
    as_of: float = field(default=0.0, compare=False)
    topic_id: str = field(default="", compare=False)
    """Distinguishes the topic from another one of the same name."""


_new_position = partial(tuple.__new__, Position)  # twice as fast as the constructor

Event = Entry[V] | Deleted | EndOfDump
"""An event from a browser or a watch."""


def to_entry(record: Record, topic: str, codec: Codec[V], *, raw_on_error: bool = False) -> Entry[V]:
    """Decode a record that holds a value.

    Raises:
        DecodeError: the codec cannot decode the value, and ``raw_on_error`` is not set.
    """
    partition, offset, timestamp, key, data, headers = record
    assert key is not None
    assert data is not None
    position = _new_position((topic, partition, offset))
    value = codec.decode_at(data, position, headers=headers, raw_on_error=raw_on_error)
    return Entry(key_text(key), value, position, timestamp / 1000, headers)


def to_record(entry: Entry[bytes]) -> Record:
    """Return the record of an entry whose value is not decoded."""
    _, partition, offset = entry.position
    at = round(entry.timestamp * 1000)
    return Record(partition, offset, at, encode_key(entry.key), entry.value, entry.headers)
