"""Reports of a full commit text: what waits, which messages are in the way, what helps."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.core.assignment import Assignment
from lvq_kafka.core.commits import Unsaid

__all__ = ["CROWDED_REMEDY", "crowding"]

CROWDED_REMEDY = (
    "Remove messages that always fail with max_deliveries and dead_letters, add partitions, or raise the brokers' "
    "offset.metadata.max.bytes."
)
"""Advice for a full commit text."""

_RANK_REMEDY = "Until then, consume faster, so that fewer messages wait."
_SCHEDULED_REMEDY = "Scheduled messages stay in the text until they are due: schedule fewer of them, or less far ahead."


def crowding(
    assignment: Assignment, unsaid: Mapping[int, Unsaid], window: int | None, *, strict: bool, evicts: bool
) -> str:
    """Describe what does not fit into a consumer's commit text; empty if everything fits.

    Args:
        unsaid: by partition, what did not fit into any commit.
        window: the number of offsets within which the order of ranks is exact; None in the order of arrival.
        strict: whether messages wait for room in any case, as in transactions.
        evicts: whether messages are done that nobody acked, since the queue is a ring.
    """
    full = {partition: _consequences(missing, evicts) for partition, missing in unsaid.items()}
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
    remedy = CROWDED_REMEDY
    overtaken = [] if window is None else [partition for partition in assignment.overtaken if partition not in still]
    if overtaken:
        remedy = f"{CROWDED_REMEDY} {_RANK_REMEDY}"
        told += [
            f"messages of better rank wait for room in the commit text of partition {partition}: order is exact only "
            f"among the first {window:,} offsets, and {assignment.gated_in[partition]:,} messages are beyond"
            f"{_in_the_way(assignment, partition, 'are in work, or were returned;')}"
            for partition in overtaken
        ]
    if not told:
        return ""
    waits = any(assignment.scheduled(partition) for partition in {*unsaid, *assignment.gated_in})
    return f"{'; '.join(told)}. {_SCHEDULED_REMEDY + ' ' if waits else ''}{remedy}"


def _consequences(missing: Unsaid, evicts: bool) -> list[str]:
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
