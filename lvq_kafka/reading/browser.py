"""The non-destructive reader: a dump of the current values, its end, then updates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Event as Flag
from threading import Thread
from typing import Generic, Self

from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.keys import Key, encode_key, key_text
from lvq_kafka.core.records import Record, header_value
from lvq_kafka.core.store import Store
from lvq_kafka.entries import Deleted, EndOfDump, Event
from lvq_kafka.errors import ConfigError, QueueNotDeclared, TopicRecreated, TransportError, Unauthorized
from lvq_kafka.managing.damage import examine
from lvq_kafka.ports import Log
from lvq_kafka.reading.readers import Reader
from lvq_kafka.reading.watch import Watch

__all__ = ["Browser"]


class Browser(Reader[V], Generic[V]):
    """Reads a queue without taking anything (G6).

    Iterating gives the current values, newest per key, in queue order; then `EndOfDump`, once, also for an empty queue;
    then updates as they come: `Entry` for a value, `Deleted` for a key that has none any more. It is one stream with no
    gap (G4), conflated where the reader is slow (G3). Any number of browsers read a queue independently.

    The dump ends without waiting for transactions that are still open; `EndOfDump.blocked` names the partitions where
    one hides what was written after it, and what it hides follows as updates.

    ::

        with queue.browser() as browser:
            for event in browser: ...

    Args:
        log: where the queue lies.
        definition: the queue.
        codec: how values are read.
        dump: False for updates only.
        replay_period: give only values that arrived in the last so many seconds, counted once, when the browser is
            opened; updates always come (R15).
        keys: only these keys.
        headers: only values whose last header of each of these names has this value; None for any value.
        group: hide what this consumer group has consumed.
        refresh: seconds between looks at what the group has consumed; also done when the browser is opened. A value
            that was given and is consumed later comes as `Deleted`, with ``consumed`` set.
        follow: False ends the iteration at the end of the dump.
        undecodable: see `Undecodable`.
        catch_up_timeout: seconds that opening may take; None for ever.
        metadata_interval: seconds between looks at the topic (new partitions, re-creation, end of the log).
    """

    def __init__(
        self,
        log: Log,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        dump: bool = True,
        replay_period: float | None = None,
        keys: Iterable[Key] | None = None,
        headers: Mapping[str, Key | None] | None = None,
        group: str | None = None,
        refresh: float = 1.0,
        follow: bool = True,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
    ) -> None:
        if isinstance(keys, str | bytes):
            raise ConfigError(f"keys={keys!r} is one key, not several.", options=["keys"], hint="Put it into a list.")
        if replay_period and not dump:
            raise ConfigError(
                f"dump=False leaves out what replay_period={replay_period!r} is about.",
                options=["dump", "replay_period"],
                hint="Give one of them.",
            )
        super().__init__(
            log,
            definition,
            codec,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
            since=self._start_positions,
        )
        self._horizon = _horizon(replay_period)
        self._dump = dump and replay_period != 0
        self._keys = None if keys is None else frozenset(map(encode_key, keys))
        self._headers = {name: None if value is None else encode_key(value) for name, value in (headers or {}).items()}
        self._queue = definition.name
        self._group = group
        self._refresh = _positive("refresh", refresh)
        self._follow = follow
        self._done: dict[int, CommitMap] = {}  # by partition, what the group has consumed
        self._given: dict[bytes, Record] = {}  # what was given and was not consumed as far as is known
        self._looks = 0  # that have ended
        self._as_of = 0.0
        self._opened_at: dict[int, int] = {}
        self._shown: set[bytes] = set()
        self._over = False
        self._stop = Flag()
        self._watch: Watch[V] | None = None

    def _start_positions(self, log: Log, topic: str) -> dict[int, int]:
        """Where to begin: behind what cannot be in the dump, and not behind what an open transaction hides yet."""
        bases = {partition: done.base for partition, done in self._done.items()}
        if self._dump and self._horizon is None:
            return bases
        visible = log.end_offsets(topic, stable=True)
        if not self._dump or self._horizon is None:
            return visible
        recent = log.offsets_at(topic, self._horizon)
        return {p: min(max(offset, bases.get(p, 0)), visible.get(p, 0)) for p, offset in recent.items()}

    # ---------------------------------------------------------------- life

    def start(self) -> Self:
        """Begin to read, without waiting. See ``state`` and ``progress``; `open`, or the first event, waits.

        Raises:
            TopicNotFound: there is no such topic.
            QueueNotDeclared, TopicRecreated: what was consumed is not known any more (R17).
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._group is not None and self._watch is None:
            try:
                self._check_group()
                self._look_at_group()
            except (QueueNotDeclared, TopicRecreated, Unauthorized) as error:
                error.add_note("A browser with hide_consumed=False does not ask for what was consumed.")
                raise
        return super().start()

    def _wait_open(self) -> None:
        if self._watch is not None:
            return
        self._follower.wait_caught_up(self._catch_up_timeout, or_blocked=True)
        if self._group is not None:
            self._look_at_group()  # what was consumed while the dump was read
        with self._follower.locked() as table:
            self._opened_at = dict(table.positions)
        self._watch = Watch(
            self._follower,
            self._codec,
            dump=self._dump_keys,
            tell=self._tell,
            raw_on_error=self._undecodable == "raw",
        )
        if self._group is not None:
            Thread(target=self._keep_looking, name=f"lvq-browse-{self._topic}", daemon=True).start()

    def close(self) -> None:
        """Stop reading; an iteration ends."""
        self._stop.set()
        if self._watch is not None:
            self._watch.close()
        super().close()

    # ---------------------------------------------------------------- what concerns this browser

    def _dump_keys(self, table: Store) -> list[bytes]:
        return table.keys(self._order)

    def _tell(self, key: bytes, record: Record | None) -> Record | Deleted | None:
        if record is not None and self._is_done(record):
            return Deleted(key_text(key), consumed=True) if self._given.pop(key, None) is not None else None
        if not self._concerns(key, record):
            return None
        if record is None:
            self._given.pop(key, None)
            return Deleted(key_text(key))
        if self._group is not None:
            self._given[key] = record
        return record

    def _is_done(self, record: Record) -> bool:
        done = self._done.get(record.partition)
        return done is not None and done.done(record.offset)

    def _concerns(self, key: bytes, record: Record | None) -> bool:
        if self._keys is not None and key not in self._keys:
            return False
        if record is None:
            # Who filters by headers is told only of the end of what they were shown; a delete carries none.
            return not self._headers or key in self._shown
        if self._horizon is not None and record.timestamp < self._horizon and self._was_there(record):
            return False
        if self._headers:
            if not self._matches(record):
                return False
            self._shown.add(key)
        return True

    def _was_there(self, record: Record) -> bool:
        """Whether a record was in the log when the browser was opened, and so is one for the dump."""
        return record.offset < self._opened_at.get(record.partition, 0)

    def _matches(self, record: Record) -> bool:
        for name, wanted in self._headers.items():
            found = header_value(record.headers, name)
            if found is None or (wanted is not None and found != wanted):
                return False
        return True

    def _check_group(self) -> None:
        """See that it is known what was consumed: else all of it would come back, or what is new would be hidden."""
        assert self._group is not None
        described = self._log.describe_topic(self._topic)
        commits = self._log.committed(self._group, self._topic)
        partitions = range(described.partitions)
        found = examine(self._group, self._topic, partitions, commits, queue=self._queue, described=described)
        for damage in found.damages:
            if damage.needs_start:
                raise damage.error

    def _look_at_group(self) -> None:
        assert self._group is not None
        learned = False
        while not learned:
            others = self._looks
            commits = self._log.committed(self._group, self._topic)
            # Of a text that cannot be read the offset is good all the same: too much is shown, never too little.
            learned = self._learn(dict(examine(self._group, self._topic, commits, commits).maps), others)

    def _learn(self, done: dict[int, CommitMap], others: int) -> bool:
        """Take in what a look has found; False where another thread's has ended meanwhile, which may know more."""
        with self._follower.changed:
            if self._looks != others:
                return False
            self._looks += 1
            self._as_of = time.time()
            if done != self._done:
                self._done = done
                if self._watch is not None:
                    self._watch.changed([key for key, record in self._given.items() if self._is_done(record)])
        return True

    def _keep_looking(self) -> None:
        while not self._stop.wait(self._refresh):
            try:
                self._look_at_group()
            except Exception as error:  # noqa: BLE001  # without this knowledge it would show what was consumed
                if not (isinstance(error, TransportError) and error.retriable):
                    self._follower.fail(error)
                    return

    # ---------------------------------------------------------------- what it gives

    def refresh(self) -> None:
        """Look at once what the queue's consumers have consumed, rather than at the next interval.

        Raises:
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._group is not None:
            self._look_at_group()

    @property
    def as_of(self) -> float:
        """Seconds since the epoch of the last look at what was consumed; 0.0 where that is not hidden."""
        return self._as_of

    def take(self, timeout: float | None = None) -> Event[V] | None:
        """The next event, or None when none came within ``timeout`` seconds or the browser is at its end.

        Raises:
            DecodeError: the value cannot be read; the next call goes on behind it.
            ReaderFailed: nothing more will come.
        """
        event = None if self._over else self._opened.take(timeout)
        self._over = self._over or (not self._follow and isinstance(event, EndOfDump))
        return event

    def drain(self, timeout: float = 30.0) -> list[Event[V]]:
        """All that was acknowledged before this call and has not been given yet.

        Raises:
            CatchUpTimeout: the end of the log was not reached in time.
            TransportError: the cluster cannot be asked for the end of the log.
            DecodeError, ReaderFailed: as `take`.
        """
        topic_id = self._log.describe_topic(self._topic).id  # one that was created anew is to be read first
        targets = self._log.end_offsets(self._topic, stable=True)
        self.refresh()
        self._follower.wait_for(targets, timeout, topic_id=topic_id)
        return self._opened.drain()

    @property
    def _opened(self) -> Watch[V]:
        if self._watch is None:
            self.open()
        assert self._watch is not None
        return self._watch

    def __iter__(self) -> Iterator[Event[V]]:
        return self

    def __next__(self) -> Event[V]:
        event = self.take()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[V]:
        if self._over:
            raise StopAsyncIteration
        if self._watch is None:
            await self.__aenter__()  # opening it here would hold up the event loop
        event = await anext(self._opened)
        self._over = not self._follow and isinstance(event, EndOfDump)
        return event


def _horizon(replay_period: object) -> int | None:
    """The earliest time, in ms, that a replay period from now on includes; checked as R15 asks."""
    if replay_period is None:
        return None
    return round((time.time() - _positive("replay_period", replay_period)) * 1000)


def _positive(option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ConfigError(
            f"{option}={value!r} is no number of seconds.", options=[option], hint="Give zero or more, as a number."
        )
    return float(value)
