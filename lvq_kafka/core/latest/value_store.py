"""The interface of a store of latest values, as far as readers need it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from lvq_kafka.core.latest.fold import Changes, ReaderStats
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import RecordBatch

__all__ = ["ValueStore"]


class ValueStore(Protocol):
    """A fold of a topic into a `NewestRecords`, up to a position in each partition.

    `LatestValues` implements it in memory; so do `SelectedValues`, which holds only some keys, and `ScheduledValues`,
    for queues with scheduled messages. Another store, such as one on disk, has to provide only these members. The
    reading thread (`lvq_kafka.reading.reader_thread`) chooses the store. One thread at a time uses a store; other
    threads may use copies of its table.
    """

    @property
    def stats(self) -> ReaderStats:
        """Counts since the store began."""

    @property
    def deselected(self) -> Collection[bytes]:
        """The keys whose values ceased to be selected in the last batch."""

    @property
    def overdue(self) -> Collection[bytes]:
        """The keys of scheduled records in the last batch that were due when they were read."""

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
