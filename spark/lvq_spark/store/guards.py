"""What rules out that a version is built upon (R18): each reason as the error that it is where nothing is rebuilt."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from lvq_kafka.cluster import LogEnd
from lvq_kafka.core.validation import at_least_one, choice, delays
from lvq_kafka.errors import (
    DataLoss,
    LVQError,
    QueueMismatch,
    TopicMismatch,
    TopicRecreated,
)
from lvq_kafka.queue import LastValueQueue
from lvq_spark.bounds import TopicSettings
from lvq_spark.scan.log_range import Consistency
from lvq_spark.store.layout.layers import STORED
from lvq_spark.store.manifest import Version

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
"""What to do where nothing can be built on the newest version: read the whole log again, or fail with the reason."""

logger = logging.getLogger("lvq_spark.store")


@dataclass(frozen=True, slots=True)
class LogState:
    """A topic's log at a moment, which lies before all that was asked of the cluster.

    ``end`` is what was committed, and ``epochs`` whose leaders said so; ``retention`` is the topic's
    ``delete.retention.ms``, in seconds, infinite where it is not compacted.
    """

    at: datetime
    topic: str
    topic_id: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    epochs: Mapping[int, int]
    retention: float


def now() -> datetime:
    """The time by the driver's clock."""
    return datetime.now(UTC)


def log_state(queue: LastValueQueue[Any], timeout: float) -> LogState:
    """Ask for all that a version is judged by.

    Raises:
        TopicNotFound: there is no such topic.
        TransportError: the cluster cannot be reached or refuses.
    """
    at, topic, cluster = now(), queue.definition.topic, queue.cluster
    retention = TopicSettings.ask(cluster, topic, timeout).delete_retention
    ends = cluster.stable_ends(topic, timeout=timeout)
    start = cluster.start_offsets(
        topic, timeout=timeout
    )  # of these partitions, and perhaps of ones that were added since
    topic_id = cluster.describe_topic(topic, timeout=timeout).id
    end = {partition: found.offset for partition, found in ends.items()}
    epochs = {partition: found.leader_epoch for partition, found in ends.items()}
    return LogState(at, topic, topic_id, start, end, epochs, retention)


def epochs_of(queue: LastValueQueue[Any], log: LogState, end: Mapping[int, int]) -> dict[int, int]:
    """The leader epochs that tell later whether the log still has what lies below a cut; see `Cluster.check_uncut`.

    A cut may reach beyond the look. If the leader is still the one of then, it was so in between; else it is not known.
    """
    known = dict(log.epochs)
    if any(end[partition] > log.end.get(partition, 0) for partition in end):
        now_ends = queue.cluster.stable_ends(log.topic)
        known = {
            partition: epoch
            for partition, epoch in known.items()
            if end[partition] <= log.end[partition] or now_ends[partition].leader_epoch == epoch
        }
    return known


_AGES = (60.0, 600.0, 3600.0, 6 * 3600.0, 24 * 3600.0, 7 * 24 * 3600.0)


def pinned_at(queue: LastValueQueue[Any], log: LogState, end: Mapping[int, int]) -> datetime:
    """A moment at which the log did not reach beyond these offsets: now, if it does not yet.

    Otherwise it goes by append times, roughly; where these tell nothing it is the epoch, and such a cut is too old for
    anything to be built upon it.
    """
    behind = [partition for partition in end if end[partition] < log.end.get(partition, 0)]
    if not behind:
        return log.at
    for age in _AGES:
        moment = log.at - timedelta(seconds=age)
        reached = queue.cluster.offsets_at(log.topic, int(moment.timestamp() * 1000))
        if all(reached[partition] <= end[partition] for partition in behind):
            return moment
    return datetime.fromtimestamp(0, UTC)


AGAIN = "Refresh with on_stale='rebuild' to read the whole log again."


