"""Obstacles to a consumer's progress, and their remedies, in words for people.

Among them are a full commit text, and more consumers than partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lvq_kafka.core.consumer.commits import Omitted
from lvq_kafka.core.ledger.assignment import Assignment

__all__ = [
    "FULL_TEXT_REMEDY",
    "STANDBY_REMEDY",
    "Doing",
    "Obstacles",
    "full_text_report",
    "standby_report",
    "standing_by",
]

Doing = Literal["reading", "watching", "committing", "transacting", "rejecting", "expiring", "reclaiming", "paging"]
"""An activity of a consumer that may fail.

Its thread reads, watches for alterations of the queue, and commits. The others are transactions, dead letters, letters
of expired messages, reclaiming, and paging.
"""

_ASIDE: frozenset[Doing] = frozenset(("rejecting", "expiring", "reclaiming", "paging"))
"""Activities whose failures do not stop the flow of messages."""


class Obstacles:
    """The current failures, and problems that are not failures.

    Activities are tracked separately: incoming messages do not prove that commits are stored.
    """

    def __init__(self) -> None:
        self.idle = ""
        """Why nothing is handed out although the cluster answers; empty if nothing is wrong."""
        self._trouble: dict[Doing, str] = {}  # why the last attempt failed

    def report(self, doing: Doing, error: str) -> bool:
        """Record that an activity fails. Return whether it is the only trouble with messages."""
        first = self._trouble.keys() <= _ASIDE
        self._trouble[doing] = error
        return first

    def clear(self, *doings: Doing) -> None:
        """Record that these activities succeed."""
        for doing in doings:
            self._trouble.pop(doing, None)

    def of(self, doing: Doing) -> str:
        """Return why an activity fails; empty if it does not."""
        return self._trouble.get(doing, "")

    @property
    def in_trouble(self) -> bool:
        """True if the last attempt to read or to commit failed."""
        return not self._trouble.keys().isdisjoint(("reading", "watching", "committing"))

    def __str__(self) -> str:
        aside = [said for doing, said in self._trouble.items() if doing in _ASIDE]
        told = [said for doing, said in self._trouble.items() if doing not in _ASIDE] + aside
        return next(iter(told), "") or self.idle


FULL_TEXT_REMEDY = (
    "Remove messages that always fail with max_deliveries and dead_letters, add partitions, or raise the brokers' "
    "offset.metadata.max.bytes."
)
"""Advice for a full commit text."""

_RANK_REMEDY = "Until then, consume faster, so that fewer messages wait."
_SCHEDULED_REMEDY = "Scheduled messages stay in the text until they are due: schedule fewer of them, or less far ahead."


def full_text_report(
    assignment: Assignment, omitted: Mapping[int, Omitted], window: int | None, *, strict: bool, evicts: bool
) -> str:
    """Describe the parts that do not fit into a consumer's commit text; empty if all fit.

    Args:
        omitted: by partition, the parts that did not fit into any commit.
        window: the number of offsets within which the order of ranks is exact; None in the order of arrival.
        strict: whether messages wait for room in any case, as in transactions.
        evicts: whether messages may be done without an ack, since the queue is a ring.
    """
    full = {partition: _consequences(missing, evicts) for partition, missing in omitted.items()}
    still = assignment.standing_still
    for partition, gated in assignment.gated_in.items():
        if strict and (window is None or partition in still):
            full.setdefault(partition, []).append(
                f"{gated:,} messages wait, because a transaction could not commit them"
            )
        elif partition in still:
            full.setdefault(partition, []).append(f"{gated:,} messages wait for those that have room, or are in work")
    told = [
        f"the commit text of partition {partition} is full: {' and '.join(consequences)}, until lower messages are "
        f"settled{_in_the_way(assignment, partition)}"
        for partition, consequences in full.items()
    ]
    remedy = FULL_TEXT_REMEDY
    overtaken = [] if window is None else [partition for partition in assignment.overtaken if partition not in still]
    if overtaken:
        remedy = f"{FULL_TEXT_REMEDY} {_RANK_REMEDY}"
        told += [
            f"messages of better rank wait for room in the commit text of partition {partition}: order is exact only "
            f"among the first {window:,} offsets, and {assignment.gated_in[partition]:,} messages are beyond"
            f"{_in_the_way(assignment, partition, 'are in work, or were returned;')}"
            for partition in overtaken
        ]
    if not told:
        return ""
    waits = any(assignment.scheduled(partition) for partition in {*omitted, *assignment.gated_in})
    return f"{'; '.join(told)}. {_SCHEDULED_REMEDY + ' ' if waits else ''}{remedy}"


def _consequences(missing: Omitted, evicts: bool) -> list[str]:
    told, done = [], "acked or evicted" if evicts else "acked"
    if missing.runs:
        told.append(f"{missing.runs:,} runs of {done} messages are not stored and come again after a crash")
    if missing.counts:
        told.append(f"the delivery counts of {missing.counts:,} messages are not stored and are lost in a crash")
    return told


def _in_the_way(assignment: Assignment, partition: int, unsettled_ones: str = "are not,") -> str:
    unsettled, lowest = assignment.unsettled(partition)
    if lowest is None:
        return ""
    times = f", handed out {lowest.delivered:,} times" if lowest.delivered > 1 else ""
    scheduled = len(assignment.scheduled(partition))
    waits = f"{scheduled:,} are scheduled and not due, " if scheduled else ""
    return f" ({unsettled:,} {unsettled_ones} {waits}the lowest is offset {lowest.offset}, {lowest.state}{times})"


STANDBY_REMEDY = (
    "Share one consumer between threads, tasks, workers (consumer.run(handle, workers=8)) or sessions "
    "(consumer.session()), or declare a queue on more partitions"
)
"""Advice for consumers that stand by."""


def standing_by(members: int, partitions: int) -> int:
    """Return how many members of a group have no partition: each partition has one member."""
    return max(0, members - partitions)


def standby_report(members: int, partitions: int) -> str:
    """Describe members without a partition, such as ``2 members, 1 partition: 1 stands by``."""
    idle = standing_by(members, partitions)
    plural = "" if partitions == 1 else "s"
    return f"{members:,} members, {partitions:,} partition{plural}: {idle:,} stand{'s' if idle == 1 else ''} by"
