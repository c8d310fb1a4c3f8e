"""Checks that a version can be built on (R18); each failure is the error to raise."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from lvq_kafka.cluster import LogEnd
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.validation import at_least_one, choice, delays
from lvq_kafka.errors import DataLoss, LVQError, QueueMismatch, TopicMismatch, TopicRecreated
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.bounds import TopicSettings
from lvq_spark.cut.pinning import times_of
from lvq_spark.scan.log_range import Consistency
from lvq_spark.store.layout.layers import STORED
from lvq_spark.store.manifest import HOW_READ, Version

__all__ = [
    "AGAIN",
    "LogState",
    "OnStale",
    "aged",
    "aging",
    "check_policies",
    "check_upkeep",
    "epochs_of",
    "log_state",
    "now",
    "overdue",
    "pinned_at",
    "quiet",
    "rebuilding",
    "resized",
    "unfit",
]

OnStale = Literal["rebuild", "fail"]
"""Policy when nothing can be built on the newest version: read the whole log, or fail."""

logger = logging.getLogger("lvq_spark.store")


@dataclass(frozen=True, slots=True)
class LogState:
    """A topic's log. The time ``at`` lies before everything that was asked of the cluster.

    ``end`` is the committed end, and ``epochs`` are the epochs of the leaders that reported it. ``retention`` is the
    topic's ``delete.retention.ms`` in seconds, infinite if the topic is not compacted.
    """

    at: datetime
    topic: str
    topic_id: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    epochs: Mapping[int, int]
    retention: float


def now() -> datetime:
    """Return the time by the driver's clock."""
    return datetime.now(UTC)


def log_state(queue: LastValueQueue[Any], timeout: float) -> LogState:
    """Ask for everything that a version is judged by.

    Raises:
        TopicNotFound: there is no such topic.
        TransportError: the cluster cannot be reached or refuses.
    """
    at, topic, cluster = now(), queue.definition.topic, queue.cluster
    retention = TopicSettings.ask(cluster, topic, timeout).delete_retention
    ends = cluster.logs.stable_ends(topic, timeout=timeout)
    start = cluster.logs.start_offsets(topic, timeout=timeout)  # of these partitions, and perhaps of some added since
    topic_id = cluster.topics.describe(topic, timeout=timeout).id
    end = {partition: found.offset for partition, found in ends.items()}
    epochs = {partition: found.leader_epoch for partition, found in ends.items()}
    return LogState(at, topic, topic_id, start, end, epochs, retention)


def epochs_of(queue: LastValueQueue[Any], log: LogState, end: Mapping[int, int]) -> dict[int, int]:
    """Return the leader epochs that later show whether the log below a cut is still there.

    See `Logs.check_uncut`. The cut may reach beyond ``log``. A leader that is still the same now was the leader in
    between, too; otherwise the epoch is unknown and left out.
    """
    known = dict(log.epochs)
    if any(end[partition] > log.end.get(partition, 0) for partition in end):
        now_ends = queue.cluster.logs.stable_ends(log.topic)
        known = {
            partition: epoch
            for partition, epoch in known.items()
            if end[partition] <= log.end[partition] or now_ends[partition].leader_epoch == epoch
        }
    return known


_AGES = (60.0, 600.0, 3600.0, 6 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0)


def pinned_at(queue: LastValueQueue[Any], log: LogState, end: Mapping[int, int]) -> datetime:
    """Return a moment at which the log did not reach beyond these offsets.

    That is the time of ``log`` if the log did not reach beyond them then. Otherwise the moment is estimated from append
    times. If these say nothing it is the epoch, and such a cut is too old to build on.
    """
    behind = [partition for partition in end if end[partition] < log.end.get(partition, 0)]
    if not behind:
        return log.at
    for age in _AGES:
        moment = log.at - timedelta(seconds=age)
        reached = queue.cluster.logs.offsets_at(log.topic, int(moment.timestamp() * 1000))
        if all(reached[partition] <= end[partition] for partition in behind):
            return moment
    return datetime.fromtimestamp(0, UTC)


AGAIN = "Refresh with on_stale='rebuild' to read the whole log again."


def unfit(base: Version, queue: LastValueQueue[Any], log: LogState, timeout: float) -> LVQError | None:
    """Return why a version cannot be built on, as far as is known before the log is read.

    Raises:
        TransportError: the cluster cannot be asked, or does not answer within ``timeout`` seconds.
    """
    topic, definition = log.topic, queue.definition
    composed = {"topic": topic, "placement": QueueRules.of(definition).placement}
    asked = composed | {name: getattr(definition, name) for name in HOW_READ if name not in composed}
    kept = {name: getattr(base, name) for name in asked}
    kept |= base.times_then(base.times) | {"columns": base.schema}
    asked |= base.times_then(times_of(queue))
    asked["columns"] = STORED
    differences = {name: (kept[name], value) for name, value in asked.items() if kept[name] != value}
    if differences:
        what = "; ".join(f"{name} {stored!r}, not {asked!r}" for name, (stored, asked) in differences.items())
        return QueueMismatch(
            f"Version {base.number} was made with {what}.", queue=definition.name, differences=differences, hint=AGAIN
        )
    if base.topic_id != log.topic_id:
        return TopicRecreated(
            f"The topic {topic} is not the one that version {base.number} was read from: it was re-created.",
            topic=topic,
            hint=AGAIN,
        )
    return (
        resized(base, len(log.end))
        or _lost(base, log)
        or aged(base, log, log.at)
        or _cut_and_grown(base, queue, log, timeout)
    )


