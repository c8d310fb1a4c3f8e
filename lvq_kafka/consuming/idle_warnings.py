"""Reports of the reasons, other than an empty queue, why a consumer is idle.

The reason is logged once, and shown in the consumer's stats for as long as it lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from lvq_kafka.consuming.group_monitor import Observation
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.consumer.obstacles import STANDBY_REMEDY, standby_report, standing_by
from lvq_kafka.core.text.quoting import listed
from lvq_kafka.runtime.notice import Notice
from lvq_kafka.runtime.unclosed import Unclosed

__all__ = ["IdleWarnings"]

logger = logging.getLogger("lvq_kafka.consumer")

_TURN = 0.25  # seconds between checks
_PARTITIONLESS = 5.0  # seconds; a member that joins a stable group has its partitions sooner
_UNCOUNTED = LEASE + 2.0  # seconds; a commit sent when the lease expired has been answered sooner
_UNANSWERED = 3.0  # seconds
_BLOCKED = 5.0  # seconds; healthy transactions end sooner
_STUCK = 10.0  # seconds
_UNSETTLED = 30.0  # seconds
_NAMED = 3  # consumers listed by name
_FULL_TEXT = 2.0  # seconds; messages in work may all be settled in a moment


class _IdleCause:
    """A reason for handing nothing out, reported once it has lasted for some seconds.

    Args:
        seconds: how long it must last.
        says: takes the seconds that the cause has lasted; returns the report if it applies, else an empty string.
    """

    def __init__(self, seconds: float, says: Callable[[float], str]) -> None:
        self._seconds = seconds
        self._says = says
        self._since: float | None = None
        self.notice = Notice()

    def check(self, now: float) -> str:
        """Return the report, if any."""
        if not self._says(0.0):
            self._since = None
            self.notice.ends()
            return ""
        self._since = now if self._since is None else self._since
        lasted = now - self._since
        return self._says(lasted) if lasted >= self._seconds else ""


class _Place(NamedTuple):
    """The consumer's position in a partition when checked, with more in the log."""

    position: int
    stable: int
    end: int
    since: float


