"""Changes to a queue's consumed state from outside of its consumers, while none is active.

Each change writes whole commit maps, each true by itself. The broker protects against consumers: it accepts outside
commits only for a group without members. A consumer's commit between our read and our write is detected just before the
write. In the instant left between the two, its acks could be undone: their messages would be redelivered, but none
would be lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Literal

from lvq_kafka.cluster import Cluster, Commit, GroupListener, GroupMember
from lvq_kafka.core.commit_map.commit_map import LONGEST_TEXT, CommitMap, following, topic_tag
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.keys import Key, chosen_keys
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.text.validation import delays, moment
from lvq_kafka.core.waiting.pending import Deletion
from lvq_kafka.declared.damage import Damage
from lvq_kafka.declared.group_checks import at_work, means_at_work
from lvq_kafka.errors import ConfigError, QueueError, TopicNotFound, TransportError, Unauthorized
from lvq_kafka.managing.backlog import QueueSnapshot, read_backlog, snapshot_queue
from lvq_kafka.runtime.overriding import override

__all__ = [
    "MOST_TEXT",
    "Change",
    "Point",
    "Repair",
    "expire",
    "idle",
    "keep_alive",
    "purge",
    "repair",
    "reset",
    "signed",
    "store",
]

logger = logging.getLogger("lvq_kafka.management")

Point = Literal["earliest", "latest"] | float | Mapping[int, int]
"""A point in the log: its beginning, its end, a time or an offset per partition.

A time is in seconds since the epoch.
"""

_POINTS = 'Give "earliest", "latest", a time in seconds since the epoch, or an offset for each partition.'

_POLL = 0.05  # seconds

MOST_TEXT = LONGEST_TEXT * 3 // 4
"""Maximum characters of a commit map written from outside; the rest is room for acks."""


@dataclass(frozen=True, slots=True)
class Change:
    """The commit maps of the group before and after a change, by partition."""

    before: Mapping[int, CommitMap]
    after: Mapping[int, CommitMap]
    messages: int | None = None
    """Messages that were waiting, or scheduled, and are now done. None if they were not counted."""
    without_room: int = 0
    """Messages selected but left: they lie too far apart for the commit map.

    Room returns as the queue is consumed, or if more of it is selected at once.
    """


@dataclass(frozen=True, slots=True)
class Repair:
    """The problems found in a queue's commits, and what was done about them."""

    found: tuple[Damage, ...]
    left: tuple[Damage, ...]
    """Damage that was not repaired, because only the caller can know where to start."""
    after: Mapping[int, CommitMap]
    """The group's commit maps after the repair; on a dry run, what they would be.

    Empty if there was nothing to do.
    """
    dry_run: bool


def purge(
    cluster: Cluster, definition: QueueDefinition, keys: Iterable[Key] | None = None, *, timeout: float = 60.0
) -> Change:
    """Mark everything in the queue as consumed. See `lvq_kafka.queue.LastValueQueue.purge`."""
    wanted = chosen_keys(keys)
    snapshot = idle(cluster, definition)
    loaded = snapshot.maps()
    if wanted is not None:
        return _mark_consumed(cluster, snapshot, loaded, lambda item: item.key in wanted, timeout, scheduled=True)
    ends = {
        partition: replace(one, base=max(one.base, snapshot.stable[partition]), runs=(), counts={})
        for partition, one in loaded.items()
    }
    return Change(loaded, store(cluster, snapshot, signed(snapshot, ends)))


def expire(cluster: Cluster, definition: QueueDefinition, older_than: float, *, timeout: float = 60.0) -> Change:
    """Mark older messages as consumed. See `lvq_kafka.queue.LastValueQueue.expire`."""
    delays(older_than=older_than)
    snapshot = idle(cluster, definition)
    horizon = (_now(cluster, snapshot) - older_than) * 1000
    snapshot = snapshot_queue(cluster, definition)
    chosen = lambda item: item.timestamp < horizon  # noqa: E731
    return _mark_consumed(cluster, snapshot, snapshot.maps(), chosen, timeout, scheduled=False)


def _now(cluster: Cluster, snapshot: QueueSnapshot) -> float:
    """Return the cluster's time, which stamped the arrivals.

    This machine's clock may be hours off and would expire messages that have just arrived. The only clock that a client
    can read without writing to a topic is that of commits, so the group re-commits what it already holds.
    """
    name = snapshot.definition.name
    try:
        store(cluster, snapshot, signed(snapshot, snapshot.maps()))
        return cluster.groups.committed_at(snapshot.definition.group)
    except (TransportError, TopicNotFound) as error:
        if isinstance(error, TransportError) and error.retriable:
            raise
        logger.warning("the age of messages in queue %s is judged by the clock of this machine: %s", name, error)
        return cluster.now()


