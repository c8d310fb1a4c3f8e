"""A stream of changes for one listener: current values, the end of the dump, then updates, conflated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.keys import key_text
from lvq_kafka.core.records import Record
from lvq_kafka.core.store import Store
from lvq_kafka.entries import Deleted, EndOfDump, Entry, Event, to_entry
from lvq_kafka.errors import Closed
from lvq_kafka.reading.follower import Follower

__all__ = ["Watch"]

Tell = Callable[[bytes, Record | None], Record | Deleted | None]
"""What a listener is told of a key with this record (None: deleted); None for nothing."""


class Watch(Generic[V]):
    """Events of a queue: `Entry` for a value, `Deleted` for a key that has none any more, `EndOfDump` once.

    What it has not yet given is conflated: of a key that changes ten times meanwhile the newest value comes, once, so a
    slow listener costs memory by the number of keys and never falls behind for good (G3). A key in its dump that
    changes before its turn is given its newest value at its turn.

    An iterator for ``for`` and for ``async for`` alike; `take` waits with a limit. It ends when it, or what it watches,
    is closed, and raises `ReaderFailed` when that has failed.
    """

    def __init__(
        self,
        follower: Follower,
        codec: Codec[V],
        *,
        dump: Callable[[Store], Sequence[bytes]] | None = None,
        tell: Tell | None = None,
        raw_on_error: bool = False,
    ) -> None:
        self._follower = follower
        self._codec = codec
        self._raw_on_error = raw_on_error
        self._tell = _tell_all if tell is None else tell
        self._closed = False
        self._in_dump = dump is not None
        with follower.changed:  # dump and offsets are of one moment
            self._subscription = follower.subscribe(dump)
            self._end_of_dump = self._cut() if follower.complete else None

    def _cut(self) -> EndOfDump:
        """The end of a dump of now."""
        follower = self._follower
        missing = follower.blocked if follower.caught_up else follower.shortfalls()
        return EndOfDump(dict(sorted(follower.table.positions.items())), tuple(missing))

    def changed(self, keys: Iterable[bytes]) -> None:
        """There is something new to tell of these keys, though the log has not changed. The lock is held."""
        self._subscription.pending.changed(keys)
        self._follower.changed.notify_all()
        for wake in list(self._subscription.wakers):
            wake()

    def close(self) -> None:
        """End the stream; a waiting `take` or iteration returns."""
        self._closed = True
        self._subscription.close()
        for wake in list(self._subscription.wakers):
            wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, timeout: float | None = None) -> Event[V] | None:
        """The next event, or None when none came within ``timeout`` seconds or the stream has ended.

        Raises:
            DecodeError: the value cannot be read; the next call goes on behind it.
            ReaderFailed: nothing more will come.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        changed = self._follower.changed
        while True:
            with changed:
                found = self._next()
                while found is None:
                    if self._ended():
                        return None
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    changed.wait(left)
                    found = self._next()
            return self._decode(found)

    def drain(self) -> list[Event[V]]:
        """All that is at hand now."""
        events = []
        while (event := self.take(0.0)) is not None:
            events.append(event)
        return events

    def _next(self) -> Record | Deleted | EndOfDump | None:
        """The next undecoded event. The follower's lock is held."""
        if self._closed or self._follower.starting_over:
            return None
        pending, table = self._subscription.pending, self._follower.table
        while True:
            if self._in_dump and not pending.in_dump:
                if self._end_of_dump is None and not pending and self._follower.complete:
                    self._end_of_dump = self._cut()
                if self._end_of_dump is not None:
                    self._in_dump = False
                    return self._end_of_dump
            key = pending.take()
            if key is None:
                return None
            told = self._tell(key, table.record(key))
            if isinstance(told, Record) or (told is not None and not self._in_dump):
                return told

    def _decode(self, found: Record | Deleted | EndOfDump) -> Event[V]:
        if not isinstance(found, Record):
            return found
        entry: Entry[V] = to_entry(found, self._follower.topic, self._codec, raw_on_error=self._raw_on_error)
        return entry

    def _ended(self) -> bool:
        if self._closed:
            return True
        try:
            self._follower.check()
        except Closed:
            return True
        return False

    def __iter__(self) -> Iterator[Event[V]]:
        return self

    def __next__(self) -> Event[V]:
        event = self.take()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> AsyncIterator[Event[V]]:
        return self

    async def __anext__(self) -> Event[V]:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed already: nobody waits any more
                loop.call_soon_threadsafe(changed.set)

        with self._follower.changed:
            self._subscription.wakers.append(wake)
        try:
            while True:
                with self._follower.changed:
                    found = self._next()
                    if found is None and self._ended():
                        raise StopAsyncIteration
                if found is not None:
                    return self._decode(found)
                await changed.wait()
                changed.clear()
        finally:
            with self._follower.changed:
                self._subscription.wakers.remove(wake)


def _tell_all(key: bytes, record: Record | None) -> Record | Deleted:
    return Deleted(key_text(key)) if record is None else record
