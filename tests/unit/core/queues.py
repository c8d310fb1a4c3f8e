"""A ledger with one partition, for tests in small steps."""

from __future__ import annotations

import copy
from itertools import count
from typing import Any

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.records import Record, RecordBatch
from tests.rules import new_ledger

__all__ = ["LedgerOfOne", "Queue", "facts"]


class LedgerOfOne:
    """A ledger with partition 0, as a base of queues that differ in how records are written.

    Args:
        loaded: the group's commit; the log begins at its base.
        target: the offset up to which the partition catches up.
        options: see `new_ledger`.
    """

    def __init__(self, loaded: CommitMap | None = None, *, target: int = 0, **options: Any) -> None:
        loaded = CommitMap(0) if loaded is None else loaded
        self.ledger = new_ledger(**options)
        self.ledger.assign(0, loaded, target)
        self.end = loaded.base
        """The offset of the next record."""

    def read(self, *records: Record) -> None:
        """Read records, the last of which ends the log."""
        self.ledger.add(RecordBatch.of(records))
        self.end = records[-1].offset + 1
        self.ledger.advance({0: self.end})

    def take(self, locked_until: float | None = None) -> Item:
        item = self.ledger.acquire(locked_until)
        assert item is not None
        return item

    def drain(self) -> list[str]:
        """Take and ack everything that comes."""
        taken = []
        while (item := self.ledger.acquire()) is not None:
            taken.append(item.value.decode())
            self.ledger.ack(item)
        return taken

    @property
    def waiting(self) -> list[str]:
        return [item.value.decode() for item in self.ledger._partitions[0].waiting.values()]

    @property
    def claim(self) -> CommitMap:
        return self.ledger.assignment.claim(0)

    @property
    def base(self) -> int:
        return self.ledger.assignment.base(0)

    @property
    def runs(self) -> tuple[int, ...]:
        return self.claim.runs


class Queue(LedgerOfOne):
    """A queue whose partition is caught up; values are text, and records get the next offset."""

    def __init__(self, *records: tuple[str, str | None], loaded: CommitMap | None = None, **options: Any) -> None:
        base = 0 if loaded is None else loaded.base
        super().__init__(loaded, target=base + len(records), **options)
        self.send(*records)

    def send(self, *records: tuple[str, str | None]) -> None:
        for key, value in records:
            self.ledger.offer(0, self.end, key.encode(), None if value is None else value.encode())
            self.end += 1
        self.ledger.advance({0: self.end})


def facts(ledger: Ledger) -> object:
    """Return everything that can be observed of a ledger, order included."""
    counts = (ledger._parts.slots, ledger.timers._heap._ticks)  # Python 3.14 and newer cannot copy them
    twin = copy.deepcopy(ledger, {id(own): count(1 << 32) for own in counts})
    seen = twin.assignment
    held = sorted((item.partition, item.offset, item.state, item.deliveries) for item in seen.held())
    claims = [seen.claim(partition) for partition in seen.positions]
    read = (seen.positions, seen.catching_up)
    numbers = (seen.available, seen.gated, twin.in_work, seen.outstanding)
    stats = copy.copy(twin.stats)
    upcoming = []
    twin.wake(1e9)
    while (item := twin.acquire()) is not None:
        upcoming.append((item.partition, item.offset, item.value, item.deliveries, item.redelivered))
    return (claims, read, numbers, held, stats, upcoming)
