"""What the threads of a follower share: what it shows and what it reads, and what is wrong."""

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
"""How a reader is.

- ``catching-up``: it has not yet read what the log held when it was opened, or was away for longer than the topic keeps
  deletes and has not read anything since.
- ``blocked``: it has read all it may; an open transaction hides the rest of what the log held then.
- ``caught-up``: it has, and follows.
- ``disconnected``: it cannot reach the cluster, tries on by itself, and may be stale meanwhile.
- ``failed``: it has stopped for good; ``failure`` says why.
- ``closed``: it was closed.
"""

Doing = Literal["reading", "looking"]

logger = logging.getLogger("lvq_kafka.follower")


class FollowerState:
    """The shared state of a follower. Nothing here asks the cluster.

    Everything that changes does so in the methods below, which take the lock of ``listeners`` and wake whom the change
    concerns. Others may read the attributes; what has to be of one moment is read under the lock.

    ``replay`` is what is read. ``table`` is what is shown: that of the replay, or when the reading thread has started
    over, that of the one before, until the new one is complete. So nobody is shown a value that is older than one shown
    before, or a gap (G2).

    ``since`` is where to begin to read, within what the log holds. Whoever wants more of it than that says so by
    `rewind`.

    Args:
        clock: seconds, by which absences are judged.
    """

    def __init__(self, topic: str, clock: Callable[[], float] = uptime) -> None:
        self.topic = topic
        self.clock = clock
        self.notifier = ChangeNotifier()
        self.stop = Event()
        self.abandoned = ""  # where it was opened, when nobody can use it any more
        self.failure: Exception | None = None
        self.table: ValueStore = LatestValues()
        self.topic_id = ""  # of the topic that the table was read from
        self.since: Mapping[int, int] = {}
        nothing = TopicDescription(topic, "", 0, 0)
        self.replay = Replay(nothing, self.table, self.since, {}, {}, {}, Absence(DELETE_RETENTION))
        self.gone: LVQError | None = None  # why the reading thread has to start over
        self.gone_since = 0.0
        self.heard = time.monotonic()
        self._trouble: dict[Doing, LVQError] = {}

    # ---------------------------------------------------------------- the reading thread

    def start_reading(self, replay: Replay) -> None:
        """It reads anew from here on."""
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
        """It has read on. What comes too late, after deletes may have gone (R18), is thrown away, and that returned."""
        with self.notifier.changing():
            lapse = self.replay.absence.read(self.clock(), fetch)
            if lapse is not None:
                return lapse
            table = self.replay.table
            keys = table.apply(fetch.batch)
            table.advance(fetch.positions)
            self._trouble.pop("reading", None)
            if not self.starting_over:
                self.notifier.notify(keys)
            self._note_progress()
            return None

    def aim(self, then: float, topic_id: str, stable: Mapping[int, int]) -> None:
        """Having reached its first target, it has asked for the second one."""
        with self.notifier.changing():
            if topic_id == self.replay.described.id:
                self.replay.aim(then, stable)
                self._note_progress()

    def grow(self, partitions: int, added: Mapping[int, int]) -> None:
        """It reads added partitions, too, from these starts."""
        with self.notifier.changing(everybody=True):
            keys = self.replay.table.grow(partitions)
            self.replay.table.advance(added)
            self.replay.absence.track(self.clock(), added)
            if not self.starting_over:
                self.notifier.notify(keys)

    def _note_progress(self) -> None:
        if self.replay.note_progress():
            self._show()

    def _show(self) -> None:
        """Show what was read; after starting over, tell what is another now than before."""
        before, after = self.table, self.replay.table
        self.table, self.topic_id = after, self.replay.described.id
        if before is not after and len(self.notifier):
            self.notifier.notify([key for key in before.keys("in-place") if key not in after])
            self.notifier.notify([key for key in after.keys("tail") if after.record(key) != before.record(key)])

    # ---------------------------------------------------------------- news of the topic

    def observed(
        self, then: float, described: TopicDescription, ends: Mapping[int, int], stable: Mapping[int, int]
    ) -> None:
        """So the topic was then, or later."""
        with self.notifier.changing(everybody=True):
            if described.id != self.replay.described.id:
                return  # the reading thread has found a new topic meanwhile, which these are not of
            self.replay.observed(then, described, ends, stable)
            self.heard = time.monotonic()
            self._trouble.clear()  # nothing comes from a quiet topic that could tell of the reader's recovery

    def keeps(self, retention: float) -> None:
        """The topic keeps deletes for so many seconds."""
        with self.notifier.changing():
            self.replay.absence.keeps(retention)

    @property
    def outdated(self) -> bool:
        """See `Absence.outdated`."""
        return self.replay.absence.outdated(self.clock())

    def asked(self, retention: float) -> None:
        """Asked after an absence, the topic keeps deletes for so many seconds."""
        with self.notifier.changing():
            self.replay.absence.asked(self.clock(), retention)

    def lose(self, error: LVQError, topic_id: str) -> None:
        """What is read of the topic with this id is gone: the reading thread is to start over at its next step.

        Until then this reader may be stale, which it says. Late news of a topic that is read no more change nothing.
        """
        with self.notifier.changing(everybody=True):
            if topic_id == self.replay.described.id:
                self.gone_since = time.monotonic() if self.gone is None else self.gone_since
                self.gone = error

    def lost_touch(self, while_: Doing, error: LVQError) -> None:
        """The cluster does not answer one of the threads, which tries on."""
        if while_ not in self._trouble:
            logger.warning("lost touch with the cluster while reading %s: %s", self.topic, error)
        self._trouble[while_] = error

    # ---------------------------------------------------------------- those who use it

    def rewind(self, since: Mapping[int, int]) -> None:
        """The reading thread is to begin again, from here: more is wanted of the log than was read of it."""
        with self.notifier.changing(everybody=True):
            self.since = since

    def accept_incomplete(self) -> None:
        """Count what was read as complete, though an open transaction hides some. The lock is held."""
        self.replay.accept_incomplete()
        if self.starting_over:
            self._show()

    def fail(self, error: Exception) -> None:
        """Stop for good because of an error."""
        if not self.closed:
            logger.error("reading %s has failed: %s", self.topic, bounded(str(error)))
        with self.notifier.changing(everybody=True):
            self.failure = self.failure or error

    def close(self) -> None:
        """Stop for good because nobody needs it any more."""
        self.stop.set()
        with self.notifier.changing(everybody=True):
            pass

    def abandon(self, place: str) -> None:
        """Nobody can use this reader any more, and nobody has closed it: have its threads end.

        Python calls this wherever it collects garbage, on any thread and below any lock. So it takes none.
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
        """How the reader is."""
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
        """Whether the reading thread has begun."""
        return self.replay.described.id != ""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is of no use to anybody."""
        return self.stop.is_set() or bool(self.abandoned)

    @property
    def trouble(self) -> LVQError | None:
        """Why the reader may be stale."""
        return self._trouble.get("reading") or self.gone or self._trouble.get("looking")

    @property
    def silence(self) -> float:
        """Seconds since the ends of all partitions were last known."""
        return time.monotonic() - self.heard

    @property
    def starting_over(self) -> bool:
        """Whether the table is what it was before the reading thread started over."""
        return self.replay.table is not self.table

    @property
    def rewinding(self) -> bool:
        """Whether what is read did not begin where it should, and the reading thread is about to begin again."""
        return self.since is not self.replay.since

    @property
    def _away(self) -> bool:
        """Whether this reader was away for so long that it has to start over if anything was written meanwhile."""
        absence = self.replay.absence
        return absence.away(self.clock()) > max(absence.trusted, PRESENT)

    def check(self) -> None:
        """Raise when nothing more will come.

        Raises:
            Closed, ReaderFailed: it was closed, or has stopped because of an error.
            StateError: it was not started.
        """
        if self.closed:
            raise Closed(f"The reader of {self.topic} is closed.")
        if not self.begun:
            raise StateError(f"The reader of {self.topic} was not started.", hint="Open it, by `with` for example.")
        if self.failure is not None:
            raise ReaderFailed(
                f"Reading {self.topic} has stopped: {self.failure}", hint="Open a new one when the cause is mended."
            ) from self.failure
