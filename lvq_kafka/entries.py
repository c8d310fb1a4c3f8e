"""What a reader gets: entries, and the events of a stream of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.keys import key_text
from lvq_kafka.core.progress import Shortfall
from lvq_kafka.core.quoting import abridged
from lvq_kafka.core.records import Headers, Position, Record, header_value

__all__ = ["Deleted", "EndOfDump", "Entry", "Event"]


@dataclass(frozen=True, slots=True, repr=False)
class Entry(Generic[V]):
    """The current value of a key."""

    key: str
    """The key as text. Bytes that are not UTF-8 are kept (surrogateescape): the text is good for any look-up."""
    value: V
    position: Position
    timestamp: float
    """Seconds since the epoch: when the broker appended it, or the producer's time where the topic is set so."""
    headers: Headers = ()
    """All headers in their order, names may repeat. Only ``lvq-unreadable`` where they cannot be read (R16)."""

    def header(self, name: str) -> str | None:
        """The text of the last header of that name, or None."""
        value = header_value(self.headers, name)
        return None if value is None else value.decode("utf-8", "replace")

    __repr__ = abridged


@dataclass(frozen=True, slots=True, repr=False)
class Deleted:
    """A key that had a value and has none now, as far as the reader that gives this can see.

    It was deleted, unless ``consumed`` or ``left`` is set.
    """

    key: str
    consumed: bool = False
    """A consumer of the queue has taken its value."""
    left: bool = False
    """It has a value that does not match the headers that the browser selects by. Only what was given can leave."""

    __repr__ = abridged


@dataclass(frozen=True, slots=True)
class EndOfDump:
    """The current values have all been given; updates follow.

    The dump is complete up to ``offsets``, the next offset of each partition. ``blocked`` names partitions where an
    open transaction hides what was written after it; empty means that nothing acknowledged before the open is missing.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    blocked: tuple[Shortfall, ...] = ()


_new_position = partial(tuple.__new__, Position)  # in half the time that its constructor takes

Event = Entry[V] | Deleted | EndOfDump
"""What a browser or a watch yields."""


def to_entry(record: Record, topic: str, codec: Codec[V], *, raw_on_error: bool = False) -> Entry[V]:
    """Decode a record that holds a value.

    Raises:
        DecodeError: the codec cannot read the value, and ``raw_on_error`` is not set.
    """
    partition, offset, timestamp, key, data, headers = record
    assert key is not None
    assert data is not None
    position = _new_position((topic, partition, offset))
    value = codec.decode_at(data, position, headers=headers, raw_on_error=raw_on_error)
    return Entry(key_text(key), value, position, timestamp / 1000, headers)
