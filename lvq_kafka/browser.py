"""The non-destructive reader: a dump of the current values, its end, then updates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.keys import Key, encode_key
from lvq_kafka.core.records import Record, header_value
from lvq_kafka.entries import EndOfDump, Event
from lvq_kafka.errors import ConfigError, ReaderFailed, TransportError, Unauthorized
from lvq_kafka.follower import Follower, State
from lvq_kafka.ports import Log
from lvq_kafka.watch import Watch

__all__ = ["Browser"]


class Browser(Generic[V]):
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
        refresh: seconds between looks at what the group has consumed; also done when the browser is opened.
        follow: False ends the iteration at the end of the dump.
        catch_up_timeout: seconds that opening may take; None for ever.
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
        raw_on_error: bool = False,
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
    ) -> None:
        self._log = log
        self._topic = definition.topic
        self._codec = codec
        self._order = definition.order
        self._horizon = _horizon(replay_period)
        self._dump = dump and replay_period != 0
        if isinstance(keys, str | bytes):
            raise ConfigError(f"keys={keys!r} is one key, not several.", options=["keys"], hint="Put it into a list.")
        self._keys = None if keys is None else frozenset(map(encode_key, keys))
        self._headers = {name: None if value is None else encode_key(value) for name, value in (headers or {}).items()}
        self._group = group
        self._refresh = _positive("refresh", refresh)
        self._follow = follow
        self._raw_on_error = raw_on_error
        self._catch_up_timeout = catch_up_timeout
        self._consumed: dict[int, int] = {}
        self._opened_at: dict[int, int] = {}
        self._shown: set[bytes] = set()
        self._over = False
        self._stop = Flag()
        self._watch: Watch[V] | None = None
        self._follower = Follower(
            log,
            definition,
            since=self._start_positions,
            metadata_interval=metadata_interval,
        )

    def _start_positions(self, log: Log, topic: str) -> dict[int, int]:
        """Where to begin: behind what cannot be in the dump, and not behind what an open transaction hides yet."""
        if self._dump and self._horizon is None:
            return {}
        visible = log.end_offsets(topic, stable=True)
        if not self._dump or self._horizon is None:
            return visible
        return {p: min(offset, visible.get(p, 0)) for p, offset in log.offsets_at(topic, self._horizon).items()}

    # ---------------------------------------------------------------- life

    def open(self) -> Self:
        """Begin, and wait until the dump is at hand; does nothing when that was done before.

        Raises:
            TopicNotFound: there is no such topic.
            CatchUpTimeout: the end of the log was not reached in time.
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._watch is not None:
            return self
        if self._group is not None:
            try:
                self._look_at_group()
            except Unauthorized as error:
                error.add_note("A browser with hide_consumed=False does not ask for what was consumed.")
                raise
        self._follower.start()
        try:
            self._follower.wait_caught_up(self._catch_up_timeout, or_blocked=True)
        except ReaderFailed as failed:  # nobody has been given anything yet: the news is why it cannot be opened
            self.close()
            raise failed.reason from failed.reason.__cause__
        except BaseException:
            self.close()
            raise
        with self._follower.locked() as table:
            self._opened_at = dict(table.positions)
        self._watch = Watch(
            self._follower, self._codec, dump=self._dump_keys, accept=self._accept, raw_on_error=self._raw_on_error
        )
        if self._group is not None:
            Thread(target=self._keep_looking, name=f"lvq-browse-{self._topic}", daemon=True).start()
        return self

    def close(self) -> None:
        """Stop reading; an iteration ends."""
        self._stop.set()
        if self._watch is not None:
            self._watch.close()
        self._follower.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- what concerns this browser

    def _dump_keys(self, table: LatestValues) -> list[bytes]:
        return table.keys(self._order)

    def _accept(self, key: bytes, record: Record | None) -> bool:
        if self._keys is not None and key not in self._keys:
            return False
        if record is None:
            # Who filters by headers is told only of the end of what they were shown; a delete carries none.
            return not self._headers or key in self._shown
        if self._horizon is not None and record.timestamp < self._horizon and self._was_there(record):
            return False
        if record.offset < self._consumed.get(record.partition, 0):
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

    def _look_at_group(self) -> None:
        assert self._group is not None
        commits = self._log.committed(self._group, self._topic)
        self._consumed = {partition: commit.offset for partition, commit in commits.items()}

    def _keep_looking(self) -> None:
        while not self._stop.wait(self._refresh):
            try:
                self._look_at_group()
            except Exception as error:  # noqa: BLE001  # without this knowledge it would show what was consumed
                if not (isinstance(error, TransportError) and error.retriable):
                    self._follower.fail(error)
                    return

    # ---------------------------------------------------------------- what it gives

    @property
    def state(self) -> State:
        """How the reader is; see `lvq_kafka.follower.State`."""
        return self._follower.state

    @property
    def lag(self) -> int:
        """Offsets between this browser and the end of the log, as of the last look at the topic."""
        return sum(self._follower.lag.values())

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
            DecodeError, ReaderFailed: as `take`.
        """
        targets = self._log.end_offsets(self._topic, stable=True)
        if self._group is not None:
            self._look_at_group()
        self._follower.wait_for(targets, timeout)
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
