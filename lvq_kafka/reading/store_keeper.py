"""The values of a reader in the directory of a store, and their use after a restart (R40)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lvq_kafka.cluster import Cluster, LogEnd, TopicDescription
from lvq_kafka.core.latest.catch_up import CatchUp
from lvq_kafka.core.latest.composed_fold import ComposedFold
from lvq_kafka.core.latest.footing import ClockReading, Footing, Terms
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.replay import Replay
from lvq_kafka.core.latest.reported import Report
from lvq_kafka.core.latest.tables import Tables
from lvq_kafka.core.latest.value_store import ValueStore
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import DataLoss, StoreFailed
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.storing.change_log import ChangeLog
from lvq_kafka.storing.change_traces import ChangeTraces
from lvq_kafka.storing.places import boot_id
from lvq_kafka.storing.store_directory import StoreDirectory
from lvq_kafka.storing.stored_table import StoredTable
from lvq_kafka.storing.stored_tables import StoredTables

__all__ = ["REPORT", "SUBJECT", "Compose", "Kept", "StoreKeeper"]

logger = logging.getLogger("lvq_kafka.store")

Compose = Callable[[Tables], ComposedFold]
"""Composes the fold of the queue on tables."""

_FOLD, _FOOTING, _TERMS = "fold", "footing", "terms"  # the names of notes

SUBJECT, REPORT = "subject", "report"
"""The names of the notes for readers in other processes: what the values are of, and the state of their writer."""

_PER_RECORD = 200  # bytes that a record may take beyond its key and value


@dataclass(eq=False, slots=True)
class Kept:
    """A fold and the file that has its tables."""

    tables: StoredTables
    fold: ComposedFold
    compose: Compose
    footing: Footing
    noted: Mapping[int, int] = field(default_factory=dict)
    """The positions that the file has."""
    changes: ChangeLog = field(init=False)
    """The keys that changed lately, for readers in other processes."""
    traces: ChangeTraces = field(init=False)
    """The changes that its records do not show, for watches that resume."""
    deleted: int = 0
    """The number of deletes when changes were traced last."""

    def __post_init__(self) -> None:
        self.changes = ChangeLog(self.tables.file)
        self.traces = ChangeTraces(self.tables.file)

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset of each partition."""
        return self.fold.store.progress.positions

    @property
    def changed(self) -> bool:
        """True if something has to be committed."""
        return self.tables.file.writing or self.noted != self.positions

    def may_have_lost(self) -> bool:
        """Return whether records may have taken the values of keys since the last call."""
        before, self.deleted = self.deleted, self.fold.store.stats.deleted
        return self.deleted != before or bool(self.fold.values.contested)

    def commit(self) -> None:
        """Make all changes durable, with the positions up to which they go. Raises `StoreFailed`."""
        file = self.tables.file
        if self.changed:
            file.note(_FOLD, self.fold.note())
            noted = dict(self.positions)
            file.commit()
            self.noted = noted

    def advance_indexes(self) -> bool:
        """See `IndexKeeper.advance`."""
        table = self.fold.values.table
        assert isinstance(table, StoredTable)
        return self.tables.indexes.advance(table)

    def reload(self) -> ValueStore:
        """Undo all changes since the last commit, and return the store before."""
        before = self.fold.store
        self.tables.file.abort()
        self.fold = _recalled(self.tables, self.compose)
        self.noted, self.deleted = dict(self.positions), 0
        return before


def _recalled(tables: StoredTables, compose: Compose) -> ComposedFold:
    fold = compose(tables)
    note = tables.file.noted(_FOLD)
    if note is not None:
        fold.recall(note)
    return fold