def reset(cluster: Cluster, definition: QueueDefinition, to: Point) -> Change:
    """Move the queue's position. See `lvq_kafka.queue.LastValueQueue.reset`."""
    snapshot = idle(cluster, definition)
    bases = _resolve(cluster, snapshot, to, "to")
    loaded = snapshot.maps("ignore" if snapshot.refused <= bases.keys() else "refuse")
    maps: dict[int, CommitMap] = {}
    for partition, base in bases.items():
        # Messages done before may have been delivered, so those that return are flagged as redelivered.
        delivered = max(loaded[partition].delivered or 0, loaded[partition].end)
        maps[partition] = CommitMap(
            base, sequence=loaded[partition].sequence, delivered=delivered if delivered > base else None
        )
    return Change(loaded, {**loaded, **store(cluster, snapshot, signed(snapshot, maps))})


def repair(
    cluster: Cluster, definition: QueueDefinition, start: Point | None = None, *, dry_run: bool = False
) -> Repair:
    """Repair the queue's commits. See `lvq_kafka.queue.LastValueQueue.repair`."""
    snapshot = snapshot_queue(cluster, definition, decided=False) if dry_run else idle(cluster, definition)
    found = snapshot.findings()
    starts = {} if start is None else _resolve(cluster, snapshot, start, "start")
    maps = dict(found.maps)
    left: list[Damage] = []
    for damage in found.damages:
        # Added partitions have no consumed messages, so there is nothing to choose.
        known = starts if damage.needs_start else snapshot.starts
        for partition in damage.partitions:
            if damage.kind == "commit-refused" and partition in starts:
                maps[partition] = CommitMap(starts[partition])  # rather than trust the offset of an unknown client
            if partition in known and partition not in maps:
                maps[partition] = CommitMap(known[partition])
        if rest := tuple(partition for partition in damage.partitions if partition not in maps):
            left.append(replace(damage, partitions=rest))
    if tuple(left) == found.damages:
        return Repair(found.damages, tuple(left), {}, dry_run)
    mended = signed(snapshot, maps)
    return Repair(found.damages, tuple(left), mended if dry_run else store(cluster, snapshot, mended), dry_run)


def keep_alive(cluster: Cluster, definition: QueueDefinition, *, timeout: float = 30.0) -> bool:
    """Join the queue's group and leave it. See `lvq_kafka.queue.LastValueQueue.keep_alive`."""
    group = definition.group
    if cluster.groups.member_count(group):
        return False
    before = snapshot_queue(cluster, definition, decided=False)
    if not before.commits:
        before.maps()  # raises: there is nothing to keep
    with closing(cluster.member(group, definition.topic, _Visitor(), renews=True)) as member:
        _await_admission(member, group, timeout)
    # Only now: what is left of a group is kept, whatever else is wrong with it.
    snapshot_queue(cluster, definition, decided=False).maps()
    return True


