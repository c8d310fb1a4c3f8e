"""Catching up: how far a reader of a topic has got, and the state that it reports.

A read of a topic has two targets. The first is the end of the log when the read began. A reader that has reached it
asks for the last stable offset and reads on to that one: a value below the first target may have been replaced, and
compacted away, before it was read. Its replacement is committed, and lies below the second target.

Meanwhile the cluster may stop answering, or records may be gone from the log. `TRANSITIONS` defines the effect of each
event on the stage of a read and on such troubles, and `LADDER` the state that a reader is in.
docs/maintainers/architecture.md shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.fold import Changes, LatestValues
from lvq_kafka.core.latest.replay import ReadStage, Replay
from lvq_kafka.core.latest.value_store import ValueStore
from lvq_kafka.core.log.absence import PRESENT, Absence
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION
from lvq_kafka.core.timing.log_time import LogTime
from lvq_kafka.errors import Closed, LVQError, ReaderFailed, StateError

__all__ = [
    "LADDER",
    "TRANSITIONS",
    "AsFarAsAllowed",
    "CatchUp",
    "ReadEvent",
    "ReaderStatus",
    "State",
    "Trouble",
]

State = Literal["catching-up", "stale", "caught-up", "blocked", "disconnected", "failed", "closed"]
"""The state of a reader.

- ``catching-up``: it has not yet read everything that the log held when it was opened, or it was away for longer than
  the topic keeps deletes and has not read anything since.
- ``stale``: it reads the topic again, and shows what it held before, or what an earlier process left in its store,
  until that is complete.
- ``blocked``: it has read all it may; an open transaction hides the other records that the log held at that time.
- ``caught-up``: it has read everything that the log held at that time, and follows.
- ``disconnected``: it cannot reach the cluster, or write its store, or the writer of the store that it is attached to
  does not report; ``trouble`` tells which. It keeps retrying by itself, and may be stale meanwhile.
