"""The state of a store's writer by its reports, and of readers that go by these (R41)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lvq_kafka.core.latest.catch_up import CatchUp, ReaderStatus, State, Trouble
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.latest.footing import ClockReading
from lvq_kafka.core.latest.replay import ReadStage, Replay
from lvq_kafka.core.latest.value_store import ValueStore
from lvq_kafka.core.log.absence import Absence
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION
from lvq_kafka.errors import LVQError, StoreFailed

__all__ = ["BEAT", "Report", "ReportedCatchUp"]

BEAT = 1.0
"""Seconds between two reports of a writer that has nothing else to write."""

_SILENT = 5.0  # seconds after the last report when its writer counts as dead: a busy machine may be late


@dataclass(frozen=True, slots=True)
class Report:
    """The state of the writer of a store at a commit."""

    beat: ClockReading
    """When it was made."""
    ended: str | None
    """Why the writer has ended; empty if it was closed, None while it goes on."""
    shown_topic: str
    """The id of the topic that the values of the store were read from."""
    shown: Mapping[int, int]
    """The positions up to which the values go."""
    shown_partitions: int
    newest: int
    """The newest append time that was seen, in ms."""
    behind: int
    """See `LogTime.behind`."""
    starting_over: bool
    """Whether the read in progress is not the one that the values are of."""
    rewinding: bool
    away: bool
    troubles: Mapping[str, str]
    """The troubles of the writer, each with its reason."""
    heard: float
    """The uptime, in seconds, at the last answered request for the ends of all partitions."""
    topic_id: str
    """The fields from here on are those of the `Replay` in progress."""
    partitions: int
    positions: Mapping[int, int]
    starts: Mapping[int, int]
    targets: Mapping[int, int]
    ends: Mapping[int, int]
    stable: Mapping[int, int]
    stage: str | None
    accepted: bool

    @classmethod
    def of(cls, reader: CatchUp, beat: ClockReading, ended: str | None = None) -> Report:
        """Return the report of a writer.

        Args:
            reader: its state.
            beat: the time.
            ended: why it ends; empty if it is closed, None if it goes on.
        """
        values, replay, time = reader.values, reader.replay, reader.time
        return cls(
            beat=beat,
            ended=ended,
            shown_topic=reader.topic_id,
            shown=values.progress.positions,
            shown_partitions=values.table.partitions,
            newest=0 if time is None else time.newest,
            behind=0 if time is None else time.behind,
            starting_over=reader.starting_over,
            rewinding=reader.rewinding,
            away=reader.away(beat.uptime),
            troubles={trouble.value: str(error) for trouble, error in list(reader.troubles.items())},
            heard=reader.heard,
            topic_id=replay.topic_id,
            partitions=replay.partitions,
            positions=replay.values.progress.positions,
            starts=replay.starts,
            targets=replay.targets,
            ends=replay.ends,
            stable=replay.stable,
            stage=None if replay.stage is None else replay.stage.value,
            accepted=replay.accepted,
        )

    def to_note(self) -> bytes:
        """Return it as bytes."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}  # `asdict` would copy all of it
        return json.dumps({**said, "beat": asdict(self.beat)}, separators=(",", ":")).encode()

    @classmethod
    def from_note(cls, note: bytes) -> Report:
        """Parse the result of `to_note`."""
        said: dict[str, Any] = json.loads(note)
        for name in ("shown", "positions", "starts", "targets", "ends", "stable"):
            said[name] = {int(partition): offset for partition, offset in said[name].items()}
        return cls(**{**said, "beat": ClockReading(**said["beat"])})


class ReportedCatchUp(CatchUp):
    """The state of a reader that shows what another process has read.

    It is that of the writer, as long as that reports.

    Args:
        place: the directory of the store, for errors.
        now: the uptime in seconds, as in all methods that take a time.
        boot: the id of this start of the system.
    """

    def __init__(self, place: str, now: float, *, boot: str) -> None:
        super().__init__(place, now, timed=True)
        self._boot = boot
        self._place = place
        self._report: Report | None = None
        self._own: dict[Trouble, LVQError] = {}

    def name(self, topic: str) -> None:
        """Say which topic it is, which was unknown."""
        self._topic = topic

    def show(self, now: float, values: ValueStore, report: Report) -> None:
        """Show these values, and go by the report that came with them."""
        self._report = report
        self.values, self.topic_id = values, report.shown_topic
        if report.starting_over:
            read: ValueStore = LatestValues()
            read.progress.advance(report.positions)
        else:
            read = values
        self.replay = Replay(
            topic_id=report.topic_id,
            partitions=report.partitions,
            values=read,
            since={} if report.rewinding else self.since,
            starts=report.starts,
            ends=report.ends,
            stable=report.stable,
            absence=Absence(DELETE_RETENTION),
            stage=None if report.stage is None else ReadStage(report.stage),
            accepted=report.accepted,
        )
        self.replay.targets = report.targets
        self.heard = report.heard
        if self.time is not None:
            self.time.saw(report.newest)
        self.open = not self.closed and self.failure is None
        self._own.clear()
        self.listen(now)

    def lose_touch(self, trouble: Trouble, error: LVQError) -> bool:
        """Note a trouble of this process; return whether it is new."""
        first = trouble not in self._own
        self._own[trouble] = error
        self.troubles = {**self.troubles, **self._own}
        return first

    def listen(self, now: float) -> bool:
        """Note whether the writer still reports; return whether its troubles have changed."""
        report, before = self._report, self.troubles
        if report is None:
            return False
        troubles: dict[Trouble, LVQError] = {Trouble(kind): LVQError(text) for kind, text in report.troubles.items()}
        why = _why_silent(report, now, self._boot)
        if why is not None:
            troubles[Trouble.WRITER] = StoreFailed(
                f"The writer of the store {self._place} {why}.",
                path=self._place,
                hint="Start it again: a view with this store, or `lvq hold`; this reader goes on by itself.",
            )
        self.troubles = {**troubles, **self._own}
        return set(before) != set(self.troubles)

    def away(self, now: float) -> bool:
        """See `CatchUp.away`."""
        return self._report is not None and self._report.away

    def state(self, now: float) -> State:
        """Return the state, after a check that the writer still reports."""
        self.listen(now)
        return super().state(now)

    def status(self, now: float) -> ReaderStatus:
        """Return the status. Any thread may call it at any time."""
        self.listen(now)
        return super().status(now)


def _why_silent(report: Report, now: float, boot: str) -> str | None:
    """Return in words that a writer does not report any more; None if it does."""
    if report.ended is not None:
        return f"has failed: {report.ended}" if report.ended else "was closed"
    if report.beat.boot != boot:
        return "has not been started since the system was"
    age = now - report.beat.uptime
    if age < -BEAT:  # the clocks of two time namespaces cannot be compared
        return "has another clock than this process"
    return None if age <= _SILENT else f"is dead or stands still: it reported {age:.0f} s ago"
