"""A disk for the pages of ledgers, in memory, which can be full or damaged."""

from __future__ import annotations

from pathlib import Path

from lvq_kafka.errors import PageUnreadable

__all__ = ["Pages"]


class _Page:
    """A page that leaves the disk when nothing refers to it."""

    def __init__(self, pages: Pages, number: int, length: int) -> None:
        self._pages = pages
        self._number = number
        self.length = length

    def read(self) -> bytes:
        if self._pages.damaged:
            raise PageUnreadable("The value cannot be read back.", path=Path("/"))
        return self._pages.stored[self._number]

    def __del__(self) -> None:
        del self._pages.stored[self._number]


class Pages:
    """See `lvq_kafka.core.ledger.paging.PageStore`."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        self.full = False
        self.damaged = False
        self.written = 0

    @property
    def live(self) -> list[bytes]:
        """Return the values on disk, in the order of writing."""
        return list(self.stored.values())

    def write(self, value: bytes) -> _Page | None:
        if self.full:
            return None
        self.written += 1
        self.stored[self.written] = value
        return _Page(self, self.written, len(value))