- ``failed``: it has stopped permanently; ``failure`` is the reason.
- ``closed``: it was closed.
"""

_MARKERS = 0.4  # seconds for a decided transaction's markers to reach all its partitions


class Trouble(StrEnum):
    """A reason why a reader may be stale. Of several, the first one listed here counts."""

    OTHER_QUEUE = "other queue"
    """The queue was dropped, and another one has its name: nothing more is read until it is opened again (R39)."""
    WRITER = "writer"
    """The process that writes the store does not report any more (R41)."""
    NO_ANSWER = "no answer"
    """The cluster does not answer the thread that reads."""
    STALLED = "stalled"
    """A partition has records that polls do not return: its leader may be cut off."""
    GONE = "gone"
    """Records read, or due next, are no longer in the log: the reader must start over."""
    NO_METADATA = "no metadata"
    """The cluster does not answer the thread that observes the topic."""
    STORE = "store"
    """The store cannot be written, so that everything else has to wait (R40)."""
    UNSURE = "unsure"
    """Nobody could look for too long whether the queue was altered: what is read has to wait (R39)."""


class ReadEvent(StrEnum):
    """An event in the course of reading a topic."""

    START = "start"
    """A read of all partitions begins."""
    READ = "read"
    """The positions have moved."""
    REACH = "reach"
    """The target is reached."""
    AIM = "aim"
    """The second target is known."""
    OBSERVE = "observe"
    """The topic was described, and the ends of its log are known."""


class Transition(NamedTuple):
    """The effect of an event."""

    stages: Mapping[ReadStage | None, ReadStage]
    """The next stage, by stage; None stands for a read that has not begun. Stages not listed stay as they are."""
    ends: frozenset[Trouble] = frozenset()
    """The troubles that are over."""


TRANSITIONS: Mapping[ReadEvent, Transition] = MappingProxyType(
    {
        ReadEvent.START: Transition(
            {None: ReadStage.FIRST_TARGET}, frozenset({Trouble.NO_ANSWER, Trouble.STALLED, Trouble.GONE})
        ),
        ReadEvent.READ: Transition({}, frozenset({Trouble.NO_ANSWER})),
        ReadEvent.REACH: Transition(
            {ReadStage.FIRST_TARGET: ReadStage.BETWEEN_TARGETS, ReadStage.SECOND_TARGET: ReadStage.CAUGHT_UP}
        ),
        ReadEvent.AIM: Transition({ReadStage.BETWEEN_TARGETS: ReadStage.SECOND_TARGET}),
        # On a quiet topic, no record would show that the reader recovered.
        ReadEvent.OBSERVE: Transition({}, frozenset({Trouble.NO_ANSWER, Trouble.NO_METADATA})),
    }
)
"""The effect of each event on the stage and on the troubles."""


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """The status of a reader at one moment."""

    state: State
    failure: Exception | None
    """The error that stopped it permanently, or None."""
    trouble: LVQError | None
    """The reason why it may be stale, or None."""
    lag_by_partition: dict[int, int]
    """The offsets left to the end of the log, by partition, as of the last check of the topic."""
    progress: tuple[int, int]
    """Offsets read, and total offsets to read until caught up."""
    blocked_by: list[Shortfall]
    """The partitions where an open transaction hides records, as of the last check."""
    silence: float
    """Seconds since the last answered request for the ends of all partitions.

    Without lag, no record that was acknowledged before that request is missing.
    """
    clock_behind: float = 0.0
    """Seconds by which this machine's clock was behind the newest append time, when they were last compared.

    The time of the log then counts, at most an hour ahead of the clock. Always 0 if messages neither expire nor are
    scheduled.
    """

    @property
    def lag(self) -> int:
        """The offsets left to the end of the log, as of the last check of the topic."""
        return sum(self.lag_by_partition.values())


class CatchUp:
    """The state of one reader of a topic: its read, its values, and its troubles.

    ``replay`` is the read in progress, and ``values`` the store that the reader shows: that of the replay or, after
    starting over, that of the previous read until the new one is complete. So no caller sees a gap, or a value older
    than one shown before (G2).

    ``since`` holds the positions to read from, within the bounds of the log. To read from further back, use `rewind`.

    Methods that return keys return the keys whose shown value may have changed. Not thread-safe, but attributes may be
    read at any time; `status` and `check` rely on that.

    Args:
        topic: its name, for errors.
        now: the time in seconds, as in all methods that take one. It includes the time for which a machine sleeps.
        timed: whether messages expire, or may be scheduled.
    """

    def __init__(self, topic: str, now: float, *, timed: bool = False) -> None:
        self._topic = topic
        self.values: ValueStore = LatestValues()
        self.topic_id = ""  # of the topic that ``values`` were read from
        self.since: Mapping[int, int] = {}
        absence = Absence(DELETE_RETENTION)
        self.replay = Replay("", 0, self.values, self.since, starts={}, ends={}, stable={}, absence=absence)
        self.gone_since = 0.0
        self.heard = now
        self.closed = False
        self.failure: Exception | None = None
        self.open = False
        """True while reading may continue: `check` would not raise."""
        self.troubles: dict[Trouble, LVQError] = {}
        self.overdue = False
        """True if partitions had stalled when the topic was last observed."""
        self._serving = False  # values that an earlier process left
        self._stalled: dict[int, int] = {}  # the positions of the partitions that are in trouble
        self.time = LogTime() if timed else None
        """The time by which messages are due and expire; None if time does not matter to messages."""

    def _note(self, event: ReadEvent) -> bool:
        """Follow the table; return whether the read has just caught up."""
        replay, (stages, ends) = self.replay, TRANSITIONS[event]
        for trouble in ends:
            self.troubles.pop(trouble, None)
        before, replay.stage = replay.stage, stages.get(replay.stage, replay.stage)
        return replay.caught_up and before is not replay.stage

    # ---------------------------------------------------------------- reading

    def start(self, now: float, replay: Replay) -> Iterable[bytes]:
        """Begin a new read, whose ends were asked for at ``now`` or later."""
        first = not self.begun
        self.replay = replay
        self._note(ReadEvent.START)
        self.heard = now
        self._stalled = {}
        self.open = not self.closed and self.failure is None
        if first and not self._serving:
            self.values, self.topic_id = replay.values, replay.topic_id  # there is nothing to compare it with
        return self._note_progress()

    def serve(self, values: ValueStore, topic_id: str) -> None:
        """Show the values that an earlier process left, until the first read is complete (R40)."""
        self.values, self.topic_id, self._serving = values, topic_id, True

    def exchange(self, values: ValueStore, same: ValueStore) -> None:
        """Put another store in the place of one.

        It holds the same, except for changes that could not be written.
        """
        if self.values is values:
            self.values = same
        if self.replay.values is values:
            self.replay.values = same

    def written(self) -> None:
        """Note that what was read could be written to the store."""
        self.troubles.pop(Trouble.STORE, None)

    def apply(self, fetch: Fetch) -> Iterable[bytes]:
        """Apply a fetch that `Absence.read` has accepted."""
        values = self.replay.values
        keys = values.apply(fetch.batch)
        values.progress.advance(fetch.positions)
        self._note(ReadEvent.READ)
        if self._stalled:
            positions = values.progress.positions
            self._stalled = {p: position for p, position in self._stalled.items() if positions[p] == position}
            if not self._stalled:
                self.troubles.pop(Trouble.STALLED, None)
        return self._note_progress(keys)

    def pass_time(self, clock: float, first: bytes | None = None) -> Changes | None:
        """Apply some of the changes that are due by now. Call again until it returns None.

        Args:
            clock: the machine's time, in seconds since the epoch.
            first: a key to which all due changes are applied.
        """
        assert self.time is not None
        now = self.time.advance(clock)
        unseen = self.replay.values.pass_time(now) if self.starting_over else None
        shown = self.values.pass_time(now, first)
        self._rewinds_if_needed()
        return Changes() if shown is None and unseen is not None else shown

    def aim(self, then: float, topic_id: str, stable: Mapping[int, int]) -> Iterable[bytes]:
        """Set the second target, the last stable offsets, which were requested at ``then``."""
        replay = self.replay
        if topic_id != replay.topic_id:
            return ()
        replay.targets = replay.stable = stable
        replay.absence.ended(then, stable)
        self._note(ReadEvent.AIM)
        return self._note_progress()

    def grow(self, now: float, partitions: int, added: Mapping[int, int]) -> Iterable[bytes]:
        """Add partitions, to be read from these starts."""
        replay = self.replay
        keys = replay.values.grow(partitions)
        replay.values.progress.advance(added)
        replay.absence.track(now, added)
        self._rewinds_if_needed()
        return () if self.starting_over else keys

    def _note_progress(self, keys: Iterable[bytes] = ()) -> Iterable[bytes]:
        """Note that the read may have reached its target; return the changed keys to report."""
        replay = self.replay
        keys = () if self.starting_over else keys
        if self._rewinds_if_needed():
            return keys
        aiming = replay.stage in TRANSITIONS[ReadEvent.REACH].stages
        if aiming and replay.values.progress.reached(replay.targets) and self._note(ReadEvent.REACH):
            return self._show() or keys
        self._rewinds_if_needed()
        return keys

    def _rewinds_if_needed(self) -> bool:
        """Rewind if the store needs another read; return whether it does.

        It does not rewind before the first target: by then, the store has noted all keys that require another read.
        """
        if not self.replay.values.needs_reread or self.replay.stage is ReadStage.FIRST_TARGET:
            return False
        self.rewind(dict(self.since))
        return True

    def _show(self) -> Iterable[bytes]:
        """Show the values of the replay. Return the keys that differ, as they are found."""
        before, after = self.values, self.replay.values
        while self.time is not None and after.pass_time(self.time.now) is not None:
            pass  # it is compared and shown as a whole
        self.values, self.topic_id = after, self.replay.topic_id
        return () if before is after else _differences(before, after)

    def accept(self) -> Iterable[bytes]:
        """Count the read as complete, although an open transaction hides some records."""
        self.replay.accepted = True
        return self._show() if self.starting_over else ()

    # ---------------------------------------------------------------- news

    def observe(
        self,
        now: float,
        then: float,
        topic_id: str,
        partitions: int,
        ends: Mapping[int, int],
        stable: Mapping[int, int],
    ) -> None:
        """Record an observation of the topic, made at ``then`` or later."""
        replay = self.replay
        if topic_id != replay.topic_id:
            return  # stale: the reading thread has since found a new topic
        replay.partitions, replay.ends, replay.stable = partitions, ends, stable
        replay.absence.ended(then, stable)
        self.heard = then
        self.overdue = bool(self.stalled(now))
        self._note(ReadEvent.OBSERVE)

    def lose(self, now: float, error: LVQError, topic_id: str) -> None:
        """Note that records are gone from the log, so that reading has to start over.

        Ignores late news about a topic that is no longer read.
        """
        if topic_id == self.replay.topic_id:
            self.gone_since = now if self.gone is None else self.gone_since
            self.troubles[Trouble.GONE] = error

    def stalled(self, now: float) -> dict[int, int]:
        """Return the positions of stalled partitions; see `Absence.stalled`."""
        return self.replay.absence.stalled(now)

    def stall(self, now: float, error: LVQError) -> None:
        """Note that polls returned no records of stalled partitions.

        The trouble lasts until all of them have moved. They are about to get another connection.
        """
        self._stalled, self.overdue = self.stalled(now), False
        self.replay.absence.try_again(now)
        self.lose_touch(Trouble.STALLED, error)

    def lose_touch(self, trouble: Trouble, error: LVQError) -> bool:
        """Note that the cluster does not answer; return whether it did until now."""
        first = trouble not in self.troubles
        self.troubles[trouble] = error
        return first

    def is_sure(self) -> None:
        """Note that all alterations of the queue are known."""
        self.troubles.pop(Trouble.UNSURE, None)
        self.troubles.pop(Trouble.OTHER_QUEUE, None)

    def heed_time(self) -> None:
        """Note that messages expire from now on, or may be scheduled."""
        self.time = self.time or LogTime()

    def rewind(self, since: Mapping[int, int]) -> None:
        """Read again from these earlier positions."""
        self.since = since

    def fail(self, error: Exception) -> None:
        """Stop permanently because of an error; the first one counts."""
        self.failure = self.failure or error
        self.open = False

    def close(self) -> None:
        """Stop permanently because the reader is no longer needed. A finalizer may call it."""
        self.closed = True
        self.open = False

    # ---------------------------------------------------------------- status

    @property
    def begun(self) -> bool:
        """True once a read has begun."""
        return self.replay.topic_id != ""

    @property
    def starting_over(self) -> bool:
        """True while the values shown are those from before reading started over."""
        return self.replay.values is not self.values

    @property
    def rewinding(self) -> bool:
        """True if the read started at other positions than requested, and is about to restart."""
        return self.since is not self.replay.since

    @property
    def gone(self) -> LVQError | None:
        """The reason to start over, or None."""
        return self.troubles.get(Trouble.GONE)

    @property
    def trouble(self) -> LVQError | None:
        """The reason why the reader may be stale, or None."""
        return next(filter(None, map(self.troubles.get, Trouble)), None)

    def away(self, now: float) -> bool:
        """Return whether the reader has to start over if anything was written meanwhile (R18)."""
        away = self.replay.absence.away(now)
        return away > PRESENT and away > self.replay.absence.trusted

    def state(self, now: float) -> State:
        """Return the state: that of the first rung of the `LADDER` that holds."""
        for rung in LADDER:
            if rung.holds(self, now):
                return rung.state
        raise AssertionError("The last rung always holds.")

    def status(self, now: float) -> ReaderStatus:
        """Return the status. Any thread may call it at any time."""
        replay = self.replay
        positions = replay.values.progress.positions
        lag = {p: max(0, end - positions.get(p, 0)) for p, end in sorted(replay.ends.items())}
        return ReaderStatus(
            state=self.state(now),
            failure=self.failure,
            trouble=self.trouble,
            lag_by_partition=lag,
            progress=replay.progress,
            blocked_by=replay.hidden,
            silence=now - self.heard,
            clock_behind=0.0 if self.time is None else self.time.behind / 1000,
        )

    def check(self) -> None:
        """Raise if reading has stopped.

        Raises:
            Closed, ReaderFailed: the reader was closed, or an error stopped it.
            StateError: the reader was not started.
        """
        if self.open:
            return
        if self.closed:
            raise Closed(f"The reader of {self._topic} is closed.")
        if not self.begun:
            raise StateError(
                f"The reader of {self._topic} was not started.", hint="Open it, for example in a `with` block."
            )
        if self.failure is not None:
            raise ReaderFailed(
                f"Reading {self._topic} has stopped: {self.failure}", hint="Fix the cause and open a new one."
            ) from self.failure


class Rung(NamedTuple):
    """A rung of the ladder: the state of a reader for which it holds, and no rung above."""

    state: State
    when: str
    holds: Callable[[CatchUp, float], object]


LADDER = (
    Rung("closed", "it was closed", lambda reader, now: reader.closed),
    Rung("failed", "an error stopped it", lambda reader, now: reader.failure is not None),
    Rung("disconnected", "there is trouble", lambda reader, now: reader.troubles),
    Rung("catching-up", "it is about to start further back", lambda reader, now: reader.rewinding),
    Rung("catching-up", "it was away too long (R18)", lambda reader, now: reader.away(now)),
    Rung("caught-up", "both targets are reached", lambda reader, now: reader.replay.caught_up),
    Rung("blocked", "open transactions hide all that is missing", lambda reader, now: reader.replay.blocked),
    Rung("stale", "it reads again, and shows what was read before", lambda reader, now: reader.starting_over),
    Rung("catching-up", "otherwise", lambda reader, now: True),
)
"""The states of a reader. The first rung that holds counts."""


class AsFarAsAllowed:
    """The goal of a wait that stops at open transactions.

    A commit is acknowledged before its markers are in all partitions, so a transaction counts as open only if it is
    still open a moment later. Everything committed until then is read, for the same reason that a read has two targets.
    """

    def __init__(self, reader: CatchUp) -> None:
        self._reader = reader
        self._replay = reader.replay
        self._blocked_since: float | None = None
        self._allowed: Mapping[int, int] | None = None

    def reached(self, now: float) -> bool:
        """Return whether the reader is caught up, or as far as open transactions allow."""
        reader, replay = self._reader, self._reader.replay
        if reader.rewinding:
            return False
        if replay is not self._replay:  # the topic was recreated or truncated
            self._replay, self._blocked_since, self._allowed = replay, None, None
        if replay.complete:
            return True
        if self._blocked_since is None:
            self._blocked_since = now if reader.state(now) == "blocked" else None
        elif self._allowed is None:
            self._allowed = replay.stable if reader.heard > self._blocked_since + _MARKERS else None
        return self._allowed is not None and replay.values.progress.reached(self._allowed)


def _differences(before: ValueStore, after: ValueStore) -> Iterator[bytes]:
    """Yield the keys that have disappeared, then those whose record has changed."""
    yield from [key for key in before.table.keys("in-place") if key not in after.table]
    yield from [key for key in after.table.keys("tail") if after.table.record(key) != before.table.record(key)]
