"""Pinning: the cut through a topic's log that a snapshot shows, fixed once on the driver."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, get_args

from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.mismatch import KeyMismatchPolicy
from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.core.validation import choice, delays, instance, mapping
from lvq_kafka.errors import ConfigError
from lvq_kafka.managing.group_checks import OnForeignCommits, check_group, known_ends
from lvq_kafka.queue import LastValueQueue
from lvq_spark.bounds import AsOfPolicy, Bounds, TopicSettings

__all__ = ["AsOfPolicy", "Moment", "SnapshotSpec", "check_queue", "pin"]

Moment = datetime | float
"""A time: a datetime (one without a zone is local), or seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """What a snapshot reads: the same spec gives the same rows, whenever and wherever it is read. Holds no secret.

    Args:
        topic_id: tells the topic from another one of the same name.
        start: the first offset to read, for every partition of the topic.
        end: the offset to stop before, for every partition. ``view.snapshot().offsets`` is such a vector.
        key_header, key_mismatch: what names a record's key; see `lvq_kafka.QueueDefinition`.
        compaction_lag: seconds for which the topic keeps a superseded record (``min.compaction.lag.ms``); infinite
            where it is not compacted.
        blocked: partitions where an open transaction hides what was written after ``end``.
        done: what a consumer group has done, by partition, when only what it has not is to be seen.
        timestamp_type: what timestamps are: 0 the producers', 1 append times, -1 not known.
        delete_retention: seconds for which the topic keeps a delete (``delete.retention.ms``); infinite where it is not
            compacted, or where somebody else sees to it that none is missed.
        pinned: when the cut was pinned, in seconds since the epoch; of a stream's batch, when the stream had last read
            all there was.
        epochs: of the partitions' leaders then.
    """

    topic: str
    topic_id: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    key_header: str | None = None
    key_mismatch: KeyMismatchPolicy = "record"
    compaction_lag: float = 0.0
    blocked: tuple[Shortfall, ...] = ()
    done: Mapping[int, CommitMap] | None = None
    timestamp_type: int = -1
    delete_retention: float = math.inf
    pinned: float | None = field(default=None, compare=False)
    epochs: Mapping[int, int] = field(default_factory=dict, compare=False)

    @property
    def partitions(self) -> int:
        """The topic's partition count."""
        return len(self.end)

    @property
    def decisive_header(self) -> str | None:
        """The header to look at for keys: none where only the record key counts, as it does by default (R16)."""
        return None if self.key_mismatch == "record" else self.key_header

    @property
    def ranges(self) -> list[int]:
        """The partitions that have anything to read."""
        return [partition for partition in sorted(self.end) if self.start[partition] < self.end[partition]]


