"""The writes that a server has on their way, bounded in number and bytes."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["WritePlace", "WriteRoom"]


class WriteRoom:
    """Counts the writes on their way. It knows no clock, thread or socket.

    Args:
        most: how many there may be at once.
        most_bytes: how many bytes their values may have together.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._number = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._number

    @property
    def size(self) -> int:
        """The bytes that their values have, as far as these were read."""
        return self._bytes

    def enter(self) -> WritePlace:
        """Return a place for a write whose value has still to be read, so that it does not count."""
        return WritePlace(self)

    def add_write(self) -> None:
        """Count one more.

        Raises:
            HttpRefusal: there are too many.
        """
        if self._number >= self._most:
            raise self._full()
        self._number += 1

    def add_bytes(self, size: int) -> None:
        """Take room for bytes.

        Raises:
            HttpRefusal: there is too little.
        """
        if self._bytes + size > self._most_bytes:
            raise self._full()
        self._bytes += size

    def give_back(self, size: int, *, counted: bool) -> None:
        """Give back room for bytes, and for a write that was counted."""
        self._number -= counted
        self._bytes -= size

    def _full(self) -> HttpRefusal:
        return HttpRefusal(
            503,
            f"{self._number:,} writes are on their way here already. Nothing was written.",
            hint="Try again later.",
            headers=[("retry-after", "1")],
        )


class WritePlace:
    """The place of one write.

    It is held as long as its context lasts, or until a write that keeps it ends.
    """

    def __init__(self, room: WriteRoom) -> None:
        self._room = room
        self._bytes = 0
        self._kept = False
        self._over = False

    def add_bytes(self, size: int) -> None:
        """Take room for some more bytes of the value. Raises what `WriteRoom.add_bytes` raises."""
        self._room.add_bytes(size)
        self._bytes += size

    def keep(self) -> None:
        """Count the write, and keep its place until `leave`. Raises what `add_write` raises."""
        self._room.add_write()
        self._kept = True

    def leave(self) -> None:
        """Give all back. Does nothing the second time."""
        if not self._over:
            self._over = True
            self._room.give_back(self._bytes, counted=self._kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept:
            self.leave()
