"""Changes to what a queue has consumed, made from outside of its consumers, while none is at work.

Each writes whole commit maps that are true by themselves. Consumers are refused by the broker, which takes commits from
outside only for a group without members; what one has committed between our look and our write is seen just before the
write. In the instant that is left between the two its acks could be undone: their messages would come again, none is
lost by it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.commit_map import LONGEST_TEXT, CommitMap, following, topic_tag
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.keys import Key
from lvq_kafka.core.ledger import Item
from lvq_kafka.core.validation import chosen_keys, delays, moment
from lvq_kafka.errors import ConfigError, QueueError, TopicNotFound, TransportError, Unauthorized
from lvq_kafka.managing.backlog import QueueSnapshot, read_backlog, snapshot_queue
from lvq_kafka.managing.damage import Damage
from lvq_kafka.managing.group_checks import at_work, means_at_work

__all__ = [
    "MOST_TEXT",
    "Change",
    "Point",
    "Repair",
    "expire",
    "idle",
    "purge",
    "repair",
    "reset",
    "signed",
    "store",
]

logger = logging.getLogger("lvq_kafka.management")

Point = Literal["earliest", "latest"] | float | Mapping[int, int]
"""Where in the log: its beginning, its end, a time in seconds since the epoch, or an offset for each partition."""

_POINTS = 'It is "earliest", "latest", a time in seconds since the epoch, or an offset for each partition.'

MOST_TEXT = LONGEST_TEXT * 3 // 4
"""Characters of a commit map that is written from outside. The rest is room for consumers to ack in."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was changed: by partition, what the group held before and what it holds now."""

    before: Mapping[int, CommitMap]
    after: Mapping[int, CommitMap]
    messages: int | None = None
    """Messages that were waiting and are done now. None where they were not counted."""
    without_room: int = 0
    """Messages that were meant too, and stay: they lie too far apart for the commit map. As the queue is consumed, or
    when more of it is taken at once, there is room again."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What was wrong with a queue's commits, and what was done about it."""

    found: tuple[Damage, ...]
    left: tuple[Damage, ...]
    """What of it is not mended, because only the caller can know where to start."""
    after: Mapping[int, CommitMap]
    """What the group holds now; or would hold, if it was a dry run. Empty when there was nothing to do."""
    dry_run: bool


def purge(
    cluster: Cluster, definition: QueueDefinition, keys: Iterable[Key] | None = None, *, timeout: float = 60.0
) -> Change:
    """Count what is in the queue as consumed. See `lvq_kafka.queue.LastValueQueue.purge`."""
    wanted = chosen_keys(keys)
    snapshot = idle(cluster, definition)
    loaded = snapshot.maps()
    if wanted is not None:
        return _mark_consumed(cluster, snapshot, loaded, lambda item: item.key in wanted, timeout)
    ends = {
        partition: replace(one, base=max(one.base, snapshot.stable[partition]), runs=(), counts={})
        for partition, one in loaded.items()
    }
    return Change(loaded, store(cluster, snapshot, signed(snapshot, ends)))


def expire(cluster: Cluster, definition: QueueDefinition, older_than: float, *, timeout: float = 60.0) -> Change:
    """Count as consumed what is older. See `lvq_kafka.queue.LastValueQueue.expire`."""
    delays(older_than=older_than)
    snapshot = idle(cluster, definition)
    horizon = (_now(cluster, snapshot) - older_than) * 1000
    snapshot = snapshot_queue(cluster, definition)
    return _mark_consumed(cluster, snapshot, snapshot.maps(), lambda item: item.timestamp < horizon, timeout)


def _now(cluster: Cluster, snapshot: QueueSnapshot) -> float:
    """The cluster's time, by which arrival was stamped; this machine's may be hours off, and take what has just come.

    The only clock that a client can read without writing into a topic is that of commits. So the group commits what it
    holds already.
    """
    name = snapshot.definition.name
    try:
        store(cluster, snapshot, signed(snapshot, snapshot.maps()))
        return cluster.committed_at(snapshot.definition.group)
    except (TransportError, TopicNotFound) as error:
        if isinstance(error, TransportError) and error.retriable:
            raise
        logger.warning("what is old in queue %s is judged by the clock of this machine: %s", name, error)
        return time.time()


def reset(cluster: Cluster, definition: QueueDefinition, to: Point) -> Change:
    """Go on at another point. See `lvq_kafka.queue.LastValueQueue.reset`."""
    snapshot = idle(cluster, definition)
    bases = _resolve(cluster, snapshot, to, "to")
    loaded = snapshot.maps("ignore" if snapshot.refused <= bases.keys() else "refuse")
    maps: dict[int, CommitMap] = {}
    for partition, base in bases.items():
        # What was done before may have been handed out before; what comes of it again is marked so.
        delivered = max(loaded[partition].delivered or 0, loaded[partition].end)
        maps[partition] = CommitMap(
            base, sequence=loaded[partition].sequence, delivered=delivered if delivered > base else None
        )
    return Change(loaded, {**loaded, **store(cluster, snapshot, signed(snapshot, maps))})


