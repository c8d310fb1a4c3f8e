"""Events that are made once, although many streams send them."""

from __future__ import annotations

from collections.abc import Callable

from lvq_kafka.core.log.records import Record

__all__ = ["EventCache"]


class EventCache:
    """The events of the records that were asked for last.

    Streams that follow a queue send the same events at about the same time.

    Args:
        make: returns the event of a record, which depends on nothing else.
        most: the bytes of values and events that are kept.
    """

    def __init__(self, make: Callable[[Record], bytes], most: int = 1 << 22) -> None:
        self._make = make
        self._most = most
        self._kept: dict[tuple[int, int], tuple[Record, bytes]] = {}  # by partition and offset, the oldest first
        self._size = 0

    def event(self, record: Record) -> bytes:
        """Return the event of a record."""
        place = record[:2]
        kept = self._kept.get(place)
        if kept is not None and kept[0] == record:  # a re-created topic has others at the same positions
            return kept[1]
        event = self._make(record)
        self._drop(place)
        if _size(record, event) > self._most:
            return event
        self._kept[place] = record, event
        self._size += _size(record, event)
        while self._size > self._most:
            self._drop(next(iter(self._kept)))
        return event

    def _drop(self, place: tuple[int, int]) -> None:
        if place in self._kept:
            self._size -= _size(*self._kept.pop(place))

    def __len__(self) -> int:
        return len(self._kept)


def _size(record: Record, event: bytes) -> int:
    return len(record.value or b"") + len(event)
