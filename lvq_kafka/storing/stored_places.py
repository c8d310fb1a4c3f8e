"""The indexes in a file, for reading (R45)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, cast

from lvq_kafka.core.latest.index_order import key_at
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.records import Headers, Record
from lvq_kafka.storing.record_format import INDEX, STEM, in_key_order, place_bounds, place_in
from lvq_kafka.storing.value_file import PLACES, Pages

if TYPE_CHECKING:
    import lmdb

__all__ = ["INDEXES", "IndexedRange", "NotedIndex", "StoredPlaces", "indexes_noted", "note_of", "parse_indexes"]

INDEXES = "indexes"
"""The name of the note that says which indexes a file has."""


@dataclass(slots=True)
class NotedIndex:
    """An index in a file."""

    name: str
    number: int
    """The number that its places begin with."""
    said: Mapping[str, str]
    """See `IndexRule.said`. Empty once the index is being removed: it is not kept any more."""
    built: str | None
    """The packed key up to which it was built, in hexadecimal digits; None once it is complete.

    Keys that change are entered anyway.
    """

    @property
    def complete(self) -> bool:
        """True if it has all keys of the file."""
        return self.built is None


def parse_indexes(note: bytes | None) -> list[NotedIndex]:
    """Return the indexes of a note, with those that are being removed."""
    return [] if note is None else [NotedIndex(**said) for said in json.loads(note)]


def indexes_noted(pages: Pages) -> dict[str, NotedIndex]:
    """Return the indexes of a file, by name."""
    return {noted.name: noted for noted in parse_indexes(pages.noted(INDEXES)) if noted.said}


def note_of(indexes: Iterable[NotedIndex]) -> bytes:
    """Return what `parse_indexes` parses."""
    return json.dumps([asdict(noted) for noted in indexes], separators=(",", ":")).encode()


class StoredPlaces:
    """`OrderedPlaces` of an index in a file, or a cut of it."""

    def __init__(self, pages: Pages, number: int) -> None:
        self._pages = pages
        self._number = number

    def _cursor(self) -> lmdb.Cursor[memoryview]:
        return self._pages.txn.cursor(self._pages.file.tables[PLACES])

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """See `OrderedPlaces.walk`."""
        return map(itemgetter(0), in_key_order(self._found(start, stop)))

    def _found(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bool, None]]:
        low, high = place_bounds(self._number, start, stop)
        cursor = self._cursor()
        if not cursor.set_range(low):
            return
        for packed, data in cursor:
            if bytes(packed) >= high:
                return
            place, long = place_in(packed, data)
            if start <= place and (stop is None or place < stop):
                yield place, long, None

    def before(self, stop: bytes | None) -> bytes | None:
        """See `OrderedPlaces.before`."""
        low, high = place_bounds(self._number, b"", stop)
        cursor = self._cursor()
        there = cursor.prev() if cursor.set_range(high) else cursor.last()
        best, begin = None, b""  # of the long places that begin alike
        while there and bytes(cursor.key()[: INDEX.size]) == low:
            place, long = place_in(*cursor.item())
            if best is not None and not (long and place.startswith(begin)):
                return best
            if stop is None or place < stop:
                if not long:
                    return place
                best, begin = max(best or place, place), place[:STEM]
            there = cursor.prev()
        return best


class IndexedRange:
    """`KeyRange` of the places of an index."""

    def __init__(self, table: NewestRecords, select: Callable[[], Iterator[bytes]], most: int | None) -> None:
        self._table = table
        self._select = select
        self._most = most

    def __len__(self) -> int:
        return sum(1 for _ in self.records())

    def records(self) -> Iterator[Record]:
        """See `KeyRange.records`. Records that have expired since are left out."""
        found = map(self._table.record, map(key_at, self._select()))
        return islice(filter(None, found), self._most)

    def keys(self) -> Iterator[bytes]:
        """See `KeyRange.keys`."""
        return cast("Iterator[bytes]", map(attrgetter("key"), self.records()))

    def headers(self) -> Iterator[tuple[bytes, Headers]]:
        """See `KeyRange.headers`."""
        return cast("Iterator[tuple[bytes, Headers]]", map(attrgetter("key", "headers"), self.records()))
