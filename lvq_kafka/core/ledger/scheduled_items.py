"""The scheduled messages of a consumer, when they are due, and their places (R11)."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any

from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.expiry_queue import ExpiryQueue
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.core.waiting.pending import Deletion, Item

__all__ = ["ScheduledItems", "counts_since", "placed_items"]

_ALL = 1 << 62
_PARTITION, _OFFSET = 31, 63  # bits


def placed_items(kind: Callable[..., Item], due_times: DueTimes) -> Callable[..., Item]:
    """Return a function that makes an item, with its place, from the arguments of `Item`.

    The place is by the time from which the message counts, then by its position. So it does not depend on when a
    consumer reads the message, or finds that it is due.
    """
    due = copy(due_times).due  # a copy, since judges count unreadable times, and `due_times` counts these

    def placed(partition: int, offset: int, timestamp: int, *rest: Any, **named: Any) -> Item:
        item = kind(partition, offset, timestamp, *rest, **named)
        since = max(0, due(timestamp, item.headers))
        item.slot = (since << _PARTITION | partition) << _OFFSET | offset
        return item

    return placed


def counts_since(item: Item) -> int:
    """Return the time from which a message in its own place counts, in ms since the epoch."""
    return max(item.timestamp, item.slot >> _PARTITION + _OFFSET)


class ScheduledItems:
    """The messages of a ledger that are not due.

    Args:
        due_times: the judge of due times.
        time: the time by which messages are due.
    """

    def __init__(self, due_times: DueTimes, time: LogTime) -> None:
        self.due_times = due_times
        self._time = time
        self._due: dict[Item, int] = {}
        self._messages = 0  # of these; the others are deletes
        self._queue: ExpiryQueue[Item] = ExpiryQueue(self)

    def __len__(self) -> int:
        """Return the number of scheduled messages, without deletes."""
        return self._messages

    @property
    def next(self) -> float:
        """A time before which nothing is due, in ms; infinite if nothing is scheduled."""
        first = self._queue.next
        return math.inf if first is None else first

    def rows(self, batch: RecordBatch) -> list[tuple[int, int]]:
        """Return the rows of a batch that are not due, each with the time when it is."""
        now = self._time.now
        return [(row, due) for row, due in self.due_times.scheduled(batch.timestamps, batch.headers) if due > now]

    def add(self, item: Item, due: int) -> None:
        """Schedule a message or a delete."""
        self._due[item] = due
        self._messages += not isinstance(item, Deletion)
        self._queue.add(item, due)

    def drop(self, item: Item) -> None:
        """Forget a message that was superseded, withdrawn or lost."""
        del self._due[item]
        self._messages -= not isinstance(item, Deletion)
        self._queue.tidy(self._due.__len__)

    def pop_due(self) -> list[Item]:
        """Return the messages that are due.

        Each stays scheduled until it is dropped, since one of them may supersede another.
        """
        now = self._time.now
        return self._queue.pop_due(now + 1, _ALL) if self.next <= now else []

    def due(self, item: Item, bucket: int) -> int | None:
        """See `Schedule.due`."""
        return self._due.get(item)

    def moved(self, item: Item, bucket: int) -> None:
        """See `Schedule.moved`."""
