"""A line of records in offset order, which are removed from its front."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

__all__ = ["OffsetLine"]

T = TypeVar("T")

_SPARE = 32  # places of removed records, in addition to one for each record


class OffsetLine(Generic[T]):
    """The records of one key, such as its scheduled ones. It begins with one record.

    Removing takes constant time, however many records stay: a list would move all of them each time.

    Args:
        first: the first record.
        offset: returns the offset of a record.
    """

    __slots__ = ("_offset", "_records", "_start")

    def __init__(self, first: T, offset: Callable[[T], int]) -> None:
        self._offset = offset
        self._records: list[T | None] = [first]  # None in the places of removed records
        self._start = 0

    def __len__(self) -> int:
        return len(self._records) - self._start

    def __iter__(self) -> Iterator[T]:
        return islice(self._records, self._start, None)  # type: ignore[arg-type]  # all are records

    @property
    def first(self) -> T:
        """The record of the lowest offset. There must be one."""
        return self._records[self._start]  # type: ignore[return-value]  # it is a record

    def append(self, record: T) -> None:
        """Add a record, whose offset is above all others."""
        self._records.append(record)

    def pop_below(self, offset: int) -> list[T]:
        """Remove and return the records below an offset."""
        records, start = self._records, self._start
        end = bisect_left(records, offset, lo=start, key=self._offset)  # type: ignore[arg-type]  # all are records
        gone = records[start:end]
        self._leave(end)
        return gone  # type: ignore[return-value]  # all are records

    def remove(self, record: T) -> None:
        """Remove a record. That takes longer if it is not the first."""
        if record is self.first:
            self._leave(self._start + 1)
        else:
            self._records.remove(record)

    def _leave(self, start: int) -> None:
        records = self._records
        if start > len(records) - start + _SPARE:
            del records[:start]
            start = 0
        else:
            records[self._start : start] = [None] * (start - self._start)
        self._start = start
