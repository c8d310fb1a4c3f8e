"""The state that a follower's threads share with its users, and the lock on it."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, RLock

from lvq_kafka.cluster import TopicDescription
from lvq_kafka.core.latest.catch_up import CatchUp, Trouble
from lvq_kafka.core.latest.fold import Changes
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.replay import Replay
from lvq_kafka.core.latest.reported import BEAT
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.absence import Lapse
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.errors import LVQError, QueueMismatch, StateError, StoreFailed
from lvq_kafka.reading.change_notifier import ChangeNotifier
from lvq_kafka.reading.entries import EndOfDump
from lvq_kafka.reading.store_keeper import Kept, StoreKeeper
from lvq_kafka.runtime.clocks import uptime
from lvq_kafka.runtime.forking import left_behind

__all__ = ["FollowerState"]

logger = logging.getLogger("lvq_kafka.follower")


class FollowerState:
    """The lock, clock, log lines and wake-ups around a `CatchUp`, which has the rules.

    All changes happen in the methods below, which take the lock and wake the listeners and waiters concerned. The
    attributes of ``catch_up`` may be read freely; hold the lock for a consistent view of several.

    Args:
        partitions: the partitions that are read; None for all.
        clock: returns seconds, by which absences are judged.
        time: returns seconds since the epoch, by which messages are due and expire.
        timed: whether messages expire, or may be scheduled.
        catch_up: the state of the reader, if that is not for it to find out.
    """

    def __init__(
        self,
        topic: str,
        clock: Callable[[], float] = uptime,
        *,
        partitions: Collection[int] | None = None,
        time: Callable[[], float] = time.time,
        timed: bool = False,
        catch_up: CatchUp | None = None,
    ) -> None:
        self.topic = topic
        self.clock = clock
        self.partitions = partitions
        self.timed = timed
        self.catch_up = CatchUp(topic, clock(), timed=timed) if catch_up is None else catch_up
        self._time = time
        self._settled = 0  # ms
        self._point = EndOfDump()  # the last one that was asked for
        self._writing = False  # what is written to the store, by a thread that has the lock
        self._next_beat = clock()
        self.stop = Event()
        self.abandoned = ""  # where it was opened, once no one can use it
        self.lock = RLock()
        """Held for every change. A `Condition` would acquire it through a Python function."""
        self.notifier = ChangeNotifier(self.lock)
        self.keeper: StoreKeeper | None = None
        """Keeps the values in a store; None if they are in memory only."""
        self.opening = Lock()
        """Held while a thread opens the reader: the thread of a step that was cancelled may still be doing so."""

    def those_read(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return the offsets of the partitions that are read."""
        wanted = self.partitions
        return {partition: at for partition, at in offsets.items() if wanted is None or partition in wanted}

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, and write the changes made meanwhile to the store, all or none."""
        with self.lock:
            keeper = self.keeper
            if keeper is None:
                yield
                return
            if self._writing:
                raise StateError(
                    "A function that a store calls while it is written has asked the view that calls it.",
                    hint="Let the function of an index go by its entry alone.",
                )
            self._writing = True
            try:
                yield
                keeper.commit(self.catch_up)
            except BaseException:
                keeper.abort(self.catch_up)
                raise
            finally:
                self._writing = False

    # ---------------------------------------------------------------- called by the reading thread

    def serve(self, kept: Kept) -> None:
        """Show what an earlier process left, until the first read is complete."""
        with self.lock:
            self.catch_up.serve(kept.fold.store, kept.footing.topic_id)

    def start_reading(self, then: float, replay: Replay, *kept: Kept) -> None:
        """Begin a new read, whose ends were asked for at ``then`` or later.

        Args:
            then: the time.
            replay: the read.
            kept: what the store has of it, and of the values shown meanwhile.
        """
        with self.lock:
            if self.keeper is not None:
                self.keeper.started(*kept)
            with self._changing():
                keys = self.catch_up.start(then, replay)
            self.notifier.notify(keys, everybody=True)
            if self.timed:
                self.pass_time()  # records due long ago need not be set aside

    def apply(self, fetch: Fetch, filtered: Fetch) -> Lapse | None:
        """Apply the filtered part of a fetch, and return None.

        A fetch that is too late, when deletes may be gone (R18), is discarded, and its `Lapse` returned.
        """
        with self.lock:
            catch_up = self.catch_up
            lapse = catch_up.replay.absence.read(self.clock(), fetch)
            if lapse is None:
                shown = not catch_up.starting_over
                if catch_up.time is not None:
                    catch_up.time.saw(max(fetch.batch.timestamps, default=0))  # of records filtered out, too
                keys = catch_up.apply(filtered) if self.keeper is None else self._keep(filtered)
                self.notifier.notify(keys)
                if shown and catch_up.values.deselected:
                    self.notifier.notify(catch_up.values.deselected, cause="deselected")
            return lapse

    def _keep(self, fetch: Fetch) -> Iterable[bytes]:
        """Apply a fetch, and write it to the store. Raises `StoreFailed` if that was not possible."""
        catch_up, keeper = self.catch_up, self.keeper
        assert keeper is not None
        with self._changing():
            keeper.reserve(fetch)
            keeper.read(catch_up.replay, fetch.epochs)
            before, shown = catch_up.values, not catch_up.starting_over
            since = dict(before.progress.positions)
            keys = catch_up.apply(fetch)
            if catch_up.values is before:  # those who come from another file compare
                keeper.changed(catch_up, keys, since=since)
                if shown:
                    keeper.changed(catch_up, before.deselected, "deselected", since=since)
        catch_up.written()
        return keys

    def build_indexes(self) -> None:
        """Build and drop indexes of the store until they are those asked for.

        This takes steps, so that no thread waits for the lock for long.

        Raises:
            StoreFailed: that was not possible.
        """
        while True:
            with self.lock:
                keeper = self.keeper
                if keeper is None or keeper.indexes_done:
                    return
                with self._changing():
                    keeper.advance_indexes()

    def pass_time_in_steps(self) -> None:
        """Apply due changes in steps, so that no thread waits for the lock for long."""
        while True:
            with self.lock:
                if not self.pass_time():
                    break

    def aim(self, then: float, topic_id: str, stable: Mapping[int, int]) -> None:
        """Set the second target, which was requested when the first was reached."""
        with self.lock:
            with self._changing():
                keys = self.catch_up.aim(then, topic_id, stable)
            self.notifier.notify(keys)

    def grow(self, partitions: int, added: Mapping[int, int]) -> None:
        """Add partitions, to be read from these starts."""
        with self.lock:
            with self._changing():
                keys = self.catch_up.grow(self.clock(), partitions, added)
                if self.keeper is not None:
                    self.keeper.changed(self.catch_up, keys)
            self.notifier.notify(keys, everybody=True)

    # ---------------------------------------------------------------- topic metadata

    def observed(
        self, then: float, described: TopicDescription, ends: Mapping[int, int], stable: Mapping[int, int]
    ) -> None:
        """Record an observation of the topic, made at ``then`` or later."""
        with self.lock:
            self.catch_up.observe(self.clock(), then, described.id, described.partitions, ends, stable)
            if self.keeper is not None:
                self._note_observation(self.keeper)
            self.notifier.notify(everybody=True)

    def _note_observation(self, keeper: StoreKeeper) -> None:
        catch_up = self.catch_up
        try:
            keeper.observed(catch_up, self.clock())
        except StoreFailed as error:
            keeper.abort(catch_up)
            self.not_written(error)

    def beat(self) -> None:
        """Report to readers of the store in other processes, if nothing was reported lately (R41)."""
        keeper, now = self.keeper, self.clock()
        if keeper is None or now < self._next_beat:
            return
        self._next_beat = now + BEAT
        with self.lock:
            try:
                keeper.commit(self.catch_up, beat=True)
                self.catch_up.written()
            except StoreFailed as error:
                keeper.abort(self.catch_up)
                self.not_written(error)

    def keeps(self, retention: float) -> None:
        """Record for how many seconds the topic keeps deletes."""
        with self.lock:
            self.catch_up.replay.absence.keeps(retention)

    @property
    def outdated(self) -> bool:
        """See `Absence.outdated`."""
        return self.catch_up.replay.absence.outdated(self.clock())

    def asked(self, retention: float) -> None:
        """Record for how many seconds the topic keeps deletes, as asked after an absence."""
        with self.lock:
            self.catch_up.replay.absence.asked(self.clock(), retention)

    def lose(self, error: LVQError, topic_id: str) -> None:
        """Make the reading thread start over at its next step: its records are gone from the log.

        Until then, this reader may be stale, and its state reports that.
        """
        with self.lock:
            self.catch_up.lose(self.clock(), error, topic_id)
            self.notifier.notify(everybody=True)

    def lost_touch(self, trouble: Trouble, error: LVQError) -> None:
        """Record that the cluster does not answer one of the threads, which keeps retrying."""
        if self.catch_up.lose_touch(trouble, error):
            logger.warning("lost contact with the cluster while reading %s: %s", self.topic, error)

    def not_written(self, error: StoreFailed) -> None:
        """Record that the store cannot be written; the reader goes on once it can."""
        if self.catch_up.lose_touch(Trouble.STORE, error):
            logger.warning("what was read of %s cannot be kept, and has to wait: %s", self.topic, error)

    def is_unsure(self, error: LVQError) -> None:
        """Record that the queue may have been altered, or that another one has its name."""
        if not isinstance(error, QueueMismatch):
            self.lost_touch(Trouble.UNSURE, error)
        elif self.catch_up.lose_touch(Trouble.OTHER_QUEUE, error):  # the watch has logged it
            with self.lock:
                self.notifier.notify(everybody=True)

    def is_sure(self) -> None:
        """Record that all alterations of the queue are known."""
        troubles = self.catch_up.troubles
        if Trouble.UNSURE in troubles or Trouble.OTHER_QUEUE in troubles:
            with self.lock:
                self.catch_up.is_sure()
                self.notifier.notify(everybody=True)

    def read_altered(self, *, timed: bool) -> None:
        """Make the reading thread start again, since the queue was altered (R39).

        Args:
            timed: whether messages expire, or may be scheduled.
        """
        with self.lock:
            if timed:
                self.timed = True
                self.catch_up.heed_time()
            if self.catch_up.begun:
                self.catch_up.rewind(dict(self.catch_up.since))
            self.notifier.notify(everybody=True)

    def was_busy(self, seconds: float) -> None:
        """See `Absence.was_busy`."""
        with self.lock:
            self.catch_up.replay.absence.was_busy(seconds)

    def stall(self, error: LVQError) -> None:
        """Record that partitions have stalled, and are about to get another connection."""
        if Trouble.STALLED not in self.catch_up.troubles:
            logger.warning("reading %s has stalled: %s", self.topic, error)
        with self.lock:
            self.catch_up.stall(self.clock(), error)
            self.notifier.notify(everybody=True)

    # ---------------------------------------------------------------- called by users

    def current(self, key: bytes | None) -> NewestRecords:
        """Return the values shown, to look up this key, if it is one.

        Hold the lock while using them.

        Raises:
            Closed, ReaderFailed, StateError: as for `CatchUp.check`.
        """
        catch_up = self.catch_up
        if not catch_up.open:
            catch_up.check()
        if self.timed:
            self.pass_time(key)
        return catch_up.values.table

    def current_whole(self) -> NewestRecords:
        """Return the values shown, for anything but a single key. Hold the lock while using them.

        Raises what `current` raises.
        """
        self.catch_up.check()
        self.pass_all_time()
        return self.catch_up.values.table

    @property
    def as_of(self) -> float:
        """The time, in seconds since the epoch, of the values shown. Hold the lock."""
        log_time = self.catch_up.time
        return self._time() if log_time is None else log_time.now / 1000

    @property
    def point(self) -> EndOfDump:
        """The point that the values shown have got to. Hold the lock.

        Its time is one by which all due changes are applied. Where time alone changes nothing, it may be a second old:
        all who ask after a change get the same object.
        """
        catch_up, point = self.catch_up, self._point
        offsets = catch_up.values.progress.positions
        as_of = self._settled / 1000 if self.timed else self.as_of
        same = point.offsets == offsets and point.topic_id == catch_up.topic_id
        if not (same and (point.as_of == as_of or (not self.timed and point.as_of <= as_of < point.as_of + 1.0))):
            self._point = point = EndOfDump(dict(offsets), as_of=as_of, topic_id=catch_up.topic_id)
        return point

    def pass_time(self, first: bytes | None = None) -> bool:
        """Apply some due changes; return whether more may be left. The lock is held.

        Args:
            first: a key to which all due changes are applied.
        """
        try:
            passed = self._pass_time(first)
        except StoreFailed as error:
            self.not_written(error)
            return False
        if passed is None:
            log_time = self.catch_up.time
            self._settled = self._settled if log_time is None else log_time.now
            return False
        for keys, cause in _by_cause(passed):
            self.notifier.notify(keys, cause=cause)
        return True

    def _pass_time(self, first: bytes | None) -> Changes | None:
        keeper = self.keeper
        if keeper is None:
            return self.catch_up.pass_time(self._time(), first)
        with self._changing():
            passed = self.catch_up.pass_time(self._time(), first)
            for keys, cause in _by_cause(passed):
                keeper.changed(self.catch_up, keys, cause)
        return passed

    def pass_all_time(self) -> None:
        """Apply all due changes, so that the values are those of `as_of`. The lock is held."""
        while self.timed and self.pass_time():
            pass

    def saw(self, moment: float) -> None:
        """Note the time of another reader, in seconds since the epoch."""
        with self.lock:
            if self.catch_up.time is not None:
                self.catch_up.time.saw(round(1000 * moment))

    def rewind(self, since: Mapping[int, int]) -> None:
        """Make the reading thread start again from these earlier positions."""
        with self.lock:
            self.catch_up.rewind(since)
            self.notifier.notify(everybody=True)

    def accept(self) -> None:
        """Count the read as complete, although an open transaction hides some records."""
        with self.lock:
            with self._changing():
                keys = self.catch_up.accept()
            self.notifier.notify(keys)

    def fail(self, error: Exception) -> None:
        """Stop permanently because of an error."""
        if not self.catch_up.closed:
            logger.error("reading %s has failed: %s", self.topic, bounded(str(error)))
        with self.lock:
            self.catch_up.fail(error)
            self.notifier.notify(everybody=True)

    def close(self) -> None:
        """Stop permanently because the reader is no longer needed."""
        self.stop.set()
        with self.lock:
            self.catch_up.close()
            self.notifier.notify(everybody=True)

    def abandon(self, place: str) -> None:
        """Make the threads end: no one can still use this reader, and no one closed it.

        Python calls this during garbage collection, on any thread and under any lock. So it takes no lock.
        """
        if not self.over:
            self.abandoned = place
            self.catch_up.close()
            warnings.warn(f"unclosed reader of {self.topic}: {place}", ResourceWarning, stacklevel=2)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`."""
        self.lock, self.opening = RLock(), Lock()
        self.notifier.left_behind(self.lock)
        self.catch_up.fail(left_behind(f"The reader of {self.topic}"))

    @property
    def over(self) -> bool:
        """True once it was closed or abandoned, or has failed: its threads end."""
        return self.catch_up.closed or self.catch_up.failure is not None


_CAUSES: tuple[Cause | None, ...] = (None, "deselected", "expired")  # of the fields of `Changes`


def _by_cause(passed: Changes | None) -> Iterator[tuple[Collection[bytes], Cause | None]]:
    for keys, cause in zip(passed or (), _CAUSES):
        if keys:
            yield keys, cause
