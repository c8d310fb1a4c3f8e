"""A stream of changes for one listener: a dump, its end, then updates, conflated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.aio import Share, in_thread
from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.keys import key_text
from lvq_kafka.core.records import Record
from lvq_kafka.core.validation import waiting
from lvq_kafka.core.value_store import ValueStore
from lvq_kafka.entries import Deleted, EndOfDump, Event, to_entry
from lvq_kafka.errors import Closed
from lvq_kafka.forking import Bound
from lvq_kafka.reading.follower import Follower, Subscription

__all__ = ["Watch"]

ToEvent = Callable[[bytes, Record | None], Record | Deleted | None]
"""Returns the event for a key with this record (None: deleted), or None for no event."""


class Watch(Bound, Generic[V]):
    """A stream of a queue's events.

    It yields `Entry` for a value, `Deleted` for a key that no longer has one, and `EndOfDump` once.

    Pending events are conflated: if a key changes ten times meanwhile, only its newest value is returned, once. So a
    slow listener needs memory for the number of keys, and never falls behind permanently (G3). If a key in the dump
    changes before its turn, its newest value is returned at its turn. The dump reflects the moment when its first event
    is requested.

    Iterate with ``for`` or ``async for``; `poll` waits with a limit. While events are ready, ``async for`` lets other
    tasks run every millisecond. Iteration ends when the watch, or the reader that it watches, is closed, and raises
    `ReaderFailed` if that reader has failed.

    An abandoned watch, after ``break`` or a cancelled task, ends with the last reference to it: nothing more is kept
    for it. To end it sooner, use `close`, ``with``, ``async with`` or `contextlib.aclosing`.
    """

    def __init__(
        self,
        follower: Follower,
        codec: Codec[V],
        *,
        dump: Callable[[ValueStore], Sequence[bytes]] | None = None,
        to_event: ToEvent | None = None,
        raw_on_error: bool = False,
    ) -> None:
        self._follower = follower
        self._topic = follower.topic
        self._codec = codec
        self._raw_on_error = raw_on_error
        self._to_event = _to_event if to_event is None else to_event
        self._closed = False
        self._dump = dump
        self._in_dump = dump is not None
        self._end_of_dump: EndOfDump | None = None
        self._given: set[bytes] = set()  # in a dump whose end is still unknown
        self._subscription = None if self._in_dump else follower.subscribe()
        self._share = Share()

    def subscribe(self) -> None:
        """Take the current keys for the dump, unless already done. Slow for very many keys."""
        self._subscribe()

    def _subscribe(self) -> Subscription:
        with self._follower.changed:  # dump and offsets reflect the same moment
            if self._subscription is None:
                self._subscription = self._follower.subscribe(self._dump)
                self._end_of_dump = self._cut() if self._follower.complete else None
            return self._subscription

    def _cut(self) -> EndOfDump:
        """Return the end of a dump of the current table."""
        follower = self._follower
        missing = follower.blocked if follower.caught_up else follower.shortfalls()
        return EndOfDump(dict(sorted(follower.table.progress.positions.items())), tuple(missing))

    def changed(self, keys: Sequence[bytes]) -> None:
        """Report these keys again, although the log has not changed. The lock is held."""
        subscription = self._subscribe()
        subscription.pending.changed(keys)
        self._follower.changed.notify_all()
        subscription.wake()

    def close(self) -> None:
        """End the stream; a waiting `poll` or iteration returns."""
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()

    async def aclose(self) -> None:
        """Like `close`, which does not block; this is for `contextlib.aclosing`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def poll(self, timeout: float | None = None) -> Event[V] | None:
        """Return the next event, or None after ``timeout`` seconds or if the stream has ended.

        Raises:
            DecodeError: the value cannot be decoded; the next call continues after it.
            ReaderFailed: there will be no more events.
        """
        found = self._poll(waiting(timeout))
        return None if found is None else self._decode(found)

    def _poll(self, timeout: float | None) -> Record | Deleted | EndOfDump | None:
        """Return the next undecoded event, or None as `poll` does."""
        with self._follower.lock:
            found = self._next()
            return self._wait(timeout) if found is None else found

    def _wait(self, timeout: float | None) -> Record | Deleted | EndOfDump | None:
        """Wait for the next undecoded event, since there is none yet. The lock is held."""
        deadline = None if timeout is None else time.monotonic() + timeout
        found = None
        while found is None and not self._ended():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._follower.changed.wait(left)
            found = self._next()
        return found

    def drain(self) -> list[Event[V]]:
        """Return all events that are ready."""
        events = []
        while (event := self.poll(0.0)) is not None:
            events.append(event)
        return events

    def _next(self) -> Record | Deleted | EndOfDump | None:
        """Return the next undecoded event, or None. The follower's lock is held."""
        table = self._follower.shown
        if table is None or self._closed:
            return None
        pending, to_event = (self._subscription or self._subscribe()).pending, self._to_event
        while True:
            if self._in_dump and not pending.in_dump:
                if self._end_of_dump is None and not pending and self._follower.complete:
                    self._end_of_dump = self._cut()
                if self._end_of_dump is not None:
                    self._in_dump = False
                    self._given.clear()
                    return self._end_of_dump
            key = pending.pop()
            if key is None:
                return None
            told = to_event(key, table.table.record(key))
            if told is None:
                continue
            if self._end_of_dump is not None:  # keys deleted by now are not part of the dump
                if not self._in_dump or isinstance(told, Record):
                    return told
            elif not self._in_dump or self._is_for_the_dump(key, told):
                return told

    def _is_for_the_dump(self, key: bytes, told: Record | Deleted) -> bool:
        """Return whether an event precedes an end of dump that is still unknown.

        Values do; deletions do only for keys that were returned.
        """
        if isinstance(told, Record):
            self._given.add(key)
            return True
        given = key in self._given
        self._given.discard(key)
        return given

    def _decode(self, found: Record | Deleted | EndOfDump) -> Event[V]:
        if isinstance(found, Record):
            return to_entry(found, self._topic, self._codec, raw_on_error=self._raw_on_error)
        return found

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
        found = self._poll(None)
        if found is None:
            raise StopIteration
        return self._decode(found)

    def __aiter__(self) -> AsyncIterator[Event[V]]:
        return self

    async def __anext__(self) -> Event[V]:
        if self._subscription is None and not self._closed:
            await in_thread(self.subscribe)
        if self._share.spent():
            await self._share.renew()
        with self._follower.lock:
            found = self._next()
        return self._decode(await self._wait_async() if found is None else found)

    async def _wait_async(self) -> Record | Deleted | EndOfDump:
        """Wait for the next undecoded event, since there is none yet."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is already closed: no one is waiting
                loop.call_soon_threadsafe(changed.set)

        wakers = [] if self._subscription is None else self._subscription.wakers
        with self._follower.changed:
            wakers.append(wake)
        try:
            while True:
                with self._follower.changed:
                    found = self._next()
                    if found is None and self._ended():
                        raise StopAsyncIteration
                if found is not None:
                    return found
                await changed.wait()
                changed.clear()
        finally:
            with self._follower.changed:
                wakers.remove(wake)


def _to_event(key: bytes, record: Record | None) -> Record | Deleted:
    return Deleted(key_text(key)) if record is None else record
