"""The interfaces of a store of latest values, as far as readers need them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, Self

from lvq_kafka.core.latest.fold import Changes, ReaderStats
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.ranking import Order

__all__ = ["NewestRecords", "ValueStore"]


class NewestRecords(Protocol):
    """The newest record of each key of a topic, for reading.

    `ColumnTable`, in memory, is the only implementation.
    """

    partitions: int
    """The topic's partition count."""

    def __len__(self) -> int: ...

    def __contains__(self, key: bytes) -> bool: ...

    def value(self, key: bytes) -> bytes | None:
        """Return the current value of a key, or None if it has none."""

    def record(self, key: bytes) -> Record | None:
        """Return the newest record of a key, or None if it has no value."""

    def keys(self, order: Order = "tail") -> Sequence[bytes]:
        """Return all keys in queue order (R4). Records applied later do not change the result."""

    def headers(self, keys: Sequence[bytes]) -> Iterator[Headers]:
        """Yield the headers of the newest record of each of these keys. All must have one."""

    def newest(self, keys: Sequence[bytes]) -> RecordBatch:
        """Return the newest records of these keys, without headers. Skips keys without a value.

        If values expire, call `ValueStore.pass_time` first.
        """

    def records(self, order: Order = "tail") -> Iterator[Record]:
        """Yield the newest record of every key, in queue order."""

    def key_range(self, start: bytes = b"", stop: bytes | None = None) -> list[bytes]:
        """Return the keys from ``start`` up to but not including ``stop``, in byte order."""

    def copy(self) -> Self:
        """Return a copy that records applied later do not change."""


class ValueStore(Protocol):
    """A fold of a topic into a `NewestRecords`, up to a position in each partition.

    `LatestValues` implements it in memory; so do `SelectedValues`, which holds only some keys, and `ScheduledValues`,
    for queues with scheduled messages. Another store, such as one on disk, has to provide only these members. The
    reading thread (`lvq_kafka.reading.reader_thread`) chooses the store. One thread at a time uses a store; other
    threads may use copies of its table.
    """

    stats: ReaderStats

    @property
    def deselected(self) -> Collection[bytes]:
        """The keys whose values ceased to be selected in the last batch."""

    @property
    def needs_reread(self) -> bool:
        """True if the topic must be read again, because a forgotten record may matter."""

    @property
    def table(self) -> NewestRecords:
        """The records."""

    @property
    def progress(self) -> Progress:
        """The next offset of each partition: everything below has been applied."""

    @property
    def split_keys(self) -> list[bytes]:
        """Keys that currently have records in more than one partition (R14)."""

    def apply(self, batch: RecordBatch) -> list[bytes]:
        """Fold in a batch, and return the keys it touched, but not those in ``deselected``."""

    def pass_time(self, now: int, first: bytes | None = None) -> Changes | None:
        """Apply some of the values that are due by now, in ms, and remove some that have expired.

        Call again until it returns None: then the table is current as of this time. Before that, only look-ups of the
        key ``first`` are current.
        """

    def grow(self, partitions: int) -> list[bytes]:
        """Raise the partition count. Returns the keys whose current value changed."""

    def forget_returned(self, keys: Iterable[bytes]) -> None:
        """Drop messages of a standard queue that were returned: no newer one replaces them."""