def _await_admission(member: GroupMember, group: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() > deadline
        try:
            member.poll(_POLL)
        except _Admitted:
            return
        except TransportError as error:
            if late or not error.retriable:
                raise
            time.sleep(_POLL)
        if late:
            raise TransportError(
                f"The group {group!r} has admitted no member within {timeout:g} s.",
                code="_TIMED_OUT",
                retriable=True,
                hint="Another consumer may just have come. Try again.",
            )


class _Admitted(Exception):
    """The group has assigned partitions to the member, so it is one."""


class _Visitor(GroupListener):
    """A listener whose member reads nothing, because it takes no assignment."""

    @override
    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        raise _Admitted

    @override
    def revoked(self, partitions: Sequence[int]) -> None: ...

    @override
    def lost(self, partitions: Sequence[int]) -> None: ...


# -------------------------------------------------------------------- helpers


def idle(cluster: Cluster, definition: QueueDefinition) -> QueueSnapshot:
    """Take a snapshot of a queue that has no active consumers.

    Raises:
        QueueError: consumers are active.
        TopicNotFound, TransportError: as in `snapshot_queue`.
    """
    with suppress(Unauthorized):  # the broker would refuse the commit anyway; this check only fails earlier
        if cluster.groups.member_count(definition.group):
            raise at_work(definition.name)
    return snapshot_queue(cluster, definition)


def signed(snapshot: QueueSnapshot, maps: Mapping[int, CommitMap]) -> dict[int, CommitMap]:
    """Return these maps as the next commits in this topic."""
    tag, partitions = topic_tag(snapshot.described.id), len(snapshot.ends)
    return {
        partition: replace(one, topic_tag=tag, partitions=partitions, sequence=following(one.sequence))
        for partition, one in maps.items()
    }


def store(cluster: Cluster, snapshot: QueueSnapshot, maps: Mapping[int, CommitMap]) -> dict[int, CommitMap]:
    """Commit from outside, and return the stored maps.

    Raises:
        QueueError: consumers are active, or have been since ``snapshot`` was taken.
        TransportError: the cluster cannot be reached or refuses.
    """
    definition = snapshot.definition
    now = replace(snapshot, commits=cluster.groups.committed(definition.group, definition.topic))
    # Compare maps, not texts: those of another client may end in different garbage on each read.
    if now.findings().maps != snapshot.findings().maps:
        raise QueueError(
            f"The position of the queue {definition.name} has changed meanwhile.",
            queue=definition.name,
            hint="Close its consumers, and try again.",
        )
    # A map of maximum length may now be a character longer.
    lengths = {partition: len(commit.metadata) for partition, commit in snapshot.commits.items()}
    fitting = {
        partition: one.shortened(max(LONGEST_TEXT, lengths.get(partition, 0))) for partition, one in maps.items()
    }
    try:
        cluster.groups.commit(definition.group, definition.topic, snapshot.commits_of(fitting))
    except TransportError as error:
        if means_at_work(error):
            raise at_work(definition.name) from None
        raise
    return fitting


def _mark_consumed(
    cluster: Cluster,
    snapshot: QueueSnapshot,
    loaded: Mapping[int, CommitMap],
    chosen: Callable[[Item], bool],
    timeout: float,
    *,
    scheduled: bool,
) -> Change:
    """Mark single messages as consumed, as many as fit.

    Args:
        scheduled: whether to choose among those that do not count yet, too. Then all of a key must be chosen: what is
            done supersedes all below it in its key.
    """
    backlog = read_backlog(cluster, snapshot, loaded, timeout=timeout)
    items = [item for item in backlog.messages + (backlog.scheduled if scheduled else []) if chosen(item)]
    backlog.leave(items)
    most = MOST_TEXT
    while True:
        fitting = backlog.fitting(items, most)
        try:
            after = store(cluster, snapshot, signed(snapshot, backlog.claim(fitting)))
        except TransportError as error:
            if error.code != "OFFSET_METADATA_TOO_LARGE" or not fitting:
                raise
            most //= 2  # this broker's limit is lower
        else:
            return Change(loaded, after, _values(fitting), _values(items) - _values(fitting))


def _values(items: Iterable[Item]) -> int:
    return sum(not isinstance(item, Deletion) for item in items)


def _resolve(cluster: Cluster, snapshot: QueueSnapshot, point: Point, option: str) -> dict[int, int]:
    """Return the offsets of a point.

    Raises:
        ConfigError: ``point`` is invalid or lies outside the log.
    """
    topic = snapshot.definition.topic
    if point == "earliest":
        return dict(snapshot.starts)
    if point == "latest":
        return dict(snapshot.stable)
    if isinstance(point, Mapping):
        return _checked(snapshot, point, option)
    offsets = cluster.logs.offsets_at(topic, round(moment(option, point, _POINTS) * 1000))
    return {p: min(offsets[p], stable) for p, stable in snapshot.stable.items()}


def _checked(snapshot: QueueSnapshot, offsets: Mapping[int, int], option: str) -> dict[int, int]:
    if not offsets:
        raise ConfigError(f"{option} names no partition.", options=[option])
    for partition, offset in offsets.items():
        begin, end = snapshot.starts.get(partition), snapshot.stable.get(partition)
        if begin is None or end is None:
            raise ConfigError(
                f"The topic {snapshot.definition.topic} has no partition {partition!r}; it has {len(snapshot.ends)}.",
                options=[option],
            )
        if type(offset) is not int or not begin <= offset <= end:
            raise ConfigError(
                f"Offset {offset!r} is not in partition {partition}, which holds {begin} to {end}.", options=[option]
            )
    return dict(offsets)
