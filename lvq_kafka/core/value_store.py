"""What readers ask of the store of a topic's latest values, whichever it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, Self

from lvq_kafka.core.columns import Order
from lvq_kafka.core.fold import ReaderStats
from lvq_kafka.core.records import Record, RecordBatch

__all__ = ["ValueStore"]


class ValueStore(Protocol):
    """The newest record of each key of a topic, and the position in each partition up to which that holds.

    `LatestValues` is the one there is, in memory. Another, which keeps values on disk, say, has to hold no more than
    this, and is chosen where the reading thread begins (`lvq_kafka.reading.reader_thread`). A store is used by one
    thread at a time, and its copies by others.
    """

    partitions: int
    """The topic's partition count."""
    positions: dict[int, int]
    """The next offset of each partition: all below has been applied."""
    stats: ReaderStats

    def __len__(self) -> int: ...

    def __contains__(self, key: bytes) -> bool: ...

    def value(self, key: bytes) -> bytes | None:
        """The current value of a key, or None when it has none."""

    def record(self, key: bytes) -> Record | None:
        """The newest record of a key, or None when it has no value."""

    def keys(self, order: Order = "tail") -> Sequence[bytes]:
        """All keys in queue order (R4), as they are now: what is applied later does not change what was given."""

    def records(self, order: Order = "tail") -> Iterator[Record]:
        """The newest record of every key, in queue order."""

    def key_range(self, start: bytes = b"", stop: bytes | None = None) -> list[bytes]:
        """The keys from ``start`` up to but without ``stop``, in byte order."""

    @property
    def split_keys(self) -> list[bytes]:
        """Keys that lie in more than one partition right now (R14)."""

    def copy(self) -> Self:
        """What is held now, whatever is applied later."""

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fold a batch in, and return the keys it touched."""

    def advance(self, positions: Mapping[int, int]) -> None:
        """Move positions past what holds no record."""

    def grow(self, partitions: int) -> list[bytes]:
        """The topic has more partitions now. Returns the keys whose current value changed."""
