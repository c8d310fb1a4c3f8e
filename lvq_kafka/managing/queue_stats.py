"""Queue depth and progress, counted by one read of everything not yet done."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.commit_map.commit_map import LONGEST_TEXT, CommitMap
from lvq_kafka.core.consumer.obstacles import standing_by
from lvq_kafka.core.facts import Depth
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import header_value
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.idle_queues import risk
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.ranking import DEFAULT_PRIORITY, HIGHEST_PRIORITY, PRIORITY_HEADER, priority_of
from lvq_kafka.core.waiting.pending import Deletion
from lvq_kafka.declared.damage import examine
from lvq_kafka.declared.group_checks import OnForeignCommits
from lvq_kafka.errors import OffsetsPending, TransportError, Unauthorized
from lvq_kafka.managing.backlog import QueueSnapshot, Tally, read_backlog, snapshot_queue, weight

__all__ = ["PartitionStats", "QueueStats", "Tally", "WaitingStats", "measure"]

_MOMENT = 0.5  # seconds; an open transaction would hold the answer back
_LOOK = 3.0  # seconds for a setting that is only good to know
_ATTEMPTS = 3  # reads, in case the queue is reset meanwhile


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition of a queue. Consumption fields are None if the queue is never consumed."""

    partition: int
    start: int
    """The log start offset."""
    stable: int
    """The last stable offset: an open transaction hides everything from here to the end."""
    end: int
    base: int | None
    """Everything below this offset is done."""
    depth: int
    """Messages that are not done: the newest of each key, including those in work."""
    bytes: int | None
    """The size of these messages: keys, values and headers. None if the queue has no limits."""
    attempted: int
    """Messages counted in `depth` that may have been delivered before.

    They are in work now, or were returned; it is not known which.
    """
    oldest: float | None
    """Arrival time of the oldest message, in seconds since the epoch; None if there is none."""
    lag: int | None
    """Offsets from the base to the end of the log, including gaps."""
    done_ahead: int
    """Offsets above the base that are done."""
    sequence: int | None
    """The number of commits so far."""
    text: int
    """Characters of the commit's text; see `QueueStats.text_limit`."""


@dataclass(frozen=True, slots=True)
class WaitingStats:
    """Messages that are not done, including those in work."""

    depth: int
    """Their number."""
    oldest: float | None
    """Arrival time of the oldest, in seconds since the epoch; None if there is none."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The depth and progress of a queue. No number is ever negative."""

    queue: str
    topic: str
    partitions: tuple[PartitionStats, ...]
    members: int | None
    """Active consumers across all processes.

    None for a queue that is never consumed, or if this user may not ask.
    """
    tally: Tally
    """The fate of the values in the log from the bases on, without those already deleted."""
    redelivered: int
    """Deliveries beyond the first of messages that are not done; 0 without durable counts."""
    text_limit: int
    """Maximum characters of a commit's text.

    The broker's setting if it matters and this user may read it, otherwise the brokers' default.
    """
    limits: Limits | None
    """The limits of the queue (R12)."""
    retention: float | None
    """Seconds for which brokers keep what was consumed, from when the last consumer left (R50).

    None while consumers are active, if this user may not read it, and for a queue that is never consumed.
    """
    waited: float | None = field(compare=False)
    """Seconds for which the oldest message has waited, by this machine's clock; None if there is none."""
    pending: bool
    """True if an open transaction holds offsets of the group; its acks count as not done."""
    priorities: Mapping[int, WaitingStats]
    """The messages of each priority, as they say it, from 9 to 0. Empty unless the queue has priorities (R20)."""
    groups: int | None
    """Message groups of which messages wait, over all partitions. None if the queue has none (R36)."""
    oldest_in_group: float | None
    """Arrival time of the oldest message that belongs to a group, in seconds since the epoch; None if none does."""

    @property
    def standby(self) -> int | None:
        """Active consumers that have no partition, since each has one consumer.

        None if `members` is.
        """
        return None if self.members is None else standing_by(self.members, len(self.partitions))

    @property
    def depth(self) -> int:
        """Messages that are not done: the newest of each key, including those in work."""
        return sum(one.depth for one in self.partitions)

    @property
    def bytes(self) -> int | None:
        """The size of these messages: keys, values and headers. None if the queue has no limits."""
        sizes = [one.bytes for one in self.partitions if one.bytes is not None]
        return sum(sizes) if sizes else None

    @property
    def breach(self) -> str:
        """A description of what is beyond the limits; empty if all is well."""
        return "" if self.limits is None else self.limits.breach(Depth(self.depth, self.bytes or 0))

    @property
    def at_risk(self) -> str:
        """The reason why brokers may soon forget what was consumed (R50); empty if there is none."""
        return risk(self.retention, self.waited)

    @property
    def attempted(self) -> int:
        """Messages counted in `depth` that may have been delivered before.

        See `PartitionStats.attempted`.
        """
        return sum(one.attempted for one in self.partitions)

    @property
    def oldest(self) -> float | None:
        """Arrival time of the oldest message, in seconds since the epoch; None if there is none."""
        return min((one.oldest for one in self.partitions if one.oldest is not None), default=None)

    @property
    def crowded(self) -> list[PartitionStats]:
        """Partitions whose commit text is nearly full: acks wait for lower messages to be settled."""
        return [one for one in self.partitions if one.text > _full(self.text_limit)]

    @property
    def lag(self) -> int | None:
        """Offsets from the bases to the ends of the logs; None for a queue that is never consumed."""
        lags = [one.lag for one in self.partitions if one.lag is not None]
        return sum(lags) if lags else None

    @property
    def blocked(self) -> bool:
        """True if an open transaction hides part of the log."""
        return any(one.stable < one.end for one in self.partitions)