def resized(base: Version, partitions: int) -> LVQError | None:
    """Return an error if the topic's partition count has changed.

    Check a pinned cut, too: it is newer than the `LogState`.
    """
    if base.partitions == partitions:
        return None
    return TopicMismatch(
        f"The topic {base.topic} has {partitions} partitions; it had {base.partitions} when version {base.number} "
        "was made.",
        topic=base.topic,
        settings={"partitions": (str(base.partitions), str(partitions))},
        hint=AGAIN,
    )


def _lost(base: Version, log: LogState) -> LVQError | None:
    for partition, end in sorted(base.end.items()):
        where = f"partition {partition} of {log.topic}"
        if log.end[partition] < end:
            return DataLoss(
                f"The log of {where} ends at offset {log.end[partition]}, but version {base.number} was read up to "
                f"offset {end}: it was truncated.",
                hint=AGAIN,
            )
        if log.start[partition] > end:
            return DataLoss(
                f"The log of {where} starts at offset {log.start[partition]}, but version {base.number} was read up "
                f"to offset {end}: the records between are gone.",
                hint=AGAIN,
            )
    return None


def _cut_and_grown(base: Version, queue: LastValueQueue[Any], log: LogState, timeout: float) -> LVQError | None:
    """Return an error if the log was truncated below the version's cut and has grown since.

    A partition that has had the same leader throughout cannot have been truncated.
    """
    then = {
        partition: LogEnd(base.end[partition], epoch)
        for partition, epoch in base.epochs.items()
        if log.epochs[partition] != epoch
    }
    if not then:
        return None
    try:
        queue.cluster.logs.check_uncut(log.topic, then, timeout=timeout)
    except DataLoss as error:
        said = str(error).removesuffix(error.hint).rstrip()
        return DataLoss(
            f"The log of {log.topic} has lost records that version {base.number} was read from, and others now have "
            f"their offsets. {said}",
            hint=AGAIN,
        )
    return None


def aged(base: Version, log: LogState, moment: datetime) -> LVQError | None:
    """Return an error if deletes written since the version may be gone from the log.

    The version's values of those keys would then live forever. If nothing was written since, no delete was.
    """
    known = log.at if dict(log.end) == dict(base.end) else base.pinned
    age = (moment - known).total_seconds()
    if age <= log.retention:
        return None
    return DataLoss(
        f"Version {base.number} is {age:.0f} s old, but {log.topic} keeps deletes for {log.retention:g} s "
        "(delete.retention.ms): some since then may be gone.",
        hint=f"{AGAIN} Refresh more often, or raise delete.retention.ms.",
    )


def overdue(log: LogState, work: str) -> LVQError | None:
    """Return an error if reading a cut took so long that parts of it may be gone.

    ``work`` names the work in the error text.
    """
    spent = (now() - log.at).total_seconds()
    if spent <= log.retention:
        return None
    return DataLoss(
        f"Reading {log.topic} took {spent:.1f} s, but it keeps deletes for {log.retention:g} s "
        "(delete.retention.ms): some in the cut may have been removed before they were read.",
        hint=f"Raise delete.retention.ms above what a {work} takes, or give Spark more cores.",
    )


def aging(base: Version, log: LogState) -> bool:
    """Return whether a version is old enough that the next delta may come too late for it."""
    return (log.at - base.pinned).total_seconds() > log.retention / 2


def quiet(base: Version, log: LogState) -> bool:
    """Return whether an unchanged version must be written again.

    Nothing was written to the log for so long that the next delta might find the version too old.
    """
    return dict(log.end) == dict(base.end) and aging(base, log)


def check_upkeep(keep: int, grace: float, timeout: float) -> None:
    """Check that these are numbers that `lvq_spark.refresh` takes.

    Raises:
        ConfigError: one of them is not.
    """
    at_least_one(keep=keep)  # the newest version is always kept
    delays(grace=grace, timeout=timeout)


def check_policies(on_stale: str, consistency: str) -> None:
    """Check both policies.

    Raises:
        ConfigError: one of them has no such value.
    """
    choice("on_stale", on_stale, get_args(OnStale))
    choice("consistency", consistency, get_args(Consistency))


def rebuilding(problem: LVQError, on_stale: OnStale, what_is_done: str) -> tuple[str, ...]:
    """Return the reasons to record for a rebuild, and log a warning with ``what_is_done``.

    Raises:
        LVQError: the problem, if ``on_stale`` is ``"fail"``.
    """
    if on_stale == "fail":
        raise problem
    said = str(problem).removesuffix(problem.hint).rstrip()
    logger.warning("%s: %s", what_is_done, said)
    return (said,)
