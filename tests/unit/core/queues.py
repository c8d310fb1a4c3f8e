"""A ledger with one partition, for tests in small steps."""

from __future__ import annotations

import copy
from itertools import count
from typing import Any

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from tests.rules import new_ledger

__all__ = ["Queue", "facts"]


class Queue:
    """A ledger whose partition 0 is caught up; records get the next offset, and values are text.

    Args:
        loaded: the group's commit; the log begins at its base.
        options: see `new_ledger`.
    """

    def __init__(
        self,
        *records: tuple[str, str | None],
        loaded: CommitMap | None = None,
        **options: Any,
    ) -> None:
        loaded = CommitMap(0) if loaded is None else loaded
        self.ledger = new_ledger(**options)
        self.ledger.assign(0, loaded, loaded.base + len(records))
        self.next = loaded.base
        self.send(*records)

    def send(self, *records: tuple[str, str | None]) -> None:
        for key, value in records:
            self.ledger.offer(0, self.next, key.encode(), None if value is None else value.encode())
            self.next += 1
        self.ledger.advance({0: self.next})

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
    def base(self) -> int:
        return self.ledger.assignment.base(0)

    @property
    def runs(self) -> tuple[int, ...]:
        return self.ledger.assignment.claim(0).runs


def facts(ledger: Ledger) -> object:
    """Return everything that can be observed of a ledger, order included."""
    counts = (ledger._parts.slots, ledger._timers._heap._ticks)  # Python 3.14 and newer cannot copy them
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