def measure(
    cluster: Cluster,
    definition: QueueDefinition,
    *,
    consumed: bool,
    on_foreign_commits: OnForeignCommits = "refuse",
    timeout: float = 60.0,
) -> QueueStats:
    """Measure a queue. See `lvq_kafka.queue.LastValueQueue.stats`.

    Args:
        consumed: True if the queue can be consumed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        snapshot = snapshot_queue(cluster, definition, consumed=consumed, decided=False)
        loaded = snapshot.maps(on_foreign_commits) if consumed else _untouched(snapshot)
        backlog = read_backlog(cluster, snapshot, loaded, weigh=definition.limits is not None, timeout=timeout)
        # Messages consumed during the read do not count either.
        now = _commits_of_now(cluster, snapshot, loaded) if consumed else loaded
        if attempt == _ATTEMPTS or all(now[partition].covers(then) for partition, then in loaded.items()):
            break
    members: int | None = None
    pending = False
    if consumed:
        pending = _is_pending(cluster, definition)
        with suppress(Unauthorized):
            members = cluster.groups.member_count(definition.group)
    waiting = [item for item in backlog.messages if not now[item.partition].done(item.offset)]
    partitions = _count(snapshot, waiting, now, consumed=consumed)
    grouped = _by_group(definition, waiting)
    oldest = min((one.oldest for one in partitions if one.oldest is not None), default=None)
    done_since = len(backlog.messages) - sum(one.depth for one in partitions)
    scheduled = [item for item in backlog.scheduled if not isinstance(item, Deletion)]
    due_since = sum(now[item.partition].done(item.offset) for item in scheduled)
    return QueueStats(
        definition.name,
        definition.topic,
        partitions,
        members,
        tally=replace(
            backlog.tally,
            consumed=backlog.tally.consumed + done_since + due_since,
            scheduled=len(scheduled) - due_since,
        ),
        limits=definition.limits,
        retention=_retention(cluster) if members == 0 else None,
        waited=None if oldest is None else max(0.0, cluster.now() - oldest),
        pending=pending,
        text_limit=_text_limit(cluster, max((one.text for one in partitions), default=0)),
        priorities=_by_priority(definition, waiting),
        groups=None if definition.groups is None else len(grouped),
        oldest_in_group=min(grouped.values(), default=None),
        redelivered=sum(max(0, now[item.partition].counts.get(item.offset, 0) - 1) for item in backlog.messages),
    )


def _is_pending(cluster: Cluster, definition: QueueDefinition) -> bool:
    try:
        cluster.groups.committed(definition.group, definition.topic, timeout=_MOMENT)
    except TransportError as error:
        return isinstance(error, OffsetsPending)
    return False


def _full(limit: int) -> int:
    # Consumers keep a sixteenth free.
    return limit - limit // 16 - 64


def _text_limit(cluster: Cluster, longest: int) -> int:
    if longest > _full(LONGEST_TEXT):
        with suppress(TransportError):
            return cluster.groups.commit_text_limit()
    return LONGEST_TEXT


def _retention(cluster: Cluster) -> float | None:
    with suppress(TransportError):
        return cluster.groups.retention(timeout=_LOOK)
    return None


def _untouched(snapshot: QueueSnapshot) -> dict[int, CommitMap]:
    return {partition: CommitMap(start) for partition, start in snapshot.starts.items()}


def _commits_of_now(
    cluster: Cluster, snapshot: QueueSnapshot, before: Mapping[int, CommitMap]
) -> Mapping[int, CommitMap]:
    definition = snapshot.definition
    commits = cluster.groups.committed(definition.group, definition.topic, decided=False)
    found = examine(definition.group, definition.topic, before, commits, described=snapshot.described)
    return {partition: found.maps.get(partition, then) for partition, then in before.items()}


def _count(
    snapshot: QueueSnapshot, waiting: Iterable[Item], done: Mapping[int, CommitMap], *, consumed: bool
) -> tuple[PartitionStats, ...]:
    weighed = snapshot.definition.limits is not None
    depth: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    attempted: Counter[int] = Counter()
    oldest: dict[int, int] = {}
    for item in waiting:
        partition = item.partition
        depth[partition] += 1
        sizes[partition] += weight(item) if weighed else 0
        attempted[partition] += item.offset < (done[partition].delivered or 0)
        oldest[partition] = min(oldest.get(partition, item.timestamp), item.timestamp)
    return tuple(
        PartitionStats(
            partition=partition,
            start=snapshot.starts[partition],
            stable=snapshot.stable[partition],
            end=snapshot.ends[partition],
            base=state.base if consumed else None,
            depth=depth[partition],
            bytes=sizes[partition] if weighed else None,
            attempted=attempted[partition],
            oldest=oldest[partition] / 1000 if partition in oldest else None,
            lag=max(0, snapshot.ends[partition] - max(state.base, snapshot.starts[partition])) if consumed else None,
            done_ahead=sum(state.runs[1::2]),
            sequence=state.sequence if consumed else None,
            text=len(snapshot.commits[partition].metadata) if consumed else 0,
        )
        for partition, state in sorted(done.items())
    )


def _by_priority(definition: QueueDefinition, waiting: Iterable[Item]) -> dict[int, WaitingStats]:
    if definition.order != "priority":
        return {}
    arrived: dict[int, list[int]] = {priority: [] for priority in range(HIGHEST_PRIORITY, -1, -1)}
    for item in waiting:
        said = priority_of(header_value(item.headers or (), PRIORITY_HEADER) or b"")
        arrived[DEFAULT_PRIORITY if said is None else said].append(item.timestamp)
    return {
        priority: WaitingStats(len(times), min(times) / 1000 if times else None) for priority, times in arrived.items()
    }


def _by_group(definition: QueueDefinition, waiting: Iterable[Item]) -> dict[bytes, float]:
    """Return the arrival time of the oldest message of each group."""
    oldest: dict[bytes, float] = {}
    for item in waiting if definition.groups is not None else ():
        assert definition.groups is not None
        if (group := definition.groups.group(item.headers)) is not None:
            oldest[group] = min(oldest.get(group, math.inf), item.timestamp / 1000)
    return oldest
