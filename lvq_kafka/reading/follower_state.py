"""The state that a follower's threads share: the tables shown and read, and any trouble."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from threading import Event
from typing import Literal

from lvq_kafka.clocks import uptime
from lvq_kafka.cluster import TopicDescription
from lvq_kafka.core.absence import PRESENT, Absence, Lapse
from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.policy import DELETE_RETENTION
from lvq_kafka.core.quoting import bounded
from lvq_kafka.core.records import Fetch
from lvq_kafka.core.value_store import ValueStore
from lvq_kafka.errors import Closed, LVQError, ReaderFailed, StateError
from lvq_kafka.forking import left_behind
from lvq_kafka.reading.change_notifier import ChangeNotifier
from lvq_kafka.reading.replay import Replay

__all__ = ["FollowerState", "State"]

State = Literal["catching-up", "caught-up", "blocked", "disconnected", "failed", "closed"]
"""The state of a reader.

- ``catching-up``: it has not yet read everything that the log held when it was opened, or it was away for longer than
  the topic keeps deletes and has not read anything since.
- ``blocked``: it has read all it may; an open transaction hides the rest of what the log held at that time.
- ``caught-up``: it has read everything that the log held at that time, and follows.
- ``disconnected``: it cannot reach the cluster, keeps retrying by itself, and may be stale meanwhile.
- ``failed``: it has stopped permanently; ``failure`` says why.
- ``closed``: it was closed.
"""

Doing = Literal["reading", "looking"]

logger = logging.getLogger("lvq_kafka.follower")


class FollowerState:
    """The shared state of a follower. Makes no requests to the cluster.

    All changes happen in the methods below, which take the lock of ``notifier`` and wake the listeners and waiters
    concerned. Attributes may be read freely; hold the lock for a consistent view of several.

    ``replay`` is the read in progress. ``table`` is the table shown: that of the replay, or, after the reading thread
    has started over, that of the previous one until the new one is complete. So no one sees a value older than one
    shown before, or a gap (G2).

    ``since`` is where to start reading, within the bounds of the log. To read from further back, use `rewind`.

    Args:
        clock: returns seconds, by which absences are judged.
    """

    def __init__(self, topic: str, clock: Callable[[], float] = uptime) -> None:
        self.topic = topic
        self.clock = clock
        self.notifier = ChangeNotifier()
        self.stop = Event()
        self.abandoned = ""  # where it was opened, once no one can use it
        self.failure: Exception | None = None
        self.table: ValueStore = LatestValues()
        self.topic_id = ""  # of the topic behind ``table``
        self.since: Mapping[int, int] = {}
        nothing = TopicDescription(topic, "", 0, 0)
        self.replay = Replay(nothing, self.table, self.since, {}, {}, {}, Absence(DELETE_RETENTION))
        self.gone: LVQError | None = None  # the reason for the reading thread to start over
        self.gone_since = 0.0
        self.heard = time.monotonic()
        self._trouble: dict[Doing, LVQError] = {}

    # ---------------------------------------------------------------- called by the reading thread

    def start_reading(self, replay: Replay) -> None:
        """Begin a new read."""
        with self.notifier.changing(everybody=True):
            first = not self.begun
            self.replay = replay
            self.gone = None
            self._trouble.pop("reading", None)
            self.heard = time.monotonic()
            if first:
                self._show()
            self._note_progress()

    def apply(self, fetch: Fetch) -> Lapse | None:
        """Apply a fetch, and return None.

        A fetch that comes too late, when deletes may be gone (R18), is discarded, and its `Lapse` returned.
        """
        with self.notifier.changing():
            lapse = self.replay.absence.read(self.clock(), fetch)
            if lapse is not None:
                return lapse
            table = self.replay.table
            keys = table.apply(fetch.batch)
            table.progress.advance(fetch.positions)
            self._trouble.pop("reading", None)
            if not self.starting_over:
                self.notifier.notify(keys)
            self._note_progress()
            return None

    def aim(self, then: float, topic_id: str, stable: Mapping[int, int]) -> None:
        """Set the second target, which was requested when the first was reached."""
        with self.notifier.changing():
            if topic_id == self.replay.described.id:
                self.replay.aim(then, stable)
                self._note_progress()

    def grow(self, partitions: int, added: Mapping[int, int]) -> None:
        """Add partitions, to be read from these starts."""
        with self.notifier.changing(everybody=True):
            keys = self.replay.table.grow(partitions)
            self.replay.table.progress.advance(added)
            self.replay.absence.track(self.clock(), added)
            if not self.starting_over:
                self.notifier.notify(keys)

    def _note_progress(self) -> None:
        if self.replay.note_progress():
            self._show()

    def _show(self) -> None:
        """Show what was read; after starting over, notify listeners of the differences."""
        before, after = self.table, self.replay.table
        self.table, self.topic_id = after, self.replay.described.id
        if before is not after and len(self.notifier):
            self.notifier.notify([key for key in before.table.keys("in-place") if key not in after.table])
            self.notifier.notify(
                [key for key in after.table.keys("tail") if after.table.record(key) != before.table.record(key)]
            )

    # ---------------------------------------------------------------- topic metadata

    def observed(
        self, then: float, described: TopicDescription, ends: Mapping[int, int], stable: Mapping[int, int]
    ) -> None:
        """Record an observation of the topic, made at ``then`` or later."""
        with self.notifier.changing(everybody=True):
            if described.id != self.replay.described.id:
                return  # stale: the reading thread has since found a new topic
            self.replay.observed(then, described, ends, stable)
            self.heard = time.monotonic()
            self._trouble.clear()  # on a quiet topic, no record would show that the reader recovered

    def keeps(self, retention: float) -> None:
        """Record for how many seconds the topic keeps deletes."""
        with self.notifier.changing():
            self.replay.absence.keeps(retention)

    @property
    def outdated(self) -> bool:
        """See `Absence.outdated`."""
        return self.replay.absence.outdated(self.clock())

    def asked(self, retention: float) -> None:
        """Record for how many seconds the topic keeps deletes, as asked after an absence."""
        with self.notifier.changing():
            self.replay.absence.asked(self.clock(), retention)

    def lose(self, error: LVQError, topic_id: str) -> None:
        """Make the reading thread start over at its next step: what it reads no longer exists.

        Until then this reader may be stale, and its state says so. Late news about a topic that is no longer read is
        ignored.
        """
        with self.notifier.changing(everybody=True):
            if topic_id == self.replay.described.id:
                self.gone_since = time.monotonic() if self.gone is None else self.gone_since
                self.gone = error

    def lost_touch(self, while_: Doing, error: LVQError) -> None:
        """Record that the cluster does not answer one of the threads, which keeps retrying."""
        if while_ not in self._trouble:
            logger.warning("lost touch with the cluster while reading %s: %s", self.topic, error)
        self._trouble[while_] = error

    # ---------------------------------------------------------------- called by users

    def rewind(self, since: Mapping[int, int]) -> None:
        """Make the reading thread start again from these earlier positions."""
        with self.notifier.changing(everybody=True):
            self.since = since

    def accept_incomplete(self) -> None:
        """Count what was read as complete, although an open transaction hides some records.

        The lock is held.
        """
        self.replay.accept_incomplete()
        if self.starting_over:
            self._show()

    def fail(self, error: Exception) -> None:
        """Stop permanently because of an error."""
        if not self.closed:
            logger.error("reading %s has failed: %s", self.topic, bounded(str(error)))
        with self.notifier.changing(everybody=True):
            self.failure = self.failure or error

    def close(self) -> None:
        """Stop permanently because the reader is no longer needed."""
        self.stop.set()
        with self.notifier.changing(everybody=True):
            pass

    def abandon(self, place: str) -> None:
        """Make the threads end: no one can still use this reader, and no one closed it.

        Python calls this during garbage collection, on any thread and under any lock. So it takes no lock.
        """
        if not self.closed and self.failure is None:
            self.abandoned = place
            warnings.warn(f"unclosed reader of {self.topic}: {place}", ResourceWarning, stacklevel=2)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self.notifier.left_behind()
        self.failure = self.failure or left_behind(f"The reader of {self.topic}")

    @property
    def state(self) -> State:
        """The state of the reader."""
        if self.closed:
            return "closed"
        if self.failure is not None:
            return "failed"
        if self.trouble is not None:
            return "disconnected"
        if self.rewinding:
            return "catching-up"
        if self._away:
            return "catching-up"
        if self.replay.caught_up:
            return "caught-up"
        return "blocked" if self.replay.blocked else "catching-up"

    @property
    def begun(self) -> bool:
        """True once the reading thread has begun."""
        return self.replay.described.id != ""

    @property
    def closed(self) -> bool:
        """True if it was closed, or no one can use it."""
        return self.stop.is_set() or bool(self.abandoned)

    @property
    def trouble(self) -> LVQError | None:
        """The reason why the reader may be stale, or None."""
        return self._trouble.get("reading") or self.gone or self._trouble.get("looking")

    @property
    def silence(self) -> float:
        """Seconds since all partitions' ends were last known."""
        return time.monotonic() - self.heard

    @property
    def starting_over(self) -> bool:
        """True while the table shown is the one from before the reading thread started over."""
        return self.replay.table is not self.table

    @property
    def rewinding(self) -> bool:
        """True if reading did not start where it should, and is about to start again."""
        return self.since is not self.replay.since

    @property
    def _away(self) -> bool:
        """True if this reader was away too long to continue if anything was written meanwhile.

        It then has to start over.
        """
        absence = self.replay.absence
        return absence.away(self.clock()) > max(absence.trusted, PRESENT)

    def check(self) -> None:
        """Raise if there is nothing more to come.

        Raises:
            Closed, ReaderFailed: the reader was closed, or an error stopped it.
            StateError: the reader was not started.
        """
        if self.closed:
            raise Closed(f"The reader of {self.topic} is closed.")
        if not self.begun:
            raise StateError(f"The reader of {self.topic} was not started.", hint="Open it, by `with` for example.")
        if self.failure is not None:
            raise ReaderFailed(
                f"Reading {self.topic} has stopped: {self.failure}", hint="Open a new one when the cause is mended."
            ) from self.failure
