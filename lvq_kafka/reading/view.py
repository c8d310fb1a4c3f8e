"""A queue as a live mapping from key to current value."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from threading import Thread
from typing import Any, Generic, TypeVar, Unpack, cast

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import BYTES, Codec, Undecodable, V
from lvq_kafka.core.facts import Position
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import Key, encode_key
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.queue.standard import check_mapping
from lvq_kafka.core.text.validation import at_least_one, function, instance, unfinished
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import ConfigError, DecodeError, LVQError
from lvq_kafka.reading.carried_values import CutRows
from lvq_kafka.reading.catch_up_waiter import Limit, Timeout
from lvq_kafka.reading.entries import EndOfDump, Entry, Event, to_entry
from lvq_kafka.reading.following_reader import FollowingReader
from lvq_kafka.reading.index_queries import MemoryIndexes, WriterIndexes
from lvq_kafka.reading.indexed_values import IndexedValues
from lvq_kafka.reading.indexing import IndexBy, Indexing
from lvq_kafka.reading.key_pages import KeyPage, check_age, check_prefix, check_queue, check_same_topic, token_of
from lvq_kafka.reading.listing import Listing
from lvq_kafka.reading.queue_reader import QueueReader
from lvq_kafka.reading.resuming import Resumable, ResumePoint, changed_since, check_known
from lvq_kafka.reading.scan import KeyScan, key_bounds
from lvq_kafka.reading.selection import Selection, SelectionOptions
from lvq_kafka.reading.snapshot import CurrentValues, Snapshot
from lvq_kafka.reading.watch import Watch
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.runtime.keywords import refuse_unknown

__all__ = ["LiveMapping", "View"]

T = TypeVar("T")

_LONGEST_PAGE = 1_000_000  # entries

logger = logging.getLogger("lvq_kafka.view")


class LiveMapping(FollowingReader[V], CurrentValues[V], IndexedValues[V], Generic[V]):
    """A live mapping with watches, of this process or another.

    Reads show what the reader has, and never wait. A reader that can no longer follow reports it: reads raise
    `ReaderFailed` once it has failed, and ``state`` shows when it is disconnected.

    Thread-safe. Keys may appear and disappear during iteration: it covers the keys of the moment when it began, and
    `items` and `values` leave out those that are gone when it reaches them. It is in order of arrival, also if the
    queue is ordered by rank; a `snapshot`, and the dump of a `watch`, are by rank (R20).
    """

    _callbacks: list[Watch[V]]

    def _wait_open(self, limit: Limit) -> None:
        self._follower.waiter.caught_up(limit)

    def close(self) -> None:
        """Stop reading. The mapping cannot be used afterwards."""
        for watch in list(self._callbacks):
            watch.close()
        super().close()

    # ---------------------------------------------------------------- waiting

    def wait_caught_up(self, timeout: float | None = None) -> None:
        """Wait until the view holds everything that the log held when it was started (G1).

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and what blocks it.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        self._follower.waiter.caught_up(timeout)

    async def wait_caught_up_async(self, timeout: float | None = None) -> None:
        """Like `wait_caught_up`, for asyncio."""
        await _awaited(self._follower.waiter.caught_up, timeout)

    def barrier(self, timeout: float | None = 30.0) -> dict[int, int]:
        """Wait until everything acknowledged before this call, by anyone, is visible here (G7).

        Returns:
            The cut that was waited for: the end offset of each partition.

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and what blocks it.
            TransportError: the cluster cannot be asked for the end of the log.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        return self._follower.waiter.barrier(timeout)

    async def barrier_async(self, timeout: float | None = 30.0) -> dict[int, int]:
        """Like `barrier`, for asyncio."""
        return await _awaited(self._follower.waiter.barrier, timeout)

    def wait_for(self, position: Position | str, timeout: float | None = 30.0) -> None:
        """Wait until the record at a position, or a newer one of its key, is visible here.

        A scheduled record need only have been read (R11).

        A position does not identify which topic of that name it belongs to. After the topic was deleted and recreated,
        do not wait for older positions. Until this view has noticed (see ``metadata_interval``), do not wait for any
        position; use `barrier`, which checks the topic first.

        Args:
            position: the position from a producer's receipt, or its text, from this process or another.

        Raises:
            ConfigError: the position is in another topic, or in a partition that this view does not read, or the text
                is not a position.
            CatchUpTimeout, ReaderFailed, Closed: as for `barrier`.
        """
        self._wait_for(position, timeout)

    async def wait_for_async(self, position: Position | str, timeout: float | None = 30.0) -> None:
        """Like `wait_for`, for asyncio."""
        await _awaited(partial(self._wait_for, position), timeout)

    def _wait_for(self, position: Position | str, timeout: Timeout) -> None:
        if isinstance(position, str):
            position = Position.parse(position)
        instance("position", position, Position, "Give the position from a producer's receipt, or its text.")
        if position.topic != self._topic:
            raise ConfigError(f"{position} is not in {self._topic}.", options=["position"])
        read = self._shared.partitions
        if read is not None and position.partition not in read:
            raise ConfigError(
                f"{position} is in a partition that this view does not read.", options=["position", "partitions"]
            )
        if position.offset < 0:
            self._follower.waiter.barrier(timeout)  # stored at an unknown offset: wait for everything
            return
        self._follower.waiter.reached({position.partition: position.offset + 1}, timeout)

    # ---------------------------------------------------------------- reading

    def snapshot(self) -> Snapshot[V]:
        """Return a frozen copy of all current values, with their cut.

        It costs a copy of the columns, not of the values.
        """
        catch_up, status = self._shared.catch_up, self.status  # before the values, which are then no older than it says
        with self._shared.lock:
            copy = self._shared.current_whole().copy()
            as_of, complete = self._shared.as_of, self.complete
            offsets, topic_id = dict(catch_up.values.progress.positions), catch_up.topic_id
        return Snapshot(
            copy,
            offsets,
            self._topic,
            topic_id,
            self._codec,
            raw_on_error=self._raw_on_error,
            listing=self._listing,
            as_of=as_of,
            queue=self.queue,
            status=status,
            complete=complete,
        )

    def _frozen(self) -> CutRows:
        return self.snapshot()

    async def snapshot_async(self) -> Snapshot[V]:
        """Like `snapshot`, for asyncio: with very many keys the copy takes a moment."""
        return await in_thread(self.snapshot)

    async def scan_async(
        self, *, prefix: Key | None = None, start: Key | None = None, stop: Key | None = None
    ) -> KeyScan[V]:
        """Like `scan`, for asyncio: in memory, the first one sorts the keys."""
        return await in_thread(partial(self.scan, prefix=prefix, start=start, stop=stop))

    def look_up(self, key: Key) -> tuple[Entry[V] | None, EndOfDump]:
        """Return the entry of a key, or None if it has no value, and the cut for which that holds.

        Raises:
            DecodeError: the codec cannot decode the value, and the policy is ``"raise"``.
            UnencodableKey: this cannot be a key.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        encoded = encode_key(key)
        with self._shared.lock:
            record = self._shared.current(encoded).record(encoded)
            cut = self._cut()
        if record is None:
            return None, cut
        return to_entry(record, self._topic, self._codec, raw_on_error=self._raw_on_error), cut

    @property
    def cut(self) -> EndOfDump:
        """The cut through the log at which the values shown are."""
        with self._shared.lock:
            self._shared.catch_up.check()
            return self._cut()

    def _cut(self) -> EndOfDump:
        """Return the cut of the values shown. The lock is held."""
        catch_up = self._shared.catch_up
        offsets = dict(sorted(catch_up.values.progress.positions.items()))
        return EndOfDump(offsets, as_of=self._shared.as_of, topic_id=catch_up.topic_id)

    @property
    def complete(self) -> bool:
        """True once the values shown are all those of a cut, however old that is.

        False only before it is caught up for the first time. ``state`` says how current the values are.
        """
        catch_up = self._shared.catch_up
        return catch_up.starting_over or catch_up.replay.caught_up

    def undecoded(self) -> LiveMapping[bytes]:
        """Return this mapping, once it was started, with values as the bytes in the log.

        It is another face of the same reader: closing one closes both.
        """
        face: Any = object.__new__(type(self))
        face.__dict__.update(self.__dict__, _codec=BYTES)
        return cast("LiveMapping[bytes]", face)

    def page(self, after: KeyPage[V] | str | None = None, *, limit: int = 100, prefix: Key | None = None) -> KeyPage[V]:
        """Return the first entries in byte order of keys, or those after a page.

        Each page has the values that are current when it is made, by this view or one of another process. So the pages
        together are of no one moment; but no value is older than the cut of the first one, and ``watch(since=page)``
        with the last page returns all that has changed from that cut on (R34). A listener that applies both has what
        the view has. Nothing is kept for the pages.

        Args:
            after: the page before, or its token; None for the first page.
            limit: the greatest number of entries.
            prefix: only keys that begin with this text. It holds for the pages that follow, too.

        Raises:
            ConfigError: ``limit`` is no positive number; ``after`` is no page, or one of another queue or prefix.
            DataLoss: deletes since the first page may be gone, which a watch would miss.
            TopicRecreated: ``after`` is of another topic of this name.
            CatchUpTimeout: this view did not get as far as the first page.
            DecodeError: a value cannot be decoded.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        return self._page(after, limit, prefix, Limit(self._catch_up_timeout))

    async def page_async(
        self, after: KeyPage[V] | str | None = None, *, limit: int = 100, prefix: Key | None = None
    ) -> KeyPage[V]:
        """Like `page`, for asyncio."""
        waiting = Limit(self._catch_up_timeout)
        return await in_thread(partial(self._page, after, limit, prefix, waiting), abort=waiting.give_up)

    def _page(self, after: KeyPage[V] | str | None, limit: int, prefix: Key | None, waiting: Limit) -> KeyPage[V]:
        at_least_one(_LONGEST_PAGE, limit=limit)
        begun = None if after is None else token_of(after, "after")
        if begun is not None:
            self._check_page(begun, prefix, waiting)
        with self._shared.lock:
            table = self._shared.current_whole()
            catch_up = self._shared.catch_up
            token = begun or PageToken(
                queue=self.queue,
                topic_id=catch_up.topic_id,
                as_of=self._shared.as_of,
                offsets=dict(catch_up.values.progress.positions),
                prefix=b"" if prefix is None else encode_key(prefix),
                key=None,
            )
            begin = None if token.key is None else token.key + b"\0"  # the next key that there can be
            records = list(table.scan(*key_bounds(token.prefix, begin, None), limit + 1).records())
        last, shown = len(records) <= limit, records[:limit]
        raw = self._raw_on_error
        entries = [to_entry(record, self._topic, self._codec, raw_on_error=raw) for record in shown]
        if shown:
            token = replace(token, key=shown[-1].key)
        return KeyPage(entries, token.text, last)

    def _check_page(self, token: PageToken, prefix: Key | None, waiting: Limit) -> None:
        """Check that a page can follow, and wait until this mapping is as far as the first one.

        Raises what `page` raises.
        """
        raise NotImplementedError

    @refuse_unknown()
    def watch(
        self,
        *,
        dump: bool = False,
        since: Resumable | None = None,
        previous: bool = False,
        changed: bool = False,
        every: float | None = None,
        **selection: Unpack[SelectionOptions[V]],
    ) -> Watch[V]:
        """Return an iterator over changes from now on, for ``for`` or ``async for``; see `Watch`.

        Args:
            dump: return the current values first, as of the moment when the first one is requested, then `EndOfDump`,
                with no gap before the updates (G4).
            since: resume where an earlier watch, of this process or another, had got to: its `token`, an `EndOfDump`,
                a snapshot, or the next offset of each partition. Or follow pages, given the last one or its token; the
                watch then has their prefix, unless it is given another. Instead of a dump, the watch begins with the
                keys that have changed since, deletes included, then `EndOfDump`. With a store, the store knows them
                (R44). Otherwise that part of the topic is read once more, at once. A key that was added and deleted
                meanwhile, or that is not selected, may be reported as `Deleted` although the earlier watch had never
                returned it. If messages of this queue may be scheduled, offsets alone do not show which messages
                counted already; messages that have become due since are read from ``max_delay`` further back.
            previous: add to each event the value that it replaces, as ``previous``. This needs memory for a second
                table, and making the watch takes a copy of it.
            changed: leave out a value whose bytes are those of the value that this watch returned last for its key
                (R42). This needs some 150 bytes for each key that the watch has returned.
            every: return events in batches, at most one in this many seconds.
            selection: what to report, among what the view holds; see `SelectionOptions`.

        Raises:
            ConfigError: an argument is invalid, or two contradict each other; or ``since`` is beyond the end of the
                log; or messages of this queue expire, of which the log has no record, and there is no store; or they
                expire or may be scheduled, and ``since`` has no time, or one too far ahead.
            DataLoss: deletes since then may be gone (R34), or the store does not go back as far (R44).
            TopicRecreated: ``since`` belongs to another topic of this name.
            CatchUpTimeout, TransportError: the topic could not be read since then.
        """
        self._shared.catch_up.check()
        if since is not None and dump:
            raise ConfigError(
                "dump=True returns all values, and since= only those that have changed.",
                options=["dump", "since"],
                hint="Give one of them.",
            )
        point = None if since is None else self._resume_point(since)
        if isinstance(since, KeyPage | str) and selection.get("prefix") is None:
            selection["prefix"] = token_of(since, "since").prefix or None
        chosen = Selection(self._topic, self._codec, raw_on_error=self._raw_on_error, **selection).of_what_is_read()
        watch = Watch(
            self._follower,
            self._codec,
            dump=partial(self._listing.keys, among=chosen.keys) if dump else None,
            selection=chosen,
            previous=previous,
            changed=changed,
            every=every,
            raw_on_error=self._raw_on_error,
            queue=self.queue,
        )
        if point is not None:
            try:
                watch.resume(point.end, partial(self._changed_since, point))
            except BaseException:
                watch.close()
                raise
        return watch

    async def watch_async(self, **options: Any) -> Watch[V]:
        """Like `watch`, for asyncio, with the same options: ``since`` waits for the cluster."""
        return await in_thread(partial(self.watch, **options), undo=Watch.close)

    @property
    def topic(self) -> str:
        """The name of its topic."""
        return self._topic

    @property
    def value_codec(self) -> Codec[V]:
        """The codec of its values."""
        return self._codec

    def _resume_point(self, since: Resumable) -> ResumePoint:
        """Return where a watch resumes. Raises what `watch` raises."""
        raise NotImplementedError

    def _changed_since(self, point: ResumePoint, end: EndOfDump, table: NewestRecords) -> Mapping[bytes, Cause | None]:
        """Return the keys of this view that have changed from a point to a cut.

        The value is why a key has lost its value; None if it was deleted, or has one.

        Args:
            point: the point.
            end: the cut.
            table: the values of the cut.
        """
        raise NotImplementedError

    def on_change(
        self,
        callback: Callable[[Event[V]], object],
        *,
        previous: bool = False,
        changed: bool = False,
        every: float | None = None,
        **selection: Unpack[SelectionOptions[V]],
    ) -> Callable[[], None]:
        """Call back with every change, conflated, in a new thread. Return a function to end that.

        An error raised by the callback is logged, and does not stop later changes.

        Args:
            callback: called with each event.
            previous: as for `watch`.
            changed: as for `watch`.
            every: as for `watch`.
            selection: what to report, as for `watch`.

        Raises:
            ConfigError: the callback is not a plain function of one argument, or as for `watch`.
        """
        function("callback", callback, "event", hint="In asyncio: async for event in view.watch().", classes=False)
        watch = self.watch(previous=previous, changed=changed, every=every, **selection)
        self._callbacks.append(watch)
        Thread(target=_call_back, args=(watch, callback), name=f"lvq-callback-{self._topic}", daemon=True).start()

        def end() -> None:
            watch.close()
            if watch in self._callbacks:
                self._callbacks.remove(watch)

        return end


class View(QueueReader[V], LiveMapping[V], Generic[V]):
    """A live mapping from key to current value, kept up to date by a background reader.

    As a context manager, also with ``async with``, it is caught up when entered: it then holds the newest value of
    every key acknowledged before (G1), and follows the log from there. Reads come from memory and never touch the
    network. A view that can no longer follow reports it: reads raise `ReaderFailed` once it has failed, and ``state``
    shows when it is disconnected.

    A view keeps the values that it has read. If retention or DeleteRecords removes a value from the log after the view
    has read it, the value stays in the view, although a reader opened later does not find it. It disappears when the
    view has to start over. Topics whose ``cleanup.policy`` is just ``compact`` have neither.

    Thread-safe. Keys may appear and disappear during iteration: it covers the keys of the moment when it began, and
    `items` and `values` leave out those that are gone when it reaches them. It is in order of arrival, also if the
    queue is ordered by rank; a `snapshot`, and the dump of a `watch`, are by rank (R20).

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue.
        codec: decodes the values.
        catch_up_timeout: seconds that entering ``with`` waits; None for no limit.
        undecodable: see `Undecodable`.
        metadata_interval: seconds between checks of the topic (new partitions, re-creation, end of the log).
        watch: notices alterations of the queue; None for a topic that is no declared queue.
        store: a directory to keep the values in, instead of memory: a view that is opened there later reads only what
            is new (R40). Needs the extra ``store``.
        selection: the keys to hold; see `SelectionOptions`. Others take no memory. Topics are read as a whole all the
            same, since a broker cannot select; only ``partitions`` saves reading.

    Raises:
        ConfigError: an option is invalid, or this is a standard queue, which has no current values (R35).
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
        metadata_interval: float = 5.0,
        watch: RegistryWatch | None = None,
        store: str | PathLike[str] | None = None,
        **selection: Unpack[SelectionOptions[V]],
    ) -> None:
        check_mapping(definition.name, conflate=definition.conflate, what="A view")
        super().__init__(
            cluster,
            definition,
            codec,
            undecodable=undecodable,
            catch_up_timeout=catch_up_timeout,
            metadata_interval=metadata_interval,
            selection=selection,
            by_value=True,
            watch=watch,
            store=store,
        )
        self._declared, self._registry, self._store = definition, watch, store
        self._source = self._shared
        self._iterated = Listing(self._rules, by_rank=False)  # otherwise each iteration would read all headers
        self._callbacks: list[Watch[V]] = []
        self._indexing = Indexing(self._topic, codec, raw_on_error=self._raw_on_error)
        self._indexes = (MemoryIndexes if store is None else WriterIndexes)(self._index_rules, self._shared)

    @property
    def _definition(self) -> QueueDefinition:
        return self._declared if self._registry is None else self._registry.known

    def _check_page(self, token: PageToken, prefix: Key | None, waiting: Limit) -> None:
        """Check that a page can follow, and wait until this view is as far as the first one."""
        check_queue(token, self.queue, "after")
        check_prefix(token, prefix)
        self._follower.waiter.caught_up(waiting)
        catch_up = self._shared.catch_up
        check_same_topic(token, self._topic, catch_up.topic_id)
        check_age(token, catch_up.replay.absence.retention, self._cluster.now())
        self._follower.waiter.reached(token.offsets, waiting)
        self._see(ResumePoint(token.offsets, token.topic_id, token.as_of), "after")

    def index(self, name: str, *, by: str | IndexBy[V], version: str | None = None) -> None:
        """Keep an index of this name, for `find` and `top` (R45).

        Without a store, it is made when it is first asked. With a store, it is part of that, and built as soon as the
        view is open; it is used as it is by later views that ask for it, and dropped by one that is opened without it.

        Args:
            name: its name.
            by: a header, for its text; or a function of an `Entry` that returns a number, text, bytes, or None for an
                entry that is not to be found. It has to return the same for the same entry, and must not ask the view.
                The threads that read and ask call it; with a store, under the lock of the view. A value for which it
                raises an error, or returns something else or NaN, or which cannot be decoded, is not in the index; it
                is counted in ``unindexed``, and the first one is logged.
            version: what the function and the codec do, in a text that you change with them. Without it, an index by a
                function is built again whenever the store is opened.

        Raises:
            ConfigError: an argument is invalid, or there is an index of this name by something else.
        """
        self._index_rules.add(self._indexing.rule(name, by, version))

    @property
    def unindexed(self) -> int:
        """The number of values that an index could not judge, and that it lacks (R45).

        A value counts each time that it is judged.
        """
        return self._indexing.unindexed

    def _see(self, point: ResumePoint, option: str) -> None:
        """Note the time of another reader: messages that were due there stay due (R11)."""
        if time_rule(self._definition).may_schedule:
            point.check_time(self._topic, self._cluster.now(), option)
            self._shared.saw(point.as_of)

    def _resume_point(self, since: Resumable) -> ResumePoint:
        definition = self._definition
        if definition.expires and self._store is None:
            raise ConfigError(
                f"Messages in {self._topic} expire, and nothing in its log says which have since.",
                options=["since", "ttl"],
                hint="Begin with a dump, or keep the view in a store, which knows.",
            )
        point, limit = ResumePoint.of(since, definition.name), Limit(self._catch_up_timeout)
        if timed := time_rule(definition).matters:
            point.check_time(self._topic, self._cluster.now())
        self._follower.waiter.caught_up(limit)
        point.check(self._cluster, self._topic, self._shared.catch_up.topic_id)
        self._follower.waiter.reached(point.offsets, limit)
        if timed:
            self._shared.saw(point.as_of)
        return point

    def _changed_since(self, point: ResumePoint, end: EndOfDump, table: NewestRecords) -> Mapping[bytes, Cause | None]:
        definition = self._definition
        known = table.changed_since(point.offsets, point.moment if time_rule(definition).matters else None)
        if known is not None or definition.expires:
            return check_known(known, self._topic)
        timeout = math.inf if self._catch_up_timeout is None else self._catch_up_timeout
        changed = changed_since(self._cluster, definition, point, end, timeout=timeout)
        if set(end.offsets) - set(point.offsets):  # with new partitions, keys have other homes (R14)
            with self._shared.lock:
                split = self._shared.catch_up.values.split_keys
            changed |= {key: changed.get(key, False) for key in split}
        keys = self._selection.keys
        return {
            key: None if deleted or key in table else "deselected"
            for key, deleted in changed.items()
            if not keys or key in keys
        }


async def _awaited(wait: Callable[[Timeout], T], timeout: float | None) -> T:
    """Wait in a thread, which gives up if the task is cancelled."""
    limit = Limit(timeout)
    return await in_thread(partial(wait, limit), abort=limit.give_up)


def _call_back(watch: Watch[V], callback: Callable[[Event[V]], object]) -> None:
    while True:
        try:
            event = watch.poll()
        except DecodeError as error:
            logger.warning("a value was left out of the callbacks: %s", error)
            continue
        except LVQError as error:
            logger.warning("callbacks stop: %s", error)
            return
        if event is None:
            return
        try:
            if what := unfinished(callback(event)):
                logger.error("a change callback has done nothing: it returned %s", what)
        except Exception:
            logger.exception("a change callback has failed")