class StoreKeeper:
    """Keeps the values of one reader in a directory.

    These are the ones that it shows and, beside them, those of a new read.

    Everything that changes the values ends with `commit` or `abort`, under the lock of the follower's state.

    Args:
        directory: the directory.
        cluster: the cluster that holds the topic.
        topic: its name.
    """

    def __init__(self, directory: StoreDirectory, cluster: Cluster, topic: str) -> None:
        self._directory = directory
        self._cluster = cluster
        self._topic = topic
        self._boot = ""
        self._left: StoredTables | None = None  # by an earlier process, until it is taken up
        self._unshown: Kept | None = None  # the one of which the directory does not say that it counts
        self._kept: list[Kept] = []  # what is shown, and what is being read
        self._reported: Kept | None = None  # the one that has the last report

    def open(self) -> None:
        """Become the writer of the store. Raises what `StoreDirectory.open` raises."""
        self._left = self._directory.open()
        self._boot = boot_id()

    def now(self) -> ClockReading:
        """Return the time."""
        return ClockReading(uptime(), self._cluster.now(), self._boot)

    # ---------------------------------------------------------------- beginning a read

    def begin(
        self, compose: Compose, terms: Terms, subject: bytes, footing: Footing, starts: Mapping[int, int]
    ) -> Kept:
        """Begin a read from these positions into a new file."""
        tables = self._directory.begin()
        fold = compose(tables)
        fold.store.progress.advance(starts)
        kept = Kept(tables, fold, compose, footing)
        tables.file.note(_TERMS, json.dumps(dict(terms.said)).encode())
        tables.file.note(_FOOTING, footing.to_note())
        tables.file.note(SUBJECT, subject)
        while kept.advance_indexes():
            pass  # without records, that is nothing but notes
        kept.commit()
        return kept

    def take_up(self, compose: Compose, terms: Terms) -> tuple[Kept | None, str | None]:
        """Return what an earlier process left and may be shown.

        Also returns why one cannot read on from it, if its terms are the reason.
        """
        tables, self._left = self._left, None
        if tables is None:
            return None, None
        notes = [tables.file.noted(name) for name in (_TERMS, _FOOTING, _FOLD)]
        if None in notes:
            return None, "its first read had not begun"
        said, footing = json.loads(notes[0] or b""), Footing.from_note(notes[1] or b"")
        why = terms.difference(said)
        if why is not None and not terms.serves(said):
            return None, why
        fold = _recalled(tables, compose)
        kept = Kept(tables, fold, compose, footing, dict(fold.store.progress.positions))
        kept.advance_indexes()
        kept.commit()
        return kept, why

    def shown(self, catch_up: CatchUp) -> Kept | None:
        """Return what is shown."""
        return next((kept for kept in self._kept if kept.fold.store is catch_up.values), None)

    def retake(self, replay: Replay) -> Kept | None:
        """Return what a read has written so far, to go on after a failure."""
        return next((kept for kept in self._kept if kept.fold.store is replay.values), None)

    def check(
        self, kept: Kept, described: TopicDescription, starts: Mapping[int, int], ends: Mapping[int, LogEnd]
    ) -> str | None:
        """Return why the log does not go on from where a store ends; None if it does.

        Args:
            kept: the store.
            described: the topic.
            starts: where the log of each partition that is read starts.
            ends: where it ends, and the leader epoch there.
        """
        footing, positions = kept.footing, kept.positions
        if footing.topic_id != described.id:
            return "the topic was deleted and created again"
        if footing.partitions != described.partitions:
            return f"the topic had {footing.partitions} partitions, and has {described.partitions}"
        for partition, start in sorted(starts.items()):
            at, end = positions.get(partition, -1), ends[partition].offset
            if at > end:
                return f"partition {partition} ends at offset {end}, and was read up to {at}"
            if at < start:
                return f"partition {partition} starts at offset {start}, and was read up to {max(at, 0)} only"
        return self._cut_off(kept, ends)

    def _cut_off(self, kept: Kept, ends: Mapping[int, LogEnd]) -> str | None:
        """Return which log was truncated below what was read, by the epochs of its leaders.

        A log that is still in the epoch of the last record that was read was not.
        """
        epochs = kept.fold.epochs
        doubtful = {
            partition: LogEnd(kept.positions[partition], epochs[partition])
            for partition, end in ends.items()
            if epochs.get(partition, -1) >= 0 and end.leader_epoch != epochs[partition]
        }
        if not doubtful:
            return None
        try:
            self._cluster.logs.check_uncut(self._topic, doubtful)
        except DataLoss as loss:
            return str(loss)
        return None

    # ---------------------------------------------------------------- changes

    def started(self, *kept: Kept) -> None:
        """Note that these are shown or being read from now on, and no others."""
        self._kept = list(kept)

    def reserve(self, fetch: Fetch) -> None:
        """Prepare for a fetch. Raises `StoreFailed`."""
        batch = fetch.batch
        size = batch.size + sum(map(len, filter(None, batch.keys))) + _PER_RECORD * len(batch)
        for kept in self._kept:
            kept.tables.file.reserve(size + kept.tables.indexes.room * len(batch))

    def read(self, replay: Replay, epochs: Mapping[int, int]) -> None:
        """Note the leader epochs of what was read."""
        for kept in self._kept:
            if kept.fold.store is replay.values:
                kept.fold.epochs.update({partition: epoch for partition, epoch in epochs.items() if epoch >= 0})

    def changed(
        self,
        catch_up: CatchUp,
        keys: Iterable[bytes],
        cause: Cause | None = None,
        *,
        since: Mapping[int, int] | None = None,
    ) -> None:
        """Note keys that have changed, for other processes and for watches that resume.

        Args:
            catch_up: the state.
            keys: the keys.
            cause: why they lost their values, if they did, and were not deleted.
            since: the positions before the records were read that have changed them; None if it were no records, but
                time or new partitions.

        Raises:
            StoreFailed: that was not possible.
        """
        kept = self.shown(catch_up)
        if kept is None:
            return
        keys = list(keys)
        kept.changes.add(keys, cause)
        overdue = frozenset(() if since is None else kept.fold.store.overdue)
        if kept.traces.begun and (since is None or cause is not None or overdue or kept.may_have_lost()):
            by_time = frozenset(keys) if since is None else overdue
            table = kept.fold.values.table
            if cause is None:
                keys += overdue.difference(keys)
            kept.traces.add(keys, table, self._moment(catch_up), cause=cause, by_time=by_time, since=since)

    def _moment(self, catch_up: CatchUp) -> int:
        """Return the time of the values, in ms since the epoch."""
        return round(1000 * self._cluster.now()) if catch_up.time is None else catch_up.time.now

    @property
    def indexes_done(self) -> bool:
        """See `IndexKeeper.done`."""
        return all(kept.tables.indexes.done for kept in self._kept)

    def advance_indexes(self) -> None:
        """See `IndexKeeper.advance`."""
        for kept in self._kept:
            kept.advance_indexes()

    def commit(self, catch_up: CatchUp, *, beat: bool = False, ended: str | None = None) -> None:
        """Make the changes durable, and show what has become complete.

        With them goes a report of the state of this reader, for those in other processes (R41).

        Args:
            catch_up: the state.
            beat: whether to report although nothing has changed.
            ended: see `Report`.

        Raises:
            StoreFailed: that was not possible. Call `abort`.
        """
        self._directory.check_there()
        shown = self.shown(catch_up)
        if shown is not None and (shown.traces.begun or (catch_up.replay.complete and not catch_up.starting_over)):
            shown.traces.check_in(self._moment(catch_up), shown.positions, catch_up.replay.absence.retention)
        news = beat or shown is not self._reported or any(kept.changed for kept in self._kept)
        if news and shown is not None:
            shown.tables.file.note(REPORT, Report.of(catch_up, self.now(), ended).to_note())
        for kept in self._kept:
            kept.commit()
        self._reported = shown
        for kept in list(self._kept):
            if kept.fold.store is catch_up.values:
                self._show(kept)
        if len(self._kept) > 1 and not catch_up.starting_over:
            self._kept = [kept for kept in self._kept if kept.fold.store is catch_up.values]
        if news:
            self._directory.ring()

    def _show(self, kept: Kept) -> None:
        """Make this the file that counts after a restart, or try again at the next commit."""
        try:
            self._directory.show(kept.tables)
        except StoreFailed as error:
            if kept is self._unshown:
                return
            self._unshown = kept
            logger.warning("the next view has to read again what this one has read: %s", error)

    def abort(self, catch_up: CatchUp) -> None:
        """Undo the changes since the last commit: the reader goes on from there."""
        for kept in self._kept:
            before = kept.reload()
            catch_up.exchange(before, kept.fold.store)

    def observed(self, catch_up: CatchUp, now: float) -> None:
        """Note which partitions are known to their ends, and when. Raises `StoreFailed`."""
        moment, replay = self.now(), catch_up.replay
        newest = 0 if catch_up.time is None else catch_up.time.newest
        for kept in self._kept:
            if kept.fold.store is replay.values:
                known = {partition: moment.before(age) for partition, age in replay.absence.ages(now).items()}
                kept.footing = Footing(replay.topic_id, replay.partitions, replay.absence.retention, known, newest)
                kept.tables.file.note(_FOOTING, kept.footing.to_note())
                kept.tables.file.check_readers()
                kept.traces.sweep()
        self.commit(catch_up)

    def close(self, catch_up: CatchUp, reason: Exception | None) -> None:
        """Make everything durable, make a last report, and let others write the store.

        Args:
            catch_up: the state.
            reason: the error that ends this reader, or None.
        """
        try:
            self.commit(catch_up, beat=True, ended="" if reason is None else str(reason))
        except StoreFailed as error:
            self.abort(catch_up)
            logger.warning("readers in other processes learn late that this one has ended: %s", error)
        self._kept, self._reported = [], None
        try:
            self._directory.close()
        except StoreFailed as error:
            logger.warning("%s", error)
