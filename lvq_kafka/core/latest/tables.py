"""The interfaces of what a fold keeps its records in: in memory, or in a file.

A fold holds the rules: which record is the newest, what a delete removes, when a value counts. It keeps in these
tables whatever grows with the number of keys, so that a store on disk has the same rules without stating them again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from lvq_kafka.core.latest.columns import Columns
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.timing.expiry_times import ExpiryTimes

__all__ = [
    "Contests",
    "ExpiringRecords",
    "KeyRange",
    "NewestRecords",
    "RecordsAside",
    "SetAside",
    "Slot",
    "Table",
    "Tables",
]

Slot = Any
"""Where a table keeps the record of a key, as the table itself denotes it. It is valid until the table changes."""

Contests = MutableMapping[bytes, dict[int, Record]]
"""The newest record in each partition, of keys that have, or may get, records in several (R14).

A dict that was looked up is the caller's own: a change of it counts once it is assigned.
"""


class KeyRange(Protocol):
    """The newest records of a range of keys at one moment, in byte order of keys.

    Nothing is read before it is asked for, and each use of it reads again.
    """

    def __len__(self) -> int: ...

    def keys(self) -> Iterator[bytes]:
        """Yield the keys."""

    def records(self) -> Iterator[Record]:
        """Yield the records."""

    def headers(self) -> Iterator[tuple[bytes, Headers]]:
        """Yield the keys with the headers of their records."""


class NewestRecords(Protocol):
    """The newest record of each key of a topic, for reading."""

    partitions: int
    """The topic's partition count."""

    def __len__(self) -> int: ...

    def __contains__(self, key: bytes) -> bool: ...

    def value(self, key: bytes) -> bytes | None:
        """Return the current value of a key, or None if it has none."""

    def record(self, key: bytes) -> Record | None:
        """Return the newest record of a key, or None if it has no value."""

    def expiry(self, key: bytes) -> int:
        """Return the last moment at which a key's value counts, in ms; `NEVER` without one."""

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

    def key_range(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> list[bytes]:
        """Return the keys from ``start`` up to but not including ``stop``.

        They are in byte order, and at most ``most``.
        """

    def scan(self, start: bytes = b"", stop: bytes | None = None, most: int | None = None) -> KeyRange:
        """Return the records of such keys as they are now.

        Records applied later do not change it. If values expire, call `ValueStore.pass_time` first.
        """

    def changed_since(self, offsets: Mapping[int, int], moment: int | None) -> Mapping[bytes, Cause | None] | None:
        """Return the keys that have changed since a point (R44).

        The value is why a key has lost its value; None if it was deleted, or has one. Those without a value are first.
        Returns None if that is not known.

        Args:
            offsets: the next offset of each partition, at the point.
            moment: its time, in ms; None if messages neither expire nor are scheduled.
        """

    def copy(self) -> Self:
        """Return a copy that records applied later do not change."""


class Table(NewestRecords, Protocol):
    """One record per key, written by a fold, which decides which one is the newest."""

    key_header: str | None

    @property
    def index(self) -> Container[bytes]:
        """The keys in the table, those included whose value has expired and was not removed yet."""

    def grow(self, partitions: int) -> None:
        """Raise the partition count, on which the tail order depends."""

    def lacks(self, keys: Iterable[bytes | None]) -> bool:
        """Return whether none of these keys is in the table."""

    def slot(self, key: bytes) -> Slot | None:
        """Return the slot of a key; None if it is not in the table."""

    def slots(self, keys: Sequence[bytes]) -> list[Slot | None]:
        """Return the slots of these keys; None for a key that is not in the table."""

    def all_slots(self, keys: Sequence[bytes]) -> Sequence[Slot] | None:
        """Return the slots of these keys if all have one, else None."""

    def position(self, slot: Slot) -> tuple[int, int]:
        """Return the partition and the offset of the record in a slot."""

    def outside(self, partition: int, keys: Iterable[bytes], met: Iterable[Slot | None]) -> Iterable[bytes]:
        """Return those of these keys whose record is outside a partition, given their `slots`."""

    def relocated(self, slot: Slot, partition: int) -> Slot:
        """Return the slot of a key whose next record is of this partition, to be written at once."""

    def lie_in(self, partition: int, slots: Sequence[Slot]) -> bool:
        """Return whether the records in these slots all belong to that partition."""

    def append_new(self, partition: int, columns: Columns) -> bool:
        """Add records if their keys are distinct and all new, else do nothing.

        Returns whether the records were added.
        """

    def put(self, partition: int, columns: Columns, met: list[Slot | None]) -> int:
        """Add records, and return how many of them replace one.

        New keys must be distinct. The other keys must be in the table with records of the same partition.

        Args:
            met: the `slots` of the keys.
        """

    def overwrite(self, slots: Sequence[Slot], columns: Columns) -> None:
        """Write newer records into the existing slots of their keys.

        Of records of one key, the last one counts.
        """

    def remove(self, keys: Iterable[bytes]) -> int:
        """Remove keys; return how many were in the table."""


class ExpiringRecords(Table, Protocol):
    """A table whose records expire (R10).

    A look-up of one key judges by the time `now`, so it is right at any moment. All other methods include an expired
    record until `pop_expired` has returned its key and the owner has removed it.
    """

    now: int
    """The time, in ms since the epoch."""
    expiry_times: ExpiryTimes
    """The judge of when messages expire."""

    @property
    def next_expiry(self) -> int:
        """A time up to which nothing more expires; `NEVER` if nothing does."""

    def pop_expired(self, most: int) -> list[bytes]:
        """Return at most ``most`` keys whose records have expired by now, each once."""

    def expired_record(self, key: bytes) -> Record:
        """Return the record of a key in the table, although it has expired."""


class SetAside(NamedTuple):
    """A record that does not count yet, and the key that was chosen for it."""

    due: int
    """The first moment at which it counts, in ms since the epoch."""
    key: bytes
    record: Record


class RecordsAside(Protocol):
    """The records of a log that are not due yet, in a line for each partition and key (R11).

    Records leave a line only from its front.
    """

    def __len__(self) -> int:
        """Return the number of records that are set aside."""

    @property
    def next_due(self) -> int:
        """A time before which nothing is due; `NEVER` if nothing is set aside."""

    def add(self, one: SetAside) -> None:
        """Set a record aside. Its offset is higher than those of all before it in its partition."""

    def among(self, partition: int, keys: Iterable[bytes | None]) -> Collection[bytes | None]:
        """Return those of these keys that have records set aside in a partition."""

    def pop_due(self, now: int, most: int) -> list[SetAside]:
        """Return at most ``most`` records that are due by now, each once.

        The caller takes them by `pop_up_to`.
        """

    def due_of(self, key: bytes, now: int) -> list[SetAside]:
        """Return the records of a key that are due by now. They stay."""

    def pop_up_to(self, partition: int, key: bytes, offset: int) -> list[SetAside]:
        """Remove and return the records of a line up to this offset, in order."""


class Tables(Protocol):
    """Makes what a fold keeps its records in."""

    def table(self, partitions: int, key_header: str | None) -> Table:
        """Return a table of records that never expire."""

    def expiring(self, partitions: int, key_header: str | None, expiry_times: ExpiryTimes) -> ExpiringRecords:
        """Return a table of records that expire."""

    def contests(self, key_header: str | None) -> Contests:
        """Return the contests of keys that have records in several partitions."""

    def aside(self) -> RecordsAside:
        """Return the records that are not due yet."""
