"""A stream of changes for one listener: a dump, its end, then updates, conflated."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.latest.pending_keys import Cause, ConflatedKeys, Pace
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.validation import durations, waiting
from lvq_kafka.errors import Closed, DecodeError, LVQError
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry, Event, Replacement, to_entry
from lvq_kafka.reading.follower import BackgroundReader
from lvq_kafka.reading.given_values import GivenKeys, KnownValues, ReturnedValues
from lvq_kafka.reading.selection import Selection
from lvq_kafka.runtime.aio import Share, in_thread
from lvq_kafka.runtime.forking import Bound

__all__ = ["Watch"]

_SOME = 1024  # keys without an event that are passed over at once, which takes 1 to 3 ms
_OVERHEAD = 200  # bytes of an event beside its key and value, as JSON with a position and a time

ToEvent = Callable[[bytes, Record | None, bool, Cause | None], Record | Deleted | None]
"""Returns the event for a key, or None for no event.

Called with the key, its record (None: there is no value), whether the record is selected, and why there is none.
"""

ChangedSince = Callable[[EndOfDump, NewestRecords], Mapping[bytes, Cause | None]]
"""Returns the keys that have changed up to a cut, and why those without a value have none.

Called with the cut and its values.
"""


def _size(event: Record | Deleted) -> int:
    """Return the bytes that an event takes, about."""
    if isinstance(event, Record):
        headers = sum(len(name) + len(value or b"") for name, value in event.headers)
        return len(event.key or b"") + len(event.value or b"") + headers + _OVERHEAD
    return len(event.key) + _OVERHEAD


@lru_cache(maxsize=64)  # watches that follow one reader ask for the same
def _token(queue: str, topic_id: str, as_of: float, offsets: tuple[tuple[int, int], ...]) -> str:
    return PageToken(queue, topic_id, as_of, dict(offsets), b"", None).text


class Watch(Bound, Generic[V]):
    """A stream of a queue's events.

    It yields `Entry` for a value, `Deleted` for a key that no longer has one, and `EndOfDump` once.

    Pending events are conflated: if a key changes ten times meanwhile, only its newest value is returned, once. So a
    slow listener needs memory for the number of keys, and never falls behind permanently (G3). If a key in the dump
    changes before its turn, its newest value is returned at its turn. The dump reflects the moment when its first event
    is requested.

    With ``every`` seconds, events are returned in batches, at most one in each such period, the first one at once. A
    batch has the keys that changed since the last one, in the order of their last change, with their newest values. A
    dump is a batch. `drain` returns the rest of a batch, however long ago it began.

    With ``previous``, an `Entry` or `Deleted` has the value that it replaces: the last one that this watch returned for
    its key. Before the watch has returned one, it is the value at the moment when the watch was made, if that is
    selected; with a dump, there is none. It needs memory for the values of all these keys.

    With ``changed``, a value is no event if its bytes are those of the value that this watch returned last for its key
    (R42). Headers, times and positions do not count. It needs some 150 bytes for each key that the watch has returned.

    Iterate with ``for`` or ``async for``; `poll` waits with a limit. While events are ready, ``async for`` lets other
    tasks run every millisecond. Iteration ends when the watch, or the reader that it watches, is closed, and raises
    `ReaderFailed` if that reader has failed.

    An abandoned watch, after ``break`` or a cancelled task, ends with the last reference to it: nothing more is kept
    for it. To end it sooner, use `close`, ``with``, ``async with`` or `contextlib.aclosing`.
    """

    def __init__(
        self,
        follower: BackgroundReader,
        codec: Codec[V],
        *,
        selection: Selection[V],
        dump: Callable[[NewestRecords], Sequence[bytes]] | None = None,
        to_event: ToEvent | None = None,
        previous: bool = False,
        changed: bool = False,
        every: float | None = None,
        raw_on_error: bool = False,
        queue: str = "",
    ) -> None:
        if every is not None:
            durations("Leave it out for events as they come.", every=every)
        self._follower = follower  # it is closed when no one refers to it
        self._shared = follower.shared
        self._topic = follower.topic
        self._codec = codec
        self._raw_on_error = raw_on_error
        self._selection = selection
        self._selects = selection.keys.__contains__ if selection.keys else None
        self._matches = selection.matches if selection.conditions else None
        self._given_keys = GivenKeys.of(selection)
        self._to_event = to_event or self._given_keys.to_event
        self._closed = False
        self._dump = dump
        self._in_dump = dump is not None
        self._end_of_dump: EndOfDump | None = None
        self._given: set[bytes] = set()  # in a dump whose end is still unknown
        self._resumed = False
        self._pending: ConflatedKeys | None = None
        self._queue = queue
        self._passed: EndOfDump | None = None  # up to which everything has been returned
        self._reached: EndOfDump | None = None  # what is returned once the present line is
        self._worded: tuple[EndOfDump | None, str] = (None, "")
        self._lines = 0
        self._in_batch = False  # of which the last call has returned something
        self._pace = None if every is None else Pace(every, self._shared.clock)
        self._previous = previous
        self._known: KnownValues | None = None
        self._returned = ReturnedValues(all_known=self._in_dump) if changed else None
        self._looking = False  # for an event, among keys that have none
        self._idle = 0  # keys without an event that were passed over since the caller last paused
        self._share = Share()
        if not self._in_dump:
            self.subscribe()

    def subscribe(self) -> None:
        """Fix the current keys for the dump, unless already done. Slow for very many keys."""
        with self._shared.lock:
            self._subscribe()

    def _subscribe(self) -> ConflatedKeys:
        """Return the pending keys. The lock is held, so dump and offsets reflect the same moment."""
        if self._pending is None:
            catch_up = self._shared.catch_up
            self._shared.pass_all_time()
            dump = () if self._dump is None else self._dump(catch_up.values.table)
            self._pending = ConflatedKeys(dump, self._selects, batches=self._pace is not None)
            if self._previous:
                self._known = KnownValues(None if self._in_dump else catch_up.values.table.copy())
            if self._pace is not None and self._in_dump:
                self._pace.begin()
            self._shared.notifier.subscribe(self._pending)
            if not self._in_dump:
                self._passed = self._reached = self._shared.point
            elif catch_up.replay.complete:
                self._end_of_dump = self._cut()
        return self._pending

    def _cut(self) -> EndOfDump:
        """Return the end of a dump of the current table."""
        catch_up = self._shared.catch_up
        replay = catch_up.replay
        missing = replay.hidden if replay.caught_up else replay.shortfalls(replay.targets)
        offsets = dict(sorted(catch_up.values.progress.positions.items()))
        return EndOfDump(offsets, tuple(missing), self._shared.as_of, catch_up.topic_id)

    def resume(self, point: EndOfDump, changed_since: ChangedSince) -> None:
        """Begin with the keys that have changed since an earlier watch, and `EndOfDump`.

        Args:
            point: where that watch had got to.
            changed_since: returns the keys that have changed up to a cut.
        """
        shared = self._shared
        with shared.lock:
            pending = self._subscribe()
            shared.pass_all_time()
            end, table = self._cut(), shared.catch_up.values.table.copy()
        changed = changed_since(end, table)
        if self._selects is not None:
            changed = {key: cause for key, cause in changed.items() if self._selects(key)}
        self._given_keys.remember(changed)
        if self._matches is not None:  # all that an earlier watch may have returned can leave
            matches = self._matches
            self._given_keys.remember(r.key for r in table.records("in-place") if r.key is not None and matches(r))
        if self._known is not None:
            self._known.forget(changed)
        with shared.lock:
            pending.precede(changed)
            self._in_dump = self._resumed = True
            self._end_of_dump = end
            self._passed = self._reached = point
            if self._pace is not None:
                self._pace.begin()

    @property
    def token(self) -> str | None:
        """The text from which another watch goes on (R34, R44).

        Give it as ``since``, in this process or another. That watch returns all that this one had not returned when the
        token was taken. Some of what it had returned may come again. None before the end of a dump.
        """
        with self._shared.lock:
            point = self._passed
        if point is None:
            return None
        known, text = self._worded
        if known is not point:  # many events have one point, and a server asks after each
            text = _token(self._queue, point.topic_id, point.as_of, tuple(point.offsets.items()))
            self._worded = point, text
        return text

    def report(self, keys: Sequence[bytes]) -> None:
        """Report these keys again, although the log has not changed. The lock is held."""
        self._subscribe().changed(keys)
        self._shared.notifier.notify(everybody=True)

    def close(self) -> None:
        """End the stream; a waiting `poll` or iteration returns."""
        self._closed = True
        with self._shared.lock:
            if self._pending is not None:
                self._shared.notifier.unsubscribe(self._pending)
                self._pending = ConflatedKeys()
                self._shared.notifier.notify(everybody=True)

    @property
    def unjudged(self) -> int:
        """The number of values that ``where`` or ``selector`` could not judge: not selected (R31)."""
        return self._selection.unjudged

    @property
    def selection_failure(self) -> LVQError | None:
        """The first error of ``where``, a `PredicateFailed`, or None."""
        return self._selection.failure

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

    def _poll(self, timeout: float | None, *, begins: bool = True) -> Record | Deleted | EndOfDump | None:
        """Return the next undecoded event, or None as `poll` does.

        Args:
            timeout: the seconds to wait.
            begins: whether it may be the first one of a batch.
        """
        with self._shared.lock:
            found = self._next(begins=begins)
            if found is None:
                found = self._wait(timeout, begins=begins)
            self._in_batch = found is not None
            return found

    def _wait(self, timeout: float | None, *, begins: bool) -> Record | Deleted | EndOfDump | None:
        """Wait for the next undecoded event, since there is none yet. The lock is held."""
        deadline = None if timeout is None else time.monotonic() + timeout
        found = None
        while found is None and not self._ended():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0 and not self._looking:
                return None
            self._shared.notifier.changed.wait(self._until_batch(left))
            found = self._next(begins=begins)
        return found

    def _until_batch(self, left: float | None) -> float | None:
        """Return the seconds to wait for a change, or for the time of a batch. The lock is held."""
        if self._looking:
            return 0.0
        catch_up = self._shared.catch_up
        if catch_up.values is not catch_up.replay.values:
            return left  # there are no events before the new read is complete, which wakes us
        if self._pace is None or self._pending is None or not self._pending.at_pause:
            return left
        return self._pace.left if left is None else min(left, self._pace.left)

    def drain(self) -> list[Event[V]]:
        """Return all events that are ready.

        In batches, it returns what is left of the one that was begun, or else the next one, if it is due.
        """
        events: list[Event[V]] = []
        while (found := self._poll(0.0, begins=not self._in_batch)) is not None:
            events.append(self._decode(found))
        return events

    async def _part(self, size: int, timeout: float | None = None) -> list[Record | Deleted | EndOfDump]:
        """Wait for an event; return it and those that are ready, undecoded.

        This is for servers, which send many events to many clients: it takes the lock once. A part ends with the end of
        the dump, whose point is the first that a client can go on from (`token`). Events have no ``previous``.

        Args:
            size: the bytes of all events together, about.
            timeout: the seconds to wait; then the part is empty.

        Raises:
            Closed: the watch, or the reader that it watches, is closed.
            ReaderFailed: there will be no more events.
        """
        if self._pending is None and not self._closed:
            await in_thread(self.subscribe)
        if self._share.spent():
            await self._share.renew()
        with self._shared.lock:
            found = self._ready(size)
        return found or await self._wait_async(size, timeout)

    async def _wait_async(self, size: int, timeout: float | None) -> list[Record | Deleted | EndOfDump]:
        """Wait for the next undecoded events, since there are none yet."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._shared.notifier.woken() as alarm:
            while True:
                with self._shared.lock:
                    alarm.rearm()
                    if found := self._ready(size):
                        return found
                    if self._ended():
                        raise Closed(f"The watch of {self._topic} is closed.")
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0 and not self._looking:
                        return []
                    alarm.patient = self._until_batch(None) is not None
                    pause = self._until_batch(left)
                await alarm.wait_for(pause)

    def _ready(self, size: int) -> list[Record | Deleted | EndOfDump]:
        """Return the undecoded events that are ready. The lock is held."""
        found: list[Record | Deleted | EndOfDump] = []
        while size > 0 and (event := self._next()) is not None:
            found.append(event)
            if isinstance(event, EndOfDump):
                break
            size -= _size(event)
            if size > 0 and self._matches is None:
                size = self._drain_line(found, size)
        return found

    def _drain_line(self, found: list[Record | Deleted | EndOfDump], size: int) -> int:
        """Take events of the present line, and return the size that is left.

        The lock is held, so nothing of what `_next` looks at changes meanwhile.
        """
        pending, record_of = self._pending, self._shared.catch_up.values.table.record
        assert pending is not None
        for key in pending.line():
            record = record_of(key)
            cause = pending.pop_cause(key) if record is None else None
            event = self._to_event(key, record, True, cause)
            if event is not None and self._is_news(key, event):
                found.append(event)
                size -= _size(event)
            else:
                self._idle += 1
            if size <= 0 or self._idle >= _SOME:
                break
        return size

    def _next(self, *, begins: bool = True) -> Record | Deleted | EndOfDump | None:
        """Return the next undecoded event, or None; ``begins`` as for `_poll`. The lock is held.

        Keys that have no event are passed over, only some at a time: others need the lock. ``_looking`` is true
        if there are more.
        """
        catch_up = self._shared.catch_up
        if self._shared.timed:
            self._shared.pass_time()
        self._looking = False
        while True:
            values = catch_up.values
            if values is not catch_up.replay.values or self._closed:
                return None  # no events while a new read is incomplete
            pending = self._subscribe() if self._pending is None else self._pending
            if self._in_dump and not pending.in_dump:
                if self._end_of_dump is None and not pending and catch_up.replay.complete:
                    self._shared.pass_all_time()
                    if pending:
                        continue
                    self._end_of_dump = self._cut()
                if self._end_of_dump is not None:
                    self._in_dump = False
                    self._given.clear()
                    self._passed = self._reached = self._end_of_dump
                    return self._end_of_dump
            if self._pace is not None and pending.at_pause and not (begins and self._pace.begin()):
                return None
            key = pending.pop()
            if key is None:
                if self._shared.timed and self._shared.pass_time():
                    continue
                if not self._in_dump:
                    self._passed = self._reached = self._shared.point
                return None
            if pending.lines != self._lines:
                self._lines = pending.lines
                self._passed, self._reached = self._reached, self._shared.point
            record = values.table.record(key)
            cause = pending.pop_cause(key) if record is None else None
            matches = self._matches is None or record is None or self._judge(record)
            event = self._to_event(key, record, matches, cause)
            if event is not None and self._is_news(key, event):
                return event
            self._idle += 1
            if self._idle >= _SOME:
                self._idle, self._looking = 0, True
                return None

    def _judge(self, record: Record) -> bool:
        """Judge a record, without the lock: this may take long, and call other code."""
        assert self._matches is not None
        self._shared.lock.release()
        try:
            return self._matches(record)
        finally:
            self._shared.lock.acquire()

    def _is_news(self, key: bytes, event: Record | Deleted) -> bool:
        """Return whether to return an event, which counts as returned then."""
        if self._in_dump and not self._is_for_the_dump(key, event):
            return False
        return self._returned is None or self._returned.changes(key, event if isinstance(event, Record) else None)

    def _is_for_the_dump(self, key: bytes, event: Record | Deleted) -> bool:
        """Return whether an event precedes the end of the dump.

        Values do. Deletions do only while the end of the dump is unknown, for keys that were returned.
        """
        if self._resumed:
            return True
        if isinstance(event, Record):
            if self._end_of_dump is None:
                self._given.add(key)
            return True
        given = key in self._given
        self._given.discard(key)
        return given

    def _decode(self, found: Record | Deleted | EndOfDump) -> Event[V]:
        if self._known is not None and not isinstance(found, EndOfDump):
            return self._decode_with_previous(found, self._known)
        if isinstance(found, Record):
            return self._returned_entry(found)
        return found

    def _entry(self, record: Record) -> Entry[V]:
        return to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error)

    def _returned_entry(self, record: Record) -> Entry[V]:
        try:
            return self._entry(record)
        except DecodeError:
            if self._returned is not None and record.key is not None:
                with self._shared.lock:
                    self._returned.spoil(record.key)
            raise

    def _decode_with_previous(self, found: Record | Deleted, known: KnownValues) -> Event[V]:
        if isinstance(found, Deleted):
            return replace(found, previous=self._old(*known.replace(encode_key(found.key), None)))
        assert found.key is not None
        previous = self._old(*known.replace(found.key, found))
        entry = self._returned_entry(found)
        return Replacement(entry.key, entry.value, entry.position, entry.timestamp, entry.headers, previous)

    def _old(self, record: Record | None, given: bool) -> Entry[V] | None:
        """Return the entry of an old record, if that was selected and can be decoded."""
        if record is None or not (given or self._matches is None or self._matches(record)):
            return None
        try:
            return self._entry(record)
        except DecodeError:
            return None

    def _ended(self) -> bool:
        if self._closed:
            return True
        try:
            self._shared.catch_up.check()
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
        try:
            [event] = await self._part(1)
        except Closed:
            raise StopAsyncIteration from None
        self._in_batch = True
        return self._decode(event)
