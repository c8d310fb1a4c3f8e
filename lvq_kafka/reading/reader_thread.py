"""A follower's reading thread: polls and folds, grows with the topic, and starts over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lvq_kafka.cluster import Cluster, LogEnd, LogReader, TopicDescription
from lvq_kafka.core.latest.catch_up import Trouble
from lvq_kafka.core.latest.composed_fold import ComposedFold
from lvq_kafka.core.latest.footing import Footing, Terms
from lvq_kafka.core.latest.memory_tables import IN_MEMORY
from lvq_kafka.core.latest.replay import ReadStage, Replay
from lvq_kafka.core.latest.selected_values import StrayKeys
from lvq_kafka.core.latest.tables import Tables
from lvq_kafka.core.log.absence import STALLED, Absence, Lapse
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.core.queue.definition import time_rule
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.due_times import DueTimes
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    StoreFailed,
    TopicNotFound,
    TopicRecreated,
    TransportError,
)
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.gathered_fetches import GatheredFetches
from lvq_kafka.reading.metadata_thread import MetadataThread
from lvq_kafka.reading.store_keeper import Compose, Kept, StoreKeeper
from lvq_kafka.reading.store_terms import Subject
from lvq_kafka.runtime.header_warnings import ClockWarnings, HeaderWarnings
from lvq_kafka.storing.store_directory import StoreDirectory

__all__ = ["ReaderStore", "ReaderThread", "RecordFilter", "Since"]

Since = Callable[[Cluster, str], Mapping[int, int]]
"""Returns the positions to start from in a topic of a cluster."""

RecordFilter = Callable[[RecordBatch], RecordBatch]
"""Returns the part of a batch to fold. It may change values."""

logger = logging.getLogger("lvq_kafka.follower")

_POLL = 0.1  # seconds; bounds how long close() waits for the reader thread
_BUSY = 1.0  # seconds between two polls, from which on they are no time in which a broker brought nothing
_ABSENCE = 3.0  # seconds that a topic may be missing: to recreate it, someone has to delete it first
_PATIENCE = 1.0  # seconds between two attempts to write to a store
_ATTEMPTS = 3  # consecutive reads that are too slow to see every delete


@dataclass(frozen=True, slots=True)
class ReaderStore:
    """The directory in which a reader keeps its values, and the terms of these."""

    directory: StoreDirectory
    terms: Callable[[QueueRules], Terms]
    """Returns the terms of values that are kept by these rules."""
    subject: Callable[[QueueRules], Subject]
    """Says to readers in other processes what the values are that are kept by these rules."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A read that is about to begin."""

    fold: ComposedFold
    starts: Mapping[int, int]
    absence: Absence
    kept: tuple[Kept, ...] = ()


def _composed(tables: Tables, rules: QueueRules, partitions: int, **options: Any) -> ComposedFold:
    return ComposedFold.of(rules, partitions, tables=tables, **options)