class IdleWarnings:
    """Checks a consumer periodically, and reports why it is idle or that its commits are full.

    None of this is an error: a spare consumer waits for the partitions of others, work may take its time, and acks that
    do not fit are safe in memory. But without a log line, someone who starts one consumer too many, or forgets to
    settle, just sees messages stop; and someone who never rejects a message that always fails just sees messages
    redelivered.

    To add a cause, add an `_IdleCause`. The stats show the first one that applies.
    """

    def __init__(self, name: str, shared: SharedState, now: float, unclosed: Unclosed) -> None:
        self._name = name
        self._unclosed = unclosed
        self._shared = shared
        self._core = shared.core
        self._now = now
        self._next = now
        self._observation: Observation | None = None
        self._places: dict[int, _Place] = {}
        self._full_text = _IdleCause(_FULL_TEXT, lambda _: self._full_text_report())
        self._delivered = -1
        self._causes = (
            _IdleCause(_PARTITIONLESS, self._partitionless),
            _IdleCause(0.0, self._unanswered),
            _IdleCause(_UNCOUNTED - LEASE, self._uncounted),
            _IdleCause(0.0, self._blocked),
            _IdleCause(0.0, self._stuck),
            _IdleCause(_UNSETTLED, self._unsettled),
            _IdleCause(_UNSETTLED, self._kept_for_others),
        )

    def saw(self, now: float, observation: Observation) -> None:
        """Record the result of a check of the topic and the group."""
        self._observation = observation
        places: dict[int, _Place] = {}
        for partition, position in self._positions.items():
            end, stable = observation.ends.get(partition, 0), observation.stable.get(partition, 0)
            if position < end:
                before = self._places.get(partition)
                stays = before is not None and before.position == position
                places[partition] = _Place(position, stable, end, before.since if stays and before else now)
        self._places = places

    def check(self, now: float) -> None:
        """Check all causes. ``now`` is in seconds of a clock that never moves back."""
        if now < self._next:
            return
        self._now, self._next = now, now + _TURN
        found = ""
        for cause, said in [(cause, cause.check(now)) for cause in self._causes]:
            if said and not found:
                found = said
                # In trouble, it follows from failures that were logged.
                if not self._core.obstacles.in_trouble and cause.notice.begins():
                    logger.warning("the consumer of %s stands still: %s", self._name, said)
        self._delivered = self._core.ledger.stats.delivered
        self._core.obstacles.idle = found
        self._core.stands_by = self._stands_by
        report = self._full_text.check(now)
        if report and self._full_text.notice.begins():
            logger.warning("the consumer of %s: %s", self._name, report)

    @property
    def _positions(self) -> dict[int, int]:
        with self._shared as core:
            return core.ledger.assignment.positions

    # ---------------------------------------------------------------- causes

    def _full_text_report(self) -> str:
        if not self._core.text_is_full:
            return ""
        with self._shared as core:
            return core.full_text_report

    def _partitionless(self, lasted: float) -> str:
        if self._core.partitions:
            return ""
        observation = self._observation
        if observation is not None and self._stands_by:
            report = standby_report(observation.members, len(observation.ends))
            return (
                f"it has no partition ({report}), since a partition has one consumer at a time. It takes over when "
                f"another one leaves. {self._here}A member that died counts until its session times out. "
                f"{STANDBY_REMEDY}"
            )
        return (
            f"it has had no partition for {lasted:.0f} s: the group is rebalancing. That takes as long as its "
            "slowest member or, if one has died, until its session times out (session.timeout.ms)"
        )

    @property
    def _stands_by(self) -> bool:
        """True while there are more consumers than partitions, and this one has none."""
        seen = self._observation
        return seen is not None and not self._core.partitions and standing_by(seen.members, len(seen.ends)) > 0

    @property
    def _here(self) -> str:
        """A sentence that names the other consumers of this process, which could be closed."""
        others = [str(other) for other in self._unclosed.others]
        return f"In this process there is {listed(others, _NAMED)}: close any that are not in use. " if others else ""

    def _unanswered(self, _: float) -> str:
        waiting = self._core.unanswered(self._shared.clock())
        if waiting < _UNANSWERED:
            return ""
        return (
            f"the group has not answered a commit for {waiting:.0f} s, and no other is sent until it does: the group "
            "is rebalancing, or its coordinator does not answer. Check the brokers, and whether a member has died"
        )

    def _uncounted(self, lasted: float) -> str:
        if not self._core.hand_out.is_suspended(self._shared.clock()):
            return ""
        return (
            f"the group has accepted no commit for {LEASE + lasted:.0f} s, so others may have its messages by now: "
            "the group is rebalancing, or its coordinator does not answer. Check the brokers, and whether a member "
            "has died"
        )

    def _blocked(self, _: float) -> str:
        for partition, place in self._still(_BLOCKED):
            if place.position == place.stable:
                return (
                    f"a transaction open since offset {place.stable} has hidden later records in partition "
                    f"{partition} for {self._now - place.since:.0f} s. Commit or abort it, or wait for its timeout; "
                    "kafka-transactions.sh finds it"
                )
        return ""

    def _stuck(self, _: float) -> str:
        for partition, place in self._still(_STUCK):
            if place.position < place.stable:
                return (
                    f"reading partition {partition} makes no progress: it has been at offset {place.position} of "
                    f"{place.end} for {self._now - place.since:.0f} s. Check whether its leader can be reached from "
                    "here"
                )
        return ""

    def _still(self, seconds: float) -> list[tuple[int, _Place]]:
        """Return the partitions whose position has stayed the same for ``seconds``, up to now."""
        places = [(p, place) for p, place in self._places.items() if self._now - place.since >= seconds]
        if not places:
            return []
        positions = self._positions
        return [(partition, place) for partition, place in places if positions.get(partition) == place.position]

    def _unsettled(self, _: float) -> str:
        core = self._core
        if not (core.hand_out.is_full and self._delivered == core.ledger.stats.delivered):
            return ""
        return (
            f"all {core.hand_out.limits.max_in_work} messages that may be in work (max_in_work) are held, and none "
            f"has been settled for {_UNSETTLED:g} s. Settle each: ack, release or reject it, or handle it in a with "
            "block"
        )

    def _kept_for_others(self, _: float) -> str:
        if self._delivered != self._core.ledger.stats.delivered:
            return ""
        groups, sessions = self._shared.kept_from_waiters
        if not groups:
            return ""
        return (
            f"all that waits is in message groups of other sessions than those that wait: {groups} groups of "
            f"{sessions} sessions, none of which has acquired anything for {_UNSETTLED:g} s. Each thread that acquires "
            "is a session until it ends. Acquire in those, close sessions that are no longer in use, or declare "
            "shared groups"
        )