def repair(
    cluster: Cluster, definition: QueueDefinition, start: Point | None = None, *, dry_run: bool = False
) -> Repair:
    """Mend what is wrong with the commits. See `lvq_kafka.queue.LastValueQueue.repair`."""
    snapshot = snapshot_queue(cluster, definition, decided=False) if dry_run else idle(cluster, definition)
    found = snapshot.findings()
    starts = {} if start is None else _resolve(cluster, snapshot, start, "start")
    maps = dict(found.maps)
    left: list[Damage] = []
    for damage in found.damages:
        # Nothing of partitions that were added has been consumed, so there is nothing to choose.
        known = starts if damage.needs_start else snapshot.starts
        for partition in damage.partitions:
            if damage.kind == "commit-refused" and partition in starts:
                maps[partition] = CommitMap(starts[partition])  # rather than by the offset of who knows whom
            if partition in known and partition not in maps:
                maps[partition] = CommitMap(known[partition])
        if rest := tuple(partition for partition in damage.partitions if partition not in maps):
            left.append(replace(damage, partitions=rest))
    if tuple(left) == found.damages:
        return Repair(found.damages, tuple(left), {}, dry_run)
    mended = signed(snapshot, maps)
    return Repair(found.damages, tuple(left), mended if dry_run else store(cluster, snapshot, mended), dry_run)


# -------------------------------------------------------------------- the parts they are made of


def idle(cluster: Cluster, definition: QueueDefinition) -> QueueSnapshot:
    """See where a queue stands that nobody consumes.

    Raises:
        QueueError: consumers are at work.
        TopicNotFound, TransportError: as `look`.
    """
    with suppress(Unauthorized):  # the broker refuses the commit in any case; this saves the work until then
        if cluster.member_count(definition.group):
            raise at_work(definition.name)
    return snapshot_queue(cluster, definition)


def signed(snapshot: QueueSnapshot, maps: Mapping[int, CommitMap]) -> dict[int, CommitMap]:
    """These maps as the next commits in this topic."""
    tag, partitions = topic_tag(snapshot.described.id), len(snapshot.ends)
    return {
        partition: replace(one, topic_tag=tag, partitions=partitions, sequence=following(one.sequence))
        for partition, one in maps.items()
    }


def store(cluster: Cluster, snapshot: QueueSnapshot, maps: Mapping[int, CommitMap]) -> dict[int, CommitMap]:
    """Commit from outside, and return what was stored.

    Raises:
        QueueError: consumers are at work, or have been since the look that ``standing`` is.
        TransportError: the cluster cannot be reached or refuses.
    """
    definition = snapshot.definition
    now = replace(snapshot, commits=cluster.committed(definition.group, definition.topic))
    # Texts cannot be compared: of another client's each reading may end in other rubbish.
    if now.findings().maps != snapshot.findings().maps:
        raise QueueError(
            f"What was consumed of the queue {definition.name} has changed meanwhile.",
            queue=definition.name,
            hint="Close its consumers, and do it again.",
        )
    # A map that was as long as can be may be longer by a letter now.
    lengths = {partition: len(commit.metadata) for partition, commit in snapshot.commits.items()}
    fitting = {
        partition: one.shortened(max(LONGEST_TEXT, lengths.get(partition, 0))) for partition, one in maps.items()
    }
    try:
        cluster.commit(definition.group, definition.topic, snapshot.commits_of(fitting))
    except TransportError as error:
        if means_at_work(error):
            raise at_work(definition.name) from error
        raise
    return fitting


def _mark_consumed(
    cluster: Cluster,
    snapshot: QueueSnapshot,
    loaded: Mapping[int, CommitMap],
    chosen: Callable[[Item], bool],
    timeout: float,
) -> Change:
    """Count single messages as consumed, as many as there is room for."""
    backlog = read_backlog(cluster, snapshot, loaded, timeout=timeout)
    items = [item for item in backlog.messages if chosen(item)]
    backlog.leave(items)
    most = MOST_TEXT
    while True:
        fitting = backlog.fitting(items, most)
        try:
            after = store(cluster, snapshot, signed(snapshot, backlog.claim(fitting)))
        except TransportError as error:
            if error.code != "OFFSET_METADATA_TOO_LARGE" or not fitting:
                raise
            most //= 2  # this broker takes less
        else:
            return Change(loaded, after, len(fitting), len(items) - len(fitting))


def _resolve(cluster: Cluster, snapshot: QueueSnapshot, point: Point, option: str) -> dict[int, int]:
    """The offsets of a point.

    Raises:
        ConfigError: it is none, or lies outside the log.
    """
    topic = snapshot.definition.topic
    if point == "earliest":
        return dict(snapshot.starts)
    if point == "latest":
        return dict(snapshot.stable)
    if isinstance(point, Mapping):
        return _checked(snapshot, point, option)
    offsets = cluster.offsets_at(topic, round(moment(option, point, _POINTS) * 1000))
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