class ReaderThread:
    """Reads all partitions of a topic.

    Owns the `LogReader`, and passes records on to the `FollowerState`.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: QueueRules,
        shared: FollowerState,
        metadata: MetadataThread,
        *,
        since: Since | None = None,
        record_filter: RecordFilter | None = None,
        by_value: bool = False,
        watch: RegistryWatch | None = None,
        store: ReaderStore | None = None,
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._altered = False
        self._rules = rules
        self._topic = rules.keys.topic
        self._shared = shared
        self._metadata = metadata
        self._since = since
        self._filter = record_filter
        self._strays = StrayKeys() if by_value else None
        self._fruitless = 0
        self._store = store
        self._keeper = None if store is None else StoreKeeper(store.directory, cluster, rules.keys.topic)
        self._gathered = GatheredFetches()
        self._unwritten = False  # the last fetch could not be written to the store
        self._expiry_times: ExpiryTimes | None = None
        self._due_times: DueTimes | None = None
        self._header_warnings = HeaderWarnings(logger, self._topic)
        self._clock_warnings = ClockWarnings(logger, self._topic, "this machine's clock")
        self._foreign = rules.foreign_headers()
        self._polled = shared.clock()  # when the last poll ended
        self._reader: LogReader

    def open(self) -> None:
        """Describe the topic, and prepare to read it.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses the request.
            StoreFailed: the store cannot be used.
        """
        if self._keeper is not None:
            self._keeper.open()
            self._shared.keeper = self._keeper
        try:
            self._open()
        except BaseException:
            self._close_store()
            raise

    def _close_store(self, reason: Exception | None = None) -> None:
        if self._keeper is not None:
            with self._shared.lock:
                if reason is not None:  # before the file is closed: others wait for the lock, and learn why
                    self._shared.catch_up.fail(reason)
                self._keeper.close(self._shared.catch_up, reason or self._shared.catch_up.failure)

    def _open(self) -> None:
        if self._watch is not None:
            self._watch.follow(self)
            self._watch.refresh_if_due()
            self._heed_alteration(self._watch)
        described = self._cluster.topics.describe(self._topic)
        if self._since is not None:
            self._shared.rewind(self._since(self._cluster, self._topic))
        self._start_reading(described)
        self._since = None  # used up; keeping it would keep its browser alive

    def run(self) -> None:
        """Read until the follower is closed or has failed: the body of the thread."""
        shared, reason = self._shared, None
        try:
            while not shared.over:
                self._step()
                if shared.timed:
                    self._pass_time()
                if not self._unwritten:
                    shared.beat()
        except Exception as error:
            reason = error
            raise
        finally:
            self._reader.close()
            self._close_store(reason)
            if self._watch is not None:
                self._watch.leave(self)
            if shared.abandoned:
                logger.warning(
                    "closing a reader of %s, which was dropped without being closed: %s. Use a with block, or close it",
                    self._topic,
                    shared.abandoned,
                )

    def _pass_time(self) -> None:
        self._shared.pass_time_in_steps()
        if (time := self._shared.catch_up.time) is not None:
            self._clock_warnings.check(time)
            self._header_warnings.check(self._expiry_times)
            self._header_warnings.check(self._due_times)

    def altered(self) -> None:
        """See `Follows.altered`."""
        self._altered = True

    def _heed_alteration(self, watch: RegistryWatch) -> bool:
        """Read everything again if messages count by other terms from some time on (R39).

        Return whether they do.
        """
        self._altered = False
        times = time_rule(watch.known)
        if times.options == self._rules.times.options:
            return False
        self._rules = replace(self._rules, times=times)
        self._foreign = self._rules.foreign_headers()
        logger.info("the queue on %s was altered; reading it again by its new terms", self._topic)
        self._shared.read_altered(timed=times.matters)
        return True

    def _rereads(self) -> bool:
        """Return whether everything must be read again, since the queue was altered."""
        return self._altered and self._watch is not None and self._heed_alteration(self._watch)

    def _check_sure(self, watch: RegistryWatch) -> bool:
        """Return whether all alterations are known that messages may be judged by (R39)."""
        if not watch.is_sure:
            self._shared.is_unsure(watch.trouble)
            return False
        self._shared.is_sure()
        return True

    def _wait_until_sure(self) -> None:
        """Keep a fetch until all alterations are known that it may be judged by (R39).

        It comes only once, and may have been awaited for long, where the process was frozen.
        """
        while self._watch is not None and not self._check_sure(self._watch) and not self._shared.over:
            if not self._unwritten:
                self._shared.beat()
            self._shared.stop.wait(_POLL)

    def _step(self) -> None:
        if self._rereads():
            return
        if self._watch is not None and not self._check_sure(self._watch):
            self._shared.stop.wait(_POLL)
            return
        shared, catch_up = self._shared, self._shared.catch_up
        replay = catch_up.replay
        try:
            if self._keeper is not None and not self._unwritten:
                shared.build_indexes()
            if catch_up.gone is not None or catch_up.rewinding:
                self._start_over()
            elif self._unwritten:
                self._read_again()
            elif replay.partitions > replay.values.table.partitions:
                self._grow(replay.values.table.partitions, replay.partitions)
            elif replay.stage is ReadStage.BETWEEN_TARGETS:
                then = shared.clock()
                shared.aim(then, *self._metadata.ends(stable=True))
            else:
                self._heed_stall()
                fetch = self._poll(replay.stage)
                self._polled = shared.clock()
                self._wait_until_sure()
                if self._rereads():  # this fetch, too
                    return
                if fetch.positions:
                    self.apply(fetch)
        except (TopicNotFound, DataLoss) as error:
            shared.lose(error, replay.topic_id)
        except StoreFailed as error:
            shared.not_written(error)
            self._unwritten = True
            shared.stop.wait(_PATIENCE)
        except TransportError as error:
            if not error.retriable:
                raise
            shared.lost_touch(Trouble.NO_ANSWER, error)
            shared.stop.wait(_POLL)

    def _poll(self, stage: ReadStage | None) -> Fetch:
        if self._keeper is None or stage is not ReadStage.FIRST_TARGET:
            return self._reader.poll(_POLL)
        return self._gathered.poll(self._reader.poll, _POLL)

    def _read_again(self) -> None:
        """Read on from where the store ends, since what came after that could not be written."""
        described = self._cluster.topics.describe(self._topic)
        self._reader.close()
        self._start_reading(described)

    def _heed_stall(self) -> None:
        """Connect again if nothing has come of a partition that was asked for it.

        The time between two polls does not count: a slow disk may take longer than any broker.
        """
        shared = self._shared
        busy = shared.clock() - self._polled
        if busy > _BUSY:
            shared.was_busy(busy)
        if shared.catch_up.overdue and (stalled := shared.catch_up.stalled(shared.clock())):
            self._reconnect(stalled)

    def _reconnect(self, stalled: Mapping[int, int]) -> None:
        """Continue reading over a new connection.

        The client looks for no other leader while one answers.
        """
        places = ", ".join(f"partition {partition} after offset {at - 1}" for partition, at in sorted(stalled.items()))
        self._shared.stall(
            BrokerUnavailable(
                f"The log of {self._topic} goes on, but nothing has come of {places} for {STALLED:g} s.",
                code="_TIMED_OUT",
                retriable=True,
                hint="The reader connects again by itself. Check whether a broker is cut off from the others.",
            )
        )
        self._reader.close()
        positions = self._shared.catch_up.replay.values.progress.positions
        self._reader = self._cluster.reader(self._topic, self._shared.those_read(positions))

    def apply(self, fetch: Fetch) -> None:
        """Pass on a fetch."""
        self._ask_after_absence()
        filtered = fetch if self._filter is None else replace(fetch, batch=self._filter(fetch.batch))
        lapse = self._shared.apply(fetch, filtered)
        for warning in self._foreign.pop_warnings():
            logger.warning("%s", warning)
        if lapse is not None:
            self._start_over_after(lapse)

    def _ask_after_absence(self) -> None:
        """After an absence, ask for the current settings before judging the fetch by them.

        The fetch is kept meanwhile, since nothing reads it a second time.
        """
        shared = self._shared
        while shared.outdated and not shared.catch_up.closed:
            try:
                shared.asked(self._metadata.retention(insist=True))
            except TransportError as error:
                shared.lost_touch(Trouble.NO_ANSWER, error)
                shared.stop.wait(_POLL)

    def _start_over_after(self, lapse: Lapse) -> None:
        """Start over: deletes may have been missed (R18).

        Fails if every read is too slow to be sure.
        """
        self._fruitless = self._fruitless + 1 if lapse.fruitless else 0
        if self._fruitless < _ATTEMPTS:
            self._shared.lose(DataLoss(f"Reading {self._topic}: {lapse}."), self._shared.catch_up.replay.topic_id)
        else:
            self._shared.fail(
                DataLoss(
                    f"{self._topic} was read {_ATTEMPTS} times, and each time deletes may have been removed before "
                    f"they were read: {lapse}.",
                    hint="Raise delete.retention.ms well above the time it takes to read the topic.",
                )
            )

    # ---------------------------------------------------------------- starting, growing, starting over

    def _start_reading(self, described: TopicDescription) -> None:
        """Start with no values, all partitions, and the current log end as the target."""
        since = self._shared.catch_up.since
        those_read = self._shared.those_read
        self._check_partitions(described)
        retention = self._metadata.retention()
        then = self._shared.clock()
        starts = those_read(self._cluster.logs.start_offsets(self._topic))
        # Ends before stable ends: in this order, a partition without transactions never looks blocked.
        ends = those_read(self._cluster.logs.end_offsets(self._topic, partitions=described.partitions))
        stable = those_read(self._cluster.logs.end_offsets(self._topic, stable=True, partitions=described.partitions))
        for partition, offset in those_read(since).items():
            # Stay within the log: records may have been deleted or truncated since that offset was looked up.
            start = starts.get(partition, 0)
            starts[partition] = min(max(offset, start), ends.get(partition, start))
        read = self._take_up(described, retention, starts, ends) if self._keeper is not None else None
        if read is None:
            read = self._read_everything(described, retention, starts)
        self._due_times, self._expiry_times = read.fold.due_times, read.fold.expiry_times
        self._reader = self._cluster.reader(self._topic, read.starts)
        self._gathered, self._unwritten = GatheredFetches(), False
        self._shared.start_reading(
            then,
            Replay(
                topic_id=described.id,
                partitions=described.partitions,
                values=read.fold.store,
                since=since,
                starts=read.starts,
                ends=ends,
                stable=stable,
                absence=read.absence,
            ),
            *read.kept,
        )

    def _composing(self, described: TopicDescription, retention: float, *, several: bool) -> Compose:
        """Return a function that composes the fold of the queue on tables."""
        return partial(
            _composed,
            rules=self._rules,
            partitions=described.partitions,
            retention=retention,
            foreign=self._foreign,
            strays=self._strays,
            several=several,
        )

    def _read_everything(self, described: TopicDescription, retention: float, starts: Mapping[int, int]) -> _Read:
        """Read everything, from the start of the log or where the reader is to begin."""
        compose = self._composing(described, retention, several=len(starts) > 1)
        absence = Absence(retention)
        absence.track(self._shared.clock(), starts)
        if self._keeper is None or self._store is None:
            fold = compose(IN_MEMORY)
            fold.store.progress.advance(starts)
            return _Read(fold, starts, absence)
        footing = Footing(described.id, described.partitions, retention, dict.fromkeys(starts, self._keeper.now()))
        subject = self._store.subject(self._rules).to_note()
        kept = self._keeper.begin(compose, self._store.terms(self._rules), subject, footing, starts)
        return _Read(kept.fold, starts, absence, self._also_shown(kept))

    def _also_shown(self, kept: Kept) -> tuple[Kept, ...]:
        """Return what is kept, with what is shown until it is complete."""
        shown = None if self._keeper is None else self._keeper.shown(self._shared.catch_up)
        return (kept,) if shown is None or shown is kept else (kept, shown)

    def _take_up(
        self, described: TopicDescription, retention: float, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> _Read | None:
        """Read on from where the store ends; return None if it has to be built again (R40)."""
        keeper, store, shared = self._keeper, self._store, self._shared
        assert keeper is not None
        assert store is not None
        if self._unwritten:
            kept, why = keeper.retake(shared.catch_up.replay), None
        else:
            compose = self._composing(described, retention, several=len(starts) > 1)
            kept, why = keeper.take_up(compose, store.terms(self._rules))
            if kept is not None:
                shared.serve(kept)
                keeper.started(kept)
        if kept is not None and why is None:
            why = keeper.check(kept, described, starts, self._with_epochs(described, ends))
        if why is not None:
            logger.warning("building the store of %s in %s again: %s", self._topic, store.directory.path, why)
        if kept is None or why is not None:
            return None
        positions = shared.those_read(kept.positions)
        absence = Absence(kept.footing.retention)
        absence.keeps(retention)
        absence.track(shared.clock(), positions, kept.footing.ages(keeper.now()))
        if shared.catch_up.time is not None:
            shared.catch_up.time.saw(kept.footing.newest)
        return _Read(kept.fold, positions, absence, self._also_shown(kept))

    def _with_epochs(self, described: TopicDescription, ends: Mapping[int, int]) -> Mapping[int, LogEnd]:
        """Return the ends of the log, each with the epoch of its leader."""
        stable = self._cluster.logs.stable_ends(self._topic, partitions=described.partitions)
        unknown = LogEnd(0, -1)
        return {partition: stable.get(partition, unknown)._replace(offset=end) for partition, end in ends.items()}

    def _check_partitions(self, described: TopicDescription) -> None:
        missing = sorted(set(self._shared.partitions or ()) - set(range(described.partitions)))
        if missing:
            raise ConfigError(
                f"{self._topic} has no partition {missing[0]}: it has {described.partitions}, numbered from 0.",
                options=["partitions"],
            )

    def _grow(self, before: int, now: int) -> None:
        starts = self._cluster.logs.start_offsets(self._topic)
        added = self._shared.those_read({partition: starts.get(partition, 0) for partition in range(before, now)})
        logger.info("%s has %d partitions now; reading the %d new ones", self._topic, now, len(added))
        self._reader.assign(added)
        self._shared.grow(now, added)

    def _start_over(self) -> None:
        """Read everything again.

        Either records that were read or due next are no longer in the log (R18), or reading started too late in the
        log.
        """
        shared, catch_up = self._shared, self._shared.catch_up
        self._unwritten = False
        try:
            described = self._cluster.topics.describe(self._topic)
        except TopicNotFound as gone:
            shared.lose(gone, catch_up.replay.topic_id)
            if shared.clock() - catch_up.gone_since < _ABSENCE:
                shared.stop.wait(_POLL)
                return
            raise TopicRecreated(
                f"The topic {self._topic} was deleted while it was being read.",
                topic=self._topic,
                hint="Declare the queue again and open a new reader.",
            ) from gone
        if catch_up.gone is not None:
            logger.warning("reading %s from its start again: %s", self._topic, catch_up.gone)
        else:
            logger.info("reading %s again, from an earlier position", self._topic)
        if described.id != catch_up.replay.topic_id:
            shared.rewind({})
        self._reader.close()
        self._start_reading(described)
