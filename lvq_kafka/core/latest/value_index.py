"""An index in memory: the keys of a table in the order of something about their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lvq_kafka.core.latest.index_order import key_at
from lvq_kafka.core.latest.sorted_keys import SortedKeys

__all__ = ["ValueIndex"]


class ValueIndex:
    """The place of each key that has one, and all places in order (`OrderedPlaces`).

    The order is made when it is asked for. Not thread-safe.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, bytes] = {}
        self._sorted: SortedKeys | None = None
        self._moved: list[bytes] = []  # places that came or went since it was sorted

    def enter(self, places: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put keys at other places, or nowhere."""
        known, moved = self._places, self._moved
        for key, place in places:
            before = known.get(key)
            if place == before:
                continue
            if before is not None:
                moved.append(before)
            if place is None:
                del known[key]
            else:
                known[key] = place
                moved.append(place)
        if len(moved) > len(known) // 4 + 4096:
            self._sorted, self._moved = None, []

    def order(self) -> SortedKeys:
        """Return the places in order. It changes with the next use of this index."""
        line, moved, self._moved = self._sorted, self._moved, []
        if line is None:
            line = self._sorted = SortedKeys(self._places.values())
            return line
        for place in set(moved):
            if self._places.get(key_at(place)) == place:
                line.add(place)
            else:
                line.discard(place)
        return line

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """See `OrderedPlaces.walk`."""
        return self.order().walk(start, stop)

    def before(self, stop: bytes | None) -> bytes | None:
        """See `OrderedPlaces.before`."""
        return self.order().before(stop)