def pin(
    queue: LastValueQueue[Any],
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    as_of: Moment | Mapping[int, Moment] | None = None,
    as_of_policy: AsOfPolicy = "fail",
    group: str | None = None,
    on_foreign_commits: OnForeignCommits = "refuse",
    at_rest: float | None = None,
    timeout: float = 10.0,
) -> SnapshotSpec:
    """Fix the cut that a snapshot of a queue shows.

    Args:
        queue: the queue.
        start: the first offset of each partition; by default where its log starts.
        end: the offset to stop before in each partition, such as ``view.snapshot().offsets``. By default the last
            stable offset: all that is committed now. What an open transaction holds back is then in ``blocked``,
            and a warning says so. A transaction ends in one partition after the other: a cut that is taken meanwhile
            may have it in some of them only; see ``at_rest``.
        as_of: in each partition, stop before the first record that is not older than this, or than what is said for
            that partition. Excludes ``end``.
        as_of_policy: what to do where the topic may have compacted records of that time away: its
            ``min.compaction.lag.ms`` is over.
        group: a consumer group, such as ``queue.definition.group``: show only what it has not consumed. Where it goes
            by offsets alone, as other programs do, that is what lies from its committed offsets on. What the log has
            lost of that is left out, as consumers and browsers leave it out (R19). Excludes ``start``.
        on_foreign_commits: whether to go by the offset of a group's commit whose text is not this library's, or newer,
            or damaged (``"ignore"``), or to raise.
        at_rest: seconds in which to wait for a moment when no transaction is under way in the topic, and nothing else
            is being written to it. A cut of such a moment has each transaction in all partitions, or in none. Excludes
            ``end`` and ``as_of``.
        timeout: seconds for each question to the cluster.

    Raises:
        TopicNotFound: there is no such topic.
        CatchUpTimeout: the topic was never ``at_rest``.
        DataLoss: offsets that the cut needs are gone, or the log has never held them.
        ConfigError: options clash, the offsets do not fit the topic's partitions, end behind an open transaction, or
            are of too long ago, or of what is no time.
        QueueNotDeclared: the group has no commits, or not for all partitions: it has expired, or never was (R17).
        CommitMapRefused: a commit's text is refused; see ``on_foreign_commits``.
        TransportError: the cluster cannot be reached or refuses.
    """
    given = {"start": start, "end": end, "as_of": as_of, "group": group, "at_rest": at_rest}
    for one, other in (("as_of", "end"), ("group", "start"), ("at_rest", "end"), ("at_rest", "as_of")):
        if given[one] is not None and given[other] is not None:
            raise ConfigError(f"{one} and {other} are both given.", options=[one, other])
    check_queue(queue)
    delays(timeout=timeout, at_rest=at_rest or 0)
    choice("as_of_policy", as_of_policy, get_args(AsOfPolicy))
    choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
    _check_offsets("start", start)
    _check_offsets("end", end)
    definition, cluster = queue.definition, queue.cluster
    topic, pinned = definition.topic, time.time()
    settings = TopicSettings.ask(cluster, topic, timeout)
    # The commits come first: what is consumed in the meantime must not look as if it lay beyond the end.
    commits = {} if group is None else cluster.committed(group, topic, timeout=timeout)
    if group != definition.group:
        commits = {partition: _by_offset(commit) for partition, commit in commits.items()}
    bounds = (
        Bounds.ask(cluster, topic, timeout) if at_rest is None else Bounds.at_rest(cluster, topic, at_rest, timeout)
    )
    for option, offsets in (("start", start), ("end", end), ("as_of", as_of)):
        if isinstance(offsets, Mapping):
            bounds.check_partitions(option, offsets)
    blocked: tuple[Shortfall, ...] = ()
    if end is not None:
        bounds.check_end(end)
    else:
        wanted = bounds.highest
        if as_of is not None:
            wanted = bounds.reached(cluster, _by_partition(as_of, wanted), settings, as_of_policy, timeout)
        end, blocked = bounds.committed(cluster, wanted, timeout)
    done = None
    if group is not None:
        done = check_group(
            group,
            topic,
            bounds.highest,
            commits,
            queue=definition.name if group == definition.group else group,
            described=bounds.described,
            ends=known_ends(cluster, topic, commits, bounds.stable_ends, timeout=timeout),
            on_foreign_commits=on_foreign_commits,
        )
        start = {p: min(max(done[p].base, bounds.lowest[p]), end[p]) for p in end}
    start = {p: min(bounds.lowest[p], end[p]) for p in end} if start is None else start
    bounds.check_start(start, end)
    if blocked:
        warnings.warn(f"The snapshot of {topic} ends early: {describe(blocked)}.", stacklevel=2)
    return SnapshotSpec(
        topic=topic,
        topic_id=bounds.described.id,
        start=dict(sorted(start.items())),
        end=dict(sorted(end.items())),
        key_header=definition.key_header,
        key_mismatch=definition.key_mismatch,
        compaction_lag=settings.compaction_lag,
        blocked=blocked,
        done=done,
        timestamp_type=settings.timestamp_type,
        delete_retention=settings.delete_retention,
        pinned=pinned,
        epochs=bounds.epochs,
    )


def check_queue(queue: object) -> None:
    """See that this is a queue.

    Raises:
        ConfigError: it is none.
    """
    instance("queue", queue, LastValueQueue, 'For example LastValueQueue.open("prices").')


def _check_offsets(option: str, offsets: object) -> None:
    given = mapping(option, offsets, "Give an offset for each partition, such as {0: 42}.")
    for partition, offset in given.items():
        if type(offset) is not int or type(partition) is not int:
            raise ConfigError(
                f"{option} names {offset!r} for partition {partition!r}; both are whole numbers.", options=[option]
            )


def _by_offset(commit: Commit) -> Commit:
    """What another program's group has done: where it writes no text, all below its offset."""
    return commit if commit.metadata else replace(commit, metadata=CommitMap(commit.offset).encode())


def _by_partition(as_of: Moment | Mapping[int, Moment], partitions: Mapping[int, int]) -> dict[int, float]:
    moments = as_of if isinstance(as_of, Mapping) else dict.fromkeys(partitions, as_of)
    return {partition: _seconds(one) for partition, one in moments.items()}


def _seconds(moment: Moment) -> float:
    """A time as seconds since the epoch. One in milliseconds would be of a far future: no cut of the past, but of now.

    Raises:
        ConfigError: it is none that a date can name.
    """
    try:
        seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
        datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"as_of={moment!r} is no time: {error}.",
            options=["as_of"],
            hint="Give a datetime, or seconds since the epoch; of milliseconds that is a thousandth.",
        ) from None
    return seconds
