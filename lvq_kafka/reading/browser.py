"""The non-destructive reader: a dump of the current values, its end, then updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from threading import TIMEOUT_MAX, Lock, Thread
from threading import Event as Flag
from typing import Generic, Self, TypeVar, Unpack, get_args
from weakref import ref

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.text.validation import choice, delays, durations
from lvq_kafka.declared.group_checks import OnForeignCommits
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import (
    Closed,
    CommitMapRefused,
    ConfigError,
    LVQError,
    QueueNotDeclared,
    ReaderFailed,
    TopicRecreated,
    Unauthorized,
)
from lvq_kafka.reading.catch_up_waiter import Limit
from lvq_kafka.reading.consumed_filter import ConsumedFilter, Learned, is_transient
from lvq_kafka.reading.entries import Deleted, EndOfDump, Event
from lvq_kafka.reading.given_values import GivenKeys
from lvq_kafka.reading.queue_reader import QueueReader
from lvq_kafka.reading.replay_period import ReplayPeriod
from lvq_kafka.reading.selection import SelectionOptions
from lvq_kafka.reading.watch import Watch
from lvq_kafka.runtime.aio import in_thread

__all__ = ["Browser"]

E = TypeVar("E")

_SOME = 4096  # keys checked per hold of the lock, about 2 ms


class Browser(QueueReader[V], Generic[V]):
    """Reads a queue without consuming anything (G6).

    Iteration yields the current values, the newest per key, in queue order; then `EndOfDump`, once, even for an empty
    queue; then updates as they arrive: `Entry` for a value, `Deleted` for a key that no longer has one. It is one
    stream without gaps (G4), conflated if the reader is slow (G3). Any number of browsers can read a queue
    independently. If the queue is ordered by rank (R20), so is the dump, by the ranks of the moment when it begins.

    Of a standard queue (R35), it yields each waiting message once, in queue order, then `EndOfDump`, then messages as
    they arrive. There are no `Deleted` events: a message that was returned and is consumed later is not reported. A
    slow reader needs memory for all messages that it has not returned yet. A browser that has to start over, or finds
    the queue reset, returns the messages that wait then, perhaps again.

    The dump ends without waiting for open transactions. `EndOfDump.blocked` names the partitions where one hides later
    records; these follow as updates.

    ::

        with queue.browser() as browser:
            for event in browser: ...

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue.
        codec: decodes the values.
        dump: False for updates only.
        replay_period: limit the dump to values that arrived at most this many seconds before the browser is opened, by
            this machine's clock. Updates are not limited (R15).
        group: hide what this consumer group, the queue's, has consumed.
        on_foreign_commits: what to do if something else has committed with that group: ``"refuse"`` raises,
            ``"ignore"`` relies on the offsets alone.
        refresh: seconds between checks of what the group has consumed; there is also one when the browser is opened. A
            value that was returned and is consumed later is reported as `Deleted` with ``consumed`` set. Values that a
            reset makes pending again are returned again. The browser fails when it is no longer known what was consumed
            (R17).
        previous: add to each event the value that it replaces, as ``previous``: the last one that the browser returned
            for its key.
        changed: leave out a value whose bytes are those of the value that the browser returned last for its key (R42);
            see `Watch`.
        every: return events in batches, at most one in this many seconds; see `Watch`.
        follow: False ends the iteration at the end of the dump.
        undecodable: see `Undecodable`.
        catch_up_timeout: seconds that opening may take; None for no limit.
        metadata_interval: seconds between checks of the topic (new partitions, re-creation, end of the log).
        watch: notices alterations of the queue; None for a topic that is no declared queue.
        selection: what to return; see `SelectionOptions`. If a key that was already returned gets a value that is not
            selected, it is reported as `Deleted` with ``left`` set (R24).
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        dump: bool = True,
        replay_period: float | None = None,
        group: str | None = None,
        on_foreign_commits: OnForeignCommits = "refuse",
        refresh: float = 1.0,
        previous: bool = False,
        changed: bool = False,
        every: float | None = None,
        follow: bool = True,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
        watch: RegistryWatch | None = None,
        **selection: Unpack[SelectionOptions[V]],
    ) -> None:
        self._replay = ReplayPeriod(replay_period, now=cluster.now(), dump=dump, times=time_rule(definition))
        delays(refresh=refresh)
        if every is not None:
            durations("Leave it out for events as they come.", every=every)
        choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
        self._refresh = refresh
        super().__init__(
            cluster,
            definition,
            codec,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
            selection=selection,
            since=self._start_positions,
            watch=watch,
        )
        for name in [name for name, given in (("previous", previous), ("changed", changed)) if given]:
            if not definition.conflate:
                raise ConfigError(
                    f"`{name}` and a standard queue ({definition.name}, `conflate=False`) exclude each other: in it, "
                    "no message replaces another.",
                    options={name: True, "conflate": False},
                    hint=f"Leave `{name}` out.",
                )
        self._conflates = definition.conflate
        self._given_keys = GivenKeys.of(self._selection)
        self._consumed: ConsumedFilter | None = None
        if group is not None:
            self._consumed = ConsumedFilter(cluster, definition, group, on_foreign_commits)
        self._follow = follow
        self._previous, self._changed, self._every = previous, changed, every
        self._first: Mapping[int, int] = {}  # offsets below which no record is selected
        self._since: Mapping[int, int] = {}  # offsets where reading starts
        self._given: dict[bytes, Record] = {}  # returned, and not known to be consumed
        self._news_reported = 0  # the `ConsumedFilter.news` reported so far
        self._reporting = Lock()
        self._over = False
        self._stop = Flag()
        self._watch: Watch[V] | None = None

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> Self:
        """Start reading, without waiting. See ``state`` and ``progress``.

        `open`, or the first event, waits.

        Raises:
            TopicNotFound: there is no such topic.
            QueueNotDeclared, TopicRecreated, CommitMapRefused: it is no longer known what was consumed (R17).
            TransportError: the cluster cannot be reached or refuses the request.
        """
        if self._consumed is not None and self._watch is None:
            try:
                self._learn(self._consumed)
            except (QueueNotDeclared, TopicRecreated, CommitMapRefused, Unauthorized) as error:
                error.add_note("A browser with hide_consumed=False does not look up what was consumed.")
                raise
        return super().start()

    def _wait_open(self, limit: Limit) -> None:
        if self._watch is not None:
            return
        waiter, shared = self._follower.waiter, self._shared
        waiter.caught_up(limit, or_blocked=True)
        if self._consumed is not None:
            self._learn(self._consumed)  # consumed, or no longer consumed, since the dump was read
            waiter.caught_up(limit, or_blocked=True)
        with shared.lock:
            shared.pass_all_time()
            catch_up = shared.catch_up
            self._replay.opened(catch_up.values.progress.positions, shared.as_of, catch_up.topic_id)
        self._watch = Watch(
            self._follower,
            self._codec,
            selection=self._selection,
            dump=self._dump_keys,
            to_event=self._to_event if self._conflates else self._to_message,
            previous=self._previous,
            changed=self._changed,
            every=self._every,
            raw_on_error=self._raw_on_error,
        )
        self._watch.subscribe()
        if self._consumed is not None:
            looking = (ref(self), self._stop, self._refresh)
            Thread(target=_keep_refreshing, args=looking, name=f"lvq-browse-{self._topic}", daemon=True).start()

    def close(self) -> None:
        """Stop reading; ends any iteration."""
        self._stop.set()
        if self._watch is not None:
            self._watch.close()
        super().close()

    # ---------------------------------------------------------------- start positions and events

    def _start_positions(self, cluster: Cluster, topic: str) -> Mapping[int, int]:
        self._first = self._replay.first(cluster, topic)
        self._since = self._unread()
        return self._since

    def _unread(self) -> dict[int, int]:
        """Return, by partition, the offset below which nothing needs to be read.

        Records below it are not selected, or were consumed.
        """
        bases = {} if self._consumed is None else self._consumed.bases
        return {p: max(self._first.get(p, 0), bases.get(p, 0)) for p in self._first.keys() | bases.keys()}

    def _learn(self, consumed: ConsumedFilter) -> None:
        """Find out what has been consumed by now, and show again values that no longer are.

        Raises what `ConsumedFilter.ask` raises.
        """
        learned: Learned = "overtaken"
        while learned == "overtaken":
            answer = consumed.ask()
            with self._shared.lock:
                learned = consumed.learn(answer)
                if learned == "taken back":
                    self._show_again()

    def _show_again(self) -> None:
        """Report all values again, and read those not read before. The lock is held."""
        now = self._unread()
        if not self._conflates:  # messages returned are no longer kept, so read them again
            self._since = {partition: min(now.get(partition, 0), at) for partition, at in self._since.items()}
            self._shared.rewind(dict(self._since))
        elif any(now.get(partition, 0) < offset for partition, offset in self._since.items()):
            self._since = {partition: min(now.get(partition, 0), at) for partition, at in self._since.items()}
            self._shared.rewind(self._since)
        if self._watch is not None:
            self._watch.report(self._dump_keys(self._shared.catch_up.values.table))

    def _refresh_consumed(self, consumed: ConsumedFilter) -> None:
        """Refresh the consumed state, and report returned values that are consumed now.

        Checks all returned values in batches, so that no one waits for the lock for long.
        """
        self._learn(consumed)
        watch = self._watch
        with self._reporting:  # a second caller waits until everything is reported
            if watch is None or self._news_reported == consumed.news:
                return
            self._news_reported, given = consumed.news, iter(list(self._given))
            while some := list(islice(given, _SOME)):
                with self._shared.lock:
                    records = [(key, self._given.get(key)) for key in some]
                    gone = [key for key, record in records if record is not None and consumed.done(record)]
                    if gone:
                        watch.report(gone)

    def _dump_keys(self, table: NewestRecords) -> Sequence[bytes]:
        return self._listing.keys(table)

    def _to_event(
        self, key: bytes, record: Record | None, matches: bool, cause: Cause | None
    ) -> Record | Deleted | None:
        if record is not None and self._consumed is not None and self._consumed.done(record):
            self._given_keys.forget(key)
            return Deleted(key_text(key), consumed=True) if self._given.pop(key, None) is not None else None
        if record is not None and self._replay.excludes(record, self._shared.catch_up.topic_id):
            return None
        event = self._given_keys.to_event(key, record, matches, cause)
        if self._consumed is None or event is None:
            return event
        if isinstance(event, Deleted):
            given = self._given.pop(key, None)
            return None if event.expired and given is None else event  # it was consumed before it expired
        if self._given.get(key) == event:
            return None
        self._given[key] = event
        return event

    def _to_message(self, key: bytes, record: Record | None, matches: bool, cause: Cause | None) -> Record | None:
        """Return a message of a standard queue, once.

        Nothing is reported of it later.
        """
        if record is None:
            return None
        self._shared.catch_up.values.forget_returned([key])
        if not matches or self._replay.excludes(record, self._shared.catch_up.topic_id):
            return None
        return None if self._consumed is not None and self._consumed.done(record) else record

    # ---------------------------------------------------------------- reading

    def refresh(self) -> None:
        """Check now what the queue's consumers have consumed, without waiting for the interval.

        Raises:
            CatchUpTimeout: records that are no longer consumed, as after a reset, were not reread in time; they will
                be.
            TopicNotFound, TransportError: the cluster cannot answer right now.
            Closed, ReaderFailed: there will be no more events, perhaps because it is no longer known what was consumed.
        """
        self._refresh_within(Limit(self._catch_up_timeout))

    def _refresh_within(self, limit: Limit) -> None:
        if self._consumed is None:
            return
        self._shared.catch_up.check()
        try:
            self._refresh_consumed(self._consumed)
            self._follower.waiter.caught_up(limit, or_blocked=True)
        except Exception as error:  # otherwise consumed values would be shown
            if not (self._stop.is_set() or is_transient(error)):
                self._follower.fail(error)
            self._shared.catch_up.check()
            raise

    async def refresh_async(self) -> None:
        """Like `refresh`, for asyncio."""
        limit = Limit(self._catch_up_timeout)
        await in_thread(partial(self._refresh_within, limit), abort=limit.give_up)

    @property
    def as_of(self) -> float:
        """Seconds since the epoch of the last refresh; 0.0 if consumed values are not hidden."""
        return 0.0 if self._consumed is None else self._consumed.as_of

    def poll(self, timeout: float | None = None) -> Event[V] | None:
        """Return the next event, or None after ``timeout`` seconds or at the browser's end.

        Raises:
            DecodeError: the value cannot be decoded; the next call continues after it.
            ReaderFailed: there will be no more events.
        """
        return None if self._over else self._noted(self._opened.poll(timeout))

    def drain(self, timeout: float = 30.0) -> list[Event[V]]:
        """Return everything that was acknowledged before this call and not yet returned.

        Raises:
            CatchUpTimeout: the end of the log was not reached in time.
            TransportError: the cluster cannot be asked for the end of the log.
            DecodeError, ReaderFailed: as for `poll`.
        """
        topic_id = self._cluster.topics.describe(self._topic).id  # a recreated topic must be read first
        targets = self._cluster.logs.end_offsets(self._topic, stable=True)
        self.refresh()
        self._follower.waiter.reached(targets, timeout, topic_id=topic_id)
        return self._opened.drain()

    @property
    def _opened(self) -> Watch[V]:
        if self._watch is None:
            self.open()
        assert self._watch is not None
        return self._watch

    def _noted(self, event: E) -> E:
        """Note whether the iteration ends with this event."""
        self._over = self._over or (not self._follow and isinstance(event, EndOfDump))
        return event

    def __iter__(self) -> Iterator[Event[V]]:
        return self

    def __next__(self) -> Event[V]:
        event = self.poll()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[V]:
        if self._over:
            raise StopAsyncIteration
        if self._watch is None:  # unlike `open_async`, a step that is cancelled closes nothing
            limit = Limit(self._catch_up_timeout)
            await in_thread(partial(self._open, limit), abort=limit.give_up)
        return self._noted(await anext(self._opened))


def _keep_refreshing(browser: ref[Browser[V]], stop: Flag, interval: float) -> None:
    """Refresh the browser periodically until it is closed or collected."""
    while not stop.wait(min(interval, TIMEOUT_MAX)):
        there = browser()
        if there is None:
            return
        try:
            there.refresh()
        except (Closed, ReaderFailed):
            return
        except LVQError:
            pass  # transient; see `refresh`
        del there
