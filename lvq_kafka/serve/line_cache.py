"""Lines that are made once, although many streams send them."""

from __future__ import annotations

from collections.abc import Callable

from lvq_kafka.core.facts import Position
from lvq_kafka.reading.entries import Entry

__all__ = ["LineCache"]


class LineCache:
    """The lines of the entries that were asked for last.

    Streams that follow a queue send the same entries at about the same time.

    Args:
        make: returns the line of an entry, which depends on nothing else.
        most: the bytes of values and lines that are kept.
    """

    def __init__(self, make: Callable[[Entry[bytes]], bytes], most: int = 1 << 22) -> None:
        self._make = make
        self._most = most
        self._kept: dict[Position, tuple[Entry[bytes], bytes]] = {}  # the oldest first
        self._size = 0

    def line(self, entry: Entry[bytes]) -> bytes:
        """Return the line of an entry."""
        kept = self._kept.get(entry.position)
        if kept is not None and kept[0] == entry:  # a re-created topic has others at the same positions
            return kept[1]
        line = self._make(entry)
        self._drop(entry.position)
        self._kept[entry.position] = entry, line
        self._size += len(entry.value) + len(line)
        while self._size > self._most:
            self._drop(next(iter(self._kept)))
        return line

    def _drop(self, position: Position) -> None:
        if position in self._kept:
            entry, line = self._kept.pop(position)
            self._size -= len(entry.value) + len(line)

    def __len__(self) -> int:
        return len(self._kept)
