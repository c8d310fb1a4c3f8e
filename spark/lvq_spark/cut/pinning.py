"""Pinning: fixing, on the driver, the cut through a topic's log that a snapshot shows."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, get_args

from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy, choose_keys
from lvq_kafka.core.log.progress import describe
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.definition import time_rule
from lvq_kafka.core.queue.message_groups import Groups, Placement
from lvq_kafka.core.queue.ranking import QueueOrder
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import choice, delays, instance, mapping, text
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.declared.group_checks import OnForeignCommits, check_group, known_ends
from lvq_kafka.errors import ConfigError
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.selectors.of_queues import queue_selector
from lvq_kafka.selectors.selector import Selector
from lvq_spark.cut.bounds import AsOfPolicy, Bounds, TopicSettings

__all__ = ["AsOfPolicy", "Moment", "SnapshotSpec", "check_queue", "pin", "seconds", "times_of", "zoned"]

Moment = datetime | float
"""A time: a datetime (local if it has no zone), or seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """The cut that a snapshot reads.

    The same spec gives the same rows, whenever and wherever it is read. It holds no secret.

    Args:
        topic_id: distinguishes the topic from another one of the same name.
        start: the first offset to read, for every partition of the topic.
        end: the offset to stop before, for every partition. ``view.snapshot().offsets`` is such a vector.
        key_header: the source of a record's key; see `lvq_kafka.QueueDefinition`.
        key_mismatch: what counts when header and record key disagree.
        compaction_lag: seconds for which the topic keeps a superseded record (``min.compaction.lag.ms``); infinite if
            it is not compacted.
        blocked: partitions where an open transaction hides records written after ``end``.
        done: the commit maps of a consumer group by partition, to leave out the records it has done.
        timestamp_type: 0 for producer timestamps, 1 for append times, -1 if unknown.
        delete_retention: seconds for which the topic keeps a delete (``delete.retention.ms``); infinite if it is not
            compacted, or if another part of the program makes sure that none is missed.
        pinned: when the cut was pinned, in seconds since the epoch; for a stream's batch, when the stream last caught
            up.
        epochs: the epochs of the partitions' leaders at that time.
        times: from when until when messages count.
        as_of: the time at which messages have expired or not, and are due or not, in seconds since the epoch; None if
            they are returned either way.
        selector: the condition that the newest message of a key must meet; None if there is none.
        keep_expired: whether what has expired is returned like any other message.
        order: the order of the queue's messages.
        sort_header: the header by whose text they are sorted; None if they are not.
        groups: how messages are grouped; None if they belong to no groups.
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
    times: TimeRule = ALWAYS
    as_of: float | None = None
    selector: str | None = None
    keep_expired: bool = False
    order: QueueOrder = "tail"
    sort_header: str | None = None
    groups: Groups | None = None

    @property
    def placement(self) -> Placement:
        """The thing that writers choose the partition of a message by (R14)."""
        return "key" if self.groups is None else self.groups.placement

    @property
    def partitions(self) -> int:
        """The topic's partition count."""
        return len(self.end)

    @property
    def expired_by(self) -> float | None:
        """The time by which a hidden message has expired (R10); None if none is hidden."""
        return self.as_of if self.times.expires and not self.keep_expired else None

    @property
    def due_by(self) -> float | None:
        """The time by which a message must be due to count (R11); None if all count."""
        return self.as_of if self.times.may_schedule else None

    def selecting(self, selector: str | None, option: str = "selector") -> SnapshotSpec:
        """Return this cut with one more condition.

        Raises:
            ConfigError: the selector cannot be read.
            MissingExtra: the extra ``selectors`` is not installed.
        """
        if selector is None:
            return self
        Selector(selector, self.topic, option=option)
        return replace(self, selector=selector if self.selector is None else f"({self.selector}) AND ({selector})")

    @property
    def decisive_header(self) -> str | None:
        """The header that may decide a key; None if only the record key counts, the default (R16)."""
        return None if self.key_mismatch == "record" else self.key_header

    def keys_of(self, batch: RecordBatch) -> list[bytes | None]:
        """Return the key of each record.

        Raises:
            KeyMismatch: a record's header and key disagree, and the queue's policy is ``"fail"``.
        """
        keys, _ = choose_keys(batch, self.topic, self.decisive_header, self.key_mismatch)
        return keys

    @property
    def ranges(self) -> list[int]:
        """The partitions with anything to read."""
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
        start: the first offset of each partition; by default the start of its log.
        end: the offset to stop before in each partition, such as ``view.snapshot().offsets``. By default the last
            stable offset: everything committed so far. ``blocked`` then names what an open transaction holds back, and
            a warning says so. A transaction is completed partition by partition: a cut taken meanwhile may include it
            in some partitions only; see ``at_rest``.
        as_of: the time of the cut, or of each partition; by default the current time. Messages that have expired by
            then (R10), by the latest of several times, or are not due (R11), are not shown. Without ``end`` the cut
            also stops, in each partition, before the first record that is not older.
        as_of_policy: the policy if the topic may have compacted away records of that time, since its
            ``min.compaction.lag.ms`` has passed.
        group: a consumer group, such as ``queue.definition.group``: show only what it has not consumed. For a group of
            another program, which commits offsets alone, that is everything from its committed offsets on. Records that
            the log has lost are left out, as consumers and browsers leave them out (R19). Excludes ``start``.
        on_foreign_commits: whether to trust the offset of a group's commit whose text is damaged, newer, or not this
            library's (``"ignore"``), or to raise.
        at_rest: seconds to wait for a moment when no transaction is under way in the topic and nothing else is being
            written to it. A cut at such a moment has each transaction in all partitions, or in none. Excludes ``end``
            and ``as_of``.
        timeout: seconds for each request to the cluster.

    Raises:
        TopicNotFound: the topic does not exist.
        CatchUpTimeout: the topic was never ``at_rest``.
        DataLoss: the log has lost, or never held, offsets that the cut needs.
        ConfigError: options clash; the offsets do not fit the topic's partitions, or extend past an open transaction;
            or the time is too long ago, or is not a time.
        QueueNotDeclared: the group lacks commits for some or all partitions: it has expired, or never existed (R17).
        CommitMapRefused: a commit's text is refused; see ``on_foreign_commits``.
        TransportError: the cluster cannot be reached, or refuses.
    """
    given = {"start": start, "end": end, "as_of": as_of, "group": group, "at_rest": at_rest}
    for one, other in (("group", "start"), ("at_rest", "end"), ("at_rest", "as_of")):
        if given[one] is not None and given[other] is not None:
            raise ConfigError(f"{one} and {other} are both given.", options=[one, other])
    check_queue(queue)
    delays(timeout=timeout, at_rest=at_rest or 0)
    choice("as_of_policy", as_of_policy, get_args(AsOfPolicy))
    choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
    _check_offsets("start", start)
    _check_offsets("end", end)
    if group is not None and "\0" in text("group", group):  # the client ends there, and the process if nothing is left
        raise ConfigError(f"group={quoted(group)} has a NUL character.", options=["group"])
    definition, cluster = queue.definition, queue.cluster
    topic, pinned, judged = definition.topic, time.time(), _judged(as_of, cluster.now())
    settings = TopicSettings.ask(cluster, topic, timeout)
    # Commits come first: records consumed while we ask must not appear to lie beyond the end.
    commits = {} if group is None else cluster.groups.committed(group, topic, timeout=timeout)
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
    times = times_of(queue)
    selector = queue_selector(definition)
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
        times=times,
        as_of=judged if times.matters else None,
        selector=None if selector is None else selector.text,
        order=definition.order,
        sort_header=definition.sort_header,
        groups=definition.groups,
    )


def times_of(queue: LastValueQueue[Any]) -> TimeRule:
    """Return from when until when a queue's messages count, after all alterations (R39).

    Raises:
        TransportError: the registry of queues cannot be read.
    """
    times = time_rule(queue.refresh())
    return replace(times, ttl=None if times.ttl is None or times.ttl.never else times.ttl, keeps_expired=False)


def check_queue(queue: object) -> None:
    """Check that this is a queue with a newest value of each key.

    Raises:
        ConfigError: it is not, or is a standard queue, of which Spark's own Kafka source reads every message.
    """
    instance("queue", queue, LastValueQueue, 'For example LastValueQueue.open("prices").')
    assert isinstance(queue, LastValueQueue)
    if not queue.definition.conflate:
        raise ConfigError(
            f"{queue.name} is a standard queue (conflate=False), which has no newest value of each key.",
            options=["queue", "conflate"],
            hint='Read its messages with Spark\'s own source: spark.read.format("kafka").option("subscribe", '
            f'"{queue.topic}").',
        )


def _check_offsets(option: str, offsets: object) -> None:
    given = mapping(option, offsets, "Give an offset for each partition, such as {0: 42}.")
    for partition, offset in given.items():
        if type(offset) is not int or type(partition) is not int:
            raise ConfigError(
                f"{option} names {offset!r} for partition {partition!r}; both must be whole numbers.", options=[option]
            )


def _by_offset(commit: Commit) -> Commit:
    """Give a commit without text, as other programs write it, the map of its offset.

    Everything below the offset is done.
    """
    return commit if commit.metadata else replace(commit, metadata=CommitMap(commit.offset).encode())


def _by_partition(as_of: Moment | Mapping[int, Moment], partitions: Mapping[int, int]) -> dict[int, float]:
    moments = as_of if isinstance(as_of, Mapping) else dict.fromkeys(partitions, as_of)
    return {partition: seconds("as_of", one) for partition, one in moments.items()}


def _judged(as_of: Moment | Mapping[int, Moment] | None, now: float) -> float:
    """Return the time by which messages have expired or not, in whole milliseconds."""
    moments = as_of.values() if isinstance(as_of, Mapping) else (now if as_of is None else as_of,)
    return max((round(seconds("as_of", moment), 3) for moment in moments), default=now)


def seconds(option: str, moment: object) -> float:
    """Convert a time to seconds since the epoch.

    A time in milliseconds would lie in the far future, and the cut would be the current one instead of a past one.

    Raises:
        ConfigError: it is not a time that a date can express.
    """
    try:
        found = moment.timestamp() if isinstance(moment, datetime) else float(moment)  # type: ignore[arg-type]
        datetime.fromtimestamp(found, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{option}={moment!r} is not a time: {error}.",
            options=[option],
            hint="Give a datetime, or seconds since the epoch; divide milliseconds by 1000.",
        ) from None
    return found


def zoned(option: str, moment: datetime) -> datetime:
    """Check that this is a time with a time zone, and return it.

    Raises:
        ConfigError: it is not.
    """
    instance(option, moment, datetime, "Give a time with a time zone.")
    if moment.tzinfo is None:
        raise ConfigError(
            f"{option}={moment} has no time zone.", options=[option], hint="datetime.now(timezone.utc) has."
        )
    return moment