def unfit(base: Version, queue: LastValueQueue[Any], log: LogState, timeout: float) -> LVQError | None:
    """Why nothing can be built on a version, by all that is known before the log is read.

    Raises:
        TransportError: the cluster cannot be asked, or does not answer in ``timeout`` seconds.
    """
    topic, definition = log.topic, queue.definition
    differences = {
        name: (stored, asked)
        for name, stored, asked in (
            ("topic", base.topic, topic),
            ("key_header", base.key_header, definition.key_header),
            ("key_mismatch", base.key_mismatch, definition.key_mismatch),
            ("columns", base.schema, STORED),
        )
        if stored != asked
    }
    if differences:
        what = "; ".join(f"{name} {stored!r}, not {asked!r}" for name, (stored, asked) in differences.items())
        return QueueMismatch(
            f"Version {base.number} was made with {what}.", queue=definition.name, differences=differences, hint=AGAIN
        )
    if base.topic_id != log.topic_id:
        return TopicRecreated(
            f"The topic {topic} is not the one that version {base.number} was read from: it was created again.",
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
    """Whether the topic has another partition count by now. To be asked of a cut, too: it is of after the look."""
    if base.partitions == partitions:
        return None
    return TopicMismatch(
        f"The topic {base.topic} has {partitions} partitions; when version {base.number} was made, {base.partitions}.",
        topic=base.topic,
        settings={"partitions": (str(base.partitions), str(partitions))},
        hint=AGAIN,
    )


def _lost(base: Version, log: LogState) -> LVQError | None:
    for partition, end in sorted(base.end.items()):
        where = f"partition {partition} of {log.topic}"
        if log.end[partition] < end:
            return DataLoss(
                f"The log of {where} ends at offset {log.end[partition]}, before offset {end}, up to which version "
                f"{base.number} was read: it was cut short.",
                hint=AGAIN,
            )
        if log.start[partition] > end:
            return DataLoss(
                f"The log of {where} starts at offset {log.start[partition]}, behind offset {end}, up to which version "
                f"{base.number} was read: what lay between is gone.",
                hint=AGAIN,
            )
    return None


def _cut_and_grown(base: Version, queue: LastValueQueue[Any], log: LogState, timeout: float) -> LVQError | None:
    """Where a partition has had the same leader all the time, nothing can have been cut."""
    then = {
        partition: LogEnd(base.end[partition], epoch)
        for partition, epoch in base.epochs.items()
        if log.epochs[partition] != epoch
    }
    if not then:
        return None
    try:
        queue.cluster.check_uncut(log.topic, then, timeout=timeout)
    except DataLoss as error:
        said = str(error).removesuffix(error.hint).rstrip()
        return DataLoss(
            f"The log of {log.topic} has lost records that version {base.number} was read from, and others have taken "
            f"their offsets. {said}",
            hint=AGAIN,
        )
    return None


def aged(base: Version, log: LogState, moment: datetime) -> LVQError | None:
    """Whether deletes may be gone that the log has had since the version: then keys of it would live for ever.

    Where nothing was written since, no delete was.
    """
    known = log.at if dict(log.end) == dict(base.end) else base.pinned
    age = (moment - known).total_seconds()
    if age <= log.retention:
        return None
    return DataLoss(
        f"Version {base.number} is {age:.0f} s old, and {log.topic} keeps deletes for {log.retention:g} s "
        "(delete.retention.ms): some since then may be gone.",
        hint=f"{AGAIN} Refresh more often, or raise delete.retention.ms.",
    )


def overdue(log: LogState, work: str) -> LVQError | None:
    """Whether a cut has taken so long to be read that some of it may have gone before; ``work`` is what did that."""
    spent = (now() - log.at).total_seconds()
    if spent <= log.retention:
        return None
    return DataLoss(
        f"Reading {log.topic} took {spent:.1f} s, and it keeps deletes for {log.retention:g} s "
        "(delete.retention.ms): some of the cut may have been gone before they were read.",
        hint=f"Raise delete.retention.ms above what a {work} takes, or give Spark more cores.",
    )


def aging(base: Version, log: LogState) -> bool:
    """Whether it is so long ago that a version knew all there was that the next delta may come too late for it."""
    return (log.at - base.pinned).total_seconds() > log.retention / 2


def quiet(base: Version, log: LogState) -> bool:
    """Whether nothing was written for so long that it has to be said anew, lest the next delta finds it too old."""
    return dict(log.end) == dict(base.end) and aging(base, log)


def check_upkeep(keep: int, grace: float, timeout: float) -> None:
    """See that these are numbers as `lvq_spark.refresh` takes them.

    Raises:
        ConfigError: one is not.
    """
    at_least_one(keep=keep)  # the newest version is always kept
    delays(grace=grace, timeout=timeout)


def check_policies(on_stale: str, consistency: str) -> None:
    """See that both are what they may be.

    Raises:
        ConfigError: one is not.
    """
    choice("on_stale", on_stale, get_args(OnStale))
    choice("consistency", consistency, get_args(Consistency))


def rebuilding(problem: LVQError, on_stale: OnStale, what_is_done: str) -> tuple[str, ...]:
    """What to say of what is built from the whole log; ``what_is_done``, and to what, goes to the log.

    Raises:
        LVQError: the problem, where it is to be an error.
    """
    if on_stale == "fail":
        raise problem
    said = str(problem).removesuffix(problem.hint).rstrip()
    logger.warning("%s: %s", what_is_done, said)
    return (said,)
